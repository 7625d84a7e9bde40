/* Prints help as text, and defines `ebb help`, which can also print the manual page and shell
 * completions. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "present/cells.h"

void cli_wrap(struct buf *out, const char *s, size_t len, size_t column, size_t indent,
              size_t width)
{
    bool is_first = true;
    for (const char *end = s + len; s < end;) {
        size_t gap = 0;
        while (s < end && (*s == ' ' || *s == '\n'))
            s++, gap = 1;
        size_t n = 0;
        while (s + n < end && s[n] != ' ' && s[n] != '\n')
            n++;
        if (n == 0)
            break;
        size_t columns = 0; /* all characters in ebb's help are one column wide */
        for (size_t i = 0; i < n; i++)
            columns += ((unsigned char)s[i] & 0xC0) != 0x80;
        if (!is_first && column + gap + columns > width) {
            buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!is_first) {
            buf_printf(out, "%*s", (int)gap, "");
            column += gap;
        }
        buf_add(out, s, n);
        column += columns;
        s += n;
        is_first = false;
    }
    buf_add_byte(out, '\n');
}

bool cli_block_next(const char **at, struct cli_block *ret)
{
    const char *s = *at + strspn(*at, "\n");
    if (!*s)
        return false;
    const char *end = s + strcspn(s, "\n");
    bool is_verbatim = *s == ' ';
    while (!is_verbatim && *end && end[1] && end[1] != '\n' && end[1] != ' ')
        end += 1 + strcspn(end + 1, "\n");
    *at = end;
    s += is_verbatim ? strspn(s, " ") : 0;
    *ret = (struct cli_block){s, (size_t)(end - s), is_verbatim};
    return true;
}

void cli_put_blocks(struct buf *out, const char *text, const char *margin, size_t width)
{
    struct cli_block block;
    for (bool was_verbatim = false; cli_block_next(&text, &block);
         was_verbatim = block.is_verbatim) {
        if (!block.is_verbatim || !was_verbatim)
            buf_add_byte(out, '\n');
        if (block.is_verbatim)
            buf_printf(out, "%s%.*s\n", margin, (int)block.len, block.s);
        else
            cli_wrap(out, block.s, block.len, 0, 0, width);
    }
}

enum { OPTION_LEFT_MAX = 26 }; /* Options longer than this have their help text on the next line. */

