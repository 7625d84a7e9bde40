/* A job in its supervisor: its parts, each with a header of its own. For the supervisor alone. */
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
#include "supervise/job_segment.h"
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
    struct job_segment now;
    struct job_end end;
    uint64_t started_ns, started_wall_ns; /* of the first segment */
    struct outcome outcome;               /* run.json, as far as it is known */
    struct step_sources step_sources;
    char no_restart[160]; /* why no further segment was begun although --restart was given; "" */
    int exec_error;
    struct err failure;   /* why we ourselves could not start it */
    struct err no_marks;  /* why there is no socket for marks */
    bool is_announced;    /* run.json says that it runs, and where it can be reached; else */
    uint64_t announce_ns; /* when to try next */
    bool waits_for_room;  /* it is over, and the disk is too full to write that down */
};

/* ---- job_json.c: run.json ---- */

void job_about_start(struct job *j); /* known before anything was measured */
/* The caller owns them. */
json_t *job_header_json(const struct job *j);
json_t *job_running_json(struct job *j);
json_t *job_ended_json(struct job *j);
