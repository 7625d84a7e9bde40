/* Memory of the job as a whole: how much it holds, held at most, and may hold. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proc/limit.h"
#include "proc/machine.h"

struct engine;

/* The limits that matter are PID's: of its cgroup, and its own rlimits (default: those of the first
 * process that is watched). */
void engine_limits_of(struct engine *e, int32_t pid);
int engine_limit(const struct engine *e, struct machine_limit *ret); /* -ENODATA before start */
/* The cgroup's folder of that limit, below proc_root.cgroup_fd; "" if it is none of a cgroup. */
const char *engine_limit_dir(const struct engine *e);
/* A limit of the user's own, on the job's memory: reported as the limit where it is the nearest. */
void engine_own_limit(struct engine *e, uint64_t limit_bytes);

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

/* Memory of the job now: the charge of its cgroup, else of its processes without the pages of
 * files, shared pages counted once. False: unknown yet. */
bool engine_memory(const struct engine *e, uint64_t *ret_bytes);
/* The same, read at this moment: what is measured over a short time must not be a tick old. Where
 * there is no charge to read everything is sampled. */
bool engine_memory_now(struct engine *e, uint64_t *ret_bytes);
/* No more than this, should all that was not measured yet be unshared; engine_memory's figure where
 * the job has a charge. */
uint64_t engine_memory_at_most(const struct engine *e);
/* How much of the sum of RSS at the last tick is not in that figure of the processes, and how many
 * of its pages statm called shared. */
bool engine_overlap(const struct engine *e, uint64_t *ret_bytes, uint64_t *ret_shared_bytes);
/* The difference of engine_memory and engine_memory_at_most matters: measure now, and tick as soon
 * as more is known. To be called again at each tick while it does. */
void engine_hurry(struct engine *e, bool is_hurried);

/* The most memory that the job held, in all segments or in the present one; 0: unknown.
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
