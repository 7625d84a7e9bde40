/* Tests functions on byte ranges that are not NUL-terminated. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/span.h"

/* Returns a span of the first LEN bytes of TEXT. Functions must ignore the rest of TEXT. */
static struct span cut(const char *text, size_t len)
{
    return (struct span){text, len};
}

static void span_ignores_bytes_after_its_end(void **state)
{
    (void)state;
    struct span s = cut("torchrun", 5);
    assert_true(span_is(s, "torch"));
    assert_false(span_is(s, "torchrun"));
    assert_false(span_begins(s, "torchr"));
    assert_true(span_begins(s, "tor"));
    assert_true(span_ends(s, "rch"));
    assert_false(span_ends(s, "run"));
    assert_null(span_find(s, "run"));
    assert_ptr_equal(span_find(s, "rc"), s.p + 2);
}

static void empty_span_contains_an_empty_text(void **state)
{
    (void)state;
    struct span none = cut("x", 0);
    assert_true(span_is(none, ""));
    assert_true(span_begins(none, "") && span_ends(none, ""));
    assert_false(span_begins(none, "x") || span_ends(none, "x"));
    assert_null(span_find(none, "x"));
    assert_int_equal(span_trimmed(none).len, 0);
}

static void trimming_a_span_removes_only_outer_blanks(void **state)
{
    (void)state;
    assert_true(span_is(span_trimmed(span_of(" \t a b\t ")), "a b"));
    assert_true(span_is(span_trimmed(span_of("a")), "a"));
    assert_int_equal(span_trimmed(span_of(" \t ")).len, 0);
    assert_true(span_is(span_trimmed(span_of("\na\n")), "\na\n"));
}

static void span_search_finds_any_of_several_words(void **state)
{
    (void)state;
    static const char *const words[] = {"Error", "Exit", NULL};
    static const char *const none[] = {NULL};
    assert_true(span_holds_any(span_of("SystemExit"), words));
    assert_false(span_holds_any(span_of("Stop"), words));
    assert_false(span_holds_any(span_of("Error"), none));
    assert_true(span_is(span_from(span_of("from x"), 5), "x"));
}

static void span_copy_has_exactly_the_bytes_of_the_span(void **state)
{
    (void)state;
    char *copy = span_copy(cut("torchrun", 5)), *none = span_copy(cut("x", 0));
    assert_string_equal(copy, "torch");
    assert_string_equal(none, "");
    free(copy);
    free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(span_ignores_bytes_after_its_end),
        cmocka_unit_test(empty_span_contains_an_empty_text),
        cmocka_unit_test(trimming_a_span_removes_only_outer_blanks),
        cmocka_unit_test(span_search_finds_any_of_several_words),
        cmocka_unit_test(span_copy_has_exactly_the_bytes_of_the_span),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
