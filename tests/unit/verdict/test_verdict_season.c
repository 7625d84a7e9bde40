/* Tests a sawtooth that repeats each epoch and may have a rising baseline, and series that end in a
 * spike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "verdict/one_series.h"
#include "verdict/season.h"

enum { PASS = 30 };

/* Adds STEPS steps of 0.15 s in epochs of PASS steps; the epoch length is reported if
 * HAS_EPOCHS. */
static void run(uint64_t steps, bool has_epochs, uint64_t (*bytes)(uint64_t step))
{
    mark(0, VERDICT_MARK_BEGIN, 0);
    for (uint64_t s = 1; s <= steps; s++) {
        int64_t t = (int64_t)s * SECOND * 3 / 20;

        verdict_update(&v, t - 1, bytes(s));
        mark(t, VERDICT_MARK_STEP, s);
        if (has_epochs && s % PASS == 0)
            mark(t + 1, VERDICT_MARK_EPOCH, s);
    }
    verdict_judge(&v, NULL, &r);
}

static uint64_t tooth(uint64_t step)
{
    return 30 * MB + step % PASS * 4 * MB;
}

/* A sawtooth whose lowest reading comes a little later in every epoch. */
static uint64_t teeth_read_late(uint64_t step)
{
    uint64_t pass = step / PASS;

    return tooth(step) - (step % PASS == 0 && pass < 5 ? (5 - pass) * 2 * MB : 0);
}

/* One example in eight is retained forever. */
static uint64_t rising_teeth(uint64_t step)
{
    return tooth(step) + step * MB / 2;
}

/* Each epoch retains two thirds of the amount of the previous epoch. */
static uint64_t settling_teeth(uint64_t step)
{
    uint64_t kept = 0, more = 15 * MB;

    for (uint64_t pass = 0; pass < step / PASS; pass++) {
        kept += more;
        more = more * 2 / 3;
    }
    return tooth(step) + kept;
}

/* In this schedule only the first three epochs raise the baseline. */
static uint64_t scheduled_teeth(uint64_t step)
{
    uint64_t pass = step / PASS;

    return tooth(step) + (pass < 3 ? pass : 3) * 15 * MB;
}

/* The sawtooth has a period of 23 steps, independent of the epoch. */
static uint64_t other_teeth(uint64_t step)
{
    return 30 * MB + step % 23 * 5 * MB + step * MB / 2;
}

static uint64_t a_line(uint64_t step)
{
    return 300 * MB + step * MB / 2;
}

/* A spike of one step occurs every twenty steps. */
static uint64_t spikes(uint64_t step)
{
    return step % 20 == 0 && step > 20 ? 460 * MB : 210 * MB + step * 1000;
}

/* Memory has spikes of one step, and a permanent rise at step 120. */
static uint64_t spikes_and_a_step(uint64_t step)
{
    return step >= 120 ? 460 * MB : spikes(step);
}

static void sawtooth_on_a_rising_baseline_is_judged_leaking(void **state)
{
    (void)state;
    run(8 * PASS, true, rising_teeth);
    assert_int_equal(r.leak, VERDICT_LEAK_YES);
    assert_true(has_evidence(VERDICT_SAID_EPOCHS_RISE));
    assert_true(r.rate_bytes_per_step.known);
    assert_true(r.rate_bytes_per_step.value > 0.45e6 && r.rate_bytes_per_step.value < 0.55e6);
    assert_true(r.rate_bytes_per_min.value > 0.9 * 400 * 0.5e6);
    assert_false(r.growth_ended.known);
}

static void rising_sawtooth_of_a_running_job_is_a_leak_after_five_epochs(void **state)
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

static void sawtooth_on_a_level_baseline_is_judged_spiking(void **state)
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
    assert_true(has_evidence(VERDICT_SAID_EPOCHS_EQUAL));
    assert_false(r.growth_ended.known);
}

static void sawtooth_is_not_a_leak_if_the_baseline_stops_rising(void **state)
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

static void epochs_are_compared_only_if_memory_repeats_with_each_epoch(void **state)
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

static void evidence_text_distinguishes_rising_from_equal_epochs(void **state)
{
    char text[VERDICT_TEXT_MAX];
    struct verdict_evidence rises = {.code = VERDICT_SAID_EPOCHS_RISE,
                                     .value = {15 * 1048576.0, 4, 100 * 1048576.0, 1024}},
                            same = {.code = VERDICT_SAID_EPOCHS_EQUAL,
                                    .value = {4, 100 * 1048576.0}};

    (void)state;
    assert_string_equal(verdict_evidence_text(text, sizeof(text), &rises),
                        "memory at the same step of each epoch grows by 15 MiB per epoch (4 "
                        "epochs, spread 1.0 KiB), although each epoch releases 100 MiB");
    assert_string_equal(verdict_evidence_text(text, sizeof(text), &same),
                        "memory at the same step of each epoch is equal in all 4 epochs: "
                        "each epoch releases the 100 MiB that it adds");
}

static void series_that_ends_in_a_spike_is_judged_spiking_not_plateaued(void **state)
{
    (void)state;
    /* An envelope slot first holds one step, then two. */
    for (uint64_t steps = 100; steps <= 300; steps += 20) {
        fresh(NULL);
        run(steps, false, spikes);
        assert_int_equal(r.word, VERDICT_SPIKING);
    }
}

static void lasting_rise_among_spikes_is_judged_plateaued(void **state)
{
    (void)state;
    run(160, false, spikes_and_a_step);
    assert_true(r.floor_last_bytes > 400e6);
    assert_int_equal(r.word, VERDICT_PLATEAUED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sawtooth_on_a_rising_baseline_is_judged_leaking, fresh),
        cmocka_unit_test_setup(rising_sawtooth_of_a_running_job_is_a_leak_after_five_epochs, fresh),
        cmocka_unit_test_setup(sawtooth_on_a_level_baseline_is_judged_spiking, fresh),
        cmocka_unit_test_setup(sawtooth_is_not_a_leak_if_the_baseline_stops_rising, fresh),
        cmocka_unit_test_setup(epochs_are_compared_only_if_memory_repeats_with_each_epoch, fresh),
        cmocka_unit_test_setup(evidence_text_distinguishes_rising_from_equal_epochs, fresh),
        cmocka_unit_test_setup(series_that_ends_in_a_spike_is_judged_spiking_not_plateaued, fresh),
        cmocka_unit_test_setup(lasting_rise_among_spikes_is_judged_plateaued, fresh),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
