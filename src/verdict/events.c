/* Jumps at marked events. */
#include "verdict/events.h"

#include <math.h>
#include <string.h>

#include "verdict/fit.h"

enum { EVENTS_AT_LEAST = 3, EVENTS_IF_CLOSE = 5 };
/* A schedule (longer texts, larger batches, layers that thaw) lifts the floor at a few epochs and
 * then no more: one more is waited for, while there may be one. */
enum { EPOCHS_WHILE_RUNNING = 4 };
enum { FEW_JUMPS = 3 };  /* fewer must be clearer: chance makes two of any noise */
enum { SEEN_AFTER = 3 }; /* step ends after the newest event, until which it is not counted */
/* From one event to the next there should be so many readings; where there are fewer, the floor on
 * either side of an event is not the lowest of a few readings but the nearest one, over more
 * events. With fewer still a staircase and a line are the same. */
enum { READINGS_APART = 8, READINGS_CLOSE = 2, READINGS_IF_CLOSE = 20 };
static const double APART_AT_LEAST = 1.5;
/* The readings around an event are a part of all from one to the next, and even growth puts that
 * part of itself there: of the rest, so much must come at the events too. */
static const double AROUND = 4, AROUND_IF_CLOSE = 1;
static const double BEYOND_EVEN = 0.6;
static const double RISE_OVER_NOISE = 2, FEW_OVER_NOISE = 3;
static const double RISE_OVER_MEAN = 0.33; /* of all jumps: so much smaller is none */
static const double STANDS_OUT = 1.6;      /* times the median jump: a larger one counts as that */
static const double GOES_ON = 0.8;         /* of the earlier jumps, in the later ones */
static const double TIMES_LOST = 2.5; /* a run of jumps, over the longest that was given back */

/* Where growth is a leak by other rules: how many equal pieces its jumps are at least, as part of
 * all events, and how far above the share that chance puts there, in deviations. */
static const double PIECES_PART = 0.33, CHANCE_Z = 1.65;

enum { EVENT_KINDS = 3 };
static const enum verdict_mark_kind KINDS[EVENT_KINDS] = {VERDICT_MARK_EVAL, VERDICT_MARK_SAVE,
                                                          VERDICT_MARK_EPOCH};

/* The floor on either side of an event. */
struct sides {
    double before, after;
};

/* What was gone a few step ends later never stayed; by less than NOISE does, nothing was. */
static struct sides sides_of(const struct verdict_event *e, bool is_close, double noise)
{
    double after = (double)(is_close ? e->after_first : e->after_low);
    if (after - (double)e->after_lowest > RISE_OVER_NOISE * noise)
        after = (double)e->after_lowest;
    return (struct sides){(double)(is_close ? e->before_last : e->before_low), after};
}

/* What an event added to the floor. Memory that is given back shortly before an event and taken
 * again after it (a loader that runs dry at the end of an epoch) returns to a level that was there
 * before: where it lay lower than AFTER_PREVIOUS, the event of its kind before it, by more than
 * NOISE does, only what lies above that is new. */
static double added(struct sides e, double after_previous, double noise)
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

/* The events of one KIND: how many are kept, how many of them are usable, the place after the last
 * of these, and the readings from the first to the last. */
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

/* Steps as close as a few readings are noise to whoever does not know of them. What there is from
 * one event to the next, where nothing should move, tells better: at most NOISE. */
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

/* What is summed up over the events of one kind, in their order. */
struct jumps {
    unsigned n;                       /* events; there is one jump less */
    unsigned run, lost;               /* jumps since one was undone, and the most before that */
    double first, last, last_but_one; /* the floor after these */
    double later;                     /* all jumps but the first */
    double jump[VERDICT_EVENTS];
};

/* The first event is left out of the proof, and so is all that grew before it: a first evaluation
 * touches its data and loads its code for the first time, and that stays without being a leak; and
 * a warm-up that flattens out has most of its growth around the first. */
