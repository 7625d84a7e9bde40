/* Jumps at marked events. */
#include "verdict/events.h"

#include <math.h>

enum { EVENTS_AT_LEAST = 3 };
/* Of the growth so much must come at the events. Even growth puts three of the M readings from one
 * event to the next around it, 3/M: where they are few the share must be larger and seen over more
 * events, and where it would be 0.6 by itself nothing can be told. */
static const double SHARE_AT_LEAST = 0.6, SHARE_IF_CLOSE = 0.8;
static const double RISE_OVER_NOISE = 2;
enum { READINGS_APART = 8, READINGS_CLOSE = 6, READINGS_IF_CLOSE = 48 };

bool events_first(const struct verdict_series *v, enum verdict_mark_kind kind,
                  struct verdict_event *ret)
{
    for (uint32_t i = 0; i < v->n_events; i++)
        if (v->events[i].kind == kind) {
            *ret = v->events[i];
            return true;
        }
    return false;
}

/* What E added to the floor. Memory that is given back shortly before an event and taken again
 * after it (a loader that runs dry at the end of an epoch) returns to a level that was there
 * before: where it lay lower than after PREVIOUS, the event of its kind before it, by more than
 * NOISE does, only what lies above that is new. */
static double added(const struct verdict_event *e, const struct verdict_event *previous,
                    double noise)
{
    double before = e->before_bytes;

    if (previous && previous->after_bytes - before > RISE_OVER_NOISE * noise)
        before = previous->after_bytes;
    return e->after_bytes - before;
}

/* Jumps of one kind. The first is left out of the proof: a first evaluation touches its data and
 * loads its code for the first time, and that stays without being a leak. */
static bool jumps_of(const struct verdict_series *v, enum verdict_mark_kind kind, double noise,
                     struct events_steps *ret)
{
    const struct verdict_event *first = NULL, *last = NULL;
    double sum = 0, later = 0, final = 0;
    unsigned n = 0, up = 0, readings;
    bool is_close;

    for (uint32_t i = 0; i < v->n_events; i++) {
        const struct verdict_event *e = &v->events[i];
        double jump;

        if (e->kind != kind || !e->has_before || e->after_n == 0)
            continue;
        jump = added(e, last, noise);
        if (n++ == 0)
            first = e;
        else {
            later += jump;
            up += jump > RISE_OVER_NOISE * noise;
        }
        last = e;
        sum += jump;
        final = jump;
    }
    if (n < EVENTS_AT_LEAST)
        return false;
    readings = last->reading - first->reading;
    is_close = readings < READINGS_APART * (n - 1);
    if (is_close && (readings < READINGS_CLOSE * (n - 1) || readings < READINGS_IF_CLOSE))
        return false;
    ret->share_needed = is_close ? SHARE_IF_CLOSE : SHARE_AT_LEAST;
    ret->kind = kind;
    ret->count = n;
    ret->jump_bytes = later / (n - 1);
    ret->total_bytes = later;
    ret->share = sum * v->events_seen[kind] / n / (last->after_bytes - first->before_bytes);
    return last->after_bytes > first->before_bytes && up * 5 >= (n - 1) * 4 &&
           final > 0.5 * ret->jump_bytes;
}

bool events_find_steps(const struct verdict_series *v, double noise, double material,
                       struct events_steps *ret)
{
    static const enum verdict_mark_kind KINDS[] = {VERDICT_MARK_EVAL, VERDICT_MARK_SAVE,
                                                   VERDICT_MARK_EPOCH};
    bool found = false;

    for (unsigned k = 0; k < sizeof(KINDS) / sizeof(KINDS[0]); k++) {
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
