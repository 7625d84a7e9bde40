/* Measures growth in the heap profiler's readings of a run's processes, as evidence for the
 * verdict. */
#pragma once

#include "profile/profile.h"
#include "verdict/model.h"

struct folder_heaps;

struct held {
    int32_t pid;
    uint64_t start_ns;  /* time at which the process's heap table was created */
    uint64_t worked_ns; /* time of the last reading before the process began to exit */
    struct model_sites sites;
    struct model_sites earlier; /* the same evidence HELD_EARLIER_S seconds earlier */
};
enum { HELD_EARLIER_S = 10 };

/* The readings that are used, and the position of the first epoch in them. */
struct held_window {
    uint64_t until_ns; /* later readings (CLOCK_MONOTONIC) are ignored */
    /* Steps at which the first epoch begins and ends; end is 0 if unknown. */
    double epoch_start, epoch_end;
};

/* Computes the model's evidence from the first N readings. */
void held_sites(const struct profile *p, size_t n, const struct held_window *w,
                struct model_sites *ret);
/* Returns one entry per process, or NULL if there is none. The caller frees the list. */
struct held *held_list(const struct folder_heaps *heaps, const struct held_window *w,
                       size_t *ret_count);
/* Like held_list, for the run folder PATH: reads the histories one after the other and keeps only
 * the evidence. */
struct held *held_read(const char *path, const struct held_window *w, size_t *ret_count);
