/* Completions for bash, zsh and fish: the scripts of contrib/completions, and `ebb complete`, which
 * prints the candidates for them. */
#include "cli/cli.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"

/* The scripts are built into the program. Their symbols are hidden, because hidden symbols need no
 * relocation. */
#define SCRIPT(shell)                                                                              \
    __asm__(".pushsection .rodata\ncompletions_" #shell ":\n.incbin \"" EBB_COMPLETIONS            \
            "/ebb." #shell "\"\n.byte 0\n.popsection\n")
SCRIPT(bash);
SCRIPT(zsh);
SCRIPT(fish);
#pragma GCC visibility push(hidden)
extern const char completions_bash[], completions_zsh[], completions_fish[];
#pragma GCC visibility pop

void cli_completions(struct buf *out, const char *shell)
{
    bool is_bash = strcmp(shell, "bash") == 0, is_zsh = strcmp(shell, "zsh") == 0;
    assert((is_bash || is_zsh || strcmp(shell, "fish") == 0) &&
           "--completions accepts only bash, zsh and fish");
    buf_add_str(out, is_bash ? completions_bash : is_zsh ? completions_zsh : completions_fish);
}

/* ---- ebb complete ---- */

/* The word to complete. If it is "--name=text", BEFORE is "--name=", which is put before each
 * candidate. */
struct typed {
    const char *text;
    const char *before;
    size_t before_len;
};

/* Prints the candidate WORD and its description TEXT if WORD begins with what the user typed. */
static void put_candidate(struct buf *out, const struct typed *typed, const char *word, size_t len,
                          const char *text)
{
    size_t n = strlen(typed->text);
    if (len < n || memcmp(word, typed->text, n) != 0)
        return;
    buf_add(out, typed->before, typed->before_len);
    buf_add(out, word, len);
    buf_printf(out, "\t%s\n", text);
}

static void complete_command(struct buf *out, const struct typed *typed)
{
    for (size_t i = 0; cli_commands[i]; i++)
        put_candidate(out, typed, cli_commands[i]->name, strlen(cli_commands[i]->name),
                      cli_commands[i]->summary);
    put_candidate(out, typed, "--help", strlen("--help"), "list the commands");
    put_candidate(out, typed, "--version", strlen("--version"), "print the version");
}

static void complete_option(struct buf *out, const struct typed *typed,
                            const struct cli_command *command)
{
    const struct option_desc *o;
    char word[64];
    for (size_t i = 0; (o = cli_option_at(command, i)); i++) {
        int n = snprintf(word, sizeof word, "--%s", o->name);
        put_candidate(out, typed, word, (size_t)n, o->help);
    }
}

/* If the LEN bytes at WORD are an option that takes a value, prints the possible values and returns
 * true. */
static bool complete_value(struct buf *out, const struct typed *typed,
                           const struct cli_command *command, const char *word, size_t len)
{
    const struct option_desc *o;
    for (size_t i = 0; (o = cli_option_at(command, i)); i++) {
        bool is_long = len > 2 && memcmp(word, "--", 2) == 0 && strlen(o->name) == len - 2 &&
                       memcmp(word + 2, o->name, len - 2) == 0;
        bool is_short = o->letter && len == 2 && word[0] == '-' && word[1] == o->letter;
        if (o->type == OPTION_FLAG || !(is_long || is_short))
            continue;
        if (o->type == OPTION_CHOICE)
            for (const char *at = o->arg; *at; at += strcspn(at, "|"), at += *at == '|')
                put_candidate(out, typed, at, strcspn(at, "|"), "");
        else
            buf_add_str(out, o->type == OPTION_PATH ? ":files\n" : ":nothing\n");
        return true;
    }
    return false;
}

static void complete_operand(struct buf *out, const struct typed *typed,
                             const struct cli_command *command)
{
    if (strstr(command->operands, "COMMAND"))
        complete_command(out, typed);
    else if (strstr(command->operands, "FILE") || strstr(command->operands, "DIR") ||
             strstr(command->operands, "CMD"))
        buf_add_str(out, ":files\n");
    else
        complete_option(out, typed, command);
}

static int complete_exec(const struct cli_call *call, struct err *err)
{
    struct buf out = {0};
    char **words = call->argv;
    int last = call->argc - 1;
    struct typed typed = {.text = words[last], .before = ""};
    const struct cli_command *command = last > 0 ? cli_find_command(words[0]) : NULL;
    const char *option = last > 0 ? words[last - 1] : "";
    (void)err;
    bool is_program = false;
    for (int i = 1; command && command->stop_at_operand && i < last; i++)
        is_program = is_program || strcmp(words[i], "--") == 0;
    if (strncmp(typed.text, "--", 2) == 0 && strchr(typed.text, '=')) {
        option = typed.before = typed.text;
        typed.text = strchr(typed.text, '=') + 1;
        typed.before_len = (size_t)(typed.text - option);
    } else if (strcmp(typed.text, "=") == 0) { /* bash passes "=" as a word of its own */
        typed.text = "";
    } else if (strcmp(option, "=") == 0 && last > 1) {
        option = words[last - 2];
    }
    if (last == 0)
        complete_command(&out, &typed);
    else if (is_program)
        buf_add_str(&out, ":program\n");
    else if (command && !complete_value(&out, &typed, command, option, strcspn(option, "="))) {
        if (typed.text[0] == '-')
            complete_option(&out, &typed, command);
        else
            complete_operand(&out, &typed, command);
    }
    return cli_print(&out);
}

const struct cli_command cmd_complete = {
    .name = "complete",
    .operands = "WORD…",
    .summary = "print the possible completions of the last word of a command line",
    .description = "Used by the scripts of `ebb help --completions`.",
    .exec = complete_exec,
};
