/* Hypotheses that show in what is alive: objects, tensors, the graph, call sites; or is not and
 * stays all the same. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "diagnose/hypothesis_private.h"

static const double census_least_bytes = 4 << 20;
static const double z95 = 1.96;
/* Of containers that gained, those are named that have this part of what the first has. */
static const double kept_share = 0.3;

/* ---- the census ---- */

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* When STEP had ended; NAN: no mark tells. */
static double time_of_step(const struct facts *f, double step)
{
    for (size_t i = 0; i < f->n_marks; i++)
        if (f->marks[i].kind == VERDICT_MARK_STEP && (double)f->marks[i].step >= step)
            return f->marks[i].t_s;
    return (double)NAN;
}

/* What memory did between the two censuses: only that can they explain. NAN: not known. */
static double growth_between_censuses(const struct question *q)
{
    double from = time_of_step(q->f, number(q->f->census_first, "step"));
    double to = time_of_step(q->f, number(q->f->census_last, "step"));
    return leakable_at(q, to) - leakable_at(q, from);
}

/* Says so where there is nothing to tell, or the censuses cannot; true: they can. */
static bool census_tells(const struct question *q, struct hypothesis *h, double *ret_growth)
{
    const struct facts *f = q->f;
    if (!q->has_grown) {
        say_flat(q, h, DECIDES);
        return false;
    }
    if (!f->census_first) {
        say(h, EVIDENCE_ABSENT, 0, "no census was taken");
        decide_by(h, "two censuses: EBB_CENSUS_EVERY=100 ebb run …, or `ebb census` twice");
        return false;
    }
    double first = number(f->census_first, "step"), last = number(f->census_last, "step");
    if (f->census_first == f->census_last) {
        say(h, EVIDENCE_ABSENT, 0, "one census alone tells no growth");
        decide_by(h, "a second census: `ebb census`");
        return false;
    }
    *ret_growth = growth_between_censuses(q);
    if (isnan(*ret_growth) || *ret_growth < census_least_bytes) {
        say(h, EVIDENCE_ABSENT, 0,
            "memory did not grow between the censuses (steps %.0f and %.0f): they cannot tell",
            first, last);
        return false;
    }
    return true;
}

/* What came once does not pile up, and nobody keeps on keeping it. */
static void weigh_once(const struct question *q, struct hypothesis *h)
{
    if (q->has_grown && !q->is_growing && came_at_once(q))
        say(h, EVIDENCE_AGAINST, WEAK, "it came at once, and not again");
}

/* Growth in the censuses against that of memory in the same time. */
static void weigh_census(const struct question *q, struct hypothesis *h, double grown, double count,
                         double whole, const char *what)
{
    struct sizes s;
    double share = fmin(1, fmax(0, grown / whole));
    double first = number(q->f->census_first, "step"), last = number(q->f->census_last, "step");
    bool is_for = share > 0.3;
    if (is_for) /* of growth that has ended before them they tell nothing */
        h->share = q->is_growing ? share : share_of(q, share * whole);
    say(h, is_for ? EVIDENCE_FOR : EVIDENCE_AGAINST, is_for ? STRONG : FAIR + WEAK,
        "%s: %s (%+.0f of them) from step %.0f to %.0f, while memory grew by %s", what,
        change_of(&s, 0, grown), count, first, last, size_of(&s, 1, whole));
    if (is_for)
        weigh_once(q, h);
}

void test_python_objects(const struct question *q, struct hypothesis *h)
{
    const struct facts *f = q->f;
    struct sizes s;
    double whole;
    if (!census_tells(q, h, &whole))
        return;
    double grown = number(f->census_last, "object_bytes") - number(f->census_first, "object_bytes");
    double count = number(f->census_last, "object_count") - number(f->census_first, "object_count");
    if (json_is_true(json_object_get(f->census_last, "is_sampled")) && grown < 0.3 * whole) {
        say(h, EVIDENCE_ABSENT, 0,
            "the census counted a part of the objects: it saw %s, and cannot rule out more",
            change_of(&s, 0, grown));
        return;
    }
    weigh_census(q, h, grown, count, whole,
                 "Python objects, without what extensions hold for them");
}

/* ---- tensors ---- */

struct tensors {
    double bytes, count;             /* on the host */
    double graph_bytes, graph_count; /* of those that a graph made */
};

