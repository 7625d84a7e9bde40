/* Functions through which the terminal views and the guard access the engine's state. */
#include "engine/private.h"

#include <errno.h>
#include <poll.h>

#include "base/clock.h"
#include "base/number.h"

/* Minimum interval between two samples taken on request, because a job may send any number of
 * requests. */
enum { SAMPLE_AGAIN_MS = 100 };

struct proc_tree *engine_tree(struct engine *e)
{
    return e->tree;
}

const struct run *engine_run(const struct engine *e)
{
    return e->run;
}

const struct run_entity *engine_entity(const struct proc_node *node)
{
    return engine_process_of(node) ? engine_process_of(node)->entity : NULL;
}

void engine_limits_of(struct engine *e, int32_t pid)
{
    struct machine *m = NULL;
    if (machine_new(e->options.root, pid, &m) < 0)
        return;
    machine_free(e->machine);
    e->machine = m;
    e->now.has_limit = false;
    e->paces.limit.next_ns = 0;
}

void engine_charge(struct engine *e, const struct engine_charge *charge)
{
    e->charge = *charge;
    e->peaks.kernel_last_bytes = 0;
}

void engine_own_limit(struct engine *e, uint64_t limit_bytes)
{
    e->own_limit_bytes = limit_bytes;
}

int engine_limit(struct engine *e, struct machine_limit *ret)
{
    if (!e->now.has_limit)
        engine_sample_limit(e, clock_mono_ns());
    *ret = e->now.limit;
    return e->now.has_limit ? 0 : -ENODATA;
}

const char *engine_limit_dir(const struct engine *e)
{
    return machine_limit_dir(e->machine);
}

const struct judge *engine_verdict(const struct engine *e)
{
    return e->judge;
}

void engine_judge(struct engine *e)
{
    if (!e->is_judged && e->last_tick_ns)
        engine_judge_now(e, e->last_tick_ns);
}

const struct gpu_snapshot *engine_gpus(const struct engine *e)
{
    return &e->now.gpus;
}

bool engine_gpus_wait(struct engine *e, uint64_t after_ns, uint64_t until_ns)
{
    while (e->gpu && e->now.gpus.t_ns <= after_ns && clock_mono_ns() < until_ns)
        if (gpu_latest(e->gpu, &e->now.gpus) <= 0)
            poll(NULL, 0, 10);
    return e->gpu && e->now.gpus.t_ns > after_ns;
}

uint64_t engine_verdict_count(const struct engine *e)
{
    return e->paces.verdict.count;
}

uint64_t engine_interval_ns(const struct engine *e)
{
    return e->options.interval_ns;
}

bool engine_memory(const struct engine *e, uint64_t *ret_bytes)
{
    bool charged = e->charge.fds.usage >= 0 && sample_has(&e->now.machine, MACHINE_CHARGE);
    if (!charged && !e->now.memory.known)
        return false;
    *ret_bytes = charged ? e->now.machine.v[MACHINE_CHARGE] : e->now.memory.low_without_files_bytes;
    return true;
}

bool engine_overlap(const struct engine *e, uint64_t *ret_bytes, uint64_t *ret_shared_bytes)
{
    const struct proc_tree_memory *m = &e->now.memory;
    if (!m->known)
        return false;
    *ret_bytes = u64_minus(m->rss_sum_bytes, m->low_without_files_bytes);
    *ret_shared_bytes = m->shared_sum_bytes;
    return true;
}

uint64_t engine_memory_at_most(const struct engine *e)
{
    uint64_t bytes = 0;
    if (engine_memory(e, &bytes) && e->charge.fds.usage < 0) {
        bytes = u64_min(bytes + e->now.unmeasured_bytes, e->now.memory.high_bytes);
        bytes = u64_min(bytes, e->now.memory.sum_without_files_bytes);
    }
    return bytes;
}

bool engine_memory_now(struct engine *e, uint64_t *ret_bytes)
{
    if (engine_read_charge(e, ret_bytes))
        return true;
    if (clock_mono_ns() - e->last_tick_ns > SAMPLE_AGAIN_MS * NS_PER_MS)
        engine_sample_now(e);
    return engine_memory(e, ret_bytes);
}

/* ---- the peak ---- */

struct peak *engine_segment_peak(struct engine *e)
{
    return &e->peaks.peak;
}

uint64_t engine_peak(const struct engine *e)
{
    return u64_max(e->peaks.earlier_bytes, peak_bytes(&e->peaks.peak));
}

uint64_t engine_request(const struct engine *e)
{
    return u64_max(e->peaks.earlier_request_bytes, peak_request_bytes(&e->peaks.peak));
}

uint64_t engine_kernel_peak(const struct engine *e)
{
    return e->peaks.kernel_bytes;
}
