/* A recording as what a report draws and tells: series short enough to draw, what happened when,
 * who there was. No judgement here. */
#pragma once

#include <jansson.h>

struct err;
struct trace_reader;

enum {
    REPORT_POINTS = 2000,      /* of the job's memory and of resident memory */
    REPORT_FINE_POINTS = 600,  /* of what is read less often, or matters less */
    REPORT_PROCESSES = 8,      /* with series of their own: the largest */
    REPORT_TABLE = 64,         /* in the table: the largest */
    REPORT_FIGURES = 24,       /* of the job's own */
    REPORT_EVENTS = 400,       /* of one kind; of more, every other one is left out */
    REPORT_GUARD_EVENTS = 200, /* the newest */
};

/* {"span_s", "series": [{"of": "job|process|machine|gpu|figure", "field", "unit", "pid", "id",
 * "name", "t": [s], "v": […]}], "steps": {"t", "v"}, "events": [{"kind", "t", "step"}],
 * "events_left_out", "phases": [{"name", "t", "until"}], "segments": [t], "guard": […],
 * "guard_seen", "processes": […], "processes_seen", "steps_seen", "versions": {…}, "damage":
 * sentence | null}. Reads to the end. NULL with a sentence. */
json_t *report_data(struct trace_reader *reader, struct err *err);
