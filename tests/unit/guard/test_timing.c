/* Tests the measured durations of steps and checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>

#include "base/clock.h"
#include "guard/timing.h"

static uint64_t at(double s)
{
    return (uint64_t)(s * 1e9);
}

static void assert_near(double a, double b)
{
    assert_true(fabs(a - b) < 1e-6);
}

static void steps_during_a_checkpoint_are_excluded_from_step_times(void **state)
{
    (void)state;
    struct timing t = {0};
    uint64_t ns;
    for (int i = 0; i < 4; i++)
        timing_step(&t, at(1 + i), i);
    timing_save_begin(&t, at(5), 100);
    timing_step(&t, at(6), 4);
    timing_save_end(&t, at(65));
    timing_step(&t, at(66), 5);
    assert_int_equal(t.steps.count, 3);
    timing_step(&t, at(67), 6);
    assert_int_equal(t.steps.count, 4);
    assert_true(step_times_median_ns(&t.steps, &ns));
    assert_int_equal(ns, NS_PER_S);
}

static void longest_checkpoint_time_and_largest_memory_rise_are_kept(void **state)
{
    (void)state;
    struct timing t = {0};
    timing_save_begin(&t, at(10), 1000);
    /* The second call is ignored, because a checkpoint is already being written. */
    timing_save_begin(&t, at(12), 5000);
    timing_memory(&t, 1700);
    timing_memory(&t, 900);
    timing_save_end(&t, at(14));
    assert_int_equal(t.saves, 1);
    assert_near(t.save_s, 4);
    assert_int_equal(t.save_rise_bytes, 700);
    timing_save_begin(&t, at(20), 3000);
    timing_memory(&t, 3100);
    timing_save_end(&t, at(21));
    assert_int_equal(t.saves, 2);
    assert_near(t.save_s, 4);
    assert_int_equal(t.save_rise_bytes, 700);
}

static void checkpoint_memory_excludes_growth_before_the_checkpoint(void **state)
{
    (void)state;
    struct timing t = {0};
    timing_memory(&t, 1u << 30);
    timing_save_end(&t, at(3));
    assert_int_equal(t.saves, 0);
    timing_save_begin(&t, at(4), 10);
    timing_save_end(&t, at(5));
    timing_save_end(&t, at(50));
    assert_int_equal(t.saves, 1);
    assert_near(t.save_s, 1);
    assert_int_equal(t.save_rise_bytes, 0);
}

static void failed_checkpoint_is_not_measured(void **state)
{
    (void)state;
    struct timing t = {0};
    timing_save_begin(&t, at(4), 10);
    timing_memory(&t, 1000);
    timing_save_failed(&t);
    timing_save_end(&t, at(100));
    assert_int_equal(t.saves, 0);
    assert_int_equal(t.save_rise_bytes, 0);
}

static void restart_keeps_step_times_and_drops_unfinished_checkpoint(void **state)
{
    (void)state;
    struct timing t = {0};
    uint64_t ns;
    for (int i = 0; i < 5; i++)
        timing_step(&t, at(1 + i), i);
    timing_save_begin(&t, at(10), 10);
    timing_save_end(&t, at(13));
    timing_save_begin(&t, at(20), 10);
    timing_segment(&t);
    timing_save_end(&t, at(900));
    timing_step(&t, at(901), 5);
    assert_int_equal(t.steps.count, 4);
    assert_near(t.save_s, 3);
    assert_true(step_times_median_ns(&t.steps, &ns));
    assert_int_equal(ns, NS_PER_S);
    timing_step(&t, at(902), 6);
    assert_int_equal(t.steps.count, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_during_a_checkpoint_are_excluded_from_step_times),
        cmocka_unit_test(longest_checkpoint_time_and_largest_memory_rise_are_kept),
        cmocka_unit_test(checkpoint_memory_excludes_growth_before_the_checkpoint),
        cmocka_unit_test(failed_checkpoint_is_not_measured),
        cmocka_unit_test(restart_keeps_step_times_and_drops_unfinished_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
