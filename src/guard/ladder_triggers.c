/* Assesses one reading: computes the thresholds, the growth rate and the active triggers. */
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "guard/ladder_private.h"

/* Hysteresis: an active trigger ends only when the value exceeds the trigger's threshold by this
 * factor. */
static const double OVER_NEED = 1.5, OVER_RESERVE = 1.25;

enum {
    PRESSED_S = 5,
    PRESSED_ROOM = 5, /* the pressure trigger requires headroom below a fifth of the limit */
    STEADY_PART = 16
};

double ladder_seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

/* Computes the thresholds of one gauge. Only those of host memory include the user's reserve and
 * the memory that a checkpoint needs. */
static void lines_set(const struct ladder_rules *rules, const struct ladder_gauge *g, bool is_gpu,
                      const struct timing *timing, struct ladder_lines *ret)
{
    ret->known = g->known && g->limit_bytes > 0;
    if (!ret->known)
        return;
    uint64_t most = g->limit_bytes / 2;
    uint64_t wanted = rules->reserve_bytes > 0 && !is_gpu ? rules->reserve_bytes
                                                          : ladder_default_reserve(g->limit_bytes);
    ret->base = u64_min(wanted, most);
    uint64_t rise = is_gpu ? 0 : u64_min(timing->save_rise_bytes, most - ret->base);
    ret->reserve = ret->base + rise;
    ret->usable = u64_minus(g->room_bytes, ladder_term_headroom(ret->base) + rise);
}

bool ladder_is_under(const struct ladder_input *in, struct ladder_status *k, unsigned part,
                     unsigned gauges)
{
    for (unsigned i = 0; i < gauges; i++)
        if (k->lines[i].known && !in->gauge[i].is_card &&
            in->gauge[i].room_bytes <= k->lines[i].base / part) {
            k->level_gauge = i;
            return true;
        }
    return false;
}

/* Returns the newest reading of gauge I that is at least AGE_S old. Returns NULL if there is no
 * such reading, or if the newest one is more than twice AGE_S old, for example after the machine
 * was suspended. */
static const struct ladder_past *past_find(const struct ladder *l, unsigned i, uint64_t now_ns,
                                           double age_s, uint32_t *ret_n)
{
    uint32_t n = l->n_past[i];
    uint32_t oldest = n > LADDER_PAST ? n - LADDER_PAST : 0;
    while (n > oldest) {
        const struct ladder_past *p = &l->past[i][--n % LADDER_PAST];
        double age = ladder_seconds(p->t_ns, now_ns);
        if (age >= age_s) {
            *ret_n = n;
            return age <= 2 * age_s ? p : NULL;
        }
    }
    return NULL;
}

static void past_add(struct ladder *l, unsigned i, uint64_t now_ns, uint64_t used_bytes)
{
    const uint32_t n = l->n_past[i];
    /* a little less than a second, so that one reading per tick is stored if ticks are one second
     * apart */
    if (n > 0 && ladder_seconds(l->past[i][(n - 1) % LADDER_PAST].t_ns, now_ns) < 0.8)
        return;
    l->past[i][n % LADDER_PAST] = (struct ladder_past){now_ns, used_bytes};
    l->n_past[i]++;
}

static double past_slope(const struct ladder_past *from, const struct ladder_past *to)
{
    double s = ladder_seconds(from->t_ns, to->t_ns);
    return s > 0 ? ((double)to->used_bytes - (double)from->used_bytes) / s : 0;
}

/* Returns the sum of all decreases in memory use since reading number N, in bytes. */
static double past_falls(const struct ladder *l, unsigned i, uint32_t n, uint64_t used_bytes)
{
    double sum = 0;
    for (; n < l->n_past[i]; n++) {
        uint64_t next =
            n + 1 < l->n_past[i] ? l->past[i][(n + 1) % LADDER_PAST].used_bytes : used_bytes;
        sum += (double)u64_minus(l->past[i][n % LADDER_PAST].used_bytes, next);
    }
    return sum;
}

/* Returns the growth rate over the last LADDER_PACE_S if memory grew in both halves of this period,
 * and if all decreases together were at most half of the net growth. Otherwise returns 0. Thus a
 * sawtooth that happens to end higher is not treated as growth. */
static double slow_pace(const struct ladder *l, unsigned i, uint64_t now_ns, uint64_t used_bytes)
{
    const struct ladder_past now = {now_ns, used_bytes};
    uint32_t first = 0, middle = 0;
    const struct ladder_past *a = past_find(l, i, now_ns, LADDER_PACE_S, &first);
    const struct ladder_past *b = past_find(l, i, now_ns, LADDER_PACE_S / 2.0, &middle);
    if (!a || !b || past_slope(a, b) <= 0)
        return 0;
    double whole = past_slope(a, &now), newer = past_slope(b, &now);
    double rise = (double)used_bytes - (double)a->used_bytes;
    if (whole <= 0 || newer <= 0 || past_falls(l, i, first, used_bytes) > rise / 2)
        return 0;
    return fmin(whole, newer);
}

static bool was_holding(const struct ladder *l, enum ladder_trigger t)
{
    return (l->holding & LADDER_BIT(t)) != 0;
}

static bool is_soon(const struct ladder *l, enum ladder_trigger t, double left_s, double need_s)
{
    return left_s < (was_holding(l, t) ? OVER_NEED : 1) * need_s;
}

/* Converts LIMIT_S, the time until the limit is reached, to the time until headroom falls to the
 * SIGTERM line. */
