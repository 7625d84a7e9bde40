/* Detects jumps of memory at evaluations, checkpoints and epoch ends. */
#include "verdict/events.h"

#include <math.h>
#include <string.h>

#include "verdict/fit.h"

enum { EVENTS_AT_LEAST = 3, EVENTS_IF_CLOSE = 5 };
/* A training schedule (longer texts, larger batches, unfrozen layers) raises the baseline only a
 * few times, at epoch ends. A verdict on a running job therefore requires growth in one epoch more
 * than a verdict on a job that has ended. */
enum { EPOCHS_WHILE_RUNNING = 4 };
/* With fewer jumps than this, each jump must exceed the noise by FEW_OVER_NOISE instead of
 * RISE_OVER_NOISE, because two jumps easily arise from noise alone. */
enum { FEW_JUMPS = 3 };
enum { SEEN_AFTER = 3 }; /* an event is used once this many step ends have followed it */
/* Thresholds on the mean number of readings between two events. Below READINGS_APART, events are
 * close together: the baseline next to an event is then a single reading instead of the lowest of
 * several, and a verdict requires more events and at least READINGS_IF_CLOSE readings. Below
 * READINGS_CLOSE, a staircase looks like a line, and there is no verdict. */
enum { READINGS_APART = 8, READINGS_CLOSE = 2, READINGS_IF_CLOSE = 20 };
static const double APART_AT_LEAST = 1.5;
/* Growth within AROUND readings of an event (AROUND_IF_CLOSE if events are close together) is
 * attributed to the event. Even steady growth has a certain fraction F near events. For a verdict,
 * the fraction must be at least F + BEYOND_EVEN * (1 - F). */
static const double AROUND = 4, AROUND_IF_CLOSE = 1;
static const double BEYOND_EVEN = 0.6;
static const double RISE_OVER_NOISE = 2, FEW_OVER_NOISE = 3;
/* A rise smaller than this fraction of the mean jump is not a jump. */
static const double RISE_OVER_MEAN = 0.33;
/* Jumps larger than this multiple of the median jump are clipped. */
static const double STANDS_OUT = 1.6;
/* The sum of the later half of the jumps must be at least this fraction of the sum of the earlier
 * half. */
static const double GOES_ON = 0.8;
/* The current sequence of jumps must be this many times as long as the longest earlier sequence
 * whose memory was released. */
static const double TIMES_LOST = 2.5;

/* Used for growth that is already known to be a leak. The effective number of jumps must be at
 * least PIECES_PART times their number. The share of growth at events must exceed the share
 * expected by chance by CHANCE_Z standard deviations. */
static const double PIECES_PART = 0.33, CHANCE_Z = 1.65;

enum { EVENT_KINDS = 3 };
static const enum verdict_mark_kind KINDS[EVENT_KINDS] = {VERDICT_MARK_EVAL, VERDICT_MARK_SAVE,
                                                          VERDICT_MARK_EPOCH};

/* The baseline before and after an event. */
struct sides {
    double before, after;
};

/* Returns the baseline before and after event E. The baseline after E is lower if the first few
 * step ends after E free memory; a fall of up to RISE_OVER_NOISE times NOISE is ignored. */
static struct sides sides_of(const struct verdict_event *e, bool is_close, double noise)
{
    double after = (double)(is_close ? e->after_first : e->after_low);
    if (after - (double)e->after_lowest > RISE_OVER_NOISE * noise)
        after = (double)e->after_lowest;
    return (struct sides){(double)(is_close ? e->before_last : e->before_low), after};
}

/* Returns the number of bytes that an event added to the baseline. AFTER_PREVIOUS is the
 * baseline after the previous event of the same kind. If memory was released between the two
 * events, only growth above AFTER_PREVIOUS counts: a program may release memory shortly before
 * an event and allocate it again afterwards, as a data loader does whose queue is empty at the
 * end of an epoch. */
static double bytes_added(struct sides e, double after_previous, double noise)
{
    double before = e.before;
    if (after_previous - before > RISE_OVER_NOISE * noise)
        before = after_previous;
    return e.after - before;
}

static bool is_usable(const struct verdict_event *e, enum verdict_mark_kind kind)
{
    return e->kind == kind && e->has_before && e->after_n > 0;
}

/* The stored events of one kind: their number KEPT, the number N of usable ones, the number
 * READINGS of readings from the first usable event to the last, and the index END after the last
 * usable event. */
struct extent {
    unsigned kept, n, readings;
    uint32_t end;
};

