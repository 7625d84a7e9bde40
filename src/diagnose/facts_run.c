/* Reads facts from the run: the processes of one segment with their signals and verdicts, and the
 * job's figures. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/facts_private.h"
#include "judge/recorded.h"

/* Each bucket of a series yields its minimum, its maximum and its last reading. */
enum { POINTS_PER_BUCKET = 3 };
static const double late_least_bytes = 8 << 20, late_least_share = 0.05;

static double facts_seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* ---- series ---- */

/* A part of the run, from FROM_NS to just before UNTIL_NS. */
struct period {
    uint64_t from_ns, until_ns;
};

/* Converts the readings of S in the period WHEN. Returns an empty series if out of memory. */
static struct facts_series take_series(struct facts *f, const struct series *s, struct period when)
{
    const size_t most = s ? (size_t)s->count * POINTS_PER_BUCKET : 0;
    struct facts_points *room = most ? calloc(1, sizeof *room + 2 * most * sizeof *room->v) : NULL;
    if (!most)
        return (struct facts_series){0};
    if (!room) {
        f->has_failed = true;
        return (struct facts_series){0};
    }
    double *t_s = room->v, *v = room->v + most;
    size_t count = 0;
    room->next = f->points;
    f->points = room;
    for (size_t i = 0; i < s->count; i++) {
        const struct series_bucket *b = &s->buckets[i];
        bool is_rising = b->min.t_ns < b->max.t_ns;
        const struct series_point points[POINTS_PER_BUCKET] = {
            is_rising ? b->min : b->max, is_rising ? b->max : b->min, b->last};
        for (size_t k = 0; k < POINTS_PER_BUCKET; k++) {
            double at_s = facts_seconds(points[k].t_ns);
            if (points[k].t_ns < when.from_ns || points[k].t_ns >= when.until_ns ||
                (count && t_s[count - 1] >= at_s))
                continue;
            t_s[count] = at_s;
            v[count++] = (double)points[k].v;
        }
    }
    return (struct facts_series){t_s, v, count};
}

/* ---- entities ---- */

static void facts_take_process(struct facts *f, const struct run_entity *e)
{
    struct facts_process *p = &f->processes[f->n_processes++];
    size_t len = e->info.comm_len < PROCESS_COMM_MAX ? e->info.comm_len : PROCESS_COMM_MAX;
    *p =
        (struct facts_process){.id = e->info.id,
                               .role = e->info.role,
                               .born_s = facts_seconds(e->execed_ns),
                               .died_s = e->is_dead ? facts_seconds(e->died_ns) : (double)INFINITY};
    memcpy(p->name, e->info.comm, len);
    for (size_t i = 0; i < SAMPLE_PROCESS_COUNT; i++)
        p->field[i] = take_series(f, e->signal[i], (struct period){e->execed_ns, UINT64_MAX});
    p->peak_bytes = facts_max(&p->field[SAMPLE_RSS], 0, (double)INFINITY);
}

static void facts_take_figure(struct facts *f, const struct run_entity *e, struct period when)
{
    struct facts_figure *figure = &f->figures[f->n_figures++];
    figure->pid = e->info.id.pid;
    memcpy(figure->name, e->name, sizeof figure->name);
    figure->series = take_series(f, e->signal[0], when);
}

static void facts_take_header(struct facts *f, const struct run *run)
{
    const char *thp = json_string_value(json_object_get(run->header, "thp"));
    if (thp && strlen(thp) < sizeof f->thp)
        memcpy(f->thp, thp, strlen(thp) + 1);
    f->start_ns = run->start_mono_ns;
    f->is_table = run->table.is_rows || run->table.is_imported;
    f->is_damaged = trace_is_damaged(&run->damage);
}

/* Finds the limit: the user's limit, or else the newest limit in the recorded samples, or else the
 * limit in the recording's header. */
static void facts_take_limit(struct facts *f, const struct recorded *r)
{
    const json_t *found = json_object_get(json_object_get(r->run->header, "limit"), "limit_bytes");
    uint64_t limit;
    f->limit_bytes = r->outcome.guard.has_limit_bytes ? (double)r->outcome.guard.limit_bytes
                     : run_value(&r->run->job, JOB_LIMIT, &limit) ? (double)limit
                     : json_is_integer(found) ? (double)json_integer_value(found)
                                              : (double)NAN;
}