static bool is_on_host(const json_t *row)
{
    const char *device = json_string_value(json_object_get(row, "device"));
    return device && strcmp(device, "cpu") == 0;
}

static void add_tensors(const json_t *census, double sign, struct tensors *t)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(census, "tensors"), i, row)
    {
        double bytes = sign * number(row, "bytes"), count = sign * number(row, "count");
        if (!is_on_host(row) || isnan(bytes) || isnan(count))
            continue;
        t->bytes += bytes;
        t->count += count;
        if (!json_is_true(json_object_get(row, "requires_grad")) ||
            json_is_true(json_object_get(row, "is_grad")) ||
            json_is_true(json_object_get(row, "is_leaf"))) /* a copy of the model requires grad */
            continue;
        t->graph_bytes += bytes;
        t->graph_count += count;
    }
}

static struct tensors tensor_growth(const struct facts *f)
{
    struct tensors t = {0};
    add_tensors(f->census_last, 1, &t);
    add_tensors(f->census_first, -1, &t);
    return t;
}

void test_tensors(const struct question *q, struct hypothesis *h)
{
    double whole;
    if (!census_tells(q, h, &whole))
        return;
    if (!json_is_true(json_object_get(q->f->census_last, "has_torch"))) {
        say(h, EVIDENCE_AGAINST, DECIDES, "torch is not imported there");
        return;
    }
    struct tensors t = tensor_growth(q->f);
    weigh_census(q, h, t.bytes, t.count, whole, "tensors on the host that Python refers to");
}

/* ---- the graph ---- */

/* "AddmmBackward0" */
static double node_count(const json_t *census)
{
    double count = 0;
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(census, "objects"), i, row)
    {
        const char *type = json_string_value(json_object_get(row, "type"));
        if (type && strstr(type, "Backward") && !strchr(type, '.'))
            count += fmax(0, number(row, "count"));
    }
    return count;
}

/* Its kernels; what makes Python objects of tensors is not one. */
static bool is_torch(const char *lib)
{
    return lib && !strstr(lib, "libtorch_python") &&
           (strstr(lib, "libtorch") || strstr(lib, "libc10"));
}

/* A frame of torch's library on the stack of ROW's largest site: an operation made it. */
bool made_by_torch(const struct facts_heap *heap, const struct growth_row *row)
{
    const struct profile *p = heap->profile;
    uint32_t node = p && row->site < p->n_sites ? p->site_node[row->site] : 0;
    for (; node; node = p->nodes[node].parent) {
        const struct name *frames;
        size_t n = names_of_node(heap->names, node, &frames);
        for (size_t i = 0; i < n; i++)
            if (is_torch(frames[i].lib))
                return true;
    }
    return false;
}

static void weigh_graph_census(const struct question *q, struct hypothesis *h, double whole)
{
    struct sizes s;
    struct tensors t = tensor_growth(q->f);
    double nodes = node_count(q->f->census_last) - node_count(q->f->census_first);
    if (t.graph_bytes > 0.3 * whole) {
        h->share = q->is_growing ? fmin(1, t.graph_bytes / whole) : share_of(q, t.graph_bytes);
        say(h, EVIDENCE_FOR, STRONG, "tensors that require grad grew by %s (%+.0f of them)",
            size_of(&s, 0, t.graph_bytes), t.graph_count);
    } else if (t.bytes > 0.5 * whole) {
        say(h, EVIDENCE_AGAINST, STRONG, "no graph made the tensors that pile up (%s)",
            size_of(&s, 0, t.bytes));
    }
    if (nodes >= 8)
        say(h, EVIDENCE_FOR, FAIR, "%+.0f nodes of a graph (…Backward0) are alive", nodes);
}

