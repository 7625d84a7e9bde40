/* The verdict on each group of a table, on the job that they are of, and both as JSON. */
#include "cli/verdict_csv_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "judge/judge.h"
#include "judge/judge_json.h"

enum {
    GROUPS_LISTED = 64,
    GONE_S = 10, /* a group with no row for so long at the end has ended before */
};

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

static json_t *group_json(const struct judged_table *t, const struct judged_group *g)
{
    json_t *o = json_object();
    json_t *result = judge_result_json(&g->result, t->has_time ? g->first_t - t->first_t : 0);
    if (is_job(t) && g->pid > 0)
        json_object_set_new(o, "pid", json_integer(g->pid));
    json_object_set_new(o, "group", json_text(g->name, g->len));
    json_object_set_new(o, "name", json_text(g->name, g->len));
    json_object_set_new(o, "alive", json_boolean(is_alive(t, g)));
    json_object_set_new(o, "rss_bytes", g->rows ? json_u64(g->last_bytes) : json_null());
    json_object_set_new(o, "unique_bytes", json_null());
    json_object_update(o, result);
    json_decref(result);
    return o;
}

static bool stands_for_job(const struct judged_table *t, const struct judged_group *g)
{
    if (g->rows == 0)
        return false;
    return is_alive(t, g) || (g->last_t - g->first_t >= (t->last_t - t->first_t) / 2 &&
                              g->peak_bytes >= t->groups[0]->peak_bytes / 2);
}

static json_t *tree_json(const struct judged_table *t)
{
    struct verdict_member *members = calloc(t->count + 1, sizeof *members);
    const struct judged_group **of = calloc(t->count + 1, sizeof(const struct judged_group *));
    struct verdict_tree_result tree;
    struct verdict_result result;
    size_t n = 0;
    json_t *o = NULL;
    for (size_t i = 0; members && of && i < t->count; i++) {
        const struct judged_group *g = t->groups[i];
        if (!stands_for_job(t, g))
            continue;
        of[n] = g;
        members[n++] = (struct verdict_member){
            .result = &g->result, .rss_bytes = (double)g->last_bytes, .alive = true};
    }
    if (members && of) {
        size_t figures = judge_tree_result(members, n, NULL, &tree, &result);
        o = judge_result_json(&result,
                              t->has_time && figures < n ? of[figures]->first_t - t->first_t : 0);
        const struct judged_group *g = tree.has_grower && tree.grower < n ? of[tree.grower] : NULL;
        json_t *grower = g ? json_pack("{s:o}", "name", json_text(g->name, g->len)) : NULL;
        if (g && g->pid > 0)
            json_object_set_new(grower, "pid", json_integer(g->pid));
        judge_tree_json_add(o, &tree, grower);
    }
    free(members);
    free(of);
    return o ? o : json_null();
}

json_t *judged_table_json(struct judged_table *t)
{
    if (t->count == 1 && t->dropped_groups == 0)
        return judge_result_json(&t->groups[0]->result, 0);
    qsort(t->groups, t->count, sizeof(struct judged_group *), by_peak);
    size_t listed = t->count < GROUPS_LISTED ? t->count : GROUPS_LISTED;
    json_t *list = json_array();
    for (size_t i = 0; i < listed; i++)
        json_array_append_new(list, group_json(t, t->groups[i]));
    json_t *doc =
        json_pack("{s:o,s:o,s:[],s:o}", "tree", is_job(t) ? tree_json(t) : json_null(), "processes",
                  list, "gpus", "not_judged", json_u64(t->dropped_groups + t->count - listed));
    if (doc && t->dropped_groups)
        json_object_set_new(doc, "rows_not_judged", json_u64(t->dropped_rows));
    return doc;
}
