/* Tests the comparison of two runs by the confidence intervals of their verdicts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "present/report.h"

enum unit { step, minute };

/* LEAK is 1 for yes, 0 for no, -1 for unknown. HIGH below LOW means that there is no rate. */
static struct report run(enum verdict_word word, int leak, double low, double high, enum unit unit)
{
    struct report r = {.has_verdicts = true, .recorded.verdicts = {.has_job = true}};
    struct verdict_result *v = &r.recorded.verdicts.job.result;
    struct verdict_interval rate = {low <= high, (low + high) / 2, low, high};
    v->word = word;
    v->leak = leak < 0 ? VERDICT_LEAK_UNKNOWN : leak ? VERDICT_LEAK_YES : VERDICT_LEAK_NO;
    if (unit == step)
        v->rate_bytes_per_step = rate;
    else
        v->rate_bytes_per_min = rate;
    return r;
}

static void check(struct report before, struct report after, enum report_answer answer,
                  const char *word)
{
    struct comparison c;
    report_compare(&before, &after, &c);
    assert_int_equal(c.answer, answer);
    assert_non_null(strstr(c.sentence, word));
}

static void comparison_says_fixed_if_the_second_run_has_no_leak(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_STABLE, 0, -10, 10, step),
          ANSWER_FIXED, "worked");
    check(run(VERDICT_STEPPING, 1, 900, 1100, minute), run(VERDICT_SPIKING, 0, 0, 10, minute),
          ANSWER_FIXED, "worked");
}

static void comparison_says_partly_fixed_for_a_slower_leak(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_LEAKING, 1, 400, 600, step),
          ANSWER_LESS, "50 %");
}

static void comparison_says_same_for_overlapping_intervals(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_LEAKING, 1, 500, 950, step),
          ANSWER_SAME, "No measurable difference");
    /* The answer is "same" although the verdict words differ, because the first verdict was barely
     * certain. */
    check(run(VERDICT_LEAKING, 1, 5, 1100, step), run(VERDICT_STABLE, 0, -10, 10, step),
          ANSWER_SAME, "No measurable difference");
}

static void comparison_says_worse_for_a_faster_leak(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_LEAKING, 1, 1900, 2100, step),
          ANSWER_WORSE, "worse");
    check(run(VERDICT_STABLE, 0, -10, 10, step), run(VERDICT_LEAKING, 1, 1900, 2100, step),
          ANSWER_WORSE, "worse");
}

static void comparison_says_same_for_two_flat_runs(void **state)
{
    (void)state;
    check(run(VERDICT_STABLE, 0, 20, 30, step), run(VERDICT_STABLE, 0, -5, 5, step), ANSWER_SAME,
          "Neither");
    check(run(VERDICT_STABLE, 0, -5, 5, step), run(VERDICT_STABLE, 0, 20, 30, step), ANSWER_SAME,
          "Neither");
}

static void comparison_never_says_fixed_if_second_run_is_undecided(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_UNDECIDED, -1, -10, 10, step),
          ANSWER_UNKNOWN, "second run is undecided");
    check(run(VERDICT_FILLING, -1, 900, 1100, step), run(VERDICT_STABLE, 0, -10, 10, step),
          ANSWER_UNKNOWN, "first run is filling");
}

/* The growth may be a cache, which the first run filled in its first epoch as well. */
static void comparison_never_says_worse_for_first_epoch_growth(void **state)
{
    (void)state;
    check(run(VERDICT_STABLE, 0, -10, 10, step), run(VERDICT_FILLING, -1, 1900, 2100, step),
          ANSWER_UNKNOWN, "second run is filling");
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_FILLING, -1, 1900, 2100, step),
          ANSWER_UNKNOWN, "second run is filling");
}

static void comparison_says_same_for_a_small_difference_in_rates(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 1000, 1001, step), run(VERDICT_LEAKING, 1, 1030, 1031, step),
          ANSWER_SAME, "No measurable difference");
    check(run(VERDICT_LEAKING, 1, 1030, 1031, step), run(VERDICT_LEAKING, 1, 1000, 1001, step),
          ANSWER_SAME, "No measurable difference");
    check(run(VERDICT_LEAKING, 1, 1000, 1001, step), run(VERDICT_LEAKING, 1, 1100, 1101, step),
          ANSWER_WORSE, "worse");
}

static void comparison_never_says_fixed_if_second_run_is_too_short(void **state)
{
    static const int leaks[] = {-1, 0, 1};
    static const enum report_answer answers[] = {ANSWER_UNKNOWN, ANSWER_UNKNOWN, ANSWER_FIXED};
    static const char *const words[] = {"only 8 steps long", "not known to leak either", "worked"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct report before = run(VERDICT_LEAKING, 1, 900, 1100, step);
        before.has_early = true;
        before.early_word = VERDICT_FILLING;
        before.is_early_leak = leaks[i] > 0;
        memcpy(before.early_length, "8 steps", 8);
        check(before, run(VERDICT_STABLE, 0, -10, 10, step), answers[i], words[i]);
    }
}

static void runs_without_a_rate_are_not_compared(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_STABLE, 0, 1, 0, step),
          ANSWER_UNKNOWN, "second");
    check(run(VERDICT_LEAKING, 1, 1, 0, step), run(VERDICT_STABLE, 0, 0, 1, step), ANSWER_UNKNOWN,
          "first");
    check((struct report){0}, (struct report){0}, ANSWER_UNKNOWN, "Cannot compare");
}

static void rate_per_step_is_not_compared_with_rate_per_minute(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_STABLE, 0, 0, 10, minute),
          ANSWER_UNKNOWN, "per minute");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparison_says_fixed_if_the_second_run_has_no_leak),
        cmocka_unit_test(comparison_says_partly_fixed_for_a_slower_leak),
        cmocka_unit_test(comparison_says_same_for_overlapping_intervals),
        cmocka_unit_test(comparison_says_worse_for_a_faster_leak),
        cmocka_unit_test(comparison_says_same_for_two_flat_runs),
        cmocka_unit_test(comparison_never_says_fixed_if_second_run_is_undecided),
        cmocka_unit_test(comparison_never_says_worse_for_first_epoch_growth),
        cmocka_unit_test(comparison_says_same_for_a_small_difference_in_rates),
        cmocka_unit_test(comparison_never_says_fixed_if_second_run_is_too_short),
        cmocka_unit_test(runs_without_a_rate_are_not_compared),
        cmocka_unit_test(rate_per_step_is_not_compared_with_rate_per_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
