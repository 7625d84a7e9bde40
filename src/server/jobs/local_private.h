/* Shared by the files of the local executor, which follows a job from its start to its end. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "supervise/channel.h"
#include "server/jobs/executor.h"
#include "proc/sample.h"
#include "run/outcome.h"

struct loop_source;

enum {
    EXECUTOR_PATH_MAX = 108,       /* sun_path */
    EXECUTOR_FRAME_MAX = 64 << 10, /* maximum size of a message from a supervisor */
};

struct local_run {
    struct executor_run base;

    struct command *child; /* `ebb run --detached`, or `ebb sweep`; NULL if it has exited */
    int child_signal;      /* signal that killed `ebb run`, or 0 */
    bool is_own_start;     /* this server, not an earlier one, started the job */
    bool is_swept;         /* `ebb sweep` was started */

    bool is_started, is_start_reported;
    char no_start[EXECUTOR_SENTENCE_MAX]; /* why the job could not be started, or "" */

    /* The lock, which is free once no process of the job is left: */
    int lock_fd;          /* our own open file description, with which the lock is tested */
    bool is_lock_unknown; /* the lock cannot be read, and this was reported */
    int holder_fd;        /* pidfd of the sentinel; -1 if it is unknown or has exited */
    pid_t holder;         /* pid of the sentinel; 0 if it is not known yet */
    struct loop_source *holder_source;
    struct loop_source *timer; /* timer for the next local_check */
    uint64_t timer_ns;         /* UINT64_MAX: not set */

    /* The control socket: */
    char control[EXECUTOR_PATH_MAX]; /* path of the control socket; "" if it is not known yet */
    struct channel channel; /* connection to the supervisor; its fd is -1 while not connected */
    struct loop_source *channel_source;
    /* delay before the next attempt to connect, and the time of that attempt */
    uint64_t wait_ns, retry_ns;
    uint64_t second_ns; /* start of the second in which FRAMES and BYTES are counted */
    unsigned frames;
    size_t bytes;
    struct process_id supervisor; /* pid 0: unknown */
};

/* ---- local.c ---- */

/* Schedules the next check at AT_NS, or keeps one that is scheduled earlier. */
void local_check_at(struct local_run *run, uint64_t at_ns);
/* PID is the peer of the control socket. If PID is a child of the sentinel, stores it as the
 * supervisor. */
void local_note_supervisor(struct local_run *run, int32_t pid);

/* ---- local_control.c ---- */

/* Members of executor_kind: */
int local_cancel(struct executor_run *base);
void local_cancel_again(struct executor_run *base);
int local_checkpoint(struct executor_run *base);

/* Connects to the control socket when that is due, and sends a pending cancel. */
void local_control_check(struct local_run *run, uint64_t now_ns);
void local_control_drop(struct local_run *run);
