/* Tests escaping of names, and formatting of sizes and times. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <locale.h>
#include <string.h>
#include <wchar.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"

static void escaped_is(const char *in, size_t len, const char *want)
{
    struct buf b = {0};
    text_escape(&b, in, len);
    assert_string_equal(buf_str(&b), want);
    buf_fini(&b);
}
#define ESCAPED_IS(literal, want) escaped_is(literal, sizeof(literal) - 1, want)

static void plain_text_is_not_changed_by_escaping(void **state)
{
    (void)state;
    ESCAPED_IS("python train.py --x='1'", "python train.py --x='1'");
    ESCAPED_IS("Größe 日本 🐍", "Größe 日本 🐍");
    ESCAPED_IS("", "");
}

static void escaping_makes_terminal_control_sequences_visible(void **state)
{
    (void)state;
    ESCAPED_IS("\033[2J", "\\e[2J");
    ESCAPED_IS("a\nb\tc\rd\0e\x7f", "a\\nb\\tc\\x0dd\\x00e\\x7f");
    ESCAPED_IS("\xC2\x9B"
               "31m",
               "\\u{009b}31m");
}

static void escaping_makes_bidi_controls_and_line_breaks_visible(void **state)
{
    (void)state;
    ESCAPED_IS("\xE2\x80\xAE", "\\u{202e}");
    ESCAPED_IS("\xE2\x81\xA6", "\\u{2066}");
    ESCAPED_IS("\xE2\x80\xA8\xE2\x80\xA9", "\\u{2028}\\u{2029}");
}

static void escaping_doubles_backslashes(void **state)
{
    (void)state;
    ESCAPED_IS("\\n", "\\\\n");
}

static void escaping_shows_invalid_utf8_byte_by_byte(void **state)
{
    (void)state;
    ESCAPED_IS("\xFF", "\\xff");
    ESCAPED_IS("\xC0\xAF", "\\xc0\\xaf"); /* overlong "/" in two bytes */
    /* overlong "/" in three bytes */
    ESCAPED_IS("\xE0\x80\xAF", "\\xe0\\x80\\xaf");
    ESCAPED_IS("\xED\xA0\x80", "\\xed\\xa0\\x80");          /* a surrogate */
    ESCAPED_IS("\xF4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); /* above U+10FFFF */
    ESCAPED_IS("a\xE2\x82", "a\\xe2\\x82");                 /* truncated */
    ESCAPED_IS("\xE2z", "\\xe2z");
}

static void utf8_decoder_accepts_every_code_point_except_surrogates(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char s[4];
        size_t n;
        if (c < 0x80) {
            s[0] = (char)c;
            n = 1;
        } else if (c < 0x800) {
            s[0] = (char)(0xC0 | (c >> 6));
            n = 2;
        } else if (c < 0x10000) {
            s[0] = (char)(0xE0 | (c >> 12));
            n = 3;
        } else {
            s[0] = (char)(0xF0 | (c >> 18));
            n = 4;
        }
        for (size_t i = 1; i < n; i++)
            s[i] = (char)(0x80 | ((c >> (6 * (n - 1 - i))) & 0x3F));
        uint32_t got = UINT32_MAX;
        size_t used = text_utf8(s, n, &got);
        if (c >= 0xD800 && c <= 0xDFFF) {
            assert_int_equal(used, 0);
            assert_true(got == UINT32_MAX);
        } else {
            assert_int_equal(used, n);
            assert_true(got == c);
        }
    }
}

static void fitted_is(size_t size, size_t width, const char *in, const char *want)
{
    char out[64];
    memset(out, 'G', sizeof(out));
    assert_ptr_equal(text_fit(out, size, width, in, strlen(in)), out);
    assert_string_equal(out, want);
    for (size_t i = size; i < sizeof(out); i++)
        assert_int_equal(out[i], 'G');
}

static void text_narrower_than_the_column_is_not_changed(void **state)
{
    (void)state;
    fitted_is(60, 5, "abcde", "abcde");
    fitted_is(6, 5, "abcde", "abcde");
    fitted_is(60, 0, "", "");
}

static void text_wider_than_the_column_ends_in_an_ellipsis(void **state)
{
    (void)state;
    fitted_is(60, 5, "abcdef", "abcd…");
    fitted_is(60, 1, "abcdef", "…");
    fitted_is(60, 0, "abcdef", "");
    fitted_is(60, 4, "äöüß!", "äöü…");
}

