/* Tests options of a run that come from a command line, a config file or a request, and their
 * conversion back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "options/run_options.h"

enum { LINE_MAX_BYTES = 512 };

struct given {
    struct run_options options;
    struct options_given given;
    struct err err;
};

static const struct option_desc *row_of(const char *name)
{
    const struct option_desc *o = run_options_table;
    while (o->name && strcmp(o->name, name) != 0)
        o++;
    assert_non_null(o->name);
    return o;
}

/* Parses LINE, in which "|" separates arguments: "--name", "--name=value" or "--name|value". */
static int give(struct given *g, const char *line)
{
    char words[LINE_MAX_BYTES], what[64];
    *g = (struct given){0};
    snprintf(words, sizeof words, "%s", line);
    int r = options_fall_back(run_options_table, &g->options, &g->err);
    for (char *word = strtok(words, "|"); r == 0 && word; word = strtok(NULL, "|")) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = '\0';
        const struct option_desc *o = row_of(word + 2);
        if (o->type != OPTION_FLAG && !value)
            value = strtok(NULL, "|");
        snprintf(what, sizeof what, "--%s", o->name);
        r = options_give(&g->given, o, what, value, &g->options, &g->err);
    }
    return r < 0 ? r : run_options_complete(&g->options, &g->given, &g->err);
}

static void take_back(struct given *g)
{
    run_options_fini(&g->options);
    options_given_fini(&g->given);
}

static const struct guard_settings *settings_of(struct given *g, const char *line)
{
    if (give(g, line) != 0)
        fail_msg("%s: %s", line, g->err.text);
    return &g->options.guard;
}

static void is_refused(const char *line, const char *sentence)
{
    struct given g;
    assert_int_not_equal(give(&g, line), 0);
    assert_string_equal(g.err.text, sentence);
    take_back(&g);
}

static void run_options_have_documented_defaults(void **state)
{
    (void)state;
    struct given g;
    const struct guard_settings *s = settings_of(&g, "");
    assert_false(s->is_off || s->dry_run || quantity_is_given(&s->limit) ||
                 quantity_is_given(&s->reserve) || quantity_is_given(&s->gpu_limit));
    assert_false(s->restart || s->no_cgroup || s->keep_on_exit || s->clean_shm);
    assert_float_equal(s->rules.margin_s, 2, 0);
    assert_float_equal(s->rules.checkpoint_s, 10, 0);
    assert_float_equal(s->rules.wait_s, 600, 0);
    assert_float_equal(s->rules.grace_s, 10, 0);
    assert_float_equal(s->rules.pressure, 0.3, 1e-12);
    assert_int_equal(s->rules.reserve_bytes, 0);
    assert_int_equal(s->max_restarts, 10);
    assert_int_equal(s->restart_every.unit, RESTART_NEVER);
    assert_int_equal(s->checkpoint.signo, 0);
    assert_null(s->checkpoint.command);
    assert_null(s->checkpoint.done);
    assert_null(s->resume_args);
    take_back(&g);
}

static void each_run_option_with_a_value_is_stored_in_a_setting(void **state)
{
    (void)state;
    struct given g;
    const struct guard_settings *s =
        settings_of(&g, "--limit|24G|--reserve|5%|--gpu-limit|90%|--margin|3s|--checkpoint-time|4s|"
                        "--checkpoint-wait|5m|--grace|6s|--pressure|12.5%|--checkpoint-signal|usr2|"
                        "--checkpoint-cmd|touch x|--checkpoint-done|/y");
    assert_int_equal(s->limit.bytes, UINT64_C(24) << 30);
    assert_int_equal(s->reserve.permyriad, 500);
    assert_int_equal(s->gpu_limit.permyriad, 9000);
    assert_float_equal(s->rules.margin_s, 3, 0);
    assert_float_equal(s->rules.checkpoint_s, 4, 0);
    assert_float_equal(s->rules.wait_s, 300, 0);
    assert_float_equal(s->rules.grace_s, 6, 0);
    assert_float_equal(s->rules.pressure, 0.125, 1e-12);
    assert_false(s->rules.no_pressure);
    assert_int_equal(s->checkpoint.signo, SIGUSR2);
    assert_string_equal(s->checkpoint.command, "touch x");
    assert_string_equal(s->checkpoint.done, "/y");
    take_back(&g);
}

