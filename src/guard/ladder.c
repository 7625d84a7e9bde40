/* The guard's ladder. While a trigger is active, decides which action follows, that is, which rung
 * is next. */
#include "guard/ladder.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"
#include "guard/ladder_private.h"

#define MIB (UINT64_C(1) << 20)

enum { TERM_PART = 2, SAVING_PART = 4, KILL_PART = 8, RISE_PART = 16 };
enum {
    /* seconds of high memory pressure after which the job is stopped */
    PRESSURE_MORE_S = 35,
    UNNEEDED_MOST = 2,
    UNNEEDED_PACE = 6
};
/* A checkpoint request is pointless if SIGTERM is due sooner than this. */
static const double MOMENT_S = 0.25;
/* A newer checkpoint is requested only if the last one was written at least NEWER checkpoint
 * durations ago. */
static const double NEWER = 1.5;

/* The state of one call of ladder_step. */
struct turn {
    struct ladder *l;
    const struct ladder_input *in;
    const struct timing *timing;
    struct ladder_status status;
    struct ladder_decision *ret;
};

const char *ladder_trigger_name(enum ladder_trigger trigger)
{
    static const char *const names[LADDER_TRIGGERS] = {"nothing",  "pace",  "pressure",
                                                       "forecast", "level", "plan"};
    return (size_t)trigger < LADDER_TRIGGERS ? names[trigger] : "unknown";
}

const char *ladder_act_name(enum ladder_act act)
{
    static const char *const names[] = {"nothing", "warn", "ask", "term", "kill", "stand down"};
    return (size_t)act < sizeof names / sizeof *names ? names[act] : "unknown";
}

uint64_t ladder_default_reserve(uint64_t limit_bytes)
{
    uint64_t reserve = u64_max(limit_bytes / 20, 64 * MIB);
    return u64_min(u64_min(reserve, 4096 * MIB), limit_bytes / 5);
}

uint64_t ladder_term_headroom(uint64_t reserve_bytes)
{
    return reserve_bytes / TERM_PART;
}

uint64_t ladder_kill_headroom(uint64_t reserve_bytes)
{
    return reserve_bytes / KILL_PART;
}

static bool set_default(double *value, double standard, double most)
{
    if (!(*value >= 0 && *value <= most))
        return false;
    if (*value == 0)
        *value = standard;
    return true;
}

int ladder_init(struct ladder *l, const struct ladder_rules *rules)
{
    const double most_s = 1e9;
    struct ladder_rules r = *rules;
    if (!set_default(&r.margin_s, 2, most_s) || !set_default(&r.checkpoint_s, 10, most_s) ||
        !set_default(&r.wait_s, 600, most_s) || !set_default(&r.grace_s, 10, most_s) ||
        !set_default(&r.pressure, 0.3, 1))
        return -EINVAL;
    memset(l, 0, sizeof *l);
    l->rules = r;
    return 0;
}

void ladder_segment(struct ladder *l)
{
    struct ladder_rules rules = l->rules;
    memset(l, 0, sizeof *l);
    l->rules = rules;
}

double ladder_need_s(const struct ladder *l, const struct timing *timing)
{
    uint64_t step_ns = 0;
    step_times_slow_ns(&timing->steps, &step_ns);
    double step_s = (double)step_ns / (double)NS_PER_S;
    return step_s + (timing->saves > 0 ? timing->save_s : l->rules.checkpoint_s) +
           l->rules.margin_s;
}

static enum ladder_trigger strongest_trigger(unsigned holding)
{
    return holding ? (enum ladder_trigger)(31 - __builtin_clz(holding)) : LADDER_BY_NOTHING;
}

static bool trigger_holds(const struct turn *t, enum ladder_trigger trigger)
{
    return (t->status.holding & LADDER_BIT(trigger)) != 0;
}

/* ---- reasons as text ---- */

enum { TEXT_PART = 88 };

/* Formats a duration. Durations of 1 s and more are in whole seconds, because the estimates are not
 * more precise. */
static const char *ladder_time_text(char out[TEXT_TIME_MAX], double s)
{
    if (!(s > 0))
        return "0 s";
    if (s > 1e9)
        return "years";
    if (s < 1 || s >= 59.5)
        return text_duration(out, (uint64_t)(s * 1e9));
    snprintf(out, TEXT_TIME_MAX, "%.0f s", s);
    return out;
}

