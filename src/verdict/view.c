/* Builds the view, the part of an envelope that is judged, with its confirmed baseline. */
#include "verdict/shape.h"

#include <math.h>

/* A rise is confirmed once it exceeds the largest release so far by this factor. */
static const double FALL_MARGIN = 1.5;
/* A rise is also confirmed once it has lasted this many times as long as the longest rise that
 * was released. */
static const double TIMES_OPEN = 2.5;
/* A spike rises by at least this fraction of the largest release, in one move. */
static const double SPIKE_PART = 0.5;
/* A rise is a spike only if it exceeds this fraction of the baseline and this multiple of the noise
 * (as in level.c). */
static const double SPIKE_FLOOR = 0.1, SPIKE_NOISE = 6;
/* A level that has lasted for this fraction of the time so far is not a spike. */
static const double HELD_PART = 0.05;

enum { EXIT_BEFORE = 3 }; /* number of slots before an exit that the exit is compared with */
/* longest exit in seconds; exits of the programs in zoo/ took up to 6.3 s */
static const double EXIT_S = 10;
static const double EXIT_PART = 0.15; /* longest exit as a fraction of the process's life */
/* during an exit, memory falls by at least this fraction, as in tail.c */
static const double EXIT_FALL = 0.05;
/* If the end of a process's work is known, the exit after it may take at most this fraction of the
 * process's life. */
static const double EXIT_KNOWN = 0.25;

/* All slots that are considered: the history before the window, and the window. */
struct track {
    size_t n;
    double x[FIT_MAX], y[FIT_MAX];
};

/* Returns how long memory had been high before it fell at slot FALL. Memory is high while it is
 * well above the trough that follows, at slot LOW. */
static double track_raised_for(const struct track *t, size_t fall, size_t low, double largest_fall)
{
    size_t j = fall;
    while (j > 0 && t->y[j - 1] > t->y[low] + 0.25 * largest_fall)
        j--;
    return t->x[fall] - t->x[j > 0 ? j - 1 : 0];
}

/* Finds the last trough after a fall of at least half the largest fall, and the longest rise
 * that was released. */
static size_t track_trough(const struct track *t, double largest_fall, double *ret_longest)
{
    size_t trough = 0, low = 0, fall = 0;
    double high = t->y[0], longest = 0;
    bool falling = false;
    for (size_t i = 1; i < t->n; i++) {
        if (!falling && high - t->y[i] >= 0.5 * largest_fall) {
            falling = true;
            fall = low = i;
        }
        if (!falling) {
            high = fmax(high, t->y[i]);
            continue;
        }
        if (t->y[i] <= t->y[low])
            low = i;
        if (t->y[i] > t->y[low] + 0.25 * largest_fall || i + 1 == t->n) {
            longest = fmax(longest, track_raised_for(t, fall, low, largest_fall));
            trough = low;
            falling = false;
            high = t->y[i];
        }
    }
    *ret_longest = longest;
    return trough;
}

/* If T ends in a spike, returns the last slot before the spike, else T->n. The spike must be a
 * sudden rise of at least LEAST, similar to earlier spikes, and must not have lasted longer than
 * they did. */
static size_t track_before_spike(const struct track *t, size_t trough, double largest_fall,
                                 double longest, double least)
{
    size_t i = t->n - 1;
    while (i > trough && t->y[i] > t->y[trough] + 0.25 * largest_fall)
        i--;
    return i + 1 < t->n && t->y[i + 1] - t->y[i] >= fmax(SPIKE_PART * largest_fall, least) &&
                   t->x[t->n - 1] - t->x[i] <= longest
               ? i
               : t->n;
}

/* Computes the baseline: low[i] is the minimum of y[j] over j >= i. If the present rise may still
 * be released, as earlier rises were, the baseline stays at the level of the last trough. FIRST is
 * the index in T of the window's first slot. */
