/* Runs a short command, such as squeue or `ebb verdict`, with a time limit and without blocking the
 * event loop, and collects its output in memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct command;
struct err;
struct loop;

struct command_setup {
    const char *program; /* path */
    char *const *argv;   /* arguments, ended with NULL */
    char *const *env;    /* environment, ended with NULL */
    uint64_t limit_ns;   /* the command is killed after this time */
    size_t output_max;   /* maximum size of standard output; longer output is an error */
    int out_fd;          /* fd for standard output, or -1 to collect the output */
    int lock_fd;         /* see child_process.h; -1: none */
    int nice;            /* nice value of the command; 0: the server's */
};

/* Called from the event loop once the command has ended. The command is freed afterwards. STATUS is
 * the exit status; 128 + N if signal N killed it; -ETIMEDOUT; or -EFBIG. ERROR is the last line of
 * its standard error, without the program's name; it may be "". */
typedef void command_done_fn(void *user, int status, const char *output, size_t len,
                             const char *error);
/* Starts a command. Returns 0 or -errno. FN is called only if the start succeeds. */
int command_start(struct loop *loop, const struct command_setup *setup, command_done_fn *fn,
                  void *user, struct command **ret);
/* Forgets a command: FN is not called. If IS_KILLED is set, the command is killed; otherwise it
 * continues. C may be NULL. */
void command_release(struct command *c, bool is_killed);
/* Finds NAME in the folders of $PATH. Returns 0; -ENOENT; or -ENAMETOOLONG. */
int command_find(const char *name, char *ret, size_t size);
