/* Prints the manual page of all commands with roff's man macros. */
#include "cli/cli.h"

#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "version.h"

/* Appends text for roff as plain ASCII. No line must look like a roff request, and dashes must stay
 * dashes when copied. */
static void man_text(struct buf *out, const char *s, size_t len)
{
    uint32_t c = 0;
    for (size_t i = 0, n; i < len; i += n) {
        n = text_utf8(s + i, len - i, &c);
        if (n > 1)
            buf_printf(out, "\\[u%04X]", c);
        else if (s[i] == '\\')
            buf_add_str(out, "\\e");
        else if (s[i] == '-')
            buf_add_str(out, "\\-");
        else if (s[i] == '\'')
            buf_add_str(out, "\\(aq");
        else if (s[i] == '`')
            buf_add_str(out, "\\(ga");
        else if (s[i] == '.' && i == 0)
            buf_add_str(out, "\\&.");
        else
            buf_add_byte(out, (uint8_t)(s[i] == '\n' ? ' ' : s[i]));
        n = n ? n : 1;
    }
}

static void man_str(struct buf *out, const char *s)
{
    man_text(out, s, strlen(s));
}

static void man_option(struct buf *out, const struct option_desc *o)
{
    if (o->heading) {
        buf_add_str(out, ".PP\n\\fI");
        man_str(out, o->heading);
        buf_add_str(out, "\\fR\n");
    }
    buf_add_str(out, ".TP\n");
    if (o->letter)
        buf_printf(out, "\\fB\\-%c\\fR, ", o->letter);
    buf_add_str(out, "\\fB\\-\\-");
    man_str(out, o->name);
    buf_add_str(out, "\\fR");
    if (o->arg) {
        buf_add_str(out, " \\fI");
        man_str(out, o->arg);
        buf_add_str(out, "\\fR");
    }
    buf_add_byte(out, '\n');
    man_str(out, o->help);
    if (o->fallback) {
        buf_add_str(out, " (default ");
        man_str(out, o->fallback);
        buf_add_byte(out, ')');
    }
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
    if (command->operands[0]) {
        buf_add_str(out, " \\fI");
        man_str(out, command->operands);
        buf_add_str(out, "\\fR");
    }
    buf_add_byte(out, '\n');
}

static void add_command(struct buf *out, const struct cli_command *command)
{
    buf_printf(out, ".SS \"ebb %s\"\n", command->name);
    add_synopsis(out, command);
    buf_add_str(out, ".PP\n");
    man_str(out, command->summary);
    buf_add_str(out, ".\n");
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
