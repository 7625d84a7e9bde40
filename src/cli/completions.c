/* Prints completions for bash, zsh and fish from the same tables as the help. */
#include "cli/cli.h"

#include <assert.h>
#include <string.h>

#include "base/buf.h"

/* The kind of completion for an operand. */
enum operand { OPERAND_NONE, OPERAND_FILE, OPERAND_COMMAND, OPERAND_PROGRAM };

static enum operand operand_of(const struct cli_command *command)
{
    if (strstr(command->operands, "COMMAND"))
        return OPERAND_COMMAND;
    if (strstr(command->operands, "CMD"))
        return OPERAND_PROGRAM;
    if (strstr(command->operands, "FILE") || strstr(command->operands, "DIR"))
        return OPERAND_FILE;
    return OPERAND_NONE;
}

/* Appends S, with a backslash before each character of SPECIAL. */
static void add_escaped(struct buf *out, const char *s, const char *special)
{
    for (; *s; s++) {
        if (*s == '\'') {
            /* All text here is between single quotes, so a quote must be escaped. */
            buf_add_str(out, "'\\''");
            continue;
        }
        if (strchr(special, *s))
            buf_add_byte(out, '\\');
        buf_add_byte(out, (uint8_t)*s);
    }
}

/* Appends the words of "bash|zsh|fish" with SEPARATOR between them. */
static void add_words(struct buf *out, const char *words, char separator)
{
    for (; *words; words++)
        buf_add_byte(out, (uint8_t)(*words == '|' ? separator : *words));
}

static void add_command_names(struct buf *out)
{
    for (size_t i = 0; cli_commands[i]; i++)
        buf_printf(out, "%s%s", i ? " " : "", cli_commands[i]->name);
}

static void bash_value(struct buf *out, const struct option_desc *o)
{
    if (o->type == OPTION_FLAG)
        return;
    buf_printf(out, "        --%s", o->name);
    if (o->letter)
        buf_printf(out, "|-%c", o->letter);
    if (o->type == OPTION_PATH) {
        buf_add_str(out, ") return ;;\n");
    } else if (o->type == OPTION_CHOICE) {
        buf_add_str(out, ") COMPREPLY=($(compgen -W '");
        add_words(out, o->arg, ' ');
        buf_add_str(out, "' -- \"$cur\")); return ;;\n");
    } else {
        buf_add_str(out, ") compopt +o default +o bashdefault 2>/dev/null; return ;;\n");
    }
}

static void bash_command(struct buf *out, const struct cli_command *command)
{
    const struct option_desc *o;
    buf_printf(out, "    %s)\n        case $prev in\n", command->name);
    for (size_t i = 0; (o = cli_option_at(command, i)); i++)
        bash_value(out, o);
    buf_add_str(out, "        esac\n        words='");
    for (size_t i = 0; (o = cli_option_at(command, i)); i++)
        buf_printf(out, "--%s ", o->name);
    buf_add_str(out, "'\n");
    if (operand_of(command) == OPERAND_COMMAND) {
        buf_add_str(out, "        [[ $cur == -* ]] || words='");
        add_command_names(out);
        buf_add_str(out, "'\n");
    } else if (operand_of(command) == OPERAND_PROGRAM) {
        buf_add_str(out,
                    "        if [[ $prev == -- ]]; then\n"
                    "            COMPREPLY=($(compgen -c -- \"$cur\")); return\n"
                    "        fi\n"
                    "        [[ \" ${COMP_WORDS[*]:1:COMP_CWORD-1} \" == *' -- '* ]] && return\n"
                    "        [[ $cur == -* ]] || return\n");
    } else if (operand_of(command) == OPERAND_FILE) {
        buf_add_str(out, "        [[ $cur == -* ]] || return # bash completes file names\n");
    }
    buf_add_str(out, "        ;;\n");
}

static void add_bash(struct buf *out)
{
    buf_add_str(
        out, "# Completions of ebb for bash, printed by `ebb help --completions bash`.\n"
             "_ebb() {\n"
             "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words=\n"
             "    COMPREPLY=()\n"
             "    [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
             "    [[ $cur == = ]] && cur=\n"
             "    if ((COMP_CWORD == 1)); then\n"
             "        COMPREPLY=($(compgen -W '");
    add_command_names(out);
    buf_add_str(out, " --help --version' -- \"$cur\"))\n"
                     "        return\n"
                     "    fi\n"
                     "    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; cli_commands[i]; i++)
        bash_command(out, cli_commands[i]);
    buf_add_str(out, "    esac\n"
                     "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                     "}\n"
                     "complete -o bashdefault -o default -F _ebb ebb\n");
}

static void zsh_option(struct buf *out, const struct option_desc *o)
{
    const char *equals = o->type == OPTION_FLAG ? "" : "=";
    buf_add_str(out, "            ");
    if (o->type == OPTION_TEXTS)
        buf_add_str(out, "'*'");
    else if (o->letter)
        buf_printf(out, "'(-%c --%s)'", o->letter, o->name);
    if (o->letter)
        buf_printf(out, "{-%c%s,--%s%s}'[", o->letter, o->type == OPTION_FLAG ? "" : "+", o->name,
                   equals);
    else
        buf_printf(out, "'--%s%s[", o->name, equals);
    add_escaped(out, o->help, "[]\\");
    buf_add_byte(out, ']');
    if (o->type != OPTION_FLAG) {
        buf_add_byte(out, ':');
        add_escaped(out, o->type == OPTION_CHOICE ? o->name : o->arg, ":\\");
        buf_add_byte(out, ':');
    }
    if (o->type == OPTION_PATH)
        buf_add_str(out, "_files");
    if (o->type == OPTION_CHOICE) {
        buf_add_byte(out, '(');
        add_words(out, o->arg, ' ');
        buf_add_byte(out, ')');
    }
    buf_add_str(out, "' \\\n");
}

