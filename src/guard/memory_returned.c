/* Reads how much memory is in use, as reported by the kernel and the GPU driver. */
#include "guard/memory_returned.h"

#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/number.h"
#include "proc/read.h"

enum { SETTLED_BYTES = 1 << 20, SETTLING_MS = 20 };

static void returned_set_after(struct outcome_returned *r, uint64_t bytes)
{
    r->after_bytes = bytes;
    r->freed_bytes = u64_minus(r->peak_bytes, bytes);
}

static void returned_add(struct outcome_returned *r, uint64_t bytes)
{
    if (!r->has_before_bytes)
        r->before_bytes = bytes;
    r->has_before_bytes = r->has_peak_bytes = r->has_after_bytes = r->has_freed_bytes = true;
    r->peak_bytes = u64_max(r->peak_bytes, bytes);
    returned_set_after(r, bytes);
}

static bool read_used(const struct proc_root *root, uint64_t *ret_host, uint64_t *ret_shm)
{
    struct proc_meminfo mem;
    if (proc_read_meminfo(root, &mem) < 0)
        return false;
    /* a container may report emulated values, in which available memory exceeds the total */
    *ret_host = u64_minus(mem.total_bytes, mem.available_bytes);
    *ret_shm = mem.shmem_bytes;
    return true;
}

void memory_returned_begin(struct outcome_given_back *m, const struct proc_root *root)
{
    uint64_t host, shm;
    if (read_used(root, &host, &shm))
        memory_returned_tick(m, host, shm);
}

void memory_returned_tick(struct outcome_given_back *m, uint64_t host_bytes, uint64_t shm_bytes)
{
    m->has_host = m->has_shm = true;
    returned_add(&m->host, host_bytes);
    returned_add(&m->shm, shm_bytes);
}

void memory_returned_gpus(struct outcome_given_back *m, const struct gpu_snapshot *snapshot)
{
    if (snapshot->t_ns && !m->gpus)
        m->gpus = calloc(GPU_MAX, sizeof *m->gpus);
    if (!snapshot->t_ns || !m->gpus)
        return;
    for (size_t i = 0; i < snapshot->devices && i < GPU_MAX; i++) {
        if (snapshot->device[i].memory_known)
            returned_add(&m->gpus[i], snapshot->device[i].used_bytes);
        m->gpu_count = m->gpu_count > i ? m->gpu_count : i + 1;
    }
}

void memory_returned_end(struct outcome_given_back *m, const struct proc_root *root,
                         uint64_t until_ns)
{
    uint64_t host, shm, last;
    bool is_settled = false;
    m->has_host = m->has_shm = read_used(root, &host, &shm);
    while (m->has_host) {
        returned_set_after(&m->host, host);
        returned_set_after(&m->shm, shm);
        if (is_settled || clock_mono_ns() >= until_ns)
            return;
        last = host;
        poll(NULL, 0, SETTLING_MS);
        if (!read_used(root, &host, &shm))
            return;
        is_settled = u64_max(host, last) - u64_min(host, last) < SETTLED_BYTES;
    }
}
