/* What views and the guard may ask of the engine. */
#include "engine/private.h"

#include <errno.h>
#include <poll.h>

#include "base/clock.h"

/* Between two looks for somebody who asks what there is now: a job may ask all the time. */
enum { LOOK_AGAIN_MS = 100 };

struct proc_tree *engine_tree(struct engine *e)
{
    return e->tree;
}

const struct track *engine_track(const struct proc_node *node)
{
    return history_of(node) ? &history_of(node)->rss : NULL;
}

bool engine_rate(struct proc_node *node, double *ret_bytes_per_min)
{
    return history_of(node) && history_rate(history_of(node), ret_bytes_per_min);
}

const struct track *engine_tree_track(const struct engine *e)
{
    return &e->tree_track;
}

const struct sample *engine_machine(const struct engine *e)
{
    return &e->machine_sample;
}

int engine_limit(const struct engine *e, struct machine_limit *ret)
{
    if (!e->limit_known)
        return -ENODATA;
    *ret = e->limit_now;
    return 0;
}

const char *engine_limit_dir(const struct engine *e)
{
    return machine_limit_dir(e->machine);
}

size_t engine_gpu_count(const struct engine *e)
{
    return e->gpu_now.devices < GPU_MAX ? e->gpu_now.devices : GPU_MAX;
}

const struct sample *engine_gpu(const struct engine *e, size_t i, const char **ret_name)
{
    *ret_name = e->gpu_now.device[i].name;
    return &e->gpu_sample[i];
}

const struct run *engine_run(const struct engine *e)
{
    return e->run;
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
    return &e->gpu_now;
}

bool engine_gpus_wait(struct engine *e, uint64_t after_ns, uint64_t until_ns)
{
    while (e->gpu && e->gpu_now.t_ns <= after_ns && clock_mono_ns() < until_ns)
        if (gpu_latest(e->gpu, &e->gpu_now) <= 0)
            poll(NULL, 0, 10);
    return e->gpu && e->gpu_now.t_ns > after_ns;
}

bool engine_verdict_known(const struct engine *e)
{
    const struct judge_tree *tree = judge_tree(e->judge);
    const struct verdict_result *r = tree ? &tree->result : NULL;
    return r && !(r->n_evidence && r->evidence[0].code == VERDICT_SAID_EMPTY);
}

uint64_t engine_verdict_count(const struct engine *e)
{
    return e->verdict.looks;
}

uint64_t engine_started_ns(const struct engine *e)
{
    return e->started_ns;
}

uint64_t engine_interval_ns(const struct engine *e)
{
    return e->options.interval_ns;
}

bool engine_last_step(const struct engine *e, int64_t *ret_step)
{
    if (e->step_known)
        *ret_step = e->step;
    return e->step_known;
}

bool engine_memory(const struct engine *e, uint64_t *ret_bytes)
{
    bool charged = e->charge.fds.usage >= 0 && sample_has(&e->machine_sample, MACHINE_CHARGE);
    if (!charged && !e->memory.known)
        return false;
    *ret_bytes = charged ? e->machine_sample.v[MACHINE_CHARGE] : e->memory.low_without_files_bytes;
    return true;
}

bool engine_overlap(const struct engine *e, uint64_t *ret_bytes, uint64_t *ret_shared_bytes)
{
    const struct proc_tree_memory *m = &e->memory;
    if (!m->known)
        return false;
    *ret_bytes = m->rss_sum_bytes > m->low_without_files_bytes
                     ? m->rss_sum_bytes - m->low_without_files_bytes
                     : 0;
    *ret_shared_bytes = m->shared_sum_bytes;
    return true;
}

uint64_t engine_memory_at_most(const struct engine *e)
{
    uint64_t bytes = 0;
    if (engine_memory(e, &bytes) && e->charge.fds.usage < 0) {
        bytes += e->unmeasured_bytes;
        if (bytes > e->memory.high_bytes)
            bytes = e->memory.high_bytes;
        if (bytes > e->memory.sum_without_files_bytes)
            bytes = e->memory.sum_without_files_bytes;
    }
    return bytes;
}

bool engine_memory_now(struct engine *e, uint64_t *ret_bytes)
{
    if (engine_read_charge(e, ret_bytes))
        return true;
    if (clock_mono_ns() - e->last_tick_ns > LOOK_AGAIN_MS * NS_PER_MS)
        engine_look_now(e);
    return engine_memory(e, ret_bytes);
}

/* ---- the peak ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t engine_segment_peak(const struct engine *e)
{
    return peak_bytes(&e->peak);
}

uint64_t engine_peak(const struct engine *e)
{
    return larger(e->earlier_peak_bytes, peak_bytes(&e->peak));
}

uint64_t engine_request(const struct engine *e)
{
    return larger(e->earlier_request_bytes, peak_request_bytes(&e->peak));
}

uint64_t engine_kernel_peak(const struct engine *e)
{
    return e->kernel_peak_bytes;
}

void engine_peak_process(struct engine *e, uint64_t bytes)
{
    peak_process(&e->peak, bytes);
}

void engine_peak_raise(struct engine *e, uint64_t bytes)
{
    peak_raise(&e->peak, bytes);
}
