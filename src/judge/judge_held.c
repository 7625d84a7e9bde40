/* Live memory by the samples of the profiler, for a job that is over: all there is of one that sent
 * no marks, and what steps and passes leave open of one that did. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "judge/judge_private.h"
#include "profile/held.h"

enum { NOTICED_S = 10 }; /* that a process may have lived before it was seen */

static bool sent_no_marks(const struct judge *j)
{
    return !j->clock.has_begun && !j->clock.has_step;
}

bool judge_wants_held(const struct judge *j)
{
    struct run_entity *e;
    if (!j->run || !j->is_over || sent_no_marks(j))
        return j->is_over;
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));) {
        const struct judge_series *s = judge_known(e)->series;
        if (s && (!s->is_judged || s->result.leak == VERDICT_LEAK_UNKNOWN))
            return true;
    }
    return false;
}

/* Of several of one process, which are by exec, the last. */
static const struct held *held_of(const struct judge *j, const struct run_entity *p)
{
    const struct held *found = NULL;
    for (size_t i = 0; i < j->held_count; i++) {
        const struct held *h = &j->held[i];
        if (h->pid == p->info.id.pid && h->start_ns + NOTICED_S * NS_PER_S >= p->execed_ns &&
            (!p->is_dead || h->start_ns <= p->died_ns) && (!found || h->start_ns > found->start_ns))
            found = h;
    }
    return found;
}

/* What was read of a process after its work was done is its exit. */
static void end_work(struct judge *j)
{
    struct run_entity *e;
    uint64_t last_ns = 0;
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));) {
        struct judge_series *s = judge_known(e)->series;
        const struct held *found = s && s->series.is_over ? held_of(j, e) : NULL;
        if (!found)
            continue;
        verdict_work_ended(&s->series, (int64_t)found->worked_ns);
        if (e->is_dead && s->is_judged) /* once, at its death; now more is known */
            judge_series_judge(s, &s->limit);
        last_ns = found->worked_ns > last_ns ? found->worked_ns : last_ns;
    }
    if (last_ns && j->whole)
        verdict_work_ended(&j->whole->series, (int64_t)last_ns);
}

static uint64_t since_start(const struct judge *j, uint64_t mono_ns)
{
    return mono_ns > j->run->start_mono_ns ? mono_ns - j->run->start_mono_ns : 0;
}

void judge_set_held(struct judge *j, const struct held *list, size_t count)
{
    free(j->held);
    j->held = count && j->run ? calloc(count, sizeof *j->held) : NULL;
    j->held_count = j->held ? count : 0;
    for (size_t i = 0; i < j->held_count; i++) {
        j->held[i] = list[i];
        j->held[i].start_ns = since_start(j, list[i].start_ns);
        j->held[i].worked_ns = since_start(j, list[i].worked_ns);
        j->held[i].grown.from_ns -= (int64_t)j->run->start_mono_ns;
    }
    if (j->held && j->is_over && sent_no_marks(j))
        end_work(j);
}

void judge_held_apply(const struct judge *j, const struct run_entity *p)
{
    const struct held *found = held_of(j, p);
    struct judge_series *s = judge_known(p)->series;
    if (found && found->has_grown && s && s->is_judged && j->is_over &&
        (sent_no_marks(j) || s->result.word == VERDICT_UNDECIDED))
        verdict_apply_held(&s->result, &s->series, &found->grown);
}
