/* Tests parsing of sizes, times and numbers on a command line, and the error messages. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/quantity.h"

static void size_is(const char *s, uint64_t bytes)
{
    struct quantity_size q = {0};
    struct err err = {0};
    int r = quantity_parse_size("--limit", s, &q, &err);
    if (r != 0 || q.is_percent || q.bytes != bytes)
        fail_msg("\"%s\": %d, %llu bytes; %s", s, r, (unsigned long long)q.bytes, err.text);
}

static void percent_is(const char *s, uint32_t permyriad)
{
    struct quantity_size q = {0};
    assert_int_equal(quantity_parse_size("--limit", s, &q, NULL), 0);
    assert_true(q.is_percent);
    assert_int_equal(q.permyriad, permyriad);
}

static void size_is_refused(const char *s, int code)
{
    struct quantity_size q = {.bytes = 77};
    struct err err = {0};
    int r = quantity_parse_size("--limit", s, &q, &err);
    char start[256];
    snprintf(start, sizeof(start), "--limit: \"%s\" is ", s);
    if (r != code || strncmp(err.text, start, strlen(start)) != 0)
        fail_msg("\"%s\": %d; %s", s, r, err.text);
    assert_false(q.is_percent);
    assert_int_equal(q.bytes, 77); /* a failed parse must not change the size */
}

static void size_units_are_powers_of_1024_in_upper_or_lower_case(void **state)
{
    (void)state;
    size_is("4096", 4096);
    size_is("1", 1);
    size_is("12b", 12);
    size_is("512M", UINT64_C(512) << 20);
    size_is("512mb", UINT64_C(512) << 20);
    size_is("24G", UINT64_C(24) << 30);
    size_is("1.5GiB", UINT64_C(3) << 29);
    size_is("0.5k", 512);
    size_is("2tIb", UINT64_C(2) << 40);
    size_is("1P", UINT64_C(1) << 50);
    size_is("18446744073709551615", UINT64_MAX);
    size_is("16383P", UINT64_C(16383) << 50);
}

static void parsed_percentage_is_stored_in_hundredths_of_a_percent(void **state)
{
    (void)state;
    percent_is("80%", 8000);
    percent_is("0.01%", 1);
    percent_is("99.99%", 9999);
    percent_is("100%", 10000);
    percent_is("33.339%", 3333);
}

static void invalid_size_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",    "abc",   "-1",  "+1",  " 5G",  "5G ", "5 G",
                                        "1e3", "nan",   "inf", "0x1", "1.",   ".5G", "1..5G",
                                        "1.5", "1,5G",  "%",   "5%%", "5Q",   "5GG", "5Gi",
                                        "5iB", "5GiBs", "-5%", "G",   "1.5B", "5٣"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        size_is_refused(wrong[i], -EINVAL);
}

