/* Copies the judge's verdicts into plain data. */
#include "judge/verdicts.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "judge/judge_private.h"

void judged_fini(struct judged *a)
{
    for (size_t i = 0; i < a->n_reasons; i++)
        free(a->reasons[i]);
    free(a->reasons);
    free(a->name);
    free(a->label);
    free(a->where);
    *a = (struct judged){0};
}

static void judged_list_fini(struct judged_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        judged_fini(&list->at[i]);
    free(list->at);
}

void verdicts_fini(struct verdicts *v)
{
    judged_fini(&v->job);
    judged_fini(&v->grower);
    judged_list_fini(&v->processes);
    judged_list_fini(&v->gpus);
    judged_list_fini(&v->figures);
    *v = (struct verdicts){0};
}

struct judged *judged_list_add(struct judged_list *list)
{
    struct judged *at = reallocarray(list->at, list->count + 1, sizeof *at);
    if (!at)
        return NULL;
    list->at = at;
    at[list->count] = (struct judged){0};
    return &at[list->count++];
}

int judged_set_result(struct judged *a, const struct verdict_result *result, double offset_s)
{
    char text[VERDICT_TEXT_MAX];
    a->result = *result;
    a->result.growth_ended.t_s += offset_s;
    a->result.forecast.decided_at_s += offset_s;
    a->result.onset_s += offset_s;
    a->reasons = calloc(VERDICT_EVIDENCE, sizeof(char *));
    for (uint32_t i = 0; a->reasons && i < result->n_evidence && i < VERDICT_EVIDENCE; i++) {
        verdict_evidence_text(text, sizeof text, &result->evidence[i]);
        if (!text[0])
            continue;
        a->reasons[a->n_reasons] = strdup(text);
        if (!a->reasons[a->n_reasons])
            return -ENOMEM;
        a->n_reasons++;
    }
    return a->reasons ? 0 : -ENOMEM;
}

/* Sets the process of A. In a table, the number of a group is a pid only if the groups are
 * processes of one job. */
static int judged_set_process(struct judged *a, const struct judge *j, const struct run_entity *p)
{
    const struct judge_entity *known = judge_known(p);
    assert(known); /* list_processes lists only processes with a judge_entity */
    a->has_role = !known->rows;
    a->pid = p->info.id.pid;
    a->has_pid = a->has_role || (j->run && j->run->table.is_job && a->pid > 0);
    a->start_ticks = p->info.id.start_ticks;
    a->role = p->info.role;
    a->alive = !p->is_dead;
    a->has_rss = known->has_rss;
    a->has_unique = known->has_unique;
    a->rss_bytes = known->rss_bytes;
    a->unique_bytes = known->unique_bytes;
    a->name = known->rows ? strndup(p->info.cmdline, p->info.cmdline_len) : strdup(p->name);
    return a->name ? 0 : -ENOMEM;
}

static int verdicts_set_job(struct verdicts *v, const struct judge *j)
{
    const struct judge_tree *t = judge_tree(j);
    if (!t)
        return 0;
    v->has_job = true;
    v->growing = t->of.growers;
    v->n_flat = t->of.n_flat;
    memcpy(v->flat, t->of.flat, sizeof v->flat);
    v->has_grower = t->grower;
    int r = t->grower ? judged_set_process(&v->grower, j, t->grower) : 0;
    if (r == 0)
        r = judged_set_result(&v->job, &t->result, (double)(int64_t)t->first_ns / NS_PER_S);
    /* The peak of the run replaces that of the verdict, which misses the time before its first
     * sample and the time between samples. */
    if (run_peak(j->run))
        v->job.result.peak_bytes = (double)run_peak(j->run);
    return r;
}

