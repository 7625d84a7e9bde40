/* What comes of it: verdicts on each, on the tree, on GPUs, and again from a recording. */
#include "judge/judge_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "trace/reader.h"

/* Those that went so shortly before the end are part of it. */
enum { JUST_GONE_S = 10 };

size_t judge_tree_result(const struct verdict_member *members, size_t n,
                         const struct verdict_result *whole, struct verdict_tree_result *ret_tree,
                         struct verdict_result *ret)
{
    size_t of = n;
    verdict_tree_judge(members, n, whole, ret_tree);
    if (whole && (n == 0 || whole->word == ret_tree->word)) {
        *ret = *whole;
    } else if (n > 0) {
        of = ret_tree->grower < n ? ret_tree->grower : 0;
        *ret = *members[of].result;
        if (ret_tree->has_grower && ret_tree->leak == VERDICT_LEAK_YES)
            verdict_tree_sum(members, n, of, ret);
        if (whole && whole->has_floor) {
            ret->has_floor = true;
            ret->floor_first_bytes = whole->floor_first_bytes;
            ret->floor_last_bytes = whole->floor_last_bytes;
            ret->peak_bytes = whole->peak_bytes;
            ret->mean_bytes = whole->mean_bytes;
            ret->samples = whole->samples;
        }
    } else {
        *ret = (struct verdict_result){.n_evidence = 1, .evidence = {{.code = VERDICT_SAID_EMPTY}}};
    }
    if (n > 0) {
        ret->word = ret_tree->word;
        ret->leak = ret_tree->leak;
        ret->confidence = ret_tree->confidence;
    }
    return of;
}

bool judge_is_just_now(const struct judge *j, uint64_t t_ns)
{
    return t_ns + JUST_GONE_S * NS_PER_S >= j->tick_ns;
}

bool judge_just_went(const struct judge *j, const struct judge_process *p)
{
    return !p->died_ns || judge_is_just_now(j, p->died_ns);
}

/* Does one that has gone still stand for the job? If it went with the end, or was most of it. */
static bool stands_for_job(const struct judge *j, const struct judge_process *p)
{
    uint64_t run_ns = j->tick_ns - j->first_tick_ns;
    if (judge_just_went(j, p))
        return true;
    return p->died_ns - p->born_ns >= run_ns / 2 && p->peak_bytes >= j->tree_peak_bytes / 2;
}

