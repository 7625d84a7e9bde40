/* Detects memory that repeats with the epoch. Step ends at the same position in consecutive epochs
 * are compared, so a saw-tooth with the period of an epoch cancels out. */
#pragma once

#include <stdbool.h>

#include "verdict/verdict.h"

enum season_course {
    SEASON_UNCLEAR, /* the epochs neither clearly rise nor clearly stay the same */
    SEASON_SAME,    /* the newest epoch is not materially higher than any earlier one */
    /* Each recent epoch is higher than the one before by about the same amount, but there are too
     * few of them for a leak. */
    SEASON_OPEN,
    /* Each recent epoch is higher than the one before by about the same amount, and there are
     * enough of them for a leak. */
    SEASON_RISES
};

struct season {
    enum season_course course;
    /* number of compared pairs of consecutive epochs; if COURSE is OPEN or RISES, only the newest
     * pairs, all of which rose */
    unsigned pairs;
    double step;      /* typical difference between consecutive epochs in bytes */
    double low, high; /* smallest and largest difference over these pairs, in bytes */
    double spread;    /* spread of the differences about the typical difference of their pair */
    double fall;      /* smallest release within any epoch, in bytes */
    double from;      /* x at which the oldest compared epoch began */
};

/* Compares epochs. Returns false if memory does not repeat with the epoch, or if there are too
 * few epochs or step ends. */
bool season_find(const struct verdict_series *v, struct season *ret);
