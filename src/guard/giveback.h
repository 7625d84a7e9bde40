/* Memory before the job, at its peak, after it: does the machine get back what it gave? */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/gpu.h"
#include "proc/procfs.h"

struct giveback_figure {
    bool known;
    uint64_t before_bytes, peak_bytes, after_bytes; /* in use */
};
struct giveback {
    struct giveback_figure host; /* MemTotal - MemAvailable */
    struct giveback_figure shm;  /* Shmem: shared memory and tmpfs */
    size_t gpus;
    struct giveback_figure gpu[GPU_MAX]; /* used by anybody */
};

/* Fills in before (and peak) from /proc/meminfo now. */
void giveback_begin(struct giveback *g, const struct proc_root *root);
/* Used memory at a tick, as already read; a GPU's first figure is its before. */
void giveback_tick(struct giveback *g, uint64_t host_used_bytes, uint64_t shm_bytes);
void giveback_gpu(struct giveback *g, const struct gpu_snapshot *snapshot);
/* After the end: reads meminfo until it moves by less than 1 MiB in 20 ms, or UNTIL_NS. */
void giveback_end(struct giveback *g, const struct proc_root *root, uint64_t until_ns);
/* Peak less after, 0 where negative: what came back. */
uint64_t giveback_freed(const struct giveback_figure *f);
