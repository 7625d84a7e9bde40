/* All measurements of a run, gathered from its folder: recording, run.json, heap histories and
 * censuses. A value that was not measured is absent, never zero. A hypothesis that requires an
 * absent value reports it as missing. */
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
struct facts_points;
struct facts_process;
struct recorded;

/* The readings of one signal, in time order. */
struct facts_series {
    const double *t_s; /* times in seconds since the start of the run */
    const double *v;
    size_t count;
};
/* Returns the value of S at T_S: the last reading at or before T_S, or else the first reading after
 * T_S, or NAN if there are no readings. */
double facts_at(const struct facts_series *s, double t_s);
/* Returns the reading nearest to T_S, before or after it, or NAN if there are no readings. */
double facts_near(const struct facts_series *s, double t_s);
/* Returns the time of the reading nearest to T_S, or NAN if there are no readings. */
double facts_near_s(const struct facts_series *s, double t_s);
/* Returns FIELD of P at T_S, or NAN if FIELD was never read. The fields that break down resident
 * memory are read rarely; between two readings, such a field is assumed to change in proportion to
 * resident memory. */
double facts_field_at(const struct facts_process *p, enum sample_process_field field, double t_s);
/* Returns the time of the value that facts_field_at(P, FIELD, T_S) returns: T_S, limited to the
 * time from the first to the last reading of FIELD. Returns NAN if FIELD was never read. */
double facts_field_s(const struct facts_process *p, enum sample_process_field field, double t_s);
/* Return the largest and the smallest reading from FROM_S to TO_S, or NAN. */
double facts_max(const struct facts_series *s, double from_s, double to_s);
double facts_min(const struct facts_series *s, double from_s, double to_s);
/* Returns the change of S from FROM_S to TO_S, or NAN if S was never read. */
double facts_growth(const struct facts_series *s, double from_s, double to_s);

/* A verdict (docs/reference/verdict.md). Unknown rates are NAN, unknown steps are -1. */
struct facts_verdict {
    bool is_known;
    enum verdict_word word;
    enum verdict_leak leak;
    double per_step, per_min;
    int64_t ended_step; /* step at which growth ended */
    enum verdict_boundary ended_at;
    enum verdict_mark_kind event; /* if stepping, the kind of event at which memory grows */
    /* true if growth ends when a container with a maximum number of entries is full */
    bool is_limited;
};

/* Returns true if WORD means that memory is flat or that its growth has ended. */
bool facts_has_ended(enum verdict_word word);

struct facts_process {
    struct process_id id;
    enum process_role role;
    char name[PROCESS_COMM_MAX + 1]; /* not escaped */
    /* died_s is INFINITY while the process is alive. */
    double born_s, died_s;
    struct facts_series field[SAMPLE_PROCESS_COUNT]; /* indexed by enum sample_process_field */
    double peak_bytes;                               /* highest RSS, or NAN if unknown */
    /* Verdict on the part of the process's memory that can leak. */
    struct facts_verdict verdict;
};

struct facts_mark {
    enum verdict_mark_kind kind;
    double t_s;
    int64_t step; /* -1 if unknown */
};

/* A figure, which is a metric reported by the job, such as "heap_live_bytes", "cuda_reserved_bytes"
 * or "gc_count_2". */
struct facts_figure {
    char name[RUN_NAME_MAX];
    int32_t pid; /* 0 if unknown */
    struct facts_series series;
};

/* Live memory of the main process at one of the two moments that are compared. */
struct facts_moment {
    double live;     /* all live bytes */
    double malloc;   /* live bytes allocated by malloc */
    double rounding; /* bytes that Python adds to small objects by rounding their sizes up */
    double spare;    /* bytes of empty memory in Python's arenas, or NAN if not counted */
    double inside;   /* sampled live bytes inside malloc's heaps, or NAN if not counted */
    /* Estimated change of malloc's live bytes from the allocator's own count nearest to this moment
     * until this moment. */
    double drift;
};

/* Live memory of one call site. */
struct facts_site {
    double start_bytes; /* live bytes at the first moment */
    double floor_bytes; /* lowest live bytes in the second half of the compared time */
    /* fractions of the live bytes in memory maps, and in shared memory maps */
    double mapped_share, shared_share;
};

