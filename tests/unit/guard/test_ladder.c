/* Tests the guard's decisions on single readings and in simulated jobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "guard/ladder.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

enum { ACTS = LADDER_DO_STAND_DOWN + 1, MOST_ACTS = 5 };

/* A simulated job and the actions of its guard. */
struct world {
    struct ladder ladder;
    struct timing timing;
    struct ladder_input in;
    double t;       /* Current simulated time in seconds. */
    double start_s; /* Seconds from the request until the job begins to write its checkpoint. */
    double save_s;  /* Duration of writing the checkpoint in seconds; negative if it never ends. */
    bool fails;     /* Whether the job reports that writing the checkpoint failed. */
    double asked_t; /* Time of the request; negative if there was none. */
    int count[ACTS];
    /* Time of the first action of each type; negative if it never happened. */
    double first[ACTS];
    uint64_t first_room[ACTS]; /* Headroom at the first action of each type. */
    struct ladder_decision last;
    bool is_done; /* Whether the job acknowledged a checkpoint. */
    uint64_t done_room;
};

static void world_init(struct world *w, const struct ladder_rules *rules, uint64_t limit)
{
    const struct ladder_rules none = {0};
    memset(w, 0, sizeof *w);
    assert_int_equal(ladder_init(&w->ladder, rules != NULL ? rules : &none), 0);
    w->t = 1000;
    w->start_s = 0.1;
    w->save_s = 2;
    w->asked_t = -1;
    for (int i = 0; i < ACTS; i++)
        w->first[i] = -1;
    w->in.gauge[0] = (struct ladder_gauge){.known = true, .limit_bytes = limit};
    w->in.can_request = true;
}

static void answer(struct world *w)
{
    if (w->asked_t < 0 || w->t < w->asked_t + w->start_s)
        return;
    w->in.ack = LADDER_ACK_STARTED;
    if (w->save_s < 0 || w->t < w->asked_t + w->start_s + w->save_s)
        return;
    w->in.ack = w->fails ? LADDER_ACK_FAILED : LADDER_ACK_DONE;
    if (!w->fails && !w->is_done) {
        w->is_done = true;
        w->done_room = w->in.gauge[0].room_bytes;
    }
}

static void take(struct world *w, enum ladder_act act)
{
    if (w->count[act]++ == 0) {
        w->first[act] = w->t;
        w->first_room[act] = w->in.gauge[0].room_bytes;
    }
    if (act == LADDER_DO_REQUEST) {
        w->asked_t = w->t;
        w->in.ack = LADDER_NO_ACK;
    }
}

/* Calls the ladder as the supervisor does, until it returns no action. Returns the last action. */
static enum ladder_act step_ladder(struct world *w)
{
    enum ladder_act last = LADDER_DO_NOTHING;
    struct ladder_decision d;
    w->in.now_ns = (uint64_t)(w->t * 1e9);
    for (int n = 0;; n++) {
        ladder_step(&w->ladder, &w->in, &w->timing, &d);
        if (d.act == LADDER_DO_NOTHING)
            return last;
        assert_in_range(n, 0, MOST_ACTS - 1);
        assert_in_range(strlen(d.why), 5, LADDER_WHY_MAX - 1);
        take(w, d.act);
        w->last = d;
        last = d.act;
    }
}

static void set_used(struct world *w, uint64_t used, double pace)
{
    struct ladder_gauge *g = &w->in.gauge[0];
    g->used_bytes = used;
    g->room_bytes = used < g->limit_bytes ? g->limit_bytes - used : 0;
    g->pace_bytes_per_s = pace > 0 ? pace : 0;
}

static void set_room(struct world *w, uint64_t room)
{
    set_used(w, w->in.gauge[0].limit_bytes - room, 0);
}

static struct ladder_gauge *gpu_of(struct world *w, unsigned gpu)
{
    return &w->in.gauge[LADDER_HOST_GAUGES + gpu];
}

/* Adds the gauge of a GPU with a limit set by the user. */
static void set_gpu(struct world *w, unsigned gpu, uint64_t limit, uint64_t used)
{
    struct ladder_gauge *g = gpu_of(w, gpu);
    g->known = true;
    g->is_card = false;
    g->limit_bytes = limit;
    g->used_bytes = used;
    g->room_bytes = limit > used ? limit - used : 0;
}

static void set_card(struct world *w, unsigned gpu, uint64_t limit, uint64_t used)
{
    set_gpu(w, gpu, limit, used);
    gpu_of(w, gpu)->is_card = true;
}

static enum ladder_act look_at(struct world *w, double after_s, uint64_t room)
{
    w->t += after_s;
    set_room(w, room);
    answer(w);
    return step_ladder(w);
}

/* Returns the memory use in bytes, S seconds after the start. */
typedef double shape_fn(double s, const void *user);

/* Calls the ladder once per second of simulated time, and every 20 ms within the reserve, as the
 * reflex does. Returns at SIGTERM or SIGKILL. */
static void simulate(struct world *w, double seconds, shape_fn *shape, const void *user)
{
    const double begin = w->t, fine = 0.02;
    uint64_t alarm = ladder_default_reserve(w->in.gauge[0].limit_bytes);
    for (int i = 0; i * fine < seconds; i++) {
        double s = (double)i * fine, used = shape(s, user);
        w->t = begin + s;
        set_used(w, (uint64_t)used, (used - shape(fmax(0, s - 0.5), user)) / 0.5);
        answer(w);
        if (i % 50 == 0 || w->in.gauge[0].room_bytes <= alarm)
            step_ladder(w);
        if (w->ladder.rung >= LADDER_STOPPING)
            return;
    }
}

static void assert_never_stopped(const struct world *w)
{
    assert_int_equal(w->count[LADDER_DO_TERM], 0);
    assert_int_equal(w->count[LADDER_DO_KILL], 0);
}

static void assert_calm(const struct world *w)
{
    for (int i = LADDER_DO_WARN; i < ACTS; i++)
        assert_int_equal(w->count[i], 0);
}

/* --- guard rules and thresholds --- */

static void default_reserve_is_5_percent_of_the_limit_within_bounds(void **state)
{
    (void)state;
    assert_int_equal(ladder_default_reserve(24 * GIB), 24 * GIB / 20);
    assert_int_equal(ladder_default_reserve(1000 * GIB), 4 * GIB);
    assert_int_equal(ladder_default_reserve(GIB), 64 * MIB);
    assert_int_equal(ladder_default_reserve(100 * MIB), 20 * MIB);
    assert_int_equal(ladder_default_reserve(0), 0);
    assert_int_equal(ladder_term_headroom(GIB), 512 * MIB);
    assert_int_equal(ladder_kill_headroom(GIB), 128 * MIB);
}

