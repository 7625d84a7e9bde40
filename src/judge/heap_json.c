/* A profile as JSON, in one form everywhere. */
#include "judge/heap_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "profile/words.h"
#include "verdict/verdict_json.h"

static json_t *bytes_json(double bytes)
{
    return json_u64(bytes > 0 ? (uint64_t)llround(bytes) : 0);
}

static json_t *text_or_null(const char *s)
{
    return s ? json_text0(s) : json_null();
}

static json_t *name_json(const struct name *n)
{
    static const char *const kinds[] = {
        [NAME_PYTHON] = "python", [NAME_NATIVE] = "native", [NAME_UNKNOWN] = "unknown"};
    if (!n)
        return json_null();
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:b,s:b}", "kind", kinds[n->kind], "function",
                     text_or_null(n->function), "file", text_or_null(n->file), "line",
                     n->line ? json_integer(n->line) : json_null(), "lib", text_or_null(n->lib),
                     "inlined", n->is_inlined, "own", n->is_own);
}

/* Innermost first. */
static json_t *stack_json(const struct profile *p, struct names *names, uint32_t site)
{
    json_t *list = json_array();
    uint32_t node = site < p->n_sites ? p->site_node[site] : 0;
    for (; node; node = p->nodes[node].parent) {
        const struct name *frames;
        size_t n = names_of_node(names, node, &frames);
        for (size_t i = 0; i < n; i++)
            json_array_append_new(list, name_json(&frames[i]));
    }
    return list;
}

static json_t *callers_json(const struct growth_row *r)
{
    json_t *list = json_array();
    for (size_t i = 1; i < r->n_program; i++)
        json_array_append_new(list, name_json(r->program[i]));
    return list;
}

static json_t *places_json(const struct growth_row *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_places && i < GROWTH_PLACES_MAX; i++)
        json_array_append_new(list,
                              json_pack("{s:o,s:f,s:o}", "where", name_json(r->places[i].name),
                                        "growth_bytes", r->places[i].growth_bytes, "live_bytes",
                                        bytes_json(r->places[i].live_bytes)));
    return list;
}

static json_t *row_json(const struct profile *p, struct names *names, const struct growth_row *r,
                        bool stacks)
{
    json_t *o =
        json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:f,s:f,s:f,s:f,s:o,s:I}", "where",
                  name_json(r->name), "in_program", name_json(r->n_program ? r->program[0] : NULL),
                  "callers", callers_json(r), "native", name_json(r->native), "live",
                  json_pack("{s:o,s:o,s:o}", "bytes", bytes_json(r->live_bytes), "low",
                            bytes_json(r->live_low), "high", bytes_json(r->live_high)),
                  "allocated_bytes", bytes_json(r->allocated_bytes), "survivor_bytes",
                  bytes_json(r->survivor_bytes), "live_objects", r->live_objects, "age_s", r->age_s,
                  "growth_bytes", r->growth_bytes, "growth_sigma_bytes", r->growth_sigma, "verdict",
                  verdict_result_json(&r->verdict), "stacks", (json_int_t)r->sites);
    if (o && r->n_places) {
        json_object_set_new(o, "places", places_json(r));
        json_object_set_new(o, "place_count", json_integer((json_int_t)r->n_places));
    }
    if (o && stacks)
        json_object_set_new(o, "stack", stack_json(p, names, r->site));
    return o;
}

json_t *heap_growth_json(const struct profile *p, struct names *names, const struct growth *g,
                         size_t top, bool stacks)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < g->count && i < top; i++)
        json_array_append_new(rows, row_json(p, names, &g->rows[i], stacks));
    json_t *steps = g->has_steps ? json_pack("{s:I,s:I}", "first", (json_int_t)g->first_step,
                                             "last", (json_int_t)g->last_step)
                                 : json_null();
    return json_pack("{s:i,s:{s:o,s:o,s:o},s:o,s:f,s:f,s:o,s:o,s:I,s:o}", "pid", (int)p->pid,
                     "live", "bytes", bytes_json(g->live_bytes), "low", bytes_json(g->live_low),
                     "high", bytes_json(g->live_high), "allocated_bytes",
                     bytes_json(g->allocated_bytes), "span_s", g->span_s, "before_end_s",
                     g->before_end_s, "steps", steps, "rows", rows, "row_count",
                     (json_int_t)g->count, "cost", profile_cost_json(&p->cost));
}

