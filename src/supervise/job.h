/* The state of a job in its supervisor. Each part of the state has its own header. Used only in
 * src/supervise. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "guard/sentinel.h"
#include "run/outcome.h"
#include "supervise/job_client.h"
#include "supervise/job_control.h"
#include "supervise/job_end.h"
#include "supervise/job_folder.h"
#include "supervise/job_guard.h"
#include "supervise/job_heap.h"
#include "supervise/job_node.h"
#include "supervise/job_output.h"
#include "supervise/job_ranks.h"
#include "supervise/job_scrape.h"
#include "supervise/job_segment.h"
#include "supervise/job_termination.h"
#include "supervise/message.h"
#include "supervise/step_sources.h"
#include "supervise/supervisor.h"

struct job {
    const struct supervisor_options *options;
    struct loop *loop;
    struct engine *engine;
    struct mark_receiver *marks;
    struct sentinel_note *note;
    struct job_client client;
    struct job_output output;
    struct job_heap heap;
    struct job_guard guard;
    struct job_control *control; /* the control socket, or NULL if there is none */
    struct job_scrape *scrape;   /* NULL if no metrics are served */
    /* the ranks of a node; NULL if the supervisor started the job itself */
    struct job_ranks *ranks;
    struct job_node *node;     /* NULL if RANKS is NULL */
    struct job_folder *folder; /* NULL unless --folder-control is given */
    struct {
        /* time of the last write to the termination log, and the verdict that was written */
        uint64_t t_ns, verdicts;
    } termination;
    struct job_segment now;
    struct job_end end;
    /* start of the first segment: monotonic time and wall-clock time */
    uint64_t started_ns, started_wall_ns;
    struct outcome outcome; /* the content of run.json so far */
    struct step_sources step_sources;
    /* reason why the job was not restarted despite --restart; "" if there is none */
    char no_restart[160];
    int exec_error;
    struct err failure;  /* reason why ebb could not start the job */
    struct err no_marks; /* reason why there is no marks socket */
    /* false until run.json has been written at the start of the job, and again when the list of
     * ranks changes */
    bool is_announced;
    uint64_t announce_ns; /* time at which to retry writing run.json after a failure */
    bool waits_for_disk;  /* the job has ended, but the disk is too full to write run.json */
    /* ebb did not start the job. The job is then not a child of ebb, is not in a cgroup created by
     * ebb, and continues when ebb exits. */
    bool is_attached;
    /* receives notices for the user of an attached job */
    void (*notice)(void *user, const char *sentence);
    void *notice_user;
};

/* ---- supervisor.c: callbacks for a job; USER is the job ---- */

void job_on_mark(void *user, const struct mark *mark);
void job_on_tick(void *user, uint64_t now_ns);
void job_on_process(void *user, const struct proc_event *event);
void job_record(struct job *j); /* starts the recording */
/* Writes run.json for the first time, with the paths of the sockets. Has no effect later, unless
 * the ranks change. */
void job_announce(struct job *j, uint64_t now_ns);

/* ---- job_json.c: run.json ---- */

double job_seconds(const struct job *j, uint64_t t_ns); /* seconds since the start of the job */
void job_about_start(struct job *j); /* stores the facts that are known at the start */
/* The caller owns the returned documents. */
json_t *job_header_json(const struct job *j);
json_t *job_running_json(struct job *j);
json_t *job_ended_json(struct job *j);
