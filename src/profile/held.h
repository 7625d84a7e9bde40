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
    struct model_sites earlier; /* the same evidence from HELD_EARLIER_S before */
};
enum { HELD_EARLIER_S = 10 };

/* Computes the model's evidence from the first N readings. */
void held_sites(const struct profile *p, size_t n, struct model_sites *ret);
/* Returns one entry per process, or NULL if there is none. Readings taken after UNTIL_NS
 * (CLOCK_MONOTONIC) are ignored. The caller frees the list. */
struct held *held_list(const struct folder_heaps *heaps, uint64_t until_ns, size_t *ret_count);
/* Does the same as held_list for the run folder PATH, with one history in memory at a time. */
struct held *held_read(const char *path, uint64_t until_ns, size_t *ret_count);
