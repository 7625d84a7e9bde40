/* The connection to the client of a foreground job. The client receives output and notices, and
 * sends signals and the keys that the user types. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "supervise/channel.h"

struct job;
struct loop_source;

struct job_client {
    struct channel channel;
    struct loop_source *source, *wake_timer;
    /* pidfd of the client; used to wake the client when a stopped job continues; -1 if there is no
     * client */
    int pidfd;
    /* the client has stopped itself and has not reported that it is running again */
    bool is_stopped;
    bool is_gone;     /* the client has disconnected, or never connected */
    bool is_behind;   /* the client has too many unread frames, so the job is paused */
    struct buf input; /* typed input that was not yet written to the job's terminal */
};

int job_client_start(struct job *j);
/* Sends a notice to the user. USER points to the job, so that this function can be an engine
 * callback. */
void job_notify(void *user, const char *sentence);
void job_notifyf(struct job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reports to the client that the detached job has started, and disconnects it. */
void job_client_leave(struct job *j);
/* Sends queued frames. If the client has disconnected, ends the connection. */
void job_client_flush(struct job *j);
/* Wakes a client that was stopped with the job. */
void job_client_wake(struct job *j);
bool job_client_sleeps(const struct job_client *c);
/* Writes as much typed input to the job's terminal as it accepts. */
void job_input_write(struct job *j);
