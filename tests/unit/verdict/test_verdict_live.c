/* What the live heap of a process tells about resident memory that is undecided, or stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "verdict/verdict.h"

static const double MB = 1e6;

static struct verdict_interval rate(double value)
{
    return (struct verdict_interval){true, value, value, value};
}

/* Resident memory of 500 MB that grows by 1 MB a step, and nobody knows whether it ends. */
static struct verdict_result undecided(void)
{
    return (struct verdict_result){.word = VERDICT_UNDECIDED,
                                   .confidence = 0.5,
                                   .rate_bytes_per_step = rate(1 * MB),
                                   .has_floor = true,
                                   .floor_first_bytes = 400 * MB,
                                   .floor_last_bytes = 500 * MB,
                                   .forecast = {.known = true},
                                   .n_evidence = 1,
                                   .evidence = {{.code = VERDICT_SAID_SATURATING}}};
}

/* A live heap that leaks 0.7 MB a step. */
static struct verdict_result leaking(void)
{
    return (struct verdict_result){.word = VERDICT_LEAKING,
                                   .leak = VERDICT_LEAK_YES,
                                   .confidence = 0.97,
                                   .alarm = true,
                                   .rate_bytes_per_step = rate(0.7 * MB),
                                   .has_floor = true,
                                   .floor_first_bytes = 100 * MB,
                                   .floor_last_bytes = 170 * MB};
}

static void a_live_heap_that_leaks_tells_what_was_open(void **state)
{
    struct verdict_result r = undecided(), live = leaking();
    char text[VERDICT_TEXT_MAX];

    (void)state;
    verdict_apply_live(&r, &live);
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_int_equal(r.leak, VERDICT_LEAK_YES);
    assert_true(r.confidence > 0.5 && r.confidence < live.confidence);
    assert_true(r.alarm);
    assert_false(r.forecast.known);
    assert_int_equal(r.n_evidence, 2);
    assert_int_equal(r.evidence[1].code, VERDICT_SAID_SATURATING);
    verdict_evidence_text(text, sizeof text, &r.evidence[0]);
    assert_non_null(strstr(text, "the live heap leaks 684 KiB a step"));
    assert_non_null(strstr(text, "70 % of what resident memory grows by"));
}

static void the_reason_comes_first_though_there_is_no_room(void **state)
{
    struct verdict_result r = undecided(), live = leaking();

    (void)state;
    r.n_evidence = VERDICT_EVIDENCE;
    for (uint32_t i = 0; i < VERDICT_EVIDENCE; i++)
        r.evidence[i].code = VERDICT_SAID_SATURATING;
    verdict_apply_live(&r, &live);
    assert_int_equal(r.n_evidence, VERDICT_EVIDENCE);
    assert_int_equal(r.evidence[0].code, VERDICT_SAID_LIVE_GROWS);
}

/* Hears LIVE; whether that changed anything. */
static bool is_heard(struct verdict_result r, const struct verdict_result *live)
{
    struct verdict_result before = r;

    verdict_apply_live(&r, live);
    return r.word != before.word || r.n_evidence != before.n_evidence;
}

static void little_growth_counts_where_both_have_the_same_pace(void **state)
{
    struct verdict_result live = leaking();

    (void)state;
    live.floor_last_bytes = live.floor_first_bytes + 8 * MB; /* 1.6 % of what is resident */
    assert_false(is_heard(undecided(), &live));
    live.rate_bytes_per_step = rate(0.9 * MB);
    assert_true(is_heard(undecided(), &live));
    live.confidence = 0.9;
    assert_false(is_heard(undecided(), &live));
    live.confidence = 0.97;
    live.floor_last_bytes = live.floor_first_bytes + 4 * MB;
    assert_false(is_heard(undecided(), &live));
}

