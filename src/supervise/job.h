/* The state of a job in its supervisor. Each part has its own header. Used only in
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
#include "supervise/job_guard.h"
#include "supervise/job_heap.h"
#include "supervise/job_output.h"
#include "supervise/job_scrape.h"
#include "supervise/job_segment.h"
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
    struct job_control *control; /* NULL: no control socket */
    struct job_scrape *scrape;   /* NULL: no metrics */
    struct job_segment now;
    struct job_end end;
    uint64_t started_ns, started_wall_ns; /* times at which the first segment started */
    struct outcome outcome;               /* the content of run.json so far */
    struct step_sources step_sources;
    /* why the job was not restarted in spite of --restart; "" if there is no such reason */
    char no_restart[160];
    int exec_error;
    struct err failure;   /* why ebb could not start the job */
    struct err no_marks;  /* why there is no socket for marks */
    bool is_announced;    /* run.json was written when the job started */
    uint64_t announce_ns; /* if run.json could not be written at the start, when to try again */
    bool waits_for_disk;  /* the job has ended, but the disk is too full to write run.json */
};

/* ---- job_json.c: run.json ---- */

void job_about_start(struct job *j); /* sets the facts that are known at the start */
/* The caller owns the returned documents. */
json_t *job_header_json(const struct job *j);
json_t *job_running_json(struct job *j);
json_t *job_ended_json(struct job *j);
