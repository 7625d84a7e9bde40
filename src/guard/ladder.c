/* The rungs: what to do next about what holds. */
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
    PRESSURE_MORE_S = 35 /* the 5 s until it counts among them */,
    VAIN_MOST = 2,
    VAIN_PACE = 6
};
/* Less than this until SIGTERM, and a request would only disturb. */
static const double MOMENT_S = 0.25;
/* So many times the time of a checkpoint must have been worked since, to be worth another. */
static const double NEWER = 1.5;

static const enum ladder_trigger STRONGEST_FIRST[] = {LADDER_BY_PLAN,     LADDER_BY_LEVEL,
                                                      LADDER_BY_FORECAST, LADDER_BY_GPU,
                                                      LADDER_BY_PRESSURE, LADDER_BY_PACE};

/* Everything about one call. */
struct turn {
    struct ladder *l;
    const struct ladder_input *in;
    const struct tempo *tempo;
    struct ladder_status status;
    struct ladder_decision *ret;
};

const char *ladder_trigger_name(enum ladder_trigger trigger)
{
    static const char *const names[LADDER_TRIGGERS] = {"nothing",  "forecast", "pace", "level",
                                                       "pressure", "gpu",      "plan"};
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

uint64_t ladder_term_room(uint64_t reserve_bytes)
{
    return reserve_bytes / TERM_PART;
}

uint64_t ladder_kill_room(uint64_t reserve_bytes)
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

double ladder_need_s(const struct ladder *l, const struct tempo *tempo)
{
    uint64_t step_ns = 0;
    step_times_slow_ns(&tempo->steps, &step_ns);
    double step_s = (double)step_ns / (double)NS_PER_S;
    return step_s + (tempo->saves > 0 ? tempo->save_s : l->rules.checkpoint_s) + l->rules.margin_s;
}

static unsigned trigger_rank(enum ladder_trigger trigger)
{
    const unsigned n = sizeof STRONGEST_FIRST / sizeof *STRONGEST_FIRST;
    for (unsigned i = 0; i < n; i++)
        if (STRONGEST_FIRST[i] == trigger)
            return n - i;
    return 0;
}

static enum ladder_trigger strongest_trigger(unsigned holding)
{
    for (unsigned i = 0; i < sizeof STRONGEST_FIRST / sizeof *STRONGEST_FIRST; i++)
        if (holding & LADDER_BIT(STRONGEST_FIRST[i]))
            return STRONGEST_FIRST[i];
    return LADDER_BY_NOTHING;
}

static bool trigger_holds(const struct turn *t, enum ladder_trigger trigger)
{
    return (t->status.holding & LADDER_BIT(trigger)) != 0;
}

static void ladder_decide(struct turn *t, enum ladder_act act, enum ladder_trigger trigger,
                          const char *end)
{
    t->ret->act = act;
    t->ret->trigger = trigger;
    ladder_why(t->l, t->in, t->tempo, &t->status, trigger, end, t->ret->why);
}

static void ladder_climb(struct turn *t, enum ladder_rung rung)
{
    t->l->rung = rung;
    t->l->begun_ns = t->in->now_ns;
}

/* SIGTERM, or the kill where that rung is left out; false where both are. */
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

/* Until when a trigger that came to nothing keeps still. The baseline that a forecast follows
 * does not come and go, so that one may hold again soon; peaks that come again and again are asked
 * about ever less often. */
static uint64_t quiet_ns(const struct ladder *l, enum ladder_trigger trigger)
{
    bool is_still = trigger == LADDER_BY_LEVEL && (l->is_still[0] || l->is_still[1]);
    if (l->asked_ns == 0 || is_still || trigger == LADDER_BY_PLAN)
        return LADDER_CALM_S * NS_PER_S;
    /* made in time, perhaps faster than was thought: the next one may come closer to the end */
    if (l->done_ns && trigger == LADDER_BY_PACE)
        return LADDER_CALM_S * NS_PER_S << (l->vain < VAIN_PACE ? l->vain : VAIN_PACE);
    uint64_t again = LADDER_AGAIN_S * NS_PER_S;
    if (trigger == LADDER_BY_FORECAST)
        return again;
    return again << (l->vain < VAIN_MOST ? l->vain : VAIN_MOST);
}

static void stand_down(struct turn *t, const char *end)
{
    struct ladder *l = t->l;
    for (unsigned i = 0; i < LADDER_TRIGGERS; i++)
        if (l->episode & LADDER_BIT(i))
            l->quiet_until_ns[i] = t->in->now_ns + quiet_ns(l, (enum ladder_trigger)i);
    if (l->asked_ns != 0)
        l->vain++;
    ladder_decide(t, LADDER_DO_STAND_DOWN, LADDER_BY_NOTHING, end);
    t->ret->trigger = l->trigger;
    ladder_climb(t, LADDER_CALM);
    l->trigger = LADDER_BY_NOTHING;
    l->asked_ns = l->done_ns = l->over_ns = 0;
    l->holding = l->episode = 0;
}

/* Nothing holds any more. Only time in which the job could have gone on growing counts: while it
 * writes a checkpoint it does not train. */
static void ladder_rest(struct turn *t, bool is_saving)
{
    struct ladder *l = t->l;
    if (l->over_ns == 0 || is_saving)
        l->over_ns = t->in->now_ns;
    if (ladder_seconds(l->over_ns, t->in->now_ns) < LADDER_CALM_S)
        return;
    stand_down(t, l->done_ns != 0 ? ": the reason is gone, the checkpoint was not needed"
                                  : ": the reason is gone");
}

static void remember_used(struct turn *t)
{
    for (unsigned i = 0; i < 2; i++)
        t->l->mark_bytes[i] = t->in->gauge[i].known ? t->in->gauge[i].used_bytes : UINT64_MAX;
}

static bool can_ask_now(const struct turn *t)
{
    if (!t->in->can_ask || t->l->rules.no_checkpoint)
        return false;
    for (unsigned i = 0; i < 2; i++) {
        const struct ladder_gauge *g = &t->in->gauge[i];
        uint64_t term = t->status.lines[i].base / TERM_PART;
        if (!t->status.lines[i].known || !(g->pace_bytes_per_s > 0))
            continue;
        if ((double)u64_minus(g->room_bytes, term) / g->pace_bytes_per_s < MOMENT_S)
            return false;
    }
    return true;
}

/* Until SIGTERM, by the trigger that knows it. */
static double time_left_s(const struct turn *t)
{
    return trigger_holds(t, LADDER_BY_FORECAST) ? fmin(t->status.forecast_s, t->status.pace_s)
                                                : t->status.pace_s;
}

static void ladder_ask(struct turn *t, enum ladder_trigger trigger)
{
    ladder_climb(t, LADDER_ASKED);
    t->l->asked_ns = t->in->now_ns;
    t->l->asked_left_s = time_left_s(t);
    t->l->done_ns = 0;
    remember_used(t);
    ladder_decide(t, LADDER_DO_ASK, trigger, "");
}

static bool has_pressure_lasted(const struct turn *t, enum ladder_ack ack)
{
    double least_s = ack == LADDER_ACK_DONE || t->l->rung != LADDER_ASKED
                         ? PRESSURE_MORE_S
                         : fmax(PRESSURE_MORE_S, t->status.need_s);
    return trigger_holds(t, LADDER_BY_PRESSURE) && t->status.pressed_s >= least_s;
}

/* Without a checkpoint to wait for: only what cannot wait. The level has its own line. */
static void without_checkpoint(struct turn *t, const char *end)
{
    if (trigger_holds(t, LADDER_BY_PLAN))
        ladder_stop(t, LADDER_BY_PLAN, end);
    else if (trigger_holds(t, LADDER_BY_GPU) && t->status.gpu_is_full)
        ladder_stop(t, LADDER_BY_GPU, end);
}

/* SIGTERM at the line that is in force, whatever the rung; true if it was. */
static bool stop_at_line(struct turn *t, unsigned part)
{
    if (!ladder_is_under(t->in, &t->status, part))
        return false;
    return ladder_stop(t, LADDER_BY_LEVEL,
                       t->l->done_ns != 0 ? "; the checkpoint is there"
                                          : "; no time for a checkpoint");
}

static void before_asking(struct turn *t)
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
    if (l->rung == LADDER_CALM || trigger_rank(trigger) > trigger_rank(l->trigger)) {
        l->trigger = trigger;
        if (!l->rules.no_warn) {
            ladder_climb(t, LADDER_WARNED);
            ladder_decide(t, LADDER_DO_WARN, trigger, "");
            return;
        }
    }
    if (has_pressure_lasted(t, LADDER_NO_ACK) && ladder_stop(t, LADDER_BY_PRESSURE, ""))
        return;
    if (can_ask_now(t))
        ladder_ask(t, trigger);
    else if (!t->in->can_ask || l->rules.no_checkpoint)
        without_checkpoint(t, "; nobody is asked for a checkpoint");
}

