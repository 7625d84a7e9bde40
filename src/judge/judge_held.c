/* What the profiler knows of a job that is over: all of one that told nothing itself, and what
 * steps and passes leave open of one that did. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "judge/judge_private.h"
#include "profile/held.h"

enum { NOTICED_S = 10 }; /* that a process may have lived before it was seen */

static bool has_told_nothing(const struct judge *j)
{
    return !j->clock.has_begun && !j->clock.has_step;
}

static bool is_open(const struct judge_process *p)
{
    return p->seat && (!p->seat->is_judged || p->seat->result.leak == VERDICT_LEAK_UNKNOWN);
}

bool judge_wants_held(const struct judge *j)
{
    bool wants = has_told_nothing(j);
    for (size_t i = 0; i < j->count + j->gone_count && !wants; i++)
        wants = is_open(i < j->count ? j->living[i] : j->gone[i - j->count]);
    return j->is_over && wants;
}

static bool is_of(const struct held *h, const struct judge_process *p)
{
    return h->pid == p->id.pid && h->start_ns + NOTICED_S * NS_PER_S >= p->born_ns &&
           (!p->died_ns || h->start_ns <= p->died_ns);
}

/* Of several of one process, which are by exec, the last. */
static const struct held *find(const struct judge *j, const struct judge_process *p)
{
    const struct held *found = NULL;
    for (size_t i = 0; i < j->held_count; i++)
        if (is_of(&j->held[i], p) && (!found || j->held[i].start_ns > found->start_ns))
            found = &j->held[i];
    return found;
}

/* What was read of P after its work was done is its exit. Returns when that was; 0: not known. */
static uint64_t work_ended(const struct judge *j, struct judge_process *p, bool is_gone)
{
    const struct held *found = p->seat && p->seat->series.is_over ? find(j, p) : NULL;
    if (!found)
        return 0;
    verdict_work_ended(&p->seat->series, (int64_t)found->worked_ns);
    if (is_gone && p->seat->is_judged) /* once, then; now more is known */
        judge_series_judge(p->seat, &p->seat->limit);
    return found->worked_ns;
}

void judge_hear_held(struct judge *j, const struct held *list, size_t count)
{
    uint64_t last_ns = 0;
    free(j->held);
    j->held = count ? calloc(count, sizeof *j->held) : NULL;
    j->held_count = j->held ? count : 0;
    if (j->held)
        memcpy(j->held, list, count * sizeof *list);
    if (!j->is_over || !has_told_nothing(j))
        return;
    for (size_t i = 0; i < j->count + j->gone_count; i++) {
        bool is_gone = i >= j->count;
        uint64_t t_ns = work_ended(j, is_gone ? j->gone[i - j->count] : j->living[i], is_gone);
        last_ns = t_ns > last_ns ? t_ns : last_ns;
    }
    if (last_ns && j->whole)
        verdict_work_ended(&j->whole->series, (int64_t)last_ns);
}

void judge_held_tell(const struct judge *j, struct judge_process *p)
{
    const struct held *found = find(j, p);
    if (found && found->has_grown && p->seat && p->seat->is_judged && j->is_over &&
        (has_told_nothing(j) || p->seat->result.word == VERDICT_UNDECIDED))
        verdict_hear_held(&p->seat->result, &p->seat->series, &found->grown);
}
