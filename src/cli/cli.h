/* What every command shares: its description as data, options from one table, its output. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "options/option.h"

struct cli_call {
    void *options; /* the command's own struct, filled in */
    int argc;      /* what is left: operands, or the job's command after -- */
    char **argv;
    struct options_given *given;
};

struct cli_command {
    const char *name;
    /* "-- CMD [ARG…]", "RUN_DIR|FILE", or "". cli_parse checks their number by it: "" takes none,
     * a first '[' makes them optional, a "…" allows several; behind "--" the command checks. */
    const char *operands;
    const char *summary; /* one line for the list */
    const char
        *description;     /* paragraphs with an empty line between; "  " begins a verbatim line */
    const char *examples; /* lines, or NULL */
    const struct option_desc *options;        /* every command has --help and -h besides */
    const struct option_desc *more_options;   /* a second table: those ANYWHERE; or NULL */
    size_t options_size;                      /* of the command's own struct */
    int usage_status;                         /* 2; 125 for run */
    bool stop_at_operand;                     /* run: the first operand ends our options */
    int (*exec)(const struct cli_call *call); /* exit status */
};

/* Every command, in the order of the help; NULL at the end. */
extern const struct cli_command *const cli_commands[];
/* Those that other parts of ebb call: found, but never shown. */
extern const struct cli_command *const cli_hidden_commands[];
extern const struct cli_command cmd_run, cmd_watch, cmd_verdict, cmd_diagnose, cmd_heap, cmd_census,
    cmd_report, cmd_export, cmd_mark, cmd_doctor, cmd_help, cmd_version, cmd_series, cmd_submit,
    cmd_jobs, cmd_show, cmd_logs, cmd_wait, cmd_cancel, cmd_checkpoint, cmd_rerun, cmd_serve,
    cmd_sweep;

/* Parses ARGV (argv[0] is the command's name) by COMMAND's table. 0; 1 if --help was asked for,
 * *ret untouched; or -EINVAL with a sentence that begins with the command's name. */
int cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_call *ret,
              struct err *err);
void cli_call_fini(struct cli_call *call); /* accepts a zeroed one */
/* NULL if there is none of that name. */
const struct cli_command *cli_find_command(const char *name);
/* Says that there is none, and which was probably meant. Returns the status. */
int cli_unknown_command(const char *name);

/* One line "ebb: SENTENCE" on stderr, escaped. Returns STATUS. */
int cli_fail(int status, const struct err *err);
int cli_failf(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same line for something that is not a failure. */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Opens standard streams that are closed on /dev/null, so that no file of ours gets one of their
 * numbers. */
void cli_open_streams(void);
/* A standard stream that was closed when the program was started; it is /dev/null by now. */
bool cli_was_closed(int fd);
bool cli_colour(int fd);  /* a terminal, and no NO_COLOR */
size_t cli_width(int fd); /* columns to write in: the terminal's, from 40 to 100; else 80 */

/* A closed pipe gets no sentence: the status is what the shell would see of SIGPIPE.
 */
enum { CLI_PIPE_STATUS = 141 };
/* Writes OUT to standard output and frees it: the exit status. */
struct buf;
int cli_print(struct buf *out);
/* The same of a document, as wide as the terminal, which is freed. */
struct doc;
int cli_print_doc(struct doc *d);
/* The same of JSON, indented; its reference is taken, NULL is out of memory. */
int cli_print_json(json_t *doc);

/* A piece of a description: a paragraph to be wrapped, or one line to be kept. */
struct cli_block {
    const char *s;
    size_t len;
    bool is_verbatim;
};
bool cli_block_next(const char **at, struct cli_block *ret);
/* Appends LEN bytes of S and a newline, broken at spaces so that lines end before WIDTH. The
 * first line begins at COLUMN, which is already written; the others are indented by INDENT. */
void cli_wrap(struct buf *out, const char *s, size_t len, size_t column, size_t indent,
              size_t width);

/* What comes out of the tables. */
extern const struct option_desc cli_help_option; /* --help, which every command has */
/* Every option in the order of the help, --help included; NULL behind the last. */
const struct option_desc *cli_option_at(const struct cli_command *command, size_t index);
void cli_help_list(struct buf *out, size_t width);
void cli_help_command(struct buf *out, const struct cli_command *command, size_t width);
void cli_man(struct buf *out);
void cli_completions(struct buf *out, const char *shell); /* bash, zsh or fish */
