/* Tests that straight growth past the end of the first epoch is soon judged as a leak, unlike
 * growth that bends there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "verdict/one_series.h"

enum { PASS = 60 };

static void run(uint64_t steps, unsigned reads, uint64_t (*bytes)(uint64_t step))
{
    assert_int_equal(verdict_init(&v, NULL), 0);
    run_steps(steps, reads, bytes);
}

/* Returns deterministic noise of a few MB from step to step. */
static uint64_t jitter(uint64_t step)
{
    return step * 7919 % 5 * MB / 8;
}

static uint64_t little_by_little(uint64_t step)
{
    return 800 * MB + step * MB / 2;
}

static uint64_t with_jitter(uint64_t step)
{
    return 800 * MB + step * MB / 2 + jitter(step);
}

static uint64_t within_the_epoch_only(uint64_t step)
{
    return with_jitter(step < PASS ? step : PASS) - jitter(step < PASS ? step : PASS) +
           jitter(step);
}

static uint64_t a_third_after_it(uint64_t step)
{
    return step <= PASS ? with_jitter(step) : with_jitter(PASS) + (step - PASS) * MB / 6;
}

static uint64_t a_curve_that_bends(uint64_t step)
{
    return 800 * MB + 60 * MB * step / (step + PASS) + jitter(step) / 4;
}

/* Growth since the end of the epoch is only 7 MB. The threshold of 20 MB applies to growth since
 * the start. */
static void small_growth_after_epoch_is_a_leak_if_all_growth_is_linear(void **state)
{
    (void)state;
    run(75, 1, little_by_little);
    assert_int_equal(r.word, VERDICT_LEAKING);
    run(75, 1, with_jitter);
    assert_int_equal(r.word, VERDICT_LEAKING);
}

static void linear_growth_is_judged_a_leak_2_readings_after_first_epoch(void **state)
{
    (void)state;
    run(73, 6, little_by_little); /* Memory is read at steps 66 and 72. */
    assert_int_equal(r.word, VERDICT_LEAKING);
}

static void linear_growth_is_not_a_leak_right_after_the_first_epoch(void **state)
{
    (void)state;
    for (uint64_t steps = 20; steps <= 68; steps++) {
        run(steps, 1, with_jitter);
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
    }
}

static void growth_that_flattens_before_the_epoch_end_is_not_a_leak(void **state)
{
    (void)state;
    for (uint64_t steps = 61; steps <= 90; steps++) {
        run(steps, 1, within_the_epoch_only);
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
        run(steps, 1, a_third_after_it);
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
        run(steps, 1, a_curve_that_bends);
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_growth_after_epoch_is_a_leak_if_all_growth_is_linear),
        cmocka_unit_test(linear_growth_is_judged_a_leak_2_readings_after_first_epoch),
        cmocka_unit_test(linear_growth_is_not_a_leak_right_after_the_first_epoch),
        cmocka_unit_test(growth_that_flattens_before_the_epoch_end_is_not_a_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