static int by_peak(const void *a, const void *b)
{
    const struct judge_process *x = *(const struct judge_process *const *)a;
    const struct judge_process *y = *(const struct judge_process *const *)b;
    if (x->peak_bytes != y->peak_bytes)
        return x->peak_bytes < y->peak_bytes ? 1 : -1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

static bool list(struct judge *j)
{
    if (!j->listed)
        j->listed = calloc(JUDGE_LIVING + JUDGE_GONE, sizeof(const struct judge_process *));
    j->listed_count = 0;
    if (!j->listed)
        return false;
    for (size_t i = 0; i < j->count && j->listed_count < JUDGE_LIVING; i++)
        if (j->living[i]->seat && j->living[i]->seat->has_first)
            j->listed[j->listed_count++] = j->living[i];
    for (size_t i = 0; i < j->gone_count; i++)
        j->listed[j->listed_count++] = j->gone[i];
    if (j->listed_count > 1)
        qsort(j->listed, j->listed_count, sizeof(const struct judge_process *), by_peak);
    return true;
}

static void judge_whole(struct judge *j)
{
    if (!j->whole || !j->whole->has_first)
        return;
    judge_series_judge(j->whole, &j->whole_limit);
    if (j->apart && j->apart->has_first && j->listed_count > 0)
        verdict_hear_apart(&j->whole->result, &j->whole->series, &j->apart->series);
}

static void work_out_tree(struct judge *j)
{
    struct verdict_member members[JUDGE_LIVING + JUDGE_GONE];
    const struct judge_process *process[JUDGE_LIVING + JUDGE_GONE];
    size_t n = 0;
    judge_whole(j);
    const struct judge_series *whole = j->whole && j->whole->is_judged ? j->whole : NULL;
    for (size_t i = 0; i < j->listed_count; i++) {
        const struct judge_process *p = j->listed[i];
        if (!stands_for_job(j, p) || judge_was_replaced(j, p))
            continue;
        if (whole)
            judge_figure_tell_whole(j, p);
        process[n] = p;
        members[n++] = (struct verdict_member){.result = &p->seat->result,
                                               .role = (int)p->role,
                                               .rss_bytes = (double)p->rss_bytes,
                                               .has_unique = p->has_unique,
                                               .alive = true,
                                               .takes_turns = judge_takes_turns(j, p),
                                               .unique_bytes = (double)p->unique_bytes};
    }
    struct judge_tree *t = &j->tree;
    size_t of = judge_tree_result(members, n, whole ? &whole->result : NULL, &t->of, &t->result);
    t->grower = t->of.has_grower && t->of.grower < n ? process[t->of.grower] : NULL;
    t->first_ns = of < n ? process[of]->seat->first_ns : whole ? whole->first_ns : 0;
    j->has_tree = n > 0 || whole;
}

static void hear_live_heap(struct judge *j, struct judge_process *p)
{
    bool is_told = judge_figure_tell(j, p);
    if (!is_told || (p->seat && p->seat->result.leak == VERDICT_LEAK_UNKNOWN))
        judge_held_tell(j, p);
}

void judge_update(struct judge *j)
{
    for (size_t i = 0; i < j->count; i++) {
        struct judge_series *s = j->living[i]->seat;
        if (!s || !s->has_first)
            continue;
        struct verdict_limit limit = judge_limit_for(j, s->last_bytes);
        judge_series_judge(s, &limit);
    }
    for (size_t i = 0; i < JUDGE_GPUS; i++) {
        struct judge_gpu *g = &j->gpu[i];
        if (!g->seat || !g->seat->has_first)
            continue;
        uint64_t own = g->seat->last_bytes;
        struct verdict_limit limit = {.known = g->total_bytes > 0,
                                      .limit_bytes = g->total_bytes,
                                      .other_bytes = g->used_bytes > own ? g->used_bytes - own : 0};
        judge_series_judge(g->seat, &limit);
    }
    judge_figure_judge(j);
    for (size_t i = 0; i < j->count; i++)
        hear_live_heap(j, j->living[i]);
    for (size_t i = 0; i < j->gone_count; i++)
        hear_live_heap(j, j->gone[i]);
    if (list(j))
        work_out_tree(j);
    judge_forget_when(j);
}

const struct judge_tree *judge_tree(const struct judge *j)
{
    return j->has_tree ? &j->tree : NULL;
}

size_t judge_process_count(const struct judge *j)
{
    return j->listed_count;
}

const struct judge_process *judge_process_at(const struct judge *j, size_t i)
{
    return j->listed[i];
}

uint64_t judge_left_out(const struct judge *j)
{
    return j->seen > j->listed_count ? j->seen - j->listed_count : 0;
}

const struct judge_gpu *judge_gpu_next(const struct judge *j, size_t *at)
{
    while (*at < JUDGE_GPUS) {
        const struct judge_gpu *g = &j->gpu[(*at)++];
        if (g->seat && g->seat->is_judged)
            return g;
    }
    return NULL;
}

uint64_t judge_start_ns(const struct judge *j)
{
    return j->options.start_ns ? j->options.start_ns : j->first_tick_ns;
}

void judge_changes(struct judge *j, judge_change_fn *fn, void *user)
{
    if (j->has_tree && j->tree.result.word != j->told) {
        fn(user, NULL, j->told, &j->tree.result);
        j->told = j->tree.result.word;
    }
    for (size_t i = 0; i < j->count; i++) {
        struct judge_process *p = j->living[i];
        if (!p->seat || !p->seat->is_judged || p->seat->result.word == p->told)
            continue;
        fn(user, p, p->told, &p->seat->result);
        p->told = p->seat->result.word;
    }
}

/* ---- a recording ---- */

static void replay_tick(struct judge *j, const struct trace_item *item)
{
    judge_tick_begin(j, item->t_ns);
    for (size_t i = 0; i < item->tick.count; i++) {
        const struct trace_row *row = &item->tick.rows[i];
        judge_sample(j, row->kind, row->id, row->name, &row->sample);
    }
    judge_tick_end(j);
}

static void seat_end(struct judge_series *s, bool is_cut)
{
    if (s && is_cut)
        tail_release(&s->tail, &s->series);
    else if (s)
        tail_end(&s->tail, &s->series);
}

/* A table does not tell who dies, so its end may be theirs. */
static void table_end(struct judge *j, bool is_cut)
{
    for (size_t i = 0; j->options.is_table && i < j->count; i++)
        seat_end(j->living[i]->seat, is_cut);
    if (j->options.is_table)
        seat_end(j->whole, is_cut);
}

int judge_replay(struct judge *j, struct trace_reader *reader, uint64_t until_ns, struct err *err)
{
    struct trace_item item;
    int r;
    while ((r = trace_reader_next(reader, &item)) > 0) {
        if (item.t_ns > until_ns) {
            table_end(j, true);
            return 0;
        }
        if (item.kind == TRACE_TICK)
            replay_tick(j, &item);
        else if (item.kind == TRACE_PROCESS)
            judge_process_event(j, item.t_ns, item.process.event, item.process.slot,
                                item.process.info);
        else if (item.kind == TRACE_MARK)
            judge_mark(j, &item.mark);
        else if (item.kind == TRACE_NOTE)
            judge_note(j, item.note.kind, item.note.text, item.note.len);
    }
    table_end(j, r < 0);
    return r < 0 ? err_set(err, r, "cannot read the recording: %s", strerror(-r)) : 0;
}
