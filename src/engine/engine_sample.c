/* Takes the readings at each tick. Each source (processes, GPUs, the machine) is read at its own
 * interval. */
#include "engine/private.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/number.h"
#include "proc/limit.h"

enum {
    /* every process's status is read at least once within this many seconds */
    STATUS_PERIOD_S = 20,
    /* maximum number of additional reads per tick, for new and changed processes */
    STATUS_PER_TICK = 4,
    STATUS_MOVED_BYTES = 1 << 20,
};

static uint32_t status_bits(void)
{
    return 1u << SAMPLE_ANON | 1u << SAMPLE_FILE | 1u << SAMPLE_SHMEM | 1u << SAMPLE_SWAP |
           1u << SAMPLE_PEAK;
}

/* True if memory has changed since status was last read, or if status was never read. */
static bool status_wanted(const struct engine_process *p, const struct proc_node *node,
                          uint64_t now_ns)
{
    if (p->status_last_ns == 0)
        return true;
    if (now_ns - p->status_last_ns < NS_PER_S)
        return false;
    uint64_t rss = node->sample.v[SAMPLE_RSS];
    uint64_t moved =
        rss > p->status_rss_bytes ? rss - p->status_rss_bytes : p->status_rss_bytes - rss;
    return moved > STATUS_MOVED_BYTES && moved > p->status_rss_bytes / 100;
}

static void read_status(struct engine *e, struct proc_node *node, struct engine_process *p,
                        uint64_t now_ns)
{
    if (proc_node_read_status(e->tree, node) < 0)
        node->sample.stale |= status_bits();
    p->status_last_ns = now_ns;
    p->status_rss_bytes = node->sample.v[SAMPLE_RSS];
}

/* Reads the status of some processes at each tick: a share of all processes, so that each is read
 * once per period, and a few processes that are new or have changed. If ALL is set, reads every
 * process. */
void engine_sample_status(struct engine *e, uint64_t now_ns, bool all)
{
    const uint64_t period = STATUS_PERIOD_S * NS_PER_S;
    size_t count = proc_tree_count(e->tree), extra = STATUS_PER_TICK;
    uint64_t since = e->last_tick_ns ? u64_min(now_ns - e->last_tick_ns, period) : 0;
    uint64_t in_turn = count * since / period + 1;
    size_t at = count ? e->paces.status_cursor % count : 0;
    for (size_t i = 0; i < count; i++, at = (at + 1) % count) {
        struct proc_node *node = proc_tree_at(e->tree, at);
        struct engine_process *p = engine_process_of(node);
        if (!p)
            continue;
        if (all) {
            read_status(e, node, p, now_ns);
        } else if (in_turn && now_ns - p->status_last_ns > period / 2) {
            in_turn--;
            e->paces.status_cursor = at + 1;
            read_status(e, node, p, now_ns);
        } else if (extra && status_wanted(p, node, now_ns)) {
            extra--;
            read_status(e, node, p, now_ns);
        } else if (p->status_last_ns && now_ns - p->status_last_ns > 2 * period) {
            node->sample.stale |= status_bits();
        }
    }
}

void engine_sample_pss(struct engine *e, uint64_t now_ns)
{
    uint64_t begun = clock_thread_cpu_ns();
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        struct proc_node *node = proc_tree_at(e->tree, i);
        if (proc_node_read_pss(e->tree, node) < 0)
            node->sample.stale |= 1u << SAMPLE_PSS;
    }
    pace_done(&e->paces.pss, now_ns, clock_thread_cpu_ns() - begun);
}

void engine_sample_limit(struct engine *e, uint64_t now_ns)
{
    struct machine_limit limit;
    uint64_t begun = clock_thread_cpu_ns();
    if (machine_limit(e->machine, &limit) == 0) {
        bool changed = e->now.has_limit && (limit.limit_bytes != e->now.limit.limit_bytes ||
                                            limit.kind != e->now.limit.kind);
        e->now.limit = limit;
        e->now.has_limit = true;
        if (changed) {
            char text[128];
            snprintf(text, sizeof text, "{\"limit_bytes\":%llu,\"kind\":\"%s\"}",
                     (unsigned long long)limit.limit_bytes, limit_kind_name(limit.kind));
            engine_note(e, "limit", text);
        }
    }
    pace_done(&e->paces.limit, now_ns, clock_thread_cpu_ns() - begun);
}

static bool read_charge(const struct engine *e, uint64_t *ret_usage, uint64_t *ret_used)
{
    return e->charge.fds.usage >= 0 &&
           limit_used_read(e->charge.kind, &e->charge.fds, ret_usage, ret_used) == 0;
}

bool engine_read_charge(const struct engine *e, uint64_t *ret)
{
    uint64_t usage;
    return read_charge(e, &usage, ret);
}

/* Returns the highest usage of the cgroup since the last call; 0 if unknown. Before Linux 6.12, the
 * peak of a v2 cgroup cannot be reset. The highest usage is then known only if the peak has grown
 * since the last call. */
static uint64_t read_kernel_peak(struct engine *e)
{
    char text[64];
    uint64_t bytes;
    bool unlimited;
    ssize_t len = e->charge.peak_fd < 0 ? -1 : io_pread_small(e->charge.peak_fd, text, sizeof text);
    if (len < 0 || proc_cgroup_number_parse(text, (size_t)len, &unlimited, &bytes) < 0 || unlimited)
        return 0;
    if (bytes > e->peaks.kernel_bytes)
        e->peaks.kernel_bytes = bytes;
    if (e->charge.is_resettable && io_write_all(e->charge.peak_fd, "0", 1) == 0)
        return bytes;
    uint64_t before = e->peaks.kernel_last_bytes;
    e->peaks.kernel_last_bytes = bytes;
    return bytes > before ? bytes : 0;
}

