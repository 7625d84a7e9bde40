/* From a command line and a config file to the settings of the guard. */
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

#include "base/clock.h"
#include "base/io.h"
#include "cli/run_guard.h"

enum { ARGUMENTS_MAX = 32, LINE_MAX_BYTES = 512 };

static const struct cli_command command = {.name = "run",
                                           .operands = "-- CMD [ARG…]",
                                           .more_options = run_guard_table,
                                           .options_size = sizeof(struct run_guard_options),
                                           .stop_at_operand = true};

struct given {
    char line[LINE_MAX_BYTES];
    struct cli_call call;
    struct run_guard guard;
    struct err err;
};

/* LINE has a | between two arguments. */
static int give(struct given *g, const char *line)
{
    char *argv[ARGUMENTS_MAX + 1] = {g->line};
    int argc = 0;
    *g = (struct given){0};
    snprintf(g->line, sizeof(g->line), "run|%s", line);
    for (char *word = strtok(g->line, "|"); word; word = strtok(NULL, "|")) {
        assert_true(argc < ARGUMENTS_MAX);
        argv[argc++] = word;
    }
    int r = cli_parse(&command, argc, argv, &g->call, &g->err);
    return r < 0 ? r : run_guard_init(&g->guard, &g->call, &g->err);
}

static void take_back(struct given *g)
{
    run_guard_fini(&g->guard);
    cli_call_fini(&g->call);
}

static const struct guard_settings *settings_of(struct given *g, const char *line)
{
    if (give(g, line) != 0)
        fail_msg("%s: %s", line, g->err.text);
    return &g->guard.settings;
}

static void is_refused(const char *line, const char *sentence)
{
    struct given g;
    assert_int_not_equal(give(&g, line), 0);
    assert_string_equal(g.err.text, sentence);
    take_back(&g);
}

static void without_options_the_defaults_are_as_documented(void **state)
{
    (void)state;
    struct given g;
    const struct guard_settings *s = settings_of(&g, "--|true");
    assert_false(s->is_off || s->dry_run || s->has_limit || s->has_reserve || s->has_gpu_limit);
    assert_false(s->restart || s->no_cgroup || s->keep_on_exit || s->clean_shm);
    assert_float_equal(s->rules.margin_s, 2, 0);
    assert_float_equal(s->rules.checkpoint_s, 10, 0);
    assert_float_equal(s->rules.wait_s, 600, 0);
    assert_float_equal(s->rules.grace_s, 10, 0);
    assert_float_equal(s->rules.pressure, 0.3, 1e-12);
    assert_int_equal(s->rules.reserve_bytes, 0);
    assert_int_equal(s->max_restarts, 10);
    assert_int_equal(s->restart_every.unit, RESTART_NEVER);
    assert_int_equal(s->ask.signo, 0);
    assert_null(s->ask.command);
    assert_null(s->ask.done);
    assert_null(s->resume_args);
    take_back(&g);
}

static void every_value_reaches_the_settings(void **state)
{
    (void)state;
    struct given g;
    const struct guard_settings *s =
        settings_of(&g, "--limit|24G|--reserve|5%|--gpu-limit|90%|--margin|3s|--checkpoint-time|4s|"
                        "--checkpoint-wait|5m|--grace|6s|--pressure|12.5%|--checkpoint-signal|usr2|"
                        "--checkpoint-cmd|touch x|--checkpoint-done|/y|--|true");
    assert_true(s->has_limit && s->has_reserve && s->has_gpu_limit);
    assert_int_equal(s->limit.bytes, UINT64_C(24) << 30);
    assert_int_equal(s->reserve.permyriad, 500);
    assert_int_equal(s->gpu_limit.permyriad, 9000);
    assert_float_equal(s->rules.margin_s, 3, 0);
    assert_float_equal(s->rules.checkpoint_s, 4, 0);
    assert_float_equal(s->rules.wait_s, 300, 0);
    assert_float_equal(s->rules.grace_s, 6, 0);
    assert_float_equal(s->rules.pressure, 0.125, 1e-12);
    assert_false(s->rules.no_pressure);
    assert_int_equal(s->ask.signo, SIGUSR2);
    assert_string_equal(s->ask.command, "touch x");
    assert_string_equal(s->ask.done, "/y");
    take_back(&g);
}

