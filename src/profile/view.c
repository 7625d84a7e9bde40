/* Converts a profile and its growth into plain data for the views. */
#include "profile/view.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "profile/marks.h"

struct profile_frame profile_frame_of(const struct name *n)
{
    return (struct profile_frame){.kind = n->kind,
                                  .function = n->function,
                                  .file = n->file,
                                  .lib = n->lib,
                                  .has_line = n->line != 0,
                                  .line = n->line,
                                  .is_inlined = n->is_inlined,
                                  .is_own = n->is_own};
}

/* The functions below set *NO_MEMORY if they cannot copy everything. */

static const char *copy_text(const char *s, bool *no_memory)
{
    char *copy = s ? strdup(s) : NULL;
    *no_memory = *no_memory || (s && !copy);
    return copy;
}

static struct profile_frame copy_frame(const struct name *n, bool *no_memory)
{
    struct profile_frame frame = profile_frame_of(n);
    frame.function = copy_text(n->function, no_memory);
    frame.file = copy_text(n->file, no_memory);
    frame.lib = copy_text(n->lib, no_memory);
    return frame;
}

/* Allocates COUNT + 1 elements, so that the result is NULL only if memory ran out. */
static void *copy_room(size_t count, size_t size, bool *no_memory)
{
    void *room = calloc(count + 1, size);
    *no_memory = *no_memory || !room;
    return room;
}

/* Copies the frames of SITE's stack, innermost first. */
static void copy_stack(const struct profile *p, struct names *names, uint32_t site,
                       struct profile_row *row, bool *no_memory)
{
    const struct name *frames;
    uint32_t first = site < p->n_sites ? p->site_node[site] : 0;
    size_t count = 0;
    for (uint32_t node = first; node; node = p->nodes[node].parent)
        count += names_of_node(names, node, &frames);
    row->stack = copy_room(count, sizeof *row->stack, no_memory);
    for (uint32_t node = first; node && row->stack; node = p->nodes[node].parent) {
        size_t n = names_of_node(names, node, &frames);
        for (size_t i = 0; i < n; i++)
            row->stack[row->n_stack++] = copy_frame(&frames[i], no_memory);
    }
}

static void copy_row(const struct growth_row *r, struct profile_row *row, bool *no_memory)
{
    size_t callers = r->n_program > 1 ? r->n_program - 1 : 0;
    size_t places = r->n_places < GROWTH_PLACES_MAX ? r->n_places : GROWTH_PLACES_MAX;
    *row = (struct profile_row){
        .has_gpu = r->gpu >= 0,
        .gpu = r->gpu >= 0 ? (uint64_t)r->gpu : 0,
        .where = copy_frame(r->name, no_memory),
        .has_in_program = r->n_program > 0,
        .callers = copy_room(callers, sizeof *row->callers, no_memory),
        .has_native = r->native,
        .live = {profile_whole(r->live_bytes), profile_whole(r->live_low),
                 profile_whole(r->live_high)},
        .allocated_bytes = profile_whole(r->allocated_bytes),
        .survivor_bytes = profile_whole(r->survivor_bytes),
        .live_objects = r->live_objects,
        .age_s = r->age_s,
        .growth_bytes = r->growth_bytes,
        .growth_sigma_bytes = r->growth_sigma,
        .verdict = r->verdict,
        .stacks = r->sites,
        .has_place_count = r->n_places > 0,
        .place_count = r->n_places,
        .places = places ? copy_room(places, sizeof *row->places, no_memory) : NULL,
    };
    if (r->n_program)
        row->in_program = copy_frame(r->program[0], no_memory);
    if (r->native)
        row->native = copy_frame(r->native, no_memory);
    for (size_t i = 0; i < callers && row->callers; i++)
        row->callers[row->n_callers++] = copy_frame(r->program[i + 1], no_memory);
    for (size_t i = 0; i < places && row->places; i++)
        row->places[row->n_places++] =
            (struct profile_place){.where = copy_frame(r->places[i].name, no_memory),
                                   .growth_bytes = r->places[i].growth_bytes,
                                   .live_bytes = profile_whole(r->places[i].live_bytes)};
}

/* ---- GPUs ---- */

