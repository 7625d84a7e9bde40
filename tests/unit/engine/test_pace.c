/* Tests the scheduling of samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "engine/pace.h"

static void cheap_samples_are_due_at_the_requested_interval(void **state)
{
    struct pace p = pace_of(10 * NS_PER_S, 100);
    (void)state;
    assert_true(pace_due(&p, 0));
    pace_done(&p, 100 * NS_PER_S, 50 * NS_PER_US);
    assert_false(pace_due(&p, 105 * NS_PER_S));
    assert_true(pace_due(&p, 110 * NS_PER_S));
}

static void expensive_samples_are_due_later_than_the_requested_interval(void **state)
{
    struct pace p = pace_of(NS_PER_S, 100); /* 1 % of a CPU */
    (void)state;
    pace_done(&p, 0, 100 * NS_PER_MS); /* A sample that takes 100 ms is due every 10 s. */
    assert_false(pace_due(&p, 9 * NS_PER_S));
    assert_true(pace_due(&p, 10 * NS_PER_S));
}

static void sample_is_due_two_milliseconds_before_the_period_ends(void **state)
{
    struct pace p = pace_of(NS_PER_S, 100);
    (void)state;
    pace_done(&p, 10 * NS_PER_S, 0);
    assert_true(pace_due(&p, 11 * NS_PER_S - 2 * NS_PER_MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cheap_samples_are_due_at_the_requested_interval),
        cmocka_unit_test(expensive_samples_are_due_later_than_the_requested_interval),
        cmocka_unit_test(sample_is_due_two_milliseconds_before_the_period_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
