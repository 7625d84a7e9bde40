/* Labelled series of memory: benign and leaking families with their truth. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "verdict/verdict.h"

enum { SHAPES_SAMPLES = 24000, SHAPES_MARKS = 24000 };

struct shapes_mark {
    double t;
    struct verdict_mark m;
};

struct shapes_run {
    const char *family;
    bool leak, test, marked;
    bool identifiable; /* Whether the window is at least 4 warm-up time constants long. */
    size_t n;          /* Number of samples in the judged window. */
    /* Number of all samples; those after the window show when memory runs out. */
    size_t n_all;
    double dt;
    double t[SHAPES_SAMPLES], y[SHAPES_SAMPLES];
    size_t n_marks;
    struct shapes_mark marks[SHAPES_MARKS];
    double onset_s;     /* Time when the leak starts. */
    double rate;        /* Rate in bytes/s at the end of the window. */
    double growth;      /* Bytes leaked up to the end of the window. */
    double limit_bytes; /* 0: no limit */
    double oom_s;       /* Time of the first sample that reaches the limit. */
    double fill_end_s;  /* Time when the first epoch ends, or 0 without epochs. */
};

size_t shapes_count(void);
const char *shapes_name(size_t family);
bool shapes_is_leak(size_t family);
bool shapes_is_test(size_t family);
/* Generates run SEED of FAMILY. The run is the same on every machine. */
void shapes_draw(size_t family, uint64_t seed, struct shapes_run *ret);
