/* Tests the verdict as callers see it: readings of one series give a word with its evidence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>

#include "verdict/one_series.h"

/* Returns small deterministic noise from 0 to 7. */
static uint64_t noise(uint64_t i)
{
    return (i * 2654435761u >> 16) & 7;
}

/* Values that may be printed must be finite. */
static void assert_sane(void)
{
    char text[VERDICT_TEXT_MAX];

    assert_in_range(r.word, 0, VERDICT_WORDS - 1);
    assert_true(r.confidence >= 0 && r.confidence <= 1);
    assert_int_equal(r.leak, verdict_word_leak(r.word));
    assert_true(r.n_evidence > 0 && r.n_evidence <= VERDICT_EVIDENCE);
    if (r.rate_bytes_per_min.known) {
        assert_true(isfinite(r.rate_bytes_per_min.value));
        assert_true(r.rate_bytes_per_min.low <= r.rate_bytes_per_min.high);
    }
    if (r.oom.known && r.oom.has_t)
        assert_true(r.oom.eta_s_low <= r.oom.eta_s_high && r.oom.eta_s_low >= 0);
    for (uint32_t i = 0; i < r.n_evidence; i++)
        assert_true(strlen(verdict_evidence_text(text, sizeof(text), &r.evidence[i])) > 0);
}

static void judge(void)
{
    verdict_judge(&v, NULL, &r);
    assert_sane();
}

static void feed_line(size_t n, uint64_t start, uint64_t per_second)
{
    for (size_t i = 0; i < n; i++)
        verdict_update(&v, (int64_t)i * SECOND, start + per_second * i + noise(i) * MB / 10);
}

static void verdict_on_an_empty_series_is_undecided_with_a_reason(void **state)
{
    (void)state;
    judge();
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_true(has_evidence(VERDICT_SAID_EMPTY));
    assert_false(r.has_floor);
    assert_false(r.rate_bytes_per_min.known);
}

static void verdict_on_a_single_reading_is_undecided(void **state)
{
    (void)state;
    verdict_update(&v, 5, 100 * MB);
    judge();
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_true(has_evidence(VERDICT_SAID_FEW));
    assert_true(r.peak_bytes == 100e6);
}

static void constant_memory_is_judged_stable(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        verdict_update(&v, i * SECOND, 1000 * MB);
    judge();
    assert_int_equal(r.word, VERDICT_STABLE);
    assert_true(r.floor_first_bytes == r.floor_last_bytes);
}

static void zero_byte_readings_are_judged_undecided_unless_zero_is_valid(void **state)
{
    struct verdict_options o = {.zero_is_memory = true};

    (void)state;
    for (int i = 0; i < 100; i++)
        verdict_update(&v, i * SECOND, 0);
    judge();
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_int_equal(verdict_init(&v, &o), 0);
    for (int i = 0; i < 100; i++)
        verdict_update(&v, i * SECOND, 0);
    judge();
    assert_int_equal(r.word, VERDICT_STABLE);
}

static void readings_of_zero_bytes_at_exit_do_not_lower_the_baseline(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++)
        verdict_update(&v, i * SECOND, i < 290 ? 1000 * MB : 0);
    judge();
    assert_int_equal(r.word, VERDICT_STABLE);
    assert_true(r.floor_last_bytes == 1000e6);
}

static void readings_with_earlier_times_are_dropped_and_counted(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        verdict_update(&v, i * SECOND, 1000 * MB);
        if (i % 50 == 49)
            verdict_update(&v, (i - 40) * SECOND, 9000 * MB);
    }
    judge();
    assert_int_equal(r.word, VERDICT_STABLE);
    assert_true(has_evidence(VERDICT_SAID_BACKWARDS));
    assert_true(r.peak_bytes == 1000e6);
}

static void series_continues_after_the_clock_is_set_back_permanently(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++)
        verdict_update(&v, (1000000 + i) * SECOND, 1000 * MB);
    for (int i = 0; i < 300; i++)
        verdict_update(&v, i * SECOND, 1000 * MB);
    judge();
    assert_true(r.samples > 580);
    assert_int_equal(r.word, VERDICT_STABLE);
}

