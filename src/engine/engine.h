/* One watched job on the event loop: samples and marks go into the recording, the run and the
 * judge, each source at its own pace. What run, watch and the server share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"
#include "proc/tree.h"
#include "run/run.h"
#include "trace/writer.h"

struct err;
struct judge;
struct loop;
struct engine;
struct gpu_snapshot;
struct held;

struct engine_options {
    uint64_t interval_ns; /* 50 ms to 1 h; 0: a second, and shorter while the job is young, since a
                           * verdict after the first epoch waits for readings, not for seconds */
    bool no_unique;       /* leave unique memory out */
    bool is_launched;     /* what is watched was started by us, with all that descends from it */
    bool pss;             /* read PSS every minute: stalls the job */
    bool no_gpu;
    const struct proc_root *root; /* borrowed; must outlive the engine */
};

/* After each tick, on the loop. */
typedef void engine_tick_fn(void *user, struct engine *e, uint64_t now_ns);
/* The last process of the job has exited (not with engine_watch_all). */
typedef void engine_empty_fn(void *user, struct engine *e, uint64_t now_ns);
/* Something to report to the user once ("cannot record any more: disk full"). */
typedef void engine_say_fn(void *user, const char *sentence);
/* A process of the job was born, died or changed. */
typedef void engine_process_fn(void *user, const struct proc_event *event);

struct engine_callbacks {
    engine_tick_fn *tick;
    engine_empty_fn *empty;
    engine_say_fn *say;
    engine_process_fn *process;
    void *user;
};

int engine_new(struct loop *loop, const struct engine_options *options,
               const struct engine_callbacks *callbacks, struct engine **ret, struct err *err);
void engine_free(struct engine *e); /* NULL is fine; closes the recording if still open */

/* What to watch; before or after engine_start. */
int engine_watch_pid(struct engine *e, int32_t pid, struct err *err);
int engine_watch_below(struct engine *e, int32_t pid, struct err *err);
int engine_watch_all(struct engine *e, struct err *err);

/* Records into DIRFD/trace.ebb from now on. HEADER (borrowed) gets machine facts added. */
int engine_record(struct engine *e, int dirfd, const json_t *header, struct err *err);
/* Begins ticking. */
int engine_start(struct engine *e);
/* One more full sample of everything, now (the end of a job, a mark that asks for it). */
void engine_sample_now(struct engine *e);
/* A mark from the receiver: recorded, and its step kept. */
void engine_mark(struct engine *e, const struct mark *mark);
void engine_note(struct engine *e, const char *kind, const char *json_text);
/* The job is about to be started again: earlier readings do not count for the verdict. */
void engine_segment(struct engine *e, unsigned number);
/* The job has ended as END says, which engine_stop will write down: for the verdict. */
void engine_job_ended(struct engine *e, const json_t *end);
/* What the profiler has of such a job; the verdict is to be worked out anew. */
void engine_set_held(struct engine *e, const struct held *list, size_t count);
/* Stops ticking, closes the recording. FOOTER (borrowed, may be NULL) goes into it, with the job's
 * peak. */
int engine_stop(struct engine *e, const json_t *footer);

/* ---- reading ---- */

struct proc_tree *engine_tree(struct engine *e); /* living processes */
const struct run *engine_run(const struct engine *e);
/* The run's entity of a living process; NULL: out of memory. */
const struct run_entity *engine_entity(const struct proc_node *node);
uint64_t engine_interval_ns(const struct engine *e);
/* The newest reading of all GPUs; t_ns 0: none. */
const struct gpu_snapshot *engine_gpus(const struct engine *e);
/* Waits for a reading of the GPUs that is newer than AFTER_NS; false if there is none by UNTIL_NS.
 */
bool engine_gpus_wait(struct engine *e, uint64_t after_ns, uint64_t until_ns);

/* The verdicts, as of the last time they were worked out: with the first tick, then every 10 s (2 s
 * where a job is young), less often where that costs more than half a per cent of a CPU, and at the
 * end. */
const struct judge *engine_verdict(const struct engine *e);
bool engine_verdict_known(const struct engine *e);     /* false: they were of no reading yet */
uint64_t engine_verdict_count(const struct engine *e); /* how often that was: has it changed? */
/* Works the verdicts out now, if anything came since. */
void engine_judge(struct engine *e);

/* What was measured of the run so far, for run.json; the verdicts are those of engine_verdict. RET
 * is zeroed before. 0 or -ENOMEM, and then a part is missing. */
struct outcome_measured;
int engine_measure(struct engine *e, uint64_t now_ns, struct outcome_measured *ret);
