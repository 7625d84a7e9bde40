/* The verdict on each group of a table, and on the job that they are of. */
#include "cli/verdict_csv_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "judge/judge.h"
#include "judge/verdicts.h"

enum { GONE_S = 10 }; /* a group with no row for so long at the end has ended before */

static bool is_alive(const struct judged_table *t, const struct judged_group *g)
{
    double pace = g->rows > 1 ? (g->last_t - g->first_t) / (double)(g->rows - 1) : 0;
    return !t->has_time || t->last_t - g->last_t <= fmax(GONE_S, 3 * pace);
}

static int by_peak(const void *a, const void *b)
{
    const struct judged_group *x = *(const struct judged_group *const *)a;
    const struct judged_group *y = *(const struct judged_group *const *)b;
    if (x->peak_bytes != y->peak_bytes)
        return x->peak_bytes < y->peak_bytes ? 1 : -1;
    int names = strcmp(x->name, y->name);
    return names ? names : (x->last_row > y->last_row) - (x->last_row < y->last_row);
}

/* Processes of one job share its limit; other groups stand alone. */
static bool is_job(const struct judged_table *t)
{
    return !t->options->csv.group || strcasecmp(t->options->csv.group, "pid") == 0;
}

/* Asked for what was known at some time: the table's end is nobody's. */
static bool is_cut(const struct judged_table *t)
{
    return t->options->has_until || t->options->has_until_step;
}

void judged_table_judge(struct judged_table *t)
{
    double alive_bytes = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct judged_group *g = t->groups[i];
        if (!is_alive(t, g))
            continue;
        judged_table_say_before(t, g, HUGE_VAL);
        alive_bytes += (double)g->last_bytes;
    }
    for (size_t i = 0; i < t->count; i++) {
        struct judged_group *g = t->groups[i];
        if (g->n_held && (is_cut(t) || !tail_all_falls(&g->tail)))
            judged_group_feed_held(g);
        if (is_cut(t))
            tail_release(&g->tail, &g->series);
        else
            tail_end(&g->tail, &g->series);
    }
    for (size_t i = 0; i < t->count; i++) {
        struct judged_group *g = t->groups[i];
        double others = is_job(t) && is_alive(t, g) ? alive_bytes - (double)g->last_bytes : 0;
        const struct verdict_limit limit = {.known = t->options->limit_bytes > 0,
                                            .limit_bytes = t->options->limit_bytes,
                                            .other_bytes = others > 0 ? (uint64_t)others : 0};
        verdict_judge(&g->series, &limit, &g->result);
    }
}

static int set_group(struct judged *a, const struct judged_table *t, const struct judged_group *g)
{
    a->has_pid = is_job(t) && g->pid > 0;
    a->pid = g->pid;
    a->alive = is_alive(t, g);
    a->has_rss = g->rows > 0;
    a->rss_bytes = g->last_bytes;
    a->name = strdup(g->name);
    return a->name ? 0 : -ENOMEM;
}

static double offset_s(const struct judged_table *t, const struct judged_group *g)
{
    return t->has_time ? g->first_t - t->first_t : 0;
}

static bool stands_for_job(const struct judged_table *t, const struct judged_group *g)
{
    if (g->rows == 0)
        return false;
    return is_alive(t, g) || (g->last_t - g->first_t >= (t->last_t - t->first_t) / 2 &&
                              g->peak_bytes >= t->groups[0]->peak_bytes / 2);
}

static int set_job(const struct judged_table *t, struct verdicts *v)
{
    AUTO_FREE struct verdict_member *members = calloc(t->count + 1, sizeof *members);
    AUTO_FREE const struct judged_group **of =
        calloc(t->count + 1, sizeof(const struct judged_group *));
    struct verdict_tree_result tree;
    struct verdict_result result;
    size_t n = 0;
    if (!members || !of)
        return -ENOMEM;
    for (size_t i = 0; i < t->count; i++) {
        const struct judged_group *g = t->groups[i];
        if (!stands_for_job(t, g))
            continue;
        of[n] = g;
        members[n++] = (struct verdict_member){
            .result = &g->result, .rss_bytes = (double)g->last_bytes, .alive = true};
    }
    size_t figures = judge_tree_result(members, n, NULL, &tree, &result);
    v->has_job = true;
    v->growing = tree.growers;
    v->n_flat = tree.n_flat;
    memcpy(v->flat, tree.flat, sizeof v->flat);
    v->has_grower = tree.has_grower && tree.grower < n;
    if (v->has_grower && set_group(&v->grower, t, of[tree.grower]) < 0)
        return -ENOMEM;
    return judged_set_result(&v->job, &result, figures < n ? offset_s(t, of[figures]) : 0);
}

static int set_groups(const struct judged_table *t, struct verdicts *v)
{
    size_t listed = t->count < VERDICTS_LISTED ? t->count : VERDICTS_LISTED;
    for (size_t i = 0; i < listed; i++) {
        const struct judged_group *g = t->groups[i];
        struct judged *a = judged_list_add(&v->processes);
        if (!a || set_group(a, t, g) < 0 || judged_set_result(a, &g->result, offset_s(t, g)) < 0)
            return -ENOMEM;
    }
    v->not_judged = t->dropped_groups + t->count - listed;
    v->rows_not_judged = t->dropped_rows;
    return 0;
}

int judged_table_verdicts(struct judged_table *t, struct verdicts *ret)
{
    struct verdicts v = {.is_series = t->count == 1 && t->dropped_groups == 0};
    int r = 0;
    qsort(t->groups, t->count, sizeof(struct judged_group *), by_peak);
    v.has_job = v.is_series;
    if (v.is_series)
        r = judged_set_result(&v.job, &t->groups[0]->result, 0);
    else if (is_job(t))
        r = set_job(t, &v);
    if (r == 0 && !v.is_series)
        r = set_groups(t, &v);
    if (r < 0)
        verdicts_fini(&v);
    else
        *ret = v;
    return r;
}
