/* Tests the parts of the verdict: envelope, fits, martingale, first passage, held-back readings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "verdict/envelope.h"
#include "verdict/fit.h"
#include "verdict/forecast.h"
#include "verdict/martingale.h"
#include "verdict/tail.h"

static uint64_t seed;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(seed >> 11) + 0.5) * 0x1p-53;
}

static double gauss(void)
{
    return sqrt(-2 * log(uniform())) * cos(2 * M_PI * uniform());
}

static void envelope_of_a_series_keeps_minimum_and_peak_at_any_length(void **state)
{
    static struct envelope e;
    double low = HUGE_VAL, high = 0;

    (void)state;
    seed = 1;
    e = (struct envelope){0};
    for (int i = 0; i < 300000; i++) {
        double y = 1000 + 500 * uniform();

        low = fmin(low, y);
        high = fmax(high, y);
        envelope_push(&e, i, 0, y);
        assert_true(e.count <= ENVELOPE_SLOTS);
    }
    for (uint32_t i = 0; i < e.count; i++) {
        assert_true(e.slot[i].y >= low);
        assert_true(e.slot[i].y + (double)e.slot[i].excess <= high + 0.01);
        if (i)
            assert_true(e.slot[i].x > e.slot[i - 1].x);
    }
    assert_true(e.count >= ENVELOPE_SLOTS / 4);
}

static void readings_before_and_after_a_time_gap_are_not_merged(void **state)
{
    static struct envelope e;

    (void)state;
    e = (struct envelope){0};
    for (int i = 0; i < 1000; i++)
        envelope_push(&e, i < 500 ? i : 1e6 + i, 0, i);
    for (uint32_t i = 1; i < e.count; i++)
        assert_true(floor((e.slot[i].x - e.origin) / e.width) >
                    floor((e.slot[i - 1].x - e.origin) / e.width));
}

static void readings_with_equal_times_share_one_envelope_slot(void **state)
{
    static struct envelope e;

    (void)state;
    e = (struct envelope){0};
    for (int i = 0; i < 1000; i++)
        envelope_push(&e, 5, 0, 1000 - i);
    assert_true(e.count < ENVELOPE_SLOTS);
    assert_true(e.slot[0].y <= 1000);
}

static void kth_smallest_value_is_found_among_equal_values(void **state)
{
    (void)state;
    seed = 7;
    for (int round = 0; round < 200; round++) {
        double a[97];
        size_t n = 1 + (size_t)(uniform() * 96), k = (size_t)(uniform() * (double)n), below = 0,
               equal = 0;
        double found;

        for (size_t i = 0; i < n; i++)
            a[i] = floor(uniform() * 10);
        found = fit_select(a, n, k);
        for (size_t i = 0; i < n; i++) {
            below += a[i] < found;
            equal += a[i] == found;
        }
        assert_true(below <= k && k < below + equal);
    }
    assert_true(fit_median(NULL, 0) == 0);
}

static void curve_fit_distinguishes_a_line_from_a_flattening_curve(void **state)
{
    double x[100], line[100], curve[100], both[100];
    struct fit_separation a, b, c;

    (void)state;
    seed = 3;
    for (int i = 0; i < 100; i++) {
        x[i] = i;
        line[i] = 1e9 + 1e6 * i + 1e5 * gauss();
        curve[i] = 1e9 + 1e8 * -expm1(-i / 25.0) + 1e5 * gauss();
        both[i] = curve[i] + 1e6 * i;
    }
    fit_separate(x, line, 100, 1e5, &a);
    fit_separate(x, curve, 100, 1e5, &b);
    fit_separate(x, both, 100, 1e5, &c);
    assert_true(a.bic_line < a.bic_end);
    assert_true(b.bic_end + 10 < b.bic_line);
    assert_int_equal(b.end_shape, FIT_EXP);
    assert_true(fabs(b.end_param / 0.25 - 1) < 0.1);
    assert_true(c.bic_both + 10 < fmin(c.bic_end, c.bic_line));
    assert_true(fabs(c.both_slope / 1e6 - 1) < 0.1);
}

static void theil_sen_slope_ignores_spikes(void **state)
{
    double x[60], y[60];
    struct fit_sen s;

    (void)state;
    seed = 5;
    for (int i = 0; i < 60; i++) {
        x[i] = i;
        y[i] = 100 + 2 * i + gauss() + (i % 7 == 3 ? 500 : 0);
    }
    assert_true(fit_theil_sen(x, y, 60, 60, 2, &s));
    assert_true(fabs(s.slope - 2) < 0.2);
    assert_true(s.low <= 2 && 2 <= s.high);
    assert_false(fit_theil_sen(x, y, 1, 1, 2, &s));
}

static void noise_estimate_ignores_a_trend(void **state)
{
    double x[128], y[128];

    (void)state;
    seed = 11;
    for (int i = 0; i < 128; i++) {
        x[i] = i;
        y[i] = 1000 * i + 10 * gauss();
    }
    assert_true(fabs(fit_noise(x, y, 128) / 10 - 1) < 0.4);
}

static void growth_test_rarely_raises_an_alarm_on_blocks_without_growth(void **state)
{
    int crossed = 0;

    (void)state;
    seed = 13;
    for (int run = 0; run < 3000; run++) {
        double y[ENVELOPE_SLOTS];

        for (int i = 0; i < ENVELOPE_SLOTS; i++)
            y[i] = gauss();
        for (size_t n = 8; n <= ENVELOPE_SLOTS; n += 4)
            if (martingale_log_wealth(y, n) >= log(1 / 0.05)) {
                crossed++;
                break;
            }
    }
    /* Ville's inequality allows at most 5 % at 1/alpha = 20. */
    assert_true(crossed <= 0.05 * 3000);
}

