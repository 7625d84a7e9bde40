/* What is read of the job in a tick, each kind at its own pace. */
#include "engine/private.h"

#include "base/clock.h"
#include "base/io.h"
#include "proc/limit.h"

enum {
    STATUS_PERIOD_S = 20, /* every process at least so often; sooner where memory moved */
    STATUS_PER_TICK = 4,  /* and so many more in one tick that are new or have moved */
    STATUS_MOVED_BYTES = 1 << 20,
    UNIQUE_PATIENCE_S = 2,
};

static uint32_t status_bits(void)
{
    return 1u << SAMPLE_ANON | 1u << SAMPLE_FILE | 1u << SAMPLE_SHMEM | 1u << SAMPLE_SWAP |
           1u << SAMPLE_PEAK;
}

/* Never read yet, or its memory has moved since. */
static bool status_wanted(const struct history *h, const struct proc_node *node, uint64_t now_ns)
{
    if (h->status_last_ns == 0)
        return true;
    if (now_ns - h->status_last_ns < NS_PER_S)
        return false;
    uint64_t rss = node->sample.v[SAMPLE_RSS];
    uint64_t moved =
        rss > h->status_rss_bytes ? rss - h->status_rss_bytes : h->status_rss_bytes - rss;
    return moved > STATUS_MOVED_BYTES && moved > h->status_rss_bytes / 100;
}

static void read_status(struct engine *e, struct proc_node *node, struct history *h,
                        uint64_t now_ns)
{
    if (proc_node_read_status(e->tree, node) < 0)
        node->sample.stale |= status_bits();
    h->status_last_ns = now_ns;
    h->status_rss_bytes = node->sample.v[SAMPLE_RSS];
}

/* Time gives every process its turn, evenly: COUNT processes in STATUS_PERIOD_S. */
static void earn_status(struct engine *e, uint64_t count, uint64_t now_ns)
{
    const uint64_t period = STATUS_PERIOD_S * NS_PER_S;
    uint64_t since = e->status_earned_ns ? now_ns - e->status_earned_ns : 0;
    e->status_earned_ns = now_ns;
    e->status_credit_ns += count * (since < period ? since : period);
    if (e->status_credit_ns > count * period)
        e->status_credit_ns = count * period;
}

/* In turn, so that no process waits for ever and no tick does all the work; besides, a few that
 * are new or have moved. ALL: every one. */
void engine_look_at_status(struct engine *e, uint64_t now_ns, bool all)
{
    const uint64_t period = STATUS_PERIOD_S * NS_PER_S;
    size_t count = proc_tree_count(e->tree), extra = STATUS_PER_TICK;
    uint64_t begun = clock_thread_cpu_ns();
    earn_status(e, count, now_ns);
    size_t at = count ? e->status_cursor % count : 0;
    for (size_t i = 0; i < count; i++, at = (at + 1) % count) {
        struct proc_node *node = proc_tree_at(e->tree, at);
        struct history *h = history_of(node);
        if (!h)
            continue;
        if (all) {
            read_status(e, node, h, now_ns);
        } else if (e->status_credit_ns >= period && now_ns - h->status_last_ns > period / 2) {
            e->status_credit_ns -= period;
            e->status_cursor = at + 1;
            read_status(e, node, h, now_ns);
        } else if (extra && status_wanted(h, node, now_ns)) {
            extra--;
            read_status(e, node, h, now_ns);
        } else if (h->status_last_ns && now_ns - h->status_last_ns > 2 * period) {
            node->sample.stale |= status_bits();
        }
    }
    pace_done(&e->status, now_ns, clock_thread_cpu_ns() - begun);
}

void engine_look_at_pss(struct engine *e, uint64_t now_ns)
{
    uint64_t begun = clock_thread_cpu_ns();
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        struct proc_node *node = proc_tree_at(e->tree, i);
        if (proc_node_read_pss(e->tree, node) < 0)
            node->sample.stale |= 1u << SAMPLE_PSS;
    }
    pace_done(&e->pss, now_ns, clock_thread_cpu_ns() - begun);
}

