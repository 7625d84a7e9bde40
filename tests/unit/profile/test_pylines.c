/* Tests line tables of every format: hand-made, damaged, and from the installed Python. */
#include "profile/pylines.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LEN(a) (sizeof(a) / sizeof(*(a)))
#define V39 UINT32_C(0x030910f0)
#define V310 UINT32_C(0x030a08f0)
#define V311 UINT32_C(0x030b02f0)
#define V314 UINT32_C(0x030e00f0)

/* Returns the line at OFFSET, or a negative errno. */
static int64_t line(const void *table, size_t len, uint32_t version, uint32_t first,
                    uint32_t offset)
{
    uint32_t ret = 0;
    int r = pylines_find(table, len, version, first, offset, &ret);
    return r < 0 ? r : (int64_t)ret;
}

static void line_table_of_python_3_9_is_decoded(void **state)
{
    static const uint8_t t[] = {0, 1, 6, 2, 8, 0xfe /* -2 */, 255, 0, 1, 5};
    (void)state;
    assert_int_equal(line(t, sizeof(t), V39, 10, 0), 11);
    assert_int_equal(line(t, sizeof(t), V39, 10, 4), 11);
    assert_int_equal(line(t, sizeof(t), V39, 10, 6), 13);
    assert_int_equal(line(t, sizeof(t), V39, 10, 14), 11);
    assert_int_equal(line(t, sizeof(t), V39, 10, 269), 11);
    assert_int_equal(line(t, sizeof(t), V39, 10, 270), 16);
    assert_int_equal(line(t, sizeof(t), V39, 10, 100000), 16);
}

static void line_table_of_python_3_10_may_have_code_without_a_line(void **state)
{
    static const uint8_t t[] = {4, 1, 2, 0x80 /* none */, 0, 100, 254, 27, 6, 0xff /* -1 */};
    (void)state;
    assert_int_equal(line(t, sizeof(t), V310, 10, 2), 11);
    assert_int_equal(line(t, sizeof(t), V310, 10, 4), -ENODATA);
    assert_int_equal(line(t, sizeof(t), V310, 10, 6), 138);
    assert_int_equal(line(t, sizeof(t), V310, 10, 260), 137);
    assert_int_equal(line(t, sizeof(t), V310, 10, 266), -ENODATA);
}

/* The table has one entry of each form: short, one line, no columns, long, none, two lines. */
static const uint8_t locations[] = {
    0x80 | 0 << 3 | 1,  0x11,             /* Location entry for two code units on the same line. */
    0x80 | 11 << 3 | 0, 4,    9,          /* next line */
    0x80 | 13 << 3 | 0, 7,                /* −3 */
    0x80 | 14 << 3 | 0, 0x4c, 2, 0, 1, 2, /* 70 × 2 = 0b10_001100 */
    0x80 | 15 << 3 | 7,                   /* Location entry for eight code units without a line. */
    0x80 | 12 << 3 | 0, 0,    0,          /* Location entry two lines further down. */
};

static void line_table_of_python_3_11_is_decoded_in_all_six_forms(void **state)
{
    static const uint32_t versions[] = {V311, V314};
    (void)state;
    for (size_t i = 0; i < LEN(versions); i++) {
        assert_int_equal(line(locations, sizeof(locations), versions[i], 10, 2), 10);
        assert_int_equal(line(locations, sizeof(locations), versions[i], 10, 4), 11);
        assert_int_equal(line(locations, sizeof(locations), versions[i], 10, 6), 8);
        assert_int_equal(line(locations, sizeof(locations), versions[i], 10, 8), 78);
        assert_int_equal(line(locations, sizeof(locations), versions[i], 10, 10), -ENODATA);
        assert_int_equal(line(locations, sizeof(locations), versions[i], 10, 25), -ENODATA);
        assert_int_equal(line(locations, sizeof(locations), versions[i], 10, 26), 80);
        assert_int_equal(line(locations, sizeof(locations), versions[i], 10, 28), -ENODATA);
    }
}

static void damaged_line_table_and_missing_line_have_different_errors(void **state)
{
    static const uint8_t odd[] = {4, 1, 2};
    static const uint8_t no_start[] = {0x11};
    static const uint8_t cut[] = {0x80 | 13 << 3, 0x40};
    static const uint8_t endless[] = {0x80 | 13 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 1};
    uint8_t far[4096];
    (void)state;
    assert_int_equal(line(odd, sizeof(odd), V39, 1, 9), -EBADMSG);
    assert_int_equal(line(odd, sizeof(odd), V310, 1, 9), -EBADMSG);
    assert_int_equal(line(no_start, sizeof(no_start), V311, 1, 0), -EBADMSG);
    assert_int_equal(line(cut, sizeof(cut), V311, 1, 0), -EBADMSG);
    assert_int_equal(line(endless, sizeof(endless), V311, 1, 0), -EBADMSG);
    assert_int_equal(line(odd, 0, V310, 1, 0), -ENODATA);
    assert_int_equal(line(NULL, 0, V311, 1, 0), -ENODATA);
    memset(far, 0x7f, sizeof(far)); /* Each pair of the table advances by 127 lines. */
    assert_int_equal(line(far, sizeof(far), V39, INT32_MAX, UINT32_MAX - 1), -EBADMSG);
    assert_int_equal(line(far, sizeof(far), V39, UINT32_MAX, 0), -EBADMSG);
}