/* Writes "  -o, --output FILE". */
static size_t option_left(char *out, size_t size, const struct option_desc *o)
{
    char letter[8] = "    ";
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(out, size, "  %s--%s%s%s", letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
    return cell_columns(out);
}

static size_t options_column(const struct cli_command *command)
{
    char left[128];
    size_t column = 0;
    const struct option_desc *o;
    for (size_t i = 0; (o = cli_option_at(command, i)); i++) {
        size_t n = option_left(left, sizeof left, o);
        if (n > column && n <= OPTION_LEFT_MAX)
            column = n;
    }
    return column + 2;
}

static void add_option(struct buf *out, const struct option_desc *o, size_t column, size_t width)
{
    char left[128], help[512];
    size_t n = option_left(left, sizeof left, o);
    buf_add_str(out, left);
    if (n + 2 > column) {
        buf_add_byte(out, '\n');
        n = 0;
    }
    buf_printf(out, "%*s", (int)(column - n), "");
    int len = snprintf(help, sizeof help, "%s%s%s%s", o->help, o->fallback ? " (default " : "",
                       o->fallback ? o->fallback : "", o->fallback ? ")" : "");
    cli_wrap(out, help, (size_t)len < sizeof help ? (size_t)len : sizeof help - 1, column, column,
             width);
}

static void add_examples(struct buf *out, const char *examples)
{
    buf_add_str(out, "\nExamples:\n");
    for (const char *s = examples; *s;) {
        size_t n = strcspn(s, "\n");
        buf_add_str(out, n ? "  " : "");
        buf_add(out, s, n);
        buf_add_byte(out, '\n');
        s += n + (s[n] == '\n');
    }
}

/* Appends a command's summary ("make a recording of a CSV table") as a sentence. */
static void add_sentence(struct buf *out, const char *summary, size_t width)
{
    struct buf text = {0};
    buf_printf(&text, "%s.", summary);
    if (summary[0] >= 'a' && summary[0] <= 'z' && !text.failed)
        text.data[0] = (char)(text.data[0] - 'a' + 'A');
    cli_wrap(out, buf_str(&text), text.len, 0, 0, width);
    buf_fini(&text);
}

void cli_help_command(struct buf *out, const struct cli_command *command, size_t width)
{
    buf_printf(out, "Usage: ebb %s%s%s%s\n\n", command->name, command->options ? " [OPTION…]" : "",
               command->operands[0] ? " " : "", command->operands);
    add_sentence(out, command->summary, width);
    cli_put_blocks(out, command->description ? command->description : "", "    ", width);
    buf_add_str(out, "\nOptions:\n");
    size_t column = options_column(command);
    const struct option_desc *o;
    for (size_t i = 0; (o = cli_option_at(command, i)); i++) {
        if (o->heading)
            buf_printf(out, "\n%s:\n", o->heading);
        add_option(out, o, column, width);
    }
    if (command->examples)
        add_examples(out, command->examples);
}

enum { NAME_COLUMNS = 14 }; /* two spaces, the longest name ("checkpoint") and two more spaces */

void cli_help_list(struct buf *out, size_t width)
{
    buf_add_str(out, "Usage: ebb COMMAND [OPTION…] [ARGUMENT…]\n\n"
                     "Is the training job leaking? What is leaking? Will it survive?\n\n"
                     "Commands:\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *command = cli_commands[i];
        buf_printf(out, "  %-*s", NAME_COLUMNS - 2, command->name);
        cli_wrap(out, command->summary, strlen(command->summary), NAME_COLUMNS, NAME_COLUMNS,
                 width);
    }
    static const char end[] =
        "`ebb help COMMAND` explains a command. Sizes are written 512M, 24G or 80%, times "
        "500ms, 10s or 5m.";
    buf_add_byte(out, '\n');
    cli_wrap(out, end, sizeof end - 1, 0, 0, width);
}

struct help_options {
    bool man;
    const char *completions;
};

static int help_exec(const struct cli_call *call, struct err *err)
{
    const struct help_options *options = call->options;
    const char *name = call->argc ? call->argv[0] : NULL;
    struct buf out = {0};
    if (!!name + options->man + !!options->completions > 1)
        return err_set(err, -EINVAL, "COMMAND, --man and --completions are mutually exclusive");
    const struct cli_command *command = name ? cli_find_command(name) : NULL;
    if (name && !command)
        return cli_unknown_command(name);
    if (options->man)
        cli_man(&out);
    else if (options->completions)
        cli_completions(&out, options->completions);
    else if (command)
        cli_help_command(&out, command, cli_width(STDOUT_FILENO));
    else
        cli_help_list(&out, cli_width(STDOUT_FILENO));
    return cli_print(&out);
}

static const struct option_desc options_table[] = {
    OPTION_ROW(0, "man", FLAG, NULL, offsetof(struct help_options, man),
               .help = "print the manual page, for man -l or an installer"),
    OPTION_ROW(0, "completions", CHOICE, "bash|zsh|fish",
               offsetof(struct help_options, completions),
               .help = "print the completions for this shell"),
    {0},
};

const struct cli_command cmd_help = {
    .name = "help",
    .operands = "[COMMAND]",
    .summary = "explain a command, or list all commands",
    .description = "Without COMMAND, lists all commands. `ebb COMMAND --help` prints the same "
                   "as `ebb help COMMAND`.",
    .examples = "ebb help export\n"
                "ebb help --man >ebb.1 && man -l ebb.1\n"
                "source <(ebb help --completions bash)\n",
    .options = options_table,
    .options_size = sizeof(struct help_options),
    .exec = help_exec,
};
