/* Parses command lines with a table of options. getopt_long finds the options; this file parses
 * their values and creates error messages. */
#include "cli/cli.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/quantity.h"
#include "judge/cluster.h"
#include "proc/procfs.h"

enum { LONG_BASE = 256 }; /* getopt's value for the option at INDEX is LONG_BASE + INDEX */

const struct option_desc cli_help_option = {
    .name = "help", .letter = 'h', .type = OPTION_FLAG, .help = "show this help"};

/* A command's table and --help, in getopt's format. */
struct table {
    const struct cli_command *command;
    const struct option_desc *options[OPTIONS_MAX + 1];
    size_t count;
    struct option longs[OPTIONS_MAX + 2];
    char letters[2 * OPTIONS_MAX + 5];
};

static void table_add(struct table *t, const struct option_desc *o, size_t *letters)
{
    assert(t->count < OPTIONS_MAX && "a command has at most OPTIONS_MAX options");
    int argument = o->type == OPTION_FLAG ? no_argument : required_argument;
    t->longs[t->count] = (struct option){o->name, argument, NULL, LONG_BASE + (int)t->count};
    t->options[t->count++] = o;
    if (!o->letter)
        return;
    t->letters[(*letters)++] = o->letter;
    if (argument == required_argument)
        t->letters[(*letters)++] = ':';
}

const struct option_desc *cli_option_at(const struct cli_command *command, size_t index)
{
    const struct option_desc *const tables[] = {command->options, command->more_options};
    /* --help comes before the first heading, or at the end if there is none. */
    bool is_help_due = true;
    for (size_t i = 0; i < 2; i++) {
        for (const struct option_desc *o = tables[i]; o && o->name; o++) {
            if (o->scope == OPTION_HIDDEN || (i == 1 && o->scope != OPTION_ANYWHERE))
                continue;
            if (is_help_due && o->heading) {
                is_help_due = false;
                if (index-- == 0)
                    return &cli_help_option;
            }
            if (index-- == 0)
                return o;
        }
    }
    return is_help_due && index == 0 ? &cli_help_option : NULL;
}

static void table_init(struct table *t, const struct cli_command *command)
{
    size_t letters = 0;
    *t = (struct table){.command = command};
    if (command->stop_at_operand)
        t->letters[letters++] = '+';
    /* a leading colon makes getopt distinguish a missing argument from an unknown option */
    t->letters[letters++] = ':';
    const struct option_desc *o;
    for (size_t i = 0; (o = cli_option_at(command, i)); i++)
        table_add(t, o, &letters);
    for (o = command->options; o && o->name; o++)
        if (o->scope == OPTION_HIDDEN)
            table_add(t, o, &letters);
}

static const struct option_desc *table_find(const struct table *t, int value)
{
    for (size_t i = 0; i < t->count; i++) {
        if (value == LONG_BASE + (int)i || value == t->options[i]->letter)
            return t->options[i];
    }
    return NULL;
}

/* Reports a long option that getopt does not know: TEXT is "--name" or "--name=value". */
static int unknown_long(const struct table *t, const char *text, struct err *err)
{
    const char *names[OPTIONS_MAX + 1];
    const char *fits[2] = {NULL, NULL};
    char name[100];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + 2, "="), text + 2);
    for (size_t i = 0, found = 0; i < t->count; i++) {
        names[i] = t->options[i]->name;
        if (found < 2 && strncmp(names[i], name, strlen(name)) == 0)
            fits[found++] = names[i];
    }
    if (fits[1])
        return err_set(err, -EINVAL, "--%s is ambiguous: it could be --%s or --%s", name, fits[0],
                       fits[1]);
    const char *nearest = option_nearest(name, names, t->count);
    if (nearest)
        return err_set(err, -EINVAL, "unknown option --%s; did you mean --%s?", name, nearest);
    return err_set(err, -EINVAL, "unknown option --%s; `ebb help %s` lists all options", name,
                   t->command->name);
}

/* Reports an unknown short option. Suggests the long option if the user wrote one with a single
 * dash ("-csv"). */
static int unknown_letter(const struct table *t, int letter, int argc, char **argv, struct err *err)
{
    for (int a = 1; a < argc; a++) {
        for (size_t i = 0; i < t->count; i++) {
            if (argv[a][0] == '-' && strcmp(argv[a] + 1, t->options[i]->name) == 0)
                return err_set(err, -EINVAL, "unknown option %s; did you mean --%s?", argv[a],
                               t->options[i]->name);
        }
    }
    return err_set(err, -EINVAL, "unknown option -%c; `ebb help %s` lists all options", letter,
                   t->command->name);
}

/* Writes the error for an option that getopt rejected with '?'. */
static int explain_refusal(const struct table *t, int argc, char **argv, struct err *err)
{
    const char *text = argv[optind - 1];
    const char *equals = strchr(text, '=');
    if (optopt == 0)
        return unknown_long(t, text, err);
    const struct option_desc *o = optopt >= LONG_BASE ? table_find(t, optopt) : NULL;
    if (o)
        return err_set(err, -EINVAL, "--%s takes no value, but \"%.100s\" was given", o->name,
                       equals ? equals + 1 : "");
    return unknown_letter(t, optopt, argc, argv, err);
}