/* Finds the job's step at T_NS: the number of steps completed at the last reading before T_NS. */
static bool step_at(const struct profile *p, uint64_t t_ns, int64_t *ret)
{
    const struct profile_reading *r = profile_reading_at(p, t_ns);
    if (!r || !r->has_step)
        return false;
    *ret = r->step;
    return true;
}

static void copy_failure(const struct profile *p, struct names *names, const struct profile_oom *o,
                         struct profile_failure *ret, bool *no_memory)
{
    *ret = (struct profile_failure){
        .number = o->number,
        .gpu = o->gpu,
        .t_s = o->t_ns > p->start_ns ? (double)(o->t_ns - p->start_ns) / 1e9 : 0,
        .request_bytes = o->request_bytes,
        .allocated_bytes = o->allocated_bytes,
        .reserved_bytes = o->reserved_bytes,
        .where = copy_frame(names_of_site(names, o->site), no_memory),
        .lines = copy_room(o->n_top, sizeof *ret->lines, no_memory),
    };
    ret->has_step = step_at(p, o->t_ns, &ret->step);
    for (size_t i = 0; i < o->n_top && ret->lines; i++)
        ret->lines[ret->n_lines++] = (struct profile_failure_line){
            copy_frame(names_of_site(names, o->top[i].site), no_memory), o->top[i].bytes};
}

static void copy_gpus(const struct profile *p, struct names *names, struct profile_view *ret,
                      bool *no_memory)
{
    ret->is_gpu = true;
    ret->failure_count = p->oom_count;
    ret->gpus = copy_room(HEAP_GPUS, sizeof *ret->gpus, no_memory);
    ret->failures = copy_room(HEAP_OOMS, sizeof *ret->failures, no_memory);
    for (size_t i = 0; i < HEAP_GPUS && ret->gpus; i++)
        if (p->gpus[i].reports > 0)
            ret->gpus[ret->n_gpus++] =
                (struct profile_view_gpu){.gpu = i,
                                          .allocated_bytes = p->gpus[i].allocated_bytes,
                                          .reserved_bytes = p->gpus[i].reserved_bytes,
                                          .allocated_peak_bytes = p->gpus[i].allocated_peak_bytes};
    for (size_t i = 0; i < p->n_ooms && ret->failures; i++)
        copy_failure(p, names, &p->ooms[i], &ret->failures[ret->n_failures++], no_memory);
}

int profile_view_make(const struct profile *p, struct names *names, const struct growth *g,
                      size_t top, bool stacks, struct profile_view *ret)
{
    size_t count = g->count < top ? g->count : top;
    bool no_memory = false;
    *ret = (struct profile_view){
        .pid = p->pid,
        .live = {profile_whole(g->live_bytes), profile_whole(g->live_low),
                 profile_whole(g->live_high)},
        .allocated_bytes = profile_whole(g->allocated_bytes),
        .span_s = g->span_s,
        .before_end_s = g->before_end_s,
        .has_steps = g->has_steps,
        .steps = {g->first_step, g->last_step},
        .rows = copy_room(count, sizeof *ret->rows, &no_memory),
        .row_count = g->count,
        .cost = p->cost,
    };
    for (size_t i = 0; i < count && ret->rows; i++) {
        struct profile_row *row = &ret->rows[ret->n_rows++];
        copy_row(&g->rows[i], row, &no_memory);
        if (stacks)
            copy_stack(p, names, g->rows[i].site, row, &no_memory);
    }
    if (p->whole)
        copy_gpus(p, names, ret, &no_memory);
    if (no_memory)
        profile_view_fini(ret);
    return no_memory ? -ENOMEM : 0;
}

/* ---- the tree ---- */

struct tree {
    struct names *names;
    double *own, *all;               /* live bytes by node, without and with its children */
    uint32_t *first_child, *sibling; /* first child and next sibling of each node, or 0 */
    double least;
};

static void tree_fini(struct tree *t)
{
    free(t->own);
    free(t->all);
    free(t->first_child);
    free(t->sibling);
}

/* Computes the sums of all branches in one pass from the last node to the first, because a child
 * has a larger number than its parent. */
