/* The numbers of the server and its jobs in the text format of Prometheus, version 0.0.4. A running
 * job is labelled by its id: names and commands are its owner's. */
#include "server/http/metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "proc/procfs.h"
#include "server/http/live.h"
#include "server/jobs/jobs.h"
#include "version.h"

static void metric_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void metric_value(struct buf *out, const char *name, const char *type, const char *help,
                         double v)
{
    metric_head(out, name, type, help);
    buf_printf(out, "%s %.17g\n", name, v);
}

/* ---- jobs that are and were ---- */

/* Counters PREFIX.LABEL as NAME{LABEL_NAME="LABEL"}: the labels are words of ours (jobs_end.c). */
static void labelled(struct buf *out, const struct jobs_metrics *m, const char *prefix,
                     const char *name, const char *label_name, const char *help)
{
    size_t len = strlen(prefix);
    metric_head(out, name, "counter", help);
    for (size_t i = 0; i < m->counter_count; i++) {
        const struct store_counter *c = &m->counters[i];
        if (strncmp(c->key, prefix, len) == 0)
            buf_printf(out, "%s{%s=\"%s\"} %.17g\n", name, label_name, c->key + len, c->value);
    }
}

static double counter_value(const struct jobs_metrics *m, const char *key)
{
    for (size_t i = 0; i < m->counter_count; i++) {
        if (strcmp(m->counters[i].key, key) == 0)
            return m->counters[i].value;
    }
    return 0;
}

static void counter(struct buf *out, const struct jobs_metrics *m, const char *key,
                    const char *name, const char *help)
{
    metric_value(out, name, "counter", help, counter_value(m, key));
}

static void print_counters(struct buf *out, const struct jobs_metrics *c)
{
    counter(out, c, "submitted", "ebb_jobs_submitted_total", "Jobs accepted.");
    labelled(out, c, "ended.", "ebb_jobs_ended_total", "state", "Jobs ended, by their last state.");
    labelled(out, c, "failed.", "ebb_job_failures_total", "cause", "Failed jobs, by cause.");
    labelled(out, c, "verdict.", "ebb_job_verdicts_total", "verdict",
             "Last verdict on the memory of ended jobs.");
    labelled(out, c, "returns.", "ebb_memory_returns_total", "result",
             "Ended jobs after which the machine had its memory back (clean), or not.");
    counter(out, c, "returned.host_bytes", "ebb_memory_returned_host_bytes_total",
            "Host memory that came back at the ends of jobs.");
    counter(out, c, "returned.gpu_bytes", "ebb_memory_returned_gpu_bytes_total",
            "GPU memory that came back at the ends of jobs.");
    counter(out, c, "overhead.cpu_seconds", "ebb_job_overhead_cpu_seconds_total",
            "CPU time that watching took, of ended jobs.");
    counter(out, c, "overhead.job_seconds", "ebb_job_seconds_total",
            "Time that ended jobs ran, for the overhead's share.");
    metric_head(out, "ebb_job_start_seconds", "summary",
                "From the decision to start until it runs.");
    buf_printf(out, "ebb_job_start_seconds_sum %.17g\nebb_job_start_seconds_count %.17g\n",
               counter_value(c, "start_seconds"), counter_value(c, "starts"));
}

static void print_states(struct buf *out, const struct jobs_metrics *m)
{
    metric_head(out, "ebb_jobs", "gauge", "Jobs that the server knows, by state.");
    for (unsigned i = 0; i < JOB_STATES; i++)
        buf_printf(out, "ebb_jobs{state=\"%s\"} %llu\n", job_state_word((enum job_state)i),
                   (unsigned long long)m->by_state[i]);
}

/* ---- each that runs ---- */

/* NOLINTNEXTLINE(bugprone-macro-parentheses): names of members */
#define FACT(part, m) offsetof(struct job_facts, part.has_##m), offsetof(struct job_facts, part.m)

static const struct job_metric {
    const char *name, *help;
    size_t has, at; /* of struct job_facts */
    bool is_real;
} job_metrics[] = {
    {"ebb_job_memory_bytes", "Memory of a running job, shared pages counted once.",
     FACT(memory, job_bytes), false},
    {"ebb_job_memory_peak_bytes", "Its largest.", FACT(memory, peak_bytes), false},
    {"ebb_job_memory_unique_bytes", "What its processes have to themselves.",
     FACT(memory, unique_bytes), false},
    {"ebb_job_memory_limit_bytes", "The limit nearest to it.", FACT(memory, limit_bytes), false},
    {"ebb_job_memory_headroom_bytes", "What is left below that.", FACT(memory, headroom_bytes),
     false},
    {"ebb_job_gpu_memory_bytes", "GPU memory of a running job.", FACT(memory, gpu_bytes), false},
    {"ebb_job_memory_growth_bytes_per_minute", "How fast its floor rises, by the verdict.",
     FACT(verdict, rate_bytes_per_min), true},
    {"ebb_job_step", "Its last step.", FACT(progress, step), false},
    {"ebb_job_steps_per_second", "Steps a second.", FACT(progress, steps_per_s), true},
    {"ebb_job_eta_seconds", "Until its last step, at that pace.", FACT(progress, eta_s), true},
};

