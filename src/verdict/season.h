/* What repeats with the pass over the data: step ends at the same place of consecutive passes, held
 * against each other. A saw-tooth of one pass is no noise to these differences. */
#pragma once

#include <stdbool.h>

#include "verdict/verdict.h"

enum season_course {
    SEASON_UNCLEAR, /* neither of these */
    SEASON_SAME,    /* no pass is higher than the one before */
    SEASON_OPEN,    /* the last ones are, each by about as much; too few to call it a leak */
    SEASON_RISES    /* enough of them are */
};

struct season {
    enum season_course course;
    unsigned pairs;   /* of passes that were held against each other; of a rise those that rose */
    double step;      /* from one pass to the next, bytes: typical, … */
    double low, high; /* … least and most of the pairs */
    double spread;    /* of the differences about those of their pair */
    double fall;      /* what is given back within every pass, at least */
    double from;      /* x at which the oldest of these passes began */
};

/* False where memory does not repeat with the pass, or too few passes or step ends were read. */
bool season_find(const struct verdict_series *v, struct season *ret);
