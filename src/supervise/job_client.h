/* The connection to the client of a foreground job, which receives output and notices and sends
 * keys and signals. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "supervise/channel.h"

struct job;
struct loop_source;

struct job_client {
    struct channel channel;
    struct loop_source *source, *wake_timer;
    /* pidfd of the client, to wake it when the job continues after a stop; -1 if there is no
     * client */
    int pidfd;
    bool is_stopped;  /* the client was stopped and has not reported yet that it continues */
    bool is_gone;     /* the client has disconnected, or never connected */
    bool is_behind;   /* the client has too many unread frames, so the job has to wait */
    struct buf input; /* typed input that the job's terminal has not read yet */
};

int job_client_start(struct job *j);
/* Sends a notice to the user. USER is the job, so that this function can be used as an
 * engine callback. */
void job_notify(void *user, const char *sentence);
void job_notifyf(struct job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reports to the client that the detached job has started, and disconnects it. */
void job_client_leave(struct job *j);
/* Sends queued frames. If the client has disconnected, ends the connection. */
void job_client_flush(struct job *j);
/* Wakes a client that was stopped with the job. */
void job_client_wake(struct job *j);
bool job_client_sleeps(const struct job_client *c);
/* Writes typed input to the job's terminal, as far as there is space. */
void job_input_write(struct job *j);
