/* The client of `ebb run` in the foreground: prints the job's output, forwards keys, signals and
 * the window's size, stops and continues with the job. */
#pragma once

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>

#include "supervise/supervisor.h"

struct run_client_end {
    json_t *doc; /* run.json; NULL: the supervisor was lost */
    bool status_known;
    int status; /* exit status of the job, which is ours as well */
};

/* Finds out which of our streams are the user's terminal, and the terminal's settings. NONE: use no
 * terminal. */
void run_client_terminal(bool none, struct supervisor_tty *ret);
/* Finds out which standard streams are closed, so that they are closed for the job, too, and
 * whether two of them are the same file. */
void run_client_streams(const struct supervisor_tty *tty, struct supervisor_streams *ret);
/* To be called before the job starts: signals that arrive from now on wait for run_client, which
 * forwards them. ret_before is the signal mask for the job. */
void run_client_hold_signals(sigset_t *ret_before);
/* Waits until the first process of a detached job has started (true), or cannot be started (false,
 * and *ret is set). Takes ownership of FD. */
bool run_client_until_started(int fd, struct run_client_end *ret);
/* Runs until the job has ended. Takes ownership of the fds. */
void run_client(const struct supervisor_client *s, const struct supervisor_tty *tty,
                struct run_client_end *ret);