static void each_run_flag_sets_exactly_one_setting(void **state)
{
    (void)state;
    static const struct {
        const char *flag;
        size_t offset;
    } flags[] = {
        {"--no-guard", offsetof(struct guard_settings, is_off)},
        {"--dry-run", offsetof(struct guard_settings, dry_run)},
        {"--no-cgroup", offsetof(struct guard_settings, no_cgroup)},
        {"--restart", offsetof(struct guard_settings, restart)},
        {"--keep-on-exit", offsetof(struct guard_settings, keep_on_exit)},
        {"--clean-shm", offsetof(struct guard_settings, clean_shm)},
        {"--no-warn", offsetof(struct guard_settings, rules.no_warn)},
        {"--no-checkpoint", offsetof(struct guard_settings, rules.no_checkpoint)},
        {"--no-term", offsetof(struct guard_settings, rules.no_term)},
        {"--no-kill", offsetof(struct guard_settings, rules.no_kill)},
        {"--no-forecast", offsetof(struct guard_settings, rules.no_forecast)},
        {"--no-level", offsetof(struct guard_settings, rules.no_level)},
        {"--pressure=off", offsetof(struct guard_settings, rules.no_pressure)},
    };
    enum { FLAGS = sizeof(flags) / sizeof(flags[0]) };
    for (size_t i = 0; i < FLAGS; i++) {
        struct given g;
        const char *s = (const char *)settings_of(&g, flags[i].flag);
        for (size_t j = 0; j < FLAGS; j++) {
            if (*(const bool *)(s + flags[j].offset) != (i == j))
                fail_msg("%s and the setting of %s", flags[i].flag, flags[j].flag);
        }
        take_back(&g);
    }
}

static void restarts_every(const char *text, enum restart_unit unit, uint64_t value)
{
    struct given g;
    char line[128];
    snprintf(line, sizeof(line), "--restart-every|%s", text);
    const struct guard_settings *s = settings_of(&g, line);
    assert_true(s->restart);
    assert_int_equal(s->restart_every.unit, unit);
    assert_int_equal(s->restart_every.value, value);
    take_back(&g);
}

static void restart_interval_may_be_a_time_or_a_step_count_or_a_size(void **state)
{
    (void)state;
    restarts_every("2h", RESTART_AFTER_NS, 7200 * NS_PER_S);
    restarts_every("5m", RESTART_AFTER_NS, 300 * NS_PER_S);
    restarts_every("1500ms", RESTART_AFTER_NS, 1500 * NS_PER_MS);
    restarts_every("1.5 h", RESTART_AFTER_NS, 5400 * NS_PER_S);
    restarts_every("500steps", RESTART_AFTER_STEPS, 500);
    restarts_every("500 steps", RESTART_AFTER_STEPS, 500);
    restarts_every("1 step", RESTART_AFTER_STEPS, 1);
    restarts_every("20G", RESTART_AT_BYTES, UINT64_C(20) << 30);
    restarts_every("20 GiB", RESTART_AT_BYTES, UINT64_C(20) << 30);
    restarts_every("5M", RESTART_AT_BYTES, UINT64_C(5) << 20);
}

static void value_of_resume_args_is_split_into_words(void **state)
{
    (void)state;
    struct given g;
    const struct guard_settings *s =
        settings_of(&g, "--restart|--max-restarts|3|--resume-args|--resume 'a b'");
    assert_int_equal(s->max_restarts, 3);
    assert_string_equal(s->resume_args[0], "--resume");
    assert_string_equal(s->resume_args[1], "a b");
    assert_null(s->resume_args[2]);
    take_back(&g);
}

