/* Tests verdicts on resident memory that are revised because of the live heap: undecided verdicts,
 * and verdicts on constant memory. */
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

/* Resident memory of 500 MB grows by 1 MB/step and is undecided. */
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

/* The live heap leaks 0.7 MB/step. */
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

static void leaking_live_heap_turns_an_undecided_verdict_into_leaking(void **state)
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
    assert_non_null(strstr(text, "the live heap leaks +680 KiB/step"));
    assert_non_null(strstr(text, "70 % of the growth rate of resident memory"));
}

static void evidence_from_the_live_heap_is_listed_first(void **state)
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

/* Applies LIVE and returns true if the result changed. */
static bool is_changed_by(struct verdict_result r, const struct verdict_result *live)
{
    struct verdict_result before = r;

    verdict_apply_live(&r, live);
    return r.word != before.word || r.n_evidence != before.n_evidence;
}

static void small_growth_is_a_leak_if_live_and_resident_rates_agree(void **state)
{
    struct verdict_result live = leaking();

    (void)state;
    /* The live heap grows by 1.6 % of resident memory. */
    live.floor_last_bytes = live.floor_first_bytes + 8 * MB;
    assert_false(is_changed_by(undecided(), &live));
    live.rate_bytes_per_step = rate(0.9 * MB);
    assert_true(is_changed_by(undecided(), &live));
    live.confidence = 0.9;
    assert_false(is_changed_by(undecided(), &live));
    live.confidence = 0.97;
    live.floor_last_bytes = live.floor_first_bytes + 4 * MB;
    assert_false(is_changed_by(undecided(), &live));
}

static void live_heap_does_not_change_a_verdict_of_a_leak(void **state)
{
    static const enum verdict_word words[] = {VERDICT_STEPPING, VERDICT_LEAKING};
    struct verdict_result live = leaking();

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct verdict_result r = undecided();

        r.word = words[i];
        r.leak = verdict_word_leak(r.word);
        assert_false(is_changed_by(r, &live));
    }
}

/* Both series leak, and nearly all growth of the live heap occurs at evaluations. */
static void leak_is_judged_stepping_if_the_live_heap_grows_at_events(void **state)
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
    assert_false(is_changed_by(r, &live));
    live.rate_bytes_per_step = rate(0.9 * MB);
    verdict_apply_live(&r, &live);
    assert_int_equal(r.word, VERDICT_STEPPING);
    assert_int_equal(r.event, VERDICT_MARK_EVAL);
    assert_true(r.rate_bytes_per_step.value == 1 * MB);
    assert_int_equal(r.evidence[0].code, VERDICT_SAID_EVENT_STEPS);
}

/* The epoch has ended for both series, but only the live heap clearly grows after it. */
static void leaking_live_heap_turns_a_filling_verdict_into_leaking(void **state)
{
    struct verdict_result r = undecided(), live = leaking();

    (void)state;
    r.word = VERDICT_FILLING;
    verdict_apply_live(&r, &live);
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_false(r.forecast.known);
}

/* Resident memory grew to 500 MB and has been level since. */
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
        /* the peak is memory of a batch, so no retained memory was released */
        .peak_bytes = 600 * MB,
        .growth_ended = {.known = true},
        .n_evidence = 2,
        .evidence = {{.code = VERDICT_SAID_BASELINE}, {.code = VERDICT_SAID_ENDED}}};
}

static void leaking_live_heap_with_constant_resident_memory_is_a_leak(void **state)
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
        assert_int_equal(r.evidence[1].code, VERDICT_SAID_BASELINE);
        verdict_evidence_text(text, sizeof text, &r.evidence[0]);
        assert_non_null(strstr(text, "the heap reuses memory that was already resident"));
        assert_non_null(strstr(text, "+680 KiB/step (97 % confident), 67 MiB so far"));
    }
}