static void gap_of_hours_does_not_change_the_growth_rate(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++)
        verdict_update(&v, (i + (i > 1500 ? 36000 : 0)) * SECOND, 1000 * MB + (uint64_t)i * MB / 2);
    judge();
    assert_true(has_evidence(VERDICT_SAID_GAPS));
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_true(fabs(r.rate_bytes_per_min.value / 30e6 - 1) < 0.05);
}

static void verdict_has_only_finite_numbers_for_extreme_values_and_times(void **state)
{
    static const int64_t TIMES[] = {INT64_MIN, -1, 0, 1, INT64_MAX, INT64_MIN, INT64_MAX};
    static const uint64_t BYTES[] = {UINT64_MAX, 1, 0, UINT64_MAX - 1, 1ull << 63, 4096};
    struct verdict_limit limit = {true, UINT64_MAX, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < 4000; i++) {
        verdict_update(&v, TIMES[i % 7], BYTES[i % 6]);
        if (i % 11 == 0)
            mark(TIMES[(i + 3) % 7], (enum verdict_mark_kind)(i % VERDICT_MARK_KINDS),
                 i % 2 ? UINT64_MAX : i);
        if (i % 500 == 0) {
            verdict_judge(&v, &limit, &r);
            assert_sane();
        }
    }
    limit = (struct verdict_limit){true, 0, UINT64_MAX};
    verdict_judge(&v, &limit, &r);
    assert_sane();
}

static void readings_with_equal_times_give_a_valid_verdict(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        verdict_update(&v, 7, i * MB);
    judge();
    assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
}

static void verdict_options_out_of_range_are_refused(void **state)
{
    struct verdict_options bad[] = {
        {.alpha = -1}, {.alpha = (double)NAN}, {.warmup_s = -5}, {.material_fraction = 2}};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(verdict_init(&v, &bad[i]), -EINVAL);
}

static void long_linear_growth_is_judged_leaking_with_the_right_rate(void **state)
{
    (void)state;
    feed_line(3600, 2000 * MB, MB / 2);
    judge();
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_true(r.alarm);
    assert_true(fabs(r.rate_bytes_per_min.value / 30e6 - 1) < 0.05);
    assert_true(has_evidence(VERDICT_SAID_NO_MARKS));
    assert_true(r.confidence <= 0.8); /* Without marks, confidence is capped. */
}

static void early_growth_without_marks_is_undecided_but_has_decision_time(void **state)
{
    (void)state;
    feed_line(400, 2000 * MB, 5 * MB);
    judge();
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_true(has_evidence(VERDICT_SAID_EARLY));
    assert_true(r.forecast.known && r.forecast.has_t);
    assert_true(r.forecast.decided_at_s > 399);
}

static void time_to_the_limit_is_shorter_if_memory_has_peaks(void **state)
{
    struct verdict_limit limit = {true, 6000 * MB, 500 * MB};

    (void)state;
    for (uint64_t i = 0; i < 3600; i++)
        verdict_update(&v, (int64_t)i * SECOND,
                       2000 * MB + i * MB / 2 + (i % 200 < 5 ? 700 * MB : 0));
    verdict_judge(&v, &limit, &r);
    assert_sane();
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_true(r.oom.known && r.oom.has_t);
    /* The baseline would reach the limit in 3400 s, the peaks already in 2000 s. */
    assert_in_range((int)r.oom.eta_s_low, 1500, 2100);
    assert_in_range((int)r.oom.eta_s_high, 2000, 3700);
}

static void start_up_growth_that_flattens_is_judged_plateaued(void **state)
{
    (void)state;
    for (int i = 0; i < 3600; i++)
        verdict_update(&v, i * SECOND,
                       (uint64_t)(2e9 + 1e9 * -expm1(-i / 200.0)) + noise((uint64_t)i));
    judge();
    assert_int_equal(r.word, VERDICT_PLATEAUED);
    assert_true(r.growth_ended.known && r.growth_ended.has_t);
}

