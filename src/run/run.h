/* The model of one run: its entities (the job, the machine, processes, GPUs, figures that the job
 * reports) with one bounded series per signal, its marks, phases, segments and notes. Filled live
 * by the engine, or by one pass over a recording or a table; everything downstream reads this. All
 * times are nanoseconds since the run's start, marks passed to observers included. */
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

/* Signals of the job. Those of the machine, processes and GPUs are the fields of proc/sample.h; a
 * figure has one, number 0. */
enum run_job_signal {
    JOB_MEMORY,     /* the charge of its cgroup; where it has none, JOB_TREE */
    JOB_TREE,       /* memory of its processes counted once, at least … */
    JOB_TREE_HIGH,  /* … and at most */
    JOB_UNIQUE,     /* sum of the unique memory of its processes */
    JOB_RSS_SUM,    /* sum of their resident memory, shared pages counted in each */
    JOB_GPU,        /* on all GPUs */
    JOB_LIMIT,      /* the effective limit */
    JOB_LIMIT_USED, /* memory charged against it, less what is reclaimable */
    JOB_CHARGE,     /* of its own cgroup, less what is reclaimable */
    JOB_SIGNALS
};

enum { RUN_NAME_MAX = 96 };

struct run_entity {
    enum run_kind kind;
    uint32_t id; /* slot of a process (never reused), index of a GPU, a figure's number */
    char name[RUN_NAME_MAX];  /* raw; of a figure without its "@PID" */
    struct process_info info; /* of a process; of a figure only id.pid, 0 where it is unknown */
    int32_t parent;           /* pid of the process that started it */
    uint32_t segment;         /* in which it was born, from 0 */
    bool is_dead;
    uint64_t born_ns, died_ns; /* died: valid when it is dead */
    uint64_t execed_ns;        /* when its program began: born_ns until it executes another */
    struct sample last;        /* read bits: of the tick at last_ns */
    uint64_t last_ns;
    uint64_t
        peak_bytes; /* of a process the larger of VmHWM and resident memory; else of signal 0 */
    uint64_t gpu_peak_bytes;                  /* of a process */
    struct series *signal[SAMPLE_FIELDS_MAX]; /* NULL: never read, or not kept */
    void *observed;                           /* the observer's own; see run_observer.forget */
};

struct run_entities {
    struct run_entity **at;
    size_t count, cap;
};

/* Was FIELD of E read at the newest tick of the run? */
bool run_was_read(const struct run *run, const struct run_entity *e, unsigned field);

struct run_mark {
    uint64_t t_ns;
    uint64_t number; /* among all marks of the run: orders those of the same moment */
    enum mark_kind kind;
    int32_t pid;
    uint32_t has; /* enum mark_has */
    int64_t step, steps_per_epoch, max_steps, rank, examples, effective_batch;
    double epoch;
    char word[24]; /* of MARK_OTHER: its KIND, raw */
};

/* Marks of one kind. Of too many, only those of every STRIDE-th step (of every STRIDE-th mark where
 * it has no step) are kept. */
struct run_marks {
    struct run_mark *at;
    size_t count, cap;
    uint64_t seen, stride;
};

struct run_phase {
    char name[48]; /* raw */
    int32_t pid;
    bool is_open; /* until_ns is then the newest time of the run */
    uint64_t from_ns, until_ns;
};

struct run_note {
    uint64_t t_ns;
    json_t *doc; /* an object */
};

/* TORCH_VERSION=2.4.0 in any mark: "torch", "2.4.0". */
struct run_version {
    char name[64], text[64]; /* raw */
};

/* Processes of one role. */
struct run_role {
    uint64_t count, peak_bytes; /* the largest of them */
};

/* Called as items enter the run, after the run has taken them. Any function may be NULL. */
struct run_observer {
    void *user;
    /* At DIED the entity is still valid and is_dead; forget may follow at once. */
    void (*process)(void *user, struct run *run, struct run_entity *e,
                    enum process_event_kind event);
    /* All entities of this tick (run->now_ns) have been sampled: run_was_read tells which. */
    void (*tick)(void *user, struct run *run);
    void (*mark)(void *user, struct run *run, const struct mark *mark);
    void (*note)(void *user, struct run *run, const char *kind, const char *text, size_t len);
    /* E is about to be freed: because it is dead and larger ones are kept, or with the run. */
    void (*forget)(void *user, struct run *run, struct run_entity *e);
    /* Of a table: a row of E, and before it the marks of the file beside the table that concern E.
     * A time before the table's first row is negative. */
    void (*row)(void *user, struct run *run, struct run_entity *e, int64_t t_ns,
                const struct csv_row *row);
    void (*row_mark)(void *user, struct run *run, struct run_entity *e, int64_t t_ns,
                     const struct mark *mark);
    struct run_observer *next;
};

/* What a run made of a table lacks: its processes have no status. */
struct run_table {
    bool is_rows;          /* read by run_read_csv; dead are groups that ended before the table */
    bool is_imported;      /* a recording that an earlier version made of a table: none dies */
    bool is_by_step;       /* its times are made up, a second for each step */
    bool is_job;           /* its groups are the processes of one job */
    bool has_marks;        /* in a file beside it */
    uint64_t dropped_rows; /* of groups that were too many */
};

enum {
    RUN_DEAD_LIVE = 64,
    RUN_DEAD_READ = 256,
    RUN_FIGURES = 256, /* more only once others are dead */
    RUN_GPUS = 64,
    RUN_PHASES = 400,
    RUN_PHASES_OPEN = 16,
    RUN_SEGMENTS = 400,
    RUN_VERSIONS = 32,
};

