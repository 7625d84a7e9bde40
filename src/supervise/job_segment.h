/* A segment is one execution of the job's command. With --restart a job may consist of several
 * segments, one after the other. */
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

/* The state of a segment: RUNNING, then the phases of its end. */
enum job_ending { RUNNING, SETTLING, TERMINATING, KILLING, DRAINING, ENDED };

/* Progress of a segment, as reported in the marks of the first rank. */
struct segment_progress {
    bool has_step;
    int64_t first_step, last_step, max_steps; /* max_steps is 0 if unknown */
    bool has_epoch;
    double epoch;
    bool counts_anew; /* step numbers start from 0 in each segment */
    bool has_checkpoint, checkpoint_has_step;
    /* the last step that was reported before the checkpoint was acknowledged */
    int64_t checkpoint_step;
};

enum {
    JOB_LAST_SAMPLES = 8,
    JOB_GUARD_STATUS = 124, /* exit status of `ebb run` if the guard stopped the job */
};
struct job_segment {
    unsigned number;
    pid_t pid; /* pid of the first process, which is also the id of its process group */
    int pidfd; /* pidfd of that process, open until the end of the segment, or -1 */
    bool exited;
    int status; /* wait status */
    struct rusage usage;
    uint64_t started_ns, started_wall_ns, ended_ns;
    enum job_ending ending;
    uint64_t deadline_ns; /* time at which the current phase ends */
    unsigned left_behind;
    /* cause of the end of the segment, set by job_set_cause or, after the end, by death_cause */
    enum cause cause;
    /* reason why the guard stopped the segment, or "cancelled: REASON"; otherwise "" */
    char why[LADDER_WHY_MAX];
    int operator_signal; /* the last terminating signal that the user sent, or 0 */
    bool is_last;        /* the user stopped the job, so it is not restarted */
    struct segment_progress progress;
    struct death_ooms ooms; /* OOM counters before the segment started */
    struct job_sample {
        uint64_t t_ns, job_bytes, room_bytes;
    } samples[JOB_LAST_SAMPLES]; /* samples of the last ticks, in a ring buffer */
    uint32_t sample_count;
};

int job_segment_start(struct job *j, struct err *err);
/* Sets the reason why ebb ends the segment. A request to cancel replaces an earlier cause; a later
 * cause from the guard does not. */
void job_set_cause(struct job_segment *n, enum cause cause, const char *why);
bool job_is_guard_stop(const struct job_segment *n);
/* Returns why a process with wait status STATUS ended, and describes the cause in TEXT. */
enum cause job_cause_of(const struct job *j, int status, char text[DEATH_TEXT]);
/* Call this after the end of a segment: starts the next one, or stops the loop. */
void job_segment_over(struct job *j);
/* Return the exit status of the whole run, and how it ended. Both are those of its last segment. */
int job_run_status(const struct job *j);
const struct outcome_end *job_outcome_end(struct job *j);
