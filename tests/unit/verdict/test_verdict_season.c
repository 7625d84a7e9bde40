/* Memory that repeats with the pass: the floor under a saw-tooth rises or does not; and a look that
 * ends within a spike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "verdict/one_series.h"
#include "verdict/season.h"

enum { PASS = 30 };

/* STEPS of 0.15 s in passes of PASS, told or not. */
static void run(uint64_t steps, bool tells_passes, uint64_t (*bytes)(uint64_t step))
{
    mark(0, VERDICT_MARK_BEGIN, 0);
    for (uint64_t s = 1; s <= steps; s++) {
        int64_t t = (int64_t)s * SECOND * 3 / 20;

        verdict_update(&v, t - 1, bytes(s));
        mark(t, VERDICT_MARK_STEP, s);
        if (tells_passes && s % PASS == 0)
            mark(t + 1, VERDICT_MARK_EPOCH, s);
    }
    verdict_judge(&v, NULL, &r);
}

static uint64_t tooth(uint64_t step)
{
    return 30 * MB + step % PASS * 4 * MB;
}

/* The same, of which the lowest step end is read a little later in every pass. */
static uint64_t teeth_read_late(uint64_t step)
{
    uint64_t pass = step / PASS;

    return tooth(step) - (step % PASS == 0 && pass < 5 ? (5 - pass) * 2 * MB : 0);
}

/* One example in eight is kept for good. */
static uint64_t rising_teeth(uint64_t step)
{
    return tooth(step) + step * MB / 2;
}

/* What is kept of each pass is two thirds of what was kept of the one before. */
static uint64_t settling_teeth(uint64_t step)
{
    uint64_t kept = 0, more = 15 * MB;

    for (uint64_t pass = 0; pass < step / PASS; pass++) {
        kept += more;
        more = more * 2 / 3;
    }
    return tooth(step) + kept;
}

/* A schedule: the first three epochs add to the floor, those after them do not. */
static uint64_t scheduled_teeth(uint64_t step)
{
    uint64_t pass = step / PASS;

    return tooth(step) + (pass < 3 ? pass : 3) * 15 * MB;
}

/* Teeth of 23 steps, which know nothing of the pass. */
static uint64_t other_teeth(uint64_t step)
{
    return 30 * MB + step % 23 * 5 * MB + step * MB / 2;
}

static uint64_t a_line(uint64_t step)
{
    return 300 * MB + step * MB / 2;
}

/* A spike of one step in every twenty. */
static uint64_t spikes(uint64_t step)
{
    return step % 20 == 0 && step > 20 ? 460 * MB : 210 * MB + step * 1000;
}

/* The same, and at step 120 one that stays. */
static uint64_t spikes_and_a_step(uint64_t step)
{
    return step >= 120 ? 460 * MB : spikes(step);
}

static bool says(enum verdict_evidence_code code)
{
    for (uint32_t i = 0; i < r.n_evidence; i++)
        if (r.evidence[i].code == code)
            return true;
    return false;
}

static void a_floor_that_rises_under_the_teeth_leaks(void **state)
{
    (void)state;
    run(8 * PASS, true, rising_teeth);
    assert_int_equal(r.leak, VERDICT_LEAK_YES);
    assert_true(says(VERDICT_SAID_PASSES_RISE));
    assert_true(r.rate_bytes_per_step.known);
    assert_true(r.rate_bytes_per_step.value > 0.45e6 && r.rate_bytes_per_step.value < 0.55e6);
    assert_true(r.rate_bytes_per_min.value > 0.9 * 400 * 0.5e6);
    assert_false(r.growth_ended.known);
}

