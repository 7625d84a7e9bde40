/* Memory that repeats with the epoch: compares step ends at the same position in consecutive
 * epochs. The differences cancel a saw-tooth with the period of an epoch. */
#pragma once

#include <stdbool.h>

#include "verdict/verdict.h"

enum season_course {
    SEASON_UNCLEAR, /* none of the following */
    SEASON_SAME,    /* no epoch is higher than the previous one */
    SEASON_OPEN, /* each recent epoch is higher by about the same amount, but there are too few for
                    a leak */
    SEASON_RISES /* enough epochs are higher by about the same amount */
};

struct season {
    enum season_course course;
    unsigned pairs;   /* pairs of consecutive epochs compared; for a rise, the pairs that rose */
    double step;      /* difference between consecutive epochs in bytes: typical, … */
    double low, high; /* … smallest and largest over all pairs */
    double spread;    /* spread of the differences about the typical difference of their pair */
    double fall;      /* smallest release within an epoch */
    double from;      /* x at which the oldest compared epoch began */
};

/* False: memory does not repeat with the epoch, or there are too few epochs or step ends. */
bool season_find(const struct verdict_series *v, struct season *ret);
