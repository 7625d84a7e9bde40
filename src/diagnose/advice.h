/* What to do about what was found, with the effect to be expected by this run's own numbers. */
#pragma once

#include "diagnose/hypothesis.h"

enum { ADVICE_MAX = 6, ADVICE_TEXT = 400 };
struct advice {
    enum hypothesis_id because;
    char what[ADVICE_TEXT];   /* "decode on demand: ebb.data.LazyImages(paths, budget=…)" */
    char effect[ADVICE_TEXT]; /* "8.7 GiB less"; "" where this run measured nothing that tells */
};

/* Specific to the hypotheses that are likely; no figure that this run did not measure. How many. */
size_t advice_make(const struct question *q, const struct hypothesis ranked[HYPOTHESIS_COUNT],
                   struct advice ret[ADVICE_MAX]);