/* Most of the growth occurs in start-up. Later growth is less than half as large, but not
 * negligible. */
static void slow_growth_after_large_start_up_growth_may_be_a_leak(void **state)
{
    (void)state;
    for (int i = 0; i < 450; i++) {
        double up = i < 150 ? 300e6 * i / 150 : 300e6 + 130e6 * pow((i - 150) / 300.0, 0.6);

        verdict_update(&v, i * SECOND / 5, (uint64_t)up + 200000);
    }
    verdict_job_over(&v);
    judge();
    assert_int_not_equal(r.leak, VERDICT_LEAK_NO);
}

static void memory_with_temporary_spikes_is_judged_spiking(void **state)
{
    (void)state;
    for (int i = 0; i < 3600; i++)
        verdict_update(&v, i * SECOND, 1000 * MB + (i % 300 < 40 ? 600 * MB : 0));
    judge();
    assert_int_equal(r.word, VERDICT_SPIKING);
}

static void rise_back_to_an_earlier_level_is_not_judged_a_leak(void **state)
{
    (void)state;
    for (int i = 0; i < 5000; i++) {
        verdict_update(&v, i * SECOND, 1000 * MB + (uint64_t)(i % 1000) * MB);
        if (i > 1200 && i % 60 == 0) {
            judge();
            assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
        }
    }
}

static void fast_growth_after_a_flat_phase_is_judged_leaking_after_90_s(void **state)
{
    (void)state;
    for (int i = 0; i < 600; i++)
        verdict_update(&v, i * SECOND, 6000 * MB);
    for (int i = 0; i < 90; i++)
        verdict_update(&v, (600 + i) * SECOND, 6000 * MB + (uint64_t)i * 50 * MB);
    judge();
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_true(fabs(r.onset_s - 600) < 30);
}

static void small_growth_after_a_flat_phase_is_judged_undecided(void **state)
{
    (void)state;
    for (int i = 0; i < 600; i++)
        verdict_update(&v, i * SECOND, 6000 * MB + (i > 430 ? (uint64_t)(i - 430) * 4 * MB : 0));
    judge();
    assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
}

/* Adds STEPS steps of 2 s. Memory grows by PER_STEP bytes in each step until step END. */
static void feed_steps(uint64_t steps, uint64_t end, uint64_t per_step, uint64_t per_epoch)
{
    struct verdict_mark begin = {
        .kind = VERDICT_MARK_BEGIN, .has_step = true, .steps_per_epoch = per_epoch, .batch = 8};

    verdict_mark(&v, 0, &begin);
    for (uint64_t s = 1; s <= steps; s++) {
        int64_t t = (int64_t)s * 2 * SECOND;
        uint64_t y = 1000 * MB + (s < end ? s : end) * per_step;

        verdict_update(&v, t - SECOND, y);
        verdict_update(&v, t - 1, y);
        mark(t, VERDICT_MARK_STEP, s);
        if (per_epoch && s % per_epoch == 0)
            mark(t, VERDICT_MARK_EPOCH, s);
    }
}

static void filling_verdict_in_the_first_epoch_forecasts_maximum_memory(void **state)
{
    struct verdict_limit small = {true, 4000 * MB, 0};

    (void)state;
    feed_steps(60, 83, 100 * MB, 83);
    verdict_judge(&v, &small, &r);
    assert_sane();
    assert_int_equal(r.word, VERDICT_FILLING);
    assert_int_equal(r.leak, VERDICT_LEAK_UNKNOWN);
    assert_int_equal(r.forecast.decided_at_step, 83);
    assert_true(fabs(r.forecast.ceiling_bytes / 9300e6 - 1) < 0.03);
    assert_true(r.forecast.has_fits && !r.forecast.fits);
    assert_true(fabs(r.forecast.bytes_per_example / 12.5e6 - 1) < 0.05);
}

static void growth_before_the_end_of_the_first_epoch_is_not_a_leak(void **state)
{
    (void)state;
    for (uint64_t steps = 10; steps <= 83; steps += 3) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        feed_steps(steps, 1000, 100 * MB, 83);
        judge();
        assert_int_equal(r.word, VERDICT_FILLING);
    }
}

