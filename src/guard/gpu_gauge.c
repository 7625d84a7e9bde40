/* The guard's gauge of one GPU, computed from the GPU's readings and the verdict on the GPU. */
#include "guard/gpu_gauge.h"

#include "base/number.h"
#include "base/quantity.h"
#include "guard/ladder.h"
#include "run/run.h"
#include "verdict/verdict.h"

static bool read_own(const struct run_entity *gpu, const struct quantity_size *limit,
                     struct ladder_gauge *ret)
{
    uint64_t total = 0, used;
    bool has_total = run_value(gpu, GPU_TOTAL, &total);
    if (!quantity_is_given(limit) || (limit->is_percent && !has_total) || !run_gpu_job(gpu, &used))
        return false;
    uint64_t bytes = quantity_bytes(limit, total);
    *ret = (struct ladder_gauge){.known = true,
                                 .limit_bytes = bytes,
                                 .used_bytes = used,
                                 .room_bytes = u64_minus(bytes, used)};
    return true;
}

/* Returns false if this job does not use the GPU, even if other jobs have filled the GPU's
 * memory. */
static bool read_card(const struct run_entity *gpu, struct ladder_gauge *ret)
{
    uint64_t total, used, job = 0, peak = 0;
    (void)run_value(gpu, GPU_JOB, &job);
    (void)run_value(gpu, GPU_PEAK, &peak);
    if (!run_value(gpu, GPU_TOTAL, &total) || total == 0 || !run_gpu_used(gpu, &used) ||
        job + peak == 0)
        return false;
    *ret = (struct ladder_gauge){.known = true,
                                 .limit_bytes = total,
                                 .used_bytes = used,
                                 .room_bytes = u64_minus(total, used),
                                 .is_card = true};
    return true;
}

void gpu_gauge_read(const struct run_entity *gpu, const struct verdict_result *verdict,
                    const struct quantity_size *limit, struct ladder_gauge *ret)
{
    struct ladder_gauge own, card;
    bool has_own = read_own(gpu, limit, &own), has_card = read_card(gpu, &card);
    if (!has_own && !has_card)
        return;
    *ret = has_own && (!has_card || own.room_bytes <= card.room_bytes) ? own : card;
    if (!verdict || verdict->leak != VERDICT_LEAK_YES)
        return;
    /* the verdict's forecast refers to the total memory of the GPU */
    const struct verdict_interval *rate = &verdict->rate_bytes_per_min;
    if (ret->is_card && verdict->oom.known && verdict->oom.has_t) {
        ret->forecast_known = true;
        ret->forecast_s = verdict->oom.eta_s_low;
    } else if (rate->known && rate->high > 0) {
        ret->forecast_known = true;
        ret->forecast_s = 60 * (double)ret->room_bytes / rate->high;
    }
}
