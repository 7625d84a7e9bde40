/* One watched job on the event loop: samples and marks go into the recording and the histories,
 * at each source's own pace. What run, watch and the server share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/track.h"
#include "mark/mark.h"
#include "proc/limit.h"
#include "proc/machine.h"
#include "proc/tree.h"
#include "trace/writer.h"

struct err;
struct judge;
struct loop;
struct engine;
struct held;

struct engine_options {
    uint64_t interval_ns; /* 50 ms to 1 h; 0: a second, and shorter while the job is young, since a
                           * verdict after the first pass waits for readings, not for seconds */
    bool no_unique;       /* leave unique memory out */
    bool is_launched;     /* what is watched was started by us, with all that descends from it */
    bool pss;             /* read PSS every minute: stalls the job */
    bool no_gpu;
    const struct proc_root *root; /* borrowed; must outlive the engine */
};

/* After each tick, on the loop. */
typedef void engine_tick_fn(void *user, struct engine *e, uint64_t now_ns);
/* The last process of the job has gone (not with engine_watch_all). */
typedef void engine_empty_fn(void *user, struct engine *e, uint64_t now_ns);
/* Something a person should be told once ("cannot record any more: disk full"). */
typedef void engine_say_fn(void *user, const char *sentence);
/* A process of the job came, went or became another. */
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
/* The limits that matter are PID's: of its cgroup, and its own rlimits. Without it they are those
 * of the first process that is watched. */
void engine_limits_of(struct engine *e, int32_t pid);

/* The job has a cgroup of its own: its memory that cannot be reclaimed is read every tick. The fds
 * are borrowed; -1 where there is none. */
struct engine_charge {
    enum limit_kind kind; /* LIMIT_CGROUP_V1 or _V2 */
    struct limit_fds fds;
    int peak_fd; /* the kernel's peak of it, open for writing where a write resets it */
    bool is_resettable;
};
#define ENGINE_NO_CHARGE ((struct engine_charge){.fds = {-1, -1, -1}, .peak_fd = -1})
void engine_charge(struct engine *e, const struct engine_charge *charge);
/* A limit of the user's own, on the job's memory: told as the limit where it is the nearest. */
void engine_own_limit(struct engine *e, uint64_t limit_bytes);
/* The job is about to be started again: what was seen so far is another story for the verdict. */
void engine_segment(struct engine *e, unsigned number);
/* Memory of the job now: the charge of its cgroup, else of its processes without the pages of
 * files, shared pages counted once. False: not known yet. */
bool engine_memory(const struct engine *e, uint64_t *ret_bytes);
/* How much of the sum of RSS at the last look is not in that figure of the processes, and how many
 * of its pages statm called shared. */
bool engine_overlap(const struct engine *e, uint64_t *ret_bytes, uint64_t *ret_shared_bytes);
/* No more than this, should all that was not measured yet be unshared; engine_memory's figure where
 * the job has a charge. */
uint64_t engine_memory_at_most(const struct engine *e);
/* The difference of the two matters: measure now, and tick as soon as more is known. To be called
 * again at each tick while it does. */
void engine_hurry(struct engine *e, bool is_hurried);
/* The same, read at this moment: what is measured over a short time must not be a tick old. Where
 * there is no charge to read it is a full look. */
bool engine_memory_now(struct engine *e, uint64_t *ret_bytes);
/* The most memory that the job held, in all segments or in the present one; 0: nothing is known.
 * engine_request: memory to request next time. engine/peak.h defines both. */
uint64_t engine_peak(const struct engine *e);
uint64_t engine_segment_peak(const struct engine *e);
uint64_t engine_request(const struct engine *e);
/* The kernel's own peak of the job's cgroup, file cache included; 0: unknown. */
uint64_t engine_kernel_peak(const struct engine *e);
/* A process of the job held BYTES in all (ru_maxrss). */
void engine_peak_process(struct engine *e, uint64_t bytes);
/* The job held BYTES, as the guard has read of its cgroup or, without one, of its processes. */
void engine_peak_raise(struct engine *e, uint64_t bytes);

/* Records into DIRFD/trace.ebb from now on. HEADER (borrowed) gets machine facts added. */
int engine_record(struct engine *e, int dirfd, const json_t *header, struct err *err);
/* Begins ticking. */
int engine_start(struct engine *e);
/* One more full look at everything, now (the end of a job, a mark that asks for it). */
void engine_look_now(struct engine *e);
/* A mark from the receiver: recorded, and its step kept. */
void engine_mark(struct engine *e, const struct mark *mark);
void engine_note(struct engine *e, const char *kind, const char *json_text);
/* The job has ended as END says, which engine_stop will write down: for the verdict. */
void engine_job_ended(struct engine *e, const json_t *end);
/* What the profiler has of such a job; the verdict is to be worked out anew. */
void engine_set_held(struct engine *e, const struct held *list, size_t count);
/* Stops ticking, closes the recording. FOOTER (borrowed, may be NULL) goes into it. */
int engine_stop(struct engine *e, const json_t *footer);

/* For views: the living tree, and histories. */
struct proc_tree *engine_tree(struct engine *e);
const struct track *engine_track(const struct proc_node *node); /* its RSS */
/* The rate of its floor, bytes a minute; false while there is too little to say. Cheap: worked
 * out anew only when the floor has a new block. */
bool engine_rate(struct proc_node *node, double *ret_bytes_per_min);
/* The tree's memory with shared pages counted once: the lower bound of proc_tree_memory, which is
 * the better estimate once unique memory is known. */
const struct track *engine_tree_track(const struct engine *e);
const struct sample *engine_machine(const struct engine *e);
int engine_limit(const struct engine *e, struct machine_limit *ret); /* -ENODATA before start */
/* The cgroup's folder of that limit, below proc_root.cgroup_fd; "" if it is none of a cgroup. */
const char *engine_limit_dir(const struct engine *e);
size_t engine_gpu_count(const struct engine *e);
const struct sample *engine_gpu(const struct engine *e, size_t i, const char **ret_name);
uint64_t engine_started_ns(const struct engine *e);
uint64_t engine_interval_ns(const struct engine *e);
/* The verdicts, as of the last time they were worked out: with the first look, then every 10 s (2 s
 * where a job is young), less often where that costs more than half a per cent of a CPU, and at the
 * end. */
const struct run *engine_run(const struct engine *e);
const struct judge *engine_verdict(const struct engine *e);
bool engine_verdict_known(const struct engine *e);     /* false: they were of no reading yet */
uint64_t engine_verdict_count(const struct engine *e); /* how often that was: has it changed? */
/* Works the verdicts out now, if anything came since. */
void engine_judge(struct engine *e);
/* The newest reading of all GPUs; t_ns 0: none. */
const struct gpu_snapshot *engine_gpus(const struct engine *e);
/* Waits for a reading of the GPUs that is newer than AFTER_NS; false if there is none by UNTIL_NS.
 */
bool engine_gpus_wait(struct engine *e, uint64_t after_ns, uint64_t until_ns);
bool engine_last_step(const struct engine *e, int64_t *ret_step);

/* The facts of the run so far as JSON (docs/run-json.md): tree, processes, roles, limit, gpus,
 * verdict, recording, marks, cost. The caller owns it. NULL: out of memory. */
json_t *engine_summary(struct engine *e, uint64_t now_ns);
