/* One life of the job's first process. With --restart there may be several, one after another. */
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

/* How far the end of a segment has come. */
enum job_ending { RUNNING, SETTLING, TERMINATING, KILLING, DRAINING, ENDED };

/* As the first rank's marks report it. */
struct job_progress {
    bool has_step;
    int64_t first_step, last_step, max_steps; /* max_steps 0: unknown */
    bool has_epoch;
    double epoch;
    bool counts_anew; /* its steps are those of this segment alone */
    bool has_checkpoint, checkpoint_has_step;
    int64_t checkpoint_step; /* done when the checkpoint was acknowledged */
};

enum { JOB_LAST_SAMPLES = 8 };
struct job_segment {
    unsigned number;
    pid_t pid; /* its process group has the same number */
    int pidfd; /* of it, to the end of the segment; -1 */
    bool exited;
    int status; /* as wait gives it */
    struct rusage usage;
    uint64_t started_ns, started_wall_ns, ended_ns;
    enum job_ending ending;
    uint64_t deadline_ns; /* of the present ending */
    unsigned left_behind;
    enum cause cause;         /* set by job_blame; at the end by death_cause */
    char why[LADDER_WHY_MAX]; /* of the guard's stop, or "cancelled: REASON"; "" none */
    int operator_signal;      /* the last one passed on that ends programs; 0 none */
    bool is_last;             /* the operator wants no further segment */
    struct job_progress progress;
    struct death_ooms ooms; /* before it started */
    struct job_sample {
        uint64_t t_ns, job_bytes, room_bytes;
    } samples[JOB_LAST_SAMPLES]; /* of the last ticks, in a ring */
    uint32_t sample_count;
};

int job_segment_start(struct job *j, struct err *err);
/* Ebb ends the segment because of CAUSE: the first decision of the guard counts, and a request to
 * cancel comes before it. */
void job_blame(struct job_segment *n, enum cause cause, const char *why);
bool job_is_guard_stop(const struct job_segment *n);
/* The segment is over: begins the next one, or stops the loop. */
void job_segment_over(struct job *j);
/* What the run exits with, and how it ended; from the last segment. */
int job_run_status(const struct job *j);
const struct outcome_end *job_outcome_end(struct job *j);
