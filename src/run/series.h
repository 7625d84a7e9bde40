/* One signal over time in bounded memory: buckets of time, each with its least, its greatest and
 * its last reading. When all buckets are used their width doubles, so any length of run fits and
 * neither a spike nor a dip is lost. Series of one run have the same first width and the same
 * origin: the buckets of a coarse one are made of whole buckets of a finer one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct series_point {
    uint64_t t_ns; /* since the run's start */
    uint64_t v;
};

struct series_bucket {
    struct series_point min, max, last;
};

struct series {
    struct series_bucket *buckets; /* those with a reading, in time order */
    uint32_t count, cap;
    uint32_t most;                /* buckets, at most; at least 2 */
    uint64_t width_ns, origin_ns; /* bucket N begins at origin + N * width */
    uint64_t readings;
    struct series_point first;
    uint64_t start; /* once start-up is over: the last reading of the first second */
    double sum;     /* of all readings */
};

/* Allocates nothing yet. MOST: at least 2. */
void series_init(struct series *s, uint32_t most, uint64_t width_ns, uint64_t origin_ns);
void series_fini(struct series *s); /* accepts a zeroed one */
/* A time before the last reading counts as that reading's. 0 or -ENOMEM: then it is left out. */
int series_add(struct series *s, uint64_t t_ns, uint64_t v);

/* For all of these S may be NULL: a series that never had a reading. */

bool series_last(const struct series *s, struct series_point *ret);
/* The first kept reading at or after T_NS. */
bool series_after(const struct series *s, uint64_t t_ns, struct series_point *ret);
/* The least and the greatest from FROM_NS to TO_NS, both included. */
bool series_min(const struct series *s, uint64_t from_ns, uint64_t to_ns, struct series_point *ret);
bool series_max(const struct series *s, uint64_t from_ns, uint64_t to_ns, struct series_point *ret);
/* For drawing, in time order: the first reading, the least and the greatest of every bucket, and
 * the last reading. RET has room for series_room. Returns how many. */
size_t series_room(const struct series *s);
size_t series_points(const struct series *s, struct series_point *ret);
/* The greatest of each of the newest buckets, oldest first: how many, at most N. */
size_t series_newest(const struct series *s, size_t n, uint64_t *ret);
/* 0 without readings. */
uint64_t series_mean(const struct series *s);
