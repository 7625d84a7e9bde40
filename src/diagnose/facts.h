/* Everything that was measured of a run, gathered from its folder: the recording, run.json, the
 * heap histories, the censuses. What was not measured is absent, never zero: a hypothesis that
 * needs it says so. No judgement here. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/sample.h"
#include "profile/growth.h"
#include "profile/names.h"
#include "profile/profile.h"
#include "verdict/verdict.h"

struct err;

/* A figure over time, thinned to at most FACTS_POINTS; in time order. NAN: not read at that moment.
 */
enum { FACTS_POINTS = 2048 };
struct facts_series {
    const double *t_s; /* since the recording began; shared by the series of one process */
    double *v;
    size_t count;
};
/* First, last, smallest, largest of what was read; floors are medians of minima in the first and
 * last fifth. False: never read. */
struct facts_range {
    bool known;
    double first, last, least, most, floor_first, floor_last;
};
void facts_range(const struct facts_series *s, struct facts_range *ret);

struct facts_process {
    struct process_id id;
    enum process_role role;
    char name[PROCESS_COMM_MAX + 1]; /* raw */
    double born_s, died_s;           /* died: INFINITY while it lives */
    double *t_s;
    struct facts_series field[SAMPLE_PROCESS_COUNT]; /* by enum sample_process_field */
    struct verdict_result verdict;                   /* on its RSS */
    bool is_judged;
};

enum facts_mark_kind { FACTS_STEP, FACTS_EVAL, FACTS_SAVE, FACTS_EPOCH, FACTS_BEGIN, FACTS_END };
struct facts_mark {
    enum facts_mark_kind kind;
    double t_s;
    int64_t step; /* -1: it told none */
};

/* A figure of the job's own: "heap_live_bytes", "cuda_reserved_bytes", "gc_count_2". */
struct facts_figure {
    char name[64];
    int32_t pid;
    struct facts_series series;
};

/* What MemoryCleanup measured of itself, summed up. */
struct facts_cleanup {
    uint64_t count;
    double freed_bytes, cost_s;
    double every_steps; /* 0: not known */
};

struct facts {
    json_t *run;    /* run.json; NULL: none */
    json_t *header; /* of the recording */
    double span_s;
    bool is_running;

    struct facts_process *processes;
    size_t n_processes;
    /* The process whose memory is the question: that grows fastest where one grows, else the
     * largest. NULL: nothing was ever read. */
    const struct facts_process *main;
    struct verdict_result tree; /* the whole job */
    bool has_tree;

    struct facts_mark *marks;
    size_t n_marks;
    bool has_steps;
    int64_t first_step, last_step;
    uint64_t steps_per_epoch, max_steps, examples, batch, accumulation; /* 0: not told */
    double step_s; /* median duration of a step; NAN */

    struct facts_series machine[MACHINE_COUNT];
    struct facts_series gpu_job; /* by all processes of the job, over all GPUs */
    struct facts_figure *figures;
    size_t n_figures;
    struct facts_cleanup cleanup;

    json_t *census_first, *census_last; /* of main; NULL: none was taken; equal: only one */
    struct profile *profile;            /* of main; NULL: not profiled */
    struct names *names;
    struct growth growth;
    bool has_growth;

    double limit_bytes; /* NAN: not known */
    char thp[16];       /* always, madvise, never; "" not known */
    bool used_swap;     /* known to: any process had pages swapped out */
    uint64_t guard_asks, restarts;
    char *why_no_profile; /* one sentence; NULL where there is one */
};

/* FOLDER is a run folder (or a trace alone: then much is absent). -ENOENT, -EBADMSG with a
 * sentence. */
int facts_read(const char *folder, struct facts **ret, struct err *err);
void facts_free(struct facts *f); /* NULL is fine */

/* The figure of that name that main sends; NULL: none. */
const struct facts_figure *facts_figure(const struct facts *f, const char *name);
/* V of S at T_S, by the last reading before it; NAN. */
double facts_at(const struct facts_series *s, double t_s);