static double until_term_s(const struct ladder_input *in, const struct ladder_status *k, unsigned i,
                           double limit_s)
{
    uint64_t room = in->gauge[i].room_bytes;
    return k->lines[i].known && room > 0 ? limit_s * (double)k->lines[i].usable / (double)room
                                         : limit_s;
}

static bool forecast_holds(const struct ladder *l, const struct ladder_input *in,
                           struct ladder_status *k)
{
    k->forecast_s = in->forecast_known ? until_term_s(in, k, k->least, in->forecast_s) : HUGE_VAL;
    k->forecast_gauge = k->least;
    for (unsigned i = LADDER_HOST_GAUGES; i < LADDER_GAUGES; i++) {
        const struct ladder_gauge *g = &in->gauge[i];
        if (!k->lines[i].known || !g->forecast_known)
            continue;
        double left_s = until_term_s(in, k, i, g->forecast_s);
        if (left_s < k->forecast_s) {
            k->forecast_s = left_s;
            k->forecast_gauge = i;
        }
    }
    return !l->rules.no_forecast && is_soon(l, LADDER_BY_FORECAST, k->forecast_s, k->need_s);
}

static bool pace_holds(struct ladder *l, const struct ladder_input *in, struct ladder_status *k)
{
    k->pace_s = HUGE_VAL;
    for (unsigned i = 0; i < LADDER_GAUGES; i++) {
        const struct ladder_gauge *g = &in->gauge[i];
        l->slow_pace[i] = 0;
        if (!k->lines[i].known)
            continue;
        l->slow_pace[i] = slow_pace(l, i, in->now_ns, g->used_bytes);
        past_add(l, i, in->now_ns, g->used_bytes);
        if (l->slow_pace[i] <= 0 || g->used_bytes <= g->limit_bytes / 2)
            continue;
        double left_s = (double)k->lines[i].usable / l->slow_pace[i];
        if (left_s < k->pace_s) {
            k->pace_s = left_s;
            k->pace_gauge = i;
        }
    }
    return !l->rules.no_forecast && is_soon(l, LADDER_BY_PACE, k->pace_s, k->need_s);
}

/* Returns true if headroom is within the reserve. If memory has been found to be steady there,
 * returns true only if headroom has shrunk since then. */
static bool gauge_is_at_level(struct ladder *l, unsigned i, uint64_t room,
                              const struct ladder_lines *line)
{
    bool was = was_holding(l, LADDER_BY_LEVEL);
    double over = OVER_RESERVE * (double)line->reserve;
    uint64_t part = line->base / STEADY_PART;
    if ((double)room > over)
        l->is_steady[i] = false;
    if (l->is_steady[i])
        return was ? room < l->steady_headroom[i]
                   : part <= l->steady_headroom[i] && room <= l->steady_headroom[i] - part;
    return was ? (double)room <= over : room <= line->reserve;
}

static bool level_holds(struct ladder *l, const struct ladder_input *in, struct ladder_status *k)
{
    bool holds = false;
    k->level_gauge = k->least;
    for (unsigned i = 0; i < LADDER_GAUGES; i++) {
        if (!k->lines[i].known || !gauge_is_at_level(l, i, in->gauge[i].room_bytes, &k->lines[i]))
            continue;
        if (!holds || i == k->least)
            k->level_gauge = i;
        holds = true;
    }
    return holds && !l->rules.no_level;
}

static bool pressure_holds(struct ladder *l, const struct ladder_input *in, struct ladder_status *k)
{
    if (!in->pressure_known || !(in->pressure >= l->rules.pressure)) {
        l->pressed_ns = 0;
        return false;
    }
    if (l->pressed_ns == 0)
        l->pressed_ns = in->now_ns;
    k->pressed_s = ladder_seconds(l->pressed_ns, in->now_ns);
    bool is_short = false;
    for (unsigned i = 0; i < LADDER_HOST_GAUGES; i++)
        is_short |=
            k->lines[i].known && in->gauge[i].room_bytes < in->gauge[i].limit_bytes / PRESSED_ROOM;
    return is_short && k->pressed_s >= PRESSED_S && !l->rules.no_pressure;
}

static unsigned least_gauge(const struct ladder_input *in, const struct ladder_status *k)
{
    if (!k->lines[0].known)
        return k->lines[1].known ? 1 : 0;
    return k->lines[1].known && in->gauge[1].room_bytes < in->gauge[0].room_bytes ? 1 : 0;
}

void ladder_assess(struct ladder *l, const struct ladder_input *in, const struct timing *timing,
                   struct ladder_status *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->need_s = ladder_need_s(l, timing);
    for (unsigned i = 0; i < LADDER_GAUGES; i++)
        lines_set(&l->rules, &in->gauge[i], i >= LADDER_HOST_GAUGES, timing, &ret->lines[i]);
    ret->least = least_gauge(in, ret);
    bool holds[LADDER_TRIGGERS] = {
        [LADDER_BY_FORECAST] = forecast_holds(l, in, ret),
        [LADDER_BY_PACE] = pace_holds(l, in, ret),
        [LADDER_BY_LEVEL] = level_holds(l, in, ret),
        [LADDER_BY_PRESSURE] = pressure_holds(l, in, ret),
        [LADDER_BY_PLAN] = in->plan_due,
    };
    for (unsigned t = 0; t < LADDER_TRIGGERS; t++)
        if (holds[t] && in->now_ns >= l->quiet_until_ns[t])
            ret->holding |= LADDER_BIT(t);
    l->holding = ret->holding;
}
