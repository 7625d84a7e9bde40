/* The numbers of the server and its jobs in the text format of Prometheus, version 0.0.4. A running
 * job is labelled by its id: names and commands are its owner's. */
#include "server/http/metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "proc/procfs.h"
#include "server/http/live.h"
#include "version.h"

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct buf *out, const char *name, const char *type, const char *help, double v)
{
    head(out, name, type, help);
    buf_printf(out, "%s %.17g\n", name, v);
}

static double number_at(const json_t *doc, const char *key, const char *inner)
{
    const json_t *v = json_object_get(doc, key);
    return json_number_value(inner ? json_object_get(v, inner) : v);
}

/* ---- jobs that are and were ---- */

/* Counters KEY.LABEL as NAME{LABEL_NAME="LABEL"}: the labels are words of ours (jobs_end.c). */
static void labelled(struct buf *out, json_t *counters, const char *prefix, const char *name,
                     const char *label_name, const char *help)
{
    const char *key;
    json_t *value;
    size_t len = strlen(prefix);
    head(out, name, "counter", help);
    json_object_foreach(counters, key, value) if (strncmp(key, prefix, len) == 0) buf_printf(
        out, "%s{%s=\"%s\"} %.17g\n", name, label_name, key + len, json_number_value(value));
}

static void counter(struct buf *out, const json_t *counters, const char *key, const char *name,
                    const char *help)
{
    one(out, name, "counter", help, json_number_value(json_object_get(counters, key)));
}

static void print_counters(struct buf *out, json_t *c)
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
    head(out, "ebb_job_start_seconds", "summary", "From the decision to start until it runs.");
    buf_printf(out, "ebb_job_start_seconds_sum %.17g\nebb_job_start_seconds_count %.17g\n",
               number_at(c, "start_seconds", NULL), number_at(c, "starts", NULL));
}

static void print_states(struct buf *out, json_t *by_state)
{
    const char *state;
    json_t *value;
    head(out, "ebb_jobs", "gauge", "Jobs that the server knows, by state.");
    json_object_foreach(by_state, state, value)
        buf_printf(out, "ebb_jobs{state=\"%s\"} %.17g\n", state, json_number_value(value));
}

/* ---- each that runs ---- */

struct job_metric {
    const char *name, *help, *key, *inner;
};

static const struct job_metric job_metrics[] = {
    {"ebb_job_memory_bytes", "Memory of a running job, shared pages counted once.", "memory",
     "job_bytes"},
    {"ebb_job_memory_peak_bytes", "Its largest.", "memory", "peak_bytes"},
    {"ebb_job_memory_unique_bytes", "What its processes have to themselves.", "memory",
     "unique_bytes"},
    {"ebb_job_memory_limit_bytes", "The limit nearest to it.", "memory", "limit_bytes"},
    {"ebb_job_memory_headroom_bytes", "What is left below that.", "memory", "headroom_bytes"},
    {"ebb_job_gpu_memory_bytes", "GPU memory of a running job.", "memory", "gpu_bytes"},
    {"ebb_job_memory_growth_bytes_per_minute", "How fast its floor rises, by the verdict.",
     "verdict", "rate_bytes_per_min"},
    {"ebb_job_step", "Its last step.", "progress", "step"},
    {"ebb_job_steps_per_second", "Steps a second.", "progress", "steps_per_s"},
    {"ebb_job_eta_seconds", "Until its last step, at that pace.", "progress", "eta_s"},
    {"ebb_job_start_time_seconds", "When it started, since 1970.", "started_s", NULL},
};

/* A rate may come with its interval. */
static const json_t *value_of(const json_t *job, const struct job_metric *m)
{
    const json_t *v = json_object_get(job, m->key);
    if (m->inner)
        v = json_object_get(v, m->inner);
    return json_is_object(v) ? json_object_get(v, "value") : v;
}

static void print_running(struct buf *out, json_t *running)
{
    size_t i;
    json_t *job;
    for (size_t k = 0; k < sizeof job_metrics / sizeof *job_metrics; k++) {
        const struct job_metric *m = &job_metrics[k];
        head(out, m->name, "gauge", m->help);
        json_array_foreach(running, i, job)
        {
            const json_t *v = value_of(job, m);
            if (json_is_number(v))
                buf_printf(out, "%s{job=\"%" JSON_INTEGER_FORMAT "\"} %.17g\n", m->name,
                           json_integer_value(json_object_get(job, "id")), json_number_value(v));
        }
    }
    head(out, "ebb_job_verdict_info", "gauge", "The verdict on a running job, as a label.");
    json_array_foreach(running, i, job)
    {
        const char *word =
            json_string_value(json_object_get(json_object_get(job, "verdict"), "verdict"));
        if (word && word[strspn(word, "abcdefghijklmnopqrstuvwxyz")] == '\0')
            buf_printf(out,
                       "ebb_job_verdict_info{job=\"%" JSON_INTEGER_FORMAT "\",verdict=\"%s\"} 1\n",
                       json_integer_value(json_object_get(job, "id")), word);
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
    one(out, "process_resident_memory_bytes", "gauge", "Memory of the server.",
        (double)metrics_own_bytes());
    one(out, "process_open_fds", "gauge", "Open files of the server.", open_fds());
    one(out, "process_cpu_seconds_total", "counter", "CPU time of the server.",
        (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
            (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    one(out, "process_start_time_seconds", "gauge", "When the server started, since 1970.",
        (double)started_wall_ns / 1e9);
    head(out, "ebb_build_info", "gauge", "The version, as a label.");
    buf_printf(out, "ebb_build_info{version=\"%s\"} 1\n", EBB_VERSION);
}

static void print_room(struct buf *out, const json_t *room)
{
    one(out, "ebb_slots", "gauge", "Jobs that may run at a time.", number_at(room, "slots", "all"));
    one(out, "ebb_slots_used", "gauge", "Jobs that do.", number_at(room, "slots", "used"));
    one(out, "ebb_memory_reserved_bytes", "gauge", "Memory set aside for running jobs.",
        number_at(room, "memory", "used_bytes"));
    if (json_is_number(json_object_get(json_object_get(room, "memory"), "all_bytes")))
        one(out, "ebb_memory_for_jobs_bytes", "gauge", "Memory that may be set aside.",
            number_at(room, "memory", "all_bytes"));
    one(out, "ebb_gpus", "gauge", "GPUs for jobs.", number_at(room, "gpus", "all"));
    one(out, "ebb_gpus_used", "gauge", "GPUs that jobs have.", number_at(room, "gpus", "used"));
}

void metrics_print(struct buf *out, const json_t *jobs, const json_t *room,
                   const struct live_counts *live, uint64_t started_wall_ns)
{
    print_process(out, started_wall_ns);
    print_room(out, room);
    print_states(out, json_object_get(jobs, "by_state"));
    print_counters(out, json_object_get(jobs, "counters"));
    print_running(out, json_object_get(jobs, "running"));
    if (!live)
        return;
    one(out, "ebb_live_viewers", "gauge", "Viewers of the live stream.", live->viewers);
    one(out, "ebb_live_messages_total", "counter", "Messages sent to them.",
        (double)live->messages);
    one(out, "ebb_live_skipped_total", "counter", "Messages left out for slow ones.",
        (double)live->skipped);
    one(out, "ebb_live_bytes_total", "counter", "Bytes sent to them.", (double)live->bytes);
}
