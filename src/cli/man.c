/* The manual page, one for all commands, in the man macros of roff. */
#include "cli/cli.h"

#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "version.h"

/* Text as roff wants it: plain ASCII, no line that begins like a request, dashes that stay
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

/* Verbatim lines in one block of their own. */
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
    "\\fBebb run\\fR exits with the status of the job: 128 and the number of the signal that "
    "ended\n"
    "it, 127 where there is no such command, 126 where it cannot be executed, 125 where ebb\n"
    "itself could not do what was asked, and 124 where the guard stopped the job for good.\n"
    "Every other command exits with 0, or with 2 and one sentence on standard error where the\n"
    "request cannot be carried out.\n"
    ".SH ENVIRONMENT\n"
    ".TP\n\\fBEBB_SOCKET\\fR\nset for the job: where it sends marks, and where \\fBebb mark\\fR "
    "sends.\n"
    ".TP\n\\fBEBB_RUN_DIR\\fR\nset for the job: the folder of the run.\n"
    ".TP\n\\fBEBB_SEGMENT\\fR\nset for the job: which start this is, from 0.\n"
    ".TP\n\\fBEBB_RESUME\\fR\nset to 1 for the job when it is started again.\n"
    ".TP\n\\fBEBB_LIMIT_BYTES\\fR\nset for the job: the memory that the guard defends.\n"
    ".TP\n\\fBNO_COLOR\\fR\nif set, and not to nothing, no colours.\n"
    ".SH FILES\n"
    ".TP\n\\fIebb\\-runs/NAME\\-DATE/\\fR\none run: its recording \\fItrace.ebb\\fR, "
    "\\fIlog.txt\\fR and\n"
    "\\fIrun.json\\fR.\n"
    ".TP\n\\fIebb\\-runs/latest\\fR\npoints at the newest run.\n";

void cli_man(struct buf *out)
{
    buf_printf(out,
               ".\\\" Printed by `ebb help --man`.\n"
               ".TH EBB 1 \"\" \"ebb %s\" \"User Commands\"\n"
               ".SH NAME\nebb \\- is a training job leaking, what leaks, and will it survive\n"
               ".SH SYNOPSIS\n.nf\n",
               EBB_VERSION);
    for (size_t i = 0; cli_commands[i]; i++)
        add_synopsis(out, cli_commands[i]);
    buf_add_str(out, ".fi\n.SH DESCRIPTION\n"
                     "ebb watches the memory of a job and of everything it starts, records it, and "
                     "prints what it saw.\n"
                     "Sizes are written 512M, 24G or 80%, times 500ms, 10s or 5m.\n"
                     "Options may be cut short as long as they stay clear.\n"
                     ".SH COMMANDS\n");
    for (size_t i = 0; cli_commands[i]; i++)
        add_command(out, cli_commands[i]);
    buf_add_str(out, page_end);
}