static void invalid_guard_rules_are_rejected(void **state)
{
    (void)state;
    struct ladder l;
    const struct ladder_rules bad[] = {{.margin_s = -1},     {.checkpoint_s = (double)NAN},
                                       {.wait_s = HUGE_VAL}, {.grace_s = -0.5},
                                       {.pressure = 1.5},    {.pressure = -0.1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ladder_init(&l, &bad[i]), -EINVAL);
}

static void time_needed_to_stop_is_step_plus_checkpoint_plus_margin(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, GIB);
    assert_true(ladder_need_s(&w.ladder, &w.timing) == 12);
    for (int i = 0; i < 5; i++)
        timing_step(&w.timing, (uint64_t)(i + 1) * 3 * NS_PER_S, i);
    assert_true(ladder_need_s(&w.ladder, &w.timing) == 15);
    timing_save_begin(&w.timing, 100 * NS_PER_S, 0);
    timing_save_end(&w.timing, 104 * NS_PER_S);
    assert_true(ladder_need_s(&w.ladder, &w.timing) == 9);
}

static void every_guard_trigger_and_action_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(ladder_trigger_name(LADDER_BY_PLAN), "plan");
    assert_string_equal(ladder_act_name(LADDER_DO_STAND_DOWN), "stand down");
    assert_string_equal(ladder_trigger_name(LADDER_TRIGGERS), "unknown");
}

/* --- single readings: each trigger and action of the guard --- */

struct single {
    const char *name;
    uint64_t room; /* Headroom of the host, whose limit is 2 GiB and whose reserve is 102.4 MiB. */
    struct ladder_rules rules;
    /* gpu_near is true if the headroom below the user's limit for GPU memory is less than the
     * reserve. */
    bool cannot_ask, plan, gpu_near;
    /* Seconds until the limit, 0 if unknown; gpu_forecast is for a GPU without a limit set by the
     * user. */
    double forecast, gpu_forecast;
    double pace;
    /* expected: */
    enum ladder_act act; /* Last action that the guard takes for this reading. */
    enum ladder_rung rung;
    enum ladder_trigger trigger;
    int acts;
};

#define CALM LADDER_DO_NOTHING, LADDER_CALM, LADDER_BY_NOTHING, 0
#define ASKED(by) LADDER_DO_REQUEST, LADDER_REQUESTED, by, 2
#define WARNED(by) LADDER_DO_WARN, LADDER_WARNED, by, 1

static const struct single singles[] = {
    {"far", GIB, {0}, .act = LADDER_DO_NOTHING},
    {"just above the reserve", 103 * MIB, {0}, .act = LADDER_DO_NOTHING},
    {"level", 102 * MIB, {0}, 0, 0, 0, 0, 0, 0, ASKED(LADDER_BY_LEVEL)},
    {"level, no rank", 102 * MIB, {0}, 1, 0, 0, 0, 0, 0, WARNED(LADDER_BY_LEVEL)},
    {"level, no checkpoint",
     60 * MIB,
     {.no_checkpoint = 1},
     0,
     0,
     0,
     0,
     0,
     0,
     WARNED(LADDER_BY_LEVEL)},
    {"level, too fast to ask", 60 * MIB, {0}, 0, 0, 0, 0, 0, 1e9, WARNED(LADDER_BY_LEVEL)},
    {"level left out", 20 * MIB, {.no_level = 1}, 0, 0, 0, 0, 0, 0, CALM},
    {"level, no warning",
     102 * MIB,
     {.no_warn = 1},
     0,
     0,
     0,
     0,
     0,
     0,
     LADDER_DO_REQUEST,
     LADDER_REQUESTED,
     LADDER_BY_LEVEL,
     1},
    {"half", 51 * MIB, {0}, 0, 0, 0, 0, 0, 0, LADDER_DO_TERM, LADDER_STOPPING, LADDER_BY_LEVEL, 1},
    {"half, no term",
     51 * MIB,
     {.no_term = 1},
     0,
     0,
     0,
     0,
     0,
     0,
     LADDER_DO_KILL,
     LADDER_KILLED,
     LADDER_BY_LEVEL,
     1},
    {"half, neither",
     51 * MIB,
     {.no_term = 1, .no_kill = 1},
     1,
     0,
     0,
     0,
     0,
     0,
     WARNED(LADDER_BY_LEVEL)},
    {"eighth", 12 * MIB, {0}, 0, 0, 0, 0, 0, 0, LADDER_DO_KILL, LADDER_KILLED, LADDER_BY_LEVEL, 1},
    {"eighth, no kill",
     12 * MIB,
     {.no_kill = 1},
     0,
     0,
     0,
     0,
     0,
     0,
     LADDER_DO_TERM,
     LADDER_STOPPING,
     LADDER_BY_LEVEL,
     1},
    {"forecast far", GIB, {0}, 0, 0, 0, 13, 0, 0, CALM},
    {"forecast", GIB, {0}, 0, 0, 0, 11, 0, 0, ASKED(LADDER_BY_FORECAST)},
    {"forecast counts to SIGTERM", 150 * MIB, {0}, 0, 0, 0, 17, 0, 0, ASKED(LADDER_BY_FORECAST)},
    {"forecast, no rank", GIB, {0}, 1, 0, 0, 3, 0, 0, WARNED(LADDER_BY_FORECAST)},
    {"forecast left out", GIB, {.no_forecast = 1}, 0, 0, 0, 3, 0, 0, CALM},
    {"gpu near its limit", GIB, {0}, 0, 0, 1, 0, 0, 0, ASKED(LADDER_BY_LEVEL)},
    {"gpu near its limit, no rank", GIB, {0}, 1, 0, 1, 0, 0, 0, WARNED(LADDER_BY_LEVEL)},
    {"gpu near its limit, left out", GIB, {.no_level = 1}, 0, 0, 1, 0, 0, 0, CALM},
    {"gpu full later", GIB, {0}, 0, 0, 0, 0, 14, 0, CALM},
    {"gpu soon", GIB, {0}, 0, 0, 0, 0, 5, 0, ASKED(LADDER_BY_FORECAST)},
    {"gpu soon, no rank", GIB, {0}, 1, 0, 0, 0, 5, 0, WARNED(LADDER_BY_FORECAST)},
    {"gpu soon, forecast left out", GIB, {.no_forecast = 1}, 0, 0, 0, 0, 5, 0, CALM},
    {"plan", GIB, {0}, 0, 1, 0, 0, 0, 0, ASKED(LADDER_BY_PLAN)},
    {"plan, no rank",
     GIB,
     {0},
     1,
     1,
     0,
     0,
     0,
     0,
     LADDER_DO_TERM,
     LADDER_STOPPING,
     LADDER_BY_PLAN,
     2},
    {"plan, no warning, no term",
     GIB,
     {.no_warn = 1, .no_term = 1},
     1,
     1,
     0,
     0,
     0,
     0,
     LADDER_DO_KILL,
     LADDER_KILLED,
     LADDER_BY_PLAN,
     1},
};

