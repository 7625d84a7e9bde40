/* The client of a job in the foreground: what it is sent, and its keys and signals for the job. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "supervise/channel.h"

struct job;
struct loop_source;

struct job_client {
    struct channel channel;
    struct loop_source *source, *wake_timer;
    int pidfd;        /* to wake it when the job goes on after a stop; -1 none */
    bool is_stopped;  /* it was told to stop, and has not said that it goes on */
    bool is_gone;     /* or was never there */
    bool is_behind;   /* frames wait for it: the job has to wait */
    struct buf input; /* typed, and not yet taken by the job's terminal */
};

int job_client_start(struct job *j);
/* A sentence for the user. USER is the job: this is an engine_say_fn. */
void job_notify(void *user, const char *sentence);
void job_notifyf(struct job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A detached job has started: the client is told so and dropped. */
void job_client_leave(struct job *j);
/* Sends what is queued; notices that the client is gone. */
void job_client_flush(struct job *j);
/* The client was told to stop with the job and must not stay so. */
void job_client_wake(struct job *j);
bool job_client_sleeps(const struct job_client *c);
/* Gives the job's terminal what was typed, as far as there is room. */
void job_input_write(struct job *j);
