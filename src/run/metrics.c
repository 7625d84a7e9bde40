/* Writes the metrics of running jobs. */
#include "run/metrics.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "run/job_facts.h"

/* NOLINTNEXTLINE(bugprone-macro-parentheses): PART and M are names of members */
#define FACT(part, m) offsetof(struct job_facts, part.has_##m), offsetof(struct job_facts, part.m)

static const struct job_metric {
    const char *name, *help;
    size_t has, at; /* offsets in struct job_facts */
    bool is_real;
} job_metrics[] = {
    {"ebb_job_memory_bytes", "Memory of a running job, shared pages counted once.",
     FACT(memory, job_bytes), false},
    {"ebb_job_memory_peak_bytes", "Peak memory of a running job.", FACT(memory, peak_bytes), false},
    {"ebb_job_memory_unique_bytes", "Memory of a running job that is mapped by only one process.",
     FACT(memory, unique_bytes), false},
    {"ebb_job_memory_limit_bytes", "Effective memory limit of a running job.",
     FACT(memory, limit_bytes), false},
    {"ebb_job_memory_headroom_bytes",
     "Memory that a running job has left below its effective limit.", FACT(memory, headroom_bytes),
     false},
    {"ebb_job_gpu_memory_bytes", "GPU memory of a running job.", FACT(memory, gpu_bytes), false},
    {"ebb_job_memory_growth_bytes_per_minute",
     "Growth rate of a running job's baseline, from the verdict.",
     FACT(verdict, rate_bytes_per_min), true},
    {"ebb_job_step", "Latest step of a running job.", FACT(progress, step), false},
    {"ebb_job_steps_per_second", "Steps per second of a running job.", FACT(progress, steps_per_s),
     true},
    {"ebb_job_eta_seconds", "Time until a running job reaches its last step at the current pace.",
     FACT(progress, eta_s), true},
};

void metrics_put_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Appends NAME{job="LABEL" and leaves the brace open for further labels. */
static void put_name(struct buf *out, const char *name, const struct metrics_job *job)
{
    struct buf label = {0};
    text_escape(&label, job->label, strlen(job->label)); /* must be UTF-8 */
    buf_printf(out, "%s{job=\"", name);
    for (const char *c = buf_str(&label); *c; c++) {
        if (*c == '"' || *c == '\\')
            buf_add_byte(out, '\\');
        buf_add_byte(out, (uint8_t)*c);
    }
    buf_add_byte(out, '"');
    out->failed = out->failed || label.failed;
    buf_fini(&label);
}

static void put_gauge(struct buf *out, const struct job_metric *m, const struct metrics_job *job)
{
    const char *facts = (const char *)job->facts;
    double real;
    int64_t whole;
    memcpy(&real, facts + m->at, sizeof real);
    memcpy(&whole, facts + m->at, sizeof whole);
    if (!*(const bool *)(facts + m->has))
        return;
    put_name(out, m->name, job);
    buf_printf(out, "} %.17g\n", m->is_real ? real : (double)whole);
}

void metrics_put_jobs(struct buf *out, const struct metrics_job *jobs, size_t count)
{
    for (size_t k = 0; k < sizeof job_metrics / sizeof *job_metrics; k++) {
        metrics_put_head(out, job_metrics[k].name, "gauge", job_metrics[k].help);
        for (size_t i = 0; i < count; i++)
            put_gauge(out, &job_metrics[k], &jobs[i]);
    }
    metrics_put_head(out, "ebb_job_start_time_seconds", "gauge",
                     "Start of a running job, Unix time.");
    for (size_t i = 0; i < count; i++) {
        if (!jobs[i].started_ns)
            continue;
        put_name(out, "ebb_job_start_time_seconds", &jobs[i]);
        buf_printf(out, "} %.17g\n", (double)jobs[i].started_ns / 1e9);
    }
    metrics_put_head(out, "ebb_job_verdict_info", "gauge", "Verdict on a running job, as a label.");
    for (size_t i = 0; i < count; i++) {
        const char *word = jobs[i].facts->verdict.verdict;
        if (!word[0] || word[strspn(word, "abcdefghijklmnopqrstuvwxyz")] != '\0')
            continue;
        put_name(out, "ebb_job_verdict_info", &jobs[i]);
        buf_printf(out, ",verdict=\"%s\"} 1\n", word);
    }
}
