/* The peak of a job's memory: of its cgroup where it has one, else an upper bound of its tree. */
#include "engine/peak.h"

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t excess(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

void peak_charge(struct peak *p, uint64_t usage_bytes, uint64_t used_bytes, uint64_t most_bytes)
{
    uint64_t hidden = excess(most_bytes, max_u64(p->usage_bytes, usage_bytes));
    uint64_t bytes = max_u64(p->used_bytes, used_bytes) + hidden;
    p->charged_bytes = max_u64(p->charged_bytes, bytes);
    p->usage_bytes = usage_bytes;
    p->used_bytes = used_bytes;
    p->is_charged = true;
}

void peak_process(struct peak *p, uint64_t bytes)
{
    p->resident_bytes = max_u64(p->resident_bytes, bytes);
}

void peak_raise(struct peak *p, uint64_t bytes)
{
    uint64_t *peak = p->is_charged ? &p->charged_bytes : &p->resident_bytes;
    *peak = max_u64(*peak, bytes);
}

void peak_tree(struct peak *p, uint64_t low_bytes, uint64_t high_bytes, uint64_t mapped_bytes,
               bool is_measured)
{
    peak_process(p, low_bytes);
    if (!is_measured)
        p->bound_bytes = max_u64(p->bound_bytes, high_bytes);
    p->mapped_bytes = max_u64(p->mapped_bytes, mapped_bytes);
    p->recent[p->ticks++ % PEAK_TICKS] =
        (struct peak_tick){.low_bytes = low_bytes, .high_bytes = high_bytes};
}

void peak_died(struct peak *p, uint64_t from, uint64_t bytes)
{
    from = max_u64(from, excess(p->ticks, PEAK_TICKS));
    for (uint64_t i = from; i < p->ticks; i++) {
        struct peak_tick *t = &p->recent[i % PEAK_TICKS];
        t->unmeasured_bytes += bytes;
        uint64_t bound = min_u64(t->high_bytes, t->low_bytes + t->unmeasured_bytes);
        p->bound_bytes = max_u64(p->bound_bytes, bound);
    }
}

void peak_restart(struct peak *p)
{
    *p = (struct peak){
        .is_charged = p->is_charged, .usage_bytes = p->usage_bytes, .used_bytes = p->used_bytes};
}

uint64_t peak_bytes(const struct peak *p)
{
    return max_u64(p->resident_bytes, p->is_charged ? p->charged_bytes : p->bound_bytes);
}

/* Mapped files count in the memory of a process, but the kernel can drop them and read them again.
 * What is beyond the code of the largest frameworks (PyTorch with CUDA maps about 1 GiB of it) is
 * data, and a job that maps a dataset of 100 GiB needs no 100 GiB. How much memory there was beside
 * it only the charge of a cgroup tells. */
static uint64_t mapped_data_bytes(const struct peak *p)
{
    return p->is_charged ? excess(p->mapped_bytes, UINT64_C(1) << 30) : 0;
}

/* A fifth more than the peak, in steps of 64 MiB. */
uint64_t peak_request_bytes(const struct peak *p)
{
    const uint64_t step = UINT64_C(64) << 20;
    uint64_t bytes =
        max_u64(excess(peak_bytes(p), mapped_data_bytes(p)), p->is_charged ? p->charged_bytes : 0);
    return (bytes + bytes / 5 + step - 1) / step * step;
}
