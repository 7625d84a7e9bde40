/* Tests how figures are read from series marks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "engine/figures.h"

static bool receive(struct figures *f, int32_t pid, const char *text)
{
    struct mark m;
    assert_int_equal(mark_parse(text, strlen(text), &m), 0);
    m.pid = pid;
    return figures_take(f, &m);
}

static void mark_with_a_name_and_a_value_is_stored_as_a_figure(void **state)
{
    struct figures f = {.count = 0};
    (void)state;
    assert_true(receive(&f, 7, "KIND=series\nNAME=heap_live_bytes\nVALUE=12\n"));
    assert_true(receive(&f, 8, "KIND=series\nNAME=heap_live_bytes\nVALUE=13\n"));
    assert_true(receive(&f, 0, "KIND=series\nNAME=heap_live_bytes\nVALUE=14\n"));
    assert_int_equal(f.count, 3);
    assert_string_equal(f.at[0].name, "heap_live_bytes@7");
    assert_string_equal(f.at[1].name, "heap_live_bytes@8");
    assert_string_equal(f.at[2].name, "heap_live_bytes");
    assert_int_equal(f.at[1].value, 13);
    assert_true(receive(&f, 7, "KIND=series\nNAME=heap_live_bytes\nVALUE=99\n"));
    assert_int_equal(f.count, 3);
    assert_int_equal(f.at[0].value, 99);
    assert_true(f.at[0].is_fresh);
}

static void each_key_of_a_series_mark_becomes_a_figure(void **state)
{
    struct figures f = {.count = 0};
    (void)state;
    assert_true(receive(&f, 7, "KIND=series\nSTEP=3\nRANK=0\nHEAP_LIVE_BYTES=5\nGC_COUNT_0=6\n"));
    assert_int_equal(f.count, 2);
    assert_string_equal(f.at[0].name, "heap_live_bytes@7");
    assert_string_equal(f.at[1].name, "gc_count_0@7");
    assert_int_equal(f.at[1].value, 6);
}

static void each_name_and_value_pair_of_a_mark_becomes_a_figure(void **state)
{
    struct figures f = {.count = 0};
    (void)state;
    assert_true(
        receive(&f, 7, "KIND=series\nNAME=container:a.b[…]\nVALUE=5\nVALUE=6\nNAME=c\nD=7\n"));
    assert_int_equal(f.count, 3);
    assert_string_equal(f.at[0].name, "container:a.b[…]@7");
    assert_int_equal(f.at[0].value, 5);
    assert_string_equal(f.at[1].name, "c@7");
    assert_int_equal(f.at[1].value, 6);
    assert_string_equal(f.at[2].name, "d@7");
}

static void figures_measured_by_ebb_and_by_the_job_are_both_stored(void **state)
{
    struct figures f = {.count = 0};
    (void)state;
    assert_true(receive(&f, 7, "KIND=series\nHEAP_LIVE_BYTES=5\n"));
    figures_put(&f, 7, "heap_sampled", UINT64_C(1) << 40);
    figures_put(&f, 8, "heap_sampled", 3);
    assert_int_equal(f.count, 3);
    assert_string_equal(f.at[1].name, "heap_sampled@7");
    assert_true(f.at[1].value == UINT64_C(1) << 40 && f.at[1].is_fresh);
}

static void mark_with_a_non_integer_value_does_not_become_a_figure(void **state)
{
    struct figures f = {.count = 0};
    (void)state;
    assert_false(receive(&f, 7, "KIND=series\nNAME=loss\nVALUE=0.5\n"));
    assert_false(receive(&f, 7, "KIND=series\nNAME=loss\nVALUE=-1\n"));
    assert_false(receive(&f, 7, "KIND=series\nNAME=loss\n"));
    assert_false(receive(&f, 7, "KIND=series\nNAME=\nVALUE=3\n"));
    assert_false(receive(&f, 7,
                         "KIND=series\nNAME=01234567890123456789012345678901234567890123456789"
                         "012345678901234567890123456789\nVALUE=3\n"));
    assert_int_equal(f.count, 0);
    assert_false(receive(&f, 7, "KIND=series\nA=1\nB=many\n"));
    assert_int_equal(f.count, 1);
}

static void figures_of_an_exited_process_are_replaced_by_new_ones(void **state)
{
    struct figures f = {.count = 0};
    char text[64];
    (void)state;
    for (unsigned i = 0; i < FIGURES_MAX; i++) {
        snprintf(text, sizeof text, "KIND=series\nNAME=f%u\nVALUE=1\n", i);
        assert_true(receive(&f, i % 2 ? 7 : 8, text));
    }
    assert_false(receive(&f, 9, "KIND=series\nNAME=more\nVALUE=1\n"));
    figures_forget(&f, 0);
    assert_int_equal(f.count, FIGURES_MAX);
    figures_forget(&f, 7);
    assert_int_equal(f.count, FIGURES_MAX / 2);
    assert_true(receive(&f, 9, "KIND=series\nNAME=more\nVALUE=1\n"));
    assert_int_equal(f.at[f.count - 1].id, FIGURES_MAX); /* Figure ids are never reused. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mark_with_a_name_and_a_value_is_stored_as_a_figure),
        cmocka_unit_test(each_key_of_a_series_mark_becomes_a_figure),
        cmocka_unit_test(each_name_and_value_pair_of_a_mark_becomes_a_figure),
        cmocka_unit_test(figures_measured_by_ebb_and_by_the_job_are_both_stored),
        cmocka_unit_test(mark_with_a_non_integer_value_does_not_become_a_figure),
        cmocka_unit_test(figures_of_an_exited_process_are_replaced_by_new_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