static void left_text(const struct ladder *l, const struct ladder_input *in, unsigned i,
                      char out[TEXT_PART])
{
    char room[TEXT_SIZE_MAX], limit[TEXT_SIZE_MAX], pace[TEXT_SIZE_MAX];
    const struct ladder_gauge *g = &in->gauge[i];
    int n =
        i < LADDER_HOST_GAUGES ? 0 : snprintf(out, TEXT_PART, "gpu %u: ", i - LADDER_HOST_GAUGES);
    n += snprintf(out + n, TEXT_PART - (size_t)n, "%s left of %s", text_size(room, g->room_bytes),
                  text_size(limit, g->limit_bytes));
    double rate = l->slow_pace[i] > 0 ? l->slow_pace[i] : g->pace_bytes_per_s;
    if (rate >= 1024 && rate < 1e15)
        snprintf(out + n, TEXT_PART - (size_t)n, ", growing by %s/s",
                 text_size(pace, (uint64_t)rate));
}

/* Writes "a step and a checkpoint take 8 s, plus a margin of 2 s". */
static void need_text(const struct ladder *l, const struct timing *timing, double need_s,
                      char out[TEXT_PART])
{
    char takes[TEXT_TIME_MAX], margin[TEXT_TIME_MAX];
    uint64_t step_ns;
    bool has_step = step_times_slow_ns(&timing->steps, &step_ns);
    snprintf(out, TEXT_PART, "%s %s %s, plus a margin of %s",
             has_step ? "a step and a checkpoint" : "a checkpoint",
             timing->saves == 0 ? "may take" : (has_step ? "take" : "takes"),
             ladder_time_text(takes, need_s - l->rules.margin_s),
             ladder_time_text(margin, l->rules.margin_s));
}

static void soon_text(const struct ladder *l, const struct ladder_input *in,
                      const struct timing *timing, const struct ladder_status *k, unsigned gauge,
                      double left_s, char ret[LADDER_WHY_MAX])
{
    char left[TEXT_PART], need[TEXT_PART], time[TEXT_TIME_MAX];
    need_text(l, timing, k->need_s, need);
    if (!k->lines[gauge].known) {
        snprintf(ret, LADDER_WHY_MAX, "full in %s; %s", ladder_time_text(time, left_s), need);
        return;
    }
    left_text(l, in, gauge, left);
    snprintf(ret, LADDER_WHY_MAX, "%s: %s in %s; %s", left,
             in->gauge[gauge].is_card ? "full" : "SIGTERM line reached",
             ladder_time_text(time, left_s), need);
}

static unsigned gauge_of(const struct ladder_status *k, enum ladder_trigger trigger)
{
    return trigger == LADDER_BY_FORECAST ? k->forecast_gauge
           : trigger == LADDER_BY_PACE   ? k->pace_gauge
           : trigger == LADDER_BY_LEVEL  ? k->level_gauge
                                         : k->least;
}

