/* Advice for the likely hypotheses, with the expected effect computed from values measured in this
 * run. */
#pragma once

#include "diagnose/hypothesis.h"

enum { ADVICE_MAX = 6, ADVICE_TEXT = 400 };
struct advice {
    enum hypothesis_id because;
    /* The advice itself, such as "set pin_memory=False". */
    char what[ADVICE_TEXT];
    /* The expected effect, such as "saves 8.7 GiB", or "" if this run did not measure it. */
    char effect[ADVICE_TEXT];
};

/* Collects advice on the likely hypotheses, using only values measured in this run. Returns the
 * number of entries. */
size_t advice_make(const struct question *q, const struct hypothesis ranked[HYPOTHESIS_COUNT],
                   struct advice ret[ADVICE_MAX]);
