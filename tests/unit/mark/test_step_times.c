/* Tests the measurement of step times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "mark/step_times.h"

static void add_steps(struct step_times *t, int from, int to, double step_s)
{
    for (int i = from; i < to; i++)
        step_times_mark(t, t->last_ns + (uint64_t)(step_s * 1e9), i);
}

static uint64_t median_ns(const struct step_times *t)
{
    uint64_t ns = 0;
    assert_true(step_times_median_ns(t, &ns));
    return ns;
}

static uint64_t slow_ns(const struct step_times *t)
{
    uint64_t ns = 0;
    assert_true(step_times_slow_ns(t, &ns));
    return ns;
}

static void step_times_have_no_90th_percentile_before_three_steps(void **state)
{
    (void)state;
    struct step_times t = {0};
    uint64_t ns = 7;
    add_steps(&t, 0, 1, 2);
    assert_false(step_times_median_ns(&t, &ns));
    add_steps(&t, 1, 3, 2);
    assert_int_equal(median_ns(&t), 2 * NS_PER_S);
    assert_false(step_times_slow_ns(&t, &ns));
    assert_int_equal(ns, 7);
    add_steps(&t, 3, 4, 2);
    assert_int_equal(slow_ns(&t), 2 * NS_PER_S);
}

static void time_between_marks_is_divided_equally_among_skipped_steps(void **state)
{
    (void)state;
    struct step_times t = {0};
    for (int i = 0; i < 5; i++)
        step_times_mark(&t, (uint64_t)(1 + 10 * i) * NS_PER_S, 5 * i);
    assert_int_equal(median_ns(&t), 2 * NS_PER_S);
}

static void step_sent_by_several_ranks_is_timed_only_once(void **state)
{
    (void)state;
    struct step_times t = {0};
    for (uint64_t i = 0; i < 6; i++)
        for (uint64_t rank = 0; rank < 4; rank++)
            step_times_mark(&t, (1 + i) * NS_PER_S + rank, (int64_t)i);
    assert_int_equal(t.count, 5);
    assert_int_equal(median_ns(&t), NS_PER_S);
}

static void step_with_a_lower_number_than_the_last_has_no_duration(void **state)
{
    (void)state;
    struct step_times t = {0};
    add_steps(&t, 100, 102, 1);
    add_steps(&t, 7, 8, 498);
    assert_int_equal(t.count, 1);
    add_steps(&t, 8, 9, 1);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.ns[1], NS_PER_S);
}

static void slow_evaluations_do_not_change_the_median_step_time(void **state)
{
    (void)state;
    struct step_times t = {0};
    for (int i = 0; i < 200; i++)
        add_steps(&t, i, i + 1, i % 8 == 0 ? 300 : 1); /* Four of the newest 32 steps are slow. */
    assert_int_equal(median_ns(&t), NS_PER_S);
    assert_int_equal(slow_ns(&t), 300 * NS_PER_S);
}

static void single_stalled_step_does_not_change_the_90th_percentile(void **state)
{
    (void)state;
    struct step_times t = {0};
    add_steps(&t, 0, 32, 1);
    add_steps(&t, 32, 33, 1000);
    assert_int_equal(slow_ns(&t), NS_PER_S);
}

static void step_times_are_forgotten_after_many_newer_steps(void **state)
{
    (void)state;
    struct step_times t = {0};
    add_steps(&t, 0, 60, 9);
    add_steps(&t, 60, 100, 1);
    assert_int_equal(slow_ns(&t), NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_times_have_no_90th_percentile_before_three_steps),
        cmocka_unit_test(time_between_marks_is_divided_equally_among_skipped_steps),
        cmocka_unit_test(step_sent_by_several_ranks_is_timed_only_once),
        cmocka_unit_test(step_with_a_lower_number_than_the_last_has_no_duration),
        cmocka_unit_test(slow_evaluations_do_not_change_the_median_step_time),
        cmocka_unit_test(single_stalled_step_does_not_change_the_90th_percentile),
        cmocka_unit_test(step_times_are_forgotten_after_many_newer_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
