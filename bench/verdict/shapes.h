/* Labelled shapes of memory: benign and leaking families with their truth. */
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
    bool identifiable; /* the window is at least 4 time constants of its warm-up */
    size_t n;          /* samples in the window that is judged */
    size_t n_all;      /* with what follows, for the truth about running out of memory */
    double dt;
    double t[SHAPES_SAMPLES], y[SHAPES_SAMPLES];
    size_t n_marks;
    struct shapes_mark marks[SHAPES_MARKS];
    double onset_s;     /* of the leak */
    double rate;        /* bytes a second, at the end of the window */
    double growth;      /* by the leak within the window */
    double limit_bytes; /* 0: none */
    double oom_s;       /* when a reading first reaches it */
    double fill_end_s;  /* first pass; 0: none */
};

size_t shapes_count(void);
const char *shapes_name(size_t family);
bool shapes_is_leak(size_t family);
bool shapes_is_test(size_t family);
/* Draws run SEED of FAMILY. The same numbers give the same run on every machine. */
void shapes_draw(size_t family, uint64_t seed, struct shapes_run *ret);
