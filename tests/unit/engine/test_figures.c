/* What of a series mark becomes a figure, and what stays a mark. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "engine/figures.h"

static bool hear(struct figures *f, int32_t pid, const char *text)
{
    struct mark m;
    assert_int_equal(mark_parse(text, strlen(text), &m), 0);
    m.pid = pid;
    return figures_take(f, &m);
}

static void a_name_and_its_value_are_a_figure_of_the_sender(void **state)
{
    struct figures f = {.count = 0};
    (void)state;
    assert_true(hear(&f, 7, "KIND=series\nNAME=heap_live_bytes\nVALUE=12\n"));
    assert_true(hear(&f, 8, "KIND=series\nNAME=heap_live_bytes\nVALUE=13\n"));
    assert_true(hear(&f, 0, "KIND=series\nNAME=heap_live_bytes\nVALUE=14\n"));
    assert_int_equal(f.count, 3);
    assert_string_equal(f.at[0].name, "heap_live_bytes@7");
    assert_string_equal(f.at[1].name, "heap_live_bytes@8");
    assert_string_equal(f.at[2].name, "heap_live_bytes");
    assert_int_equal(f.at[1].value, 13);
    assert_true(hear(&f, 7, "KIND=series\nNAME=heap_live_bytes\nVALUE=99\n"));
    assert_int_equal(f.count, 3);
    assert_int_equal(f.at[0].value, 99);
    assert_true(f.at[0].is_fresh);
}

static void several_in_one_mark_are_keys_of_their_own(void **state)
{
    struct figures f = {.count = 0};
    (void)state;
    assert_true(hear(&f, 7, "KIND=series\nSTEP=3\nRANK=0\nHEAP_LIVE_BYTES=5\nGC_COUNT_0=6\n"));
    assert_int_equal(f.count, 2);
    assert_string_equal(f.at[0].name, "heap_live_bytes@7");
    assert_string_equal(f.at[1].name, "gc_count_0@7");
    assert_int_equal(f.at[1].value, 6);
}

static void what_is_no_whole_number_stays_a_mark(void **state)
{
    struct figures f = {.count = 0};
    (void)state;
    assert_false(hear(&f, 7, "KIND=series\nNAME=loss\nVALUE=0.5\n"));
    assert_false(hear(&f, 7, "KIND=series\nNAME=loss\nVALUE=-1\n"));
    assert_false(hear(&f, 7, "KIND=series\nNAME=loss\n"));
    assert_false(hear(&f, 7, "KIND=series\nNAME=\nVALUE=3\n"));
    assert_false(hear(&f, 7,
                      "KIND=series\nNAME=0123456789012345678901234567890123456789012345678"
                      "\nVALUE=3\n"));
    assert_int_equal(f.count, 0);
    assert_false(hear(&f, 7, "KIND=series\nA=1\nB=many\n"));
    assert_int_equal(f.count, 1);
}

static void a_process_that_goes_makes_room(void **state)
{
    struct figures f = {.count = 0};
    char text[64];
    (void)state;
    for (unsigned i = 0; i < FIGURES_MAX; i++) {
        snprintf(text, sizeof text, "KIND=series\nNAME=f%u\nVALUE=1\n", i);
        assert_true(hear(&f, i % 2 ? 7 : 8, text));
    }
    assert_false(hear(&f, 9, "KIND=series\nNAME=more\nVALUE=1\n"));
    figures_forget(&f, 0);
    assert_int_equal(f.count, FIGURES_MAX);
    figures_forget(&f, 7);
    assert_int_equal(f.count, FIGURES_MAX / 2);
    assert_true(hear(&f, 9, "KIND=series\nNAME=more\nVALUE=1\n"));
    assert_int_equal(f.at[f.count - 1].id, FIGURES_MAX); /* no number is used again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_and_its_value_are_a_figure_of_the_sender),
        cmocka_unit_test(several_in_one_mark_are_keys_of_their_own),
        cmocka_unit_test(what_is_no_whole_number_stays_a_mark),
        cmocka_unit_test(a_process_that_goes_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
