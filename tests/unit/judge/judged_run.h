/* A judge together with the run that it observes. */
#pragma once

#include <string.h>

#include "base/clock.h"
#include "judge/judge_private.h"

/* Starts a run at time 1 s. OPTIONS may be NULL. */
static inline struct judge *judge_with_run(const struct judge_options *options)
{
    const struct judge_options none = {.no_marks = false};
    struct judge *j = NULL;
    assert_int_equal(judge_new(options ? options : &none, &j), 0);
    assert_int_equal(run_new(&(struct run_settings){.dead = RUN_DEAD_LIVE}, NS_PER_S, &j->run), 0);
    run_observe(j->run, judge_observer(j));
    return j;
}

static inline void judge_free_with_run(struct judge *j)
{
    run_free(j->run);
    judge_free(j);
}

static inline void judge_take_note(struct judge *j, const char *kind, const char *text)
{
    run_add_note(j->run, j->run->start_mono_ns + j->run->now_ns, kind, text, strlen(text));
}

/* Returns the verdict on process I of the list, which is sorted by size, largest first. */
static inline const struct verdict_result *result_at(const struct judge *j, size_t i)
{
    assert_true(i < j->listed_count);
    return judge_result(j->listed[i]);
}

/* Returns the next entity of KIND (RUN_FIGURE or RUN_GPU) that has a verdict, or NULL if there are
 * no more. */
static inline const struct run_entity *next_judged(const struct judge *j, enum run_kind kind,
                                                   size_t *at)
{
    const struct run_entity *e;
    while ((e = judge_next(j, kind, at)) && !judge_result(e))
        ;
    return e;
}
