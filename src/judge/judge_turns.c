/* Processes that take turns: workers that end with an epoch and are started anew for the next, an
 * evaluation that is a program of its own. Whoever ends gives back what it took. */
#include "base/clock.h"
#include "judge/judge_private.h"

enum {
    OVERLAP_S = 5, /* at most, and half its life, that one may still live when the next is there */
    LONGER = 2,    /* times the longest life before: no longer the same */
};

static const double HIGHER = 1.05; /* likewise, times what those before it held */

static const struct judge_process *parent_of(const struct judge *j, const struct judge_process *p)
{
    for (size_t i = 0; p->parent > 0 && i < j->count; i++)
        if (j->living[i]->id.pid == p->parent && j->living[i]->born_ns <= p->born_ns)
            return j->living[i];
    for (size_t i = 0; p->parent > 0 && i < j->gone_count; i++)
        if (j->gone[i]->id.pid == p->parent && j->gone[i]->born_ns <= p->born_ns &&
            j->gone[i]->died_ns >= p->born_ns)
            return j->gone[i];
    return NULL;
}

/* Does another do the job's work, and P help it? A rank that is started again is the job itself, as
 * is whatever a launcher or a supervisor starts. */
static bool is_helper(const struct judge *j, const struct judge_process *p)
{
    const struct judge_process *parent = parent_of(j, p);
    if (!parent || parent->role == ROLE_LAUNCHER || p->speaks)
        return false;
    return p->role != ROLE_MAIN || parent->role == ROLE_MAIN;
}

/* Did BEFORE, who has gone, end about when P came? Two of one loader, born together, did not. */
static bool came_after(const struct judge_process *before, const struct judge_process *p)
{
    uint64_t overlap_ns = (before->died_ns - before->born_ns) / 2;
    if (overlap_ns > OVERLAP_S * NS_PER_S)
        overlap_ns = OVERLAP_S * NS_PER_S;
    return before->parent == p->parent && before->role == p->role && before->born_ns < p->born_ns &&
           before->died_ns <= p->born_ns + overlap_ns;
}

bool judge_was_replaced(const struct judge *j, const struct judge_process *p)
{
    if (!p->died_ns || !is_helper(j, p))
        return false;
    for (size_t i = 0; i < j->count; i++)
        if (came_after(p, j->living[i]))
            return true;
    for (size_t i = 0; i < j->gone_count; i++)
        if (came_after(p, j->gone[i]))
            return true;
    return false;
}

static uint64_t life_ns(const struct judge *j, const struct judge_process *p)
{
    return (p->died_ns ? p->died_ns : j->tick_ns) - p->born_ns;
}

bool judge_takes_turns(const struct judge *j, const struct judge_process *p)
{
    double most = 0;
    uint64_t longest_ns = 0;
    if (!is_helper(j, p))
        return false;
    for (size_t i = 0; i < j->gone_count; i++) {
        const struct judge_process *g = j->gone[i];
        if (!came_after(g, p))
            continue;
        if (g->seat->result.highest_floor_bytes > most)
            most = g->seat->result.highest_floor_bytes;
        if (life_ns(j, g) > longest_ns)
            longest_ns = life_ns(j, g);
    }
    return most > 0 && p->seat->result.highest_floor_bytes <= HIGHER * most &&
           life_ns(j, p) <= LONGER * longest_ns;
}