/* The heap profile of the main process at the two moments. */
struct facts_heap {
    struct profile *profile; /* NULL if the process was not profiled or has too few readings */
    /* True if the profiler ran, even if there are not enough readings. */
    bool is_on;
    bool is_unavailable; /* true if the profiler was requested, but could not run */
    struct names *names;
    struct growth growth;     /* live memory and growth by call site at the second moment */
    struct facts_site *sites; /* one entry for each row of GROWTH */
    struct facts_moment start, now;
    double sigma;      /* standard deviation of the live bytes in NOW due to sampling */
    double most;       /* highest reading of the live heap, in bytes */
    char why_not[256]; /* reason for a missing profile, or "" */
};

/* GPU memory of the job. The profile, its names and its growth are of the process whose GPU memory
 * grows most. */
struct facts_gpu {
    struct facts_series job; /* memory of all processes on all GPUs */
    /* Memory reserved and allocated by PyTorch on the GPU whose reserved memory grew most. */
    struct facts_series reserved, allocated;
    struct profile *profile; /* GPU memory by call site, or NULL if not recorded */
    struct names *names;
    struct growth growth;
    /* Memory that PyTorch's allocator had reserved at the end, and the peak of allocated memory.
     * Both are of the GPU on which they differ most. NAN if unknown. */
    double reserved_bytes, most_allocated_bytes;
};

struct facts {
    uint64_t start_ns; /* monotonic time of the run's start, from which all times are counted */
    bool has_run_json, is_running, is_damaged, is_table;
    bool has_failed; /* true if memory ran out, so the facts are incomplete */

    struct facts_process *processes;
    size_t n_processes;
    /* The process to diagnose: the fastest-growing process. If no process grows, it is the training
     * process or, without one, the largest process. NULL if no process was read. */
    const struct facts_process *main;
    struct facts_verdict job; /* verdict on the whole job */
    struct facts_verdict gpu; /* verdict on a leaking GPU if there is one, else on any GPU */

    /* The two moments that are compared: the first reading after training began, and the last one
     * before training ended or the process exited. */
    double start_s, now_s;
    /* Time by which training had begun; the first reading after this time is at start_s. */
    double begun_s;
    /* Time at which the libraries had been loaded. Without marks, growth between this time and
     * begun_s is treated as start-up if it ended early. With marks, the two times are equal. */
    double loaded_s;

    struct facts_mark *marks;
    size_t n_marks;
    struct growth_mark *all_marks; /* all marks, as growth_of needs them to judge call sites */
    size_t n_all_marks;
    bool has_steps;
    int64_t first_step, last_step;
    uint64_t steps_per_epoch, max_steps, examples, batch; /* 0 if unknown */
    uint64_t substeps;                                    /* number of micro-batch marks */

    /* Memory of the job: the memory charged to its cgroup, and the lower and upper bound computed
     * from its processes. */
    struct facts_series charge, tree, tree_high;
    struct facts_figure *figures;
    size_t n_figures;
    struct marks_cleanup cleanup;
    struct kept_lists kept;

    /* The main process's censuses. If there is no census, both are NULL; if there is only one, both
     * point to it. */
    struct {
        json_t *first, *last;
    } census;
    struct facts_heap heap;
    struct facts_gpu gpu_heap; /* GPU memory of the job by call site */

    double limit_bytes; /* NAN if unknown */
    /* Setting of transparent huge pages: always, madvise or never; "" if unknown. */
    char thp[16];
    struct facts_points *points; /* storage for the points of all series */
};

/* Gathers the facts. Returns 0, or -ENOMEM with a message. Many facts are absent if the recording
 * is not in its run folder. */
int facts_new(const struct recorded *recorded, struct facts **ret, struct err *err);
void facts_free(struct facts *f); /* F may be NULL */

/* Returns the resident bytes of the main process in malloc's heaps at T_S. Between two page counts,
 * the bytes are estimated from the change of resident memory. Returns NAN if pages were never
 * counted. */
double facts_heap_pages(const struct facts *f, double t_s);
/* Returns the number at KEY of a census or of one of its rows, or NAN. */
double facts_number(const json_t *object, const char *key);
/* Returns the figure NAME that the main process reports, or NULL. */
const struct facts_figure *facts_figure(const struct facts *f, const char *name);
