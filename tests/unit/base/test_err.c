/* Tests that error messages are truncated and prefixed correctly, and leave errno unchanged. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/err.h"

static void setting_an_error_stores_the_message_and_returns_the_code(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(err_set(&err, -EINVAL, "--limit: \"%s\" is %d", "x", 7), -EINVAL);
    assert_string_equal(err.text, "--limit: \"x\" is 7");
}

static void setting_an_error_on_a_null_object_returns_the_code(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, -EIO, "lost"), -EIO);
    assert_int_equal(err_prefix(NULL, -EIO, "lost"), -EIO);
}

static void setting_an_error_preserves_errno(void **state)
{
    (void)state;
    struct err err = {0};
    errno = ENOSPC;
    err_set(&err, -EIO, "%s", "x");
    err_prefix(&err, -EIO, "y");
    assert_int_equal(errno, ENOSPC);
}

static void long_error_message_is_truncated(void **state)
{
    (void)state;
    struct {
        struct err err;
        char guard[8];
    } s;
    memset(&s, 'G', sizeof(s));
    char longer[2000];
    memset(longer, 'a', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    err_set(&s.err, -EINVAL, "%s", longer);
    assert_int_equal(strlen(s.err.text), sizeof(s.err.text) - 1);
    assert_memory_equal(s.guard, "GGGGGGGG", 8);
    err_prefix(&s.err, -EINVAL, "%s", longer);
    assert_int_equal(strlen(s.err.text), sizeof(s.err.text) - 1);
    assert_memory_equal(s.guard, "GGGGGGGG", 8);
}

static void error_truncation_never_splits_a_character(void **state)
{
    (void)state;
    char euros[3 * 300 + 1] = "";
    for (int i = 0; i < 300; i++)
        memcpy(euros + 3 * i, "€", 4);
    struct err err = {0};
    for (int shift = 0; shift < 3; shift++) {
        err_set(&err, -EINVAL, "%.*s%s", shift, "ab", euros);
        size_t len = strlen(err.text);
        assert_int_equal((len - (size_t)shift) % 3, 0);
        assert_true(len >= sizeof(err.text) - 3);
        err_prefix(&err, -EINVAL, "p");
        len = strlen(err.text);
        assert_int_equal((len - (size_t)shift - 3) % 3, 0);
        assert_true(len >= sizeof(err.text) - 3);
    }
}

static void error_prefix_is_prepended_to_the_message(void **state)
{
    (void)state;
    struct err err = {0};
    err_set(&err, -ENOENT, "no such file");
    assert_int_equal(err_prefix(&err, -ENOENT, "cannot open %s", "a.ebb"), -ENOENT);
    assert_string_equal(err.text, "cannot open a.ebb: no such file");
}

static void adding_a_prefix_to_an_empty_error_message_keeps_the_prefix(void **state)
{
    (void)state;
    struct err err = {0};
    err_prefix(&err, -ENOENT, "cannot open");
    assert_string_equal(err.text, "cannot open");
}

static void new_error_message_can_quote_the_message_being_replaced(void **state)
{
    (void)state;
    struct err err = {0};
    err_set(&err, -EIO, "inner");
    err_set(&err, -EIO, "outer (%s)", err.text);
    assert_string_equal(err.text, "outer (inner)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_an_error_stores_the_message_and_returns_the_code),
        cmocka_unit_test(setting_an_error_on_a_null_object_returns_the_code),
        cmocka_unit_test(setting_an_error_preserves_errno),
        cmocka_unit_test(long_error_message_is_truncated),
        cmocka_unit_test(error_truncation_never_splits_a_character),
        cmocka_unit_test(error_prefix_is_prepended_to_the_message),
        cmocka_unit_test(adding_a_prefix_to_an_empty_error_message_keeps_the_prefix),
        cmocka_unit_test(new_error_message_can_quote_the_message_being_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
