/* The model of one run: its entities (the job, the machine, processes, GPUs, and series that the
 * job reports) with one bounded series per signal, its marks, phases, segments and notes. The
 * engine fills it live, or one pass over a recording or a table fills it; all other code reads it.
 * All times, including those of marks passed to observers, are nanoseconds since the run's
 * start. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"
#include "proc/sample.h"
#include "run/series.h"
#include "trace/csv.h"
#include "trace/reader.h"

struct err;
struct run;

enum run_kind { RUN_JOB, RUN_MACHINE, RUN_PROCESS, RUN_GPU, RUN_FIGURE, RUN_KINDS };

/* The signals of the job. The machine, processes and GPUs have the fields of proc/sample.h. A
 * series that the job reports has only signal 0. */
enum run_job_signal {
    JOB_MEMORY,    /* memory of the job: JOB_CHARGE or, without a cgroup, JOB_TREE */
    JOB_TREE,      /* memory of the job's processes with shared pages counted once: lower bound */
    JOB_TREE_HIGH, /* memory of the job's processes with shared pages counted once: upper bound */
    JOB_UNIQUE,    /* sum of the unique memory of the job's processes */
    /* sum of the RSS of the job's processes, in which shared pages are counted several times */
    JOB_RSS_SUM,
    JOB_GPU,        /* memory on all GPUs */
    JOB_LIMIT,      /* the effective limit */
    JOB_LIMIT_USED, /* memory charged against the limit, minus reclaimable memory */
    JOB_CHARGE,     /* memory charged to the job's own cgroup, minus reclaimable memory */
    JOB_SIGNALS
};

enum { RUN_NAME_MAX = 96 };

struct run_entity {
    enum run_kind kind;
    /* slot of a process (never reused), GPU index, or number of a reported series */
    uint32_t id;
    char name[RUN_NAME_MAX]; /* name, not escaped; the name of a reported series does not include
                                "@PID" */
    /* facts about a process; for a reported series, only id.pid is set (0 if unknown) */
    struct process_info info;
    int32_t parent;   /* pid of the process that started this process */
    uint32_t segment; /* number of the segment in which the process was born, from 0 */
    bool is_dead;
    uint64_t born_ns, died_ns; /* died_ns is valid if is_dead */
    /* time at which the process started its program: born_ns unless it called exec */
    uint64_t execed_ns;
    /* The last sample; its `read` bits show which fields were read in the tick at last_ns. */
    struct sample last;
    uint64_t last_ns;
    uint64_t peak_bytes;     /* peak of signal 0; for a process, the larger of VmHWM and RSS */
    uint64_t gpu_peak_bytes; /* processes only: peak of the memory on all GPUs */
    /* one series per signal; NULL if the signal was never read or is not stored */
    struct series *signal[SAMPLE_FIELDS_MAX];
    void *observed; /* data of the observer; see run_observer.forget */
};

struct run_entities {
    struct run_entity **at;
    size_t count, cap;
};

/* Returns true if FIELD of E was read in the newest tick of the run. */
bool run_was_read(const struct run *run, const struct run_entity *e, unsigned field);

struct run_mark {
    uint64_t t_ns;
    /* sequence number among all marks of the run, by which marks with equal times are sorted */
    uint64_t number;
    enum mark_kind kind;
    int32_t pid;
    uint32_t has; /* enum mark_has */
    int64_t step, steps_per_epoch, max_steps, rank, examples, effective_batch;
    double epoch;
    char word[24]; /* the word after KIND= in a mark of kind MARK_OTHER, not escaped */
};

/* The marks of one kind. If there are too many, only every STRIDE-th step keeps its marks; for
 * marks without steps, only every STRIDE-th mark is kept. */
struct run_marks {
    struct run_mark *at;
    size_t count, cap;
    uint64_t seen, stride;
};

struct run_phase {
    char name[48]; /* not escaped */
    int32_t pid;
    bool is_open; /* true if the phase has not ended; until_ns is then the newest time of the run */
    uint64_t from_ns, until_ns;
};

