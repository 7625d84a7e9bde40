/* A long series made short enough to draw, while it comes in: every least and every greatest value
 * of a stretch stays, so that no spike is lost and no floor. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct thin_point {
    double t, v;
};

/* Consecutive readings, of which the least and the greatest are kept. */
struct thin_bucket {
    struct thin_point least, greatest;
};

struct thin {
    struct thin_bucket *buckets;
    size_t count, cap;
    size_t most;    /* buckets; two points each */
    size_t per;     /* readings a bucket has room for */
    size_t in_last; /* of them in the last bucket */
    struct thin_point first, last;
    bool failed; /* out of memory: readings are missing */
};

/* MOST_POINTS: at least 4. Allocates nothing yet. */
void thin_init(struct thin *thin, size_t most_points);
void thin_fini(struct thin *thin); /* accepts a zeroed one */
/* T must not fall. A value that is no number is passed over. */
void thin_add(struct thin *thin, double t, double v);
/* How many points thin_points will write, at most: the two ends may come on top of MOST_POINTS. */
size_t thin_room(const struct thin *thin);
/* In the order of time, the first and the last reading among them. As long as there were no more
 * than MOST_POINTS readings, these are all of them. Returns how many. */
size_t thin_points(const struct thin *thin, struct thin_point *ret);