static void filling_verdict_just_after_the_epoch_has_a_decision_step(void **state)
{
    (void)state;
    feed_steps(83, 83, 100 * MB, 83);
    judge();
    assert_int_equal(r.word, VERDICT_FILLING);
    assert_true(has_evidence(VERDICT_SAID_EPOCH_JUST_ENDED));
    assert_in_range(r.forecast.decided_at_step, 84, 104);
    assert_true(r.forecast.decided_at_s > 83 * 2);
}

static void growth_that_ends_with_the_first_epoch_is_judged_plateaued(void **state)
{
    (void)state;
    feed_steps(249, 83, 100 * MB, 83);
    judge();
    assert_int_equal(r.word, VERDICT_PLATEAUED);
    assert_int_equal(r.growth_ended.step, 83);
    assert_int_equal(r.growth_ended.at, VERDICT_AT_FIRST_EPOCH);
}

static void evidence_names_the_evaluation_at_which_growth_ended(void **state)
{
    struct verdict_mark begin = {
        .kind = VERDICT_MARK_BEGIN, .has_step = true, .steps_per_epoch = 70, .batch = 8};

    (void)state;
    verdict_mark(&v, 0, &begin);
    for (uint64_t s = 1; s <= 600; s++) {
        verdict_update(&v, (int64_t)s * SECOND - 1, 1000 * MB + (s < 202 ? s : 202) * 10 * MB);
        mark((int64_t)s * SECOND, VERDICT_MARK_STEP, s);
        if (s % 20 == 0)
            mark((int64_t)s * SECOND, VERDICT_MARK_EVAL, s);
    }
    judge();
    assert_int_equal(r.word, VERDICT_PLATEAUED);
    assert_int_equal(r.growth_ended.at, VERDICT_AT_EVAL);
    assert_in_range(r.growth_ended.step, 195, 210);
    assert_string_equal(verdict_boundary_name(r.growth_ended.at), "an evaluation");
}

static void growth_that_continues_after_first_epoch_is_judged_leaking(void **state)
{
    (void)state;
    feed_steps(200, 1000, 100 * MB, 83);
    judge();
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_true(fabs(r.rate_bytes_per_step.value / 100e6 - 1) < 0.05);
}

static void early_growth_with_steps_but_no_epochs_is_judged_filling(void **state)
{
    (void)state;
    feed_steps(80, 1000, 100 * MB, 0);
    judge();
    assert_int_equal(r.word, VERDICT_FILLING);
    assert_true(has_evidence(VERDICT_SAID_EPOCH_UNKNOWN));
}

static void memory_rising_at_each_evaluation_is_judged_stepping(void **state)
{
    uint64_t level = 2000 * MB;

    (void)state;
    mark(0, VERDICT_MARK_BEGIN, 0);
    for (uint64_t s = 1; s <= 600; s++) {
        verdict_update(&v, (int64_t)s * SECOND - 1, level + noise(s) * 1000);
        mark((int64_t)s * SECOND, VERDICT_MARK_STEP, s);
        if (s % 50 == 0) {
            mark((int64_t)s * SECOND + 1, VERDICT_MARK_EVAL, s);
            level += 40 * MB;
        }
        if (s % 200 == 0)
            mark((int64_t)s * SECOND + 2, VERDICT_MARK_EPOCH, s);
    }
    judge();
    assert_int_equal(r.word, VERDICT_STEPPING);
    assert_int_equal(r.event, VERDICT_MARK_EVAL);
}

/* Steps take 1/8 s, and memory is sampled every 0.2 s. After every 25 steps, an evaluation takes
 * one second. After the last sample within an evaluation, the evaluation allocates 30 MB that are
 * never freed. */