/* Appends E's name and its verdict to LIST. */
static int verdicts_add(struct judged_list *list, const struct judge *j, const struct run_entity *e)
{
    const struct judge_series *s = judge_known(e)->series;
    struct judged *a = judged_list_add(list);
    if (!a || judged_set_result(a, &s->result, (double)(int64_t)s->first_ns / NS_PER_S) < 0)
        return -ENOMEM;
    if (e->kind == RUN_PROCESS)
        return judged_set_process(a, j, e);
    a->name = strdup(e->name);
    a->gpu = e->kind == RUN_GPU ? e->id : 0;
    if (e->kind == RUN_FIGURE) {
        a->has_pid = e->info.id.pid > 0;
        a->pid = e->info.id.pid;
        a->alive = !e->is_dead;
        a->label = strdup(judge_figure_label(e));
    }
    return a->name && (a->label || e->kind == RUN_GPU) ? 0 : -ENOMEM;
}

static int verdicts_add_processes(struct verdicts *v, const struct judge *j)
{
    size_t n = j->listed_count, listed = n < VERDICTS_LISTED ? n : VERDICTS_LISTED;
    uint64_t seen = j->run ? j->run->processes_seen : 0;
    int r = 0;
    for (size_t i = 0; i < listed && r == 0; i++)
        r = verdicts_add(&v->processes, j, j->listed[i]);
    v->not_judged = seen > listed ? seen - listed : 0;
    return r;
}

static int by_number(const void *a, const void *b)
{
    const struct run_entity *x = *(const struct run_entity *const *)a;
    const struct run_entity *y = *(const struct run_entity *const *)b;
    return (x->id > y->id) - (x->id < y->id);
}

static int verdicts_add_kind(struct judged_list *list, const struct judge *j, enum run_kind kind)
{
    struct run_entity *e;
    size_t n = 0, most = j->run ? j->run->living.count + j->run->dead.count : 0;
    const struct run_entity **all = calloc(most + 1, sizeof(struct run_entity *));
    int r = all ? 0 : -ENOMEM;
    for (size_t at = 0; r == 0 && j->run && (e = judge_next(j, kind, &at));)
        if (judge_result(e))
            all[n++] = e;
    if (n > 1)
        qsort(all, n, sizeof(struct run_entity *), by_number);
    for (size_t i = 0; i < n && r == 0; i++)
        r = verdicts_add(list, j, all[i]);
    free((void *)(uintptr_t)all);
    return r;
}

int judge_verdicts(const struct judge *j, struct verdicts *ret)
{
    const struct judge_earlier *earlier = &j->earlier_leak;
    struct verdicts v = {.segment = j->segment,
                         .has_earlier_leak = earlier->is_known,
                         .earlier_segment = earlier->segment,
                         .earlier_leak = earlier->result};
    const struct run_table *table = j->run ? &j->run->table : NULL;
    int r = 0;
    v.is_series = table && table->is_rows && j->run->processes_seen == 1 && j->listed_count == 1;
    v.rows_not_judged = table ? table->dropped_rows : 0;
    if (v.is_series) {
        v.has_job = true;
        r = judged_set_result(&v.job, judge_result(j->listed[0]), 0);
    } else {
        r = verdicts_set_job(&v, j);
    }
    if (r == 0)
        r = verdicts_add_processes(&v, j);
    if (r == 0)
        r = verdicts_add_kind(&v.gpus, j, RUN_GPU);
    if (r == 0)
        r = verdicts_add_kind(&v.figures, j, RUN_FIGURE);
    if (r < 0)
        verdicts_fini(&v);
    else
        *ret = v;
    return r;
}

json_t *judge_json(const struct judge *j)
{
    struct verdicts v = {0};
    json_t *doc = judge_verdicts(j, &v) == 0 ? verdicts_json(&v) : NULL;
    verdicts_fini(&v);
    return doc;
}

json_t *judge_tree_json(const struct judge *j)
{
    struct verdicts v = {0};
    json_t *doc = judge_verdicts(j, &v) == 0 ? verdicts_job_json(&v) : NULL;
    verdicts_fini(&v);
    return doc;
}

enum verdict_word verdicts_gpu_word(const struct verdicts *v)
{
    enum verdict_word worst = v->gpus.count ? v->gpus.at[0].result.word : VERDICT_UNDECIDED;
    for (size_t i = 1; i < v->gpus.count; i++)
        if (verdict_word_severity(v->gpus.at[i].result.word) > verdict_word_severity(worst))
            worst = v->gpus.at[i].result.word;
    return worst;
}
