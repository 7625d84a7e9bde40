/* One signal over time in bounded memory: a list of time buckets, each with its minimum, maximum
 * and last reading. When all buckets are used, their width doubles. A run of any length therefore
 * fits, and every spike and dip remains visible. All series of one run have the same initial width
 * and origin, so each bucket of a coarse series consists of whole buckets of a finer series. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct series_point {
    uint64_t t_ns; /* nanoseconds since the run's start */
    uint64_t v;
};

struct series_bucket {
    struct series_point min, max, last;
};

struct series {
    struct series_bucket *buckets; /* buckets in order of time; empty ones are left out */
    uint32_t count, cap;
    uint32_t most;                /* maximum number of buckets; at least 2 */
    uint64_t width_ns, origin_ns; /* bucket number N starts at origin + N * width */
    uint64_t readings;
    struct series_point first;
    uint64_t start; /* the last reading within the first second: memory at the end of start-up */
    double sum;     /* sum of all readings */
};

/* Initializes an empty series without allocating memory. MOST, the number of buckets, must be at
 * least 2. */
void series_init(struct series *s, uint32_t most, uint64_t width_ns, uint64_t origin_ns);
void series_fini(struct series *s); /* frees the series; accepts a zeroed struct */
/* Adds a reading. If T_NS is before the time of the last reading, the time of the last reading is
 * used. Returns 0, or -ENOMEM if the reading was left out. */
int series_add(struct series *s, uint64_t t_ns, uint64_t v);

/* In all functions below, S may be NULL, which means a series without readings. */

bool series_last(const struct series *s, struct series_point *ret);
/* Gets the first stored reading at or after T_NS. */
bool series_after(const struct series *s, uint64_t t_ns, struct series_point *ret);
/* Get the minimum and maximum from FROM_NS to TO_NS, inclusive. */
bool series_min(const struct series *s, uint64_t from_ns, uint64_t to_ns, struct series_point *ret);
bool series_max(const struct series *s, uint64_t from_ns, uint64_t to_ns, struct series_point *ret);
/* Writes the points of a plot in order of time: the first reading, the minimum and maximum of every
 * bucket, and the last reading. Returns their number. RET must have room for series_room points. */
size_t series_room(const struct series *s);
size_t series_points(const struct series *s, struct series_point *ret);
/* Writes the maxima of the newest buckets, oldest first. Returns their number, at most N. */
size_t series_newest(const struct series *s, size_t n, uint64_t *ret);
/* Returns the mean of all readings, or 0 if there are none. */
uint64_t series_mean(const struct series *s);