/* ---- GPUs ---- */

static double reserved_growth(const struct run_entity *gpu)
{
    struct series_point last;
    const struct series *s = gpu->signal[GPU_RESERVED];
    return s && s->count && series_last(s, &last) ? (double)last.v - (double)s->buckets[0].min.v
                                                  : (double)-INFINITY;
}

/* Returns the GPU whose reserved memory grew most, or NULL if PyTorch reported no reserved
 * memory. */
static const struct run_entity *gpu_that_reserves(struct run_entity *const *gpus, size_t n)
{
    const struct run_entity *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (gpus[i]->signal[GPU_RESERVED] && gpus[i]->signal[GPU_ALLOCATED] &&
            (!best || reserved_growth(gpus[i]) > reserved_growth(best)))
            best = gpus[i];
    return best;
}

/* ---- the segment ---- */

static struct period period_of(const struct run *run, uint32_t segment)
{
    return (struct period){segment ? run->segments[segment - 1] : 0,
                           segment < run->segment_count ? run->segments[segment] : UINT64_MAX};
}

static uint64_t length_of(const struct run *run, uint32_t segment)
{
    struct period p = period_of(run, segment);
    uint64_t until_ns = p.until_ns < run->now_ns ? p.until_ns : run->now_ns;
    return until_ns > p.from_ns ? until_ns - p.from_ns : 0;
}

/* Returns the segment to diagnose, normally the last one. If the job has ended, an earlier segment
 * is chosen if it leaked and lasted longer than the last one, because the last segment is often too
 * short to show which memory grows. */
static uint32_t segment_to_diagnose(const struct recorded *r)
{
    const struct verdicts *v = &r->verdicts;
    uint32_t last = r->run->segment_count, earlier = v->earlier_segment;
    bool is_leak = v->has_job && v->job.result.leak == VERDICT_LEAK_YES && v->has_earlier_leak;
    bool is_earlier = is_leak && earlier < last && !outcome_is_running(&r->outcome) &&
                      length_of(r->run, earlier) > length_of(r->run, last);
    return is_earlier ? earlier : last;
}

int facts_take_run(struct facts *f, const struct recorded *recorded, bool *ret_is_earlier)
{
    const struct run *run = recorded->run;
    const struct run_entity *job = &run->job;
    struct run_entity **processes, **figures, **gpus;
    uint32_t segment = segment_to_diagnose(recorded);
    struct period when = period_of(run, segment);
    size_t n = run_list(run, RUN_PROCESS, &processes), m = run_list(run, RUN_FIGURE, &figures);
    size_t n_gpus = run_list(run, RUN_GPU, &gpus);
    const struct run_entity *gpu = gpus ? gpu_that_reserves(gpus, n_gpus) : NULL;
    f->processes = calloc(n + 1, sizeof *f->processes);
    f->figures = calloc(m + 1, sizeof *f->figures);
    f->has_failed = !processes || !figures || !f->processes || !f->figures;
    for (size_t i = 0; !f->has_failed && i < n; i++)
        if (processes[i]->segment == segment)
            facts_take_process(f, processes[i]);
    for (size_t i = 0; !f->has_failed && i < m; i++)
        if (!figures[i]->is_dead || figures[i]->died_ns >= when.from_ns)
            facts_take_figure(f, figures[i], when);
    f->charge = take_series(f, job->signal[JOB_CHARGE], when);
    f->tree = take_series(f, job->signal[JOB_TREE], when);
    f->tree_high = take_series(f, job->signal[JOB_TREE_HIGH], when);
    f->gpu_heap.job = take_series(f, job->signal[JOB_GPU], when);
    f->gpu_heap.reserved = take_series(f, gpu ? gpu->signal[GPU_RESERVED] : NULL, when);
    f->gpu_heap.allocated = take_series(f, gpu ? gpu->signal[GPU_ALLOCATED] : NULL, when);
    free(processes);
    free(figures);
    free(gpus);
    *ret_is_earlier = segment < run->segment_count;
    facts_take_header(f, run);
    facts_take_limit(f, recorded);
    return f->has_failed ? -ENOMEM : 0;
}