static void growth_test_raises_an_alarm_on_growing_blocks_only(void **state)
{
    double rise[ENVELOPE_SLOTS], late[ENVELOPE_SLOTS], constant[ENVELOPE_SLOTS];

    (void)state;
    for (int i = 0; i < ENVELOPE_SLOTS; i++) {
        rise[i] = i;
        late[i] = i < 100 ? 0 : i;
        constant[i] = 5;
    }
    assert_true(martingale_log_wealth(rise, ENVELOPE_SLOTS) > 50);
    assert_true(martingale_log_wealth(late, 110) > log(100));
    assert_true(martingale_log_wealth(constant, ENVELOPE_SLOTS) < 0);
    assert_true(martingale_log_threshold(0.01, 0, 0) > log(100));
}

static void inverse_gaussian_median_equals_the_simulated_median(void **state)
{
    double mean = 50, shape = 400, median = forecast_ig_quantile(0.5, mean, shape);
    int early = 0;

    (void)state;
    seed = 17;
    for (int run = 0; run < 2000; run++) {
        /* The drift is 1, the headroom 50, the variance per step 50^2 / 400. */
        double at = 0, t = 0, dt = 0.25;

        while (at < 50) {
            at += dt + sqrt(6.25 * dt) * gauss();
            t += dt;
        }
        early += t < median;
    }
    assert_true(fabs(early / 2000.0 - 0.5) < 0.06);
    assert_true(forecast_ig_cdf(0, mean, shape) == 0);
    assert_true(isfinite(forecast_ig_cdf(1e-3, 1e6, 1e9)));
}

static void time_to_the_limit_is_infinite_without_growth(void **state)
{
    struct forecast_oom a = forecast_first_passage(100, 0, 1, 0, 0, 0, 0);
    struct forecast_oom b = forecast_first_passage(-5, 1, 0.1, 0, 0, 0, 0);
    struct forecast_oom c = forecast_first_passage(100, 1, 0.9, 0, 0, 0, 0);

    (void)state;
    assert_true(isinf(a.low) && isinf(a.high));
    assert_true(b.low == 0 && b.high == 0);
    assert_true(isinf(c.high) && c.low < 100);
}

static const int64_t MS = 1000000;
static struct verdict_series series;
static struct tail tail;

/* Adds N readings of BYTES, STEP_MS apart, starting at *T. */
static void hold(int64_t *t, unsigned n, int64_t step_ms, uint64_t bytes)
{
    for (unsigned i = 0; i < n; i++, *t += step_ms * MS)
        tail_update(&tail, &series, *t, bytes);
}

static int fresh_tail(void **state)
{
    (void)state;
    tail = (struct tail){.count = 0};
    return verdict_init(&series, NULL);
}

static void last_readings_are_dropped_only_if_the_process_exits(void **state)
{
    int64_t t = 0;

    (void)state;
    hold(&t, 100, 200, 500);
    hold(&t, 10, 200, 300);
    /* At five readings per second, 3 s are held back. */
    assert_int_equal(series.samples, 110 - 15);
    assert_true(series.min_bytes > 499);
    struct verdict_series lives = series;
    struct tail same = tail;
    tail_release(&same, &lives);
    assert_int_equal(lives.samples, 110);
    tail_drop(&tail, &series);
    assert_int_equal(series.samples, 95);
    assert_int_equal(tail.count, 0);
}

static void number_of_readings_held_back_is_limited(void **state)
{
    int64_t t = 0;

    (void)state;
    hold(&t, 1000, 1, 500);
    assert_int_equal(series.samples, 1000 - TAIL_HELD);
    fresh_tail(state);
    hold(&t, 20, 10000, 500);
    assert_int_equal(series.samples, 19);
    tail_update(&tail, &series, t - 3600000 * MS, 500); /* the time goes backwards */
    assert_true(tail.count == 1 && series.samples == 20);
}

