/* Tests shell-like word splitting, signal names, and the error messages for invalid input. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/words.h"

/* Splits S and checks that the words, each followed by "|", form JOINED. */
static void words_are(const char *s, const char *joined)
{
    char **words = NULL;
    struct err err = {""};
    struct buf text = {0};
    if (words_split("--x", s, &words, &err) != 0)
        fail_msg("%s: %s", s, err.text);
    for (size_t i = 0; words[i]; i++)
        buf_printf(&text, "%s|", words[i]);
    assert_string_equal(buf_str(&text), joined);
    buf_fini(&text);
    free(words);
}

static void words_are_refused(const char *s)
{
    char *untouched = NULL, **words = &untouched;
    struct err err = {""};
    assert_int_equal(words_split("--x", s, &words, &err), -EINVAL);
    assert_ptr_equal(words, &untouched);
    assert_memory_equal(err.text, "--x: \"", 6);
    assert_non_null(strstr(err.text, s));
}

static void text_is_split_into_words_at_any_number_of_blanks(void **state)
{
    (void)state;
    words_are("", "");
    words_are(" \t\n ", "");
    words_are("--resume", "--resume|");
    words_are("  --resume  last\t-v\n", "--resume|last|-v|");
    words_are("a b c d e f", "a|b|c|d|e|f|");
}

static void quotes_and_backslashes_keep_blanks_within_a_word(void **state)
{
    (void)state;
    words_are("'a b' c", "a b|c|");
    words_are("\"a b\"'c d'e", "a bc de|");
    words_are("a\\ b \\'c \\\\", "a b|'c|\\|");
    words_are("'a\\b \"c'", "a\\b \"c|");
    words_are("\"a\\\"b\\\\c\\d 'e\"", "a\"b\\c\\d 'e|");
    words_are("\"\\$HOME\" $HOME *", "$HOME|$HOME|*|");
    words_are("'' \"\" a''", "||a|");
    words_are("''", "|");
}

static void unclosed_quote_in_a_word_list_is_an_error(void **state)
{
    (void)state;
    words_are_refused("'a");
    words_are_refused("a \"b");
    words_are_refused("a b'");
    words_are_refused("a \\");
    words_are_refused("\"a\\\"");
    words_are_refused("\"a\\");
}

static void signal_is(const char *s, int number)
{
    int n = 0;
    struct err err = {""};
    if (words_signal("--x", s, &n, &err) != 0 || n != number)
        fail_msg("%s: %d; %s", s, n, err.text);
}

static void signal_can_be_given_by_name_or_number(void **state)
{
    (void)state;
    signal_is("USR1", SIGUSR1);
    signal_is("SIGUSR1", SIGUSR1);
    signal_is("sigusr2", SIGUSR2);
    signal_is("usr2", SIGUSR2);
    signal_is("10", 10);
    signal_is("1", 1);
    signal_is("HUP", SIGHUP);
    signal_is("IO", SIGIO);
    signal_is("POLL", SIGPOLL);
    signal_is("CLD", SIGCHLD);
    signal_is("KILL", SIGKILL);
    signal_is("RTMIN", SIGRTMIN);
    signal_is("SIGRTMIN+3", SIGRTMIN + 3);
    signal_is("rtmax-1", SIGRTMAX - 1);
    signal_is("64", 64);
}

static void unknown_signal_name_is_quoted_in_the_error(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",    "SIG",   "USR3",  "0",         "-1",      "32",     "33",      "65",      "100",
        "1e1", " USR1", "USR1 ", "SIGSIGHUP", "RTMIN-1", "RTMIN+", "RTMAX+1", "RTMIN+99"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        int n = 77;
        struct err err = {""};
        if (words_signal("--x", wrong[i], &n, &err) != -EINVAL || n != 77)
            fail_msg("\"%s\" is %d", wrong[i], n);
        assert_memory_equal(err.text, "--x: unknown signal \"", 21);
        assert_non_null(strstr(err.text, wrong[i]));
    }
}

static void signal_without_a_name_is_shown_as_a_number(void **state)
{
    (void)state;
    char name[WORDS_SIGNAL_MAX];
    assert_string_equal(words_signal_name(name, SIGKILL), "SIGKILL");
    assert_string_equal(words_signal_name(name, 77), "signal 77");
    assert_string_equal(words_signal_name(name, -2147483647), "signal -2147483647");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_split_into_words_at_any_number_of_blanks),
        cmocka_unit_test(quotes_and_backslashes_keep_blanks_within_a_word),
        cmocka_unit_test(unclosed_quote_in_a_word_list_is_an_error),
        cmocka_unit_test(signal_can_be_given_by_name_or_number),
        cmocka_unit_test(unknown_signal_name_is_quoted_in_the_error),
        cmocka_unit_test(signal_without_a_name_is_shown_as_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
