/* Tests config files: accepted lines, lines that the command line overrides, and refused lines. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/quantity.h"
#include "options/option.h"

struct things {
    struct quantity_size size;
    uint64_t time_ns;
    const char *text;
    int64_t number;
    bool flag, other;
    const char *file;
};
enum { SIZE, TIME, TEXT, NUMBER, FLAG, OTHER, CONFIG, THINGS };

static const struct option_desc table[] = {
    [SIZE] = {.name = "limit",
              .type = OPTION_SIZE,
              .arg = "SIZE",
              .offset = offsetof(struct things, size)},
    [TIME] = {.name = "grace",
              .type = OPTION_DURATION,
              .arg = "TIME",
              .offset = offsetof(struct things, time_ns)},
    [TEXT] = {.name = "checkpoint-cmd",
              .type = OPTION_TEXT,
              .arg = "CMD",
              .offset = offsetof(struct things, text)},
    [NUMBER] = {.name = "max-restarts",
                .type = OPTION_INT,
                .arg = "N",
                .min = 1,
                .max = 9,
                .offset = offsetof(struct things, number)},
    [FLAG] = {.name = "restart", .type = OPTION_FLAG, .offset = offsetof(struct things, flag)},
    [OTHER] = {.name = "dry-run", .type = OPTION_FLAG, .offset = offsetof(struct things, other)},
    [CONFIG] = {.name = "config",
                .scope = OPTION_COMMAND_LINE,
                .type = OPTION_PATH,
                .arg = "FILE",
                .offset = offsetof(struct things, file)},
    [THINGS] = {.name = NULL},
};

/* A config file and the options parsed from it. */
struct file {
    struct things things;
    struct options_given given;
    char text[512];
    struct err err;
};

static void file_fini(struct file *f)
{
    options_given_fini(&f->given);
}
#define AUTO_FILE __attribute__((cleanup(file_fini)))

static int parse_bytes(struct file *f, const char *text, size_t len)
{
    const struct options_config c = {.file = "guard.conf",
                                     .command = "run",
                                     .table = table,
                                     .given = &f->given,
                                     .values = &f->things,
                                     .values_size = sizeof f->things};
    assert_true(len < sizeof f->text);
    memcpy(f->text, text, len);
    f->text[len] = '\0';
    return options_config_parse(&c, f->text, len, &f->err);
}

/* Returns the line that sets option I, or 0 if none does. */
static int line_of(const struct file *f, int i)
{
    const struct option_given *g = options_find(&f->given, table[i].name);
    return g ? g->line : 0;
}

static int parse(struct file *f, const char *text)
{
    return parse_bytes(f, text, strlen(text));
}

static void is_good(struct file *f, const char *text)
{
    file_fini(f);
    *f = (struct file){0};
    if (parse(f, text) != 0)
        fail_msg("%s", f->err.text);
}

static void is_refused(const char *text, const char *sentence)
{
    AUTO_FILE struct file f = {0};
    assert_int_equal(parse(&f, text), -EINVAL);
    assert_string_equal(f.err.text, sentence);
}

static void config_file_sets_options_of_every_type(void **state)
{
    (void)state;
    AUTO_FILE struct file f = {0};
    is_good(&f, "limit = 24G\ngrace=1.5s\ncheckpoint-cmd = touch a=b c\n\tmax-restarts =3\r\n"
                "restart\ndry-run = yes");
    assert_int_equal(f.things.size.bytes, UINT64_C(24) << 30);
    assert_int_equal(f.things.time_ns, 1500 * NS_PER_MS);
    assert_string_equal(f.things.text, "touch a=b c");
    assert_int_equal(f.things.number, 3);
    assert_true(f.things.flag && f.things.other);
    for (int i = SIZE; i < CONFIG; i++)
        assert_int_equal(line_of(&f, i), i + 1);
}

static void config_ignores_comments_and_empty_lines(void **state)
{
    (void)state;
    AUTO_FILE struct file f = {0};
    is_good(&f, "");
    is_good(&f, "\n\n  # limit = x\n#\n \t\r\n");
    for (int i = 0; i < THINGS; i++)
        assert_int_equal(line_of(&f, i), 0);
    is_good(&f, "limit = 1G # for now\ncheckpoint-cmd = a#b '# c' # d\nrestart # yes\n");
    assert_int_equal(f.things.size.bytes, UINT64_C(1) << 30);
    assert_string_equal(f.things.text, "a#b '# c'");
    assert_true(f.things.flag);
    assert_int_equal(line_of(&f, FLAG), 3);
}