static void it_takes_four_pairs_of_passes_while_there_may_be_more(void **state)
{
    (void)state;
    run(3 * PASS + PASS / 2, true, rising_teeth);
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    fresh(NULL);
    run(4 * PASS + PASS / 4, true, rising_teeth);
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    verdict_job_over(&v);
    verdict_judge(&v, NULL, &r);
    assert_int_equal(r.leak, VERDICT_LEAK_YES);
    fresh(NULL);
    run(5 * PASS + PASS / 4, true, rising_teeth);
    assert_int_equal(r.leak, VERDICT_LEAK_YES);
}

static void teeth_on_one_floor_are_spikes(void **state)
{
    (void)state;
    for (uint64_t steps = 2 * PASS; steps <= 8 * PASS; steps += 7) {
        fresh(NULL);
        run(steps, true, tooth);
        assert_int_equal(r.word, VERDICT_SPIKING);
        fresh(NULL);
        run(steps, true, teeth_read_late);
        assert_int_equal(r.word, VERDICT_SPIKING);
    }
    assert_true(says(VERDICT_SAID_PASSES_SAME));
    assert_false(r.growth_ended.known);
}

static void what_settles_is_no_leak(void **state)
{
    (void)state;
    for (uint64_t steps = 2 * PASS; steps <= 9 * PASS; steps += 7) {
        fresh(NULL);
        run(steps, true, settling_teeth);
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
        fresh(NULL);
        run(steps, true, scheduled_teeth);
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
    }
}

static void only_what_repeats_with_the_pass_is_held_against_it(void **state)
{
    struct season s;

    (void)state;
    run(8 * PASS, true, other_teeth);
    assert_false(season_find(&v, &s));
    fresh(NULL);
    run(8 * PASS, true, a_line);
    assert_false(season_find(&v, &s));
    fresh(NULL);
    run(8 * PASS, false, rising_teeth);
    assert_false(season_find(&v, &s));
}

static void the_sentences_say_it(void **state)
{
    char text[VERDICT_TEXT_MAX];
    struct verdict_evidence rises = {.code = VERDICT_SAID_PASSES_RISE,
                                     .value = {15 * 1048576.0, 4, 100 * 1048576.0, 1024}},
                            same = {.code = VERDICT_SAID_PASSES_SAME,
                                    .value = {4, 100 * 1048576.0}};

    (void)state;
    assert_string_equal(verdict_evidence_text(text, sizeof(text), &rises),
                        "every pass gives back 100 MiB, and at the same step of each memory is 15 "
                        "MiB above the pass before, over 4 passes, with a spread of 1 KiB");
    assert_string_equal(verdict_evidence_text(text, sizeof(text), &same),
                        "at the same step of each of 4 passes memory is the same: what it rises "
                        "by, 100 MiB, is given back within the pass");
}

static void a_look_that_ends_in_a_spike_sees_no_plateau(void **state)
{
    (void)state;
    for (uint64_t steps = 100; steps <= 300; steps += 20) { /* one slot a step, and two steps */
        fresh(NULL);
        run(steps, false, spikes);
        assert_int_equal(r.word, VERDICT_SPIKING);
    }
}

static void what_stays_longer_than_a_spike_is_none(void **state)
{
    (void)state;
    run(160, false, spikes_and_a_step);
    assert_true(r.floor_last_bytes > 400e6);
    assert_int_equal(r.word, VERDICT_PLATEAUED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_floor_that_rises_under_the_teeth_leaks, fresh),
        cmocka_unit_test_setup(it_takes_four_pairs_of_passes_while_there_may_be_more, fresh),
        cmocka_unit_test_setup(teeth_on_one_floor_are_spikes, fresh),
        cmocka_unit_test_setup(what_settles_is_no_leak, fresh),
        cmocka_unit_test_setup(only_what_repeats_with_the_pass_is_held_against_it, fresh),
        cmocka_unit_test_setup(the_sentences_say_it, fresh),
        cmocka_unit_test_setup(a_look_that_ends_in_a_spike_sees_no_plateau, fresh),
        cmocka_unit_test_setup(what_stays_longer_than_a_spike_is_none, fresh),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