static void what_was_decided_stays(void **state)
{
    static const enum verdict_word words[] = {VERDICT_STEPPING, VERDICT_LEAKING};
    struct verdict_result live = leaking();

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct verdict_result r = undecided();

        r.word = words[i];
        r.leak = verdict_word_leak(r.word);
        assert_false(is_heard(r, &live));
    }
}

/* Both leak, and of what is in use nearly all comes at evaluations. */
static void a_live_heap_that_rises_at_events_tells_how_it_leaks(void **state)
{
    struct verdict_result r = undecided(), live = leaking();

    (void)state;
    r.word = VERDICT_LEAKING;
    r.leak = VERDICT_LEAK_YES;
    live.word = VERDICT_STEPPING;
    live.event = VERDICT_MARK_EVAL;
    live.n_evidence = 1;
    live.evidence[0].code = VERDICT_SAID_EVENT_STEPS;
    live.rate_bytes_per_step = rate(0.6 * MB);
    assert_false(is_heard(r, &live));
    live.rate_bytes_per_step = rate(0.9 * MB);
    verdict_apply_live(&r, &live);
    assert_int_equal(r.word, VERDICT_STEPPING);
    assert_int_equal(r.event, VERDICT_MARK_EVAL);
    assert_true(r.rate_bytes_per_step.value == 1 * MB);
    assert_int_equal(r.evidence[0].code, VERDICT_SAID_EVENT_STEPS);
}

/* The pass has ended for both, and only the live heap is sure of what follows. */
static void memory_that_may_still_be_filling_is_open_too(void **state)
{
    struct verdict_result r = undecided(), live = leaking();

    (void)state;
    r.word = VERDICT_FILLING;
    verdict_apply_live(&r, &live);
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_false(r.forecast.known);
}

/* Resident memory that grew to 500 MB and has stood there since. */
static struct verdict_result plateaued(void)
{
    return (struct verdict_result){
        .word = VERDICT_PLATEAUED,
        .leak = VERDICT_LEAK_NO,
        .confidence = 0.97,
        .rate_bytes_per_step = rate(0),
        .has_floor = true,
        .floor_first_bytes = 400 * MB,
        .floor_last_bytes = 500 * MB,
        .highest_floor_bytes = 510 * MB,
        .peak_bytes = 600 * MB, /* a batch's own memory: nothing that was held has come down */
        .growth_ended = {.known = true},
        .n_evidence = 2,
        .evidence = {{.code = VERDICT_SAID_FLOOR}, {.code = VERDICT_SAID_ENDED}}};
}

static void a_live_heap_that_leaks_into_holes_is_a_leak(void **state)
{
    static const enum verdict_word words[] = {VERDICT_STABLE, VERDICT_SPIKING, VERDICT_PLATEAUED};
    char text[VERDICT_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct verdict_result r = plateaued(), live = leaking();

        r.word = words[i];
        verdict_apply_live(&r, &live);
        assert_int_equal(r.word, VERDICT_LEAKING);
        assert_int_equal(r.leak, VERDICT_LEAK_YES);
        assert_true(r.confidence <= 0.8);
        assert_false(r.growth_ended.known);
        assert_true(r.rate_bytes_per_step.value == live.rate_bytes_per_step.value);
        assert_int_equal(r.n_evidence, 2);
        assert_int_equal(r.evidence[1].code, VERDICT_SAID_FLOOR);
        verdict_evidence_text(text, sizeof text, &r.evidence[0]);
        assert_non_null(strstr(text, "into holes that the process held already"));
        assert_non_null(strstr(text, "684 KiB a step (confidence 97 %), 66.8 MiB so far"));
    }
}

