/* What the parts of report_data share while they read a recording. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/reader.h"
#include "present/curve.h"

/* One process, GPU, figure, or the machine. */
struct report_entity {
    enum sample_entity_kind kind;
    uint32_t id;
    char name[96];                /* raw; of GPUs and figures */
    struct process_info *process; /* of processes */
    double born_s, died_s;        /* died: < 0 while it lives */
    struct curve field[SAMPLE_FIELDS_MAX];
    struct sample last;
    uint64_t first[SAMPLE_FIELDS_MAX], most[SAMPLE_FIELDS_MAX];
};

/* Sorted by kind and id. */
struct report_entities {
    struct report_entity **all;
    size_t count, cap;
    uint64_t processes_seen;
    bool failed;
};
void report_entities_fini(struct report_entities *e);
void report_entities_tick(struct report_entities *e, double t_s, const struct trace_item *item);
void report_entities_process(struct report_entities *e, double t_s, const struct trace_item *item);
void report_entities_json(const struct report_entities *e, json_t *doc);

enum { REPORT_EVENT_KINDS = 6, REPORT_OPEN = 16 };
struct report_event {
    double t_s;
    int64_t step; /* -1: none told */
};
/* Of one kind; of too many every other one, so that what is left still covers the whole run. */
struct report_event_list {
    struct report_event *v;
    size_t count;
    uint64_t seen, stride;
    int64_t last_step; /* -1: none, or not told */
};
struct report_phase {
    char name[48]; /* raw */
    int32_t pid;
    double from_s, until_s;
};
struct report_story {
    struct report_event_list events[REPORT_EVENT_KINDS];
    struct curve steps;
    uint64_t steps_seen;
    int64_t last_step; /* a step may be told twice: by the job and by the package */
    struct report_phase open[REPORT_OPEN], *closed;
    size_t n_open, n_closed;
    uint64_t phases_left_out, guard_seen;
    json_t *segments, *guard, *versions;
    bool failed;
};
int report_story_init(struct report_story *s); /* 0 or -ENOMEM */
void report_story_fini(struct report_story *s);
void report_story_mark(struct report_story *s, double t_s, const struct mark *m);
void report_story_note(struct report_story *s, double t_s, const struct trace_item *item);
void report_story_json(struct report_story *s, double span_s, json_t *doc);

/* {"t": […], "v": […]}: milliseconds are enough, and whole numbers are kept whole. */
void report_points_json(const struct curve *curve, json_t *o);
