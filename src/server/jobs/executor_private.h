/* Shared by the files of the executor, which follows a job from its start to its end. */
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
    EXECUTOR_NAME_MAX = 256,
    EXECUTOR_SENTENCE_MAX = 512,
    EXECUTOR_PATH_MAX = 108,       /* sun_path */
    EXECUTOR_JSON_MAX = 2 << 20,   /* maximum size of run.json */
    EXECUTOR_FRAME_MAX = 64 << 10, /* maximum size of a message from a supervisor */
};

/* The process that holds the lock. It is the sentinel, which writes its pid and start time into the
 * file. */
struct executor_holder {
    pid_t pid;
    uint64_t start_ticks;
};

struct executor_cancel {
    bool wanted, is_sent;
    char reason[EXECUTOR_SENTENCE_MAX];
    uint64_t grace_ns;
    uint64_t asked_ns; /* time at which the cancel was requested */
    uint64_t wake_ns; /* time at which to send SIGCONT again, to a supervisor that may be stopped */
};

struct executor_run {
    struct executor *x;
    int64_t id;
    char run_dir[EXECUTOR_NAME_MAX], folder_id[EXECUTOR_NAME_MAX];

    /* The process `ebb run --detached`, until it has exited: */
    pid_t child;   /* pid of that process; 0 if an earlier server started the job */
    int child_fd;  /* pidfd of CHILD; negative if it has exited, or the pidfd could not be opened */
    int stderr_fd; /* standard error of CHILD */
    struct loop_source *child_source;
    bool has_no_pidfd; /* CHILD is our child, but its pidfd could not be opened */
    int child_signal;  /* signal that killed CHILD, or 0 */
    bool is_swept;     /* CHILD is or was `ebb sweep` */

    bool is_started, is_start_reported;
    char no_start[EXECUTOR_SENTENCE_MAX]; /* why the job could not be started, or "" */

    /* The lock, which is free once no process of the job is left: */
    int lock_fd;   /* an open file description of our own, to test the lock */
    int holder_fd; /* pidfd of the sentinel; -1 if it is unknown or has exited */
    pid_t holder;  /* pid of the sentinel; 0 if it is not known yet */
    struct loop_source *holder_source;
    struct loop_source *timer; /* timer for the next executor_check */
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
    struct executor_cancel cancel;
    struct process_id supervisor; /* pid 0: unknown */
};

/* ---- executor.c ---- */

/* Call this if the lock is free but run.json does not contain the end of the job, so that processes
 * of the job may still run. Returns true if `ebb sweep` is killing them. `ebb sweep` holds the lock
 * until all of them have exited. */
bool executor_sweep(struct executor_run *run);

/* ---- executor_run.c: the lock ---- */

/* Opens or creates the lock and takes it. Returns an fd, -EBUSY if it is held, or -errno. */
int executor_lock_take(const struct executor *x, int64_t id);
int executor_lock_open(const struct executor *x, int64_t id); /* opens the lock without taking it */
/* Returns 1 if the lock is held, 0 if it is free, or -errno. */
int executor_lock_is_held(int lock_fd);
/* Reads the holder of the lock. Returns 0, -ENOENT if it is not written yet, or -EBADMSG. */
int executor_lock_read(int lock_fd, struct executor_holder *ret);

/* ---- executor_run.c ---- */

/* Reads run.json in the job's folder, which must be an object of at most MAX bytes. The caller
 * frees both results. Returns 0, -ENOENT, -EBADMSG or -errno. */
int executor_read_run(const struct executor *x, const struct executor_folder *folder, size_t max,
                      json_t **ret_json, struct outcome *ret);
struct executor_folder executor_folder_of(const struct executor_run *run);
bool executor_is_ended(const struct outcome *o);
struct executor_run *executor_run_new(struct executor *x, int64_t id,
                                      const struct executor_folder *folder);
void executor_run_free(struct executor_run *run);
/* Checks which process holds the lock, whether the job has ended, and the control socket. May call
 * `over`, which frees RUN. */
void executor_check(struct executor_run *run);
/* Schedules the next check at AT_NS, unless one is scheduled earlier. */
void executor_check_at(struct executor_run *run, uint64_t at_ns);

/* ---- executor_control.c ---- */

/* Connects to the control socket when that is due, and sends a pending cancel. */
void executor_control_check(struct executor_run *run, uint64_t now_ns);
void executor_control_drop(struct executor_run *run);

/* Stores PID, the peer of the control socket, as the supervisor if it is a child of the
 * sentinel. */
void executor_note_supervisor(struct executor_run *run, pid_t pid);
