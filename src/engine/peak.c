/* The peak of a job's memory: the peak of its cgroup or, without a cgroup, an upper bound for the
 * peak of its processes. */
#include "engine/peak.h"

#include "base/number.h"

void peak_charge(struct peak *p, uint64_t usage_bytes, uint64_t used_bytes, uint64_t most_bytes)
{
    uint64_t hidden = u64_minus(most_bytes, u64_max(p->usage_bytes, usage_bytes));
    uint64_t bytes = u64_max(p->used_bytes, used_bytes) + hidden;
    p->charged_bytes = u64_max(p->charged_bytes, bytes);
    p->usage_bytes = usage_bytes;
    p->used_bytes = used_bytes;
    p->is_charged = true;
}

void peak_process(struct peak *p, uint64_t bytes)
{
    p->resident_bytes = u64_max(p->resident_bytes, bytes);
}

void peak_raise(struct peak *p, uint64_t bytes)
{
    uint64_t *peak = p->is_charged ? &p->charged_bytes : &p->resident_bytes;
    *peak = u64_max(*peak, bytes);
}

void peak_tree(struct peak *p, uint64_t low_bytes, uint64_t high_bytes, uint64_t mapped_bytes,
               bool is_measured)
{
    peak_process(p, low_bytes);
    if (!is_measured)
        p->bound_bytes = u64_max(p->bound_bytes, high_bytes);
    p->mapped_bytes = u64_max(p->mapped_bytes, mapped_bytes);
    p->recent[p->ticks++ % PEAK_TICKS] =
        (struct peak_tick){.low_bytes = low_bytes, .high_bytes = high_bytes};
}

void peak_died(struct peak *p, uint64_t from, uint64_t bytes)
{
    from = u64_max(from, u64_minus(p->ticks, PEAK_TICKS));
    for (uint64_t i = from; i < p->ticks; i++) {
        struct peak_tick *t = &p->recent[i % PEAK_TICKS];
        t->unmeasured_bytes += bytes;
        uint64_t bound = u64_min(t->high_bytes, t->low_bytes + t->unmeasured_bytes);
        p->bound_bytes = u64_max(p->bound_bytes, bound);
    }
}

void peak_restart(struct peak *p)
{
    *p = (struct peak){
        .is_charged = p->is_charged, .usage_bytes = p->usage_bytes, .used_bytes = p->used_bytes};
}

uint64_t peak_bytes(const struct peak *p)
{
    return u64_max(p->resident_bytes, p->is_charged ? p->charged_bytes : p->bound_bytes);
}

/* Returns the part of the memory mapped from files that is data and not code. The kernel can drop
 * data and read it again: a job that maps a dataset of 100 GiB does not need 100 GiB of memory. Up
 * to 1 GiB is assumed to be code, because PyTorch with CUDA maps about that much. Returns 0 if
 * there is no cgroup charge; the request then includes all mapped memory. */
static uint64_t mapped_data_bytes(const struct peak *p)
{
    return p->is_charged ? u64_minus(p->mapped_bytes, UINT64_C(1) << 30) : 0;
}

/* The suggested request: the peak without mapped data, plus one fifth, rounded up to a multiple
 * of 64 MiB. */
uint64_t peak_request_bytes(const struct peak *p)
{
    const uint64_t step = UINT64_C(64) << 20;
    uint64_t bytes = u64_max(u64_minus(peak_bytes(p), mapped_data_bytes(p)),
                             p->is_charged ? p->charged_bytes : 0);
    return (bytes + bytes / 5 + step - 1) / step * step;
}