static void zsh_command(struct buf *out, const struct cli_command *command)
{
    const struct option_desc *o;
    buf_printf(out, "        %s)\n            _arguments -s -S \\\n", command->name);
    for (size_t i = 0; (o = cli_option_at(command, i)); i++)
        zsh_option(out, o);
    switch (operand_of(command)) {
    case OPERAND_NONE:
        buf_add_str(out, "                && return\n");
        break;
    case OPERAND_FILE:
        buf_add_str(out, "            '*:file:_files' && return\n");
        break;
    case OPERAND_COMMAND:
        buf_add_str(out, "            '1:command:(");
        add_command_names(out);
        buf_add_str(out, ")' && return\n");
        break;
    case OPERAND_PROGRAM:
        buf_add_str(out, "            '(-)1:command: _command_names -e' '*::argument: _normal' "
                         "&& return\n");
        break;
    }
    buf_add_str(out, "            ;;\n");
}

static void add_zsh(struct buf *out)
{
    buf_add_str(out, "#compdef ebb\n"
                     "# Completions of ebb for zsh, printed by `ebb help --completions zsh`.\n"
                     "_ebb() {\n"
                     "    local context state state_descr line\n"
                     "    local -a commands\n"
                     "    typeset -A opt_args\n"
                     "    commands=(\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        buf_printf(out, "        '%s:", cli_commands[i]->name);
        add_escaped(out, cli_commands[i]->summary, ":\\");
        buf_add_str(out, "'\n");
    }
    buf_add_str(out, "    )\n"
                     "    _arguments -C '(- *)'{-h,--help}'[list the commands]' \\\n"
                     "        '(- *)'{-V,--version}'[print the version]' \\\n"
                     "        '1:command:->command' '*::argument:->argument' && return\n"
                     "    case $state in\n"
                     "    command) _describe -t commands command commands ;;\n"
                     "    argument)\n"
                     "        case $words[1] in\n");
    for (size_t i = 0; cli_commands[i]; i++)
        zsh_command(out, cli_commands[i]);
    buf_add_str(out, "        esac ;;\n"
                     "    esac\n"
                     "}\n"
                     "if [ \"$funcstack[1]\" = _ebb ]; then\n"
                     "    _ebb \"$@\"\n"
                     "else\n"
                     "    compdef _ebb ebb\n"
                     "fi\n");
}

static void fish_begin(struct buf *out, const struct cli_command *command)
{
    buf_printf(out, "complete -c ebb -n '__fish_seen_subcommand_from %s'", command->name);
}

static void fish_option(struct buf *out, const struct cli_command *command,
                        const struct option_desc *o)
{
    fish_begin(out, command);
    if (o->letter)
        buf_printf(out, " -s %c", o->letter);
    buf_printf(out, " -l %s", o->name);
    if (o->type == OPTION_PATH)
        buf_add_str(out, " -r -F");
    else if (o->type != OPTION_FLAG)
        buf_add_str(out, " -x");
    if (o->type == OPTION_CHOICE) {
        buf_add_str(out, " -a '");
        add_words(out, o->arg, ' ');
        buf_add_byte(out, '\'');
    }
    buf_add_str(out, " -d '");
    add_escaped(out, o->help, "\\");
    buf_add_str(out, "'\n");
}

static void fish_operand(struct buf *out, const struct cli_command *command)
{
    if (operand_of(command) == OPERAND_NONE)
        return;
    fish_begin(out, command);
    if (operand_of(command) == OPERAND_FILE) {
        buf_add_str(out, " -F\n");
    } else if (operand_of(command) == OPERAND_PROGRAM) {
        buf_add_str(out, " -a '(__fish_complete_subcommand --fcs-skip=2)'\n");
    } else {
        buf_add_str(out, " -a '");
        add_command_names(out);
        buf_add_str(out, "'\n");
    }
}

static void add_fish(struct buf *out)
{
    const struct option_desc *o;
    buf_add_str(
        out, "# Completions of ebb for fish, printed by `ebb help --completions fish`.\n"
             "complete -c ebb -f\n"
             "complete -c ebb -n __fish_use_subcommand -s h -l help -d 'list the commands'\n"
             "complete -c ebb -n __fish_use_subcommand -s V -l version -d 'print the version'\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *command = cli_commands[i];
        buf_printf(out, "complete -c ebb -n __fish_use_subcommand -a %s -d '", command->name);
        add_escaped(out, command->summary, "\\");
        buf_add_str(out, "'\n");
        for (size_t k = 0; (o = cli_option_at(command, k)); k++)
            fish_option(out, command, o);
        fish_operand(out, command);
    }
}

void cli_completions(struct buf *out, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        add_bash(out);
    else if (strcmp(shell, "zsh") == 0)
        add_zsh(out);
    else {
        assert(strcmp(shell, "fish") == 0 && "the shell is not in the option's table");
        add_fish(out);
    }
}
