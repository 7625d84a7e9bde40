/* Command lines by table: getopt_long does the splitting, this the values and the sentences. */
#include "cli/cli.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantity.h"

enum {
    LONG_BASE = 256, /* getopt's value for the option at INDEX is LONG_BASE + INDEX */
    WORD_MAX = 48,   /* longer words are not compared with others */
};

const struct cli_option cli_help_option = {
    .name = "help", .letter = 'h', .type = CLI_FLAG, .help = "show this help"};

/* A command's table and --help, in the forms that getopt wants. */
struct table {
    const struct cli_command *command;
    const struct cli_option *options[CLI_OPTIONS_MAX + 1];
    size_t count;
    struct option longs[CLI_OPTIONS_MAX + 2];
    char letters[2 * CLI_OPTIONS_MAX + 5];
};

static void table_add(struct table *t, const struct cli_option *o, size_t *letters)
{
    int argument = o->type == CLI_FLAG ? no_argument : required_argument;
    t->longs[t->count] = (struct option){o->name, argument, NULL, LONG_BASE + (int)t->count};
    t->options[t->count++] = o;
    if (!o->letter)
        return;
    t->letters[(*letters)++] = o->letter;
    if (argument == required_argument)
        t->letters[(*letters)++] = ':';
}

const struct cli_option *cli_option_at(const struct cli_command *command, size_t index)
{
    const struct cli_option *o = command->options;
    for (; o && o->name; o++, index--) {
        if (index == 0)
            return o;
    }
    if (index == 0)
        return &cli_help_option;
    for (o = command->more_options, index--; o && o->name; o++, index--) {
        if (index == 0)
            return o;
    }
    return NULL;
}

static void table_init(struct table *t, const struct cli_command *command)
{
    size_t letters = 0;
    *t = (struct table){.command = command};
    if (command->stop_at_operand)
        t->letters[letters++] = '+';
    t->letters[letters++] = ':'; /* tell a missing argument from an unknown option */
    const struct cli_option *o;
    for (size_t i = 0; (o = cli_option_at(command, i)); i++) {
        assert(i < CLI_OPTIONS_MAX && "a table this long needs a larger CLI_OPTIONS_MAX");
        table_add(t, o, &letters);
    }
    for (o = command->hidden_options; o && o->name; o++) {
        assert(t->count < CLI_OPTIONS_MAX && "a table this long needs a larger CLI_OPTIONS_MAX");
        table_add(t, o, &letters);
    }
}

