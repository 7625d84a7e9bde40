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
#include "profile/kept.h"
#include "profile/marks.h"
#include "profile/names.h"
#include "profile/profile.h"
#include "verdict/verdict.h"

struct err;
struct facts;
struct facts_process;
struct recorded;

/* A signal over time, in time order. NAN: not read at that moment. */
struct facts_series {
    const double *t_s; /* since the run's start */
    const double *v;
    size_t count;
};
/* V of S at T_S, by the last reading at or before it; else by the first after it. NAN: none. */
double facts_at(const struct facts_series *s, double t_s);
/* By the reading nearest to T_S, before it or after. NAN: none. */
double facts_near(const struct facts_series *s, double t_s);
/* When that was. */
double facts_near_s(const struct facts_series *s, double t_s);
/* FIELD of P at T_S. Kinds of memory are read seldom: between two readings they are taken to have
 * come as memory did. NAN: never read. */
double facts_field_at(const struct facts_process *p, enum sample_process_field field, double t_s);
/* The moment of which that tells: T_S, but for what is before the first reading or after the last.
 */
double facts_field_s(const struct facts_process *p, enum sample_process_field field, double t_s);
/* The largest of what was read from FROM_S to TO_S; NAN: nothing was. */
double facts_most(const struct facts_series *s, double from_s, double to_s);
double facts_least(const struct facts_series *s, double from_s, double to_s);
/* facts_at(TO_S) − facts_at(FROM_S); NAN: never read. */
double facts_growth(const struct facts_series *s, double from_s, double to_s);

/* A verdict as docs/verdict-command.md has it. Figures that are not known are NAN, steps -1. */
struct facts_verdict {
    bool is_known;
    enum verdict_word word;
    enum verdict_leak leak;
    double per_step, per_min;
    bool has_ended; /* its growth */
    int64_t ended_step;
    enum verdict_boundary ended_at;
    enum verdict_mark_kind event; /* of stepping: what it is tied to */
};

/* Does it say that whatever growth there was has ended? */
bool facts_has_ended(enum verdict_word word);

struct facts_process {
    struct process_id id;
    enum process_role role;
    char name[PROCESS_COMM_MAX + 1];                 /* raw */
    double born_s, died_s;                           /* died: INFINITY while it lives */
    struct facts_series field[SAMPLE_PROCESS_COUNT]; /* by enum sample_process_field */
    double peak_bytes;                               /* of RSS; NAN */
    struct facts_verdict verdict;                    /* on what of it can leak */
};

struct facts_mark {
    enum verdict_mark_kind kind;
    double t_s;
    int64_t step; /* -1: it told none */
};

/* A figure of the job's own: "heap_live_bytes", "cuda_reserved_bytes", "gc_count_2". */
struct facts_figure {
    char name[RUN_NAME_MAX];
    int32_t pid; /* 0: not known */
    struct facts_series series;
};

/* What the profiler saw of main at the two moments. */
struct facts_heap {
    struct profile *profile; /* NULL: not profiled */
    struct names *names;
    struct growth growth;            /* rows as of now */
    double *start_bytes;             /* what each row held at the start */
    double *floor_bytes;             /* the least that each held in the second half of the time */
    double *mapped_share;            /* of what each holds: by mmap itself, 0 to 1 */
    double start, now;               /* all that lived */
    double start_malloc, now_malloc; /* of that by the C library's own allocator */
    double start_rounding, now_rounding; /* what Python adds to small objects, beside that */
    double start_spare, now_spare;   /* of Python's arenas: what no object has; NAN: not counted */
    double start_inside, now_inside; /* of malloc's: in its heaps, by sampling; NAN: not counted */
    double start_drift, now_drift;   /* of malloc's: since the allocator was asked, or until then */
    double sigma;                    /* of now, by sampling */
    double most;                     /* the largest that was ever read */
    char why_not[256];               /* one sentence; "" where there is a profile */
};

struct facts {
    uint64_t start_ns; /* of the run, monotonic: what times count from */
    double span_s;
    bool has_run_json, is_running, is_damaged, is_table;

    struct facts_process *processes;
    size_t n_processes;
    /* The process whose memory is the question: that grows fastest where one grows, else that
     * trains, else the largest. NULL: nothing was ever read. */
    const struct facts_process *main;
    struct facts_verdict job; /* the whole job */
    struct facts_verdict gpu; /* the memory of its GPUs: that which grows, else any */

    /* The two moments that are compared: the first after training began, and the last before it
     * ended or the process went. */
    double start_s, now_s;
    double begun_s; /* when training had begun: start_s is the first reading after it */

    struct facts_mark *marks;
    size_t n_marks;
    struct growth_mark *told; /* all of them, as call sites are judged by */
    size_t n_told;
    bool has_steps;
    int64_t first_step, last_step;
    uint64_t steps_per_epoch, max_steps, examples, batch; /* 0: not told */
    uint64_t substeps;                                    /* how many were marked */

    struct facts_series charge, tree; /* the job's: of its cgroup, and of its processes */
    struct facts_series gpu_job;      /* by all processes of the job, over all GPUs */
    struct facts_figure *figures;
    size_t n_figures;
    struct marks_cleanup cleanup;
    struct kept_lists kept;

    json_t *census_first, *census_last; /* of main; NULL: none was taken; equal: only one */
    struct facts_heap heap;

    double limit_bytes; /* NAN: not known */
    char thp[16];       /* always, madvise, never; "" not known */
    double *points;     /* behind the series */
};

/* 0, or -ENOMEM with a sentence. Of a recording alone, without its run folder, much is absent. */
int facts_new(const struct recorded *recorded, struct facts **ret, struct err *err);
void facts_free(struct facts *f); /* NULL is fine */

/* What of main was resident in malloc's heaps at T_S: by the counts of pages around it, and by what
 * was resident then. NAN: never counted. */
double facts_heap_pages(const struct facts *f, double t_s);
/* The figure of that name that main sends; NULL: none. */
const struct facts_figure *facts_figure(const struct facts *f, const char *name);