static struct extent extent_of(const struct verdict_series *v, enum verdict_mark_kind kind,
                               uint32_t end)
{
    struct extent r = {0};
    uint32_t first = 0;
    for (uint32_t i = 0; i < v->n_events; i++) {
        r.kept += v->events[i].kind == kind;
        if (i >= end || !is_usable(&v->events[i], kind))
            continue;
        if (r.n++ == 0)
            first = v->events[i].reading;
        r.readings = v->events[i].reading - first;
        r.end = i + 1;
    }
    return r;
}

/* Estimates the noise from the changes of memory between events, where it should stay constant.
 * NOISE is an earlier estimate, which is too high if events are only a few readings apart, because
 * it includes the jumps. Returns the lower of the two. */
static double noise_between(const struct verdict_series *v, enum verdict_mark_kind kind,
                            uint32_t end, double noise)
{
    double moved[VERDICT_EVENTS];
    const struct verdict_event *last = NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < end; i++) {
        if (!is_usable(&v->events[i], kind))
            continue;
        if (last)
            moved[n++] = fabs((double)v->events[i].before_last - sides_of(last, true, 0).after);
        last = &v->events[i];
    }
    return n ? fmin(noise, fit_median(moved, n)) : noise;
}

/* Totals over all events of one kind, in order of time. */
struct jumps {
    unsigned n; /* number of events, which is one more than the number of jumps */
    /* Number of jumps since the last release, and in the longest earlier sequence without a
     * release. */
    unsigned run, lost;
    /* Baseline after the first event, after the last event, and after the event before the last. */
    double first, last, last_but_one;
    double later; /* sum of the jumps at all events but the first, in bytes */
    double jump[VERDICT_EVENTS];
};

/* Adds an event to the totals. The jump at the first event is left out, because it does not
 * indicate a leak: the first evaluation loads code and data that stay in memory, and most growth of
 * a warm-up occurs around the first event. */
static void take_event(struct jumps *k, struct sides s, double noise)
{
    double jump;
    if (k->n++ == 0) {
        k->first = k->last = k->last_but_one = s.after;
        return;
    }
    /* More memory was freed than the previous event added, for example by garbage collection or
     * because a cache was cleared. */
    if (k->n > 2 && k->last_but_one - s.before > RISE_OVER_NOISE * noise) {
        k->lost = k->run > k->lost ? k->run : k->lost;
        k->run = 0;
    }
    jump = bytes_added(s, k->last, noise);
    k->later += jump;
    k->jump[k->n - 2] = jump;
    k->run++;
    k->last_but_one = k->last;
    k->last = s.after;
}

static double median_of(const double *jump, unsigned n)
{
    double sorted[VERDICT_EVENTS];
    memcpy(sorted, jump, n * sizeof sorted[0]);
    return fit_median(sorted, n);
}

/* Returns true if enough of the N jumps exceed the noise: at least 80 % of them (if N >= 4, all but
 * one are also enough), including the last one. A jump must also exceed RISE_OVER_MEAN times MEAN,
 * because the noise may be 0. */
static bool jumps_exceed_noise(const double *jump, unsigned n, double mean, double noise)
{
    double over = n < FEW_JUMPS ? FEW_OVER_NOISE : RISE_OVER_NOISE;
    double least = fmax(over * noise, RISE_OVER_MEAN * mean);
    unsigned up = 0;
    for (unsigned i = 0; i < n; i++)
        up += jump[i] > least;
    return (up * 5 >= n * 4 || (n >= 4 && up + 1 >= n)) && jump[n - 1] > least;
}

/* Returns true if the later half of the jumps is about as large as the earlier half. Growth that
 * levels off adds less each time, for example a cache filled by evaluations, or heap fragmentation
 * caused by evaluations. Outliers are clipped. */
static bool jumps_continue(const double *jump, unsigned n, double noise)
{
    double early = 0, late = 0, most = STANDS_OUT * fmax(0, median_of(jump, n));
    for (unsigned i = 0; i < n / 2; i++) {
        early += fmin(most, jump[i]);
        late += fmin(most, jump[n - 1 - i]);
    }
    return late + RISE_OVER_NOISE * noise * sqrt(n) >= GOES_ON * early;
}

static unsigned events_needed(const struct verdict_series *v, enum verdict_mark_kind kind,
                              bool is_close)
{
    if (is_close)
        return EVENTS_IF_CLOSE;
    return kind == VERDICT_MARK_EPOCH && !v->is_over && !v->has_end ? EPOCHS_WHILE_RUNNING
                                                                    : EVENTS_AT_LEAST;
}

/* Measures the bytes added by events of KIND and their share of all growth. Returns false if there
 * are too few events. If events are close together, replaces NOISE with the noise between
 * events. */