void engine_sample_charge(struct engine *e)
{
    uint64_t usage, used, most = read_kernel_peak(e);
    if (!read_charge(e, &usage, &used))
        return;
    peak_charge(&e->peaks.peak, usage, used, most);
    sample_put(&e->now.machine, MACHINE_CHARGE, used);
}

/* Uses the user's limit as the effective limit if it leaves less headroom than the machine's
 * limit. */
void engine_apply_own_limit(struct engine *e)
{
    struct sample *s = &e->now.machine;
    uint64_t used, room = UINT64_MAX;
    if (!e->own_limit_bytes || !engine_memory(e, &used))
        return;
    if (sample_has(s, MACHINE_LIMIT) && sample_has(s, MACHINE_LIMIT_USED))
        room = u64_minus(s->v[MACHINE_LIMIT], s->v[MACHINE_LIMIT_USED]);
    if (u64_minus(e->own_limit_bytes, used) > room)
        return;
    sample_put(s, MACHINE_LIMIT, e->own_limit_bytes);
    sample_put(s, MACHINE_LIMIT_USED, used);
}

/* Returns a GPU's name, or "GPU" if the driver cannot be read and only PyTorch reports the GPU. */
const char *engine_gpu_name(const struct engine *e, size_t gpu)
{
    return gpu < e->now.gpus.devices ? e->now.gpus.device[gpu].name : "GPU";
}

static void gpu_name_all(struct engine *e, uint64_t now_ns)
{
    for (size_t i = 0; e->writer && i < GPU_MAX; i++) {
        if (!e->now.gpu[i].known || e->now.gpus_named >> i & 1u)
            continue;
        trace_writer_entity(e->writer, now_ns, ENTITY_GPU, (uint32_t)i, engine_gpu_name(e, i));
        e->now.gpus_named |= 1u << i;
    }
}

/* Stores the driver's readings. Stores 0 for processes that the driver no longer lists. */
static void gpu_sample_driver(struct engine *e)
{
    uint64_t job[GPU_MAX] = {0};
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        struct sample *s = &proc_tree_at(e->tree, i)->sample;
        if (sample_has(s, SAMPLE_GPU))
            sample_put(s, SAMPLE_GPU, 0);
    }
    for (size_t i = 0; i < e->now.gpus.processes; i++) {
        const struct gpu_process *p = &e->now.gpus.process[i];
        struct proc_node *node = proc_tree_find(e->tree, p->pid);
        if (!node || p->device >= GPU_MAX)
            continue;
        struct sample *s = &node->sample;
        uint64_t before = s->read >> SAMPLE_GPU & 1u ? s->v[SAMPLE_GPU] : 0;
        sample_put(s, SAMPLE_GPU, before + p->used_bytes);
        job[p->device] += p->used_bytes;
    }
    for (size_t i = 0; i < e->now.gpus.devices && i < GPU_MAX; i++) {
        sample_put(&e->now.gpu[i], GPU_TOTAL, e->now.gpus.device[i].total_bytes);
        sample_put(&e->now.gpu[i], GPU_USED, e->now.gpus.device[i].used_bytes);
        sample_put(&e->now.gpu[i], GPU_JOB, job[i]);
    }
}

/* Computes the job's GPU memory outside PyTorch's allocator: all of the job's memory, as the driver
 * reports it, minus the memory that PyTorch's allocator has reserved. */
static void gpu_sample_outside(struct sample *s)
{
    if (sample_has(s, GPU_JOB) && sample_has(s, GPU_RESERVED))
        sample_put(s, GPU_OUTSIDE,
                   s->v[GPU_JOB] > s->v[GPU_RESERVED] ? s->v[GPU_JOB] - s->v[GPU_RESERVED] : 0);
}

void engine_sample_gpus(struct engine *e, uint64_t now_ns)
{
    if (e->gpu && gpu_latest(e->gpu, &e->now.gpus) > 0)
        gpu_sample_driver(e);
    for (size_t i = 0; i < GPU_MAX; i++)
        gpu_sample_outside(&e->now.gpu[i]);
    gpu_name_all(e, now_ns);
}

static uint64_t mapped_files(const struct engine *e)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        const struct sample *s = &proc_tree_at(e->tree, i)->sample;
        sum += s->known >> SAMPLE_FILE & 1u ? s->v[SAMPLE_FILE] : 0;
    }
    return sum;
}

void engine_sample_tree(struct engine *e)
{
    struct proc_tree_memory *m = &e->now.memory;
    if (e->watching_all || proc_tree_count(e->tree) == 0)
        return;
    proc_tree_know_machine(e->tree, machine_mapped_bytes(e->machine));
    proc_tree_memory(e->tree, m);
    if (!m->known)
        return;
    peak_tree(&e->peaks.peak, m->low_bytes, m->high_bytes, mapped_files(e), e->unique);
    if (m->low_bytes >= e->peaks.memory.low_bytes)
        e->peaks.memory = *m;
    sample_put(&e->now.machine, MACHINE_TREE_LOW, m->low_bytes);
    sample_put(&e->now.machine, MACHINE_TREE_HIGH, m->high_bytes);
    if (m->high_bytes > e->peaks.tree_high_bytes)
        e->peaks.tree_high_bytes = m->high_bytes;
    if (m->unique_bytes > e->peaks.unique_sum_bytes)
        e->peaks.unique_sum_bytes = m->unique_bytes;
}