static void config_strips_quotes_around_a_value(void **state)
{
    (void)state;
    AUTO_FILE struct file f = {0};
    is_good(&f, "checkpoint-cmd = \"touch 'a b'\"\nlimit = '2G'");
    assert_string_equal(f.things.text, "touch 'a b'");
    assert_int_equal(f.things.size.bytes, UINT64_C(2) << 30);
    is_good(&f, "checkpoint-cmd = \"a b\" \"c\"");
    assert_string_equal(f.things.text, "\"a b\" \"c\"");
    is_good(&f, "checkpoint-cmd = '");
    assert_string_equal(f.things.text, "'");
}

static void config_flag_set_to_no_is_treated_as_not_given(void **state)
{
    (void)state;
    AUTO_FILE struct file f = {0};
    is_good(&f, "restart = no\ndry-run = yes\n");
    assert_false(f.things.flag);
    assert_int_equal(line_of(&f, FLAG), 0);
    assert_true(f.things.other);
}

static void invalid_config_value_is_refused_even_if_overridden(void **state)
{
    (void)state;
    AUTO_FILE struct file f = {0};
    assert_int_equal(
        options_give(&f.given, &table[NUMBER], "--max-restarts", "7", &f.things, &f.err), 0);
    assert_int_equal(parse(&f, "max-restarts = 3\nlimit = 1G"), 0);
    assert_int_equal(f.things.number, 7);
    assert_int_equal(line_of(&f, NUMBER), 0);
    assert_int_equal(line_of(&f, SIZE), 2);
    assert_int_equal(parse(&f, "max-restarts = x"), -EINVAL);
    assert_int_equal(f.things.number, 7);
    assert_memory_equal(f.err.text, "guard.conf:1: max-restarts: \"x\" ", 32);
}

static void config_errors_start_with_file_and_line(void **state)
{
    (void)state;
    is_refused("\n\nlimt = 1G", "guard.conf:3: unknown option \"limt\"; did you mean \"limit\"?");
    is_refused("--limit = 1G", "guard.conf:1: unknown option \"--limit\"; did you mean \"limit\"?");
    is_refused("= 1G", "guard.conf:1: unknown option \"\"; `ebb help run` lists all options");
    is_refused("[guard]\n",
               "guard.conf:1: unknown option \"[guard]\"; `ebb help run` lists all options");
    is_refused("config = x",
               "guard.conf:1: unknown option \"config\"; `ebb help run` lists all options");
    is_refused("# x\nlimit", "guard.conf:2: limit has no value; write it like limit = SIZE");
    is_refused("limit = # 1G", "guard.conf:1: limit has no value; write it like limit = SIZE");
    is_refused("checkpoint-cmd = ''",
               "guard.conf:1: checkpoint-cmd has no value; write it like checkpoint-cmd = CMD");
    is_refused("limit = 12X", "guard.conf:1: limit: \"12X\" is not a size; write it like 512M, "
                              "24G, 1.5GiB or 80%");
    is_refused("grace = 5",
               "guard.conf:1: grace: \"5\" has no unit; write it like 500ms, 10s or 5m");
    is_refused("restart = maybe", "guard.conf:1: restart: \"maybe\" is neither yes nor no");
    is_refused("restart =", "guard.conf:1: restart: \"\" is neither yes nor no");
    is_refused("limit = 1G\n\nlimit = 2G", "guard.conf:3: limit is already set in line 1");
    is_refused("restart = no\nrestart", "guard.conf:2: restart is already set in line 1");
}

static void binary_config_file_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
    } wrong[] = {{"limit = 1G\n\0", 12},
                 {"\x7f"
                  "ELF\x02\x01",
                  6},
                 {"# caf\xe9\n", 7},
                 {"a\x1b[1m", 5}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        AUTO_FILE struct file f = {0};
        assert_int_equal(parse_bytes(&f, wrong[i].bytes, wrong[i].len), -EINVAL);
        assert_string_equal(f.err.text,
                            "guard.conf is not a text file; write lines like limit = 24G");
    }
    AUTO_FILE struct file f = {0};
    is_good(&f, "# café …\nlimit = 1G");
    assert_int_equal(line_of(&f, SIZE), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_file_sets_options_of_every_type),
        cmocka_unit_test(config_ignores_comments_and_empty_lines),
        cmocka_unit_test(config_strips_quotes_around_a_value),
        cmocka_unit_test(config_flag_set_to_no_is_treated_as_not_given),
        cmocka_unit_test(invalid_config_value_is_refused_even_if_overridden),
        cmocka_unit_test(config_errors_start_with_file_and_line),
        cmocka_unit_test(binary_config_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
