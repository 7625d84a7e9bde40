/* Memory in use on the machine before a job, at its peak and after its end, for "given_back" in
 * run.json. */
#pragma once

#include <stdint.h>

#include "proc/gpu.h"
#include "proc/procfs.h"
#include "run/outcome.h"

/* Call this before the job starts: reads from /proc/meminfo how much memory is in use. */
void memory_returned_begin(struct outcome_given_back *m, const struct proc_root *root);
/* Call these at each tick with the memory in use. The first reading of a GPU counts as its memory
 * use before the job. */
void memory_returned_tick(struct outcome_given_back *m, uint64_t host_bytes, uint64_t shm_bytes);
void memory_returned_gpus(struct outcome_given_back *m, const struct gpu_snapshot *snapshot);
/* Call this after the job: reads /proc/meminfo until memory use changes by less than 1 MiB in 20
 * ms, or until UNTIL_NS. */
void memory_returned_end(struct outcome_given_back *m, const struct proc_root *root,
                         uint64_t until_ns);