static void python_line_numbers_below_1_are_treated_as_missing(void **state)
{
    static const uint8_t t[] = {0x80 | 13 << 3, 5 /* −2 */};
    (void)state;
    assert_int_equal(line(t, sizeof(t), V311, 1, 0), -ENODATA);
    assert_int_equal(line(t, sizeof(t), V311, 3, 0), 1);
}

static void line_tables_of_other_python_versions_are_refused(void **state)
{
    (void)state;
    assert_int_equal(line(locations, sizeof(locations), UINT32_C(0x030800f0), 1, 0), -ENOTSUP);
    assert_int_equal(line(locations, sizeof(locations), UINT32_C(0x030f00f0), 1, 0), -ENOTSUP);
    assert_int_equal(line(locations, sizeof(locations), UINT32_C(0x020700f0), 1, 0), -ENOTSUP);
    assert_int_equal(line(locations, sizeof(locations), 0, 1, 0), -ENOTSUP);
}

static void random_python_line_tables_are_never_read_past_their_end(void **state)
{
    static const uint32_t versions[] = {V39, V310, V311};
    uint64_t random = 88172645463325252U;
    (void)state;
    for (unsigned i = 0; i < 30000; i++) {
        size_t len = i % 40;
        uint8_t *t =
            /* A separate allocation lets the sanitizer detect reads past its end. */
            malloc(len ? len : 1);
        uint32_t ret = 77;
        for (size_t k = 0; k < len; k++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            t[k] = (uint8_t)(random >> 24);
        }
        int r = pylines_find(t, len, versions[i % 3], i, (uint32_t)(random % 300), &ret);
        assert_true(r == 0 || r == -ENODATA || r == -EBADMSG);
        assert_true(r == 0 ? ret > 0 && ret <= INT32_MAX : ret == 77);
        free(t);
    }
}

/* Prints one line per code object: version, first line, table, then START:END:LINE for all of
 * co_lines(). */
static const char script[] =
    "import sys, types, argparse, asyncio.base_events, enum, json.encoder, typing\n"
    "if sys.version_info < (3, 10): sys.exit()\n"
    "seen = set()\n"
    "def show(c):\n"
    "    if c in seen: return\n"
    "    seen.add(c)\n"
    "    print('%x %d %s' % (sys.hexversion, c.co_firstlineno, c.co_linetable.hex() or '-'),\n"
    "          *('%d:%d:%d' % (s, e, l or 0) for s, e, l in c.co_lines()))\n"
    "    for k in c.co_consts:\n"
    "        if isinstance(k, types.CodeType): show(k)\n"
    "for m in argparse, asyncio.base_events, enum, json.encoder, typing:\n"
    "    show(compile(open(m.__file__).read(), m.__file__, 'exec'))\n"
    "show(compile('\\n' * 300 + 'x = [a\\n\\n\\n for a in range(\\n3)]', '', 'exec'))\n";

static size_t from_hex(const char *hex, uint8_t *ret)
{
    size_t n = 0;
    for (; *hex != '-' && hex[0] && hex[1]; hex += 2) {
        char byte[3] = {hex[0], hex[1], '\0'};
        ret[n++] = (uint8_t)strtoul(byte, NULL, 16);
    }
    return n;
}

/* Returns the number of instructions compared. */
static size_t check_code(char *text)
{
    char *save = NULL;
    uint32_t version = (uint32_t)strtoul(strtok_r(text, " \n", &save), NULL, 16);
    uint32_t first = (uint32_t)strtoul(strtok_r(NULL, " \n", &save), NULL, 10);
    const char *hex = strtok_r(NULL, " \n", &save), *range;
    uint8_t *table = malloc(strlen(hex) + 1);
    size_t len = from_hex(hex, table), checked = 0;
    while ((range = strtok_r(NULL, " \n", &save))) {
        uint32_t start, end, want;
        assert_int_equal(sscanf(range, "%" SCNu32 ":%" SCNu32 ":%" SCNu32, &start, &end, &want), 3);
        for (uint32_t at = start; at < end; at += 2, checked++)
            assert_int_equal(line(table, len, version, first, at), want ? (int64_t)want : -ENODATA);
    }
    free(table);
    return checked;
}

static void line_tables_match_the_installed_python(void **state)
{
    char path[] = "/tmp/ebb-test-XXXXXX", command[128], *text = NULL;
    size_t cap = 0, checked = 0;
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    (void)state;
    assert_non_null(f);
    fputs(script, f);
    fclose(f);
    snprintf(command, sizeof(command), "python3 -I %s 2>/dev/null", path);
    FILE *in = popen(command, "r"); /* NOLINT: the tests' own command */
    assert_non_null(in);
    while (getline(&text, &cap, in) > 0)
        checked += check_code(text);
    pclose(in);
    remove(path);
    free(text);
    if (checked == 0) {
        print_message("no Python of 3.10 or later here to compare with\n");
        skip();
    }
    assert_true(checked > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_table_of_python_3_9_is_decoded),
        cmocka_unit_test(line_table_of_python_3_10_may_have_code_without_a_line),
        cmocka_unit_test(line_table_of_python_3_11_is_decoded_in_all_six_forms),
        cmocka_unit_test(damaged_line_table_and_missing_line_have_different_errors),
        cmocka_unit_test(python_line_numbers_below_1_are_treated_as_missing),
        cmocka_unit_test(line_tables_of_other_python_versions_are_refused),
        cmocka_unit_test(random_python_line_tables_are_never_read_past_their_end),
        cmocka_unit_test(line_tables_match_the_installed_python),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
