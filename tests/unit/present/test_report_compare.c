/* Whether a change helped, by the intervals of two verdicts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "present/report.h"

/* LEAK: 1 yes, 0 no, -1 not known. A HIGH below LOW: no rate. */
static json_t *run(const char *word, int leak, double low, double high, const char *rate)
{
    json_t *verdict = json_pack("{s:s,s:o}", "verdict", word, "leak",
                                leak < 0 ? json_null() : json_boolean(leak));
    if (low <= high)
        json_object_set_new(
            verdict, rate,
            json_pack("{s:f,s:f,s:f}", "value", (low + high) / 2, "low", low, "high", high));
    return json_pack("{s:{s:o}}", "verdict", "tree", verdict);
}

static void check(json_t *before, json_t *after, const char *answer, const char *word)
{
    json_t *o = report_compare(before, after);
    assert_non_null(o);
    assert_string_equal(json_string_value(json_object_get(o, "answer")), answer);
    assert_non_null(strstr(json_string_value(json_object_get(o, "sentence")), word));
    json_decref(o);
    json_decref(before);
    json_decref(after);
}

static const char step[] = "rate_bytes_per_step", minute[] = "rate_bytes_per_min";

static void a_leak_that_is_gone_is_fixed(void **state)
{
    (void)state;
    check(run("leaking", 1, 900, 1100, step), run("stable", 0, -10, 10, step), "fixed", "worked");
    check(run("stepping", 1, 900, 1100, minute), run("spiking", 0, 0, 10, minute), "fixed",
          "worked");
}

static void a_smaller_leak_is_still_one(void **state)
{
    (void)state;
    check(run("leaking", 1, 900, 1100, step), run("leaking", 1, 400, 600, step), "less", "50 %");
}

static void intervals_that_overlap_show_nothing(void **state)
{
    (void)state;
    check(run("leaking", 1, 900, 1100, step), run("leaking", 1, 500, 950, step), "same",
          "No difference");
    /* not even if the words differ: the first was only just certain */
    check(run("leaking", 1, 5, 1100, step), run("stable", 0, -10, 10, step), "same",
          "No difference");
}

static void a_faster_leak_is_worse(void **state)
{
    (void)state;
    check(run("leaking", 1, 900, 1100, step), run("leaking", 1, 1900, 2100, step), "worse",
          "worse");
    check(run("stable", 0, -10, 10, step), run("leaking", 1, 1900, 2100, step), "worse", "worse");
}

static void of_two_flat_runs_neither_is_better(void **state)
{
    (void)state;
    check(run("stable", 0, 20, 30, step), run("stable", 0, -5, 5, step), "same", "Neither");
    check(run("stable", 0, -5, 5, step), run("stable", 0, 20, 30, step), "same", "Neither");
}

static void what_is_undecided_is_not_called_fixed(void **state)
{
    (void)state;
    check(run("leaking", 1, 900, 1100, step), run("undecided", -1, -10, 10, step), "unknown",
          "second run is undecided");
    check(run("filling", -1, 900, 1100, step), run("stable", 0, -10, 10, step), "unknown",
          "first run is filling");
}

/* It may be a cache: the first run had a first pass too. */
static void what_grows_faster_in_its_first_pass_is_not_called_worse(void **state)
{
    (void)state;
    check(run("stable", 0, -10, 10, step), run("filling", -1, 1900, 2100, step), "unknown",
          "second run is filling");
    check(run("leaking", 1, 900, 1100, step), run("filling", -1, 1900, 2100, step), "unknown",
          "second run is filling");
}

static void two_runs_of_one_program_are_no_change(void **state)
{
    (void)state;
    check(run("leaking", 1, 1000, 1001, step), run("leaking", 1, 1030, 1031, step), "same",
          "No difference");
    check(run("leaking", 1, 1030, 1031, step), run("leaking", 1, 1000, 1001, step), "same",
          "No difference");
    check(run("leaking", 1, 1000, 1001, step), run("leaking", 1, 1100, 1101, step), "worse",
          "worse");
}

static void a_run_too_short_to_show_the_leak_is_no_proof(void **state)
{
    static const int leaks[] = {-1, 0, 1};
    static const char *const answers[] = {"unknown", "unknown", "fixed"};
    static const char *const words[] = {"only 8 steps long", "not known to leak either", "worked"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        json_t *before = run("leaking", 1, 900, 1100, step);
        json_t *early = run("filling", leaks[i], 900, 1100, step);
        json_object_set_new(early, "length", json_string("8 steps"));
        json_object_set_new(before, "early", early);
        check(before, run("stable", 0, -10, 10, step), answers[i], words[i]);
    }
}

static void without_a_rate_there_is_no_test(void **state)
{
    (void)state;
    check(run("leaking", 1, 900, 1100, step), run("stable", 0, 1, 0, step), "unknown", "second");
    check(run("leaking", 1, 1, 0, step), run("stable", 0, 0, 1, step), "unknown", "first");
    check(json_object(), json_object(), "unknown", "cannot be tested");
}

static void a_rate_by_step_is_not_compared_with_one_by_minute(void **state)
{
    json_t *a = run("leaking", 1, 900, 1100, step), *b = run("stable", 0, 0, 10, minute);
    (void)state;
    check(a, b, "unknown", "by the minute");
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
