/* Writes the verdicts on a run as JSON and reads them back. */
#include "judge/verdicts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "verdict/verdict_json.h"

static json_t *reasons_json(const struct judged *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_reasons; i++)
        json_array_append_new(list, json_text0(a->reasons[i]));
    return list;
}

void judged_json_add(json_t *o, const struct judged *a)
{
    verdict_json_add(o, &a->result);
    json_object_set_new(o, "evidence", reasons_json(a));
}

static json_t *costs_json(const struct verdicts *v)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->n_flat; i++) {
        const struct verdict_cost *c = &v->flat[i];
        json_array_append_new(
            list,
            json_pack("{s:s,s:o,s:o,s:o}", "role", process_role_name((enum process_role)c->role),
                      "count", json_u64(c->count), "rss_bytes", json_count(c->rss_bytes),
                      "unique_bytes", c->unique_known ? json_count(c->unique_bytes) : json_null()));
    }
    return list;
}

/* Returns the name of a process, and its pid and role if they are known. Tables have no roles. */
static json_t *identity_json(const struct judged *a)
{
    json_t *o = json_pack("{s:o}", "name", json_text0(a->name));
    if (a->has_pid)
        json_object_set_new(o, "pid", json_integer(a->pid));
    if (a->has_role)
        json_object_set_new(o, "role", json_string(process_role_name(a->role)));
    return o;
}

json_t *verdicts_job_json(const struct verdicts *v)
{
    if (!v->has_job)
        return json_null();
    json_t *o = json_object();
    judged_json_add(o, &v->job);
    json_object_set_new(o, "grower", v->has_grower ? identity_json(&v->grower) : json_null());
    json_object_set_new(o, "growing", json_u64(v->growing));
    json_object_set_new(o, "flat", costs_json(v));
    return o;
}

static json_t *process_json(const struct judged *a)
{
    json_t *o = identity_json(a);
    if (a->has_role)
        json_object_set_new(o, "start_ticks", json_u64(a->start_ticks));
    else
        json_object_set_new(o, "group", json_text0(a->name));
    json_object_set_new(o, "alive", json_boolean(a->alive));
    json_object_set_new(o, "rss_bytes", a->has_rss ? json_u64(a->rss_bytes) : json_null());
    json_object_set_new(o, "unique_bytes", a->has_unique ? json_u64(a->unique_bytes) : json_null());
    judged_json_add(o, a);
    return o;
}

static json_t *gpu_json(const struct judged *a)
{
    json_t *o = json_pack("{s:i,s:o}", "gpu", (int)a->gpu, "name", json_text0(a->name));
    judged_json_add(o, a);
    return o;
}

static json_t *figure_json(const struct judged *a)
{
    json_t *o =
        json_pack("{s:o,s:o,s:o,s:b}", "name", json_text0(a->name), "label", json_text0(a->label),
                  "pid", a->has_pid ? json_integer(a->pid) : json_null(), "alive", (int)a->alive);
    judged_json_add(o, a);
    return o;
}

static json_t *list_json(const struct judged_list *list, json_t *one(const struct judged *a))
{
    json_t *array = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(array, one(&list->at[i]));
    return array;
}

json_t *verdicts_json(const struct verdicts *v)
{
    if (v->is_series) {
        json_t *o = json_object();
        judged_json_add(o, &v->job);
        return o;
    }
    json_t *o = json_pack(
        "{s:o,s:o,s:o,s:o,s:o}", "tree", verdicts_job_json(v), "processes",
        list_json(&v->processes, process_json), "gpus", list_json(&v->gpus, gpu_json), "series",
        list_json(&v->figures, figure_json), "not_judged", json_u64(v->not_judged));
    if (v->rows_not_judged)
        json_object_set_new(o, "rows_not_judged", json_u64(v->rows_not_judged));
    if (!v->segment)
        return o;
    json_t *leak = json_null();
    if (v->has_earlier_leak) {
        leak = json_pack("{s:i}", "segment", (int)v->earlier_segment);
        verdict_json_add_word(leak, &v->earlier_leak);
    }
    json_object_set_new(o, "segment", json_integer(v->segment));
    json_object_set_new(o, "earlier_leak", leak);
    return o;
}

/* ---- reading ---- */

static bool read_small(const json_t *o, const char *key, uint32_t *ret)
{
    uint64_t n;
    if (!verdict_read_count(o, key, &n) || n > INT32_MAX)
        return false;
    *ret = (uint32_t)n;
    return true;
}