struct run_note {
    uint64_t t_ns;
    json_t *doc; /* a JSON object */
};

/* A software version reported in a mark: TORCH_VERSION=2.4.0 becomes "torch" and "2.4.0". */
struct run_version {
    char name[64], text[64]; /* not escaped */
};

/* Summary of the dead processes of one role. */
struct run_role {
    uint64_t count, peak_bytes; /* number of dead processes, and the peak of the largest */
};

/* Callbacks for changes of a run. Each is called after the run was updated, and any may be NULL. */
struct run_observer {
    void *user;
    /* E stays valid until `forget` is called for E. On PROCESS_DIED, is_dead is already set, and
     * `forget` may be called next. */
    void (*process)(void *user, struct run *run, struct run_entity *e,
                    enum process_event_kind event);
    /* Called when all entities of the tick at run->now_ns have been sampled; see run_was_read. */
    void (*tick)(void *user, struct run *run);
    void (*mark)(void *user, struct run *run, const struct mark *mark);
    void (*note)(void *user, struct run *run, const char *kind, const char *text, size_t len);
    /* Called before E is freed: at the end of the run or, if E is dead and not among the largest
     * dead entities, earlier. */
    void (*forget)(void *user, struct run *run, struct run_entity *e);
    /* Called for each row of a table, in the group E. The marks of E up to this row have already
     * been passed to row_mark. The time of a row before the table's first row is negative. */
    void (*row)(void *user, struct run *run, struct run_entity *e, int64_t t_ns,
                const struct csv_row *row);
    void (*row_mark)(void *user, struct run *run, struct run_entity *e, int64_t t_ns,
                     const struct mark *mark);
    struct run_observer *next;
};

/* For every observer of RUN that has the callback CALLBACK, calls it with the remaining
 * arguments. */
#define RUN_NOTIFY(run, callback, ...)                                                             \
    do {                                                                                           \
        for (struct run_observer *o_ = (run)->observers; o_; o_ = o_->next)                        \
            if (o_->callback)                                                                      \
                o_->callback(o_->user, __VA_ARGS__);                                               \
    } while (0)

/* Properties of a run that was read from a table. */
struct run_table {
    /* true if run_read_csv has read the table; groups that end before the table ends are then
     * dead */
    bool is_rows;
    /* true if the run is a recording that an earlier version of ebb made from a table; its
     * processes never die */
    bool is_imported;
    /* true if the table has no times, so that one second per step is assumed */
    bool is_by_step;
    bool is_job;           /* true if all groups of the table are processes of a single job */
    bool has_marks;        /* true if the table comes with a file of marks */
    uint64_t dropped_rows; /* number of rows dropped because there are too many groups */
};

enum {
    RUN_DEAD_LIVE = 64,
    RUN_DEAD_READ = 256,
    /* maximum number of living reported series; further ones are ignored until others die */
    RUN_FIGURES = 256,
    RUN_GPUS = 64,
    RUN_PHASES = 400,
    RUN_PHASES_OPEN = 16,
    RUN_SEGMENTS = 400,
    RUN_VERSIONS = 32,
};

struct run_settings {
    uint32_t signals[RUN_KINDS]; /* one bit for each signal that is kept as a series */
    /* maximum number of buckets for signal 0 and for JOB_*; other signals have half as many */
    uint32_t buckets[RUN_KINDS];
    size_t dead;        /* maximum number of dead processes and dead reported series to keep */
    size_t marks;       /* maximum number of marks of each kind to keep */
    size_t guard_notes; /* maximum number of guard notes to keep; the newest are kept */
    uint64_t width_ns;  /* initial width of a bucket; 0 means 50 ms */
    /* Only series and marks in this time range are kept; a to_ns of 0 means until the end. */
    uint64_t from_ns, to_ns;

    /* the following fields are only used by run_read */

