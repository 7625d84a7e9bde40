/* Makes the verdicts on each entity and on the job. */
#include "judge/judge_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* A process that exited at most this many seconds before the end of the job is treated as having
 * exited with the job. */
enum { JUST_DIED_S = 10 };

bool judge_is_just_now(const struct judge *j, uint64_t t_ns)
{
    return t_ns + JUST_DIED_S * NS_PER_S >= j->run->tick_ns;
}

/* Returns true if process P represents the job: it is alive, exited at the end of the job, or lived
 * for half of the run and held at least half of the job's peak memory. */
static bool represents_job(const struct judge *j, const struct run_entity *p)
{
    uint64_t run_ns = j->run->tick_ns - j->run->first_tick_ns;
    return !p->is_dead || judge_is_just_now(j, p->died_ns) ||
           (p->died_ns - p->execed_ns >= run_ns / 2 &&
            judge_known(p)->peak_bytes >= j->tree_peak_bytes / 2);
}

static int larger_first(const void *a, const void *b)
{
    const struct run_entity *x = *(const struct run_entity *const *)a;
    const struct run_entity *y = *(const struct run_entity *const *)b;
    uint64_t x_peak = judge_known(x)->peak_bytes, y_peak = judge_known(y)->peak_bytes;
    if (x_peak != y_peak)
        return x_peak < y_peak ? 1 : -1;
    int names = judge_known(x)->rows ? strcmp(x->name, y->name) : 0;
    return names ? names : (x->id > y->id) - (x->id < y->id);
}

static bool list_processes(struct judge *j)
{
    struct run_entity *const *living;
    size_t at = 0, most = judge_living(j, &living) + j->run->dead.count + 1;
    j->listed_count = 0;
    if (most > j->listed_cap) {
        void *listed =
            reallocarray((void *)(uintptr_t)j->listed, most, sizeof(struct run_entity *));
        if (!listed)
            return false;
        j->listed = listed;
        j->listed_cap = most;
    }
    for (struct run_entity *e; (e = judge_next(j, RUN_PROCESS, &at));)
        if (judge_series_of(e) || judge_known(e)->rows)
            j->listed[j->listed_count++] = e;
    if (j->listed_count > 1)
        qsort(j->listed, j->listed_count, sizeof(struct run_entity *), larger_first);
    return true;
}

/* Stores the verdict on the job in RET. It is copied from WHOLE, or from the verdict on one
 * process, whose index is returned. Returns N if it was not copied from a process. */
static size_t tree_result(const struct verdict_member *members, size_t n,
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

static void judge_job(struct judge *j)
{
    struct verdict_member *members = calloc(j->listed_count + 1, sizeof *members);
    const struct run_entity **process = calloc(j->listed_count + 1, sizeof(struct run_entity *));
    struct judge_series *whole = j->whole && j->whole->has_first ? j->whole : NULL;
    size_t n = 0;
    if (whole) {
        judge_series_judge(whole, &j->whole_limit);
        if (j->summed && j->summed->has_first && j->listed_count > 0)
            verdict_check_unshared(&whole->result, &whole->series, &j->summed->series);
    }
    for (size_t i = 0; members && process && i < j->listed_count; i++) {
        const struct run_entity *p = j->listed[i];
        const struct judge_entity *a = judge_known(p);
        if (!a->series->has_first || !represents_job(j, p) || judge_was_replaced(j, p))
            continue;
        if (whole)
            judge_figures_apply_whole(j, p);
        process[n] = p;
        members[n++] = (struct verdict_member){.result = &a->series->result,
                                               .role = (int)p->info.role,
                                               .rss_bytes = (double)a->rss_bytes,
                                               .has_unique = a->has_unique,
                                               .alive = true,
                                               .is_replacement = judge_is_replacement(j, p),
                                               .unique_bytes = (double)a->unique_bytes};
    }
    if (whole)
        judge_settle_whole(j);
    struct judge_tree *t = &j->tree;
    size_t of = tree_result(members, n, whole ? &whole->result : NULL, &t->of, &t->result);
    judge_settle_job(j, members, n);
    t->grower = t->of.has_grower && t->of.grower < n ? process[t->of.grower] : NULL;
    t->first_ns = of < n ? judge_known(process[of])->series->first_ns : whole ? whole->first_ns : 0;
    j->has_tree = n > 0 || whole;
    j->own_result = t->result;
    judge_join_segments(j);
    free(members);
    free((void *)(uintptr_t)process);
}

static void series_end(struct judge_series *s, bool is_cut)
{
    if (s && is_cut)
        tail_release(&s->tail, &s->series);
    else if (s)
        tail_end(&s->tail, &s->series);
}

/* Handles the end of a table. A table does not record exits, so its last rows may have been
 * recorded while a process exited. */
static void imported_end(struct judge *j)
{
    struct run_entity *const *living;
    for (size_t i = 0, n = judge_living(j, &living); i < n; i++)
        if (living[i]->observed)
            series_end(judge_known(living[i])->series, j->run->is_cut);
    series_end(j->whole, j->run->is_cut);
}

void judge_update(struct judge *j)
{
    struct run_entity *const *list, *e;
    struct judge_series *s;
    if (!j->run)
        return;
    if (j->run->table.is_rows) {
        judge_table_update(j);
        j->is_closed = true;
        if (list_processes(j))
            judge_job(j);
        j->has_tree = j->run->table.is_job;
        return;
    }
    if (j->run->table.is_imported && !j->is_closed)
        imported_end(j);
    j->is_closed = j->run->table.is_imported;
    for (size_t i = 0, n = judge_living(j, &list); i < n; i++) {
        if (!(s = judge_series_of(list[i])))
            continue;
        struct verdict_limit limit = judge_limit_for(j, s->last_bytes);
        judge_series_judge(s, &limit);
    }
    for (size_t i = 0, n = run_living(j->run, RUN_GPU, &list); i < n; i++) {
        uint64_t total = 0, used = 0;
        if (!(s = judge_series_of(list[i])))
            continue;
        (void)run_value(list[i], GPU_TOTAL, &total);
        (void)run_gpu_used(list[i], &used);
        struct verdict_limit limit = {.known = total > 0,
                                      .limit_bytes = total,
                                      .other_bytes =
                                          used > s->last_bytes ? used - s->last_bytes : 0};
        judge_series_judge(s, &limit);
    }
    judge_figures_judge(j);
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));)
        judge_figures_apply(j, e);
    judge_settle(j);
    if (list_processes(j))
        judge_job(j);
    judge_drop_forecasts(j);
}

const struct judge_tree *judge_tree(const struct judge *j)
{
    return j->has_tree ? &j->tree : NULL;
}

bool judge_has_verdict(const struct judge *j)
{
    const struct verdict_result *r = j->has_tree ? &j->tree.result : NULL;
    return r && !(r->n_evidence && r->evidence[0].code == VERDICT_SAID_EMPTY);
}

void judge_changes(struct judge *j, judge_change_fn *fn, void *user)
{
    struct run_entity *const *living;
    if (j->has_tree && j->tree.result.word != j->noted) {
        fn(user, NULL, j->noted, &j->tree.result);
        j->noted = j->tree.result.word;
    }
    for (size_t i = 0, n = j->run ? judge_living(j, &living) : 0; i < n; i++) {
        const struct verdict_result *r = judge_result(living[i]);
        struct judge_entity *a = judge_known(living[i]);
        if (!r || r->word == a->noted)
            continue;
        fn(user, living[i], a->noted, r);
        a->noted = r->word;
    }
}
