/* Tests how metrics are extracted from series marks. */
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

static void one_metric_is_stored_per_name_and_process(void **state)
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

static void unreserved_keys_of_a_series_mark_become_metrics(void **state)
{
    struct figures f = {.count = 0};
    (void)state;
    assert_true(receive(&f, 7, "KIND=series\nSTEP=3\nRANK=0\nHEAP_LIVE_BYTES=5\nGC_COUNT_0=6\n"));
    assert_int_equal(f.count, 2);
    assert_string_equal(f.at[0].name, "heap_live_bytes@7");
    assert_string_equal(f.at[1].name, "gc_count_0@7");
    assert_int_equal(f.at[1].value, 6);
}

static void each_name_value_pair_of_a_series_mark_becomes_a_metric(void **state)
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

static void metrics_added_by_ebb_do_not_replace_metrics_of_the_job(void **state)
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

static void series_mark_with_an_invalid_name_or_value_adds_no_metric(void **state)
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

static void metrics_of_an_exited_process_are_removed_to_make_room(void **state)
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
    /* Ids of removed metrics are never reused. */
    assert_int_equal(f.at[f.count - 1].id, FIGURES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_metric_is_stored_per_name_and_process),
        cmocka_unit_test(unreserved_keys_of_a_series_mark_become_metrics),
        cmocka_unit_test(each_name_value_pair_of_a_series_mark_becomes_a_metric),
        cmocka_unit_test(metrics_added_by_ebb_do_not_replace_metrics_of_the_job),
        cmocka_unit_test(series_mark_with_an_invalid_name_or_value_adds_no_metric),
        cmocka_unit_test(metrics_of_an_exited_process_are_removed_to_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
