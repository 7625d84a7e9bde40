/* The gauge of one GPU, from its readings and its verdict. */
#pragma once

struct ladder_gauge;
struct quantity_size;
struct run_entity;
struct verdict_result;

/* Of the user's LIMIT (zeroed: not given) for the job's memory and the size of the GPU, which other
 * jobs may use too, the one with less headroom is set. VERDICT is the verdict on this GPU; NULL:
 * none. Leaves *RET untouched if neither can be measured. */
void gpu_gauge_read(const struct run_entity *gpu, const struct verdict_result *verdict,
                    const struct quantity_size *limit, struct ladder_gauge *ret);
