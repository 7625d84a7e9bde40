/* A segment: one run of the job's command. With --restart there may be several in sequence. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "guard/death.h"
#include "guard/ladder.h"

struct err;
struct job;
struct outcome_end;

/* The phases in which a segment ends. */
enum job_ending { RUNNING, SETTLING, TERMINATING, KILLING, DRAINING, ENDED };

/* From the marks of the first rank. */
struct segment_progress {
    bool has_step;
    int64_t first_step, last_step, max_steps; /* max_steps 0: unknown */
    bool has_epoch;
    double epoch;
    bool counts_anew; /* its steps start again at 0 with every segment */
    bool has_checkpoint, checkpoint_has_step;
    int64_t checkpoint_step; /* the step at the acknowledgement */
};

enum { JOB_LAST_SAMPLES = 8 };
struct job_segment {
    unsigned number;
    pid_t pid; /* also the number of its process group */
    int pidfd; /* pidfd of PID, until the end of the segment; -1: none */
    bool exited;
    int status; /* wait status */
    struct rusage usage;
    uint64_t started_ns, started_wall_ns, ended_ns;
    enum job_ending ending;
    uint64_t deadline_ns; /* when the present phase ends */
    unsigned left_behind;
    enum cause cause;         /* set by job_set_cause, and at the end by death_cause */
    char why[LADDER_WHY_MAX]; /* reason of the guard's stop, or "cancelled: REASON"; "": none */
    int operator_signal;      /* the last terminating signal that the user sent; 0: none */
    bool is_last;             /* stopped by the user: no restart */
    struct segment_progress progress;
    struct death_ooms ooms; /* OOM counters before the segment started */
    struct job_sample {
        uint64_t t_ns, job_bytes, room_bytes;
    } samples[JOB_LAST_SAMPLES]; /* samples of the last ticks, in a ring buffer */
    uint32_t sample_count;
};

int job_segment_start(struct job *j, struct err *err);
/* Sets why ebb ends the segment. The guard's first reason is kept; a cancel replaces it. */
void job_set_cause(struct job_segment *n, enum cause cause, const char *why);
bool job_is_guard_stop(const struct job_segment *n);
/* To be called after the end of a segment: starts the next one, or stops the loop. */
void job_segment_over(struct job *j);
/* Exit status and end of the run, from the last segment. */
int job_run_status(const struct job *j);
const struct outcome_end *job_outcome_end(struct job *j);