/* Has memory gone on rising at the level, since it was asked or the checkpoint was there? */
static bool is_rising_at_level(const struct turn *t)
{
    for (unsigned i = 0; i < 2; i++) {
        const struct ladder_lines *line = &t->status.lines[i];
        uint64_t used = t->in->gauge[i].used_bytes, mark = t->l->mark_bytes[i];
        if (line->known && t->in->gauge[i].room_bytes <= line->reserve && used > mark &&
            used - mark >= line->base / RISE_PART)
            return trigger_holds(t, LADDER_BY_LEVEL);
    }
    return false;
}

/* A job that stands still within the reserve would live on: it is asked again only when it comes
 * nearer to the limit. */
static void leave_alone(struct turn *t, const char *end)
{
    struct ladder *l = t->l;
    for (unsigned i = 0; i < 2; i++) {
        const struct ladder_lines *line = &t->status.lines[i];
        l->is_still[i] = line->known && t->in->gauge[i].room_bytes <= line->reserve;
        l->still_room[i] = t->in->gauge[i].room_bytes;
    }
    stand_down(t, end);
}

/* The checkpoint is there, but the job went on: is a newer one worth its time, and is there time
 * for it? */
static bool wants_newer(const struct turn *t)
{
    double save_s = t->tempo->saves > 0 ? t->tempo->save_s : t->l->rules.checkpoint_s;
    double age_s = ladder_seconds(t->l->done_ns, t->in->now_ns);
    bool is_rising = trigger_holds(t, LADDER_BY_PACE) || trigger_holds(t, LADDER_BY_FORECAST);
    if (!is_rising || time_left_s(t) > t->l->asked_left_s / 2 || age_s < NEWER * save_s ||
        !can_ask_now(t))
        return false;
    for (unsigned i = 0; i < 2; i++)
        if (t->status.lines[i].known && t->in->gauge[i].pace_bytes_per_s > 0 &&
            (double)t->status.lines[i].usable / t->in->gauge[i].pace_bytes_per_s < save_s)
            return false;
    return true;
}

