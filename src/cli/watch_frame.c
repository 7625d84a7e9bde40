/* Converts the engine's processes and samples to plain rows. */
#include "cli/watch_frame.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/memory.h"
#include "judge/judge.h"

_Static_assert(sizeof((struct frame *)0)->limit_where == sizeof((struct machine_limit *)0)->where,
               "frame.limit_where is as large as machine_limit.where");

void watch_frame_fini(struct watch_frame *f)
{
    free(f->frame.rows);
    verdicts_fini(&f->verdicts);
    *f = (struct watch_frame){0};
}

static void fill_row(struct frame_row *row, const struct proc_node *node)
{
    const struct run_entity *entity = engine_entity(node);
    *row = (struct frame_row){.slot = node->slot, .info = node->info, .sample = node->sample};
    if (!entity)
        return;
    const struct verdict_result *r = judge_result(entity);
    row->spark_count = series_newest(entity->signal[SAMPLE_RSS], FRAME_SPARK, row->spark);
    if (entity->peak_bytes > row->sample.v[SAMPLE_PEAK])
        sample_put(&row->sample, SAMPLE_PEAK, entity->peak_bytes);
    row->rate_known = r && r->rate_bytes_per_min.known;
    row->rate_bytes_per_min = row->rate_known ? r->rate_bytes_per_min.value : 0;
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

static void fill_machine(struct frame *o, struct engine *e)
{
    struct machine_limit limit;
    o->machine = engine_run(e)->machine.last;
    const struct frame_bytes most = frame_figure(&o->machine, MACHINE_LIMIT);
    const struct frame_bytes used = frame_figure(&o->machine, MACHINE_LIMIT_USED);
    o->headroom = (struct frame_bytes){.known = most.known && used.known};
    if (o->headroom.known && most.bytes > used.bytes)
        o->headroom.bytes = most.bytes - used.bytes;
    o->limit_where[0] = '\0';
    if (engine_limit(e, &limit) == 0)
        memcpy(o->limit_where, limit.where, sizeof limit.where);
}

static void fill_verdict(struct watch_frame *f, struct engine *e)
{
    if (engine_verdict_count(e) == f->judged)
        return;
    f->judged = engine_verdict_count(e);
    verdicts_fini(&f->verdicts);
    bool is_made = judge_verdicts(engine_verdict(e), &f->verdicts) == 0;
    f->frame.verdicts = is_made && judge_has_verdict(engine_verdict(e)) && f->verdicts.has_job
                            ? &f->verdicts
                            : NULL;
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
    fill_machine(o, e);
    fill_verdict(f, e);
    o->step_known = run->has_step;
    o->step = run->step;
    size_t n = run_living(run, RUN_GPU, &gpus);
    o->gpus = n < FRAME_GPUS ? n : FRAME_GPUS;
    for (size_t i = 0; i < o->gpus; i++) {
        snprintf(o->gpu[i].name, sizeof o->gpu[i].name, "%s", gpus[i]->name);
        o->gpu[i].sample = gpus[i]->last;
    }
    return fill_rows(f, e);
}