struct run_settings {
    uint32_t signals[RUN_KINDS]; /* a bit for each of which a series is kept */
    uint32_t buckets[RUN_KINDS]; /* of signal 0 and JOB_*; the others have half as many */
    size_t dead;                 /* of processes and of figures: kept after their death */
    size_t marks;                /* of each kind */
    size_t guard_notes;          /* the newest */
    uint64_t width_ns;           /* the first width of a bucket; 0: 50 ms */
    uint64_t from_ns, to_ns;     /* of series and marks; to 0: to the end */
    /* for run_read: */
    uint64_t start_wall_ns; /* when the job started, where that is known better than by the
                             * recording, which begins a moment earlier; 0: not known */
    bool has_until, has_until_step;
    uint64_t until_ns;      /* nothing after it is read … */
    uint64_t until_step;    /* … nor after what followed this step directly */
    struct csv_options csv; /* of a table */
};
/* Everything, for the diagnosis and the report. */
extern const struct run_settings run_settings_read;
/* The engine: a series of the job's memory and of the RSS of each process, about 2 KiB each. */
extern const struct run_settings run_settings_live;

struct run {
    struct run_settings options;
    struct run_observer *observers;
    uint64_t start_mono_ns, start_wall_ns; /* wall 0: unknown */
    uint64_t now_ns;                       /* the newest item */
    uint64_t tick_ns, first_tick_ns;       /* the newest and the first tick */
    uint64_t ticks;
    struct run_entity job, machine;
    struct run_entities living; /* processes, GPUs and figures by kind and id */
    size_t hint;                /* where the next sample's entity is likely to be */
    struct run_entities dead;   /* in no order */
    uint64_t processes_seen;
    struct run_role dead_roles[ROLE_COUNT];
    struct run_marks marks[MARK_KIND_COUNT]; /* no SERIES, HELLO, ACK */
    uint64_t marks_seen;
    uint64_t steps_seen; /* of the first rank, each once */
    bool has_step;
    int64_t step; /* the newest */
    struct run_phase *phases;
    size_t phase_count, phases_open, phases_left_out;
    uint64_t segments[RUN_SEGMENTS]; /* when the job was started again */
    uint32_t segment_count;
    struct run_note *guard_notes;
    size_t guard_count;
    uint64_t guard_seen;
    struct run_version versions[RUN_VERSIONS];
    size_t version_count;
    uint64_t gaps; /* notes "gap" */
    /* of a recording */
    json_t *header;      /* NULL: live */
    json_t *end;         /* the note "end"; NULL: none */
    uint64_t peak_bytes; /* of the job, as the engine knows it; 0: the most of JOB_MEMORY */
    struct run_table table;
    bool is_cut;     /* by until_ns or until_step: there was more */
    bool has_failed; /* out of memory: something is missing */
    struct trace_reader_damage damage;
};

/* ---- filling; times are of the monotonic clock ---- */

/* OPTIONS are copied. 0 or -ENOMEM. */
int run_new(const struct run_settings *options, uint64_t start_mono_ns, struct run **ret);
void run_free(struct run *run); /* NULL is fine */
/* Borrowed; before anything enters. */
void run_observe(struct run *run, struct run_observer *observer);

/* The entity; NULL: it died, was never born, or out of memory. */
struct run_entity *run_process(struct run *run, uint64_t mono_ns, enum process_event_kind event,
                               uint32_t slot, const struct process_info *info);
void run_tick_begin(struct run *run, uint64_t mono_ns);
/* One entity of the recording's kinds; the job's signals are taken from the machine's sample. NAME
 * is of GPUs, and NAME@PID of figures. */
void run_sample(struct run *run, enum sample_entity_kind kind, uint32_t id, const char *name,
                const struct sample *sample);
void run_tick_end(struct run *run);
/* One value of E at the run's tick_ns, outside a tick: of a table. */
void run_add_value(struct run *run, struct run_entity *e, unsigned field, uint64_t v);
void run_add_mark(struct run *run, const struct mark *given);
/* TEXT: JSON. */
void run_add_note(struct run *run, uint64_t mono_ns, const char *kind, const char *text,
                  size_t len);

/* One pass over a recording (a run folder or its file), or a table, with OBSERVERS (may be NULL).
 * -errno with a sentence; damage is survived and counted. */
int run_read(const char *path, const struct run_settings *options, struct run_observer *observers,
             struct run **ret, struct err *err);
bool run_is_recording(const char *path); /* by its name, or by what it holds; else a table */
/* run_read of a table: observers get rows instead of ticks. */
int run_read_csv(const char *path, const struct run_settings *settings,
                 struct run_observer *observers, struct run **ret, struct err *err);
/* Frees a living entity as if it had never been. */
void run_drop(struct run *run, struct run_entity *e);

/* ---- reading ---- */

/* E's newest value of FIELD. */
bool run_value(const struct run_entity *e, unsigned field, uint64_t *ret);
/* The living process with that pid, else the dead one that died last; NULL: none is kept. */
struct run_entity *run_find_pid(const struct run *run, int32_t pid);
struct run_entity *run_find(const struct run *run, enum run_kind kind, uint32_t id); /* living */
/* The living of KIND, by id: how many, at *RET. */
size_t run_living(const struct run *run, enum run_kind kind, struct run_entity *const **ret);
/* The living and the dead of KIND, by peak, the largest first: how many. *RET is the caller's to
 * free; NULL out of memory. */
size_t run_list(const struct run *run, enum run_kind kind, struct run_entity ***ret);
/* The most memory that the job held, by the recording's end or by its series; 0: unknown. */
uint64_t run_peak(const struct run *run);
/* Marks of all kinds in the order they came. Zeroed is a beginning; NULL at the end. */
struct run_mark_cursor {
    size_t at[MARK_KIND_COUNT];
};
const struct run_mark *run_mark_next(const struct run *run, struct run_mark_cursor *cursor);
