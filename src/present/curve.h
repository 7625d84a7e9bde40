/* A long series made short enough to draw, while it comes in: every least and every greatest value
 * of a stretch stays, so that no spike is lost and no floor. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct curve_point {
    double t, v;
};

/* Consecutive readings, of which the least and the greatest are kept. */
struct curve_bucket {
    struct curve_point least, greatest;
};

struct curve {
    struct curve_bucket *buckets;
    size_t count, cap;
    size_t most;    /* buckets; two points each */
    size_t per;     /* readings a bucket has room for */
    size_t in_last; /* of them in the last bucket */
    struct curve_point first, last;
    bool failed; /* out of memory: readings are missing */
};

/* MOST_POINTS: at least 4. Allocates nothing yet. */
void curve_init(struct curve *curve, size_t most_points);
void curve_fini(struct curve *curve); /* accepts a zeroed one */
/* T must not fall. A value that is no number is passed over. */
void curve_add(struct curve *curve, double t, double v);
/* How many points curve_points will write, at most: the two ends may come on top of MOST_POINTS. */
size_t curve_room(const struct curve *curve);
/* In the order of time, the first and the last reading among them. As long as there were no more
 * than MOST_POINTS readings, these are all of them. Returns how many. */
size_t curve_points(const struct curve *curve, struct curve_point *ret);