static void growth_after_last_sample_of_evaluation_is_judged_stepping(void **state)
{
    int64_t t = 0, sampled = 0;
    uint64_t held = 500 * MB;

    (void)state;
    mark(0, VERDICT_MARK_BEGIN, 0);
    for (uint64_t step = 1; step <= 300; step++) {
        for (t += SECOND / 8; sampled <= t; sampled += SECOND / 5)
            verdict_update(&v, sampled, held);
        mark(t, VERDICT_MARK_STEP, step);
        if (step % 25)
            continue;
        for (t += SECOND; sampled <= t; sampled += SECOND / 5)
            verdict_update(&v, sampled, held);
        held += 30 * MB;
        mark(t, VERDICT_MARK_EVAL, step);
        if (step == 75)
            mark(t, VERDICT_MARK_EPOCH, step);
        t -= SECOND / 16; /* The next step ends before the next sample. */
    }
    judge();
    assert_int_equal(r.word, VERDICT_STEPPING);
    assert_int_equal(r.event, VERDICT_MARK_EVAL);
}

static void growth_only_at_frequent_events_is_judged_stepping(void **state)
{
    (void)state;
    for (int even = 0; even < 2; even++) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        mark(0, VERDICT_MARK_BEGIN, 0);
        for (uint64_t step = 1; step <= 140; step++) {
            uint64_t grown = even ? 2 * step : 14 * ((step - 1) / 7);

            verdict_update(&v, (int64_t)step * SECOND, (500 + grown) * MB + noise(step) * 1000);
            mark((int64_t)step * SECOND, VERDICT_MARK_STEP, step);
            if (step % 7 == 0)
                mark((int64_t)step * SECOND + 1, VERDICT_MARK_EVAL, step);
            if (step == 35)
                mark((int64_t)step * SECOND + 1, VERDICT_MARK_EPOCH, step);
        }
        judge();
        assert_int_equal(r.word, even ? VERDICT_LEAKING : VERDICT_STEPPING);
    }
}

/* The job has 100 slow steps of 4 s, then 300 steps of 1 s; each step adds 10 MB. */
static void time_to_the_limit_uses_the_latest_step_duration(void **state)
{
    const struct verdict_limit limit = {true, 10000 * MB, 0};
    int64_t t = 0;
    char text[VERDICT_TEXT_MAX];
    double room;

    (void)state;
    mark(0, VERDICT_MARK_BEGIN, 0);
    for (uint64_t step = 1; step <= 400; step++) {
        t += (step <= 100 ? 4 : 1) * SECOND;
        verdict_update(&v, t, (1000 + 10 * step) * MB);
        mark(t, VERDICT_MARK_STEP, step);
        if (step == 100)
            mark(t, VERDICT_MARK_EPOCH, step);
    }
    verdict_judge(&v, &limit, &r);
    assert_sane();
    assert_int_equal(r.word, VERDICT_LEAKING);
    room = (double)(5000 * MB);
    assert_true(r.oom.known && r.oom.has_t && r.oom.has_step);
    assert_true(r.oom.eta_s_low > 450 && r.oom.eta_s_low < 501);
    assert_true(r.oom.eta_s_high >= 499 && r.oom.eta_s_high < 550);
    assert_true(r.oom.eta_s_low <= room / r.rate_bytes_per_min.high * 60 + 1);
    assert_true(r.oom.eta_s_high >= room / r.rate_bytes_per_min.low * 60 - 1);
    for (uint32_t i = 0; i < r.n_evidence; i++)
        assert_null(strstr(verdict_evidence_text(text, sizeof text, &r.evidence[i]), " 0 B "));
}

static void evidence_and_result_agree_on_the_step_where_growth_ended(void **state)
{
    char text[VERDICT_TEXT_MAX], want[64];

    (void)state;
    for (uint64_t row = 0; row < 40; row++)
        verdict_update_step(&v, 5 * row, (600 + (row < 3 ? 300 * row : 900)) * MB);
    judge();
    assert_int_equal(r.word, VERDICT_PLATEAUED);
    assert_true(r.growth_ended.has_step);
    for (uint32_t i = 0; i < r.n_evidence; i++)
        if (r.evidence[i].code == VERDICT_SAID_ENDED) {
            verdict_evidence_text(text, sizeof text, &r.evidence[i]);
            snprintf(want, sizeof want, "stopped at step %llu ",
                     (unsigned long long)r.growth_ended.step);
            assert_non_null(strstr(text, want));
        }
    assert_true(has_evidence(VERDICT_SAID_ENDED));
}