static void view_set_baseline(struct view *w, const struct track *t, size_t first)
{
    double high = t->y[0], low = t->y[t->n - 1], longest, since;
    size_t trough;
    w->largest_fall = 0;
    for (size_t i = 0; i < t->n; i++) {
        high = fmax(high, t->y[i]);
        w->largest_fall = fmax(w->largest_fall, high - t->y[i]);
    }
    for (size_t i = w->n; i-- > 0;) {
        low = fmin(low, w->y[i]);
        w->low[i] = low;
    }
    if (!(w->largest_fall > 0))
        return;
    trough = track_trough(t, w->largest_fall, &longest);
    high = t->y[trough];
    for (size_t i = trough; i < t->n; i++)
        high = fmax(high, t->y[i]);
    since = t->x[t->n - 1] - t->x[trough];
    w->rise_now = high - t->y[trough];
    w->rise_open = w->rise_now <= FALL_MARGIN * w->largest_fall && since <= TIMES_OPEN * longest;
    if (!w->rise_open && w->rise_now <= FALL_MARGIN * w->largest_fall) {
        size_t before =
            track_before_spike(t, trough, w->largest_fall, longest,
                               fmax(SPIKE_FLOOR * t->y[trough], SPIKE_NOISE * w->sigma));
        w->rise_open = before < t->n;
        trough = before;
    }
    if (!w->rise_open)
        return;
    trough = trough > first ? trough - first : 0;
    for (size_t i = trough; i < w->n; i++)
        w->low[i] = fmin(w->low[i], w->low[trough]);
    /* A short unconfirmed rise at the end is removed. If it were kept, the baseline would be flat
     * there, which would look like the end of growth. */
    if (trough + 1 < w->n && trough + 1 >= 6 && (double)trough >= 0.7 * (double)w->n)
        w->n = trough + 1;
}

double view_low_at(const struct view *w, double x)
{
    size_t i = 0;

    while (i < w->n && w->x[i] < x)
        i++;
    if (i == 0 || i == w->n)
        return w->low[i == 0 ? 0 : w->n - 1];
    double part = (x - w->x[i - 1]) / (w->x[i] - w->x[i - 1]);
    return w->low[i - 1] + part * (w->low[i] - w->low[i - 1]);
}

double view_held_level(const double *x, const double *y, size_t to, double span)
{
    double best = -HUGE_VAL;
    for (size_t i = 0; i < to; i++) {
        double low = y[i];
        for (size_t j = i; j < to && low > best; j++) {
            low = fmin(low, y[j]);
            if (x[j] - x[i] >= HELD_PART * span) {
                best = fmax(best, low);
                break;
            }
        }
    }
    return best;
}

/* Returns how many of the first N slots precede the end of the process's work. Returns N if this
 * end is unknown, or if the slots after it span more time than any exit takes, because the process
 * was then sampled too rarely. */
static size_t slots_before_end_of_work(const struct verdict_series *v, const struct envelope *e,
                                       size_t n)
{
    size_t left = n;
    if (!(v->worked_s > 0) || n == 0 || v->worked_s < (1 - EXIT_KNOWN) * e->slot[n - 1].x)
        return n;
    while (left > 1 && e->slot[left - 1].x > v->worked_s)
        left--;
    return left;
}

/* Returns how many of the first N slots precede the exit of a job that has ended. The last readings
 * are part of the exit if they are lower than all readings shortly before them and fall far enough.
 * tail.c normally holds them back, but may have passed on some, because an exit takes longer on a
 * busy machine. */
static size_t slots_before_exit(const struct envelope *e, size_t n)
{
    size_t left = n;
    double end, highest = 0;
    if (n < EXIT_BEFORE + 1)
        return n;
    end = e->slot[n - 1].x;
    for (size_t k = n - 1; k >= EXIT_BEFORE; k--) {
        double lowest = HUGE_VAL;
        if (k + 1 < n && (end - e->slot[k].x > EXIT_S || end - e->slot[k].x > EXIT_PART * end))
            break;
        highest = fmax(highest, e->slot[k].y);
        for (size_t i = k - EXIT_BEFORE; i < k; i++)
            lowest = fmin(lowest, e->slot[i].y);
        if (highest < lowest && e->slot[n - 1].y < (1 - EXIT_FALL) * lowest)
            left = k;
    }
    return left;
}

