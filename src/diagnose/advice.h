/* Advice for the likely hypotheses, with the expected effect computed from this run's numbers. */
#pragma once

#include "diagnose/hypothesis.h"

enum { ADVICE_MAX = 6, ADVICE_TEXT = 400 };
struct advice {
    enum hypothesis_id because;
    /* Advice, such as "decode on demand: ebb.data.LazyImages(paths, budget=…)". */
    char what[ADVICE_TEXT];
    /* Effect, such as "saves 8.7 GiB", or "" if this run did not measure it. */
    char effect[ADVICE_TEXT];
};

/* Collects advice on the likely hypotheses, using only numbers that this run measured. Returns
 * the number of entries. */
size_t advice_make(const struct question *q, const struct hypothesis ranked[HYPOTHESIS_COUNT],
                   struct advice ret[ADVICE_MAX]);