static void each_situation_causes_the_expected_guard_action(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof singles / sizeof *singles; i++) {
        const struct single *s = &singles[i];
        struct world w;
        world_init(&w, &s->rules, 2 * GIB);
        w.in.can_request = !s->cannot_ask;
        w.in.plan_due = s->plan;
        w.in.forecast_known = s->forecast > 0;
        w.in.forecast_s = s->forecast;
        set_gpu(&w, 1, 40 * GIB, s->gpu_near ? 38 * GIB + GIB / 2 : 30 * GIB);
        gpu_of(&w, 0)->forecast_known = s->gpu_forecast > 0;
        gpu_of(&w, 0)->forecast_s = s->gpu_forecast;
        set_card(&w, 0, 40 * GIB, 30 * GIB);
        set_used(&w, 2 * GIB - s->room, s->pace);
        enum ladder_act act = step_ladder(&w);
        int acts = 0;
        for (int k = 0; k < ACTS; k++)
            acts += w.count[k];
        if (act != s->act || w.ladder.rung != s->rung || acts != s->acts ||
            w.ladder.trigger != s->trigger)
            fail_msg("%s: %s, rung %d by %s, %d acts", s->name, ladder_act_name(act),
                     (int)w.ladder.rung, ladder_trigger_name(w.ladder.trigger), acts);
    }
}

static void guard_reason_contains_headroom_and_needed_time(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 24 * GIB);
    set_used(&w, 23 * GIB, 165.0 * MIB);
    step_ladder(&w);
    assert_string_equal(w.last.why, "1.00 GiB left of 24.0 GiB, growing by 165 MiB/s; the reserve "
                                    "is 1.20 GiB");
    world_init(&w, NULL, 24 * GIB);
    set_used(&w, 20 * GIB, 0);
    w.in.forecast_known = true;
    w.in.forecast_s = 8;
    step_ladder(&w);
    assert_string_equal(w.last.why, "4.00 GiB left of 24.0 GiB: SIGTERM line reached in 7 s; a "
                                    "checkpoint may take 10 s, plus a margin of 2 s");
    world_init(&w, NULL, 24 * GIB);
    set_used(&w, 20 * GIB, 0);
    w.in.plan_due = true;
    w.in.can_request = false;
    step_ladder(&w);
    assert_string_equal(w.last.why, "a planned restart is due; a checkpoint cannot be requested");
}

static void guard_without_memory_limit_acts_only_if_a_planned_restart_is_due(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 0);
    w.in.gauge[0].known = false;
    step_ladder(&w);
    assert_calm(&w);
    w.in.plan_due = true;
    assert_int_equal(step_ladder(&w), LADDER_DO_REQUEST);
}

static void each_host_memory_gauge_alone_can_trigger_the_guard(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 64 * GIB);
    set_room(&w, 30 * GIB);
    w.in.gauge[1] = (struct ladder_gauge){.known = true,
                                          .limit_bytes = 2 * GIB,
                                          .used_bytes = 2 * GIB - 90 * MIB,
                                          .room_bytes = 90 * MIB};
    assert_int_equal(step_ladder(&w), LADDER_DO_REQUEST);
    assert_non_null(strstr(w.last.why, "90.0 MiB left of 2.00 GiB"));
    w.in.gauge[1].room_bytes = 40 * MIB;
    w.t += 0.1;
    assert_int_equal(step_ladder(&w), LADDER_DO_TERM);
    assert_non_null(strstr(w.last.why, "40.0 MiB left of 2.00 GiB"));
}

/* --- behaviour after a checkpoint request --- */

static void job_that_grows_within_reserve_is_stopped_after_checkpoint(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    assert_int_equal(look_at(&w, 1, 100 * MIB), LADDER_DO_REQUEST);
    assert_int_equal(look_at(&w, 1, 90 * MIB), LADDER_DO_NOTHING);
    /* The job has just written its checkpoint. */
    assert_int_equal(look_at(&w, 1.5, 80 * MIB), LADDER_DO_NOTHING);
    assert_int_equal(look_at(&w, 1, 70 * MIB), LADDER_DO_TERM);
    assert_non_null(strstr(w.last.why, "checkpoint written"));
    assert_int_equal(look_at(&w, 9, 70 * MIB), LADDER_DO_NOTHING);
    assert_int_equal(look_at(&w, 1.5, 70 * MIB), LADDER_DO_KILL);
    assert_non_null(strstr(w.last.why, "SIGTERM was 10.5 s ago"));
    assert_int_equal(look_at(&w, 100, 0), LADDER_DO_NOTHING);
}

static void job_with_steady_memory_within_the_reserve_is_not_stopped(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    for (int i = 0; i < 3600; i++)
        look_at(&w, 1, 80 * MIB + (uint64_t)(i % 3) * MIB);
    assert_never_stopped(&w);
    assert_int_equal(w.count[LADDER_DO_REQUEST], 1);
    assert_int_equal(w.count[LADDER_DO_STAND_DOWN], 1);
    /* Near the limit, the next request is made only when the headroom has shrunk. */
    assert_int_equal(look_at(&w, 1, 70 * MIB), LADDER_DO_REQUEST);
    assert_int_equal(look_at(&w, 0.05, 51 * MIB), LADDER_DO_TERM);
}

static void slow_growth_within_reserve_causes_few_checkpoint_requests(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    for (int i = 0; w.ladder.rung < LADDER_STOPPING && i < 7200; i++)
        look_at(&w, 1, 110 * MIB - (uint64_t)i * MIB / 60);
    assert_int_equal(w.count[LADDER_DO_TERM], 1);
    assert_in_range(w.first_room[LADDER_DO_TERM], 50 * MIB, 52 * MIB);
    assert_in_range(w.count[LADDER_DO_REQUEST], 4, 9);
}

static void sigterm_threshold_is_lower_while_a_checkpoint_is_written(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    w.save_s = 60;
    assert_int_equal(look_at(&w, 1, 100 * MIB), LADDER_DO_REQUEST);
    assert_int_equal(look_at(&w, 1, 30 * MIB), LADDER_DO_NOTHING);
    assert_int_equal(look_at(&w, 1, 25 * MIB), LADDER_DO_TERM);
}