static void after_done(struct turn *t)
{
    if (wants_newer(t)) {
        ladder_ask(t, strongest_trigger(t->status.holding));
        return;
    }
    static const enum ladder_trigger at_once[] = {LADDER_BY_PLAN, LADDER_BY_FORECAST,
                                                  LADDER_BY_GPU};
    for (size_t i = 0; i < sizeof at_once / sizeof *at_once; i++)
        if (trigger_holds(t, at_once[i])) {
            ladder_stop(t, at_once[i], "; the checkpoint is there");
            return;
        }
    if (is_rising_at_level(t))
        ladder_stop(t, LADDER_BY_LEVEL, "; the checkpoint is there");
    else if (t->status.holding == LADDER_BIT(LADDER_BY_LEVEL) &&
             ladder_seconds(t->l->done_ns, t->in->now_ns) >= LADDER_CALM_S)
        leave_alone(t, ": memory stands still, and the checkpoint is there");
}

static void after_failed(struct turn *t)
{
    without_checkpoint(t, "; the checkpoint failed");
    if (t->ret->act == LADDER_DO_NOTHING && can_ask_now(t) &&
        ladder_seconds(t->l->asked_ns, t->in->now_ns) >= LADDER_AGAIN_S)
        ladder_ask(t, strongest_trigger(t->status.holding));
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

static void while_asked(struct turn *t)
{
    struct ladder *l = t->l;
    /* what is known of an earlier request is no answer to this one */
    enum ladder_ack ack = t->in->now_ns == l->asked_ns ? LADDER_NO_ACK : t->in->ack;
    bool is_late = ladder_seconds(l->asked_ns, t->in->now_ns) >= l->rules.wait_s;
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
    if (trigger_rank(trigger) > trigger_rank(l->trigger))
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

void ladder_step(struct ladder *l, const struct ladder_input *in, const struct tempo *tempo,
                 struct ladder_decision *ret)
{
    struct turn t = {.l = l, .in = in, .tempo = tempo, .ret = ret};
    *ret = (struct ladder_decision){.act = LADDER_DO_NOTHING, .trigger = l->trigger};
    ladder_assess(l, in, tempo, &t.status);
    if (in->is_killed && l->rung != LADDER_KILLED)
        ladder_climb(&t, LADDER_KILLED);
    if (l->rung == LADDER_KILLED)
        return;
    bool has_lines = !l->rules.no_level || l->rung >= LADDER_ASKED;
    if (has_lines && !l->rules.no_kill && ladder_is_under(in, &t.status, KILL_PART)) {
        ladder_kill(&t, LADDER_BY_LEVEL,
                    l->rung == LADDER_STOPPING ? "; it has not ended by SIGTERM yet"
                                               : "; no time for SIGTERM");
        return;
    }
    if (l->rung == LADDER_STOPPING)
        while_stopping(&t);
    else if (l->rung == LADDER_ASKED)
        while_asked(&t);
    else
        before_asking(&t);
}