/* Returns true if the last of the N slots looks like the beginning of a spike: it exceeds the slot
 * before it by about as much as at least two earlier spikes rose. */
static bool ends_in_spike(const struct envelope *e, size_t n)
{
    double top = 0, second = 0, jump;
    if (n < EXIT_BEFORE || !(e->width > 0))
        return false;
    for (size_t i = 0; i + 1 < n; i++) {
        double excess = (double)e->slot[i].excess;
        second = fmax(second, fmin(top, excess));
        top = fmax(top, excess);
    }
    jump = e->slot[n - 1].y - e->slot[n - 2].y;
    return jump >= fmax(SPIKE_PART * second, SPIKE_FLOOR * e->slot[n - 2].y) &&
           jump <= FALL_MARGIN * second;
}

void view_build(struct view *w, const struct verdict_series *v, bool by_step, double history_x,
                double from_x)
{
    const struct envelope *e = by_step ? &v->by_step : &v->by_time;
    struct track t = {.n = 0};
    size_t n = e->count, first = 0;
    w->n = 0;
    w->by_step = by_step;
    w->level = e->level;
    w->largest_fall = w->rise_now = w->sigma = 0;
    w->rise_open = false;
    w->past_level = -HUGE_VAL;
    w->now = by_step
                 ? v->last_step
                 : ((double)v->clock.last_ns - (double)v->clock.first_ns) * 1e-9 - v->clock.gap_s;
    w->seconds_per_x = by_step ? 0 : 1;
    if (by_step && v->steps_taken > 1 && v->last_step > v->first_step && !v->step_only)
        w->seconds_per_x = (v->last_step_s - v->first_step_s) / (v->last_step - v->first_step);
    if (n && !envelope_last_is_ripe(e, w->now))
        n--;
    if (ends_in_spike(e, n))
        n--;
    if (v->is_over && !by_step && !v->has_end) {
        size_t left = slots_before_end_of_work(v, e, n);
        left = left < n ? left : slots_before_exit(e, n);

        w->now = left < n ? e->slot[left - 1].x : w->now;
        n = left;
    }
    for (size_t i = 0; i < n; i++) {
        if (e->slot[i].x < history_x && e->slot[i].x < from_x)
            continue;
        t.x[t.n] = e->slot[i].x;
        t.y[t.n++] = e->slot[i].y;
        if (e->slot[i].x < from_x) {
            first++;
            continue;
        }
        w->x[w->n] = e->slot[i].x;
        w->y[w->n] = e->slot[i].y;
        w->excess[w->n] = (double)e->slot[i].excess;
        w->n++;
    }
    w->start = w->n ? fmin(isfinite(from_x) ? from_x : w->x[0], w->x[0]) : 0;
    if (w->n == 0)
        return;
    w->sigma = fit_noise(w->x, w->y, w->n);
    if (first)
        w->past_level = view_held_level(t.x, t.y, first, t.x[t.n - 1] - t.x[0]);
    view_set_baseline(w, &t, first);
}

void view_trim_startup(struct view *w)
{
    double span, best = 10;
    size_t cut = 0;
    if (w->n < 12)
        return;
    span = w->x[w->n - 1] - w->x[0];
    for (size_t k = 1; k + 8 < w->n && w->x[k] - w->x[0] <= 0.12 * span; k++) {
        double front = (w->low[k] - w->low[0]) / fmax(w->x[k] - w->x[0], 1e-9);
        double rest = (w->low[w->n - 1] - w->low[k]) / (w->x[w->n - 1] - w->x[k]);
        /* The front ends where the ratio of slopes is largest. A tail of the start-up may
         * remain. */
        if (w->low[k] - w->low[0] > 0.02 * w->low[k] && front > best * fmax(rest, 1e-12)) {
            best = front / fmax(rest, 1e-12);
            cut = k;
        }
    }
    if (cut == 0)
        return;
    w->n -= cut;
    for (size_t i = 0; i < w->n; i++) {
        w->x[i] = w->x[i + cut];
        w->y[i] = w->y[i + cut];
        w->low[i] = w->low[i + cut];
        w->excess[i] = w->excess[i + cut];
    }
}