static void persistent_forecast_stops_the_job_after_the_checkpoint(void **state)
{
    (void)state;
    struct world w;
    for (int is_over = 0; is_over < 2; is_over++) {
        world_init(&w, NULL, 2 * GIB);
        w.in.forecast_known = true;
        w.in.forecast_s = 5;
        assert_int_equal(look_at(&w, 1, GIB), LADDER_DO_REQUEST);
        /* A step, a checkpoint and the margin take 12 s. The forecast trigger ends when the
         * forecast is longer than 1.5 times this time, so a forecast of 15 s does not end the
         * trigger. */
        w.in.forecast_s = is_over ? 60 : 15;
        look_at(&w, 3, GIB);
        for (int i = 0; i < 15; i++)
            look_at(&w, 1, GIB);
        assert_int_equal(w.count[LADDER_DO_TERM], !is_over);
        assert_int_equal(w.count[LADDER_DO_STAND_DOWN], is_over);
    }
    assert_non_null(strstr(w.last.why, "the checkpoint was not needed"));
}

static void failed_checkpoint_is_requested_again_after_60_s(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    w.fails = true;
    w.in.forecast_known = true;
    w.in.forecast_s = 5;
    for (int i = 0; i < 150; i++)
        look_at(&w, 1, GIB);
    assert_int_equal(w.count[LADDER_DO_REQUEST], 3);
    assert_never_stopped(&w);
    assert_int_equal(look_at(&w, 1, 50 * MIB), LADDER_DO_TERM);
}

static void planned_restart_follows_a_written_or_failed_checkpoint(void **state)
{
    (void)state;
    struct world w;
    for (int fails = 0; fails < 2; fails++) {
        world_init(&w, NULL, 2 * GIB);
        w.fails = fails;
        w.in.plan_due = true;
        assert_int_equal(look_at(&w, 1, GIB), LADDER_DO_REQUEST);
        assert_int_equal(look_at(&w, 1, GIB), LADDER_DO_NOTHING);
        assert_int_equal(look_at(&w, 2, GIB), LADDER_DO_TERM);
        assert_non_null(strstr(w.last.why, fails ? "the checkpoint failed" : "checkpoint written"));
    }
}

static void answer_to_an_old_checkpoint_request_is_ignored(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    struct ladder_decision d;
    w.in.plan_due = true;
    w.in.ack = LADDER_ACK_DONE;
    w.in.now_ns = NS_PER_S;
    set_room(&w, GIB);
    for (int i = 0; i < 5; i++)
        ladder_step(&w.ladder, &w.in, &w.timing, &d);
    assert_int_equal(w.ladder.rung, LADDER_REQUESTED);
}

static void checkpoint_timeout_stops_the_job_only_if_forecast_persists(void **state)
{
    (void)state;
    const struct ladder_rules rules = {.wait_s = 30};
    for (int by_forecast = 0; by_forecast < 2; by_forecast++) {
        struct world w;
        world_init(&w, &rules, 2 * GIB);
        w.save_s = -1;
        w.in.forecast_known = by_forecast;
        w.in.forecast_s = 5;
        for (int i = 0; i < 40; i++)
            look_at(&w, 1, by_forecast ? GIB : 90 * MIB);
        assert_int_equal(w.count[LADDER_DO_REQUEST], 1);
        assert_int_equal(w.count[LADDER_DO_TERM], by_forecast);
        assert_int_equal(w.count[LADDER_DO_STAND_DOWN], !by_forecast);
        assert_non_null(strstr(w.last.why, "no checkpoint within 30"));
    }
}

/* ---- GPUs ---- */

/* A GPU with 80 GiB, for which the default reserve is 4 GiB. */
enum { CARD_GIB = 80 };

static void persistent_gpu_forecast_stops_the_job_after_the_checkpoint(void **state)
{
    (void)state;
    struct world w;
    for (int is_over = 0; is_over < 2; is_over++) {
        world_init(&w, NULL, 2 * GIB);
        set_card(&w, 3, CARD_GIB * GIB, 60 * GIB);
        gpu_of(&w, 3)->forecast_known = true;
        gpu_of(&w, 3)->forecast_s = 10;
        assert_int_equal(look_at(&w, 1, GIB), LADDER_DO_REQUEST);
        assert_true(w.last.has_gpu && w.last.gpu == 3);
        assert_string_equal(w.last.why, "gpu 3: 20.0 GiB left of 80.0 GiB: full in 9 s; a "
                                        "checkpoint may take 10 s, plus a margin of 2 s");
        gpu_of(&w, 3)->forecast_known = !is_over;
        for (int i = 0; i < 16; i++)
            look_at(&w, 1, GIB);
        assert_int_equal(w.count[LADDER_DO_TERM], !is_over);
        assert_int_equal(w.count[LADDER_DO_STAND_DOWN], is_over);
    }
}

/* A job may fill the memory of its GPU, because a failed GPU allocation does not kill the job. */
static void job_on_a_full_gpu_is_not_stopped(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    for (int i = 0; i < 3600; i++) {
        uint64_t room = i < 60 ? 3 * GIB : (uint64_t)(i % 3) * 64 * MIB;
        set_card(&w, 0, CARD_GIB * GIB, CARD_GIB * GIB - room);
        look_at(&w, 1, GIB);
    }
    assert_never_stopped(&w);
    assert_in_range(w.count[LADDER_DO_REQUEST], 1, 2);
}

static void growth_towards_a_full_gpu_does_not_stop_the_job(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    for (int i = 0; i < 160; i++) {
        set_card(&w, 0, CARD_GIB * GIB, 40 * GIB + (uint64_t)i * GIB / 4);
        look_at(&w, 1, GIB);
    }
    assert_in_range(w.count[LADDER_DO_REQUEST], 1, 12);
    assert_true(w.last.has_gpu);
    assert_never_stopped(&w);
}

static void gpu_limit_triggers_sigterm_then_sigkill_after_grace_time(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    w.in.can_request = false;
    set_gpu(&w, 1, 40 * GIB, 38 * GIB + 100 * MIB);
    assert_int_equal(look_at(&w, 1, GIB), LADDER_DO_WARN);
    assert_string_equal(w.last.why, "gpu 1: 1.90 GiB left of 40.0 GiB; the reserve is 2.00 GiB");
    set_gpu(&w, 1, 40 * GIB, 40 * GIB);
    assert_int_equal(look_at(&w, 1, GIB), LADDER_DO_TERM);
    assert_string_equal(w.last.why, "gpu 1: 0 B left of 40.0 GiB; the reserve is 2.00 GiB; no time "
                                    "for a checkpoint");
    assert_int_equal(look_at(&w, 9, GIB), LADDER_DO_NOTHING);
    /* SIGKILL follows after the grace period, as for a limit of host memory. */
    assert_int_equal(look_at(&w, 2, GIB), LADDER_DO_KILL);
}

