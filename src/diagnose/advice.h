/* Advice for the likely hypotheses, with the expected effect computed from this run's numbers. */
#pragma once

#include "diagnose/hypothesis.h"

enum { ADVICE_MAX = 6, ADVICE_TEXT = 400 };
struct advice {
    enum hypothesis_id because;
    char what[ADVICE_TEXT];   /* "decode on demand: ebb.data.LazyImages(paths, budget=…)" */
    char effect[ADVICE_TEXT]; /* "saves 8.7 GiB"; "" if this run did not measure it */
};

/* Advice on the likely hypotheses, using only numbers that this run measured. Returns their
 * count. */
size_t advice_make(const struct question *q, const struct hypothesis ranked[HYPOTHESIS_COUNT],
                   struct advice ret[ADVICE_MAX]);
