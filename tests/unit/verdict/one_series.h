/* The series under test, its verdict, and helpers that add readings. */
#pragma once

#include <stdbool.h>

#include "verdict/verdict.h"

static const uint64_t MB = 1000000;
static const int64_t SECOND = 1000000000;

static struct verdict_series v;
static struct verdict_result r;

static inline int fresh(void **state)
{
    (void)state;
    assert_int_equal(verdict_init(&v, NULL), 0);
    return 0;
}

static inline void mark(int64_t t_ns, enum verdict_mark_kind kind, uint64_t step)
{
    struct verdict_mark m = {.kind = kind, .has_step = true, .step = step};

    verdict_mark(&v, t_ns, &m);
}

/* Returns true if the result has evidence CODE. */
static inline bool has_evidence(enum verdict_evidence_code code)
{
    for (uint32_t i = 0; i < r.n_evidence; i++)
        if (r.evidence[i].code == code)
            return true;
    return false;
}

/* Adds STEPS steps of 0.15 s in epochs of 60 steps, with a reading every READS steps, and judges
 * the series. */
static inline void run_steps(uint64_t steps, unsigned reads, uint64_t (*bytes)(uint64_t step))
{
    mark(0, VERDICT_MARK_BEGIN, 0);
    for (uint64_t s = 1; s <= steps; s++) {
        int64_t t = (int64_t)s * SECOND * 3 / 20;

        if (s % reads == 0)
            verdict_update(&v, t - 1, bytes(s));
        mark(t, VERDICT_MARK_STEP, s);
        if (s % 60 == 0)
            mark(t + 1, VERDICT_MARK_EPOCH, s);
    }
    verdict_judge(&v, NULL, &r);
}