/* What a graph has saved is held by C++: Python does not see it, and the heap does. */
static void weigh_graph_site(const struct question *q, struct hypothesis *h, double whole)
{
    char place[PLACE_MAX];
    struct sizes s;
    double grown = 0;
    const struct growth_row *row = keeper(q, &grown);
    if (!q->f->heap.profile) {
        say(h, EVIDENCE_ABSENT, 0, "no call sites: %s", q->f->heap.why_not);
        return;
    }
    if (!row || !made_by_torch(&q->f->heap, row)) {
        say(h, EVIDENCE_AGAINST, STRONG, "what grows on the heap was not made by torch%s%s",
            row ? ", but at " : "", row ? place_text(place, row) : "");
        return;
    }
    if (row == ledger_site(q->l, LEDGER_PINNED) || row == ledger_site(q->l, LEDGER_SHARED)) {
        say(h, EVIDENCE_AGAINST, STRONG, "what grows is mapped as shared memory, at %s",
            place_text(place, row));
        return;
    }
    if (made_by_compiler(&q->f->heap, row)) {
        say(h, EVIDENCE_AGAINST, STRONG, "what grows on the heap was made for the compiler, at %s",
            place_text(place, row));
        return;
    }
    struct tensors t = q->f->census_first ? tensor_growth(q->f) : (struct tensors){0};
    bool is_unseen = !isnan(whole) && t.bytes < 0.3 * whole;
    h->site = row;
    h->share = fmax(h->share, share_of(q, grown));
    say(h, EVIDENCE_FOR, is_unseen ? FAIR + WEAK : WEAK,
        is_unseen ? "torch made %s at %s, and tensors that Python refers to did not grow with it"
                  : "torch made %s at %s",
        size_of(&s, 0, grown), place_text(place, row));
}

void test_autograd(const struct question *q, struct hypothesis *h)
{
    double whole = (double)NAN;
    if (!q->has_grown) {
        say_flat(q, h, DECIDES);
        return;
    }
    if (census_tells(q, h, &whole))
        weigh_graph_census(q, h, whole);
    else
        whole = (double)NAN;
    weigh_graph_site(q, h, whole);
}

/* ---- call sites ---- */

/* What came in other processes the heap of this one cannot show. Says so. */
static bool is_elsewhere(const struct question *q, struct hypothesis *h)
{
    struct sizes s;
    if (q->growth > q->total / 2)
        return false;
    say(h, EVIDENCE_ABSENT, 0, "of the growth of %s only %s is in the process whose heap was read",
        size_of(&s, 0, q->total), size_of(&s, 1, fmax(0, q->growth)));
    return true;
}

/* It was made there, and this is who has it. */
static void say_kept(const struct question *q, struct hypothesis *h)
{
    const struct kept_list *l = kept_of(&q->f->kept, q->f->main->id.pid);
    char text[KEPT_TEXT_MAX];
    for (size_t i = 0; l && i < l->count; i++)
        if (l->at[i].bytes >= kept_share * l->at[0].bytes)
            say(h, EVIDENCE_FOR, 0, "kept by %s", kept_text(text, l, i));
}

void test_call_site(const struct question *q, struct hypothesis *h)
{
    char place[PLACE_MAX];
    struct sizes s;
    double grown = 0;
    const struct growth_row *row = keeper(q, &grown);
    if (!q->f->heap.profile) {
        say(h, EVIDENCE_ABSENT, 0, "no call sites: %s", q->f->heap.why_not);
        decide_by(h, "a run under `ebb run` with the profiler on");
        return;
    }
    if (!q->has_grown && !(row && has_grown_a_little(q))) {
        say_flat(q, h, STRONG);
    } else if (!row && is_elsewhere(q, h)) {
        return;
    } else if (!row) {
        say(h, EVIDENCE_AGAINST, STRONG, "no call site holds more and more: live heap %s",
            change_of(&s, 0, heap_growth(q)));
    } else {
        bool is_sure = row->verdict.leak == VERDICT_LEAK_YES;
        bool is_worker = q->f->main->role == ROLE_DATA_WORKER; /* and one of several alike */
        size_t lines;
        double beside = keeper_beside(q, row, &lines), all = grown + beside;
        h->site = row;
        h->share = is_worker && q->growth > 0 ? fmin(1, all / q->growth) : share_of(q, all);
        say(h, EVIDENCE_FOR, is_sure ? STRONG : FAIR + WEAK,
            "%s holds %s more than at the start: %s", place_text(place, row), size_of(&s, 0, grown),
            verdict_word_name(row->verdict.word));
        if (row->verdict.rate_bytes_per_step.known && is_sure)
            say(h, EVIDENCE_FOR, WEAK, "it keeps %s a step",
                size_of(&s, 1, row->verdict.rate_bytes_per_step.value));
        if (lines)
            say(h, EVIDENCE_FOR, 0, "%zu more line%s of that function: %s", lines,
                lines > 1 ? "s" : "", change_of(&s, 3, beside));
        weigh_once(q, h);
        say_kept(q, h);
        if (q->has_grown && h->share < 0.2)
            say(h, EVIDENCE_AGAINST, FAIR, "that is a small part of the growth of %s",
                size_of(&s, 2, q->total));
    }
}