static void size_out_of_range_returns_erange(void **state)
{
    (void)state;
    static const char *const wrong[] = {"0",
                                        "0G",
                                        "0.0K",
                                        "0.0001K",
                                        "18446744073709551616",
                                        "16384P",
                                        "99999999999999999999999P",
                                        "0%",
                                        "0.009%",
                                        "100.001%",
                                        "101%",
                                        "99999999999999999999%"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        size_is_refused(wrong[i], -ERANGE);
}

static void size_error_shows_examples_of_valid_sizes(void **state)
{
    (void)state;
    struct quantity_size q;
    struct err err = {0};
    quantity_parse_size("--limit", "lots", &q, &err);
    assert_string_equal(err.text,
                        "--limit: \"lots\" is not a size; write it like 512M, 24G, 1.5GiB or 80%");
    quantity_parse_size("--limit", "120%", &q, &err);
    assert_string_equal(err.text, "--limit: \"120%\" is not a percentage between 0.01% and 100%");
}

static void error_for_a_very_long_value_still_shows_a_valid_example(void **state)
{
    (void)state;
    char huge[2000];
    memset(huge, 'z', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    struct quantity_size q;
    uint64_t ns;
    int64_t i;
    struct err err = {0};
    quantity_parse_size("--limit", huge, &q, &err);
    assert_non_null(strstr(err.text, "write it like 512M"));
    quantity_parse_duration("--interval", huge, 0, UINT64_MAX, &ns, &err);
    assert_non_null(strstr(err.text, "write it like 500ms"));
    quantity_parse_int("--jobs", huge, 1, 64, &i, &err);
    assert_non_null(strstr(err.text, "expected 1 to 64"));
}

static void time_is(const char *s, uint64_t want)
{
    uint64_t ns = 0;
    struct err err = {0};
    int r = quantity_parse_duration("--interval", s, 0, UINT64_MAX, &ns, &err);
    if (r != 0 || ns != want)
        fail_msg("\"%s\": %d, %llu ns; %s", s, r, (unsigned long long)ns, err.text);
}

static void duration_requires_a_unit(void **state)
{
    (void)state;
    time_is("500ms", 500 * NS_PER_MS);
    time_is("10s", 10 * NS_PER_S);
    time_is("5m", 300 * NS_PER_S);
    time_is("2h", 7200 * NS_PER_S);
    time_is("1d", 86400 * NS_PER_S);
    time_is("1.5s", 1500 * NS_PER_MS);
    time_is("0.000001ms", 1);
    time_is("0s", 0);
    time_is("0.3333333333333333333333333s", 333333333);
}

static void invalid_duration_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",   "abc", "-1s", " 5s", "5s ", "5 s",  "1e3",  "1e3s",
                                        "1.", "1.s", ".5s", "nan", "s",   "5S",   "5sec", "1m30s",
                                        "0",  "10",  "1.5", "5%",  "5us", "0x5s", "+5s"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint64_t ns = 77;
        struct err err = {0};
        int r = quantity_parse_duration("--interval", wrong[i], 0, UINT64_MAX, &ns, &err);
        char start[64];
        snprintf(start, sizeof(start), "--interval: \"%s\" ", wrong[i]);
        if (r != -EINVAL || ns != 77 || strncmp(err.text, start, strlen(start)) != 0)
            fail_msg("\"%s\": %d; %s", wrong[i], r, err.text);
    }
}

static void time_is_refused(const char *s, uint64_t min, uint64_t max, int code, const char *why)
{
    uint64_t ns = 77;
    struct err err = {0};
    assert_int_equal(quantity_parse_duration("--interval", s, min, max, &ns, &err), code);
    assert_int_equal(ns, 77);
    assert_string_equal(err.text, why);
}

static void duration_error_shows_the_allowed_minimum_or_maximum(void **state)
{
    (void)state;
    const uint64_t min = 50 * NS_PER_MS, max = 3600 * NS_PER_S;
    time_is_refused("abc", min, max, -EINVAL,
                    "--interval: \"abc\" is not a time; write it like 500ms, 10s or 5m");
    time_is_refused("10", min, max, -EINVAL,
                    "--interval: \"10\" has no unit; write it like 500ms, 10s or 5m");
    time_is_refused("1ms", min, max, -ERANGE,
                    "--interval: \"1ms\" is too short; the minimum is 50ms");
    time_is_refused("2d", min, max, -ERANGE, "--interval: \"2d\" is too long; the maximum is 1h");
    time_is_refused("3600.0000000001s", min, max, -ERANGE,
                    "--interval: \"3600.0000000001s\" is too long; the maximum is 1h");
    time_is_refused("99999999999999999999d", min, max, -ERANGE,
                    "--interval: \"99999999999999999999d\" is too long; the maximum is 1h");
    time_is_refused("999999999d", 0, UINT64_MAX, -ERANGE,
                    "--interval: \"999999999d\" is too long; the maximum is about 500 years");
    time_is_refused("1ms", 1500001, max, -ERANGE,
                    "--interval: \"1ms\" is too short; the minimum is 1.500001ms");
    time_is_refused("1ms", 0, 0, -ERANGE, "--interval: \"1ms\" is too long; the maximum is 0s");
}