static void every_flag_sets_its_own_setting_and_no_other(void **state)
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
    snprintf(line, sizeof(line), "--restart-every|%s|--|true", text);
    const struct guard_settings *s = settings_of(&g, line);
    assert_true(s->restart);
    assert_int_equal(s->restart_every.unit, unit);
    assert_int_equal(s->restart_every.value, value);
    take_back(&g);
}

static void a_planned_restart_is_after_time_or_steps_or_at_a_size(void **state)
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

static void resume_arguments_are_words(void **state)
{
    (void)state;
    struct given g;
    const struct guard_settings *s =
        settings_of(&g, "--restart|--max-restarts|3|--resume-args|--resume 'a b'|--|true");
    assert_int_equal(s->max_restarts, 3);
    assert_string_equal(s->resume_args[0], "--resume");
    assert_string_equal(s->resume_args[1], "a b");
    assert_null(s->resume_args[2]);
    take_back(&g);
}

/* A config file of TEXT; its name goes into PATH. */
static void write_config(char path[64], const char *text)
{
    snprintf(path, 64, "/tmp/ebb-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static void the_file_fills_in_what_the_command_line_leaves_open(void **state)
{
    (void)state;
    struct given g;
    char path[64], line[256];
    write_config(path, "limit = 24G\ngrace = 5s\nrestart\nresume-args = --resume last\n");
    snprintf(line, sizeof(line), "--limit|2G|--config|%s|--|true", path);
    const struct guard_settings *s = settings_of(&g, line);
    assert_int_equal(s->limit.bytes, UINT64_C(2) << 30);
    assert_float_equal(s->rules.grace_s, 5, 0);
    assert_true(s->restart);
    assert_string_equal(s->resume_args[1], "last");
    take_back(&g);
    snprintf(line, sizeof(line), "--no-guard|--config|%s|--|true", path);
    s = settings_of(&g, line);
    assert_true(s->is_off);
    assert_false(s->has_limit || s->restart);
    assert_null(s->resume_args);
    take_back(&g);
    unlink(path);
}

static void contradictions_with_the_file_name_its_line(void **state)
{
    (void)state;
    char path[64], line[256], sentence[256];
    write_config(path, "# rules\nno-guard\n");
    snprintf(line, sizeof(line), "--limit|2G|--config|%s|--|true", path);
    snprintf(sentence, sizeof(sentence),
             "run: --limit is for the guard, but no-guard (%s:2) turns it off", path);
    is_refused(line, sentence);
    unlink(path);
    write_config(path, "resume-args = -r\n");
    snprintf(line, sizeof(line), "--config|%s|--|true", path);
    snprintf(sentence, sizeof(sentence),
             "run: resume-args (%s:1) is about restarts, but there are none without --restart or "
             "--restart-every",
             path);
    is_refused(line, sentence);
    unlink(path);
}

static void what_no_setting_can_be_is_refused(void **state)
{
    (void)state;
    is_refused("--reserve|2G|--limit|2G",
               "run: --reserve is 2.00 GiB, which is not below the 2.00 GiB of --limit");
    is_refused("--restart-every|3G|--limit|2G",
               "run: --restart-every is 3.00 GiB, which is not below the 2.00 GiB of --limit");
    is_refused("--reserve|100%", "run: --reserve of 100% leaves the job nothing; give less");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_options_the_defaults_are_as_documented),
        cmocka_unit_test(every_value_reaches_the_settings),
        cmocka_unit_test(every_flag_sets_its_own_setting_and_no_other),
        cmocka_unit_test(a_planned_restart_is_after_time_or_steps_or_at_a_size),
        cmocka_unit_test(resume_arguments_are_words),
        cmocka_unit_test(the_file_fills_in_what_the_command_line_leaves_open),
        cmocka_unit_test(contradictions_with_the_file_name_its_line),
        cmocka_unit_test(what_no_setting_can_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
