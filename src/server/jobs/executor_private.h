/* What the executor's files share: one job under way, from its start to its end. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "supervise/channel.h"
#include "server/jobs/executor.h"
#include "proc/sample.h"

struct loop_source;

enum {
    EXECUTOR_NAME_MAX = 256,
    EXECUTOR_SENTENCE_MAX = 512,
    EXECUTOR_PATH_MAX = 108,       /* sun_path */
    EXECUTOR_JSON_MAX = 2 << 20,   /* of a run.json */
    EXECUTOR_FRAME_MAX = 64 << 10, /* of the supervisor's */
};

/* Whoever holds the lock: its first process writes its pid and start into it. */
struct executor_holder {
    pid_t pid;
    uint64_t start_ticks;
};

struct executor_cancel {
    bool wanted, is_sent;
    char reason[EXECUTOR_SENTENCE_MAX];
    uint64_t grace_ns;
    uint64_t asked_ns; /* when it was wanted; an answer changes nothing: the end counts */
    uint64_t wake_ns;  /* when a supervisor that was stopped is woken next */
};

struct executor_run {
    struct executor *x;
    int64_t id;
    char run_dir[EXECUTOR_NAME_MAX], folder_id[EXECUTOR_NAME_MAX];

    /* `ebb run --detached`, until it has ended */
    pid_t child;  /* 0: another server's */
    int child_fd; /* a pidfd; negative: it has ended, or there is none */
    int words_fd; /* its standard error */
    struct loop_source *child_source;
    bool is_blind;    /* it is ours, but no pidfd could be had */
    int child_signal; /* that ended it; 0 none */
    bool is_swept;    /* the child is, or was, `ebb sweep` */

    bool is_started, is_start_reported;
    char no_start[EXECUTOR_SENTENCE_MAX]; /* why it could not be; "" */

    /* the lock: free once nothing of the job is left */
    int lock_fd;   /* a description of our own of the same file */
    int holder_fd; /* a pidfd of the sentinel; -1: not known, or gone */
    pid_t holder;  /* 0: not known yet */
    struct loop_source *holder_source;
    struct loop_source *timer; /* looks again, connects again */
    uint64_t timer_ns;         /* UINT64_MAX: not set */

    /* the control socket */
    char control[EXECUTOR_PATH_MAX]; /* "" not known yet */
    struct channel channel;          /* fd -1: not connected */
    struct loop_source *channel_source;
    uint64_t wait_ns, retry_ns; /* before the next try, and when that is */
    uint64_t second_ns;         /* in which FRAMES came */
    unsigned frames;
    size_t bytes;
    struct executor_cancel cancel;
    struct process_id supervisor; /* who listens there; pid 0: not known */
};

/* ---- executor.c ---- */

/* Nobody has the lock, and nobody has said how the job ended: its processes may live on. True: they
 * are being ended, which holds the lock; it is looked at again afterwards. */
bool executor_sweep(struct executor_run *run);

/* ---- executor_run.c: the lock ---- */

/* Opens or makes the lock and takes it. fd, -EBUSY where it is held, -errno. */
int executor_lock_take(const struct executor *x, int64_t id);
int executor_lock_open(const struct executor *x, int64_t id); /* without taking it */
/* 1 somebody holds it, 0 nobody, -errno. */
int executor_lock_is_held(int lock_fd);
/* Reads who holds it: 0, -ENOENT (not written yet), -EBADMSG. */
int executor_lock_read(int lock_fd, struct executor_holder *ret);

/* ---- executor_run.c ---- */

/* run.json in the job's own folder, bounded and checked to be an object: 0 and the caller's
 * document, -ENOENT, -EBADMSG, -errno. */
int executor_read_json(const struct executor *x, const struct executor_folder *folder, size_t max,
                       json_t **ret);
struct executor_folder executor_folder_of(const struct executor_run *run);
bool executor_json_is_ended(const json_t *doc);
struct executor_run *executor_run_new(struct executor *x, int64_t id,
                                      const struct executor_folder *folder);
void executor_run_free(struct executor_run *run);
/* Looks who holds the lock, whether the job is over, and whether it can be reached. May end in
 * `over`, after which RUN is gone. */
void executor_check(struct executor_run *run);
/* When to look again, at the latest. */
void executor_check_at(struct executor_run *run, uint64_t at_ns);

/* ---- executor_control.c ---- */

/* Connects where it is time to; sends what waits. */
void executor_control_check(struct executor_run *run, uint64_t now_ns);
void executor_control_drop(struct executor_run *run);

/* PID listens at the control socket: the supervisor, if it is the sentinel's child. */
void executor_note_supervisor(struct executor_run *run, pid_t pid);
