/* Memory of the whole job: current use, peak and limits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/peak.h"
#include "proc/limit.h"
#include "proc/machine.h"

struct engine;

/* Sets the process whose limits are read: its rlimits and the limits of its cgroup. The default is
 * the first watched process. */
void engine_limits_of(struct engine *e, int32_t pid);
/* Gets the effective limit. Returns 0, or -ENODATA if no limit can be read. */
int engine_limit(struct engine *e, struct machine_limit *ret);
/* Returns the cgroup that has the effective limit, relative to proc_root.cgroup_fd; "" if no cgroup
 * has it. */
const char *engine_limit_dir(const struct engine *e);
/* Sets the limit that the user set. It becomes the effective limit if it leaves less headroom than
 * every other limit. */
void engine_own_limit(struct engine *e, uint64_t limit_bytes);

/* The job's own cgroup, whose unreclaimable memory is read at every tick. The caller owns the fds;
 * an fd is -1 if its file does not exist. */
struct engine_charge {
    enum limit_kind kind; /* LIMIT_CGROUP_V1 or _V2 */
    struct limit_fds fds;
    int peak_fd; /* the kernel's peak of the cgroup; opened for writing if it can be reset */
    bool is_resettable;
};
#define ENGINE_NO_CHARGE ((struct engine_charge){.fds = {-1, -1, -1}, .peak_fd = -1})
void engine_charge(struct engine *e, const struct engine_charge *charge);

/* Gets the job's memory: the unreclaimable charge of its cgroup. Without a cgroup, it is the memory
 * of the job's processes, without file pages and with shared pages counted once. Returns false if
 * the memory is not known yet. */
bool engine_memory(const struct engine *e, uint64_t *ret_bytes);
/* Like engine_memory, but reads the value now, to measure changes that are shorter than a tick.
 * Without a cgroup this samples everything. */
bool engine_memory_now(struct engine *e, uint64_t *ret_bytes);
/* Returns an upper bound of engine_memory, in which memory whose sharing has not been measured yet
 * is treated as unshared. Equal to engine_memory if the job has a cgroup. */
uint64_t engine_memory_at_most(const struct engine *e);
/* Gets two values of the last tick. *RET_BYTES is the sum of the RSS of the job's processes, minus
 * their memory without file pages and with shared pages counted once. *RET_SHARED_BYTES is the sum
 * of the bytes that statm reports as shared. Returns false if the values are unknown. */
bool engine_overlap(const struct engine *e, uint64_t *ret_bytes, uint64_t *ret_shared_bytes);
/* If IS_HURRIED is set, measures unique memory without delay, and schedules a tick for the time at
 * which the measurement is complete. The guard calls this at each tick, and sets IS_HURRIED while a
 * decision depends on the difference between engine_memory and engine_memory_at_most. */
void engine_hurry(struct engine *e, bool is_hurried);

/* engine_peak is the peak of the job's memory over all segments, and engine_request the suggested
 * memory request; 0 if unknown. engine/peak.h defines both. */
uint64_t engine_peak(const struct engine *e);
uint64_t engine_request(const struct engine *e);
/* Returns the peak in the current segment, to which the caller may add its own readings. */
struct peak *engine_segment_peak(struct engine *e);
/* Returns the kernel's own peak of the job's cgroup, including file cache; 0 if unknown. */
uint64_t engine_kernel_peak(const struct engine *e);
