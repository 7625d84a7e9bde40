/* The model of one run: its entities (the job, the machine, processes, GPUs, figures that the job
 * reports) with one bounded series per signal, its marks, phases, segments and notes. It is filled
 * live by the engine, or by one pass over a recording or a table; everything downstream reads it.
 * All times are nanoseconds since the run's start, also those of marks passed to observers. */
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

/* The signals of the job. The machine, processes and GPUs use the fields of proc/sample.h. A
 * figure has one signal, number 0. */
enum run_job_signal {
    JOB_MEMORY,     /* the charge of its cgroup; JOB_TREE if it has none */
    JOB_TREE,       /* memory of its processes, shared pages counted once: lower bound */
    JOB_TREE_HIGH,  /* upper bound of the same */
    JOB_UNIQUE,     /* sum of the unique memory of its processes */
    JOB_RSS_SUM,    /* sum of the resident memory of its processes, shared pages counted in each */
    JOB_GPU,        /* memory on all GPUs */
    JOB_LIMIT,      /* the effective limit */
    JOB_LIMIT_USED, /* memory charged against the limit, minus reclaimable memory */
    JOB_CHARGE,     /* charge of its own cgroup, minus reclaimable memory */
    JOB_SIGNALS
};

enum { RUN_NAME_MAX = 96 };

struct run_entity {
    enum run_kind kind;
    uint32_t id; /* slot of a process (never reused), index of a GPU, number of a figure */
    char name[RUN_NAME_MAX];  /* not escaped; for a figure without "@PID" */
    struct process_info info; /* for a process; for a figure only id.pid, 0 if unknown */
    int32_t parent;           /* pid of the process that started it */
    uint32_t segment;         /* the segment in which it was born, from 0 */
    bool is_dead;
    uint64_t born_ns, died_ns; /* died_ns: valid if is_dead */
    uint64_t execed_ns;        /* when its program started: born_ns unless it called exec */
    struct sample last;        /* the `read` bits are those of the tick at last_ns */
    uint64_t last_ns;
    uint64_t
        peak_bytes; /* peak of signal 0; for a process, the larger of VmHWM and resident memory */
    uint64_t gpu_peak_bytes;                  /* for a process */
    struct series *signal[SAMPLE_FIELDS_MAX]; /* NULL: never read, or not kept */
    void *observed;                           /* for the observer; see run_observer.forget */
};

struct run_entities {
    struct run_entity **at;
    size_t count, cap;
};

/* True if FIELD of E was read at the newest tick of the run. */
bool run_was_read(const struct run *run, const struct run_entity *e, unsigned field);

struct run_mark {
    uint64_t t_ns;
    uint64_t number; /* number among all marks of the run; orders marks of the same time */
    enum mark_kind kind;
    int32_t pid;
    uint32_t has; /* enum mark_has */
    int64_t step, steps_per_epoch, max_steps, rank, examples, effective_batch;
    double epoch;
    char word[24]; /* KIND of a MARK_OTHER, not escaped */
};

/* The marks of one kind. If there are too many, only those of every STRIDE-th step (or every
 * STRIDE-th mark if they have no step) are kept. */
struct run_marks {
    struct run_mark *at;
    size_t count, cap;
    uint64_t seen, stride;
};

struct run_phase {
    char name[48]; /* not escaped */
    int32_t pid;
    bool is_open; /* the phase has not ended; until_ns is then the newest time of the run */
    uint64_t from_ns, until_ns;
};

struct run_note {
    uint64_t t_ns;
    json_t *doc; /* a JSON object */
};

/* A version that a mark reported: TORCH_VERSION=2.4.0 becomes "torch", "2.4.0". */
struct run_version {
    char name[64], text[64]; /* not escaped */
};

/* Summary of the dead processes of one role. */
struct run_role {
    uint64_t count, peak_bytes; /* peak_bytes: of the largest one */
};