static void reason_text(const struct ladder *l, const struct ladder_input *in,
                        const struct timing *timing, const struct ladder_status *k,
                        enum ladder_trigger trigger, char ret[LADDER_WHY_MAX])
{
    char left[TEXT_PART], size[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    const unsigned gauge = gauge_of(k, trigger);
    left_text(l, in, gauge, left);
    switch (trigger) {
    case LADDER_BY_FORECAST:
        soon_text(l, in, timing, k, gauge, k->forecast_s, ret);
        break;
    case LADDER_BY_PACE:
        soon_text(l, in, timing, k, gauge, k->pace_s, ret);
        break;
    case LADDER_BY_LEVEL:
        snprintf(ret, LADDER_WHY_MAX, "%s; the reserve is %s", left,
                 text_size(size, k->lines[gauge].reserve));
        break;
    case LADDER_BY_PRESSURE:
        snprintf(ret, LADDER_WHY_MAX,
                 "memory pressure for %s: all processes were stalled %.0f %% of the time; %s",
                 ladder_time_text(time, k->pressed_s), 100 * in->pressure, left);
        break;
    case LADDER_BY_PLAN:
        snprintf(ret, LADDER_WHY_MAX, "a planned restart is due");
        break;
    default:
        snprintf(ret, LADDER_WHY_MAX, "%s", k->lines[gauge].known ? left : "no trigger is active");
        break;
    }
}

static void ladder_why(const struct ladder *l, const struct ladder_input *in,
                       const struct timing *timing, const struct ladder_status *k,
                       enum ladder_trigger trigger, const char *end, char ret[LADDER_WHY_MAX])
{
    char reason[LADDER_WHY_MAX];
    reason_text(l, in, timing, k, trigger, reason);
    /* if the text is too long, REASON is truncated, but END is kept */
    int room = LADDER_WHY_MAX - 1 - (int)snprintf(NULL, 0, "%s", end);
    snprintf(ret, LADDER_WHY_MAX, "%.*s%s", room > 0 ? room : 0, reason, end);
}

/* ---- decisions ---- */

static void ladder_decide(struct turn *t, enum ladder_act act, enum ladder_trigger trigger,
                          const char *end)
{
    t->ret->act = act;
    t->ret->trigger = trigger;
    unsigned gauge = gauge_of(&t->status, trigger);
    t->ret->has_gpu = gauge >= LADDER_HOST_GAUGES;
    t->ret->gpu = t->ret->has_gpu ? gauge - LADDER_HOST_GAUGES : 0;
    ladder_why(t->l, t->in, t->timing, &t->status, trigger, end, t->ret->why);
}

static void ladder_climb(struct turn *t, enum ladder_rung rung)
{
    t->l->rung = rung;
    t->l->begun_ns = t->in->now_ns;
}

/* Sends SIGTERM, or SIGKILL if SIGTERM is disabled. Returns false if both signals are disabled. */
static bool ladder_stop(struct turn *t, enum ladder_trigger trigger, const char *end)
{
    if (t->l->rules.no_term && t->l->rules.no_kill)
        return false;
    bool is_kill = t->l->rules.no_term;
    t->l->trigger = trigger;
    ladder_climb(t, is_kill ? LADDER_KILLED : LADDER_STOPPING);
    ladder_decide(t, is_kill ? LADDER_DO_KILL : LADDER_DO_TERM, trigger, end);
    return true;
}

/* Returns how long TRIGGER is ignored after a checkpoint turned out to be unnecessary. The forecast
 * is ignored only briefly, because it is based on the baseline, which does not fluctuate. Triggers
 * that react to peaks are ignored for longer each time. */
static uint64_t quiet_ns(const struct ladder *l, enum ladder_trigger trigger)
{
    bool is_steady = false;
    for (unsigned i = 0; i < LADDER_GAUGES; i++)
        is_steady |= trigger == LADDER_BY_LEVEL && l->is_steady[i];
    if (l->requested_ns == 0 || is_steady || trigger == LADDER_BY_PLAN)
        return LADDER_CALM_S * NS_PER_S;
    /* If the checkpoint was written in time, a short pause is enough, because the next request may
     * come closer to the limit. */
    if (l->done_ns && trigger == LADDER_BY_PACE)
        return LADDER_CALM_S * NS_PER_S
               << (l->unneeded < UNNEEDED_PACE ? l->unneeded : UNNEEDED_PACE);
    uint64_t again = LADDER_AGAIN_S * NS_PER_S;
    if (trigger == LADDER_BY_FORECAST)
        return again;
    return again << (l->unneeded < UNNEEDED_MOST ? l->unneeded : UNNEEDED_MOST);
}

static void stand_down(struct turn *t, const char *end)
{
    struct ladder *l = t->l;
    for (unsigned i = 0; i < LADDER_TRIGGERS; i++)
        if (l->episode & LADDER_BIT(i))
            l->quiet_until_ns[i] = t->in->now_ns + quiet_ns(l, (enum ladder_trigger)i);
    if (l->requested_ns != 0)
        l->unneeded++;
    ladder_decide(t, LADDER_DO_STAND_DOWN, LADDER_BY_NOTHING, end);
    t->ret->trigger = l->trigger;
    ladder_climb(t, LADDER_CALM);
    l->trigger = LADDER_BY_NOTHING;
    l->requested_ns = l->done_ns = l->over_ns = 0;
    l->holding = l->episode = 0;
}

/* Handles a tick at which no trigger is active. After LADDER_CALM_S of such ticks, the ladder
 * becomes calm. Ticks during a checkpoint do not count: the job does not train then, so its memory
 * does not grow. */
static void ladder_rest(struct turn *t, bool is_saving)
{
    struct ladder *l = t->l;
    if (l->over_ns == 0 || is_saving)
        l->over_ns = t->in->now_ns;
    if (ladder_seconds(l->over_ns, t->in->now_ns) < LADDER_CALM_S)
        return;
    stand_down(t, l->done_ns != 0
                      ? ": no trigger is active any more, and the checkpoint was not needed"
                      : ": no trigger is active any more");
}

static void remember_used(struct turn *t)
{
    for (unsigned i = 0; i < LADDER_GAUGES; i++)
        t->l->mark_bytes[i] = t->in->gauge[i].known ? t->in->gauge[i].used_bytes : UINT64_MAX;
}

static bool can_request_now(const struct turn *t)
{
    if (!t->in->can_request || t->l->rules.no_checkpoint)
        return false;
    for (unsigned i = 0; i < LADDER_GAUGES; i++) {
        const struct ladder_gauge *g = &t->in->gauge[i];
        uint64_t term = t->status.lines[i].base / TERM_PART;
        if (!t->status.lines[i].known || !(g->pace_bytes_per_s > 0))
            continue;
        if ((double)u64_minus(g->room_bytes, term) / g->pace_bytes_per_s < MOMENT_S)
            return false;
    }
    return true;
}

/* The estimated time until SIGTERM: the shorter of the two estimates if the forecast trigger is
 * active, else the one from the growth of the last seconds. */
static double time_left_s(const struct turn *t)
{
    return trigger_holds(t, LADDER_BY_FORECAST) ? fmin(t->status.forecast_s, t->status.pace_s)
                                                : t->status.pace_s;
}

static void ladder_request(struct turn *t, enum ladder_trigger trigger)
{
    ladder_climb(t, LADDER_REQUESTED);
    t->l->requested_ns = t->in->now_ns;
    t->l->requested_left_s = time_left_s(t);
    t->l->done_ns = 0;
    remember_used(t);
    ladder_decide(t, LADDER_DO_REQUEST, trigger, "");
}

static bool has_pressure_lasted(const struct turn *t, enum ladder_ack ack)
{
    double least_s = ack == LADDER_ACK_DONE || t->l->rung != LADDER_REQUESTED
                         ? PRESSURE_MORE_S
                         : fmax(PRESSURE_MORE_S, t->status.need_s);
    return trigger_holds(t, LADDER_BY_PRESSURE) && t->status.pressed_s >= least_s;
}

/* For a job that cannot write a checkpoint: stops the job if a planned restart is due. If headroom
 * is low, stop_at_line stops the job at the SIGTERM line. */
static void without_checkpoint(struct turn *t, const char *end)
{
    if (trigger_holds(t, LADDER_BY_PLAN))
        ladder_stop(t, LADDER_BY_PLAN, end);
}

/* Sends SIGTERM, from any rung, if headroom is at most 1/PART of the reserve. Returns true if it
 * was sent. */
static bool stop_at_line(struct turn *t, unsigned part)
{
    if (!ladder_is_under(t->in, &t->status, part, LADDER_GAUGES))
        return false;
    return ladder_stop(t, LADDER_BY_LEVEL,
                       t->l->done_ns != 0 ? "; checkpoint written" : "; no time for a checkpoint");
}

static void before_request(struct turn *t)
{
    struct ladder *l = t->l;
    if (!l->rules.no_level && stop_at_line(t, TERM_PART))
        return;
    enum ladder_trigger trigger = strongest_trigger(t->status.holding);
    if (trigger == LADDER_BY_NOTHING) {
        if (l->rung == LADDER_WARNED)
            ladder_rest(t, false);
        return;
    }
    l->over_ns = 0;
    l->episode |= t->status.holding;
    if (l->rung == LADDER_CALM || trigger > l->trigger) {
        l->trigger = trigger;
        if (!l->rules.no_warn) {
            ladder_climb(t, LADDER_WARNED);
            ladder_decide(t, LADDER_DO_WARN, trigger, "");
            return;
        }
    }
    if (has_pressure_lasted(t, LADDER_NO_ACK) && ladder_stop(t, LADDER_BY_PRESSURE, ""))
        return;
    if (can_request_now(t))
        ladder_request(t, trigger);
    else if (!t->in->can_request || l->rules.no_checkpoint)
        without_checkpoint(t, "; a checkpoint cannot be requested");
}

/* Returns true if the level trigger is active and memory has grown since the checkpoint was
 * requested or written. */
static bool is_rising_at_level(struct turn *t)
{
    for (unsigned i = 0; i < LADDER_GAUGES; i++) {
        const struct ladder_lines *line = &t->status.lines[i];
        uint64_t used = t->in->gauge[i].used_bytes, mark = t->l->mark_bytes[i];
        if (line->known && !t->in->gauge[i].is_card &&
            t->in->gauge[i].room_bytes <= line->reserve && used > mark &&
            used - mark >= line->base / RISE_PART) {
            t->status.level_gauge = i;
            return trigger_holds(t, LADDER_BY_LEVEL);
        }
    }
    return false;
}

/* If the job's memory is steady within the reserve, lets the job continue, because such a job is
 * expected to survive. A checkpoint is requested again only when headroom has shrunk further. */
static void leave_alone(struct turn *t, const char *end)
{
    struct ladder *l = t->l;
    for (unsigned i = 0; i < LADDER_GAUGES; i++) {
        const struct ladder_lines *line = &t->status.lines[i];
        l->is_steady[i] = line->known && t->in->gauge[i].room_bytes <= line->reserve;
        l->steady_headroom[i] = t->in->gauge[i].room_bytes;
    }
    stand_down(t, end);
}

/* Returns true if the job should write a newer checkpoint: its memory is growing, the remaining
 * time has halved since the last request, and there is still enough time for another checkpoint. */
static bool wants_newer(const struct turn *t)
{
    double save_s = t->timing->saves > 0 ? t->timing->save_s : t->l->rules.checkpoint_s;
    double age_s = ladder_seconds(t->l->done_ns, t->in->now_ns);
    bool is_rising = trigger_holds(t, LADDER_BY_PACE) || trigger_holds(t, LADDER_BY_FORECAST);
    if (!is_rising || time_left_s(t) > t->l->requested_left_s / 2 || age_s < NEWER * save_s ||
        !can_request_now(t))
        return false;
    for (unsigned i = 0; i < LADDER_GAUGES; i++)
        if (t->status.lines[i].known && t->in->gauge[i].pace_bytes_per_s > 0 &&
            (double)t->status.lines[i].usable / t->in->gauge[i].pace_bytes_per_s < save_s)
            return false;
    return true;
}

static void after_done(struct turn *t)
{
    if (wants_newer(t)) {
        ladder_request(t, strongest_trigger(t->status.holding));
        return;
    }
    static const enum ladder_trigger at_once[] = {LADDER_BY_PLAN, LADDER_BY_FORECAST};
    for (size_t i = 0; i < sizeof at_once / sizeof *at_once; i++)
        if (trigger_holds(t, at_once[i])) {
            ladder_stop(t, at_once[i], "; checkpoint written");
            return;
        }
    if (is_rising_at_level(t))
        ladder_stop(t, LADDER_BY_LEVEL, "; checkpoint written");
    else if (t->status.holding == LADDER_BIT(LADDER_BY_LEVEL) &&
             ladder_seconds(t->l->done_ns, t->in->now_ns) >= LADDER_CALM_S)
        leave_alone(t, ": memory is steady, checkpoint written");
}

static void after_failed(struct turn *t)
{
    without_checkpoint(t, "; the checkpoint failed");
    if (t->ret->act == LADDER_DO_NOTHING && can_request_now(t) &&
        ladder_seconds(t->l->requested_ns, t->in->now_ns) >= LADDER_AGAIN_S)
        ladder_request(t, strongest_trigger(t->status.holding));
}

static void after_wait(struct turn *t)
{
    char end[64], waited[TEXT_TIME_MAX];
    snprintf(end, sizeof end, "; no checkpoint within %s",
             text_duration(waited, (uint64_t)(t->l->rules.wait_s * 1e9)));
    const unsigned waiting = LADDER_BIT(LADDER_BY_LEVEL) | LADDER_BIT(LADDER_BY_PACE);
    if (trigger_holds(t, LADDER_BY_FORECAST))
        ladder_stop(t, LADDER_BY_FORECAST, end);
    else if (is_rising_at_level(t))
        ladder_stop(t, LADDER_BY_LEVEL, end);
    else if ((t->status.holding & ~waiting) == 0)
        leave_alone(t, end);
    else
        without_checkpoint(t, end);
}

static void while_requested(struct turn *t)
{
    struct ladder *l = t->l;
    /* an answer that arrives at the same tick as the request belongs to an earlier request */
    enum ladder_ack ack = t->in->now_ns == l->requested_ns ? LADDER_NO_ACK : t->in->ack;
    bool is_late = ladder_seconds(l->requested_ns, t->in->now_ns) >= l->rules.wait_s;
    if (ack == LADDER_ACK_DONE && l->done_ns == 0) {
        l->done_ns = t->in->now_ns;
        remember_used(t);
    }
    bool is_saving = ack == LADDER_ACK_STARTED && !is_late;
    if (stop_at_line(t, is_saving ? SAVING_PART : TERM_PART))
        return;
    enum ladder_trigger trigger = strongest_trigger(t->status.holding);
    if (trigger == LADDER_BY_NOTHING) {
        ladder_rest(t, is_saving);
        return;
    }
    l->over_ns = 0;
    l->episode |= t->status.holding;
    if (trigger > l->trigger)
        l->trigger = trigger;
    if (has_pressure_lasted(t, ack) && ladder_stop(t, LADDER_BY_PRESSURE, ""))
        return;
    if (ack == LADDER_ACK_DONE)
        after_done(t);
    else if (ack == LADDER_ACK_FAILED)
        after_failed(t);
    else if (is_late)
        after_wait(t);
}

static void ladder_kill(struct turn *t, enum ladder_trigger trigger, const char *end)
{
    if (t->l->rung != LADDER_STOPPING)
        t->l->trigger = trigger;
    ladder_climb(t, LADDER_KILLED);
    ladder_decide(t, LADDER_DO_KILL, trigger, end);
    t->ret->trigger = t->l->trigger;
}

static void while_stopping(struct turn *t)
{
    char end[64], waited[TEXT_TIME_MAX];
    double s = ladder_seconds(t->l->begun_ns, t->in->now_ns);
    if (t->l->rules.no_kill || s < t->l->rules.grace_s)
        return;
    snprintf(end, sizeof end, "; SIGTERM was %s ago", text_duration(waited, (uint64_t)(s * 1e9)));
    ladder_kill(t, LADDER_BY_NOTHING, end);
}

void ladder_step(struct ladder *l, const struct ladder_input *in, const struct timing *timing,
                 struct ladder_decision *ret)
{
    struct turn t = {.l = l, .in = in, .timing = timing, .ret = ret};
    *ret = (struct ladder_decision){.act = LADDER_DO_NOTHING, .trigger = l->trigger};
    ladder_assess(l, in, timing, &t.status);
    if (in->is_killed && l->rung != LADDER_KILLED)
        ladder_climb(&t, LADDER_KILLED);
    if (l->rung == LADDER_KILLED)
        return;
    bool has_lines = !l->rules.no_level || l->rung >= LADDER_REQUESTED;
    if (has_lines && !l->rules.no_kill &&
        ladder_is_under(in, &t.status, KILL_PART, LADDER_HOST_GAUGES)) {
        ladder_kill(&t, LADDER_BY_LEVEL,
                    l->rung == LADDER_STOPPING ? "; the job has not exited after SIGTERM"
                                               : "; no time for SIGTERM");
        return;
    }
    if (l->rung == LADDER_STOPPING)
        while_stopping(&t);
    else if (l->rung == LADDER_REQUESTED)
        while_requested(&t);
    else
        before_request(&t);
}