/* ---- retention ---- */

/* How much of it is sure: what sampling may have missed is alive. */
static double retention_weight(const struct question *q, double beside)
{
    double sure = beside - (q->l->knows_retained ? 0 : z95 * q->f->heap.sigma);
    bool is_measured = q->f->heap.profile || q->l->knows_retained;
    if (!is_measured || sure <= 0.3 * q->growth)
        return WEAK; /* an allocator's own count leaves Python's arenas out */
    return sure > 0.6 * q->growth ? STRONG : FAIR;
}

/* What was free at the start and only had no room in RSS then has not come since. */
static double retained_growth(const struct question *q)
{
    const struct facts_figure *spare = facts_figure(q->f, "heap_free_bytes");
    double beside = ledger_beside_growth(q->l);
    if (!q->l->knows_retained || q->l->is_by_pages || !spare)
        return beside;
    double told =
        facts_near(&spare->series, q->f->now_s) - facts_near(&spare->series, q->f->start_s);
    double arenas = ledger_growth(q->l, LEDGER_ARENAS);
    return arenas + fmin(beside - arenas, fmax(0, told));
}

static void weigh_retention(const struct question *q, struct hypothesis *h, double live)
{
    struct sizes s;
    char missed[TEXT_SIZE_MAX + 16] = "";
    double beside = retained_growth(q);
    bool is_for = beside > fmax(census_least_bytes, 0.3 * q->growth);
    h->share = is_for ? fmin(1, beside / q->growth) : 0;
    if (!q->l->knows_retained && q->f->heap.sigma > 0)
        snprintf(missed, sizeof missed, " (± %s)", size_of(&s, 3, z95 * q->f->heap.sigma));
    say(h, is_for ? EVIDENCE_FOR : EVIDENCE_AGAINST,
        is_for ? retention_weight(q, beside) : STRONG + WEAK,
        "the live heap changed by %s%s while memory grew by %s: %s %s", change_of(&s, 0, live),
        missed, size_of(&s, 1, q->growth), change_of(&s, 2, beside),
        q->l->knows_retained ? "is free, and the allocator has it" : "is neither alive nor named");
    if (!is_for)
        return;
    if (!q->f->heap.profile && !q->l->knows_retained)
        say(h, EVIDENCE_ABSENT, 0,
            "small Python objects are not in that live heap, and without the profiler not counted");
    else if (q->f->heap.most > q->f->heap.now + beside / 2)
        say(h, EVIDENCE_FOR, WEAK, "as much as %s was alive at one time",
            size_of(&s, 4, q->f->heap.most));
    decide_by(h, "a trim: MemoryCleanup(trim=True), or a run with MALLOC_ARENA_MAX=2");
}

/* False: they do not tell, or the allocator itself does: it has not come to keep more. */
static bool weigh_floors(const struct question *q, struct hypothesis *h)
{
    struct floors floors = floors_of(q);
    double kept = 0;
    bool is_denied = q->l->knows_retained && !(floors.held > 0.3 * floors.memory) &&
                     retained_growth(q) < 0.3 * q->total;
    if (!floors.lets_go || !q->f->heap.profile || is_denied)
        return false;
    keeper(q, &kept);
    h->share = share_of(q, q->total - kept);
    say_floors(h, EVIDENCE_FOR, STRONG, &floors);
    decide_by(h, "a trim: MemoryCleanup(trim=True), or a run with MALLOC_ARENA_MAX=2");
    return true;
}

void test_retention(const struct question *q, struct hypothesis *h)
{
    double live = heap_growth(q);
    if (isnan(live)) {
        say(h, EVIDENCE_ABSENT, 0,
            "the live heap was not measured: no profile, no heap_live_bytes");
        decide_by(h, "a run under `ebb run` with the profiler on");
    } else if (!q->has_grown || !(q->growth > 0)) {
        say_flat(q, h, STRONG);
    } else if (!is_elsewhere(q, h) && !weigh_floors(q, h)) {
        weigh_retention(q, h, live);
    }
}