    /* wall-clock start of the job, shortly after the start of the recording; 0 if unknown */
    uint64_t start_wall_ns;
    bool has_until, has_until_step;
    uint64_t until_ns; /* items after this time are not read */
    /* items after this step, and after the marks that directly follow it, are not read */
    uint64_t until_step;
    struct csv_options csv; /* options for reading a table */
};
/* Settings that keep everything, for the diagnosis and the report. */
extern const struct run_settings run_settings_read;
/* Settings for the engine: keep one series of the job's memory and one of each process's RSS, about
 * 2 KiB each. */
extern const struct run_settings run_settings_live;

struct run {
    struct run_settings options;
    struct run_observer *observers;
    uint64_t start_mono_ns, start_wall_ns; /* start_wall_ns is 0 if unknown */
    uint64_t now_ns;                       /* time of the newest item */
    uint64_t tick_ns, first_tick_ns;       /* times of the newest and of the first tick */
    uint64_t ticks;
    struct run_entity job, machine;
    /* living processes, GPUs and reported series, sorted by kind and id */
    struct run_entities living;
    size_t hint; /* index in LIVING at which the entity of the next sample is expected */
    struct run_entities dead; /* unordered */
    uint64_t processes_seen;
    struct run_role dead_roles[ROLE_COUNT];
    struct run_marks marks[MARK_KIND_COUNT]; /* marks of all kinds except SERIES, HELLO and ACK */
    uint64_t marks_seen;
    uint64_t steps_seen; /* number of different steps that the first rank has reported */
    bool has_step;
    int64_t step; /* number of the newest step */
    struct run_phase *phases;
    size_t phase_count, phases_open;
    uint64_t segments[RUN_SEGMENTS]; /* times at which the job was restarted */
    uint32_t segment_count;
    struct run_note *guard_notes;
    size_t guard_count;
    uint64_t guard_seen;
    struct run_version versions[RUN_VERSIONS];
    size_t version_count;
    uint64_t gaps; /* number of "gap" notes */
    /* for runs read from a recording: */
    json_t *header; /* NULL for a live run */
    json_t *end;    /* content of the note "end", or NULL */
    /* peak of the job as the engine recorded it; if 0, the maximum of JOB_MEMORY is used */
    uint64_t peak_bytes;
    struct run_table table;
    /* true if reading stopped at until_ns or until_step before the end of the recording */
    bool is_cut;
    bool has_failed; /* true if ebb could not allocate memory for all data of the run */
    struct trace_reader_damage damage;
};

/* ---- adding data to a run; all times are on the monotonic clock ---- */

/* Creates an empty run. OPTIONS are copied. Returns 0 or -ENOMEM. */
int run_new(const struct run_settings *options, uint64_t start_mono_ns, struct run **ret);
void run_free(struct run *run); /* NULL is fine */
/* Adds an observer, which must outlive the run. Call this before anything is added to the run. */
void run_observe(struct run *run, struct run_observer *observer);

/* Adds a process event. Returns the entity, or NULL if memory ran out, or if the process is unknown
 * or has died. */
struct run_entity *run_process(struct run *run, uint64_t mono_ns, enum process_event_kind event,
                               uint32_t slot, const struct process_info *info);
void run_tick_begin(struct run *run, uint64_t mono_ns);
/* Adds the sample of one entity. NAME is the name of a GPU, or NAME@PID of a reported series. The
 * job's own signals are computed when the machine's sample is added. */
void run_sample(struct run *run, enum sample_entity_kind kind, uint32_t id, const char *name,
                const struct sample *sample);
void run_tick_end(struct run *run);
/* Adds the value V of FIELD to E at time tick_ns of the run. Used for tables, whose rows do not
 * form ticks. */
void run_add_value(struct run *run, struct run_entity *e, unsigned field, uint64_t v);
void run_add_mark(struct run *run, const struct mark *given);
/* Adds a note, whose TEXT is JSON. */
void run_add_note(struct run *run, uint64_t mono_ns, const char *kind, const char *text,
                  size_t len);

