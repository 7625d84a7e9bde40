/* Whether a change helped, by the intervals of two verdicts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "present/report.h"

enum unit { step, minute };

/* LEAK: 1 yes, 0 no, -1 not known. A HIGH below LOW: no rate. */
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

static void a_leak_that_is_gone_is_fixed(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_STABLE, 0, -10, 10, step),
          ANSWER_FIXED, "worked");
    check(run(VERDICT_STEPPING, 1, 900, 1100, minute), run(VERDICT_SPIKING, 0, 0, 10, minute),
          ANSWER_FIXED, "worked");
}

static void a_smaller_leak_is_still_one(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_LEAKING, 1, 400, 600, step),
          ANSWER_LESS, "50 %");
}

static void intervals_that_overlap_show_nothing(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_LEAKING, 1, 500, 950, step),
          ANSWER_SAME, "No difference");
    /* not even if the words differ: the first was only just certain */
    check(run(VERDICT_LEAKING, 1, 5, 1100, step), run(VERDICT_STABLE, 0, -10, 10, step),
          ANSWER_SAME, "No difference");
}

static void a_faster_leak_is_worse(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_LEAKING, 1, 1900, 2100, step),
          ANSWER_WORSE, "worse");
    check(run(VERDICT_STABLE, 0, -10, 10, step), run(VERDICT_LEAKING, 1, 1900, 2100, step),
          ANSWER_WORSE, "worse");
}

static void of_two_flat_runs_neither_is_better(void **state)
{
    (void)state;
    check(run(VERDICT_STABLE, 0, 20, 30, step), run(VERDICT_STABLE, 0, -5, 5, step), ANSWER_SAME,
          "Neither");
    check(run(VERDICT_STABLE, 0, -5, 5, step), run(VERDICT_STABLE, 0, 20, 30, step), ANSWER_SAME,
          "Neither");
}

static void what_is_undecided_is_not_called_fixed(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_UNDECIDED, -1, -10, 10, step),
          ANSWER_UNKNOWN, "second run is undecided");
    check(run(VERDICT_FILLING, -1, 900, 1100, step), run(VERDICT_STABLE, 0, -10, 10, step),
          ANSWER_UNKNOWN, "first run is filling");
}

/* It may be a cache: the first run had a first pass too. */
static void what_grows_faster_in_its_first_pass_is_not_called_worse(void **state)
{
    (void)state;
    check(run(VERDICT_STABLE, 0, -10, 10, step), run(VERDICT_FILLING, -1, 1900, 2100, step),
          ANSWER_UNKNOWN, "second run is filling");
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_FILLING, -1, 1900, 2100, step),
          ANSWER_UNKNOWN, "second run is filling");
}

static void two_runs_of_one_program_are_no_change(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 1000, 1001, step), run(VERDICT_LEAKING, 1, 1030, 1031, step),
          ANSWER_SAME, "No difference");
    check(run(VERDICT_LEAKING, 1, 1030, 1031, step), run(VERDICT_LEAKING, 1, 1000, 1001, step),
          ANSWER_SAME, "No difference");
    check(run(VERDICT_LEAKING, 1, 1000, 1001, step), run(VERDICT_LEAKING, 1, 1100, 1101, step),
          ANSWER_WORSE, "worse");
}

static void a_run_too_short_to_show_the_leak_is_no_proof(void **state)
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

static void without_a_rate_there_is_no_test(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_STABLE, 0, 1, 0, step),
          ANSWER_UNKNOWN, "second");
    check(run(VERDICT_LEAKING, 1, 1, 0, step), run(VERDICT_STABLE, 0, 0, 1, step), ANSWER_UNKNOWN,
          "first");
    check((struct report){0}, (struct report){0}, ANSWER_UNKNOWN, "cannot be tested");
}

static void a_rate_by_step_is_not_compared_with_one_by_minute(void **state)
{
    (void)state;
    check(run(VERDICT_LEAKING, 1, 900, 1100, step), run(VERDICT_STABLE, 0, 0, 10, minute),
          ANSWER_UNKNOWN, "by the minute");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leak_that_is_gone_is_fixed),
        cmocka_unit_test(a_smaller_leak_is_still_one),
        cmocka_unit_test(intervals_that_overlap_show_nothing),
        cmocka_unit_test(a_faster_leak_is_worse),
        cmocka_unit_test(of_two_flat_runs_neither_is_better),
        cmocka_unit_test(what_is_undecided_is_not_called_fixed),
        cmocka_unit_test(what_grows_faster_in_its_first_pass_is_not_called_worse),
        cmocka_unit_test(two_runs_of_one_program_are_no_change),
        cmocka_unit_test(a_run_too_short_to_show_the_leak_is_no_proof),
        cmocka_unit_test(without_a_rate_there_is_no_test),
        cmocka_unit_test(a_rate_by_step_is_not_compared_with_one_by_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
