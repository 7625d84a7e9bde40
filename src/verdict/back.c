/* Memory that comes back: up to a level that was held before, or down to one floor. */
#include "verdict/judging.h"

#include <math.h>
#include <stdint.h>

enum { HELD_SLOTS = 4 };
static const double STOOD_PART = 0.4;  /* of the window, that the low tide stood before it rose */
static const double STOOD_RISE = 0.25; /* of all that it rose by: still standing */
static const double ABOVE_PART = 0.25; /* of what it rose by, above what was held before: new */

/* The highest level of W that was held for HELD_SLOTS, and a twentieth of them, before slot TO. */
static double held_before(const struct view *w, size_t to)
{
    size_t slots = w->n / 20 > HELD_SLOTS ? w->n / 20 : HELD_SLOTS;
    double best = -HUGE_VAL;
    for (size_t i = 0; i + slots <= to; i++) {
        double low = w->y[i];
        for (size_t k = 1; k < slots; k++)
            low = fmin(low, w->y[i + k]);
        best = fmax(best, low);
    }
    return best;
}

bool judge_came_back(const struct view *w, double counts)
{
    double rise = w->n ? w->low[w->n - 1] - w->low[0] : 0, span, held;
    size_t i = 0;
    if (rise <= counts)
        return false;
    span = w->x[w->n - 1] - w->x[0];
    while (i + 1 < w->n && w->low[i + 1] - w->low[0] <= STOOD_RISE * rise)
        i++;
    if (w->x[i] - w->x[0] < STOOD_PART * span)
        return false;
    held = held_before(w, i);
    return held > -HUGE_VAL && w->y[w->n - 1] - held <= ABOVE_PART * rise;
}

/* Does Y stay above LEAST from FROM on, up to slot TO? */
static bool stays_above(const struct view *w, double from, size_t to, double least)
{
    for (size_t i = to + 1; i-- > 0 && w->x[i] >= from;)
        if (w->y[i] < least)
            return false;
    return true;
}

bool judge_same_floor(const struct view *w, double counts, double slope)
{
    size_t last = w->n, i;
    double low, high = 0;
    bool is_apart = false;
    while (last > 0 && w->y[last - 1] > w->low[w->n - 1] + w->sigma)
        last--;
    if (last == 0)
        return false;
    low = w->y[--last];
    /* Backwards from the last trough, over a rise that was lost, to another one: no level that is
     * passed on the way up, so before it nothing is lower for as long again. */
    for (i = last; i-- > 0;) {
        double apart = w->x[last] - w->x[i], tolerance = slope * apart;
        is_apart = is_apart || w->y[i] - low > counts;
        if (is_apart && fabs(w->y[i] - low) <= tolerance && w->x[i] - apart >= w->x[0] &&
            stays_above(w, w->x[i] - apart, last, low - tolerance))
            break;
    }
    if (i == SIZE_MAX)
        return false;
    for (size_t k = 0; k < i; k++)
        high = fmax(high, w->y[k]);
    return high - w->y[i] > counts;
}
