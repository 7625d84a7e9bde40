/* Tests which datagrams are parsed as marks, which are refused, and how numbers are decoded. */
#include "mark/mark.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static int parse(const char *s, struct mark *m)
{
    return mark_parse(s, strlen(s), m);
}

static void assert_bad_bytes(const char *s, size_t len)
{
    struct mark m, before;

    memset(&m, 0x5a, sizeof(m));
    before = m;
    assert_int_equal(mark_parse(s, len, &m), -EBADMSG);
    assert_memory_equal(&m, &before, sizeof(m));
}

static void assert_bad(const char *s)
{
    assert_bad_bytes(s, strlen(s));
}

static void step_mark_with_all_keys_is_decoded(void **state)
{
    static const char s[] = "KIND=step\nSTEP=120\nEPOCH=1.45\nSTEPS_PER_EPOCH=83\nMAX_STEPS=249\n"
                            "RANK=3\nEXAMPLES=663\nEFFECTIVE_BATCH=8\n";
    struct mark m;

    (void)state;
    assert_int_equal(parse(s, &m), 0);
    assert_int_equal(m.kind, MARK_STEP);
    assert_int_equal(m.has, 127);
    assert_int_equal(m.step, 120);
    assert_true(m.epoch == 1.45);
    assert_int_equal(m.steps_per_epoch, 83);
    assert_int_equal(m.max_steps, 249);
    assert_int_equal(m.rank, 3);
    assert_int_equal(m.examples, 663);
    assert_int_equal(m.effective_batch, 8);
    assert_ptr_equal(m.text, s);
    assert_int_equal(m.len, strlen(s));
    assert_int_equal(m.t_ns, 0);
    assert_int_equal(m.pid, 0);
}

static void mark_without_final_newline_is_accepted(void **state)
{
    struct mark m;

    (void)state;
    assert_int_equal(parse("KIND=eval", &m), 0);
    assert_int_equal(m.kind, MARK_EVAL);
    assert_int_equal(m.has, 0);
}

static void every_mark_kind_is_parsed_from_its_name(void **state)
{
    (void)state;
    for (int k = 0; k < MARK_KIND_COUNT; k++) {
        const char *word = mark_kind_name((enum mark_kind)k);

        assert_int_equal(mark_kind_parse(word, strlen(word)), k);
    }
    assert_int_equal(mark_kind_parse("STEP", 4), MARK_OTHER);
    assert_int_equal(mark_kind_parse("stepp", 4), MARK_STEP);
    assert_int_equal(mark_kind_parse("", 0), MARK_OTHER);
}

static void unknown_mark_kind_and_keys_are_preserved(void **state)
{
    struct mark m;
    size_t len;
    const char *v;

    (void)state;
    assert_int_equal(parse("LOSS=0.25\nKIND=lunch\nNOTE=a=b caf\xc3\xa9\nEMPTY=\n", &m), 0);
    assert_int_equal(m.kind, MARK_OTHER);
    v = mark_get(&m, "NOTE", &len);
    assert_non_null(v);
    assert_int_equal(len, strlen("a=b caf\xc3\xa9"));
    assert_memory_equal(v, "a=b caf\xc3\xa9", len);
    assert_non_null(mark_get(&m, "EMPTY", &len));
    assert_int_equal(len, 0);
    assert_non_null(mark_get(&m, "KIND", &len));
    assert_int_equal(len, 5);
    assert_null(mark_get(&m, "NOT", &len));
    assert_null(mark_get(&m, "NOTES", &len));
}

static void first_value_of_a_repeated_mark_key_is_used(void **state)
{
    struct mark m;
    size_t len;

    (void)state;
    assert_int_equal(parse("KIND=step\nSTEP=1\nSTEP=2\nKIND=eval\nEPOCH=3\nEPOCH=4\n", &m), 0);
    assert_int_equal(m.kind, MARK_STEP);
    assert_int_equal(m.step, 1);
    assert_true(m.epoch == 3.0);
    assert_memory_equal(mark_get(&m, "STEP", &len), "1", 1);
}

static void mark_without_a_kind_is_refused(void **state)
{
    (void)state;
    assert_bad("");
    assert_bad("STEP=3\n");
    assert_bad("KIND=\n");
    assert_bad("KIND\n");
    assert_bad("kind=step\n");
    assert_bad("KINDS=step\n");
}

