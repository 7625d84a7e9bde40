/* The guard's gauge of one GPU, computed from the GPU's readings and the verdict on the GPU. */
#pragma once

struct ladder_gauge;
struct quantity_size;
struct run_entity;
struct verdict_result;

/* Sets *RET to the gauge of one GPU. There are two possible limits: LIMIT, which the user set for
 * the job's GPU memory (zeroed if not given), and the total memory of the GPU, which other jobs may
 * use too. The gauge uses the limit with less headroom. VERDICT is the verdict on this GPU, or
 * NULL. Leaves *RET untouched if neither limit can be measured. */
void gpu_gauge_read(const struct run_entity *gpu, const struct verdict_result *verdict,
                    const struct quantity_size *limit, struct ladder_gauge *ret);