static void text_fitted_to_a_column_is_truncated_to_the_buffer_size(void **state)
{
    (void)state;
    fitted_is(8, 50, "abcdefgh", "abcd…");
    fitted_is(8, 50, "ääääää", "ää…");
    fitted_is(4, 50, "abcdefgh", "…");
    fitted_is(3, 50, "abcdefgh", "ab");
    fitted_is(1, 50, "abcdefgh", "");
    char untouched = 'G';
    text_fit(&untouched, 0, 5, "abc", 3);
    assert_int_equal(untouched, 'G');
}

static void escape_sequence_is_never_split_at_the_column_width(void **state)
{
    (void)state;
    fitted_is(60, 5, "ab\033\033\033", "ab\\e…");
    fitted_is(60, 4, "ab\033\033\033", "ab…");
    fitted_is(60, 4, "\x01\x02", "…");
}

static void combining_mark_adds_no_column_to_the_text_width(void **state)
{
    (void)state;
    fitted_is(60, 3,
              "e\xCC\x81"
              "bc",
              "e\xCC\x81"
              "bc");
}

static void wide_character_adds_two_columns_to_the_text_width(void **state)
{
    (void)state;
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        skip();
    fitted_is(60, 4, "日本", "日本");
    fitted_is(60, 4, "日本語", "日…");
    setlocale(LC_CTYPE, "C");
    if (wcwidth(L'日') < 0) /* musl's wcwidth ignores the locale */
        fitted_is(60, 3, "日本語", "日本語");
}

static void command_is(const char *in, size_t len, const char *want)
{
    struct buf b = {0};
    text_command(&b, in, len);
    assert_string_equal(buf_str(&b), want);
    buf_fini(&b);
}
#define COMMAND_IS(literal, want) command_is(literal, sizeof(literal) - 1, want)

static void formatted_command_quotes_empty_and_multi_word_arguments(void **state)
{
    (void)state;
    COMMAND_IS("python\0train.py\0", "python train.py");
    COMMAND_IS("python\0train.py", "python train.py");
    COMMAND_IS("sh\0-c\0echo a b\0", "sh -c 'echo a b'");
    COMMAND_IS("a\0\0b\0", "a '' b");
    COMMAND_IS("a\0\0", "a ''");
    COMMAND_IS("\0", "''");
    COMMAND_IS("", "");
}

static void formatted_command_escapes_quotes_in_arguments(void **state)
{
    (void)state;
    COMMAND_IS("it's ok\0", "'it\\'s ok'");
    COMMAND_IS("'a\0b'\0", "'\\'a' b'");
    COMMAND_IS("a b\\\0", "'a b\\\\'");
    COMMAND_IS("x\033 y\0", "'x\\e y'");
}

static void size_is(uint64_t bytes, const char *want)
{
    char out[TEXT_SIZE_MAX];
    assert_string_equal(text_size(out, bytes), want);
}

static void formatted_size_has_three_digits_and_a_binary_unit(void **state)
{
    (void)state;
    size_is(0, "0 B");
    size_is(1023, "1023 B");
    size_is(1024, "1.00 KiB");
    size_is(312 << 10, "312 KiB");
    size_is(1331439861, "1.24 GiB");
    size_is(98 << 20, "98.0 MiB");
    size_is(10 << 10, "10.0 KiB");
    size_is(UINT64_C(1000) << 30, "1000 GiB");
    size_is(UINT64_C(3) << 60, "3.00 EiB");
}

static void formatted_size_that_rounds_up_uses_the_next_unit(void **state)
{
    (void)state;
    size_is((1 << 20) - 1, "1.00 MiB");
    size_is((10 << 10) - 1, "10.0 KiB");
    size_is((100 << 10) - 1, "100 KiB");
    size_is(UINT64_MAX, "16.0 EiB");
}

static void signed_size_is_formatted_with_its_sign(void **state)
{
    (void)state;
    char out[TEXT_SIZE_MAX];
    assert_string_equal(text_size_signed(out, 98 << 20), "+98.0 MiB");
    assert_string_equal(text_size_signed(out, -3), "-3 B");
    assert_string_equal(text_size_signed(out, 0), "0 B");
    assert_string_equal(text_size_signed(out, INT64_MIN), "-8.00 EiB");
}

static void time_is(uint64_t ns, const char *want)
{
    char out[TEXT_TIME_MAX];
    assert_string_equal(text_duration(out, ns), want);
}