static void verdict_on_a_step_table_has_rates_per_step_but_no_times(void **state)
{
    static const double ROWS[][2] = {{10, 4993}, {20, 6389}, {30, 8039}, {40, 9432}, {50, 9451},
                                     {60, 9462}, {70, 9473}, {80, 9503}, {90, 9539}, {100, 9566}};
    struct verdict_options o = {.steps_per_epoch = 38};

    (void)state;
    assert_int_equal(verdict_init(&v, &o), 0);
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++)
        verdict_update_step(&v, (uint64_t)ROWS[i][0], (uint64_t)(ROWS[i][1] * 1e6));
    judge();
    assert_int_equal(r.word, VERDICT_PLATEAUED);
    assert_int_equal(r.growth_ended.at, VERDICT_AT_FIRST_EPOCH);
    /* The residual growth is small, but reported. */
    assert_true(has_evidence(VERDICT_SAID_RESIDUAL));
    assert_false(r.rate_bytes_per_min.known);
    assert_true(r.rate_bytes_per_step.known);
    assert_false(r.growth_ended.has_t);
}

static void growing_step_table_is_judged_filling_and_then_leaking(void **state)
{
    struct verdict_options o = {.steps_per_epoch = 83};

    (void)state;
    assert_int_equal(verdict_init(&v, &o), 0);
    for (uint64_t step = 10; step <= 240; step += 10) {
        verdict_update_step(&v, step, 3500 * MB + step * 15 * MB);
        judge();
        /* Straight growth without noise is judged a leak at the second reading after the end of the
         * epoch. */
        if (step >= 30)
            assert_int_equal(r.word, step < 100 ? VERDICT_FILLING : VERDICT_LEAKING);
    }
}

static void readings_after_the_end_of_training_are_ignored(void **state)
{
    (void)state;
    feed_line(300, 1000 * MB, 0);
    mark(300 * SECOND, VERDICT_MARK_END, 0);
    for (int i = 301; i < 400; i++)
        verdict_update(&v, i * SECOND, 9000 * MB);
    judge();
    assert_int_equal(r.samples, 300);
}

static void computing_a_verdict_leaves_the_series_unchanged(void **state)
{
    static struct verdict_series copy;

    (void)state;
    feed_line(2000, 1000 * MB, MB);
    copy = v;
    judge();
    assert_memory_equal(&copy, &v, sizeof(v));
}

static void many_events_do_not_overflow_the_event_table(void **state)
{
    (void)state;
    for (uint64_t s = 1; s < 5000; s++) {
        verdict_update(&v, (int64_t)s * SECOND, 1000 * MB);
        mark((int64_t)s * SECOND, VERDICT_MARK_STEP, s);
        mark((int64_t)s * SECOND, VERDICT_MARK_EVAL, s);
        if (s % 3 == 0)
            mark((int64_t)s * SECOND, VERDICT_MARK_SAVE, s);
    }
    assert_true(v.n_events <= VERDICT_EVENTS);
    judge();
    assert_int_equal(r.word, VERDICT_STABLE);
}

static void tree_verdict_names_the_growing_process(void **state)
{
    struct verdict_result results[5];
    struct verdict_member members[5];
    struct verdict_tree_result tree;

    (void)state;
    for (int p = 0; p < 5; p++) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        feed_line(3600, 3000 * MB, p == 3 ? MB : 0);
        verdict_judge(&v, NULL, &results[p]);
        members[p] = (struct verdict_member){.result = &results[p],
                                             .role = p == 3,
                                             .rss_bytes = 3e9,
                                             .has_unique = p < 2,
                                             .unique_bytes = 1e8,
                                             .alive = true};
    }
    verdict_tree_judge(members, 5, NULL, &tree);
    assert_int_equal(tree.word, VERDICT_LEAKING);
    assert_true(tree.has_grower);
    assert_int_equal(tree.grower, 3);
    assert_int_equal(tree.n_flat, 1);
    assert_int_equal(tree.flat[0].count, 4);
    assert_true(tree.flat[0].rss_bytes == 12e9 && tree.flat[0].unique_bytes == 2e8);
    assert_int_equal(tree.flat[0].unique_known, 2);
}

