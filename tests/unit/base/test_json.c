/* Tests writing arbitrary bytes as JSON, and reading untrusted JSON. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* Takes ownership of DOC. */
static void printed_is(json_t *doc, int indent, const char *want)
{
    struct buf b = {0};
    assert_non_null(doc);
    assert_int_equal(json_print(&b, doc, indent), 0);
    assert_string_equal(buf_str(&b), want);
    json_decref(doc);
    buf_fini(&b);
}

static void any_bytes_can_be_written_as_a_json_string(void **state)
{
    (void)state;
    printed_is(json_text("a\xFF\xFE", 3), 0, "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"\n");
    printed_is(json_text("\xED\xA0\x80", 3), 0, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"\n");
    printed_is(json_text("\xE2\x82", 2), 0, "\"\xEF\xBF\xBD\xEF\xBF\xBD\"\n");
    printed_is(json_text("\xF4\x8F\xBF\xBF", 4), 0, "\"\xF4\x8F\xBF\xBF\"\n");
    printed_is(json_text("a\0b\n\"", 5), 0, "\"a\\u0000b\\n\\\"\"\n");
    printed_is(json_text(NULL, 0), 0, "\"\"\n");
    printed_is(json_text0("x"), 0, "\"x\"\n");
    printed_is(json_text0(NULL), 0, "null\n");
}

static void every_pair_of_bytes_can_be_written_and_parsed_as_json(void **state)
{
    (void)state;
    for (unsigned v = 0; v < 65536; v++) {
        char bytes[2] = {(char)(v >> 8), (char)v};
        json_t *list = json_array();
        assert_int_equal(json_array_append_new(list, json_text(bytes, 2)), 0);
        struct buf b = {0};
        assert_int_equal(json_print(&b, list, 0), 0);
        json_t *again = json_parse(b.data, b.len, NULL);
        assert_non_null(again);
        assert_true(json_equal(list, again));
        json_decref(again);
        json_decref(list);
        buf_fini(&b);
    }
}

static void json_integers_above_63_bits_are_clamped(void **state)
{
    (void)state;
    printed_is(json_u64(0), 0, "0\n");
    printed_is(json_u64(9007199254740993), 0, "9007199254740993\n");
    printed_is(json_u64(INT64_MAX), 0, "9223372036854775807\n");
    printed_is(json_u64(UINT64_MAX), 0, "9223372036854775807\n");
}

static void seconds_are(uint64_t ns, double want)
{
    json_t *s = json_seconds(ns);
    assert_true(json_real_value(s) == want);
    json_decref(s);
}

static void json_seconds_have_exactly_six_decimals(void **state)
{
    (void)state;
    printed_is(json_seconds(0), 0, "0.0\n");
    printed_is(json_seconds(100000000), 0, "0.1\n");
    printed_is(json_seconds(9050000000), 0, "9.05\n");
    printed_is(json_seconds(123456789123456789), 0, "123456789.123457\n");
    seconds_are(1499, 0.000001);
    seconds_are(1500, 0.000002);
    seconds_are(1731661234123456789, 1731661234.123457);
}

static void json_is_printed_compact_or_indented_with_final_newline(void **state)
{
    (void)state;
    printed_is(json_pack("{s:i,s:[i,i]}", "b", 1, "a", 2, 3), 0, "{\"b\":1,\"a\":[2,3]}\n");
    printed_is(json_pack("{s:i}", "b", 1), 2, "{\n  \"b\": 1\n}\n");
}

static void json_document_is_written_to_an_fd(void **state)
{
    (void)state;
    int p[2];
    assert_int_equal(pipe(p), 0);
    json_t *doc = json_pack("[i]", 5);
    assert_int_equal(json_write(p[1], doc, 0), 0);
    char got[16] = "";
    assert_int_equal(read(p[0], got, sizeof(got) - 1), 4);
    assert_string_equal(got, "[5]\n");
    assert_int_equal(json_write(-1, doc, 0), -EBADF);
    assert_int_equal(json_write(p[1], NULL, 0), -EINVAL);
    json_decref(doc);
    close(p[0]);
    close(p[1]);
}

/* Returns the text of DEPTH nested arrays. */
static char *nested(size_t depth)
{
    char *s = malloc(2 * depth + 1);
    memset(s, '[', depth);
    memset(s + depth, ']', depth);
    s[2 * depth] = '\0';
    return s;
}

static void json_nested_64_levels_is_accepted_and_65_levels_refused(void **state)
{
    (void)state;
    struct err err = {0};
    char *s = nested(64);
    json_t *doc = json_parse(s, strlen(s), &err);
    assert_non_null(doc);
    json_decref(doc);
    free(s);
    s = nested(65);
    assert_null(json_parse(s, strlen(s), &err));
    assert_non_null(strstr(err.text, "more than 64 levels"));
    free(s);
}

static void json_of_a_million_levels_does_not_overflow_the_stack(void **state)
{
    (void)state;
    char *s = nested(1000000);
    assert_null(json_parse(s, strlen(s), NULL));
    free(s);
}

static void brackets_inside_a_json_string_do_not_count_as_nesting(void **state)
{
    (void)state;
    char s[300] = "[\"\\\"";
    memset(s + 4, '[', 200);
    strcpy(s + 204, "\"]");
    json_t *doc = json_parse(s, strlen(s), NULL);
    assert_non_null(doc);
    assert_int_equal(json_string_length(json_array_get(doc, 0)), 201);
    json_decref(doc);
}

static void json_larger_than_16_mib_is_refused(void **state)
{
    (void)state;
    struct err err = {0};
    const size_t most = 16 * 1024 * 1024;
    char *s = malloc(most + 1);
    memset(s, ' ', most + 1);
    memcpy(s, "[1]", 3);
    json_t *doc = json_parse(s, most, &err);
    assert_non_null(doc);
    json_decref(doc);
    assert_null(json_parse(s, most + 1, &err));
    assert_non_null(strstr(err.text, "16 MiB"));
    free(s);
}

static void json_with_too_many_values_is_refused_before_parsing(void **state)
{
    (void)state;
    const char text[] = "[[],{\"a\":1,\"b\":2}]";
    assert_false(json_is_crowded(text, sizeof text - 1, 5));
    assert_true(json_is_crowded(text, sizeof text - 1, 4));
    assert_false(json_is_crowded("", 0, 0));
}

static void invalid_json_is_refused_with_line_and_column(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",           "{",    "[1,]",  "[1] x", "{\"a\":1,\"a\":2}",
                                        "[\"\xFF\"]", "[\"a", "[\"\\", "]]]",   "[nan]"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct err err = {0};
        size_t len = strlen(wrong[i]);
        /* The text is not NUL-terminated, so the sanitizer detects reads past its end. */
        char *exact = malloc(len ? len : 1);
        memcpy(exact, wrong[i], len);
        json_t *doc = json_parse(exact, len, &err);
        free(exact);
        if (doc || strncmp(err.text, "not valid JSON at line ", 23) != 0)
            fail_msg("%s: %s", wrong[i], err.text);
    }
    struct err err = {0};
    assert_null(json_parse(NULL, 0, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_can_be_written_as_a_json_string),
        cmocka_unit_test(every_pair_of_bytes_can_be_written_and_parsed_as_json),
        cmocka_unit_test(json_integers_above_63_bits_are_clamped),
        cmocka_unit_test(json_seconds_have_exactly_six_decimals),
        cmocka_unit_test(json_is_printed_compact_or_indented_with_final_newline),
        cmocka_unit_test(json_document_is_written_to_an_fd),
        cmocka_unit_test(json_nested_64_levels_is_accepted_and_65_levels_refused),
        cmocka_unit_test(json_of_a_million_levels_does_not_overflow_the_stack),
        cmocka_unit_test(brackets_inside_a_json_string_do_not_count_as_nesting),
        cmocka_unit_test(json_larger_than_16_mib_is_refused),
        cmocka_unit_test(json_with_too_many_values_is_refused_before_parsing),
        cmocka_unit_test(invalid_json_is_refused_with_line_and_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