/* ---- verdicts and the process to diagnose ---- */

static struct facts_verdict facts_verdict_of(const struct verdict_result *r)
{
    const struct verdict_interval *step = &r->rate_bytes_per_step, *min = &r->rate_bytes_per_min;
    return (struct facts_verdict){.is_known = true,
                                  .word = r->word,
                                  .leak = r->leak,
                                  .per_step = step->known ? step->value : (double)NAN,
                                  .per_min = min->known ? min->value : (double)NAN,
                                  .ended_step =
                                      r->growth_ended.has_step ? (int64_t)r->growth_ended.step : -1,
                                  .ended_at = r->growth_ended.at,
                                  .event = r->event,
                                  .is_limited = r->forecast.known && r->forecast.is_limited};
}

static struct facts_process *facts_find(const struct facts *f, const struct judged *one)
{
    for (size_t i = 0; i < f->n_processes; i++)
        if (f->processes[i].id.pid == one->pid &&
            (!one->start_ticks || f->processes[i].id.start_ticks == one->start_ticks))
            return &f->processes[i];
    return NULL;
}

/* Returns true if P is preferred to BEST: the training process comes first, then the process with
 * the higher peak. */
static bool is_better(const struct facts_process *p, const struct facts_process *best)
{
    bool trains = p->role == ROLE_MAIN, best_trains = best && best->role == ROLE_MAIN;
    if (isnan(p->peak_bytes))
        return false;
    if (!best || trains != best_trains)
        return !best || trains;
    return p->peak_bytes > best->peak_bytes;
}

/* Returns the growth of RSS in the second half of the process's life. */
static double late_growth(const struct facts_process *p)
{
    const struct facts_series *rss = &p->field[SAMPLE_RSS];
    if (rss->count == 0)
        return 0;
    double last_s = rss->t_s[rss->count - 1], middle_s = (rss->t_s[0] + last_s) / 2;
    return facts_max(rss, middle_s, last_s) - facts_at(rss, middle_s);
}

/* Returns the main process or, if it is flat, the data-loader worker that clearly grows most.
 * Verdicts on workers are not sufficient for this choice, because many workers exit before they are
 * judged. */
static const struct facts_process *growing_worker(const struct facts *f)
{
    const struct facts_process *best = NULL;
    if (!f->main || !f->main->verdict.is_known || !facts_has_ended(f->main->verdict.word))
        return f->main;
    for (size_t i = 0; i < f->n_processes; i++) {
        const struct facts_process *p = &f->processes[i];
        bool is_flat = p->verdict.is_known && facts_has_ended(p->verdict.word);
        double grown = late_growth(p);
        if (p->role == ROLE_DATA_WORKER && !is_flat && grown > late_least_bytes &&
            grown > late_least_share * p->peak_bytes && grown > 4 * late_growth(f->main) &&
            (!best || grown > late_growth(best)))
            best = p;
    }
    return best ? best : f->main;
}

void facts_take_verdicts(struct facts *f, const struct verdicts *v, bool is_earlier)
{
    if (v->has_job)
        f->job = facts_verdict_of(&v->job.result);
    for (size_t i = 0; i < v->gpus.count; i++)
        if (!f->gpu.is_known || v->gpus.at[i].result.leak == VERDICT_LEAK_YES)
            f->gpu = facts_verdict_of(&v->gpus.at[i].result);
    for (size_t i = 0; i < v->processes.count; i++) {
        struct facts_process *p = facts_find(f, &v->processes.at[i]);
        if (p)
            p->verdict = facts_verdict_of(&v->processes.at[i].result);
    }
    if (v->has_grower && !is_earlier) {
        f->main = facts_find(f, &v->grower);
        return;
    }
    struct facts_process *best = NULL;
    for (size_t i = 0; i < f->n_processes; i++)
        if (is_better(&f->processes[i], best))
            best = &f->processes[i];
    if (best && is_earlier) /* all verdicts except earlier_leak describe the last segment */
        best->verdict = facts_verdict_of(&v->earlier_leak);
    f->main = best;
    f->main = growing_worker(f);
}
