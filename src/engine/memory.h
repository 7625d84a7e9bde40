/* Memory of the whole job: in use, peak and limits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proc/limit.h"
#include "proc/machine.h"

struct engine;

/* Uses the limits of PID, which are those of its cgroup and its rlimits. Default: the first watched
 * process. */
void engine_limits_of(struct engine *e, int32_t pid);
int engine_limit(const struct engine *e, struct machine_limit *ret); /* -ENODATA before start */
/* The cgroup with that limit, relative to proc_root.cgroup_fd; "": the limit is not a cgroup's. */
const char *engine_limit_dir(const struct engine *e);
/* Sets the user's limit on the job's memory. It is reported if it is the tightest. */
void engine_own_limit(struct engine *e, uint64_t limit_bytes);

/* The job's own cgroup, whose unreclaimable memory is read every tick. The fds are borrowed; -1: no
 * such file. */
struct engine_charge {
    enum limit_kind kind; /* LIMIT_CGROUP_V1 or _V2 */
    struct limit_fds fds;
    int peak_fd; /* the kernel's peak, opened for writing if a write resets it */
    bool is_resettable;
};
#define ENGINE_NO_CHARGE ((struct engine_charge){.fds = {-1, -1, -1}, .peak_fd = -1})
void engine_charge(struct engine *e, const struct engine_charge *charge);

/* Memory of the job: the unreclaimable charge of its cgroup; without a cgroup, the memory of its
 * processes without file pages, shared pages counted once. False: not known yet. */
bool engine_memory(const struct engine *e, uint64_t *ret_bytes);
/* Like engine_memory, but read now, for measurements shorter than a tick. Without a cgroup this
 * samples everything. */
bool engine_memory_now(struct engine *e, uint64_t *ret_bytes);
/* An upper bound of engine_memory, which counts memory not measured yet as unshared. Equal to
 * engine_memory if the job has a cgroup. */
uint64_t engine_memory_at_most(const struct engine *e);
/* The part of the sum of RSS at the last tick that engine_memory does not count, and the bytes that
 * statm reports as shared. */
bool engine_overlap(const struct engine *e, uint64_t *ret_bytes, uint64_t *ret_shared_bytes);
/* Measures unique memory at once and ticks as soon as it is known. The guard calls it at each tick
 * while the difference between engine_memory and engine_memory_at_most matters. */
void engine_hurry(struct engine *e, bool is_hurried);

/* The peak of the job's memory, over all segments or in the present one; 0: unknown. engine_request
 * is the suggested memory request. engine/peak.h defines both. */
uint64_t engine_peak(const struct engine *e);
uint64_t engine_segment_peak(const struct engine *e);
uint64_t engine_request(const struct engine *e);
/* The kernel's own peak of the job's cgroup, including file cache; 0: unknown. */
uint64_t engine_kernel_peak(const struct engine *e);
/* Takes the peak of one process (ru_maxrss). */
void engine_peak_process(struct engine *e, uint64_t bytes);
/* Takes the memory of the job that the guard has read, from the cgroup or the processes. */
void engine_peak_raise(struct engine *e, uint64_t bytes);
