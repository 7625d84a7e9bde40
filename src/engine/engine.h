/* The engine watches one job on the event loop. It samples the job's processes, memory and GPUs,
 * each at its own interval, and passes samples and marks to the recording, the run and the judge.
 * `ebb run` and `ebb watch` use it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "mark/mark.h"
#include "proc/tree.h"
#include "run/run.h"
#include "trace/writer.h"

struct err;
struct judge;
struct loop;
struct engine;
struct collect_gpu;
struct gpu_snapshot;

struct engine_options {
    /* Interval between ticks, 50 ms to 1 h. 0 means one second, but less than a second while the
     * job is young, so that a verdict is possible after a short first epoch. */
    uint64_t interval_ns;
    bool no_unique;   /* do not measure unique memory */
    bool is_launched; /* ebb started the job and knows all of its processes */
    bool pss;         /* also read PSS once per minute, which stalls the job */
    bool no_gpu;
    /* root of /proc; borrowed, must outlive the engine */
    const struct proc_root *root;
};

/* Callbacks from the event loop; each may be NULL. */
struct engine_callbacks {
    void (*tick)(void *user, uint64_t now_ns); /* called after each tick */
    /* called when the last process of the job has exited; never called after engine_watch_all */
    void (*empty)(void *user);
    /* called with a message for the user, such as "cannot write the recording: …" */
    void (*report)(void *user, const char *sentence);
    /* called when a process of the job has started, exited or changed */
    void (*process)(void *user, const struct proc_event *event);
    void *user;
};

int engine_new(struct loop *loop, const struct engine_options *options,
               const struct engine_callbacks *callbacks, struct engine **ret, struct err *err);
void engine_free(struct engine *e); /* closes the recording if it is still open; E may be NULL */

/* Set the processes to watch. These functions may be called before or after engine_start. */
int engine_watch_pid(struct engine *e, int32_t pid, struct err *err);
int engine_watch_below(struct engine *e, int32_t pid, struct err *err);
int engine_watch_all(struct engine *e, struct err *err);

/* From now on, records to DIRFD/trace.ebb. Facts about the machine are added to HEADER, which
 * remains owned by the caller. */
int engine_record(struct engine *e, int dirfd, const json_t *header, struct err *err);
/* Starts the ticks. */
int engine_start(struct engine *e);
/* Samples everything now, in addition to the regular ticks. */
void engine_sample_now(struct engine *e);
/* Passes a received mark to the recording, the run and the judge. */
void engine_mark(struct engine *e, const struct mark *mark);
/* Stores a metric that ebb measured for process PID; it is included in the next tick. */
void engine_figure(struct engine *e, int32_t pid, const char *name, uint64_t value);
/* Sets the job's memory on GPU, as reported by PyTorch's allocator. */
void engine_gpu(struct engine *e, unsigned gpu, const struct collect_gpu *now);
void engine_note(struct engine *e, const char *kind, const char *json_text);
/* Call this before the job is restarted: readings taken before the restart are then excluded from
 * the verdict. */
void engine_segment(struct engine *e, unsigned number);
/* Reports the end of the job to the judge. The end is written to the recording later, by
 * engine_stop. */
void engine_job_ended(struct engine *e, const json_t *end);
/* Reads the heap profiles in the run folder PATH and passes them to the judge. */
void engine_read_held(struct engine *e, const char *path);
/* Stops the ticks and closes the recording. FOOTER (may be NULL, not owned) is written to the
 * recording together with the job's peak. */
int engine_stop(struct engine *e, const json_t *footer);

/* ---- reading the state ---- */

struct proc_tree *engine_tree(struct engine *e); /* living processes */
const struct run *engine_run(const struct engine *e);
/* Returns the entity of a living process in the run; NULL if out of memory. */
const struct run_entity *engine_entity(const struct proc_node *node);
uint64_t engine_interval_ns(const struct engine *e);
/* Returns the newest reading of all GPUs. Its t_ns is 0 if there is no reading yet. */
const struct gpu_snapshot *engine_gpus(const struct engine *e);
/* Waits for a GPU reading that is newer than AFTER_NS. Returns false if none arrived by
 * UNTIL_NS. */
bool engine_gpus_wait(struct engine *e, uint64_t after_ns, uint64_t until_ns);

/* Returns the latest verdicts. They are computed at the first tick, then every 10 s (every 2 s
 * while the job is young), and at the end. The interval is longer if computing them would otherwise
 * use more than 0.5 % of a CPU. */
const struct judge *engine_verdict(const struct engine *e);
uint64_t engine_verdict_count(const struct engine *e); /* how often verdicts have been computed */
/* Computes the verdicts now, if there are new readings or marks. */
void engine_judge(struct engine *e);

/* Fills in the measurements for run.json, with the verdicts of engine_verdict. RET must be zeroed.
 * Returns 0, or -ENOMEM if some measurements are missing. */
struct outcome_measured;
int engine_measure(struct engine *e, uint64_t now_ns, struct outcome_measured *ret);