static void growth_near_a_gpu_limit_stops_the_job_after_its_checkpoint(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    for (int i = 0; i < 8; i++) {
        set_gpu(&w, 0, 40 * GIB, 38 * GIB + 64 * MIB + (uint64_t)i * 64 * MIB);
        look_at(&w, 1, GIB);
    }
    assert_int_equal(w.count[LADDER_DO_REQUEST], 1);
    assert_int_equal(w.count[LADDER_DO_TERM], 1);
    assert_non_null(strstr(w.last.why, "checkpoint written"));
    assert_true(w.last.has_gpu);
}

/* The user's reserve, and the memory that a checkpoint needs, refer to host memory. */
static void host_memory_reserve_does_not_apply_to_gpus(void **state)
{
    (void)state;
    const struct ladder_rules rules = {.reserve_bytes = GIB / 2};
    struct world w;
    world_init(&w, &rules, 2 * GIB);
    timing_save_begin(&w.timing, NS_PER_S, 0);
    timing_memory(&w.timing, 8 * GIB);
    timing_save_end(&w.timing, 2 * NS_PER_S);
    set_gpu(&w, 0, 40 * GIB, 37 * GIB);
    look_at(&w, 1, 2 * GIB);
    assert_calm(&w);
}

static void guard_keeps_its_trigger_if_growth_pauses_during_checkpoint(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    w.save_s = 60;
    w.in.forecast_known = true;
    w.in.forecast_s = 5;
    assert_int_equal(look_at(&w, 1, GIB), LADDER_DO_REQUEST);
    w.in.forecast_known = false;
    for (int i = 0; i < 65; i++)
        assert_int_equal(look_at(&w, 1, GIB), LADDER_DO_NOTHING);
    w.in.forecast_known = true;
    assert_int_equal(look_at(&w, 1, GIB), LADDER_DO_TERM);
}

static void lasting_memory_pressure_stops_a_job_only_at_low_headroom(void **state)
{
    (void)state;
    for (int is_short = 0; is_short < 2; is_short++) {
        struct world w;
        world_init(&w, NULL, 2 * GIB);
        w.in.pressure_known = true;
        for (int i = 0; i <= 120; i++) { /* High pressure never lasts for five seconds. */
            w.in.pressure = i % 5 == 0 ? 0.1 : 0.9;
            look_at(&w, 1, is_short ? 300 * MIB : 600 * MIB);
        }
        assert_calm(&w);
        w.in.pressure = 0.4;
        double begin = w.t;
        for (int i = 0; i < 60; i++)
            look_at(&w, 1, is_short ? 300 * MIB : 600 * MIB);
        assert_int_equal(w.count[LADDER_DO_REQUEST], is_short);
        assert_int_equal(w.count[LADDER_DO_TERM], is_short);
        if (is_short)
            assert_in_range((int)(w.first[LADDER_DO_TERM] - begin), 34, 37);
    }
}

static void memory_pressure_that_ends_after_30_s_does_not_stop_the_job(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    w.in.pressure_known = true;
    for (int i = 0; i < 60; i++) {
        w.in.pressure = i < 30 ? 0.9 : 0;
        look_at(&w, 1, 300 * MIB);
    }
    assert_int_equal(w.count[LADDER_DO_REQUEST], 1);
    assert_int_equal(w.count[LADDER_DO_STAND_DOWN], 1);
    assert_never_stopped(&w);
}

/* --- hysteresis --- */

/* A gauge that is being replaced cannot be read for a short time. */
static void missing_reading_during_a_checkpoint_is_not_taken_as_growth(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    w.save_s = 0.1;
    look_at(&w, 1, 102 * MIB);
    assert_int_equal(w.count[LADDER_DO_REQUEST], 1);
    w.in.gauge[0].known = false;
    w.in.gauge[0].used_bytes = w.in.gauge[0].room_bytes = 0;
    w.t += 1;
    answer(&w);
    assert_int_equal(w.in.ack, LADDER_ACK_DONE);
    step_ladder(&w);
    w.in.gauge[0].known = true;
    for (int n = 0; n < 5; n++)
        look_at(&w, 1, 102 * MIB);
    assert_never_stopped(&w);
}

static void low_headroom_trigger_ends_10_s_after_headroom_recovers(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    w.in.can_request = false;
    assert_int_equal(look_at(&w, 1, 100 * MIB), LADDER_DO_WARN);
    for (int i = 0; i < 60; i++)
        assert_int_equal(look_at(&w, 1, 120 * MIB), LADDER_DO_NOTHING);
    assert_int_equal(look_at(&w, 1, 130 * MIB), LADDER_DO_NOTHING);
    assert_int_equal(look_at(&w, 9, 130 * MIB), LADDER_DO_NOTHING);
    assert_int_equal(look_at(&w, 1, 120 * MIB), LADDER_DO_STAND_DOWN);
}

static void low_headroom_is_ignored_shortly_after_the_trigger_ended(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    w.in.can_request = false;
    assert_int_equal(look_at(&w, 1, 100 * MIB), LADDER_DO_WARN);
    assert_int_equal(look_at(&w, 1, GIB), LADDER_DO_NOTHING);
    assert_int_equal(look_at(&w, 10, GIB), LADDER_DO_STAND_DOWN);
    assert_int_equal(look_at(&w, 5, 100 * MIB), LADDER_DO_NOTHING);
    /* The SIGTERM threshold applies even while the trigger is ignored. */
    assert_int_equal(look_at(&w, 0.1, 40 * MIB), LADDER_DO_TERM);
    world_init(&w, NULL, 2 * GIB);
    w.in.can_request = false;
    look_at(&w, 1, 100 * MIB);
    look_at(&w, 1, GIB);
    look_at(&w, 10, GIB);
    assert_int_equal(look_at(&w, 11, 100 * MIB), LADDER_DO_WARN);
}

static void repeated_memory_peaks_cause_at_most_20_requests_per_hour(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    for (int i = 0; i < 3600; i++)
        look_at(&w, 1, i % 20 == 0 ? 90 * MIB : 800 * MIB);
    assert_never_stopped(&w);
    assert_in_range(w.count[LADDER_DO_REQUEST], 2, 20);
}

