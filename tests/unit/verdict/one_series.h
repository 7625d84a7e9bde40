/* The series that the tests of one verdict feed, and what is judged of it. */
#pragma once

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