static void exit_detection_drops_at_most_half_of_a_short_series(void **state)
{
    int64_t t = 0;

    (void)state;
    hold(&t, 9, 200, 500);
    assert_int_equal(series.samples, 0);
    tail_drop(&tail, &series);
    assert_int_equal(series.samples, 5);
}

static void final_memory_drop_is_excluded_but_earlier_drops_are_kept(void **state)
{
    int64_t t = 0;

    (void)state;
    hold(&t, 50, 200, 1000);
    hold(&t, 1, 200, 1010);
    hold(&t, 2, 200, 980); /* The process exits in two stages. */
    hold(&t, 3, 200, 800);
    tail_end(&tail, &series);
    assert_int_equal(series.samples, 51);
    fresh_tail(state);
    for (int i = 0; i < 50; i++) {
        hold(&t, 1, 200, 1000);
        hold(&t, 1, 200, 500);
    }
    tail_end(&tail, &series);
    assert_int_equal(series.samples, 100);
    fresh_tail(state);
    hold(&t, 50, 10000, 1000);
    hold(&t, 1, 10000, 500); /* the readings are too sparse to recognize an exit */
    tail_end(&tail, &series);
    assert_int_equal(series.samples, 51);
    fresh_tail(state);
    hold(&t, 50, 1000, 1000);
    tail_release(&tail, &series);
    hold(&t, 1, 1000, 500); /* The last reading is lower than the dip before it. */
    assert_true(tail_all_falls(&tail));
    tail_end(&tail, &series);
    assert_int_equal(series.samples, 50);
}

/* Memory rises until the process begins to exit. The exit takes 7 s. Memory is mostly constant
 * during the exit, and higher than it was ten seconds earlier. */
static void slow_exit_is_dropped_from_a_table_but_not_from_a_live_series(void **state)
{
    int64_t t = 0;

    for (int is_table = 0; is_table < 2; is_table++) {
        assert_int_equal(fresh_tail(state), 0);
        tail.is_table = is_table;
        for (uint64_t i = 0; i < 300; i++)
            hold(&t, 1, 200, 1000 + 10 * i);
        hold(&t, 33, 200, 3700);
        hold(&t, 2, 200, 3600);
        tail_end(&tail, &series);
        /* A live series holds back fewer seconds of readings. Memory falls too little in these
         * seconds for the exit to be recognized, so the readings of the exit stay in the series. */
        assert_int_equal(series.samples, is_table ? 300 : 335);
    }
}

static void memory_dip_before_a_recovery_is_not_dropped(void **state)
{
    int64_t t = 0;

    (void)state;
    tail.is_table = true;
    hold(&t, 50, 200, 1000);
    hold(&t, 20, 200, 500);
    hold(&t, 2, 200, 1000);
    tail_end(&tail, &series);
    assert_int_equal(series.samples, 72);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(envelope_of_a_series_keeps_minimum_and_peak_at_any_length),
        cmocka_unit_test(readings_before_and_after_a_time_gap_are_not_merged),
        cmocka_unit_test(readings_with_equal_times_share_one_envelope_slot),
        cmocka_unit_test(kth_smallest_value_is_found_among_equal_values),
        cmocka_unit_test(curve_fit_distinguishes_a_line_from_a_flattening_curve),
        cmocka_unit_test(theil_sen_slope_ignores_spikes),
        cmocka_unit_test(noise_estimate_ignores_a_trend),
        cmocka_unit_test(growth_test_rarely_raises_an_alarm_on_blocks_without_growth),
        cmocka_unit_test(growth_test_raises_an_alarm_on_growing_blocks_only),
        cmocka_unit_test(inverse_gaussian_median_equals_the_simulated_median),
        cmocka_unit_test(time_to_the_limit_is_infinite_without_growth),
        cmocka_unit_test_setup(last_readings_are_dropped_only_if_the_process_exits, fresh_tail),
        cmocka_unit_test_setup(number_of_readings_held_back_is_limited, fresh_tail),
        cmocka_unit_test_setup(exit_detection_drops_at_most_half_of_a_short_series, fresh_tail),
        cmocka_unit_test_setup(final_memory_drop_is_excluded_but_earlier_drops_are_kept,
                               fresh_tail),
        cmocka_unit_test_setup(slow_exit_is_dropped_from_a_table_but_not_from_a_live_series,
                               fresh_tail),
        cmocka_unit_test_setup(memory_dip_before_a_recovery_is_not_dropped, fresh_tail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
