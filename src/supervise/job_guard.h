/* The guard of a job: its gauges, decisions and requests. */
#pragma once

#include <jansson.h>
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
    bool is_alert;     /* whether the alert timer runs */
    bool is_requested; /* the checkpoint in progress was requested over the control socket */
    struct timing timing;
    struct checkpoint checkpoint;
    struct leftovers *leftovers; /* NULL: /dev/shm cannot be read */
    struct death_tail tail;
    uint64_t limit_bytes; /* --limit; 0: not given */
    struct machine_limit effective;
    bool effective_known;
    char effective_dir[4096]; /* relative to the cgroup root; "": the limit is not a cgroup's */
    struct limit_fds effective_fds;           /* files for the reflex */
    struct reflex_gauge gauge[REFLEX_GAUGES]; /* as set in the reflex */
    bool has_left;                            /* processes of the job are outside its cgroup */
    char no_cgroup[256]; /* why there is no cgroup, or none that counts memory; "": no problem */
};

/* To be called before the first segment: makes the cgroup and reads the memory in use. Reports
 * failures to the user. */
void job_guard_begin(struct job *j);
/* Reads the OOM counters. To be called before a segment starts, because a low limit may kill it at
 * once. */
void job_guard_ooms(struct job *j);
/* To be called before a segment starts. */
void job_guard_segment(struct job *j);
void job_guard_process(struct job *j, const struct proc_event *event);
void job_guard_mark(struct job *j, const struct mark *mark);
void job_guard_tick(struct job *j, uint64_t now_ns);
/* Requests a checkpoint for a client of the control socket. 0; -EALREADY: the job is ending;
 * -ESRCH: no process could be reached, for the reason in WHY. */
int job_guard_checkpoint(struct job *j, char why[CHECKPOINT_TEXT_MAX]);
/* To be called when a child outside the job was reaped, which may be the checkpoint command. */
void job_guard_reaped(struct job *j, pid_t pid, int status);
/* To be called when the job's first process has exited, perhaps killed by the reflex. */
void job_guard_exited(struct job *j);
/* To be called after the last process has exited: removes the cgroup and measures the memory
 * returned. */
void job_guard_end(struct job *j);
void job_guard_free(struct job_guard *g);

/* ---- for the guard's own files ---- */

void job_guard_find_effective(struct job *j);
void job_guard_set_lines(struct job_guard *g, unsigned which);
void job_guard_set_own_gauge(struct job_guard *g);
void job_guard_set_charge(struct job *j);
void job_guard_follow_members(struct job *j);
void job_guard_set_effective_gauge(struct job *j);
void job_guard_follow_effective(struct job *j);
void job_guard_put_event(struct job *j, uint64_t now_ns, const char *act, const char *trigger,
                         const char *why);
void job_guard_put_checkpoint(struct job *j, uint64_t now_ns);
void job_guard_on_reflex(void *user, int fd, uint32_t events);
void job_guard_on_alert(void *user, uint64_t now_ns, uint64_t missed);