static enum process_role read_role(const json_t *o)
{
    const char *text = json_string_value(json_object_get(o, "role"));
    for (int i = 0; text && i < ROLE_COUNT; i++)
        if (strcmp(text, process_role_name((enum process_role)i)) == 0)
            return (enum process_role)i;
    return ROLE_OTHER;
}

/* Copies the string V, or sets *RET to NULL if V is not a string. Returns 0 or -ENOMEM. */
static int read_text(const json_t *v, char **ret)
{
    const char *text = json_string_value(v);
    *ret = text ? strdup(text) : NULL;
    return text && !*ret ? -ENOMEM : 0;
}

static int read_judged(const json_t *o, struct judged *a)
{
    const json_t *reasons = json_object_get(o, "evidence"), *reason;
    uint32_t pid = 0;
    size_t i;
    verdict_read(o, &a->result);
    a->has_pid = read_small(o, "pid", &pid);
    a->pid = (int32_t)pid;
    read_small(o, "gpu", &a->gpu);
    verdict_read_count(o, "start_ticks", &a->start_ticks);
    a->has_role = json_is_string(json_object_get(o, "role"));
    a->role = read_role(o);
    a->alive = json_is_true(json_object_get(o, "alive"));
    a->has_rss = verdict_read_count(o, "rss_bytes", &a->rss_bytes);
    a->has_unique = verdict_read_count(o, "unique_bytes", &a->unique_bytes);
    int r = read_text(json_object_get(o, "name"), &a->name);
    if (r == 0)
        r = read_text(json_object_get(o, "label"), &a->label);
    a->reasons = calloc(VERDICT_EVIDENCE, sizeof(char *));
    if (r < 0 || !a->reasons)
        return -ENOMEM;
    json_array_foreach(reasons, i, reason)
    {
        if (!json_is_string(reason) || a->n_reasons == VERDICT_EVIDENCE)
            continue;
        if (read_text(reason, &a->reasons[a->n_reasons]) < 0)
            return -ENOMEM;
        a->n_reasons++;
    }
    return 0;
}

static int read_list(const json_t *array, struct judged_list *list)
{
    const json_t *one;
    size_t i;
    json_array_foreach(array, i, one)
    {
        if (!json_is_object(one) || list->count == VERDICTS_LISTED)
            continue;
        struct judged *a = judged_list_add(list);
        if (!a || read_judged(one, a) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int read_job(const json_t *tree, struct verdicts *v)
{
    const json_t *grower = json_object_get(tree, "grower"), *cost;
    uint64_t n = 0;
    size_t i;
    v->has_job = json_is_object(tree);
    if (!v->has_job)
        return 0;
    verdict_read_count(tree, "growing", &v->growing);
    json_array_foreach(json_object_get(tree, "flat"), i, cost)
    {
        if (v->n_flat == VERDICT_TREE_ROLES || !verdict_read_count(cost, "count", &n))
            continue;
        struct verdict_cost *c = &v->flat[v->n_flat++];
        c->role = (int)read_role(cost);
        c->count = n;
        c->rss_bytes = verdict_read_count(cost, "rss_bytes", &n) ? (double)n : 0;
        c->unique_known = verdict_read_count(cost, "unique_bytes", &n);
        c->unique_bytes = c->unique_known ? (double)n : 0;
    }
    v->has_grower = json_is_object(grower);
    int r = v->has_grower ? read_judged(grower, &v->grower) : 0;
    return r < 0 ? r : read_judged(tree, &v->job);
}

int verdicts_read(const json_t *doc, struct verdicts *ret)
{
    struct verdicts v = {.is_series = json_object_get(doc, "verdict")};
    const json_t *leak = json_object_get(doc, "earlier_leak");
    if (!json_is_object(doc))
        return -EINVAL;
    int r = read_job(v.is_series ? doc : json_object_get(doc, "tree"), &v);
    if (r == 0)
        r = read_list(json_object_get(doc, "processes"), &v.processes);
    if (r == 0)
        r = read_list(json_object_get(doc, "gpus"), &v.gpus);
    if (r == 0)
        r = read_list(json_object_get(doc, "series"), &v.figures);
    if (r < 0) {
        verdicts_fini(&v);
        return r;
    }
    verdict_read_count(doc, "not_judged", &v.not_judged);
    verdict_read_count(doc, "rows_not_judged", &v.rows_not_judged);
    read_small(doc, "segment", &v.segment);
    v.has_earlier_leak = json_is_object(leak);
    read_small(leak, "segment", &v.earlier_segment);
    verdict_read_word(leak, &v.earlier_leak);
    *ret = v;
    return 0;
}