void engine_look_at_limit(struct engine *e, uint64_t now_ns)
{
    struct machine_limit limit;
    uint64_t begun = clock_thread_cpu_ns();
    if (machine_limit(e->machine, &limit) == 0) {
        bool changed = e->limit_known && (limit.limit_bytes != e->limit_now.limit_bytes ||
                                          limit.kind != e->limit_now.kind);
        e->limit_now = limit;
        e->limit_known = true;
        if (changed) {
            char text[128];
            snprintf(text, sizeof text, "{\"limit_bytes\":%llu,\"kind\":\"%s\"}",
                     (unsigned long long)limit.limit_bytes, limit_kind_name(limit.kind));
            engine_note(e, "limit", text);
        }
    }
    pace_done(&e->limit, now_ns, clock_thread_cpu_ns() - begun);
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

/* The most that the cgroup's usage was since the last call; 0: unknown. A peak that cannot be reset
 * (cgroup v2 before kernel 6.12) tells only when it has risen. */
static uint64_t read_kernel_peak(struct engine *e)
{
    char text[64];
    uint64_t bytes;
    bool unlimited;
    ssize_t len = e->charge.peak_fd < 0 ? -1 : io_pread_small(e->charge.peak_fd, text, sizeof text);
    if (len < 0 || proc_cgroup_number_parse(text, (size_t)len, &unlimited, &bytes) < 0 || unlimited)
        return 0;
    if (bytes > e->kernel_peak_bytes)
        e->kernel_peak_bytes = bytes;
    if (e->charge.is_resettable && io_write_all(e->charge.peak_fd, "0", 1) == 0)
        return bytes;
    uint64_t before = e->kernel_last_bytes;
    e->kernel_last_bytes = bytes;
    return bytes > before ? bytes : 0;
}

void engine_look_at_charge(struct engine *e)
{
    uint64_t usage, used, most = read_kernel_peak(e);
    if (!read_charge(e, &usage, &used))
        return;
    peak_charge(&e->peak, usage, used, most);
    sample_put(&e->machine_sample, MACHINE_CHARGE, used);
}

/* The user's own line is the limit that counts, where it is nearer than the machine's. */
void engine_look_at_own_limit(struct engine *e)
{
    struct sample *s = &e->machine_sample;
    uint64_t used, room = UINT64_MAX;
    if (!e->own_limit_bytes || !engine_memory(e, &used))
        return;
    if (sample_has(s, MACHINE_LIMIT) && sample_has(s, MACHINE_LIMIT_USED))
        room = s->v[MACHINE_LIMIT] > s->v[MACHINE_LIMIT_USED]
                   ? s->v[MACHINE_LIMIT] - s->v[MACHINE_LIMIT_USED]
                   : 0;
    if ((used < e->own_limit_bytes ? e->own_limit_bytes - used : 0) > room)
        return;
    sample_put(s, MACHINE_LIMIT, e->own_limit_bytes);
    sample_put(s, MACHINE_LIMIT_USED, used);
}

static void gpu_name_all(struct engine *e, uint64_t now_ns)
{
    for (size_t i = 0; e->writer && !e->gpu_named && i < e->gpu_now.devices; i++)
        trace_writer_entity(e->writer, now_ns, ENTITY_GPU, (uint32_t)i, e->gpu_now.device[i].name);
    e->gpu_named = e->writer != NULL;
}

/* A process that has left the driver's list holds nothing any more: that is a reading of 0. */
void engine_look_at_gpu(struct engine *e, uint64_t now_ns)
{
    if (!e->gpu || gpu_latest(e->gpu, &e->gpu_now) <= 0)
        return;
    uint64_t job[GPU_MAX] = {0};
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        struct sample *s = &proc_tree_at(e->tree, i)->sample;
        if (sample_has(s, SAMPLE_GPU))
            sample_put(s, SAMPLE_GPU, 0);
    }
    for (size_t i = 0; i < e->gpu_now.processes; i++) {
        const struct gpu_process *p = &e->gpu_now.process[i];
        struct proc_node *node = proc_tree_find(e->tree, p->pid);
        if (!node || p->device >= GPU_MAX)
            continue;
        struct sample *s = &node->sample;
        uint64_t before = s->read >> SAMPLE_GPU & 1u ? s->v[SAMPLE_GPU] : 0;
        sample_put(s, SAMPLE_GPU, before + p->used_bytes);
        job[p->device] += p->used_bytes;
    }
    for (size_t i = 0; i < e->gpu_now.devices && i < GPU_MAX; i++) {
        sample_put(&e->gpu_sample[i], GPU_TOTAL, e->gpu_now.device[i].total_bytes);
        sample_put(&e->gpu_sample[i], GPU_USED, e->gpu_now.device[i].used_bytes);
        sample_put(&e->gpu_sample[i], GPU_JOB, job[i]);
        if (job[i] > e->gpu_job_peak_bytes[i])
            e->gpu_job_peak_bytes[i] = job[i];
    }
    gpu_name_all(e, now_ns);
}

/* Until the unique memory of those that have been there for a while is known, the lower bound is
 * the largest process alone, and its rise to the truth would look like growth. */
static bool unique_is_known(const struct engine *e, uint64_t now_ns)
{
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        const struct proc_node *node = proc_tree_at(e->tree, i);
        const uint32_t bit = 1u << SAMPLE_UNIQUE;
        if (!((node->sample.known | node->sample.stale) & bit) &&
            now_ns - node->born_ns > UNIQUE_PATIENCE_S * NS_PER_S)
            return false;
    }
    return true;
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

void engine_look_at_whole(struct engine *e, uint64_t now_ns)
{
    if (e->watching_all || proc_tree_count(e->tree) == 0)
        return;
    proc_tree_know_machine(e->tree, machine_mapped_bytes(e->machine));
    proc_tree_memory(e->tree, &e->memory);
    if (!e->memory.known)
        return;
    peak_tree(&e->peak, e->memory.low_bytes, e->memory.high_bytes, mapped_files(e),
              e->unique != NULL);
    if (e->memory.low_bytes >= e->memory_at_peak.low_bytes)
        e->memory_at_peak = e->memory;
    sample_put(&e->machine_sample, MACHINE_TREE_LOW, e->memory.low_bytes);
    sample_put(&e->machine_sample, MACHINE_TREE_HIGH, e->memory.high_bytes);
    bool alone = proc_tree_count(e->tree) == 1; /* then both bounds are its RSS */
    if (alone || e->tree_track.samples || !e->unique ||
        (e->memory.unique_known && unique_is_known(e, now_ns)))
        track_add(&e->tree_track, now_ns, e->memory.low_bytes);
    if (e->memory.high_bytes > e->tree_high_peak_bytes)
        e->tree_high_peak_bytes = e->memory.high_bytes;
    if (e->memory.unique_bytes > e->unique_sum_peak_bytes)
        e->unique_sum_peak_bytes = e->memory.unique_bytes;
}