/* ---- the tree ---- */

struct tree {
    const struct profile *p;
    struct names *names;
    double *own, *all;               /* by node */
    uint32_t *first_child, *sibling; /* by node; 0: none */
    double least;
};

static void tree_fini(struct tree *t)
{
    free(t->own);
    free(t->all);
    free(t->first_child);
    free(t->sibling);
}

/* Children have larger numbers than their parents: one way up adds everything. */
static bool tree_init(struct tree *t)
{
    const struct profile *p = t->p;
    const struct profile_reading *last = &p->readings[profile_working(p) - 1];
    t->own = calloc(p->n_nodes + 1, sizeof *t->own);
    t->all = calloc(p->n_nodes + 1, sizeof *t->all);
    t->first_child = calloc(p->n_nodes + 1, sizeof *t->first_child);
    t->sibling = calloc(p->n_nodes + 1, sizeof *t->sibling);
    if (!t->own || !t->all || !t->first_child || !t->sibling)
        return false;
    for (size_t i = 0; i < last->count; i++) {
        uint32_t site = last->held[i].site;
        t->own[site < p->n_sites ? p->site_node[site] : 0] += last->held[i].live_bytes;
    }
    for (uint32_t i = (uint32_t)p->n_nodes; i-- > 0;) {
        t->all[i] += t->own[i];
        if (i) {
            t->all[p->nodes[i].parent] += t->all[i];
            t->sibling[i] = t->first_child[p->nodes[i].parent];
            t->first_child[p->nodes[i].parent] = i;
        }
    }
    return true;
}

static int by_live(const void *a, const void *b, void *all)
{
    const uint32_t *x = a, *y = b;
    const double *bytes = all;
    return (bytes[*x] < bytes[*y]) - (bytes[*x] > bytes[*y]);
}

static json_t *node_json(const struct tree *t, uint32_t node)
{
    const struct name *frames = NULL;
    size_t n = node ? names_of_node(t->names, node, &frames) : 0, count = 0;
    json_t *o = n ? name_json(&frames[0]) : json_pack("{s:s,s:s}", "kind", "root", "function", "");
    json_t *children = json_array();
    double left_out = 0;
    for (uint32_t c = t->first_child[node]; c; c = t->sibling[c])
        count += t->all[c] >= t->least;
    uint32_t *list = calloc(count + 1, sizeof *list);
    count = 0;
    for (uint32_t c = t->first_child[node]; c; c = t->sibling[c]) {
        if (t->all[c] < t->least || !list)
            left_out += t->all[c];
        else
            list[count++] = c;
    }
    if (count)
        qsort_r(list, count, sizeof *list, by_live, t->all);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(children, node_json(t, list[i]));
    free(list);
    json_object_set_new(o, "live_bytes", bytes_json(t->all[node]));
    json_object_set_new(o, "own_bytes", bytes_json(t->own[node]));
    json_object_set_new(o, "left_out_bytes", bytes_json(left_out));
    json_object_set_new(o, "children", children);
    return o;
}

json_t *heap_tree_json(const struct profile *p, struct names *names, double min_fraction)
{
    struct tree t = {.p = p, .names = names};
    json_t *doc = NULL;
    if (p->n_readings && tree_init(&t)) {
        t.least = fmax(t.all[0] * min_fraction, 1);
        doc = node_json(&t, 0);
    }
    tree_fini(&t);
    return doc;
}
