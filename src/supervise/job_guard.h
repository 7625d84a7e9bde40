/* The guard of a job: its gauges, decisions and requests. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guard/checkpoint.h"
#include "guard/cgroup.h"
#include "guard/death.h"
#include "guard/ladder.h"
#include "guard/leftovers.h"
#include "guard/memory_returned.h"
#include "guard/reflex.h"
#include "guard/timing.h"
#include "proc/machine.h"

struct job;
struct loop_source;
struct proc_event;

struct job_guard {
    struct guard_cgroup cgroup;
    struct reflex *reflex;
    struct loop_source *reflex_source, *alert_timer;
    struct ladder ladder;
    bool is_alert; /* the alert timer is running */
    /* true if the user, another node or the time limit caused the checkpoint request; false if a
     * trigger of the ladder did */
    bool is_requested;
    struct timing timing;
    struct checkpoint checkpoint;
    /* files that the job leaves in /dev/shm; NULL if the folder cannot be read */
    struct leftovers *leftovers;
    struct death_tail tail;
    uint64_t limit_bytes;           /* --limit; 0: not given */
    struct machine_limit effective; /* effective.limit_bytes is 0 if the limit is unknown */
    /* cgroup that has the effective limit, relative to the cgroup root; "" if no cgroup has it */
    char effective_dir[4096];
    /* the cgroup files that the reflex reads for the effective limit */
    struct limit_fds effective_fds;
    /* copies of the gauges that the reflex uses */
    struct reflex_gauge gauge[REFLEX_GAUGES];
    bool has_left; /* some processes of the job are outside its cgroup */
    /* why the job has no cgroup, or a cgroup without a limit; "" if there is no problem */
    char no_cgroup[256];
};

/* Call this before the first segment: creates the cgroup and reads the memory in use on the
 * machine. Reports failures to the user. */
void job_guard_begin(struct job *j);
/* Reads the OOM counters. Call this before a segment starts, because a low limit may kill the job
 * at once. */
void job_guard_ooms(struct job *j);
/* Resets the guard for a new segment. Call this before the segment starts. */
void job_guard_segment(struct job *j);
void job_guard_process(struct job *j, const struct proc_event *event);
void job_guard_mark(struct job *j, const struct mark *mark);
void job_guard_tick(struct job *j, uint64_t now_ns);
/* Requests a checkpoint for a client of the control socket. Returns 0; -EALREADY if the job is
 * ending; -ESRCH if no process received the request, with the reason in WHY. */
int job_guard_checkpoint(struct job *j, char why[CHECKPOINT_TEXT_MAX]);
/* Sends the request to the ranks of this node. If that fails, no checkpoint is pending. */
void job_guard_request_checkpoint(struct job *j, uint64_t now_ns);
/* Decides on the next action now, instead of at the next tick. */
void job_guard_decide(struct job *j, uint64_t now_ns);
/* Call this when a child other than the job was reaped. That child may be the checkpoint
 * command. */
void job_guard_reaped(struct job *j, pid_t pid, int status);
/* Call this when the job's first process has exited, perhaps because the guard killed it. */
void job_guard_exited(struct job *j);
/* Call this after the last process has exited: removes the cgroup and measures how much memory the
 * job released. */
void job_guard_end(struct job *j);
void job_guard_free(struct job_guard *g);

/* ---- functions used only by the guard's own files ---- */

void job_guard_set_lines(struct job_guard *g, unsigned which);
void job_guard_set_own_gauge(struct job_guard *g);
void job_guard_set_charge(struct job *j);
void job_guard_follow_members(struct job *j);
void job_guard_set_effective_gauge(struct job *j);
void job_guard_follow_effective(struct job *j);
/* Records an action of the guard. GPU is the GPU whose memory is the reason, or NULL. */
void job_guard_put_event(struct job *j, uint64_t now_ns, const char *act, const char *trigger,
                         const unsigned *gpu, const char *why);
void job_guard_put_checkpoint(struct job *j, uint64_t now_ns);
void job_guard_on_reflex(void *user, int fd, uint32_t events);
void job_guard_on_alert(void *user, uint64_t now_ns);