/* Functions that are called after the run was updated with an item. Any of them may be NULL. */
struct run_observer {
    void *user;
    /* On PROCESS_DIED the entity is still valid and is_dead; forget may follow at once. */
    void (*process)(void *user, struct run *run, struct run_entity *e,
                    enum process_event_kind event);
    /* Called when all entities of this tick (run->now_ns) have been sampled; see run_was_read. */
    void (*tick)(void *user, struct run *run);
    void (*mark)(void *user, struct run *run, const struct mark *mark);
    void (*note)(void *user, struct run *run, const char *kind, const char *text, size_t len);
    /* Called before E is freed: it is dead and only larger ones are kept, or the run is being
     * freed. */
    void (*forget)(void *user, struct run *run, struct run_entity *e);
    /* Called for a table: for each row of E, after the marks in the marks file that concern E. A
     * time before the table's first row is negative. */
    void (*row)(void *user, struct run *run, struct run_entity *e, int64_t t_ns,
                const struct csv_row *row);
    void (*row_mark)(void *user, struct run *run, struct run_entity *e, int64_t t_ns,
                     const struct mark *mark);
    struct run_observer *next;
};

/* Properties of a run that was read from a table. */
struct run_table {
    bool is_rows;     /* read by run_read_csv; groups that ended before the table are dead */
    bool is_imported; /* a recording that an earlier version made from a table: no process dies */
    bool is_by_step;  /* the table has no times, so one second per step is assumed */
    bool is_job;      /* the groups are the processes of one job */
    bool has_marks;   /* there is a marks file */
    uint64_t dropped_rows; /* rows of groups beyond the maximum */
};

enum {
    RUN_DEAD_LIVE = 64,
    RUN_DEAD_READ = 256,
    RUN_FIGURES = 256, /* living figures; further ones are ignored until others die */
    RUN_GPUS = 64,
    RUN_PHASES = 400,
    RUN_PHASES_OPEN = 16,
    RUN_SEGMENTS = 400,
    RUN_VERSIONS = 32,
};

struct run_settings {
    uint32_t signals[RUN_KINDS]; /* one bit for each signal that is kept as a series */
    /* number of buckets of signal 0 and of JOB_*; other signals have half as many */
    uint32_t buckets[RUN_KINDS];
    size_t dead;             /* how many dead processes and figures to keep */
    size_t marks;            /* how many marks of each kind to keep */
    size_t guard_notes;      /* how many guard notes to keep, the newest */
    uint64_t width_ns;       /* initial width of a bucket; 0: 50 ms */
    uint64_t from_ns, to_ns; /* range of series and marks; to_ns 0: until the end */
    /* used by run_read */
    /* when the job started, if it is known more precisely than from the recording, which begins a
     * moment earlier; 0: unknown */
    uint64_t start_wall_ns;
    bool has_until, has_until_step;
    uint64_t until_ns;      /* items after this time are not read */
    uint64_t until_step;    /* nor items after this step and the marks that directly follow it */
    struct csv_options csv; /* for a table */
};
/* Keeps everything, for the diagnosis and the report. */
extern const struct run_settings run_settings_read;
/* Keeps a series of the job's memory and of the RSS of each process, about 2 KiB each, for the
 * engine. */
extern const struct run_settings run_settings_live;

struct run {
    struct run_settings options;
    struct run_observer *observers;
    uint64_t start_mono_ns, start_wall_ns; /* start_wall_ns is 0 if unknown */
    uint64_t now_ns;                       /* time of the newest item */
    uint64_t tick_ns, first_tick_ns;       /* times of the newest and the first tick */
    uint64_t ticks;
    struct run_entity job, machine;
    struct run_entities living; /* processes, GPUs and figures, sorted by kind and id */
    size_t hint;                /* likely index of the next sample's entity */
    struct run_entities dead;   /* unordered */
    uint64_t processes_seen;
    struct run_role dead_roles[ROLE_COUNT];
    struct run_marks marks[MARK_KIND_COUNT]; /* of all kinds except SERIES, HELLO, ACK */
    uint64_t marks_seen;
    uint64_t steps_seen; /* steps of the first rank, each once */
    bool has_step;
    int64_t step; /* the newest step */
    struct run_phase *phases;
    size_t phase_count, phases_open, phases_left_out;
    uint64_t segments[RUN_SEGMENTS]; /* times at which the job was restarted */
    uint32_t segment_count;
    struct run_note *guard_notes;
    size_t guard_count;
    uint64_t guard_seen;
    struct run_version versions[RUN_VERSIONS];
    size_t version_count;
    uint64_t gaps; /* number of "gap" notes */
    /* for a recording */
    json_t *header; /* NULL: live */
    json_t *end;    /* the note "end"; NULL: none */
    /* of the job, as the engine recorded it; 0: use the maximum of JOB_MEMORY */
    uint64_t peak_bytes;
    struct run_table table;
    bool is_cut;     /* until_ns or until_step was reached, and there was more */
    bool has_failed; /* memory ran out, so something is missing */
    struct trace_reader_damage damage;
};