/* Parses the options. Returns 0 after the last one, 1 if --help was found, or -EINVAL. */
static int parse_options(const struct table *t, int argc, char **argv, struct cli_call *call,
                         struct err *err)
{
    int value;
    char what[64];
    opterr = 0;
    optind = 0; /* resets glibc's getopt */
    while ((value = getopt_long(argc, argv, t->letters, t->longs, NULL)) != -1) {
        if (value == '?')
            return explain_refusal(t, argc, argv, err);
        const struct option_desc *o = table_find(t, value == ':' ? optopt : value);
        assert(o && "getopt returned an option that is in no table");
        if (value == ':')
            return err_set(err, -EINVAL, "--%s requires a value: --%s %s", o->name, o->name,
                           o->arg);
        if (o == &cli_help_option)
            return 1;
        snprintf(what, sizeof what, "--%s", o->name);
        if (options_give(call->given, o, what, optarg, call->options, err) < 0)
            return -EINVAL;
    }
    return 0;
}

static int count_words(const char *s)
{
    int count = *s != 0;
    for (; *s; s++)
        count += *s == ' ';
    return count;
}

/* Returns the rest of S after its first N words. */
static const char *operands_after(const char *s, int n)
{
    for (; n > 0 && *s; s++)
        n -= *s == ' ';
    return s;
}

static bool is_job(const char *name, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "ebb-runs/%s", name);
    return n > 0 && n < PATH_MAX && cluster_is_folder(path);
}

/* If OPERAND is the id of a job on several nodes ("123") or of a step of such a job ("123.0"), and
 * ebb-runs has a folder for this id, writes the path of the folder to RET and returns RET. If the
 * job has several steps, uses the last step. Returns OPERAND in all other cases. */
static const char *job_folder_find(const char *operand, char ret[PATH_MAX])
{
    struct stat st;
    char last[NAME_MAX + 1] = "", path[PATH_MAX];
    size_t len = strlen(operand);
    if (!len || operand[0] == '.' || strchr(operand, '/') || stat(operand, &st) == 0)
        return operand;
    if (is_job(operand, ret))
        return ret;
    DIR *dir = io_open_folder(AT_FDCWD, "ebb-runs");
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (strncmp(d->d_name, operand, len) == 0 && d->d_name[len] == '.' &&
            strverscmp(d->d_name, last) > 0 && is_job(d->d_name, path))
            snprintf(last, sizeof last, "%s", d->d_name);
    if (dir)
        closedir(dir);
    return last[0] && is_job(last, ret) ? ret : operand;
}

/* Checks that the number of operands matches the command's description of its operands. */
static int check_operands(const struct cli_command *command, int count, char **operands,
                          struct err *err)
{
    const char *wanted = command->operands;
    int named = count_words(wanted);
    if (count < named && !strchr("[-", wanted[0]))
        return err_set(err, -EINVAL, "%s is missing; usage: ebb %s %s%s",
                       operands_after(wanted, count), command->name,
                       command->options ? "[OPTION…] " : "", wanted);
    int most = strstr(wanted, "…") ? count : named;
    if (count > most)
        return err_set(err, -EINVAL, "unexpected operand \"%.100s\"; usage: ebb %s%s%s%s",
                       operands[most], command->name, command->options ? " [OPTION…]" : "",
                       wanted[0] ? " " : "", wanted);
    return 0;
}

int cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_call *ret,
              struct err *err)
{
    struct table t;
    table_init(&t, command);
    struct cli_call call = {.options = calloc(1, command->options_size ? command->options_size : 1),
                            .given = calloc(1, sizeof *call.given)};
    if (!call.options || !call.given)
        return err_set(err, -ENOMEM, "out of memory");
    int r = options_fall_back(command->options, call.options, err);
    if (r == 0)
        r = options_fall_back(command->more_options, call.options, err);
    if (r == 0)
        r = parse_options(&t, argc, argv, &call, err);
    if (r == 0)
        r = check_operands(command, argc - optind, argv + optind, err);
    if (r != 0) {
        cli_call_fini(&call);
        return r;
    }
    call.argc = argc - optind;
    call.argv = argv + optind;
    if (call.argc == 0 && strncmp(command->operands, "[RUN_DIR", 8) == 0) {
        static char path[] = "ebb-runs/latest", *latest[] = {path, NULL};
        call.argc = 1;
        call.argv = latest;
    } else if (call.argc > 0 && (strncmp(command->operands, "[RUN_DIR", 8) == 0 ||
                                 strncmp(command->operands, "[JOB", 4) == 0)) {
        static char job[PATH_MAX];
        if (job_folder_find(call.argv[0], job) == job)
            call.argv[0] = job;
    }
    *ret = call;
    return 0;
}

int cli_open_pid(const struct cli_call *call, struct proc_root *ret_root, int32_t *ret_pid,
                 struct err *err)
{
    int64_t pid;
    int r = quantity_parse_int("PID", call->argv[0], 1, INT32_MAX, &pid, err);
    if (r < 0)
        return r;
    *ret_pid = (int32_t)pid;
    return proc_root_open("/proc", "/sys/fs/cgroup", ret_root, err);
}

void cli_call_fini(struct cli_call *call)
{
    if (call->given)
        options_given_fini(call->given);
    free(call->given);
    free(call->options);
    *call = (struct cli_call){0};
}
