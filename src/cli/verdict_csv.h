/* The verdict on a table: each group a series, marks from its columns or from a file beside it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "judge/verdicts.h"
#include "trace/csv.h"
#include "verdict/verdict.h"

struct err;

struct verdict_csv_options {
    struct csv_options csv;
    struct verdict_options verdict;
    uint64_t examples, batch; /* 0: the table or its marks may tell */
    uint64_t limit_bytes;     /* 0: none */
    bool has_until, has_until_step;
    double until_s;
    uint64_t until_step;
};

/* 0, or -errno with its sentence. */
int verdict_csv(const char *path, const struct verdict_csv_options *options, struct verdicts *ret,
                struct err *err);
