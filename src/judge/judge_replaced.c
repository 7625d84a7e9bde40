/* Recognizes processes that replace each other, such as workers that exit at the end of an epoch
 * and are started again for the next one, or evaluations that run as separate programs. Such
 * processes release their memory when they exit. */
#include "base/clock.h"
#include "judge/judge_private.h"

enum {
    /* Longest overlap in seconds of a process with its replacement. In addition, the overlap must
     * not exceed half the life of the replaced process. */
    OVERLAP_S = 5,
    /* A process is not a replacement if it lives longer than this many times the longest life of
     * the processes before it. */
    LONGER = 2,
};

/* A process is not a replacement if its memory is more than this many times the memory of the
 * largest process before it. */
static const double HIGHER = 1.05;

/* Finds the parent of P among living processes, and among exited processes that were judged. */
static const struct run_entity *parent_of(const struct judge *j, const struct run_entity *p)
{
    struct run_entity *const *living;
    size_t n = judge_living(j, &living), at = n;
    for (size_t i = 0; p->parent > 0 && i < n; i++)
        if (living[i]->info.id.pid == p->parent && living[i]->execed_ns <= p->execed_ns)
            return living[i];
    for (const struct run_entity *e; p->parent > 0 && (e = judge_next(j, RUN_PROCESS, &at));)
        if (e->info.id.pid == p->parent && e->execed_ns <= p->execed_ns &&
            e->died_ns >= p->execed_ns)
            return e;
    return NULL;
}

/* Returns true if P is a helper of a process that does the job's work. A process started by a
 * launcher or a supervisor, such as a restarted rank, is not a helper, because it does the job's
 * work itself. */
static bool is_helper(const struct judge *j, const struct run_entity *p)
{
    const struct run_entity *parent = parent_of(j, p);
    if (!parent || parent->info.role == ROLE_LAUNCHER || judge_known(p)->sends_steps)
        return false;
    return p->info.role != ROLE_MAIN || parent->info.role == ROLE_MAIN;
}

/* Returns true if P replaced BEFORE, which exited at about the time when P was born. Two workers of
 * one loader that were born together do not replace each other. */
static bool is_replaced_by(const struct run_entity *before, const struct run_entity *p)
{
    uint64_t overlap_ns = (before->died_ns - before->execed_ns) / 2;
    if (overlap_ns > OVERLAP_S * NS_PER_S)
        overlap_ns = OVERLAP_S * NS_PER_S;
    return before->parent == p->parent && before->info.role == p->info.role &&
           before->execed_ns < p->execed_ns && before->died_ns <= p->execed_ns + overlap_ns;
}

bool judge_was_replaced(const struct judge *j, const struct run_entity *p)
{
    struct run_entity *const *living;
    size_t n = judge_living(j, &living), at = n;
    if (!p->is_dead || !is_helper(j, p))
        return false;
    for (size_t i = 0; i < n; i++)
        if (is_replaced_by(p, living[i]))
            return true;
    for (const struct run_entity *e; (e = judge_next(j, RUN_PROCESS, &at));)
        if (is_replaced_by(p, e))
            return true;
    return false;
}

static uint64_t life_ns(const struct judge *j, const struct run_entity *p)
{
    return (p->is_dead ? p->died_ns : j->run->tick_ns) - p->execed_ns;
}

bool judge_is_replacement(const struct judge *j, const struct run_entity *p)
{
    struct run_entity *const *living;
    size_t at = judge_living(j, &living);
    double most = 0;
    uint64_t longest_ns = 0;
    if (!is_helper(j, p))
        return false;
    for (const struct run_entity *e; (e = judge_next(j, RUN_PROCESS, &at));) {
        if (!is_replaced_by(e, p))
            continue;
        const struct verdict_result *r = judge_result(e);
        if (r && r->highest_floor_bytes > most)
            most = r->highest_floor_bytes;
        if (life_ns(j, e) > longest_ns)
            longest_ns = life_ns(j, e);
    }
    return most > 0 && judge_known(p)->series->result.highest_floor_bytes <= HIGHER * most &&
           life_ns(j, p) <= LONGER * longest_ns;
}