/* ---- filling; all times are of the monotonic clock ---- */

/* OPTIONS are copied. 0 or -ENOMEM. */
int run_new(const struct run_settings *options, uint64_t start_mono_ns, struct run **ret);
void run_free(struct run *run); /* NULL is fine */
/* Adds an observer, which is borrowed. Call it before anything is added. */
void run_observe(struct run *run, struct run_observer *observer);

/* Adds a process event. Returns the entity; NULL if it died, was never born, or memory ran out. */
struct run_entity *run_process(struct run *run, uint64_t mono_ns, enum process_event_kind event,
                               uint32_t slot, const struct process_info *info);
void run_tick_begin(struct run *run, uint64_t mono_ns);
/* Adds the sample of one entity. The job's signals are taken from the machine's sample. NAME is
 * the name of a GPU, or NAME@PID for a figure. */
void run_sample(struct run *run, enum sample_entity_kind kind, uint32_t id, const char *name,
                const struct sample *sample);
void run_tick_end(struct run *run);
/* Sets one value of E at the run's tick_ns, outside a tick. Used for tables. */
void run_add_value(struct run *run, struct run_entity *e, unsigned field, uint64_t v);
void run_add_mark(struct run *run, const struct mark *given);
/* Adds a note. TEXT is JSON. */
void run_add_note(struct run *run, uint64_t mono_ns, const char *kind, const char *text,
                  size_t len);

/* Reads a recording (a run folder or its file) or a table in one pass, with OBSERVERS (may be
 * NULL). -errno with an error; damaged parts are skipped and counted. */
int run_read(const char *path, const struct run_settings *options, struct run_observer *observers,
             struct run **ret, struct err *err);
bool run_is_recording(const char *path); /* by its name or content; otherwise it is a table */
/* Reads a table for run_read: observers get rows instead of ticks. */
int run_read_csv(const char *path, const struct run_settings *settings,
                 struct run_observer *observers, struct run **ret, struct err *err);
/* Frees the living entities that the caller has marked as dead, as if they had never existed. */
void run_drop_marked(struct run *run);

/* ---- reading ---- */

/* The field of a GPU that is judged: PyTorch's allocated memory if known, because its allocator
 * keeps freed memory; otherwise the driver's count. */
unsigned run_gpu_field(const struct run_entity *gpu);
/* The newest value of FIELD of E. */
bool run_value(const struct run_entity *e, unsigned field, uint64_t *ret);
/* The living process with that pid, else the one that died last; NULL if none is kept. */
struct run_entity *run_find_pid(const struct run *run, int32_t pid);
struct run_entity *run_find(const struct run *run, enum run_kind kind,
                            uint32_t id); /* living entities only */
/* Sets *RET to the living entities of KIND, sorted by id. Returns their number. */
size_t run_living(const struct run *run, enum run_kind kind, struct run_entity *const **ret);
/* Sets *RET to the living and dead entities of KIND, largest peak first. Returns their number. The
 * caller frees *RET, which is NULL if memory ran out. */
size_t run_list(const struct run *run, enum run_kind kind, struct run_entity ***ret);
/* Peak memory of the job, from the end of the recording or its series; 0: unknown. */
uint64_t run_peak(const struct run *run);
/* Iterates over marks of all kinds in order. Start with a zeroed cursor; NULL at the end. */
struct run_mark_cursor {
    size_t at[MARK_KIND_COUNT];
};
const struct run_mark *run_mark_next(const struct run *run, struct run_mark_cursor *cursor);
