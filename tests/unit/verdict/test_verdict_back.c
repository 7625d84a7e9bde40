/* Tests that memory returning to an earlier level is not growth, and that straight growth past the
 * first epoch is recognized from few readings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "verdict/judging.h"
#include "verdict/one_series.h"

static uint64_t a_line(uint64_t step)
{
    return 500 * MB + step * 2 * MB;
}

static uint64_t within_the_epoch_only(uint64_t step)
{
    return a_line(step < 60 ? step : 60);
}

/* Returns a view of N readings in MB, ten steps apart, with its baseline. */
static struct view view_of(const double *mb, size_t n)
{
    struct view w = {.n = n, .by_step = true};
    double low = HUGE_VAL;

    for (size_t i = n; i-- > 0;) {
        low = fmin(low, mb[i] * 1e6);
        w.x[i] = 10 * (double)i;
        w.y[i] = mb[i] * 1e6;
        w.low[i] = low;
    }
    w.now = w.x[n - 1];
    return w;
}
#define VIEW(...)                                                                                  \
    view_of((const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

static void memory_returning_to_earlier_level_does_not_count_as_growth(void **state)
{
    struct view dip = VIEW(270, 271, 271, 271, 271, 270, 270, 270, 267, 268, 270, 270, 270);
    struct view teeth = VIEW(530, 550, 570, 590, 600, 600, 600, 600, 530, 550, 570, 590, 600);

    (void)state;
    assert_true(judge_returned_to_level(&dip, 2.7e6));
    assert_true(judge_returned_to_level(&teeth, 5e6));
}

static void rise_above_all_earlier_lasting_levels_counts_as_growth(void **state)
{
    struct view beyond = VIEW(270, 271, 271, 271, 271, 270, 270, 270, 267, 269, 272, 275, 278);
    struct view spike = VIEW(270, 270, 290, 270, 270, 270, 270, 270, 270, 275, 280, 285, 290);
    struct view early = VIEW(300, 300, 300, 300, 240, 260, 270, 275, 280, 285, 290, 295, 298);

    (void)state;
    assert_false(judge_returned_to_level(&beyond, 2.7e6));
    /* a spike is not a level, because memory did not stay there */
    assert_false(judge_returned_to_level(&spike, 2.7e6));
    /* an early level is ignored if memory rises most of the time */
    assert_false(judge_returned_to_level(&early, 2.7e6));
}

/* Limits the baseline to at most MB megabytes, as if the rise since the last trough were not
 * confirmed yet. */
static void hold_at(struct view *w, double mb)
{
    for (size_t i = 0; i < w->n; i++)
        w->low[i] = fmin(w->low[i], mb * 1e6);
}

static void memory_falling_to_same_baseline_does_not_count_as_growth(void **state)
{
    struct view w = VIEW(308, 326, 345, 361, 381, 396, 412, 367, 367, 382, 382, 367, 378, 389, 400);

    (void)state;
    hold_at(&w, 367);
    assert_true(judge_same_baseline(&w, 7.7e6, 0.3 * 0.4e6));
}

static void rising_baseline_counts_as_growth_despite_garbage_collection(void **state)
{
    struct view w = VIEW(308, 326, 345, 361, 381, 396, 412, 357, 372, 387, 402, 382, 397, 412, 427);
    struct view noisy = VIEW(300, 350, 310, 380, 320, 345, 330, 360, 340, 390, 350, 372, 360, 400);

    (void)state;
    hold_at(&w, 382);
    hold_at(&noisy, 360);
    assert_false(judge_same_baseline(&w, 7.7e6, 0.3 * 0.5e6));
    assert_false(judge_same_baseline(&noisy, 7.7e6, 0.3 * 0.5e6));
}

static void linear_growth_past_the_epoch_is_a_leak_after_three_readings(void **state)
{
    (void)state;
    run_steps(79, 6, a_line); /* Memory is read at steps 66, 72 and 78. */
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_true(r.confidence >= 0.8);
}

static void growth_that_ends_with_the_first_epoch_is_not_a_leak(void **state)
{
    (void)state;
    for (uint64_t steps = 61; steps <= 120; steps++) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        run_steps(steps, 6, within_the_epoch_only);
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
    }
}

#define TEST(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(memory_returning_to_earlier_level_does_not_count_as_growth),
        TEST(rise_above_all_earlier_lasting_levels_counts_as_growth),
        TEST(memory_falling_to_same_baseline_does_not_count_as_growth),
        TEST(rising_baseline_counts_as_growth_despite_garbage_collection),
        TEST(linear_growth_past_the_epoch_is_a_leak_after_three_readings),
        TEST(growth_that_ends_with_the_first_epoch_is_not_a_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
