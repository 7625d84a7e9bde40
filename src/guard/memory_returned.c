/* Memory in use by the kernel's and the driver's figures. */
#include "guard/memory_returned.h"

#include <poll.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/number.h"
#include "proc/read.h"

enum { SETTLED_BYTES = 1 << 20, SETTLING_MS = 20 };

static void figure_add(struct memory_figure *f, uint64_t bytes)
{
    if (!f->known)
        *f = (struct memory_figure){.known = true, .before_bytes = bytes};
    f->peak_bytes = u64_max(f->peak_bytes, bytes);
    f->after_bytes = bytes;
}

void memory_returned_begin(struct memory_returned *m, const struct proc_root *root)
{
    struct proc_meminfo mem;
    *m = (struct memory_returned){0};
    /* both of a difference may be made up by a container, and not together */
    if (proc_read_meminfo(root, &mem) == 0)
        memory_returned_tick(m, u64_minus(mem.total_bytes, mem.available_bytes), mem.shmem_bytes);
}

void memory_returned_tick(struct memory_returned *m, uint64_t host_used_bytes, uint64_t shm_bytes)
{
    figure_add(&m->host, host_used_bytes);
    figure_add(&m->shm, shm_bytes);
}

void memory_returned_gpus(struct memory_returned *m, const struct gpu_snapshot *snapshot)
{
    if (snapshot->t_ns == 0)
        return;
    for (size_t i = 0; i < snapshot->devices && i < GPU_MAX; i++) {
        if (snapshot->device[i].memory_known)
            figure_add(&m->gpu[i], snapshot->device[i].used_bytes);
        m->gpus = m->gpus > i ? m->gpus : i + 1;
    }
}

void memory_returned_end(struct memory_returned *m, const struct proc_root *root, uint64_t until_ns)
{
    struct proc_meminfo mem;
    uint64_t host = 0, last;
    bool is_first = true;
    do {
        if (!is_first)
            poll(NULL, 0, SETTLING_MS);
        if (proc_read_meminfo(root, &mem) < 0) {
            m->host.known = m->shm.known = !is_first;
            return;
        }
        last = host;
        host = u64_minus(mem.total_bytes, mem.available_bytes);
        m->host.after_bytes = host;
        m->shm.after_bytes = mem.shmem_bytes;
        if (!is_first && u64_max(host, last) - u64_min(host, last) < SETTLED_BYTES)
            return;
        is_first = false;
    } while (clock_mono_ns() < until_ns);
}

static json_t *memory_figure_json(const struct memory_figure *f)
{
    if (!f->known)
        return json_null();
    return json_pack("{s:o,s:o,s:o,s:o}", "before_bytes", json_u64(f->before_bytes), "peak_bytes",
                     json_u64(f->peak_bytes), "after_bytes", json_u64(f->after_bytes),
                     "freed_bytes", json_u64(u64_minus(f->peak_bytes, f->after_bytes)));
}

json_t *memory_returned_json(const struct memory_returned *m)
{
    json_t *gpus = json_array();
    for (size_t i = 0; i < m->gpus; i++)
        json_array_append_new(gpus, memory_figure_json(&m->gpu[i]));
    return json_pack("{s:o,s:o,s:o}", "host", memory_figure_json(&m->host), "shm",
                     memory_figure_json(&m->shm), "gpus", gpus);
}