static void duration_limits_are_inclusive(void **state)
{
    (void)state;
    uint64_t ns = 0;
    assert_int_equal(quantity_parse_duration("-i", "50ms", 50 * NS_PER_MS, NS_PER_S, &ns, NULL), 0);
    assert_int_equal(ns, 50 * NS_PER_MS);
    assert_int_equal(quantity_parse_duration("-i", "1s", 50 * NS_PER_MS, NS_PER_S, &ns, NULL), 0);
    assert_int_equal(ns, NS_PER_S);
}

static void int_option_accepts_the_minimum_and_the_maximum(void **state)
{
    (void)state;
    int64_t v = 0;
    assert_int_equal(
        quantity_parse_int("-n", "-9223372036854775808", INT64_MIN, INT64_MAX, &v, NULL), 0);
    assert_true(v == INT64_MIN);
    assert_int_equal(
        quantity_parse_int("-n", "9223372036854775807", INT64_MIN, INT64_MAX, &v, NULL), 0);
    assert_true(v == INT64_MAX);
    assert_int_equal(quantity_parse_int("-n", "-1", -1, 1, &v, NULL), 0);
    assert_int_equal(v, -1);
    assert_int_equal(quantity_parse_int("-n", "-0", -1, 1, &v, NULL), 0);
    assert_int_equal(v, 0);
    assert_int_equal(quantity_parse_int("-n", "064", 1, 64, &v, NULL), 0);
    assert_int_equal(v, 64);
}

static void int_option_refuses_values_out_of_range(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",  "-",   "+5", " 5",  "5 ", "1.5",
                                        "a", "0x5", "5a", "--5", "1e1"};
    static const char *const outside[] = {
        "0", "65", "-5", "9223372036854775808", "-9223372036854775809", "99999999999999999999999"};
    int64_t v = 77;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(quantity_parse_int("-n", wrong[i], 1, 64, &v, NULL), -EINVAL);
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
        assert_int_equal(quantity_parse_int("-n", outside[i], 1, 64, &v, NULL), -ERANGE);
    assert_int_equal(v, 77);
    struct err err = {0};
    quantity_parse_int("--jobs", "65", 1, 64, &v, &err);
    assert_string_equal(err.text, "--jobs: \"65\" is out of range; expected 1 to 64");
}

static void percentage_of_a_very_large_size_does_not_overflow(void **state)
{
    const struct quantity_size fixed = {.bytes = 42},
                               most = {.is_percent = true, .permyriad = 8000};
    (void)state;
    assert_int_equal(quantity_bytes(&fixed, 1000), 42);
    assert_int_equal(quantity_bytes(&most, 1005), 804);
    assert_int_equal(quantity_bytes(&most, UINT64_MAX - 15), (UINT64_MAX - 15) / 5 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentage_of_a_very_large_size_does_not_overflow),
        cmocka_unit_test(size_units_are_powers_of_1024_in_upper_or_lower_case),
        cmocka_unit_test(parsed_percentage_is_stored_in_hundredths_of_a_percent),
        cmocka_unit_test(invalid_size_is_refused),
        cmocka_unit_test(size_out_of_range_returns_erange),
        cmocka_unit_test(size_error_shows_examples_of_valid_sizes),
        cmocka_unit_test(error_for_a_very_long_value_still_shows_a_valid_example),
        cmocka_unit_test(duration_requires_a_unit),
        cmocka_unit_test(invalid_duration_is_refused),
        cmocka_unit_test(duration_error_shows_the_allowed_minimum_or_maximum),
        cmocka_unit_test(duration_limits_are_inclusive),
        cmocka_unit_test(int_option_accepts_the_minimum_and_the_maximum),
        cmocka_unit_test(int_option_refuses_values_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