static void tree_verdict_does_not_depend_on_the_order_of_members(void **state)
{
    static const double growth[4] = {1e6, 5e8, 0, 2e8};
    static const enum verdict_word word[4] = {VERDICT_UNDECIDED, VERDICT_LEAKING, VERDICT_PLATEAUED,
                                              VERDICT_LEAKING};
    struct verdict_result results[4] = {{0}};
    struct verdict_tree_result tree;

    (void)state;
    for (int i = 0; i < 4; i++)
        results[i] = (struct verdict_result){.word = word[i],
                                             .leak = verdict_word_leak(word[i]),
                                             .confidence = 0.5 + 0.1 * i,
                                             .has_floor = true,
                                             .floor_first_bytes = 1e9,
                                             .floor_last_bytes = 1e9 + growth[i]};
    for (int turn = 0; turn < 4; turn++) {
        struct verdict_member all[4], calm[2];

        for (int i = 0; i < 4; i++)
            all[i] = (struct verdict_member){
                .result = &results[(i + turn) % 4], .rss_bytes = 1e9, .alive = true};
        verdict_tree_judge(all, 4, NULL, &tree);
        assert_int_equal(tree.word, VERDICT_LEAKING);
        assert_true(tree.has_grower);
        assert_ptr_equal(all[tree.grower].result, &results[1]);
        /* The list contains a process with a verdict and one that has just started, in both orders.
         */
        for (int i = 0; i < 2; i++)
            calm[i] = (struct verdict_member){
                .result = &results[(i + turn) % 2 ? 2 : 0], .rss_bytes = 1e9, .alive = true};
        verdict_tree_judge(calm, 2, NULL, &tree);
        assert_int_equal(tree.word, VERDICT_PLATEAUED);
    }
}

/* The only process of the job grows at evaluations, but the sum over the tree also changes for
 * other reasons. */
static void tree_verdict_is_that_of_the_leaking_process(void **state)
{
    const struct verdict_result whole = {.word = VERDICT_LEAKING, .leak = VERDICT_LEAK_YES};
    struct verdict_result own = {.word = VERDICT_STEPPING, .leak = VERDICT_LEAK_YES};
    const struct verdict_member member = {.result = &own, .rss_bytes = 1e9, .alive = true};
    struct verdict_tree_result tree;

    (void)state;
    verdict_tree_judge(&member, 1, &whole, &tree);
    assert_int_equal(tree.word, VERDICT_STEPPING);
    assert_true(tree.has_grower);
    /* The sum over the tree leaks although no single process does. */
    own.word = VERDICT_FILLING;
    verdict_tree_judge(&member, 1, &whole, &tree);
    assert_int_equal(tree.word, VERDICT_LEAKING);
    assert_false(tree.has_grower);
}

static void verdict_of_an_empty_process_tree_is_undecided(void **state)
{
    struct verdict_tree_result tree;

    (void)state;
    verdict_tree_judge(NULL, 0, NULL, &tree);
    assert_int_equal(tree.word, VERDICT_UNDECIDED);
    assert_false(tree.has_grower);
}

#define TEST(f) cmocka_unit_test_setup(f, fresh)

/* Memory grows by 15 %, hidden by the noise of batches. */
static void large_growth_hidden_by_larger_noise_is_judged_undecided(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 40; i++)
        verdict_update(&v, (int64_t)i * SECOND, 130 * MB + i * MB / 2 + noise(i * 7) * 3 * MB);
    judge();
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_true(has_evidence(VERDICT_SAID_NOISE));
}

static void evidence_text_about_one_sample_uses_the_singular(void **state)
{
    struct verdict_evidence e = {.code = VERDICT_SAID_FEW, .value = {1, 8}};
    char text[VERDICT_TEXT_MAX];

    (void)state;
    assert_non_null(
        strstr(verdict_evidence_text(text, sizeof text, &e), "1 sample after start-up;"));
    e.value[0] = 2;
    assert_non_null(
        strstr(verdict_evidence_text(text, sizeof text, &e), "2 samples after start-up;"));
}

