/* The guard of a job: what measures its memory, what was decided, what was done. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guard/ask.h"
#include "guard/cgroup.h"
#include "guard/death.h"
#include "guard/ladder.h"
#include "guard/leftovers.h"
#include "guard/memory_returned.h"
#include "guard/reflex.h"
#include "guard/tempo.h"
#include "proc/machine.h"

struct job;
struct loop_source;
struct proc_event;

struct job_guard {
    struct guard_cgroup cgroup;
    struct reflex *reflex;
    struct loop_source *reflex_source, *alert_timer;
    struct ladder ladder;
    bool is_alert;     /* the alert timer runs */
    bool is_requested; /* the checkpoint under way was requested from outside */
    struct tempo tempo;
    struct ask ask;
    struct leftovers *leftovers; /* NULL: /dev/shm cannot be read */
    json_t *left;                /* at the end, for run.json */
    struct memory_returned memory_returned;
    struct death_tail tail;
    uint64_t limit_bytes; /* the user's; 0: none given */
    struct machine_limit effective;
    bool effective_known;
    char effective_dir[4096];       /* below the cgroup root; "" if it is none of a cgroup */
    struct limit_fds effective_fds; /* for the reflex */
    struct reflex_gauge gauge[REFLEX_GAUGES]; /* as the reflex has them */
    bool has_left; /* processes of the job are outside its cgroup, which does not count them */
    char no_cgroup[256]; /* why there is none, or none that counts; "" */
};

/* Before the first segment: cgroup, what memory there was. Trouble is reported to the user, never
 * returned. */
void job_guard_begin(struct job *j);
/* Before a segment starts: a limit that is too low for it takes it in its first moment. */
void job_guard_ooms(struct job *j);
/* A segment has started. */
void job_guard_segment(struct job *j);
void job_guard_process(struct job *j, const struct proc_event *event);
void job_guard_mark(struct job *j, const struct mark *mark);
void job_guard_tick(struct job *j, uint64_t now_ns);
/* Requests a checkpoint on behalf of the control socket. 0, -EALREADY (it is ending), or -ESRCH:
 * no process could be asked, and why. */
int job_guard_checkpoint(struct job *j, char why[ASK_TEXT_MAX]);
/* A child of ours that is not of the job: the command that makes a checkpoint. */
void job_guard_reaped(struct job *j, pid_t pid, int status);
/* The job's first process has exited: perhaps killed by the reflex just now. */
void job_guard_exited(struct job *j);
/* When no process of the job is left: releases everything and measures what came back. */
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