static const struct cli_option *table_find(const struct table *t, int value)
{
    for (size_t i = 0; i < t->count; i++) {
        if (value == LONG_BASE + (int)i || value == t->options[i]->letter)
            return t->options[i];
    }
    return NULL;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits (insert, delete, change, swap two neighbours) that make B of A; both under WORD_MAX. */
static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    size_t rows[3][WORD_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = least(last[j - 1] + (a[i - 1] != b[j - 1]), least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[m];
}

const char *cli_nearest(const char *word, const char *const *words, size_t count)
{
    const char *best = NULL;
    size_t len = strlen(word);
    size_t best_distance = len < 3 ? 2 : len < 9 ? 3 : 4; /* it must be less than this */
    if (len < 2 || len > WORD_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (strlen(words[i]) > WORD_MAX)
            continue;
        size_t d = strncmp(word, words[i], len) == 0 ? 1 : distance(word, words[i]);
        if (d < best_distance) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}

/* A long option that getopt did not know: TEXT is "--name" or "--name=value". */
static int unknown_long(const struct table *t, const char *text, struct err *err)
{
    const char *command = t->command->name;
    const char *names[CLI_OPTIONS_MAX + 1];
    const char *fits[2] = {NULL, NULL};
    char name[100];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text + 2, "="), text + 2);
    for (size_t i = 0, found = 0; i < t->count; i++) {
        names[i] = t->options[i]->name;
        if (found < 2 && strncmp(names[i], name, strlen(name)) == 0)
            fits[found++] = names[i];
    }
    if (fits[1])
        return err_set(err, -EINVAL, "%s: --%s could be --%s or --%s", command, name, fits[0],
                       fits[1]);
    const char *nearest = cli_nearest(name, names, t->count);
    if (nearest)
        return err_set(err, -EINVAL, "%s: there is no option --%s; did you mean --%s?", command,
                       name, nearest);
    return err_set(err, -EINVAL, "%s: there is no option --%s; `ebb help %s` lists them", command,
                   name, command);
}

/* An unknown letter: perhaps one dash too few ("-csv"). */
static int unknown_letter(const struct table *t, int letter, int argc, char **argv, struct err *err)
{
    const char *command = t->command->name;
    for (int a = 1; a < argc; a++) {
        for (size_t i = 0; i < t->count; i++) {
            if (argv[a][0] == '-' && strcmp(argv[a] + 1, t->options[i]->name) == 0)
                return err_set(err, -EINVAL, "%s: there is no option %s; did you mean --%s?",
                               command, argv[a], t->options[i]->name);
        }
    }
    return err_set(err, -EINVAL, "%s: there is no option -%c; `ebb help %s` lists them", command,
                   letter, command);
}

/* What getopt's '?' means here. */
static int explain_refusal(const struct table *t, int argc, char **argv, struct err *err)
{
    const char *text = argv[optind - 1];
    const char *equals = strchr(text, '=');
    if (optopt == 0)
        return unknown_long(t, text, err);
    const struct cli_option *o = optopt >= LONG_BASE ? table_find(t, optopt) : NULL;
    if (o)
        return err_set(err, -EINVAL, "%s: --%s takes no value, but \"%.100s\" was given",
                       t->command->name, o->name, equals ? equals + 1 : "");
    return unknown_letter(t, optopt, argc, argv, err);
}

static int parse_choice(const char *what, const struct cli_option *o, const char *text,
                        const char **ret, struct err *err)
{
    size_t len = strlen(text);
    for (const char *word = o->arg; *word;) {
        size_t n = strcspn(word, "|");
        if (n == len && memcmp(word, text, n) == 0) {
            *ret = text;
            return 0;
        }
        word += n + (word[n] == '|');
    }
    return err_set(err, -EINVAL, "%s: \"%.100s\" is none of %s", what, text, o->arg);
}

static int parse_duration(const char *what, const struct cli_option *o, const char *text,
                          uint64_t *ret, struct err *err)
{
    uint64_t max = o->max ? (uint64_t)o->max * NS_PER_MS : UINT64_MAX;
    return quantity_parse_duration(what, text, (uint64_t)o->min * NS_PER_MS, max, ret, err);
}

static int parse_int(const char *what, const struct cli_option *o, const char *text, int64_t *ret,
                     struct err *err)
{
    bool is_free = o->min == 0 && o->max == 0;
    return quantity_parse_int(what, text, is_free ? INT64_MIN : o->min, o->max ? o->max : INT64_MAX,
                              ret, err);
}

static int add_text(const char *what, const char *text, struct cli_texts *ret, struct err *err)
{
    if (ret->count == CLI_TEXTS_MAX)
        return err_set(err, -EINVAL, "%s: \"%.100s\" is one too many; it may be given %d times",
                       what, text, (int)CLI_TEXTS_MAX);
    ret->v[ret->count++] = text;
    return 0;
}

int cli_set(const struct cli_option *o, const char *what, const char *text, void *options,
            struct err *err)
{
    void *at = (char *)options + o->offset;
    bool is_text =
        o->type == CLI_TEXT || o->type == CLI_TEXTS || o->type == CLI_PATH || o->type == CLI_PARSED;
    if (is_text && !*text)
        return err_set(err, -EINVAL, "%s: \"\" is empty; write it like %s %s", what, what, o->arg);
    switch (o->type) {
    case CLI_FLAG:
        *(bool *)at = true;
        return 0;
    case CLI_TEXT:
    case CLI_PATH:
        *(const char **)at = text;
        return 0;
    case CLI_TEXTS:
        return add_text(what, text, at, err);
    case CLI_CHOICE:
        return parse_choice(what, o, text, at, err);
    case CLI_DURATION:
        return parse_duration(what, o, text, at, err);
    case CLI_SIZE:
        return quantity_parse_size(what, text, at, err);
    case CLI_INT:
        return parse_int(what, o, text, at, err);
    case CLI_PARSED:
        return o->parse(what, text, at, err);
    }
    return -EINVAL;
}

static int set_value(const struct cli_option *o, const char *text, void *options, struct err *err)
{
    char what[64];
    snprintf(what, sizeof(what), "--%s", o->name);
    return cli_set(o, what, text, options, err);
}

static int set_fallbacks(const struct table *t, void *options, struct err *err)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct cli_option *o = t->options[i];
        if (o->fallback && set_value(o, o->fallback, options, err) < 0)
            return err_prefix(err, -EINVAL, "%s: the default of", t->command->name);
    }
    return 0;
}

