/* Metrics of the server and its jobs in the text format of Prometheus, version 0.0.4. A running job
 * is labelled only by its id, because names and commands are private to the owner. */
#include "server/http/metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "proc/procfs.h"
#include "run/metrics.h"
#include "server/http/live.h"
#include "server/jobs/jobs.h"
#include "version.h"

static void metric_value(struct buf *out, const char *name, const char *type, const char *help,
                         double v)
{
    metrics_put_head(out, name, type, help);
    buf_printf(out, "%s %.17g\n", name, v);
}

/* ---- ended jobs ---- */

static double counter_value(const struct jobs_metrics *m, const char *key)
{
    for (size_t i = 0; i < m->counter_count; i++) {
        if (strcmp(m->counters[i].key, key) == 0)
            return m->counters[i].value;
    }
    return 0;
}

static const struct {
    /* A key that ends in "." stands for all counters that begin with it. Each counter PREFIX.VALUE
     * becomes one series. */
    const char *key, *name;
    const char *label; /* name of the label that contains VALUE, if KEY ends in "." */
    const char *help;
} counters[] = {
    {"submitted", "ebb_jobs_submitted_total", NULL, "Jobs accepted."},
    {"ended.", "ebb_jobs_ended_total", "state", "Ended jobs by final state."},
    {"failed.", "ebb_job_failures_total", "cause", "Failed jobs by cause."},
    {"verdict.", "ebb_job_verdicts_total", "verdict", "Ended jobs by their last memory verdict."},
    {"returns.", "ebb_memory_returns_total", "result",
     "Ended jobs: clean if all of their memory was returned to the system, else unclean."},
    {"returned.host_bytes", "ebb_memory_returned_host_bytes_total", NULL,
     "Host memory returned to the system when jobs ended."},
    {"returned.gpu_bytes", "ebb_memory_returned_gpu_bytes_total", NULL,
     "GPU memory returned to the system when jobs ended."},
    {"overhead.cpu_seconds", "ebb_job_overhead_cpu_seconds_total", NULL,
     "CPU time that ebb used to monitor jobs that have ended."},
    {"overhead.job_seconds", "ebb_job_seconds_total", NULL,
     "Run time of jobs that have ended; compare it with ebb's CPU time."},
};

static void print_counters(struct buf *out, const struct jobs_metrics *m)
{
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        size_t len = strlen(counters[i].key);
        metrics_put_head(out, counters[i].name, "counter", counters[i].help);
        if (!counters[i].label)
            buf_printf(out, "%s %.17g\n", counters[i].name, counter_value(m, counters[i].key));
        for (size_t k = 0; counters[i].label && k < m->counter_count; k++) {
            const struct store_counter *c = &m->counters[k];
            if (strncmp(c->key, counters[i].key, len) == 0)
                buf_printf(out, "%s{%s=\"%s\"} %.17g\n", counters[i].name, counters[i].label,
                           c->key + len, c->value);
        }
    }
    metrics_put_head(out, "ebb_job_start_seconds", "summary",
                     "Time from the decision to start a job until it runs.");
    buf_printf(out, "ebb_job_start_seconds_sum %.17g\nebb_job_start_seconds_count %.17g\n",
               counter_value(m, "start_seconds"), counter_value(m, "starts"));
}

/* ---- running jobs ---- */

static void print_running(struct buf *out, const struct jobs_metrics *all)
{
    struct running_label {
        char id[24];
    } *labels = calloc(all->running_count + 1, sizeof *labels);
    struct metrics_job *jobs = calloc(all->running_count + 1, sizeof *jobs);
    out->failed = out->failed || !labels || !jobs;
    for (size_t i = 0; labels && jobs && i < all->running_count; i++) {
        snprintf(labels[i].id, sizeof labels[i].id, "%lld", (long long)all->running[i].id);
        jobs[i] = (struct metrics_job){.label = labels[i].id,
                                       .started_ns = all->running[i].started_ns,
                                       .facts = all->running[i].facts};
    }
    if (labels && jobs)
        metrics_put_jobs(out, jobs, all->running_count);
    free(labels);
    free(jobs);
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
    return n - 1; /* the fd that opendir opened is not counted */
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
    metric_value(out, "process_resident_memory_bytes", "gauge", "Resident memory of the server.",
                 (double)metrics_own_bytes());
    metric_value(out, "process_open_fds", "gauge", "Open files of the server.", open_fds());
    metric_value(out, "process_cpu_seconds_total", "counter", "CPU time of the server.",
                 (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                     (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    metric_value(out, "process_start_time_seconds", "gauge",
                 "Start time of the server in Unix time.", (double)started_wall_ns / 1e9);
    metrics_put_head(out, "ebb_build_info", "gauge", "Version of the server, as a label.");
    buf_printf(out, "ebb_build_info{version=\"%s\"} 1\n", EBB_VERSION);
}

static void print_room(struct buf *out, const struct plan_room *room)
{
    metric_value(out, "ebb_slots", "gauge", "Maximum number of jobs that run at the same time.",
                 room->slots);
    metric_value(out, "ebb_slots_used", "gauge", "Running jobs.", room->slots_used);
    metric_value(out, "ebb_memory_reserved_bytes", "gauge", "Memory reserved for running jobs.",
                 (double)room->memory_used);
    if (room->memory_bytes)
        metric_value(out, "ebb_memory_for_jobs_bytes", "gauge",
                     "Memory that may be reserved for jobs.", (double)room->memory_bytes);
    metric_value(out, "ebb_gpus", "gauge", "GPUs available to jobs.", room->gpus);
    metric_value(out, "ebb_gpus_used", "gauge", "GPUs assigned to running jobs.",
                 __builtin_popcountll(room->gpus_used));
}

void metrics_print(struct buf *out, const struct jobs_metrics *jobs, const struct live_counts *live,
                   uint64_t started_wall_ns)
{
    print_process(out, started_wall_ns);
    print_room(out, jobs->room);
    metrics_put_head(out, "ebb_jobs", "gauge", "Jobs in the store by state.");
    for (unsigned i = 0; i < JOB_STATES; i++)
        buf_printf(out, "ebb_jobs{state=\"%s\"} %llu\n", job_state_word((enum job_state)i),
                   (unsigned long long)jobs->by_state[i]);
    print_counters(out, jobs);
    print_running(out, jobs);
    metric_value(out, "ebb_live_viewers", "gauge", "Viewers of the live stream.", live->viewers);
    metric_value(out, "ebb_live_messages_total", "counter", "Messages sent to viewers.",
                 (double)live->messages);
    metric_value(out, "ebb_live_skipped_total", "counter", "Messages skipped for slow viewers.",
                 (double)live->skipped);
    metric_value(out, "ebb_live_bytes_total", "counter", "Bytes sent to viewers.",
                 (double)live->bytes);
}