/* Writes a config file with content TEXT at PATH. */
static void write_config(char path[64], const char *text)
{
    snprintf(path, 64, "/tmp/ebb-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static void config_file_sets_options_missing_on_the_command_line(void **state)
{
    (void)state;
    struct given g;
    char path[64], line[256];
    write_config(path, "limit = 24G\ngrace = 5s\nrestart\nresume-args = --resume last\n");
    snprintf(line, sizeof(line), "--limit|2G|--config|%s", path);
    const struct guard_settings *s = settings_of(&g, line);
    assert_int_equal(s->limit.bytes, UINT64_C(2) << 30);
    assert_float_equal(s->rules.grace_s, 5, 0);
    assert_true(s->restart);
    assert_string_equal(s->resume_args[1], "last");
    take_back(&g);
    snprintf(line, sizeof(line), "--no-guard|--config|%s", path);
    s = settings_of(&g, line);
    assert_true(s->is_off);
    assert_false(quantity_is_given(&s->limit) || s->restart);
    assert_null(s->resume_args);
    take_back(&g);
    unlink(path);
}

static void conflicting_config_option_is_reported_with_file_and_line(void **state)
{
    (void)state;
    char path[64], line[256], sentence[256];
    write_config(path, "# rules\nno-guard\n");
    snprintf(line, sizeof(line), "--limit|2G|--config|%s", path);
    snprintf(sentence, sizeof(sentence),
             "--limit configures the guard, but no-guard (%s:2) disables it", path);
    is_refused(line, sentence);
    unlink(path);
    write_config(path, "resume-args = -r\n");
    snprintf(line, sizeof(line), "--config|%s", path);
    snprintf(sentence, sizeof(sentence),
             "resume-args (%s:1) has no effect without --restart or --restart-every", path);
    is_refused(line, sentence);
    unlink(path);
}

static void invalid_option_values_are_refused(void **state)
{
    (void)state;
    is_refused("--reserve|2G|--limit|2G",
               "--reserve: 2.00 GiB is too large; it must be less than --limit, which is 2.00 GiB");
    is_refused(
        "--restart-every|3G|--limit|2G",
        "--restart-every: 3.00 GiB is too large; it must be less than --limit, which is 2.00 GiB");
    is_refused("--reserve|100%",
               "--reserve: 100% leaves no memory for the job; use a smaller percentage");
    is_refused("--limit|24", "--limit: \"24\" has no unit; did you mean 24G?");
    is_refused("--limit|2K", "--limit: \"2K\" is less than a page of memory; write it like 24G");
    is_refused("--heap-interval|1K", "--heap-interval: \"1K\" is not a size from 4K to 1G");
    is_refused("--log-max|80%", "--log-max: \"80%\" is not a size of 64K or more");
}

static int read_request(struct given *g, const char *text)
{
    json_t *request = json_loads(text, JSON_ALLOW_NUL, NULL);
    *g = (struct given){0};
    int r = run_options_read_request(&g->options, &g->given, request, &g->err);
    json_decref(request);
    return r;
}

static void run_options_survive_conversion_to_request_and_argv(void **state)
{
    (void)state;
    static const char line[] = "--limit=80%|--grace=5s|--restart|--resume-args=--resume 'a b'|"
                               "--max-restarts=3|--checkpoint-signal=usr1|--interval=250ms";
    struct given sent, received;
    struct buf argv = {0};
    settings_of(&sent, line);
    json_t *request = json_object();
    assert_int_equal(run_options_put_request(request, &sent.given, &sent.err), 0);
    char *text = json_dumps(request, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"limit\":\"80%\",\"options\":{\"checkpoint-signal\":\"usr1\","
                              "\"grace\":\"5s\",\"interval\":\"250ms\",\"max-restarts\":\"3\","
                              "\"restart\":true,\"resume-args\":\"--resume 'a b'\"}}");
    assert_int_equal(read_request(&received, text), 0);
    assert_int_equal(received.options.guard.max_restarts, 3);
    assert_string_equal(received.options.guard.resume_args[1], "a b");
    assert_int_equal(options_put_argv(&argv, &received.given), 7);
    char *at = argv.data;
    for (const char *word = line; *word; word += strcspn(word, "|"), word += *word == '|') {
        char want[128];
        snprintf(want, sizeof want, "%.*s", (int)strcspn(word, "|"), word);
        assert_non_null(memmem(at, argv.len, want, strlen(want) + 1));
    }
    free(text);
    json_decref(request);
    buf_fini(&argv);
    take_back(&sent);
    take_back(&received);
}

static void request_is_refused(const char *text, const char *sentence)
{
    struct given g;
    assert_int_equal(read_request(&g, text), -EINVAL);
    assert_string_equal(g.err.text, sentence);
    take_back(&g);
}

static void error_on_refused_request_contains_the_option_and_value(void **state)
{
    (void)state;
    struct given g;
    assert_int_equal(read_request(&g, "{\"options\":{\"restart\":false,\"pss\":null,"
                                      "\"max-restarts\":null}}"),
                     0);
    assert_int_equal(g.given.count, 0);
    take_back(&g);
    request_is_refused("{\"limit\":\"24\"}", "--limit: \"24\" has no unit; did you mean 24G?");
    request_is_refused("{\"options\":{\"limit\":\"2G\"}}",
                       "options.limit: set the limit with the request's key \"limit\" instead");
    request_is_refused("{\"options\":{\"run-dir\":\"/etc\"}}",
                       "options: unknown option \"run-dir\"; `ebb help submit` lists all options");
    request_is_refused("{\"options\":{\"grce\":\"2s\"}}",
                       "options: unknown option \"grce\"; did you mean \"grace\"?");
    request_is_refused("{\"options\":{\"grace\":\"2\"}}",
                       "options.grace: \"2\" has no unit; write it like 500ms, 10s or 5m");
    request_is_refused("{\"options\":{\"grace\":[]}}",
                       "options.grace: [] is neither a string nor an integer");
    request_is_refused("{\"options\":{\"checkpoint-cmd\":\"a\\u0000b\"}}",
                       "options.checkpoint-cmd: \"a\\u0000b\" is neither a string nor an integer");
    request_is_refused("{\"options\":{\"restart\":\"yes\"}}",
                       "options.restart: \"yes\" is neither true nor false");
    request_is_refused("{\"options\":{\"no-guard\":true,\"grace\":\"2s\"}}",
                       "--grace configures the guard, but --no-guard disables it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_options_have_documented_defaults),
        cmocka_unit_test(each_run_option_with_a_value_is_stored_in_a_setting),
        cmocka_unit_test(each_run_flag_sets_exactly_one_setting),
        cmocka_unit_test(restart_interval_may_be_a_time_or_a_step_count_or_a_size),
        cmocka_unit_test(value_of_resume_args_is_split_into_words),
        cmocka_unit_test(config_file_sets_options_missing_on_the_command_line),
        cmocka_unit_test(conflicting_config_option_is_reported_with_file_and_line),
        cmocka_unit_test(invalid_option_values_are_refused),
        cmocka_unit_test(run_options_survive_conversion_to_request_and_argv),
        cmocka_unit_test(error_on_refused_request_contains_the_option_and_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