static void guard_acts_again_after_a_killed_job_is_restarted(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    look_at(&w, 1, 10 * MIB);
    assert_int_equal(w.ladder.rung, LADDER_KILLED);
    ladder_segment(&w.ladder);
    assert_int_equal(w.ladder.rung, LADDER_CALM);
    assert_int_equal(look_at(&w, 1, 100 * MIB), LADDER_DO_REQUEST);
}

static void ladder_takes_no_action_after_the_reflex_killed_the_job(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 2 * GIB);
    w.in.is_killed = true;
    assert_int_equal(look_at(&w, 1, 0), LADDER_DO_NOTHING);
    assert_int_equal(w.ladder.rung, LADDER_KILLED);
}

static void guard_with_option_no_kill_sends_sigterm_but_no_sigkill(void **state)
{
    (void)state;
    const struct ladder_rules rules = {.no_kill = true};
    struct world w;
    world_init(&w, &rules, 2 * GIB);
    assert_int_equal(look_at(&w, 1, 40 * MIB), LADDER_DO_TERM);
    for (int i = 0; i < 100; i++)
        assert_int_equal(look_at(&w, 1, 0), LADDER_DO_NOTHING);
    assert_int_equal(w.ladder.rung, LADDER_STOPPING);
}

/* --- simulated jobs --- */

struct leak {
    double start, rate;
};

static double leaking(double s, const void *user)
{
    const struct leak *k = user;
    return k->start + k->rate * s;
}

static void job_leaking_50_mb_per_s_writes_its_checkpoint_in_time(void **state)
{
    (void)state;
    const double starts[] = {0.1, 0.5, 0.6};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        struct world w;
        const struct leak leak = {starts[i] * 2 * GIB, 50e6};
        world_init(&w, NULL, 2 * GIB);
        simulate(&w, 100, leaking, &leak);
        assert_true(w.is_done);
        assert_true(w.done_room > 300 * MIB);
        assert_int_equal(w.count[LADDER_DO_REQUEST], 1);
        assert_int_equal(w.count[LADDER_DO_TERM], 1);
        assert_true(w.first_room[LADDER_DO_TERM] > 70 * MIB);
        assert_int_equal(w.count[LADDER_DO_KILL], 0);
    }
}

static void checkpoint_that_needs_memory_is_requested_earlier(void **state)
{
    (void)state;
    struct world w, v;
    const struct leak leak = {GIB, 20e6};
    world_init(&w, NULL, 4 * GIB);
    world_init(&v, NULL, 4 * GIB);
    w.timing.saves = v.timing.saves = 1;
    w.timing.save_s = v.timing.save_s = 2;
    v.timing.save_rise_bytes = 500 * MIB;
    simulate(&w, 300, leaking, &leak);
    simulate(&v, 300, leaking, &leak);
    assert_in_range(v.first_room[LADDER_DO_REQUEST], w.first_room[LADDER_DO_REQUEST] + 400 * MIB,
                    w.first_room[LADDER_DO_REQUEST] + 600 * MIB);
}

static void job_leaking_1_gib_per_s_is_stopped_before_the_limit(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct world w;
        const struct leak leak = {(double)i * 7 * MIB, (double)GIB};
        world_init(&w, NULL, 2 * GIB);
        simulate(&w, 10, leaking, &leak);
        assert_int_equal(w.count[LADDER_DO_TERM] + w.count[LADDER_DO_KILL], 1);
        assert_true(w.in.gauge[0].room_bytes > 0);
    }
}

struct load {
    double from, to, rate;
};

static double loading(double s, const void *user)
{
    const struct load *k = user;
    double used = k->from + k->rate * s;
    return used < k->to ? used : k->to;
}

static void guard_does_not_stop_a_job_that_loads_a_model(void **state)
{
    (void)state;
    const double shares[] = {0.6, 0.9, 0.94}, rates[] = {0.1e9, 0.5e9, 2e9};
    for (int n = 0; n < 18; n++) {
        double share = shares[n % 3], rate = rates[n / 3 % 3];
        struct world w;
        const struct load load = {1e8, share * 24 * GIB, rate};
        world_init(&w, NULL, 24 * GIB);
        w.in.can_request = n < 9;
        simulate(&w, 3600, loading, &load);
        assert_never_stopped(&w);
        assert_int_equal(w.ladder.rung, LADDER_CALM);
        assert_in_range(w.count[LADDER_DO_REQUEST], 0, n < 9 ? 1 : 0);
        if (share < 0.7 && rate < 0.6e9)
            assert_calm(&w);
        if (rate < 0.2e9 && share <= 0.9)
            assert_calm(&w);
    }
}

static void fast_growth_is_ignored_below_half_of_the_limit(void **state)
{
    (void)state;
    struct world w;
    const struct load load = {0, 0.49 * 8 * GIB, 0.5 * GIB};
    world_init(&w, NULL, 8 * GIB);
    w.timing.saves = 1;
    w.timing.save_s = 60;
    simulate(&w, 60, loading, &load);
    assert_calm(&w);
}

/* Memory grows to 65 % of the limit at 400 MiB/s and then slowly; only the last seconds are used
 * for the estimate. */
static double slowing(double s, const void *user)
{
    (void)user;
    double bend = 0.65 * 16 * GIB, fast = 400.0 * MIB;
    return s < bend / fast ? fast * s : bend + (s - bend / fast) * 5 * MIB;
}

static void growth_rate_falls_within_seconds_after_growth_slows_down(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, NULL, 16 * GIB);
    /* The simulation ends more than three seconds after growth has slowed down. */
    simulate(&w, 31, slowing, NULL);
    assert_calm(&w);
    assert_true(w.ladder.slow_pace[0] > 4.0 * MIB && w.ladder.slow_pace[0] < 6.0 * MIB);
}

struct teeth {
    double low, high, period;
    double floor_rate;
};

static double saw(double s, const void *user)
{
    const struct teeth *k = user;
    return k->low + (k->high - k->low) * fmod(s, k->period) / k->period + k->floor_rate * s;
}

static void memory_spikes_to_90_percent_every_1_to_6_s_are_ignored(void **state)
{
    (void)state;
    for (double period = 1.2; period < 5.6; period += 0.13) {
        struct world w;
        const struct teeth teeth = {0.3 * 8 * GIB, 0.9 * 8 * GIB, period, 0};
        world_init(&w, NULL, 8 * GIB);
        simulate(&w, 600, saw, &teeth);
        assert_calm(&w);
    }
}