bool cli_is_given(const struct cli_call *call, const struct cli_option *o)
{
    for (size_t i = 0; i < call->given_count; i++) {
        if (call->given[i] == o)
            return true;
    }
    return false;
}

static void note_given(struct cli_call *call, const struct cli_option *o, const char *text)
{
    size_t i = 0;
    while (i < call->given_count && call->given[i] != o)
        i++;
    if (i == call->given_count)
        call->given[call->given_count++] = o;
    call->given_text[i] = o->type == CLI_FLAG ? NULL : text;
}

/* 0 at the end of the options, 1 if help was asked for, -EINVAL. */
static int parse_options(const struct table *t, int argc, char **argv, struct cli_call *call,
                         struct err *err)
{
    int value;
    opterr = 0;
    optind = 0; /* glibc: begin anew */
    while ((value = getopt_long(argc, argv, t->letters, t->longs, NULL)) != -1) {
        if (value == '?')
            return explain_refusal(t, argc, argv, err);
        const struct cli_option *o = table_find(t, value == ':' ? optopt : value);
        assert(o && "getopt returned what no table told it");
        if (value == ':')
            return err_set(err, -EINVAL, "%s: --%s needs a value: --%s %s", t->command->name,
                           o->name, o->name, o->arg);
        if (o == &cli_help_option)
            return 1;
        if (set_value(o, optarg, call->options, err) < 0)
            return err_prefix(err, -EINVAL, "%s", t->command->name);
        note_given(call, o, optarg);
    }
    return 0;
}

/* Their number, by the command's description of them. */
static int check_operands(const struct cli_command *command, int count, char **operands,
                          struct err *err)
{
    const char *wanted = command->operands;
    if (count == 0 && wanted[0] && !strchr("[-", wanted[0]))
        return err_set(err, -EINVAL, "%s: %s is missing; write ebb %s %s%s", command->name, wanted,
                       command->name, command->options ? "[OPTION…] " : "", wanted);
    int most = strstr(wanted, "…") ? count : wanted[0] ? 1 : 0;
    if (count > most)
        return err_set(err, -EINVAL, "%s: \"%.100s\" is one too many; it takes %s", command->name,
                       operands[most], wanted[0] ? wanted : "options only");
    return 0;
}

int cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_call *ret,
              struct err *err)
{
    struct table t;
    table_init(&t, command);
    struct cli_call call = {.options =
                                calloc(1, command->options_size ? command->options_size : 1)};
    if (!call.options)
        return err_set(err, -ENOMEM, "%s: out of memory", command->name);
    int r = set_fallbacks(&t, call.options, err);
    if (r == 0)
        r = parse_options(&t, argc, argv, &call, err);
    if (r == 0)
        r = check_operands(command, argc - optind, argv + optind, err);
    if (r != 0) {
        free(call.options);
        return r;
    }
    call.argc = argc - optind;
    call.argv = argv + optind;
    *ret = call;
    return 0;
}

void cli_call_fini(struct cli_call *call)
{
    free(call->options);
    *call = (struct cli_call){0};
}
