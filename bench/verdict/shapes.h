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
    bool identifiable; /* the window is at least 4 time constants of its warm-up */
    size_t n;          /* samples in the judged window */
    size_t n_all; /* samples including those after the window, which show when memory runs out */
    double dt;
    double t[SHAPES_SAMPLES], y[SHAPES_SAMPLES];
    size_t n_marks;
    struct shapes_mark marks[SHAPES_MARKS];
    double onset_s;     /* when the leak starts */
    double rate;        /* bytes/s at the end of the window */
    double growth;      /* bytes leaked within the window */
    double limit_bytes; /* 0: none */
    double oom_s;       /* when a reading first reaches the limit */
    double fill_end_s;  /* end of the first epoch; 0: none */
};

size_t shapes_count(void);
const char *shapes_name(size_t family);
bool shapes_is_leak(size_t family);
bool shapes_is_test(size_t family);
/* Draws run SEED of FAMILY. The same numbers give the same run on every machine. */
void shapes_draw(size_t family, uint64_t seed, struct shapes_run *ret);