/* If memory is sampled only once per second, more frequent spikes can look like steady growth. */
static void rapid_memory_spikes_that_look_like_growth_never_stop_a_job(void **state)
{
    (void)state;
    for (double period = 0.1; period < 1.2; period += 0.037) {
        struct world w;
        const struct teeth teeth = {0.3 * 8 * GIB, 0.9 * 8 * GIB, period, 0};
        world_init(&w, NULL, 8 * GIB);
        simulate(&w, 600, saw, &teeth);
        assert_never_stopped(&w);
        /* The pause before the next request is 10 s at first and doubles each time. */
        assert_in_range(w.count[LADDER_DO_REQUEST], 0, 6);
    }
}

static void leaking_job_without_checkpoint_method_causes_two_warnings(void **state)
{
    (void)state;
    struct world w;
    const struct leak leak = {GIB, 50e6};
    world_init(&w, NULL, 2 * GIB);
    w.in.can_request = false;
    simulate(&w, 100, leaking, &leak);
    assert_int_equal(w.count[LADDER_DO_WARN], 2);
    assert_in_range(w.first_room[LADDER_DO_WARN], 400 * MIB, 700 * MIB);
    assert_int_equal(w.count[LADDER_DO_REQUEST], 0);
    assert_int_equal(w.count[LADDER_DO_TERM], 1);
    assert_in_range(w.first_room[LADDER_DO_TERM], 48 * MIB, 52 * MIB);
}

static void memory_sawtooth_with_period_of_7_to_60_s_never_stops_a_job(void **state)
{
    (void)state;
    for (double period = 7; period < 60; period += 4.7) {
        struct world w;
        const struct teeth teeth = {0.3 * 8 * GIB, 0.9 * 8 * GIB, period, 0};
        world_init(&w, NULL, 8 * GIB);
        simulate(&w, 3600, saw, &teeth);
        assert_never_stopped(&w);
        assert_in_range(w.count[LADDER_DO_REQUEST], 0, 18);
    }
}

static void forecast_of_a_slow_leak_triggers_the_checkpoint_request(void **state)
{
    (void)state;
    struct world w;
    const struct leak leak = {GIB, 8e6};
    const struct ladder_rules rules = {.checkpoint_s = 30};
    world_init(&w, &rules, 4 * GIB);
    for (int i = 0; i < 4000 && w.ladder.rung < LADDER_STOPPING; i++) {
        w.t += 1;
        set_used(&w, (uint64_t)leaking(i, &leak), leak.rate);
        w.in.forecast_known = i > 120;
        w.in.forecast_s = (double)w.in.gauge[0].room_bytes / leak.rate;
        /* Without past readings, only the forecast can trigger a request. */
        w.ladder.n_past[0] = 0;
        answer(&w);
        step_ladder(&w);
    }
    assert_int_equal(w.last.trigger, LADDER_BY_FORECAST);
    assert_int_equal(w.count[LADDER_DO_TERM], 1);
    assert_true(w.is_done);
    assert_true(w.first_room[LADDER_DO_TERM] > 204 * MIB);
}

static void job_that_ignores_requests_is_stopped_at_sigterm_threshold(void **state)
{
    (void)state;
    struct world w;
    const struct leak leak = {GIB, 50e6};
    world_init(&w, NULL, 2 * GIB);
    w.start_s = 1e9;
    simulate(&w, 100, leaking, &leak);
    assert_int_equal(w.count[LADDER_DO_REQUEST], 1);
    assert_int_equal(w.count[LADDER_DO_TERM], 1);
    assert_in_range(w.first_room[LADDER_DO_TERM], 48 * MIB, 52 * MIB);
}

/* --- random input --- */

static uint64_t seed = 88172645463325252u;

static unsigned pick(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 33) % n;
}

static void random_rules(struct ladder_rules *r)
{
    *r = (struct ladder_rules){0};
    r->reserve_bytes = pick(3) == 0 ? pick(3000) * MIB : 0;
    r->wait_s = pick(2) ? 30 : 0;
    r->no_forecast = pick(6) == 0;
    r->no_level = pick(6) == 0;
    r->no_pressure = pick(6) == 0;
    r->no_warn = pick(6) == 0;
    r->no_checkpoint = pick(6) == 0;
    r->no_term = pick(6) == 0;
    r->no_kill = pick(6) == 0;
}

static void random_walk(struct world *w, double *used)
{
    const double limit = (double)w->in.gauge[0].limit_bytes;
    double moved = ((double)pick(2001) - 990) / 1000 * 0.06 * limit;
    *used = fmin(fmax(*used + moved, 0), pick(40) == 0 ? 1.01 * limit : 0.99 * limit);
    w->t += pick(4) == 0 ? 0.02 : 1;
    set_used(w, (uint64_t)*used, moved);
    w->in.forecast_known = pick(8) == 0;
    w->in.forecast_s = pick(100);
    w->in.pressure_known = pick(10) != 0;
    w->in.pressure = pick(30) == 0 ? 0.0 : 0.2 + pick(3) * 0.2;
    set_gpu(w, 1, 1000, 400 + 10 * pick(62));
    set_card(w, 2, 1000, 400 + 10 * pick(62));
    gpu_of(w, 2)->forecast_known = pick(8) == 0;
    gpu_of(w, 2)->forecast_s = pick(100);
    w->in.plan_due = pick(200) == 0;
    w->in.can_request = pick(10) != 0;
    w->in.ack = (enum ladder_ack)pick(4);
}

/* Returns true if the rules permit SIGTERM for this decision. */
static bool may_stop(const struct world *w, const struct ladder_decision *d, bool was_asked,
                     enum ladder_ack ack, uint64_t base)
{
    const struct ladder_input *in = &w->in;
    switch (d->trigger) {
    case LADDER_BY_LEVEL:
        if (d->has_gpu) /* The gauge of GPU 1 has a limit of 1000 and a reserve of 200. */
            return d->gpu == 1 && in->gauge[LADDER_HOST_GAUGES + 1].room_bytes <= 200;
        return in->gauge[0].room_bytes <= base / 2 ||
               (was_asked && in->gauge[0].room_bytes <= base);
    case LADDER_BY_FORECAST:
        return was_asked && ack != LADDER_ACK_FAILED &&
               (d->has_gpu ? in->gauge[LADDER_HOST_GAUGES + 2].forecast_known : in->forecast_known);
    case LADDER_BY_PRESSURE:
        return in->pressure >= 0.3;
    case LADDER_BY_PLAN:
        return in->plan_due;
    default:
        return false;
    }
}

