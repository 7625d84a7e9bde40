/* Starts a child process of an executor in a session of its own, so that it outlives the server. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct loop;

enum { CHILD_LOCK_FD = 3 }; /* number of the lock's fd in the child */

struct child_setup {
    const char *program; /* path */
    char *const *argv, *const *env;
    const char *cwd;
    uint64_t files_max; /* soft limit of open files; 0: the same as the server's */
    int out_fd;         /* standard output; -1 means /dev/null */
    int err_fd;         /* standard error */
    int lock_fd;        /* fd that the child gets as CHILD_LOCK_FD; -1: none */
};

/* Starts the child. The fds of SETUP must be above CHILD_LOCK_FD, see child_fd_move_up. Returns 0,
 * or -errno if it could not be started; no process is left then. */
int child_process_start(const struct loop *loop, const struct child_setup *setup, pid_t *ret);
/* Moves FD to a number above those that the child assigns with dup2, which would close FD. Returns
 * the new fd or -errno, and closes FD. Returns FD itself if it is negative or high enough. */
int child_fd_move_up(int fd);
/* Opens a pipe. The read end is non-blocking, the write end is for a child. Returns 0 or -errno. */
int child_pipe(int *ret_read, int *ret_write);