static void mark_with_a_malformed_line_is_refused(void **state)
{
    (void)state;
    assert_bad("KIND=step\nnonsense\n");
    assert_bad("KIND=step\n=3\n");
    assert_bad("KIND=step\n1A=3\n");
    assert_bad("KIND=step\n_A=3\n");
    assert_bad("KIND=step\nA-B=3\n");
    assert_bad("KIND=step\n A=3\n");
    assert_bad("KIND=step\n\nSTEP=3\n");
    assert_bad("\nKIND=step\n");
    assert_bad("KIND=step\n\n");
    assert_bad("KIND=step\nCAF\xc3\x89=1\n");
}

static void mark_with_an_invalid_number_is_refused(void **state)
{
    static const char *const values[] = {
        "abc",
        "",
        " 3",
        "3 ",
        "3.5",
        "0x10",
        "1e3",
        "--1",
        "+1",
        "-1",
        "3\r",
        "-0x",
        "NaN",
        "９",
        "9223372036854775808",
        "99999999999999999999999",
    };
    static const char *const keys[] = {"STEP", "STEPS_PER_EPOCH", "MAX_STEPS",
                                       "RANK", "EXAMPLES",        "EFFECTIVE_BATCH"};
    char s[128];

    (void)state;
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
            snprintf(s, sizeof(s), "KIND=step\n%s=%s\n", keys[k], values[i]);
            assert_bad(s);
        }
    assert_bad("KIND=step\nSTEP=1\nSTEP=x\n");
    assert_bad("KIND=step\nSTEPS_PER_EPOCH=0\n");
    assert_bad("KIND=step\nEFFECTIVE_BATCH=0\n");
}

static void largest_64_bit_step_number_is_accepted(void **state)
{
    struct mark m;

    (void)state;
    assert_int_equal(parse("KIND=step\nSTEP=9223372036854775807\n", &m), 0);
    assert_true(m.step == INT64_MAX);
    assert_int_equal(parse("KIND=begin\nSTEP=0\nMAX_STEPS=0\n", &m), 0);
    assert_int_equal(m.step, 0);
    assert_int_equal(m.has, MARK_HAS_STEP | MARK_HAS_MAX_STEPS);
}

static void epoch_of_a_mark_must_be_a_finite_nonnegative_number(void **state)
{
    static const char *const bad[] = {"nan",   "inf", "-inf", "infinity", "1e999", "-1",
                                      "0x1p3", "1,5", "1.5x", "",         ".",     "e5"};
    char s[64];
    struct mark m;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(s, sizeof(s), "KIND=epoch\nEPOCH=%s\n", bad[i]);
        assert_bad(s);
    }
    assert_int_equal(parse("KIND=epoch\nEPOCH=1e-3", &m), 0);
    assert_true(m.epoch == 1e-3);
    assert_int_equal(parse("KIND=epoch\nEPOCH=0.30000000000000004", &m), 0);
    assert_true(m.epoch == 0.30000000000000004);
}

static void mark_with_nul_or_invalid_utf8_is_refused(void **state)
{
    static const char *const bad[] = {
        "KIND=step\nA=\xff\n",             /* The byte 0xFF never occurs in UTF-8. */
        "KIND=step\nA=\xc0\xaf\n",         /* overlong slash */
        "KIND=step\nA=\xe0\x80\xaf\n",     /* This is an overlong encoding of "/" in three bytes. */
        "KIND=step\nA=\xed\xa0\x80\n",     /* a surrogate */
        "KIND=step\nA=\xf4\x90\x80\x80\n", /* beyond U+10FFFF */
        "KIND=step\nA=\xc3",               /* truncated */
        "KIND=step\nA=\x80\n",             /* This is a continuation byte without a start byte. */
    };
    struct mark m;

    (void)state;
    assert_bad_bytes("KIND=step\nA=\0\n", 14);
    assert_bad_bytes("KIND=step\0", 10);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_bad(bad[i]);
    assert_int_equal(parse("KIND=step\nA=\xf0\x9f\x8c\x8a\xed\x9f\xbf\xef\xbf\xbd\n", &m), 0);
}

static void longest_mark_is_accepted_and_a_longer_one_refused(void **state)
{
    char s[MARK_TEXT_MAX + 1];
    struct mark m;

    (void)state;
    memset(s, 'x', sizeof(s));
    memcpy(s, "KIND=step\nA=", 12);
    assert_int_equal(mark_parse(s, MARK_TEXT_MAX, &m), 0);
    assert_bad_bytes(s, MARK_TEXT_MAX + 1);
}

