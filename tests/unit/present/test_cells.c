/* Tests short numbers, the priority of columns, and sparklines. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "present/cells.h"
#include "present/chart.h"

static void short_size_text_fits_in_five_columns(void **state)
{
    char out[CELL_MAX];
    (void)state;
    assert_string_equal(cell_size(out, 0), "0");
    assert_string_equal(cell_size(out, 5), "5B");
    assert_string_equal(cell_size(out, 1023), "1023B");
    assert_string_equal(cell_size(out, 312 << 10), "312K");
    assert_string_equal(cell_size(out, UINT64_C(1331439862)), "1.24G");
    for (int shift = 0; shift < 64; shift++)
        assert_true(strlen(cell_size(out, (UINT64_C(1) << shift) - 1)) <= 5);
    assert_true(strlen(cell_size(out, UINT64_MAX)) <= 5);
}

static void size_cell_shows_dash_if_unknown_and_tilde_if_stale(void **state)
{
    char out[CELL_MAX];
    struct frame_bytes v = {.known = false, .stale = true};
    (void)state;
    assert_string_equal(cell_bytes(out, &v), "–");
    v = (struct frame_bytes){.known = true, .stale = true, .bytes = 1 << 20};
    assert_string_equal(cell_bytes(out, &v), "~1.00M");
    v = (struct frame_bytes){.known = true};
    assert_string_equal(cell_bytes(out, &v), "0");
}

static void rate_has_a_sign_unless_zero_and_is_a_dash_if_unknown(void **state)
{
    char out[CELL_MAX];
    (void)state;
    assert_string_equal(cell_rate(out, true, 98.0 * (1 << 20)), "+98.0M");
    assert_string_equal(cell_rate(out, true, -3 * 1024.0), "-3.00K");
    assert_string_equal(cell_rate(out, true, 0.3), "0");
    assert_string_equal(cell_rate(out, false, 5), "–");
    assert_string_equal(cell_rate_text(out, 98.0 * (1 << 20)), "+98.0 MiB/min");
}

static void nan_and_huge_rates_are_printable(void **state)
{
    char out[CELL_MAX];
    (void)state;
    assert_string_equal(cell_rate(out, true, (double)NAN), "0");
    assert_true(strlen(cell_rate(out, true, (double)INFINITY)) <= 7);
    assert_true(strlen(cell_rate(out, true, -(double)INFINITY)) <= 7);
}

static void short_role_name_is_first_word_of_the_role(void **state)
{
    char out[CELL_MAX];
    (void)state;
    assert_string_equal(cell_role(out, "compile worker", true), "compile");
    assert_string_equal(cell_role(out, "compile worker", false), "compile worker");
    assert_string_equal(cell_role(out, "main", true), "main");
}

static void narrow_table_hides_least_important_columns_first(void **state)
{
    struct cell_column c[] = {
        {"PID", 8, 1, false}, {"B", 10, 3, false}, {"C", 6, 2, false}, {"NONE", 6, 0, false}};
    (void)state;
    assert_int_equal(cell_columns_fit(c, 4, 100, 10), 24);
    assert_true(c[0].is_shown && c[1].is_shown && c[2].is_shown && !c[3].is_shown);
    assert_int_equal(cell_columns_fit(c, 4, 33, 10), 14);
    assert_true(c[0].is_shown && !c[1].is_shown && c[2].is_shown);
    assert_int_equal(cell_columns_fit(c, 4, 17, 10), 0);
    assert_false(c[0].is_shown);
    assert_int_equal(cell_columns_fit(c, 4, 0, 10), 0);
}

static void sparkline_is_scaled_from_minimum_to_maximum(void **state)
{
    const uint64_t v[] = {100, 200, 300, 400, 500, 600, 700, 800};
    char out[SPARK_TEXT_MAX];
    (void)state;
    assert_string_equal(spark_text(out, v, 8, 8, false), "▁▂▃▄▅▆▇█");
    assert_string_equal(spark_text(out, v, 8, 8, true), "_.-:=+*#");
}

static void sparkline_shows_the_newest_value_at_the_right(void **state)
{
    const uint64_t v[] = {900, 100, 200};
    char out[SPARK_TEXT_MAX];
    (void)state;
    assert_string_equal(spark_text(out, v, 3, 2, true), "_#");
    assert_string_equal(spark_text(out, v, 3, 5, true), "  #_.");
    assert_string_equal(spark_text(out, v, 0, 3, true), "   ");
}

static void sparkline_of_tiny_fluctuations_is_flat(void **state)
{
    const uint64_t flat[] = {1000000, 1000400, 1000000, 1000400};
    const uint64_t same[] = {7, 7, 7};
    const uint64_t zero[] = {0, 0, 0};
    char out[SPARK_TEXT_MAX];
    (void)state;
    assert_string_equal(spark_text(out, flat, 4, 4, true), "____");
    assert_string_equal(spark_text(out, same, 3, 3, true), "___");
    assert_string_equal(spark_text(out, zero, 3, 3, true), "___");
}

static void sparkline_of_the_largest_64_bit_numbers_does_not_overflow(void **state)
{
    const uint64_t v[] = {0, UINT64_MAX, UINT64_MAX / 2};
    char text[SPARK_TEXT_MAX];
    (void)state;
    spark_text(text, v, 3, 3, true);
    assert_memory_equal(text, "_#", 2);
    assert_true(text[2] == ':' || text[2] == '=');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_size_text_fits_in_five_columns),
        cmocka_unit_test(size_cell_shows_dash_if_unknown_and_tilde_if_stale),
        cmocka_unit_test(rate_has_a_sign_unless_zero_and_is_a_dash_if_unknown),
        cmocka_unit_test(nan_and_huge_rates_are_printable),
        cmocka_unit_test(short_role_name_is_first_word_of_the_role),
        cmocka_unit_test(narrow_table_hides_least_important_columns_first),
        cmocka_unit_test(sparkline_is_scaled_from_minimum_to_maximum),
        cmocka_unit_test(sparkline_shows_the_newest_value_at_the_right),
        cmocka_unit_test(sparkline_of_tiny_fluctuations_is_flat),
        cmocka_unit_test(sparkline_of_the_largest_64_bit_numbers_does_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