static void weak_evidence_of_a_heap_leak_does_not_change_plateaued_verdict(void **state)
{
    struct verdict_result live = leaking(), r = plateaued();

    (void)state;
    /* The live heap grows by 4 % of resident memory. */
    live.floor_last_bytes = live.floor_first_bytes + 20 * MB;
    assert_false(is_changed_by(plateaued(), &live));
    live = leaking();
    live.confidence = 0.65;
    assert_false(is_changed_by(plateaued(), &live));
    live = leaking();
    /* The process released 35 MB, half of the live heap's growth. */
    r.highest_floor_bytes = 535 * MB;
    assert_false(is_changed_by(r, &live));
    live.floor_first_bytes = 400 * MB;
    live.floor_last_bytes = 600 * MB; /* The live heap is larger than resident memory. */
    assert_false(is_changed_by(plateaued(), &live));
}

/* Resident memory repeatedly peaks far above its final level, and its slope equals that of the live
 * heap. */
static void noisy_resident_memory_does_not_contradict_a_heap_leak(void **state)
{
    struct verdict_result live = leaking(), r = plateaued();

    (void)state;
    r.highest_floor_bytes = 535 * MB;
    r.rate_bytes_per_step = (struct verdict_interval){true, 0.7 * MB, 0.3 * MB, 1.1 * MB};
    assert_false(is_changed_by(
        r,
        &live)); /* the rate of resident memory may be less than half the rate of the live heap */
    r.rate_bytes_per_step.low = 0.4 * MB;
    assert_true(is_changed_by(r, &live));
}

static void live_heap_without_leak_does_not_change_the_verdict(void **state)
{
    struct verdict_result live = leaking();

    (void)state;
    live.word = VERDICT_STABLE;
    live.leak = VERDICT_LEAK_NO;
    assert_false(is_changed_by(undecided(), &live));
    live.word = VERDICT_UNDECIDED;
    live.leak = VERDICT_LEAK_UNKNOWN;
    assert_false(is_changed_by(undecided(), &live));
}

static void weak_evidence_of_a_heap_leak_does_not_change_undecided_verdict(void **state)
{
    struct verdict_result live = leaking(), r = undecided();

    (void)state;
    /* The live heap grows by 2 % of resident memory. */
    live.floor_last_bytes = live.floor_first_bytes + 10 * MB;
    assert_false(is_changed_by(undecided(), &live));
    live = leaking();
    live.confidence = 0.65;
    assert_false(is_changed_by(undecided(), &live));
    live = leaking();
    live.rate_bytes_per_step = rate(0.4 * MB);
    assert_false(is_changed_by(undecided(), &live));
    live = leaking();
    r.rate_bytes_per_step = rate(-1 * MB);
    assert_false(is_changed_by(r, &live));
    r.rate_bytes_per_step.known = false;
    assert_false(is_changed_by(r, &live));
}

static void heap_rates_are_compared_per_minute_if_steps_are_unknown(void **state)
{
    struct verdict_result live = leaking(), r = undecided();

    (void)state;
    r.rate_bytes_per_step.known = live.rate_bytes_per_step.known = false;
    r.rate_bytes_per_min = rate(60 * MB);
    live.rate_bytes_per_min = rate(50 * MB);
    assert_true(is_changed_by(r, &live));
    live.rate_bytes_per_min = rate(20 * MB);
    assert_false(is_changed_by(r, &live));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaking_live_heap_turns_an_undecided_verdict_into_leaking),
        cmocka_unit_test(evidence_from_the_live_heap_is_listed_first),
        cmocka_unit_test(small_growth_is_a_leak_if_live_and_resident_rates_agree),
        cmocka_unit_test(live_heap_does_not_change_a_verdict_of_a_leak),
        cmocka_unit_test(leak_is_judged_stepping_if_the_live_heap_grows_at_events),
        cmocka_unit_test(leaking_live_heap_turns_a_filling_verdict_into_leaking),
        cmocka_unit_test(leaking_live_heap_with_constant_resident_memory_is_a_leak),
        cmocka_unit_test(weak_evidence_of_a_heap_leak_does_not_change_plateaued_verdict),
        cmocka_unit_test(noisy_resident_memory_does_not_contradict_a_heap_leak),
        cmocka_unit_test(live_heap_without_leak_does_not_change_the_verdict),
        cmocka_unit_test(weak_evidence_of_a_heap_leak_does_not_change_undecided_verdict),
        cmocka_unit_test(heap_rates_are_compared_per_minute_if_steps_are_unknown),
    };

    return cmocka_run_group_tests_name("verdict_live", tests, NULL, NULL);
}
