/* Recognizes rises that are not new growth, because memory only returned to an earlier level, or
 * because it fell to the same baseline again after each rise. */
#include "verdict/judging.h"

#include <math.h>
#include <stdint.h>

enum { HELD_SLOTS = 4 };
/* Fraction of the window during which the baseline must have been level before it rose. */
static const double LEVEL_PART = 0.4;
/* The baseline is level while it moves by at most this fraction of the rise. */
static const double LEVEL_RISE = 0.25;
/* A rise is new growth if it ends above the earlier level by more than this fraction of the
 * rise. */
static const double ABOVE_PART = 0.25;

/* Returns the highest level below which memory did not fall for at least HELD_SLOTS slots, and
 * at least a twentieth of all slots, before slot TO. */
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

bool judge_returned_to_level(const struct view *w, double counts)
{
    double rise = w->n ? w->low[w->n - 1] - w->low[0] : 0, span, held;
    size_t i = 0;
    if (rise <= counts)
        return false;
    span = w->x[w->n - 1] - w->x[0];
    while (i + 1 < w->n && w->low[i + 1] - w->low[0] <= LEVEL_RISE * rise)
        i++;
    if (w->x[i] - w->x[0] < LEVEL_PART * span)
        return false;
    held = held_before(w, i);
    return held > -HUGE_VAL && w->y[w->n - 1] - held <= ABOVE_PART * rise;
}

/* Returns true if Y is at least LEAST in every slot from x = FROM to slot TO. */
static bool stays_above(const struct view *w, double from, size_t to, double least)
{
    for (size_t i = to + 1; i-- > 0 && w->x[i] >= from;)
        if (w->y[i] < least)
            return false;
    return true;
}

bool judge_same_baseline(const struct view *w, double counts, double slope)
{
    size_t last = w->n, i;
    double low, high = 0;
    bool is_apart = false;
    while (last > 0 && w->y[last - 1] > w->low[w->n - 1] + w->sigma)
        last--;
    if (last == 0)
        return false;
    low = w->y[--last];
    /* Search backwards from the last trough for an earlier trough at the same level, with a rise
     * and a release between the two. Memory must not have been lower in an equally long time before
     * the earlier trough; if it was, it only passed through this level on its way up. */
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