static void parsing_a_truncated_mark_reads_no_byte_past_the_end(void **state)
{
    static const char s[] = "KIND=phase\nNAME=\xe2\x82\xac\nSTATE=begin\nSTEP=12\nEPOCH=0.5\n";
    struct mark m;

    (void)state;
    for (size_t len = 0; len < sizeof(s); len++) {
        /* The copy is allocated with its exact length, so the sanitizer detects a read past its
         * end. */
        char *copy = malloc(len + 1);
        int r;

        assert_non_null(copy);
        memcpy(copy, s, len);
        copy = realloc(copy, len > 0 ? len : 1);
        r = mark_parse(copy, len, &m);
        assert_true(r == 0 || r == -EBADMSG);
        free(copy);
    }
}

static void sending_a_mark_returns_the_errno_of_a_failure(void **state)
{
    char path[200];

    (void)state;
    memset(path, 'a', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(mark_send(path, "KIND=step", 9, 0), -ENAMETOOLONG);
    assert_int_equal(mark_send("", "KIND=step", 9, 0), -EINVAL);
    assert_int_equal(mark_send("/nowhere/at/all", "KIND=step", 9, 0), -ENOENT);
    assert_int_equal(mark_send("/nowhere/at/all", "KIND=step", 9, 1), -ENOENT);
}

static void sending_to_a_full_mark_socket_returns_eagain(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char folder[] = "/tmp/ebb-test-XXXXXX";
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), r = 0;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/s", folder);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    for (int i = 0; i < 1000000 && r == 0; i++)
        r = mark_send(a.sun_path, "KIND=step", 9, 0);
    assert_int_equal(r, -EAGAIN);
    assert_int_equal(mark_send(a.sun_path, "KIND=step", 9, 1), -EAGAIN);
    close(fd);
    assert_int_equal(mark_send(a.sun_path, "KIND=step", 9, 0), -ECONNREFUSED);
    unlink(a.sun_path);
    rmdir(folder);
}

static void metric_name_in_a_recording_is_split_into_name_and_pid(void **state)
{
    char name[8];
    int32_t pid;
    (void)state;
    assert_true(mark_figure_parse("heap@4711", name, sizeof name, &pid));
    assert_string_equal(name, "heap");
    assert_int_equal(pid, 4711);
    /* The last "@" separates the name from the pid. */
    assert_true(mark_figure_parse("a@b@7", name, sizeof name, &pid));
    assert_string_equal(name, "a@b");
    assert_true(mark_figure_parse("alone", name, sizeof name, &pid));
    assert_int_equal(pid, 0);
    const char *const bad[] = {"",        "@7", "heap@", "heap@-1", "heap@x", "heap@4294967296",
                               "too_long"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(mark_figure_parse(bad[i], name, sizeof name, &pid));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metric_name_in_a_recording_is_split_into_name_and_pid),
        cmocka_unit_test(step_mark_with_all_keys_is_decoded),
        cmocka_unit_test(mark_without_final_newline_is_accepted),
        cmocka_unit_test(every_mark_kind_is_parsed_from_its_name),
        cmocka_unit_test(unknown_mark_kind_and_keys_are_preserved),
        cmocka_unit_test(first_value_of_a_repeated_mark_key_is_used),
        cmocka_unit_test(mark_without_a_kind_is_refused),
        cmocka_unit_test(mark_with_a_malformed_line_is_refused),
        cmocka_unit_test(mark_with_an_invalid_number_is_refused),
        cmocka_unit_test(largest_64_bit_step_number_is_accepted),
        cmocka_unit_test(epoch_of_a_mark_must_be_a_finite_nonnegative_number),
        cmocka_unit_test(mark_with_nul_or_invalid_utf8_is_refused),
        cmocka_unit_test(longest_mark_is_accepted_and_a_longer_one_refused),
        cmocka_unit_test(parsing_a_truncated_mark_reads_no_byte_past_the_end),
        cmocka_unit_test(sending_a_mark_returns_the_errno_of_a_failure),
        cmocka_unit_test(sending_to_a_full_mark_socket_returns_eagain),
    };

    return cmocka_run_group_tests_name("mark", tests, NULL, NULL);
}
