/* The client of `ebb run` in the foreground: prints the job's output, forwards keys, signals and
 * the window's size, and stops and continues together with the job. */
#pragma once

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>

#include "supervise/supervisor.h"

struct run_client_end {
    json_t *doc; /* contents of run.json, or NULL if the supervisor was lost */
    bool status_known;
    int status; /* exit status of the job, with which ebb also exits */
};

/* Finds out which of our streams are the user's terminal, and the terminal's settings. If NONE,
 * no terminal is used. */
void run_client_terminal(bool none, struct supervisor_tty *ret);
/* Finds out which standard streams are closed, so that they are closed for the job as well. Also
 * finds out whether two of them are the same file. */
void run_client_streams(const struct supervisor_tty *tty, struct supervisor_streams *ret);
/* Holds back signals until run_client runs, which forwards them to the job. Call this function
 * before the job starts. ret_before is the signal mask for the job. */
void run_client_hold_signals(sigset_t *ret_before);
/* Waits until a detached job has started or has failed to start. Returns true if it has started;
 * otherwise sets *ret. Takes ownership of FD. */
bool run_client_until_started(int fd, struct run_client_end *ret);
/* Runs until the job has ended. Takes ownership of the fds. */
void run_client(const struct supervisor_client *s, const struct supervisor_tty *tty,
                struct run_client_end *ret);
