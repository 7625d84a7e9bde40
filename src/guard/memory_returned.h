/* Memory in use before the job, at its peak and after it: was all of it returned? */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/gpu.h"
#include "proc/procfs.h"

struct memory_figure {
    bool known;
    uint64_t before_bytes, peak_bytes, after_bytes; /* in use */
};
struct memory_returned {
    struct memory_figure host; /* MemTotal - MemAvailable */
    struct memory_figure shm;  /* Shmem: shared memory and tmpfs */
    size_t gpus;
    struct memory_figure gpu[GPU_MAX]; /* used by anybody */
};

/* Before the job, from /proc/meminfo. */
void memory_returned_begin(struct memory_returned *m, const struct proc_root *root);
/* Used memory at a tick, as already read. A GPU's first reading is taken for that before the job.
 */
void memory_returned_tick(struct memory_returned *m, uint64_t host_used_bytes, uint64_t shm_bytes);
void memory_returned_gpus(struct memory_returned *m, const struct gpu_snapshot *snapshot);
/* After the end: reads meminfo until it moves by less than 1 MiB in 20 ms, or UNTIL_NS. */
void memory_returned_end(struct memory_returned *m, const struct proc_root *root,
                         uint64_t until_ns);
/* {"host": {"before_bytes", "peak_bytes", "after_bytes", "freed_bytes"}, "shm", "gpus"}, null for
 * what is not known. */
json_t *memory_returned_json(const struct memory_returned *m);
