/* Tests that numbers in text are parsed exactly, or refused, independent of the locale. */
#include "base/number.h"

#include <errno.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int whole(const char *s, int64_t *ret)
{
    return number_parse_i64(s, strlen(s), ret);
}

static int decimal(const char *s, double *ret)
{
    return number_parse_double(s, strlen(s), ret);
}

static void i64_parser_accepts_exactly_the_64_bit_range(void **state)
{
    int64_t v = 77;

    (void)state;
    assert_int_equal(whole("9223372036854775807", &v), 0);
    assert_true(v == INT64_MAX);
    assert_int_equal(whole("-9223372036854775808", &v), 0);
    assert_true(v == INT64_MIN);
    assert_int_equal(whole("9223372036854775808", &v), -ERANGE);
    assert_int_equal(whole("-9223372036854775809", &v), -ERANGE);
    assert_int_equal(whole("99999999999999999999x", &v), -EINVAL);
    assert_true(v == INT64_MIN);
    assert_int_equal(whole("-0", &v), 0);
    assert_int_equal(v, 0);
}

static void i64_parser_refuses_anything_but_whole_numbers(void **state)
{
    static const char *const bad[] = {"", "-", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "--1"};
    int64_t v = 77;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(whole(bad[i], &v), -EINVAL);
    assert_int_equal(v, 77);
}

static void double_parser_agrees_with_strtod(void **state)
{
    static const char *const good[] = {
        "0",
        "1",
        "-1",
        "+1",
        ".5",
        "5.",
        "641.44",
        "1794723386.326",
        "0.30000000000000004",
        "1e9",
        "1E-9",
        "1e+2",
        "123456789012345678901234567890",
        "9007199254740993",
        "9007199254740993.0000000001",
        "4.9e-324",
        "1.7976931348623157e308",
        "1e-400",
        "0.00000000000000000000000000000000001",
        "0000000000000000000000000000001.25",
        ("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899"
         "862803482534211706798214808651328230664709384460955058223172535940812848111745028410270"),
    };
    double v, want;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(decimal(good[i], &v), 0);
        want = strtod(good[i], NULL);
        assert_memory_equal(&v, &want, sizeof(v));
    }
}

static void double_parser_accepts_only_decimal_numbers(void **state)
{
    static const char *const bad[] = {"",    "-",   ".",   "-.", "e5", "1e",    "1e+",   "nan",
                                      "inf", "0x1", "1,5", "1 ", " 1", "1.5.2", "1e5.5", "1_000"};
    double v = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(decimal(bad[i], &v), -EINVAL);
    assert_int_equal(decimal("1e309", &v), -ERANGE);
    assert_true(v == 7);
}

static void double_parser_agrees_with_strtod_on_random_decimals(void **state)
{
    unsigned long long seed = 88172645463325252ull;
    double v, want;
    char s[64];

    (void)state;
    for (int i = 0; i < 1000000; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        snprintf(s, sizeof(s), "%llu.%llu", (seed >> 32) % (1ull << (seed % 40)), seed % 100000000);
        assert_int_equal(decimal(s, &v), 0);
        want = strtod(s, NULL);
        assert_memory_equal(&v, &want, sizeof(v));
    }
}

static void double_to_integer_conversion_clamps_values_out_of_range(void **state)
{
    (void)state;
    const double nan = strtod("nan", NULL), inf = strtod("inf", NULL);
    assert_true(number_to_u64(1.9) == 1);
    assert_true(number_to_u64(-8.6e6) == 0);
    assert_true(number_to_u64(0x1p64) == UINT64_MAX);
    assert_true(number_to_u64(inf) == UINT64_MAX);
    assert_true(number_to_u64(nan) == 0);
    assert_true(number_to_i64(1.5) == 2);
    assert_true(number_to_i64(-1.5) == -2);
    assert_true(number_to_i64(0x1p63) == INT64_MAX);
    assert_true(number_to_i64(-inf) == INT64_MIN);
    assert_true(number_to_i64(nan) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(i64_parser_accepts_exactly_the_64_bit_range),
        cmocka_unit_test(i64_parser_refuses_anything_but_whole_numbers),
        cmocka_unit_test(double_parser_agrees_with_strtod),
        cmocka_unit_test(double_parser_accepts_only_decimal_numbers),
        cmocka_unit_test(double_to_integer_conversion_clamps_values_out_of_range),
        cmocka_unit_test(double_parser_agrees_with_strtod_on_random_decimals),
    };

    return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}