static void evidence_shows_a_relative_rate_only_if_epoch_rate_is_known(void **state)
{
    struct verdict_evidence e = {.code = VERDICT_SAID_AFTER_EPOCH, .value = {16, 31 << 20, 0, 1}};
    char text[VERDICT_TEXT_MAX];

    (void)state;
    assert_null(strstr(verdict_evidence_text(text, sizeof text, &e), "rate"));
    e.value[2] = 0.5;
    assert_non_null(strstr(verdict_evidence_text(text, sizeof text, &e),
                           " since, at 50 % of the epoch's rate"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(verdict_on_an_empty_series_is_undecided_with_a_reason),
        TEST(verdict_on_a_single_reading_is_undecided),
        TEST(constant_memory_is_judged_stable),
        TEST(zero_byte_readings_are_judged_undecided_unless_zero_is_valid),
        TEST(readings_of_zero_bytes_at_exit_do_not_lower_the_baseline),
        TEST(readings_with_earlier_times_are_dropped_and_counted),
        TEST(series_continues_after_the_clock_is_set_back_permanently),
        TEST(gap_of_hours_does_not_change_the_growth_rate),
        TEST(verdict_has_only_finite_numbers_for_extreme_values_and_times),
        TEST(readings_with_equal_times_give_a_valid_verdict),
        TEST(verdict_options_out_of_range_are_refused),
        TEST(long_linear_growth_is_judged_leaking_with_the_right_rate),
        TEST(early_growth_without_marks_is_undecided_but_has_decision_time),
        TEST(time_to_the_limit_is_shorter_if_memory_has_peaks),
        TEST(start_up_growth_that_flattens_is_judged_plateaued),
        TEST(slow_growth_after_large_start_up_growth_may_be_a_leak),
        TEST(memory_with_temporary_spikes_is_judged_spiking),
        TEST(rise_back_to_an_earlier_level_is_not_judged_a_leak),
        TEST(fast_growth_after_a_flat_phase_is_judged_leaking_after_90_s),
        TEST(small_growth_after_a_flat_phase_is_judged_undecided),
        TEST(filling_verdict_in_the_first_epoch_forecasts_maximum_memory),
        TEST(growth_before_the_end_of_the_first_epoch_is_not_a_leak),
        TEST(filling_verdict_just_after_the_epoch_has_a_decision_step),
        TEST(growth_that_ends_with_the_first_epoch_is_judged_plateaued),
        TEST(evidence_names_the_evaluation_at_which_growth_ended),
        TEST(growth_that_continues_after_first_epoch_is_judged_leaking),
        TEST(early_growth_with_steps_but_no_epochs_is_judged_filling),
        TEST(memory_rising_at_each_evaluation_is_judged_stepping),
        TEST(growth_after_last_sample_of_evaluation_is_judged_stepping),
        TEST(growth_only_at_frequent_events_is_judged_stepping),
        TEST(time_to_the_limit_uses_the_latest_step_duration),
        TEST(evidence_and_result_agree_on_the_step_where_growth_ended),
        TEST(verdict_on_a_step_table_has_rates_per_step_but_no_times),
        TEST(growing_step_table_is_judged_filling_and_then_leaking),
        TEST(readings_after_the_end_of_training_are_ignored),
        TEST(computing_a_verdict_leaves_the_series_unchanged),
        TEST(many_events_do_not_overflow_the_event_table),
        TEST(tree_verdict_names_the_growing_process),
        TEST(tree_verdict_does_not_depend_on_the_order_of_members),
        TEST(tree_verdict_is_that_of_the_leaking_process),
        TEST(verdict_of_an_empty_process_tree_is_undecided),
        TEST(large_growth_hidden_by_larger_noise_is_judged_undecided),
        TEST(evidence_text_about_one_sample_uses_the_singular),
        TEST(evidence_shows_a_relative_rate_only_if_epoch_rate_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