static void check_act(const struct world *w, const struct ladder_decision *d, bool was_asked,
                      bool was_stopping)
{
    const struct ladder_rules *r = &w->ladder.rules;
    uint64_t limit = w->in.gauge[0].limit_bytes, room = w->in.gauge[0].room_bytes;
    uint64_t base = r->reserve_bytes > 0 ? r->reserve_bytes : ladder_default_reserve(limit);
    base = base < limit / 2 ? base : limit / 2;
    assert_false(d->act == LADDER_DO_WARN && r->no_warn);
    assert_false(d->act == LADDER_DO_REQUEST && (r->no_checkpoint || !w->in.can_request));
    assert_false(d->act == LADDER_DO_TERM && r->no_term);
    assert_false(d->act == LADDER_DO_KILL && r->no_kill);
    if (d->act == LADDER_DO_TERM || (d->act == LADDER_DO_KILL && !was_stopping && r->no_term))
        assert_true(may_stop(w, d, was_asked, w->in.ack, base));
    if (d->act == LADDER_DO_KILL)
        assert_true(was_stopping || r->no_term || room <= base / 8);
}

static void guard_follows_its_rules_for_random_readings(void **state)
{
    (void)state;
    int acts[ACTS] = {0};
    for (int run = 0; run < 400; run++) {
        struct world w;
        struct ladder_rules rules;
        random_rules(&rules);
        world_init(&w, &rules, (1 + pick(64)) * GIB / 4);
        double used = 0.5 * (double)w.in.gauge[0].limit_bytes;
        for (int i = 0; i < 300; i++) {
            struct ladder_decision d = {0};
            random_walk(&w, &used);
            w.in.now_ns = (uint64_t)(w.t * 1e9);
            int n = 0;
            do {
                enum ladder_rung was = w.ladder.rung;
                ladder_step(&w.ladder, &w.in, &w.timing, &d);
                check_act(&w, &d, was == LADDER_REQUESTED, was == LADDER_STOPPING);
                acts[d.act]++;
                assert_in_range(++n, 1, MOST_ACTS + 1);
            } while (d.act != LADDER_DO_NOTHING);
            if (w.ladder.rung == LADDER_KILLED)
                ladder_segment(&w.ladder);
        }
    }
    for (int i = 0; i < ACTS; i++) /* The random input must have caused every action. */
        assert_in_range(acts[i], 50, 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_reserve_is_5_percent_of_the_limit_within_bounds),
        cmocka_unit_test(invalid_guard_rules_are_rejected),
        cmocka_unit_test(time_needed_to_stop_is_step_plus_checkpoint_plus_margin),
        cmocka_unit_test(every_guard_trigger_and_action_has_a_name),
        cmocka_unit_test(each_situation_causes_the_expected_guard_action),
        cmocka_unit_test(guard_reason_contains_headroom_and_needed_time),
        cmocka_unit_test(guard_without_memory_limit_acts_only_if_a_planned_restart_is_due),
        cmocka_unit_test(each_host_memory_gauge_alone_can_trigger_the_guard),
        cmocka_unit_test(job_that_grows_within_reserve_is_stopped_after_checkpoint),
        cmocka_unit_test(job_with_steady_memory_within_the_reserve_is_not_stopped),
        cmocka_unit_test(slow_growth_within_reserve_causes_few_checkpoint_requests),
        cmocka_unit_test(sigterm_threshold_is_lower_while_a_checkpoint_is_written),
        cmocka_unit_test(persistent_forecast_stops_the_job_after_the_checkpoint),
        cmocka_unit_test(failed_checkpoint_is_requested_again_after_60_s),
        cmocka_unit_test(planned_restart_follows_a_written_or_failed_checkpoint),
        cmocka_unit_test(answer_to_an_old_checkpoint_request_is_ignored),
        cmocka_unit_test(checkpoint_timeout_stops_the_job_only_if_forecast_persists),
        cmocka_unit_test(persistent_gpu_forecast_stops_the_job_after_the_checkpoint),
        cmocka_unit_test(job_on_a_full_gpu_is_not_stopped),
        cmocka_unit_test(growth_towards_a_full_gpu_does_not_stop_the_job),
        cmocka_unit_test(gpu_limit_triggers_sigterm_then_sigkill_after_grace_time),
        cmocka_unit_test(growth_near_a_gpu_limit_stops_the_job_after_its_checkpoint),
        cmocka_unit_test(host_memory_reserve_does_not_apply_to_gpus),
        cmocka_unit_test(guard_keeps_its_trigger_if_growth_pauses_during_checkpoint),
        cmocka_unit_test(lasting_memory_pressure_stops_a_job_only_at_low_headroom),
        cmocka_unit_test(memory_pressure_that_ends_after_30_s_does_not_stop_the_job),
        cmocka_unit_test(missing_reading_during_a_checkpoint_is_not_taken_as_growth),
        cmocka_unit_test(low_headroom_trigger_ends_10_s_after_headroom_recovers),
        cmocka_unit_test(low_headroom_is_ignored_shortly_after_the_trigger_ended),
        cmocka_unit_test(repeated_memory_peaks_cause_at_most_20_requests_per_hour),
        cmocka_unit_test(guard_acts_again_after_a_killed_job_is_restarted),
        cmocka_unit_test(ladder_takes_no_action_after_the_reflex_killed_the_job),
        cmocka_unit_test(guard_with_option_no_kill_sends_sigterm_but_no_sigkill),
        cmocka_unit_test(job_leaking_50_mb_per_s_writes_its_checkpoint_in_time),
        cmocka_unit_test(checkpoint_that_needs_memory_is_requested_earlier),
        cmocka_unit_test(job_leaking_1_gib_per_s_is_stopped_before_the_limit),
        cmocka_unit_test(guard_does_not_stop_a_job_that_loads_a_model),
        cmocka_unit_test(fast_growth_is_ignored_below_half_of_the_limit),
        cmocka_unit_test(growth_rate_falls_within_seconds_after_growth_slows_down),
        cmocka_unit_test(memory_spikes_to_90_percent_every_1_to_6_s_are_ignored),
        cmocka_unit_test(rapid_memory_spikes_that_look_like_growth_never_stop_a_job),
        cmocka_unit_test(leaking_job_without_checkpoint_method_causes_two_warnings),
        cmocka_unit_test(memory_sawtooth_with_period_of_7_to_60_s_never_stops_a_job),
        cmocka_unit_test(forecast_of_a_slow_leak_triggers_the_checkpoint_request),
        cmocka_unit_test(job_that_ignores_requests_is_stopped_at_sigterm_threshold),
        cmocka_unit_test(guard_follows_its_rules_for_random_readings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
