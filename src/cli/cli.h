/* Shared by all commands: the description of a command, the parsing of its options, and output. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "options/option.h"

struct proc_root;

struct cli_call {
    void *options; /* the command's own struct, filled in by the parser */
    int argc;      /* remaining arguments: operands, or the job's command after -- */
    char **argv;
    struct options_given *given;
};

struct cli_command {
    const char *name;
    /* Operands as shown in the usage line: "-- CMD [ARG…]", "RUN_DIR|FILE", "BASE HEAD" or "".
     * cli_parse checks the number of operands against this text: "" allows none, a leading '['
     * makes them optional, "…" allows any number. If the text starts with "--", the command itself
     * checks its operands. If the text starts with "[RUN_DIR", the default operand is the latest
     * run. */
    const char *operands;
    const char *summary; /* one line for the list of commands in the help */
    /* Paragraphs separated by an empty line; a line that begins with "  " is printed verbatim. */
    const char *description;
    const char *examples;              /* one command per line, or NULL */
    const struct option_desc *options; /* options besides --help and -h, which every command has */
    /* a second table or NULL; only its rows with scope ANYWHERE are used */
    const struct option_desc *more_options;
    size_t options_size; /* size of the command's own options struct */
    int error_status;    /* exit status after an error; if 0, the status is 2 */
    /* options must precede the first operand, as in `ebb run -- CMD -x` */
    bool stop_at_operand;
    /* Runs the command. Returns its exit status, or -errno and an error, which is printed after the
     * name of the command. */
    int (*exec)(const struct cli_call *call, struct err *err);
};

/* The options of commands that have only --json. */
struct cli_json_options {
    bool json;
};
#define CLI_JSON_OPTION(text)                                                                      \
    OPTION_ROW(0, "json", FLAG, NULL, offsetof(struct cli_json_options, json), .help = (text))

/* All commands in the order of the help, NULL-terminated. */
extern const struct cli_command *const cli_commands[];
/* Commands for use by other parts of ebb. Users can run these commands, too, but the help does not
 * list them. */
extern const struct cli_command *const cli_hidden_commands[];
extern const struct cli_command cmd_run, cmd_watch, cmd_explain, cmd_verdict, cmd_diagnose,
    cmd_heap, cmd_census, cmd_report, cmd_compare, cmd_export, cmd_mark, cmd_doctor, cmd_help,
    cmd_version, cmd_series, cmd_submit, cmd_jobs, cmd_show, cmd_logs, cmd_wait, cmd_cancel,
    cmd_checkpoint, cmd_rerun, cmd_serve, cmd_sweep, cmd_attach, cmd_detach, cmd_stack,
    cmd_complete;

/* Parses ARGV (argv[0] is the command's name) with COMMAND's table of options. Returns 0 if the
 * command is to run, 1 if --help was found (*ret is then unchanged), or -EINVAL with an error. */
int cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_call *ret,
              struct err *err);
void cli_call_fini(struct cli_call *call); /* frees the options; accepts a zeroed struct */
/* Parses the first operand as a pid, and opens /proc and the cgroup file system. Returns 0 or
 * -errno. */
int cli_open_pid(const struct cli_call *call, struct proc_root *ret_root, int32_t *ret_pid,
                 struct err *err);
const struct cli_command *cli_find_command(const char *name);
/* Prints an error about the unknown command, with the most similar name. Returns the exit
 * status. */
int cli_unknown_command(const char *name);

/* Prints one line "ebb: MESSAGE" on stderr, escaped. Returns STATUS. */
int cli_fail(int status, const struct err *err);
int cli_failf(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints "ebb: MESSAGE" on stderr, for messages that are not errors. */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Opens /dev/null in place of standard streams that are closed, so that files opened later do not
 * get the file descriptors 0 to 2. */
void cli_open_streams(void);
/* Returns true if the standard stream FD was closed when the program started, and is now
 * /dev/null. */
bool cli_was_closed(int fd);
bool cli_colour(int fd); /* true if colour is used: FD is a terminal and NO_COLOR is not set */
/* Width of the output in columns: that of the terminal, but at least 40 and at most 100; 80 if FD
 * is not a terminal. */
size_t cli_width(int fd);

/* Exit status if the reader of our output has closed the pipe. This is not reported as an error. A
 * shell shows the same status for a process killed by SIGPIPE. */
enum { CLI_PIPE_STATUS = 141 };
/* Writes OUT to standard output and frees it. Returns the exit status. */
struct buf;
int cli_print(struct buf *out);
/* Writes a document to standard output, formatted to the terminal's width. Returns the exit
 * status. */
struct doc;
int cli_print_doc(struct doc *d);
/* Writes a document to FD, formatted for the terminal FD, and frees it. Returns 0 or -errno. */
int cli_write_doc(int fd, struct doc *d);
/* Writes JSON to standard output, indented, and releases DOC. A DOC of NULL means that memory ran
 * out. Returns the exit status. */
int cli_print_json(json_t *doc);
/* Writes JSON to standard output on one line. Does not release DOC. Returns the exit status. */
int cli_print_json_line(const json_t *doc);

/* A part of a description: a paragraph to wrap, or one verbatim line. */
struct cli_block {
    const char *s;
    size_t len;
    bool is_verbatim;
};
bool cli_block_next(const char **at, struct cli_block *ret);
/* Appends all blocks of TEXT, separated by empty lines. Writes MARGIN before each verbatim line. */
void cli_put_blocks(struct buf *out, const char *text, const char *margin, size_t width);
/* Appends LEN bytes of S and a newline. The text is broken at spaces into lines of at most WIDTH
 * columns. The caller has already written COLUMN columns of the first line. Further lines are
 * indented by INDENT. */
void cli_wrap(struct buf *out, const char *s, size_t len, size_t column, size_t indent,
              size_t width);

/* ---- output that is derived from the tables of options ---- */
extern const struct option_desc cli_help_option;
/* Returns the INDEX-th option in the order of the help, --help included, or NULL after the last. */
const struct option_desc *cli_option_at(const struct cli_command *command, size_t index);
void cli_help_list(struct buf *out, size_t width);
void cli_help_command(struct buf *out, const struct cli_command *command, size_t width);
void cli_man(struct buf *out);
/* Prints the completion script for SHELL: bash, zsh or fish. */
void cli_completions(struct buf *out, const char *shell);