static void
what_stands_stays_so_where_little_leaks_or_memory_came_down_or_was_not_touched(void **state)
{
    struct verdict_result live = leaking(), r = plateaued();

    (void)state;
    live.floor_last_bytes = live.floor_first_bytes + 20 * MB; /* 4 % of resident memory */
    assert_false(is_heard(plateaued(), &live));
    live = leaking();
    live.confidence = 0.65;
    assert_false(is_heard(plateaued(), &live));
    live = leaking();
    r.highest_floor_bytes =
        535 * MB; /* 35 MB were given back: half of what the live heap grew by */
    assert_false(is_heard(r, &live));
    live.floor_first_bytes = 400 * MB;
    live.floor_last_bytes = 600 * MB; /* more than is resident */
    assert_false(is_heard(plateaued(), &live));
}

/* It reaches far above its end again and again, and still its slope is that of what is in use. */
static void noise_that_hides_the_rise_is_not_memory_that_came_down(void **state)
{
    struct verdict_result live = leaking(), r = plateaued();

    (void)state;
    r.highest_floor_bytes = 535 * MB;
    r.rate_bytes_per_step = (struct verdict_interval){true, 0.7 * MB, 0.3 * MB, 1.1 * MB};
    assert_false(is_heard(r, &live)); /* it may be less than half as fast */
    r.rate_bytes_per_step.low = 0.4 * MB;
    assert_true(is_heard(r, &live));
}

static void a_live_heap_that_does_not_leak_decides_nothing(void **state)
{
    struct verdict_result live = leaking();

    (void)state;
    live.word = VERDICT_STABLE;
    live.leak = VERDICT_LEAK_NO;
    assert_false(is_heard(undecided(), &live));
    live.word = VERDICT_UNDECIDED;
    live.leak = VERDICT_LEAK_UNKNOWN;
    assert_false(is_heard(undecided(), &live));
}

static void a_leak_that_is_small_unsure_or_explains_little_decides_nothing(void **state)
{
    struct verdict_result live = leaking(), r = undecided();

    (void)state;
    live.floor_last_bytes = live.floor_first_bytes + 10 * MB; /* 2 % of resident memory */
    assert_false(is_heard(undecided(), &live));
    live = leaking();
    live.confidence = 0.65;
    assert_false(is_heard(undecided(), &live));
    live = leaking();
    live.rate_bytes_per_step = rate(0.4 * MB);
    assert_false(is_heard(undecided(), &live));
    live = leaking();
    r.rate_bytes_per_step = rate(-1 * MB);
    assert_false(is_heard(r, &live));
    r.rate_bytes_per_step.known = false;
    assert_false(is_heard(r, &live));
}

static void without_steps_minutes_are_compared(void **state)
{
    struct verdict_result live = leaking(), r = undecided();

    (void)state;
    r.rate_bytes_per_step.known = live.rate_bytes_per_step.known = false;
    r.rate_bytes_per_min = rate(60 * MB);
    live.rate_bytes_per_min = rate(50 * MB);
    assert_true(is_heard(r, &live));
    live.rate_bytes_per_min = rate(20 * MB);
    assert_false(is_heard(r, &live));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_live_heap_that_leaks_tells_what_was_open),
        cmocka_unit_test(the_reason_comes_first_though_there_is_no_room),
        cmocka_unit_test(little_growth_counts_where_both_have_the_same_pace),
        cmocka_unit_test(what_was_decided_stays),
        cmocka_unit_test(a_live_heap_that_rises_at_events_tells_how_it_leaks),
        cmocka_unit_test(memory_that_may_still_be_filling_is_open_too),
        cmocka_unit_test(a_live_heap_that_leaks_into_holes_is_a_leak),
        cmocka_unit_test(
            what_stands_stays_so_where_little_leaks_or_memory_came_down_or_was_not_touched),
        cmocka_unit_test(noise_that_hides_the_rise_is_not_memory_that_came_down),
        cmocka_unit_test(a_live_heap_that_does_not_leak_decides_nothing),
        cmocka_unit_test(a_leak_that_is_small_unsure_or_explains_little_decides_nothing),
        cmocka_unit_test(without_steps_minutes_are_compared),
    };

    return cmocka_run_group_tests_name("verdict_live", tests, NULL, NULL);
}
