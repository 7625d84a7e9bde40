/* What to do, with the figures of the run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "diagnose/advice.h"
#include "diagnose/tale.h"

static const struct advice *advised(struct advice list[ADVICE_MAX], enum hypothesis_id because)
{
    size_t n = advice_make(&s.question, s.ranked, list);
    for (size_t i = 0; i < n; i++)
        if (list[i].because == because)
            return &list[i];
    return NULL;
}

static void advice_has_the_figures_of_this_run(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    it_stops_after(50);
    story_ask(&s, HYPOTHESIS_FIRST_TOUCH);
    const struct advice *a = advised(list, HYPOTHESIS_FIRST_TOUCH);
    assert_non_null(a);
    assert_string_equal(a->effect, "400 MiB less");
}

static void of_a_cache_that_is_full_who_keeps_it_is_not_asked(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    it_stops_after(50);
    story_row(&s, "/job/collate.py", MIB(10), MIB(410), VERDICT_PLATEAUED);
    story_ask(&s, HYPOTHESIS_FIRST_TOUCH);
    assert_non_null(advised(list, HYPOTHESIS_FIRST_TOUCH));
    assert_null(advised(list, HYPOTHESIS_CALL_SITE));
}

static void a_buffer_that_fills_is_told_to_be_one(void **state)
{
    (void)state;
    struct advice list[ADVICE_MAX];
    it_leaks();
    story_row(&s, "/job/replay.py", MIB(900), MIB(900), VERDICT_STABLE);
    s.rows[0].live_objects = 1;
    story_ask(&s, HYPOTHESIS_FIRST_TOUCH);
    const struct advice *a = advised(list, HYPOTHESIS_FIRST_TOUCH);
    assert_non_null(a);
    assert_non_null(strstr(a->what, "900 MiB was asked for at once"));
}

static void a_leak_with_a_limit_and_a_length_gets_a_restart(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    it_leaks();
    s.f.limit_bytes = MIB(2000);
    s.f.max_steps = 5000;
    story_ask(&s, HYPOTHESIS_CALL_SITE);
    size_t n = advice_make(&s.question, s.ranked, list);
    bool is_there = false;
    for (size_t i = 0; i < n; i++)
        is_there = is_there || strstr(list[i].what, "--restart-every 1100steps");
    assert_true(is_there);
}

static void a_cleanup_that_frees_nothing_is_to_be_removed(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    it_leaks();
    s.f.cleanup = (struct marks_cleanup){.count = 19, .freed_bytes = MIB(1), .cost_s = 3.8};
    story_ask(&s, HYPOTHESIS_CALL_SITE);
    size_t n = advice_make(&s.question, s.ranked, list);
    assert_true(n > 0);
    assert_string_equal(list[n - 1].what,
                        "remove the cleanup: 19 times freed 1.00 MiB in all and took 2.0 % of the "
                        "time");
}

static void where_nothing_tells_the_advice_is_to_measure(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    it_leaks();
    s.processes[0].role = ROLE_OTHER;
    story_ask(&s, HYPOTHESIS_CALL_SITE);
    assert_true(advice_make(&s.question, s.ranked, list) >= 2);
    assert_non_null(strstr(list[0].what, "ebb run"));
    assert_string_equal(list[0].effect, "");
}

#define T(f) cmocka_unit_test_setup_teardown(f, tale_begin, tale_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(advice_has_the_figures_of_this_run),
        T(of_a_cache_that_is_full_who_keeps_it_is_not_asked),
        T(a_buffer_that_fills_is_told_to_be_one),
        T(a_leak_with_a_limit_and_a_length_gets_a_restart),
        T(a_cleanup_that_frees_nothing_is_to_be_removed),
        T(where_nothing_tells_the_advice_is_to_measure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
