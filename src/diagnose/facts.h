/* Everything that was measured of a run, gathered from its folder: recording, run.json, heap
 * histories and censuses. Values that were not measured are absent, never zero, and a hypothesis
 * that needs one says so. Facts contain no judgement. */
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

/* A signal in time order. NAN: not read at that time. */
struct facts_series {
    const double *t_s; /* since the start of the run */
    const double *v;
    size_t count;
};
/* The value of S at T_S: the last reading at or before T_S, else the first one after it. NAN:
 * none. */
double facts_at(const struct facts_series *s, double t_s);
/* The reading nearest to T_S, before or after. NAN: none. */
double facts_near(const struct facts_series *s, double t_s);
/* The time of the reading nearest to T_S. NAN: none. */
double facts_near_s(const struct facts_series *s, double t_s);
/* FIELD of P at T_S. Memory by kind is read rarely; between two readings it is assumed to change in
 * proportion to resident memory. NAN: never read. */
double facts_field_at(const struct facts_process *p, enum sample_process_field field, double t_s);
/* The time at which facts_field_at has a value for T_S: T_S itself, clamped to the first and last
 * reading. */
double facts_field_s(const struct facts_process *p, enum sample_process_field field, double t_s);
/* The largest reading from FROM_S to TO_S; NAN: none. */
double facts_max(const struct facts_series *s, double from_s, double to_s);
double facts_min(const struct facts_series *s, double from_s, double to_s);
/* facts_at(TO_S) − facts_at(FROM_S); NAN: never read. */
double facts_growth(const struct facts_series *s, double from_s, double to_s);

/* A verdict as in docs/reference/verdict.md. Unknown numbers are NAN, unknown steps -1. */
struct facts_verdict {
    bool is_known;
    enum verdict_word word;
    enum verdict_leak leak;
    double per_step, per_min;
    bool has_ended; /* growth ended */
    int64_t ended_step;
    enum verdict_boundary ended_at;
    enum verdict_mark_kind event; /* stepping: the kind of event at which memory grows */
};

/* Does WORD mean that memory is flat, or that its growth has ended? */
bool facts_has_ended(enum verdict_word word);

struct facts_process {
    struct process_id id;
    enum process_role role;
    char name[PROCESS_COMM_MAX + 1];                 /* raw */
    double born_s, died_s;                           /* died: INFINITY while it is alive */
    struct facts_series field[SAMPLE_PROCESS_COUNT]; /* by enum sample_process_field */
    double peak_bytes;                               /* highest RSS; NAN: unknown */
    struct facts_verdict verdict;                    /* on its memory that can leak */
};

struct facts_mark {
    enum verdict_mark_kind kind;
    double t_s;
    int64_t step; /* -1: unknown */
};

/* A number reported by the job: "heap_live_bytes", "cuda_reserved_bytes", "gc_count_2". */
struct facts_figure {
    char name[RUN_NAME_MAX];
    int32_t pid; /* 0: unknown */
    struct facts_series series;
};

/* The heap profile of the main process at the two compared moments. */
struct facts_heap {
    struct profile *profile; /* NULL: not profiled, or too few readings */
    bool is_on;              /* the profiler ran, whether or not there are enough readings */
    struct names *names;
    struct growth growth; /* rows at the second moment */
    double *start_bytes;  /* live bytes of each row at the first moment */
    double *floor_bytes;  /* least live bytes of each row in the second half of the time */
    double *mapped_share; /* part of each row's live bytes that was mapped by mmap, 0 to 1 */
    double start, now;    /* all live bytes */
    double start_malloc, now_malloc; /* live bytes allocated by malloc */
    double start_rounding,
        now_rounding; /* bytes that Python adds to small objects by rounding their sizes up */
    double start_spare, now_spare; /* empty memory in Python's arenas; NAN: not counted */
    double start_inside,
        now_inside;                /* sampled live bytes inside malloc's heaps; NAN: not counted */
    double start_drift, now_drift; /* sampled change of malloc's live bytes between the allocator's
                                      count and the moment */
    double sigma;                  /* sampling error of NOW, standard deviation */
    double most;                   /* the highest live heap that was read */
    char why_not[256];             /* why there is no profile, one sentence; else "" */
};

/* GPU memory of the job, and by call site of the process whose GPU memory grows most. */
struct facts_gpu {
    struct facts_series job; /* of all processes, over all GPUs */
    /* Memory reserved and allocated by PyTorch, on the GPU whose reserved memory grew most. */
    struct facts_series reserved, allocated;
    struct profile *profile; /* NULL: none was recorded */
    struct names *names;
    struct growth growth;
    /* Of the GPU on which PyTorch's allocator has reserved most beyond what was ever allocated at
     * once: both, at the end. NAN: not known. */
    double reserved_bytes, most_allocated_bytes;
};

struct facts {
    uint64_t start_ns; /* monotonic time of the run's start, to which all times are relative */
    double span_s;
    bool has_run_json, is_running, is_damaged, is_table;

    struct facts_process *processes;
    size_t n_processes;
    /* The process to diagnose: the fastest-growing one if any grows, else the training process,
     * else the largest. NULL: no process was read. */
    const struct facts_process *main;
    struct facts_verdict job; /* the verdict on the whole job */
    struct facts_verdict
        gpu; /* the verdict on GPU memory: a leaking GPU if there is one, else any */

    /* The two moments that are compared: the first reading after training began, and the last one
     * before training ended or the process exited. */
    double start_s, now_s;
    double begun_s; /* when training had begun; start_s is the first reading after it */

    struct facts_mark *marks;
    size_t n_marks;
    struct growth_mark *all_marks; /* all marks, in the form that call sites are judged with */
    size_t n_all_marks;
    bool has_steps;
    int64_t first_step, last_step;
    uint64_t steps_per_epoch, max_steps, examples, batch; /* 0: unknown */
    uint64_t substeps;                                    /* number of micro-batch marks */

    /* Memory of the job: charged to its cgroup, and of its processes (lower and upper bound). */
    struct facts_series charge, tree, tree_high;
    struct facts_figure *figures;
    size_t n_figures;
    struct marks_cleanup cleanup;
    struct kept_lists kept;

    json_t *census_first, *census_last; /* of the main process; NULL: no census; equal: only one */
    struct facts_heap heap;
    struct facts_gpu gpu_heap; /* of the job */

    double limit_bytes; /* NAN: unknown */
    char thp[16];       /* always, madvise or never; "": unknown */
    double *points;     /* storage of all series */
};

/* Returns 0, or -ENOMEM with a sentence. A recording without its run folder lacks many facts. */
int facts_new(const struct recorded *recorded, struct facts **ret, struct err *err);
void facts_free(struct facts *f); /* NULL is fine */

/* Resident bytes of the main process in malloc's heaps at T_S, interpolated between page counts by
 * its resident memory. NAN: never counted. */
double facts_heap_pages(const struct facts *f, double t_s);
/* The figure NAME that the main process reports; NULL: none. */
const struct facts_figure *facts_figure(const struct facts *f, const char *name);