static void print_running(struct buf *out, const struct jobs_metrics *all)
{
    for (const struct job_metric *m = job_metrics;
         m < job_metrics + sizeof job_metrics / sizeof *job_metrics; m++) {
        metric_head(out, m->name, "gauge", m->help);
        for (size_t i = 0; i < all->running_count; i++) {
            const char *facts = (const char *)all->running[i].facts;
            double real;
            int64_t whole;
            memcpy(&real, facts + m->at, sizeof real);
            memcpy(&whole, facts + m->at, sizeof whole);
            if (*(const bool *)(facts + m->has))
                buf_printf(out, "%s{job=\"%lld\"} %.17g\n", m->name, (long long)all->running[i].id,
                           m->is_real ? real : (double)whole);
        }
    }
    metric_head(out, "ebb_job_start_time_seconds", "gauge", "When it started, since 1970.");
    for (size_t i = 0; i < all->running_count; i++) {
        if (all->running[i].started_ns)
            buf_printf(out, "ebb_job_start_time_seconds{job=\"%lld\"} %.17g\n",
                       (long long)all->running[i].id, (double)all->running[i].started_ns / 1e9);
    }
    metric_head(out, "ebb_job_verdict_info", "gauge", "The verdict on a running job, as a label.");
    for (size_t i = 0; i < all->running_count; i++) {
        const char *word = all->running[i].facts->verdict.verdict;
        if (word[0] && word[strspn(word, "abcdefghijklmnopqrstuvwxyz")] == '\0')
            buf_printf(out, "ebb_job_verdict_info{job=\"%lld\",verdict=\"%s\"} 1\n",
                       (long long)all->running[i].id, word);
    }
}

/* ---- the server itself ---- */

static double open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    double n = 0;
    if (!d)
        return 0;
    for (const struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n - 1; /* the one that counts */
}

uint64_t metrics_own_bytes(void)
{
    char text[128];
    struct proc_statm m;
    ssize_t len = io_read_small(AT_FDCWD, "/proc/self/statm", text, sizeof text);
    if (len <= 0 || proc_statm_parse(text, (size_t)len, &m) < 0)
        return 0;
    return m.rss_pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void print_process(struct buf *out, uint64_t started_wall_ns)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    metric_value(out, "process_resident_memory_bytes", "gauge", "Memory of the server.",
                 (double)metrics_own_bytes());
    metric_value(out, "process_open_fds", "gauge", "Open files of the server.", open_fds());
    metric_value(out, "process_cpu_seconds_total", "counter", "CPU time of the server.",
                 (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                     (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    metric_value(out, "process_start_time_seconds", "gauge", "When the server started, since 1970.",
                 (double)started_wall_ns / 1e9);
    metric_head(out, "ebb_build_info", "gauge", "The version, as a label.");
    buf_printf(out, "ebb_build_info{version=\"%s\"} 1\n", EBB_VERSION);
}

static void print_room(struct buf *out, const struct plan_room *room)
{
    metric_value(out, "ebb_slots", "gauge", "Jobs that may run at a time.", room->slots);
    metric_value(out, "ebb_slots_used", "gauge", "Jobs that do.", room->slots_used);
    metric_value(out, "ebb_memory_reserved_bytes", "gauge", "Memory set aside for running jobs.",
                 (double)room->memory_used);
    if (room->memory_bytes)
        metric_value(out, "ebb_memory_for_jobs_bytes", "gauge", "Memory that may be set aside.",
                     (double)room->memory_bytes);
    metric_value(out, "ebb_gpus", "gauge", "GPUs for jobs.", room->gpus);
    metric_value(out, "ebb_gpus_used", "gauge", "GPUs that jobs have.",
                 __builtin_popcountll(room->gpus_used));
}

void metrics_print(struct buf *out, const struct jobs_metrics *jobs, const struct live_counts *live,
                   uint64_t started_wall_ns)
{
    print_process(out, started_wall_ns);
    print_room(out, jobs->room);
    print_states(out, jobs);
    print_counters(out, jobs);
    print_running(out, jobs);
    metric_value(out, "ebb_live_viewers", "gauge", "Viewers of the live stream.", live->viewers);
    metric_value(out, "ebb_live_messages_total", "counter", "Messages sent to them.",
                 (double)live->messages);
    metric_value(out, "ebb_live_skipped_total", "counter", "Messages left out for slow ones.",
                 (double)live->skipped);
    metric_value(out, "ebb_live_bytes_total", "counter", "Bytes sent to them.",
                 (double)live->bytes);
}
