/* Runs a child process without blocking the event loop, and collects its output. The command is a
 * short one, such as squeue or `ebb verdict`, or it starts a job. The child process has its own
 * session, so that it outlives the server. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct command;
struct loop;

enum { COMMAND_LOCK_FD = 3 }; /* number of the lock's fd in the child */

struct command_setup {
    const char *program; /* path */
    char *const *argv;   /* arguments, terminated by NULL */
    char *const *env;    /* environment, terminated by NULL */
    const char *cwd;     /* NULL: the root folder */
    uint64_t limit_ns;   /* the command is killed after this time; 0: never */
    uint64_t files_max;  /* soft limit on open files; 0: the same as the server's */
    /* maximum number of bytes on standard output, which is collected; more are an error. 0:
     * standard output goes to OUT_FD */
    size_t output_max;
    int out_fd;  /* -1: /dev/null */
    int lock_fd; /* fd that the child inherits as COMMAND_LOCK_FD; -1: none */
    int nice;    /* nice value of the command; 0: the server's */
};

/* Called from the event loop once the command has ended. The command is freed afterwards. STATUS is
 * the exit status; 128 + N if signal N killed it; -ETIMEDOUT; or -EFBIG. ERROR is the last line of
 * its standard error, without the program's name; it may be "". */
typedef void command_done_fn(void *user, int status, const char *output, size_t len,
                             const char *error);
/* Starts a command. Its fds must be above COMMAND_LOCK_FD. Returns 0 or -errno. FN is called only
 * if the start succeeds. */
int command_start(struct loop *loop, const struct command_setup *setup, command_done_fn *fn,
                  void *user, struct command **ret);
/* Forgets a command: FN is not called. If IS_KILLED is set, the command is killed; otherwise it
 * continues. C may be NULL. */
void command_release(struct command *c, bool is_killed);
/* Finds NAME in the folders of $PATH. Returns 0; -ENOENT; or -ENAMETOOLONG. */
int command_find(const char *name, char *ret, size_t size);
/* Duplicates FD to a number above COMMAND_LOCK_FD and closes FD, because dup2 in the child would
 * overwrite a lower number. Returns the new fd or -errno. Returns FD itself if it is negative or
 * high enough. */
int command_fd_move_up(int fd);
