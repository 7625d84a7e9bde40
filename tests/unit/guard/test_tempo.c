/* How long steps and checkpoints take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>

#include "base/clock.h"
#include "guard/tempo.h"

static uint64_t at(double s)
{
    return (uint64_t)(s * 1e9);
}

static void assert_near(double a, double b)
{
    assert_true(fabs(a - b) < 1e-6);
}

static void the_time_of_a_save_is_not_a_steps(void **state)
{
    (void)state;
    struct tempo t = {0};
    uint64_t ns;
    for (int i = 0; i < 4; i++)
        tempo_step(&t, at(1 + i), i);
    tempo_save_begin(&t, at(5), 100);
    tempo_step(&t, at(6), 4); /* one comes while it is being written */
    tempo_save_end(&t, at(65));
    tempo_step(&t, at(66), 5);
    assert_int_equal(t.steps.count, 3);
    tempo_step(&t, at(67), 6);
    assert_int_equal(t.steps.count, 4);
    assert_true(step_times_median_ns(&t.steps, &ns));
    assert_int_equal(ns, NS_PER_S);
}

static void the_longest_save_and_the_largest_rise_are_kept(void **state)
{
    (void)state;
    struct tempo t = {0};
    tempo_save_begin(&t, at(10), 1000);
    tempo_save_begin(&t, at(12), 5000); /* it has begun already */
    tempo_memory(&t, 1700);
    tempo_memory(&t, 900);
    tempo_save_end(&t, at(14));
    assert_int_equal(t.saves, 1);
    assert_near(t.save_s, 4);
    assert_int_equal(t.save_rise_bytes, 700);
    tempo_save_begin(&t, at(20), 3000);
    tempo_memory(&t, 3100);
    tempo_save_end(&t, at(21));
    assert_int_equal(t.saves, 2);
    assert_near(t.save_s, 4);
    assert_int_equal(t.save_rise_bytes, 700);
}

static void memory_outside_a_save_and_an_end_without_a_begin_are_nothing(void **state)
{
    (void)state;
    struct tempo t = {0};
    tempo_memory(&t, 1u << 30);
    tempo_save_end(&t, at(3));
    assert_int_equal(t.saves, 0);
    tempo_save_begin(&t, at(4), 10);
    tempo_save_end(&t, at(5));
    tempo_save_end(&t, at(50));
    assert_int_equal(t.saves, 1);
    assert_near(t.save_s, 1);
    assert_int_equal(t.save_rise_bytes, 0);
}

static void a_failed_save_counts_for_nothing(void **state)
{
    (void)state;
    struct tempo t = {0};
    tempo_save_begin(&t, at(4), 10);
    tempo_memory(&t, 1000);
    tempo_save_failed(&t);
    tempo_save_end(&t, at(100));
    assert_int_equal(t.saves, 0);
    assert_int_equal(t.save_rise_bytes, 0);
}

static void a_new_segment_keeps_what_was_measured_and_drops_what_was_under_way(void **state)
{
    (void)state;
    struct tempo t = {0};
    uint64_t ns;
    for (int i = 0; i < 5; i++)
        tempo_step(&t, at(1 + i), i);
    tempo_save_begin(&t, at(10), 10);
    tempo_save_end(&t, at(13));
    tempo_save_begin(&t, at(20), 10);
    tempo_segment(&t);
    tempo_save_end(&t, at(900));
    tempo_step(&t, at(901), 5);
    assert_int_equal(t.steps.count, 4);
    assert_near(t.save_s, 3);
    assert_true(step_times_median_ns(&t.steps, &ns));
    assert_int_equal(ns, NS_PER_S);
    tempo_step(&t, at(902), 6);
    assert_int_equal(t.steps.count, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_time_of_a_save_is_not_a_steps),
        cmocka_unit_test(the_longest_save_and_the_largest_rise_are_kept),
        cmocka_unit_test(memory_outside_a_save_and_an_end_without_a_begin_are_nothing),
        cmocka_unit_test(a_failed_save_counts_for_nothing),
        cmocka_unit_test(a_new_segment_keeps_what_was_measured_and_drops_what_was_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
