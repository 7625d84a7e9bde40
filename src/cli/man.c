/* Prints the manual page of all commands with roff's man macros. */
#include "cli/cli.h"

#include <limits.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "version.h"

/* Appends text for roff as plain ASCII. Escapes text that roff would interpret as a request. Also
 * escapes dashes, because roff would otherwise print a different character, and a command copied
 * from the page would not work. */
static void man_text(struct buf *out, const char *s, size_t len)
{
    static const char *const escapes[UCHAR_MAX + 1] = {
        ['\\'] = "\\e", ['-'] = "\\-", ['\''] = "\\(aq", ['`'] = "\\(ga", ['\n'] = " "};
    uint32_t c = 0;
    for (size_t i = 0, n; i < len; i += n ? n : 1) {
        const char *escape = escapes[(unsigned char)s[i]];
        n = text_utf8(s + i, len - i, &c);
        if (n > 1)
            buf_printf(out, "\\[u%04X]", c);
        else if (escape)
            buf_add_str(out, escape);
        else
            buf_printf(out, s[i] == '.' && i == 0 ? "\\&%c" : "%c", s[i]);
    }
}

/* Appends TEXT as plain text between two pieces of roff. */
static void man_put(struct buf *out, const char *before, const char *text, const char *after)
{
    buf_add_str(out, before);
    man_text(out, text, strlen(text));
    buf_add_str(out, after);
}

static void man_option(struct buf *out, const struct option_desc *o)
{
    if (o->heading)
        man_put(out, ".PP\n\\fI", o->heading, "\\fR\n");
    buf_add_str(out, ".TP\n");
    if (o->letter)
        buf_printf(out, "\\fB\\-%c\\fR, ", o->letter);
    man_put(out, "\\fB\\-\\-", o->name, "\\fR");
    if (o->arg)
        man_put(out, " \\fI", o->arg, "\\fR");
    man_put(out, "\n", o->help, "");
    if (o->fallback)
        man_put(out, " (default ", o->fallback, ")");
    buf_add_str(out, ".\n");
}

/* Appends a description; consecutive verbatim lines form one block. */
static void man_description(struct buf *out, const char *text)
{
    struct cli_block block;
    bool was_verbatim = false;
    while (cli_block_next(&text, &block)) {
        if (block.is_verbatim != was_verbatim)
            buf_add_str(out, block.is_verbatim ? ".PP\n.RS 4\n.nf\n" : ".fi\n.RE\n");
        if (!block.is_verbatim)
            buf_add_str(out, ".PP\n");
        man_text(out, block.s, block.len);
        buf_add_byte(out, '\n');
        was_verbatim = block.is_verbatim;
    }
    if (was_verbatim)
        buf_add_str(out, ".fi\n.RE\n");
}

static void man_examples(struct buf *out, const char *examples)
{
    buf_add_str(out, ".PP\nExamples:\n.PP\n.RS 4\n.nf\n");
    for (const char *s = examples; *s;) {
        size_t n = strcspn(s, "\n");
        man_text(out, s, n);
        buf_add_byte(out, '\n');
        s += n + (s[n] == '\n');
    }
    buf_add_str(out, ".fi\n.RE\n");
}

static void add_synopsis(struct buf *out, const struct cli_command *command)
{
    buf_printf(out, "\\fBebb %s\\fR", command->name);
    if (command->options)
        buf_add_str(out, " [\\fIOPTION\\fR\\[u2026]]");
    if (command->operands[0])
        man_put(out, " \\fI", command->operands, "\\fR");
    buf_add_byte(out, '\n');
}

static void add_command(struct buf *out, const struct cli_command *command)
{
    buf_printf(out, ".SS \"ebb %s\"\n", command->name);
    add_synopsis(out, command);
    man_put(out, ".PP\n", command->summary, ".\n");
    man_description(out, command->description ? command->description : "");
    const struct option_desc *o;
    for (size_t i = 0; (o = cli_option_at(command, i)); i++)
        man_option(out, o);
    if (command->examples)
        man_examples(out, command->examples);
}

static const char page_end[] =
    ".SH \"EXIT STATUS\"\n"
    "\\fBebb run\\fR exits with the status of the job: 128 + N if signal N killed it, 127 if the\n"
    "command was not found, 126 if it cannot be executed, 125 if ebb itself failed, and 124 if\n"
    "the guard stopped the job and it was not restarted. Every other command exits with 0, or\n"
    "with 2 and an error message if it fails.\n"
    ".SH ENVIRONMENT\n"
    ".TP\n\\fBEBB_SOCKET\\fR\nset for the job: the socket to which it and \\fBebb mark\\fR send "
    "marks.\n"
    ".TP\n\\fBEBB_RUN_DIR\\fR\nset for the job: the run folder.\n"
    ".TP\n\\fBEBB_SEGMENT\\fR\nset for the job: how many times the job was restarted before this "
    "start.\n"
    ".TP\n\\fBEBB_RESUME\\fR\nset to 1 for the job after a restart.\n"
    ".TP\n\\fBEBB_LIMIT_BYTES\\fR\nset for the job: the memory limit that the guard enforces.\n"
    ".TP\n\\fBNO_COLOR\\fR\nif set and not empty, output has no colours.\n"
    ".SH FILES\n"
    ".TP\n\\fIebb\\-runs/NAME\\-DATE/\\fR\na run: its recording \\fItrace.ebb\\fR, \\fIlog.txt\\fR "
    "and\n"
    "\\fIrun.json\\fR.\n"
    ".TP\n\\fIebb\\-runs/latest\\fR\na link to the newest run.\n";

void cli_man(struct buf *out)
{
    buf_printf(out,
               ".\\\" Printed by `ebb help --man`.\n"
               ".TH EBB 1 \"\" \"ebb %s\" \"User Commands\"\n"
               ".SH NAME\nebb \\- find out whether a training job leaks memory, what leaks, and "
               "whether it survives\n"
               ".SH SYNOPSIS\n.nf\n",
               EBB_VERSION);
    for (size_t i = 0; cli_commands[i]; i++)
        add_synopsis(out, cli_commands[i]);
    buf_add_str(out, ".fi\n"
                     ".SH DESCRIPTION\n"
                     "ebb watches the memory of a job and of all processes it starts, records "
                     "it, and explains its growth.\n"
                     "Sizes are written 512M, 24G or 80%, times 500ms, 10s or 5m.\n"
                     "Options may be abbreviated as long as they are unambiguous.\n"
                     ".SH COMMANDS\n");
    for (size_t i = 0; cli_commands[i]; i++)
        add_command(out, cli_commands[i]);
    buf_add_str(out, page_end);
}
