/* Verdicts as plain data, from the judge. */
#include "judge/verdicts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "judge/judge.h"

void judged_fini(struct judged *a)
{
    for (size_t i = 0; i < a->n_reasons; i++)
        free(a->reasons[i]);
    free(a->reasons);
    free(a->name);
    free(a->label);
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

static double judge_offset_s(const struct judge *j, uint64_t first_ns)
{
    return ((double)first_ns - (double)judge_start_ns(j)) / (double)NS_PER_S;
}

static int judged_set_process(struct judged *a, const struct judge_process *p)
{
    a->has_pid = a->has_role = true;
    a->pid = p->id.pid;
    a->start_ticks = p->id.start_ticks;
    a->role = p->role;
    a->alive = p->died_ns == 0;
    a->has_rss = p->has_rss;
    a->has_unique = p->has_unique;
    a->rss_bytes = p->rss_bytes;
    a->unique_bytes = p->unique_bytes;
    a->name = strndup(p->name, p->name_len);
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
    int r = t->grower ? judged_set_process(&v->grower, t->grower) : 0;
    return r < 0 ? r : judged_set_result(&v->job, &t->result, judge_offset_s(j, t->first_ns));
}

static int verdicts_add(struct judged_list *list, const struct judge *j,
                        const struct judge_series *s, struct judged **ret)
{
    *ret = judged_list_add(list);
    return *ret ? judged_set_result(*ret, &s->result, judge_offset_s(j, s->first_ns)) : -ENOMEM;
}

static int verdicts_add_processes(struct verdicts *v, const struct judge *j)
{
    size_t n = judge_process_count(j), listed = n < VERDICTS_LISTED ? n : VERDICTS_LISTED;
    int r = 0;
    for (size_t i = 0; i < listed && r == 0; i++) {
        const struct judge_process *p = judge_process_at(j, i);
        struct judged *a;
        r = verdicts_add(&v->processes, j, p->seat, &a);
        if (r == 0)
            r = judged_set_process(a, p);
    }
    v->not_judged = judge_left_out(j) + n - listed;
    return r;
}

static int verdicts_add_gpus(struct verdicts *v, const struct judge *j)
{
    const struct judge_gpu *g;
    size_t at = 0;
    int r = 0;
    while (r == 0 && (g = judge_gpu_next(j, &at))) {
        struct judged *a;
        r = verdicts_add(&v->gpus, j, g->seat, &a);
        if (r < 0)
            break;
        a->gpu = g->id;
        a->name = strdup(g->name);
        r = a->name ? 0 : -ENOMEM;
    }
    return r;
}

static int verdicts_add_figures(struct verdicts *v, const struct judge *j)
{
    const struct judge_figure *f;
    size_t at = 0;
    int r = 0;
    while (r == 0 && (f = judge_figure_next(j, &at))) {
        struct judged *a;
        r = verdicts_add(&v->figures, j, f->seat, &a);
        if (r < 0)
            break;
        a->has_pid = f->pid > 0;
        a->pid = f->pid;
        a->alive = !f->is_gone;
        a->name = strdup(f->name);
        a->label = strdup(judge_figure_label(f));
        r = a->name && a->label ? 0 : -ENOMEM;
    }
    return r;
}

int judge_verdicts(const struct judge *j, struct verdicts *ret)
{
    const struct judge_earlier *earlier = judge_earlier_leak(j);
    struct verdicts v = {.segment = judge_segment_now(j), .has_earlier_leak = earlier};
    if (earlier) {
        v.earlier_segment = earlier->segment;
        v.earlier_leak = earlier->result;
    }
    int r = verdicts_set_job(&v, j);
    if (r == 0)
        r = verdicts_add_processes(&v, j);
    if (r == 0)
        r = verdicts_add_gpus(&v, j);
    if (r == 0)
        r = verdicts_add_figures(&v, j);
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