static bool measure_jumps(const struct verdict_series *v, enum verdict_mark_kind kind,
                          double *noise, struct jumps *k, struct events_steps *ret)
{
    struct extent x = extent_of(v, kind, v->n_events);
    bool is_close = x.n && x.readings < READINGS_APART * (x.n - 1);
    double intervals, even;
    if (x.n && !is_close && v->events[x.end - 1].after_n < SEEN_AFTER)
        x = extent_of(v, kind, x.end - 1);
    if (x.n < EVENTS_AT_LEAST || x.readings < APART_AT_LEAST * (x.n - 1))
        return false;
    if (is_close)
        *noise = noise_between(v, kind, x.end, *noise);
    for (uint32_t i = 0; i < x.end; i++)
        if (is_usable(&v->events[i], kind))
            take_event(k, sides_of(&v->events[i], is_close, *noise), *noise);
    /* Events that are no longer stored are assumed to have had the same jumps as the stored
     * events. */
    intervals = (double)(x.n - 1) * v->events_seen[kind] / x.kept;
    even = fmin(1, (is_close ? AROUND_IF_CLOSE : AROUND) * intervals / x.readings);
    *ret = (struct events_steps){.kind = kind,
                                 .count = x.n,
                                 .readings = x.readings,
                                 .is_close = is_close,
                                 .jump_bytes = k->later / (x.n - 1),
                                 .total_bytes = k->later,
                                 .share_even = even,
                                 .share_needed = even + BEYOND_EVEN * (1 - even)};
    ret->share = k->last > k->first ? intervals * ret->jump_bytes / (k->last - k->first) : 0;
    return true;
}

/* Returns true if growth at events consists of enough jumps of similar size, and its SHARE is
 * larger than chance would explain. The effective number of jumps is (sum j)^2 / sum j^2. A leak
 * that has nothing to do with events has the fraction EVEN of its growth near events on average; if
 * it has only a few jumps, all of them may be near events by chance. */
static bool exceeds_chance(const double *jump, unsigned n, double share, double even)
{
    double sum = 0, squares = 0;
    for (unsigned i = 0; i < n; i++) {
        sum += jump[i];
        squares += jump[i] * jump[i];
    }
    return squares > 0 && sum * sum >= PIECES_PART * n * squares &&
           (share - even) * sum >= CHANCE_Z * sqrt(even * (1 - even) * squares);
}

/* Measures the jumps at events of KIND. Returns true if they are frequent, large and lasting enough
 * to indicate a leak. */
static bool jumps_of(const struct verdict_series *v, enum verdict_mark_kind kind, double noise,
                     struct events_steps *ret)
{
    struct jumps k = {0};
    if (!measure_jumps(v, kind, &noise, &k, ret) ||
        ret->count < events_needed(v, kind, ret->is_close) ||
        (ret->is_close && (ret->readings < READINGS_IF_CLOSE ||
                           ret->readings < READINGS_CLOSE * (ret->count - 1))) ||
        !jumps_continue(k.jump, k.n - 1, noise))
        return false;
    /* If events are close together, the typical jump must be large enough to matter. */
    if (ret->is_close && median_of(k.jump, k.n - 1) < v->options.material_fraction * k.first)
        return false;
    return k.last > k.first && jumps_exceed_noise(k.jump, k.n - 1, ret->jump_bytes, noise) &&
           k.run >= TIMES_LOST * k.lost;
}

bool events_find_steps(const struct verdict_series *v, double noise, double material,
                       struct events_steps *ret)
{
    bool found = false;
    for (unsigned k = 0; k < EVENT_KINDS; k++) {
        struct events_steps s;
        if (!jumps_of(v, KINDS[k], noise, &s) || s.share < s.share_needed ||
            s.total_bytes < material)
            continue;
        if (!found || s.share > 1.1 * ret->share)
            *ret = s;
        found = true;
    }
    return found;
}

bool events_hold_growth(const struct verdict_series *v, double noise, double material,
                        struct events_steps *ret)
{
    bool found = false;
    for (unsigned i = 0; i < EVENT_KINDS; i++) {
        double between = noise;
        struct jumps k = {0};
        struct events_steps s;
        if (!measure_jumps(v, KINDS[i], &between, &k, &s) || k.n <= EVENTS_AT_LEAST ||
            s.share < s.share_needed || s.total_bytes < material ||
            !exceeds_chance(k.jump, k.n - 1, s.share, s.share_even))
            continue;
        if (!found || s.share > 1.1 * ret->share)
            *ret = s;
        found = true;
    }
    return found;
}