/* Reads a recording (a run folder or its file) or a table in one pass, with OBSERVERS (may be
 * NULL). Damaged parts are skipped and counted. Returns 0, or -errno with an error. */
int run_read(const char *path, const struct run_settings *options, struct run_observer *observers,
             struct run **ret, struct err *err);
/* A recording that is read while it is written. */
struct run_follower {
    const char *path; /* borrowed */
    struct run *run;
    struct trace_reader *reader;
    uint64_t until_ns;
};
/* Opens a recording. The first call of run_follow_more reads it up to its current end, and each
 * later call reads what was added since. The caller owns the run, and calls run_follow_end before
 * freeing it. run_follow and run_follow_more return 0, or -errno with an error. */
int run_follow(const char *path, const struct run_settings *options, struct run_observer *observers,
               struct run_follower *ret, struct err *err);
int run_follow_more(struct run_follower *f, struct err *err);
void run_follow_end(struct run_follower *f);
/* Returns true if the file is a recording, judging by its name or content; otherwise it is a
 * table. */
bool run_is_recording(const char *path);
/* Reads a table for run_read. Observers receive rows instead of ticks. */
int run_read_csv(const char *path, const struct run_settings *settings,
                 struct run_observer *observers, struct run **ret, struct err *err);
/* Frees the living entities whose is_dead the caller has set, without adding them to the dead
 * entities. */
void run_drop_marked(struct run *run);

/* ---- reading ---- */

/* Returns the field that is judged for a GPU: PyTorch's allocated memory if known, otherwise the
 * memory reported by the driver. The latter includes freed memory that PyTorch's allocator retains.
 */
unsigned run_gpu_field(const struct run_entity *gpu);
/* Return the part of a GPU's memory that is not available for new allocations: the memory of all
 * processes (run_gpu_used), or the memory of the job (run_gpu_job). The cache of PyTorch's
 * allocator is included up to the peak of allocated memory, because a later step may need that much
 * again. The rest of the cache is not included, because PyTorch frees it before an allocation
 * fails. Return false if unknown. */
bool run_gpu_used(const struct run_entity *gpu, uint64_t *ret);
bool run_gpu_job(const struct run_entity *gpu, uint64_t *ret);
/* Sets *RET to the newest value of FIELD of E. Returns false if there is none. */
bool run_value(const struct run_entity *e, unsigned field, uint64_t *ret);
/* Returns the living process with this pid, or else the process with this pid that died last; NULL
 * if the run has neither. */
struct run_entity *run_find_pid(const struct run *run, int32_t pid);
struct run_entity *run_find(const struct run *run, enum run_kind kind,
                            uint32_t id); /* finds a living entity; NULL if there is none */
/* Sets *RET to the living entities of KIND, sorted by id. Returns their number. */
size_t run_living(const struct run *run, enum run_kind kind, struct run_entity *const **ret);
/* Sets *RET to the living and dead entities of KIND, largest peak first. Returns their number. The
 * caller frees *RET, which is NULL if memory ran out. */
size_t run_list(const struct run *run, enum run_kind kind, struct run_entity ***ret);
/* For a reported series OF named "X:NAME": returns the series "PREFIX:NAME" of the same process, or
 * NULL. */
const struct run_entity *run_figure_beside(const struct run *run, const struct run_entity *of,
                                           const char *prefix);
/* Returns the peak memory of the job, from the end note of the recording or from its series, or 0
 * if unknown. */
uint64_t run_peak(const struct run *run);
/* Returns the planned number of steps according to the newest marks, or 0 if unknown. */
int64_t run_planned_steps(const struct run *run);
/* Iterates over the marks of all kinds in order of time. Start with a zeroed cursor. Returns NULL
 * at the end. */
struct run_mark_cursor {
    size_t at[MARK_KIND_COUNT];
};
const struct run_mark *run_mark_next(const struct run *run, struct run_mark_cursor *cursor);
