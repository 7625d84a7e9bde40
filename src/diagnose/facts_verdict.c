/* Assigns the judge's verdicts to the processes, and picks the process to diagnose. */
#include <math.h>

#include "diagnose/facts_private.h"

static const double late_least_bytes = 8 << 20, late_least_share = 0.05;

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
 * Verdicts on workers are not enough for this choice, because many workers exit before there is
 * one. */
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
    if (best && is_earlier) /* all verdicts except earlier_leak are about the last segment */
        best->verdict = facts_verdict_of(&v->earlier_leak);
    f->main = best;
    f->main = growing_worker(f);
}