static void formatted_duration_has_at_most_two_units(void **state)
{
    (void)state;
    time_is(0, "0 s");
    time_is(25, "25 ns");
    time_is(310 * NS_PER_US, "310 µs");
    time_is(480 * NS_PER_MS, "480 ms");
    time_is(12400 * NS_PER_MS, "12.4 s");
    time_is(185 * NS_PER_S, "3 min 05 s");
    time_is(7800 * NS_PER_S, "2 h 10 min");
    time_is(76 * 3600 * NS_PER_S, "3 d 4 h");
}

static void formatted_duration_that_rounds_up_uses_the_next_unit(void **state)
{
    (void)state;
    time_is(999999, "1 ms");
    time_is(999999999, "1.0 s");
    time_is(59970 * NS_PER_MS, "1 min 00 s");
    time_is(3599900 * NS_PER_MS, "1 h 00 min");
    time_is(86399 * NS_PER_S, "1 d 0 h");
    time_is(UINT64_MAX, "213504 d 0 h");
}

static void approximate_numbers_have_two_significant_digits(void **state)
{
    char out[TEXT_TIME_MAX];
    (void)state;
    assert_string_equal(text_about_size(out, 0), "0 B");
    assert_string_equal(text_about_size(out, -5), "0 B");
    assert_string_equal(text_about_size(out, 1023), "1023 B");
    assert_string_equal(text_about_size(out, 9.04 * (1 << 20)), "9.0 MiB");
    assert_string_equal(text_about_size(out, 9.96 * (1 << 20)), "10 MiB");
    assert_string_equal(text_about_size(out, 577.0 * (1 << 20)), "580 MiB");
    assert_string_equal(text_about_size(out, 996.0 * (1 << 20)), "1.0 GiB");
    assert_string_equal(text_about_size(out, 23.5 * (1 << 30)), "24 GiB");
    assert_string_equal(text_about_time(out, 0.42), "0.42 s");
    assert_string_equal(text_about_time(out, 45.4), "45 s");
    assert_string_equal(text_about_time(out, 432), "7.2 min");
    assert_string_equal(text_about_time(out, 3000), "50 min");
    assert_string_equal(text_about_time(out, 20000), "5.6 h");
    assert_string_equal(text_about_time(out, 1e6), "12 d");
    assert_string_equal(text_about_time(out, -1), "0 s");
}

static void text_hash_is_fnv1a_and_can_be_computed_in_parts(void **state)
{
    (void)state;
    assert_true(text_hash(TEXT_HASH_EMPTY, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    assert_true(text_hash(text_hash(TEXT_HASH_EMPTY, "foo", 3), "bar", 3) ==
                text_hash(TEXT_HASH_EMPTY, "foobar", 6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_hash_is_fnv1a_and_can_be_computed_in_parts),
        cmocka_unit_test(plain_text_is_not_changed_by_escaping),
        cmocka_unit_test(escaping_makes_terminal_control_sequences_visible),
        cmocka_unit_test(escaping_makes_bidi_controls_and_line_breaks_visible),
        cmocka_unit_test(escaping_doubles_backslashes),
        cmocka_unit_test(escaping_shows_invalid_utf8_byte_by_byte),
        cmocka_unit_test(utf8_decoder_accepts_every_code_point_except_surrogates),
        cmocka_unit_test(text_narrower_than_the_column_is_not_changed),
        cmocka_unit_test(text_wider_than_the_column_ends_in_an_ellipsis),
        cmocka_unit_test(text_fitted_to_a_column_is_truncated_to_the_buffer_size),
        cmocka_unit_test(escape_sequence_is_never_split_at_the_column_width),
        cmocka_unit_test(combining_mark_adds_no_column_to_the_text_width),
        cmocka_unit_test(wide_character_adds_two_columns_to_the_text_width),
        cmocka_unit_test(formatted_command_quotes_empty_and_multi_word_arguments),
        cmocka_unit_test(formatted_command_escapes_quotes_in_arguments),
        cmocka_unit_test(formatted_size_has_three_digits_and_a_binary_unit),
        cmocka_unit_test(approximate_numbers_have_two_significant_digits),
        cmocka_unit_test(formatted_size_that_rounds_up_uses_the_next_unit),
        cmocka_unit_test(signed_size_is_formatted_with_its_sign),
        cmocka_unit_test(formatted_duration_has_at_most_two_units),
        cmocka_unit_test(formatted_duration_that_rounds_up_uses_the_next_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
