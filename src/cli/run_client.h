/* The foreground side of `ebb run`: shows what the job writes, passes on keys, signals and the
 * window's size, stops and goes on with the job. */
#pragma once

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>

#include "supervise/supervisor.h"

struct run_client_end {
    json_t *doc; /* run.json; NULL if the supervisor was lost */
    bool status_known;
    int status; /* the job's, as we are to end with */
};

/* Which of our streams are the user's terminal, and how it is set. NONE: none of them. */
void run_client_terminal(bool none, struct supervisor_tty *ret);
/* What of our streams the job is to find closed, and whether two of them are one place. */
void run_client_streams(const struct supervisor_tty *tty, struct supervisor_streams *ret);
/* To be called before there is a job: signals that come from now on wait for run_client, which
 * passes them on. What was blocked before, the job is to find again. */
void run_client_hold_signals(sigset_t *ret_before);
/* Of a detached job: until its first process has started (true), or it is known that there will be
 * none (false, and *ret as below). FD is taken over. */
bool run_client_until_started(int fd, struct run_client_end *ret);
/* Until the job has ended. The fds are taken over. */
void run_client(const struct supervisor_client *s, const struct supervisor_tty *tty,
                struct run_client_end *ret);
