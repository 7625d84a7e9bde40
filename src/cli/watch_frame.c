/* From the engine's nodes and samples to plain rows. */
#include "cli/watch_frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/memory.h"
#include "judge/judge.h"

void watch_frame_fini(struct watch_frame *f)
{
    free(f->frame.rows);
    verdicts_fini(&f->verdicts);
    *f = (struct watch_frame){0};
}

static struct frame_bytes figure(const struct sample *s, unsigned field)
{
    return (struct frame_bytes){.known = sample_has(s, field),
                                .stale = s->stale >> field & 1u,
                                .bytes = sample_has(s, field) ? s->v[field] : 0};
}

static void fill_entity(struct frame_row *row, const struct run_entity *entity)
{
    const struct verdict_result *r = judge_result(entity);
    row->spark_count = series_newest(entity->signal[SAMPLE_RSS], FRAME_SPARK, row->spark);
    if (entity->peak_bytes > row->peak.bytes)
        row->peak = (struct frame_bytes){.known = true, .bytes = entity->peak_bytes};
    row->rate_known = r && r->rate_bytes_per_min.known;
    row->rate_bytes_per_min = row->rate_known ? r->rate_bytes_per_min.value : 0;
}

static void fill_row(struct frame_row *row, const struct proc_node *node)
{
    const struct process_info *info = &node->info;
    const struct sample *s = &node->sample;
    *row = (struct frame_row){.pid = info->id.pid,
                              .ppid = info->ppid,
                              .slot = node->slot,
                              .role = process_role_name(info->role),
                              .name = info->comm,
                              .name_len = info->comm_len,
                              .command = info->cmdline,
                              .command_len = info->cmdline_len,
                              .rss = figure(s, SAMPLE_RSS),
                              .anon = figure(s, SAMPLE_ANON),
                              .file = figure(s, SAMPLE_FILE),
                              .shmem = figure(s, SAMPLE_SHMEM),
                              .swap = figure(s, SAMPLE_SWAP),
                              .unique = figure(s, SAMPLE_UNIQUE),
                              .peak = figure(s, SAMPLE_PEAK),
                              .gpu = figure(s, SAMPLE_GPU)};
    if (engine_entity(node))
        fill_entity(row, engine_entity(node));
}

static int fill_rows(struct watch_frame *f, struct engine *e)
{
    struct proc_tree *tree = engine_tree(e);
    size_t count = proc_tree_count(tree);
    if (count > f->rows_cap) {
        size_t cap = count + count / 2;
        struct frame_row *rows = reallocarray(f->frame.rows, cap, sizeof *rows);
        if (!rows)
            return -ENOMEM;
        f->frame.rows = rows;
        f->rows_cap = cap;
    }
    for (size_t i = 0; i < count; i++)
        fill_row(&f->frame.rows[i], proc_tree_at(tree, i));
    f->frame.count = count;
    return 0;
}

static void fill_machine(struct watch_frame *f, struct engine *e)
{
    const struct sample *m = &engine_run(e)->machine.last;
    struct frame *o = &f->frame;
    o->total = figure(m, MACHINE_TOTAL);
    o->available = figure(m, MACHINE_AVAILABLE);
    o->swap_total = figure(m, MACHINE_SWAP_TOTAL);
    o->swap_free = figure(m, MACHINE_SWAP_FREE);
    o->limit = figure(m, MACHINE_LIMIT);
    o->limit_used = figure(m, MACHINE_LIMIT_USED);
    o->headroom = (struct frame_bytes){0};
    if (o->limit.known && o->limit_used.known)
        o->headroom = (struct frame_bytes){.known = true,
                                           .bytes = o->limit.bytes > o->limit_used.bytes
                                                        ? o->limit.bytes - o->limit_used.bytes
                                                        : 0};
    o->limit_where = engine_limit(e, &f->limit) == 0 ? f->limit.where : NULL;
    o->psi_known = sample_has(m, MACHINE_PSI_SOME);
    o->psi_some_permyriad = (uint32_t)m->v[MACHINE_PSI_SOME];
    o->psi_full_permyriad = sample_has(m, MACHINE_PSI_FULL) ? (uint32_t)m->v[MACHINE_PSI_FULL] : 0;
    o->tree_low = figure(m, MACHINE_TREE_LOW);
    o->tree_high = figure(m, MACHINE_TREE_HIGH);
}

static void fill_verdict(struct watch_frame *f, struct engine *e)
{
    if (engine_verdict_count(e) == f->judged)
        return;
    f->judged = engine_verdict_count(e);
    verdicts_fini(&f->verdicts);
    bool is_made = judge_verdicts(engine_verdict(e), &f->verdicts) == 0;
    f->frame.verdicts =
        is_made && engine_verdict_known(e) && f->verdicts.has_job ? &f->verdicts : NULL;
    const struct judge_tree *tree = judge_tree(engine_verdict(e));
    f->frame.tree_rate_known = tree && tree->result.rate_bytes_per_min.known;
    f->frame.tree_rate_bytes_per_min =
        f->frame.tree_rate_known ? tree->result.rate_bytes_per_min.value : 0;
}

int watch_frame_fill(struct watch_frame *f, struct engine *e, uint64_t now_ns)
{
    const struct run *run = engine_run(e);
    struct run_entity *const *gpus;
    struct frame *o = &f->frame;
    o->t_ns = now_ns > run->start_mono_ns ? now_ns - run->start_mono_ns : 0;
    o->wall_ns = clock_wall_ns();
    o->interval_ns = engine_interval_ns(e);
    fill_machine(f, e);
    fill_verdict(f, e);
    o->step_known = run->has_step;
    o->step = run->step;
    size_t n = run_living(run, RUN_GPU, &gpus);
    o->gpus = n < FRAME_GPUS ? n : FRAME_GPUS;
    for (size_t i = 0; i < o->gpus; i++) {
        const struct sample *g = &gpus[i]->last;
        o->gpu[i].name = gpus[i]->name;
        o->gpu[i].used = figure(g, GPU_USED);
        o->gpu[i].total = figure(g, GPU_TOTAL);
        o->gpu[i].job = figure(g, GPU_JOB);
    }
    return fill_rows(f, e);
}