static void take_event(struct jumps *k, struct sides s, double noise)
{
    double jump;
    if (k->n++ == 0) {
        k->first = k->last = k->last_but_one = s.after;
        return;
    }
    /* More is gone than the event before it added: garbage that was collected, a cache cleared. */
    if (k->n > 2 && k->last_but_one - s.before > RISE_OVER_NOISE * noise) {
        k->lost = k->run > k->lost ? k->run : k->lost;
        k->run = 0;
    }
    jump = added(s, k->last, noise);
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

/* Do four in five of the N jumps count (all but one of four), and the last? Where a reading has no
 * noise, every byte is above it: a jump must also have a good part of their MEAN. */
static bool do_rise(const double *jump, unsigned n, double mean, double noise)
{
    double over = n < FEW_JUMPS ? FEW_OVER_NOISE : RISE_OVER_NOISE;
    double least = fmax(over * noise, RISE_OVER_MEAN * mean);
    unsigned up = 0;
    for (unsigned i = 0; i < n; i++)
        up += jump[i] > least;
    return (up * 5 >= n * 4 || (n >= 4 && up + 1 >= n)) && jump[n - 1] > least;
}

/* Are the later N / 2 of the jumps about as large as the earlier ones? What settles adds less each
 * time: a cache that evaluations fill, holes that they leave. One that stands out tells nothing
 * about that. */
static bool go_on(const double *jump, unsigned n, double noise)
{
    double early = 0, late = 0, most = STANDS_OUT * fmax(0, median_of(jump, n));
    for (unsigned i = 0; i < n / 2; i++) {
        early += fmin(most, jump[i]);
        late += fmin(most, jump[n - 1 - i]);
    }
    return late + RISE_OVER_NOISE * noise * sqrt(n) >= GOES_ON * early;
}

/* How many events of KIND it takes. */
static unsigned events_needed(const struct verdict_series *v, enum verdict_mark_kind kind,
                              bool is_close)
{
    if (is_close)
        return EVENTS_IF_CLOSE;
    return kind == VERDICT_MARK_EPOCH && !v->is_over && !v->has_end ? EPOCHS_WHILE_RUNNING
                                                                    : EVENTS_AT_LEAST;
}

/* What the events of KIND added, and their share of all growth; false where they are too few. NOISE
 * becomes that between them, where they are close. */
static bool measure(const struct verdict_series *v, enum verdict_mark_kind kind, double *noise,
                    struct jumps *k, struct events_steps *ret)
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
    /* Of events that are no longer kept the jumps are taken to be like those that are. */
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

/* Are the jumps so many equal ones, (sum j)^2 / sum j^2? Pieces of one leak that has nothing to do
 * with the events fall there as often as readings do, EVEN; so few of them may all do by chance. */
static bool is_no_chance(const double *jump, unsigned n, double share, double even)
{
    double sum = 0, squares = 0;
    for (unsigned i = 0; i < n; i++) {
        sum += jump[i];
        squares += jump[i] * jump[i];
    }
    return squares > 0 && sum * sum >= PIECES_PART * n * squares &&
           (share - even) * sum >= CHANCE_Z * sqrt(even * (1 - even) * squares);
}

/* Do the jumps of one kind prove a leak by themselves? */
static bool jumps_of(const struct verdict_series *v, enum verdict_mark_kind kind, double noise,
                     struct events_steps *ret)
{
    struct jumps k = {0};
    if (!measure(v, kind, &noise, &k, ret) || ret->count < events_needed(v, kind, ret->is_close) ||
        (ret->is_close && (ret->readings < READINGS_IF_CLOSE ||
                           ret->readings < READINGS_CLOSE * (ret->count - 1))) ||
        !go_on(k.jump, k.n - 1, noise))
        return false;
    /* Little was read between them: each by itself has to count. */
    if (ret->is_close && median_of(k.jump, k.n - 1) < v->options.material_fraction * k.first)
        return false;
    return k.last > k.first && do_rise(k.jump, k.n - 1, ret->jump_bytes, noise) &&
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
        if (!measure(v, KINDS[i], &between, &k, &s) || k.n <= EVENTS_AT_LEAST ||
            s.share < s.share_needed || s.total_bytes < material ||
            !is_no_chance(k.jump, k.n - 1, s.share, s.share_even))
            continue;
        if (!found || s.share > 1.1 * ret->share)
            *ret = s;
        found = true;
    }
    return found;
}
