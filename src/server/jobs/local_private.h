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

/* The process that holds the lock: the sentinel. It writes its pid and start time into the lock
 * file. */
struct local_holder {
    pid_t pid;
    uint64_t start_ticks;
};

struct local_run {
    struct executor_run base;

    /* The process `ebb run --detached`, until it has exited: */
    pid_t child;   /* pid of that process; 0 if an earlier server started the job */
    int child_fd;  /* pidfd of CHILD; negative if it has exited, or the pidfd could not be opened */
    int stderr_fd; /* standard error of CHILD */
    struct loop_source *child_source;
    bool has_no_pidfd; /* CHILD is our child, but has no pidfd */
    int child_signal;  /* signal that killed CHILD, or 0 */
    bool is_swept;     /* CHILD is or was `ebb sweep` */

    bool is_started, is_start_reported;
    char no_start[EXECUTOR_SENTENCE_MAX]; /* why the job could not be started, or "" */

    /* The lock, which is free once no process of the job is left: */
    int lock_fd;   /* our own open file description, with which the lock is tested */
    int holder_fd; /* pidfd of the sentinel; -1 if it is unknown or has exited */
    pid_t holder;  /* pid of the sentinel; 0 if it is not known yet */
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

/* Call this if the lock is free but run.json does not contain the end of the job, so that processes
 * of the job may still run. Returns true if `ebb sweep` is killing them. `ebb sweep` holds the lock
 * until all of them have exited. */
bool local_sweep(struct local_run *run);

/* ---- local_run.c ---- */

/* Reads the holder of the lock. Returns 0, -ENOENT if it is not written yet, or -EBADMSG. */
int local_lock_read(int lock_fd, struct local_holder *ret);

struct local_run *local_run_new(struct executor *x, int64_t id,
                                const struct executor_folder *folder);
void local_run_free(struct local_run *run);
/* Checks which process holds the lock, whether the job has ended, and whether to connect to the
 * control socket. May call `over`, which frees RUN. */
void local_check(struct local_run *run);
/* Schedules the next check at AT_NS, unless one is scheduled earlier. */
void local_check_at(struct local_run *run, uint64_t at_ns);

/* ---- local_control.c ---- */

/* Members of executor_kind: */
int local_cancel(struct executor_run *base);
void local_cancel_again(struct executor_run *base);
int local_checkpoint(struct executor_run *base);

/* Connects to the control socket when that is due, and sends a pending cancel. */
void local_control_check(struct local_run *run, uint64_t now_ns);
void local_control_drop(struct local_run *run);

/* PID is the peer of the control socket. If PID is a child of the sentinel, stores it as the
 * supervisor. */
void local_note_supervisor(struct local_run *run, pid_t pid);