static bool tree_init(struct tree *t, const struct profile *p)
{
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

static int by_live_bytes(const void *a, const void *b, void *all)
{
    const uint32_t *x = a, *y = b;
    const double *bytes = all;
    return (bytes[*x] < bytes[*y]) - (bytes[*x] > bytes[*y]);
}

static void copy_branch(const struct tree *t, uint32_t node, struct profile_branch *ret,
                        bool *no_memory)
{
    const struct name *frames = NULL;
    size_t count = 0;
    double left_out = 0;
    if (node && names_of_node(t->names, node, &frames))
        ret->frame = copy_frame(&frames[0], no_memory);
    for (uint32_t c = t->first_child[node]; c; c = t->sibling[c])
        count += t->all[c] >= t->least;
    AUTO_FREE uint32_t *list = copy_room(count, sizeof *list, no_memory);
    ret->children = copy_room(count, sizeof *ret->children, no_memory);
    if (!list || !ret->children)
        return;
    count = 0;
    for (uint32_t c = t->first_child[node]; c; c = t->sibling[c]) {
        if (t->all[c] < t->least)
            left_out += t->all[c];
        else
            list[count++] = c;
    }
    ret->live_bytes = profile_whole(t->all[node]);
    ret->own_bytes = profile_whole(t->own[node]);
    ret->left_out_bytes = profile_whole(left_out);
    qsort_r(list, count, sizeof *list, by_live_bytes, t->all);
    for (size_t i = 0; i < count; i++)
        copy_branch(t, list[i], &ret->children[ret->n_children++], no_memory);
}

static int add_tree(struct profile_view *v, const struct profile *p, struct names *names)
{
    const double least_part = 0.01;
    struct tree t = {.names = names};
    bool no_memory = !tree_init(&t, p);
    if (!no_memory) {
        t.least = fmax(t.all[0] * least_part, 1);
        v->has_tree = true;
        copy_branch(&t, 0, &v->tree, &no_memory);
    }
    tree_fini(&t);
    return no_memory ? -ENOMEM : 0;
}

/* ---- the complete view ---- */

/* Sets the step of each failed request to the step of the last mark before it. The steps of
 * readings are not used, because readings are too rare. */
static void set_failure_steps(const struct profile *p, const struct marks *marks,
                              struct profile_view *v)
{
    for (size_t i = 0; i < v->n_failures; i++) {
        struct profile_failure *f = &v->failures[i];
        uint64_t best_ns = 0;
        for (size_t k = 0; k < marks->count; k++) {
            const struct mark *m = &marks->at[k];
            if (m->kind != MARK_STEP || m->pid != p->pid || !(m->has & MARK_HAS_STEP) ||
                m->t_ns > p->ooms[i].t_ns || m->t_ns < best_ns)
                continue;
            best_ns = m->t_ns;
            f->has_step = true;
            f->step = m->step;
        }
    }
}

static int view_of_names(const struct profile *p, struct names *names,
                         const struct profile_wants *wants, struct profile_view *ret,
                         struct err *err)
{
    AUTO_FREE struct growth_mark *marks = NULL;
    struct growth_options options = wants->growth;
    struct growth g = {0};
    int r = marks_of(wants->marks, p->pid, p->start_ns, &marks, &options.n_marks, err);
    options.marks = marks;
    if (r == 0)
        r = growth_of(p, names, &options, &g, err);
    if (r < 0)
        return r;
    r = profile_view_make(p, names, &g, wants->top, wants->stacks, ret);
    growth_fini(&g);
    if (r == 0)
        set_failure_steps(p, wants->marks, ret);
    if (r == 0 && wants->tree)
        r = add_tree(ret, p, names);
    if (r == 0)
        return 0;
    profile_view_fini(ret);
    return err_set(err, r, "out of memory");
}

int profile_view_of(const struct profile *p, const struct profile_wants *wants,
                    struct profile_view *ret, struct err *err)
{
    struct names *names;
    int r = names_new(p, &wants->symbols, &names);
    if (r < 0)
        return err_set(err, r, "cannot look up function names: %s", strerror(-r));
    r = view_of_names(p, names, wants, ret, err);
    names_free(names);
    return r;
}
