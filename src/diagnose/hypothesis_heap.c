/* Hypotheses about live memory (objects, tensors, the autograd graph, call sites), and about freed
 * memory that stays resident. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "diagnose/hypothesis_private.h"

static const double census_least_bytes = 4 << 20;
static const double z95 = 1.96;
/* A container is named if it grew by at least this fraction of the growth of the first
 * container. */
static const double kept_share = 0.3;

/* ---- censuses ---- */

/* Returns the time at which STEP ended, or NAN if there is no mark. */
static double time_of_step(const struct facts *f, double step)
{
    for (size_t i = 0; i < f->n_marks; i++)
        if (f->marks[i].kind == VERDICT_MARK_STEP && (double)f->marks[i].step >= step)
            return f->marks[i].t_s;
    return (double)NAN;
}

/* Returns the growth of memory between the two censuses, or NAN if unknown. The censuses cannot
 * explain more than this growth. */
static double growth_between_censuses(const struct question *q)
{
    double from = time_of_step(q->f, facts_number(q->f->census.first, "step"));
    double to = time_of_step(q->f, facts_number(q->f->census.last, "step"));
    return leakable_at(q, to) - leakable_at(q, from);
}

/* If memory grew between two censuses, returns true and sets RET_GROWTH. Otherwise returns false
 * and adds the reason as evidence. */
static bool census_covers_growth(const struct question *q, struct hypothesis *h, double *ret_growth)
{
    const struct facts *f = q->f;
    if (!q->has_grown) {
        evidence_add_no_growth(q, h, DECIDES);
        return false;
    }
    if (!f->census.first) {
        evidence_absent(h, "no census was taken");
        decide_by(h, "take two censuses: EBB_CENSUS_EVERY=100 ebb run …, or `ebb census` twice");
        return false;
    }
    double first = facts_number(f->census.first, "step"),
           last = facts_number(f->census.last, "step");
    if (f->census.first == f->census.last) {
        evidence_absent(h, "only one census: growth of objects is unknown");
        decide_by(h, "take a second census: `ebb census`");
        return false;
    }
    *ret_growth = growth_between_censuses(q);
    if (isnan(*ret_growth) || *ret_growth < census_least_bytes) {
        evidence_absent(h, "memory did not grow between the censuses (steps %.0f and %.0f)", first,
                        last);
        return false;
    }
    return true;
}

/* Adds evidence against accumulating objects if memory grew in a single jump. */
static void weigh_once(const struct question *q, struct hypothesis *h)
{
    if (q->has_grown && !q->is_growing && came_at_once(q))
        evidence_against(h, WEAK, "memory grew in a single jump, which did not repeat");
}

/* Compares growth in the censuses with the growth of memory over the same time. */
static void weigh_census(const struct question *q, struct hypothesis *h, double grown, double count,
                         double whole, const char *what)
{
    double share = fmin(1, fmax(0, grown / whole));
    double first = facts_number(q->f->census.first, "step"),
           last = facts_number(q->f->census.last, "step");
    bool is_for = share > 0.3;
    /* Growth that has ended may have begun before the first census, so the share is then a share
     * of all growth, not only of the growth between the censuses. */
    if (is_for)
        h->share = q->is_growing ? share : share_of(q, share * whole);
    evidence_add(h, is_for ? EVIDENCE_FOR : EVIDENCE_AGAINST, is_for ? STRONG : FAIR + WEAK,
                 "%s: %s (count %+.0f) from step %.0f to %.0f, while memory grew by %s", what,
                 CHANGE(grown), count, first, last, SIZE(whole));
    if (is_for)
        weigh_once(q, h);
}

const struct kept *find_container(const struct question *q, container_test *is_wanted)
{
    const struct facts_process *main = q->f->main;
    const struct kept_list *l = main ? kept_of(&q->f->kept, main->id.pid) : NULL;
    for (size_t i = 0; l && i < l->count; i++)
        if (is_wanted(q, &l->at[i]))
            return &l->at[i];
    return NULL;
}

bool is_piling_container(const struct question *q, const struct kept *k)
{
    return q->is_growing && !k->is_graph && !(k->limit > 0) && k->bytes >= kept_share * q->total;
}

/* Adds evidence that the container K keeps the memory alive. */
static void weigh_kept(const struct question *q, struct hypothesis *h, double weight,
                       const struct kept *k)
{
    const struct kept_list *l = kept_of(&q->f->kept, q->f->main->id.pid);
    h->share = fmax(h->share, share_of(q, k->bytes));
    evidence_for(h, weight, "kept by %s", KEPT(l, (size_t)(k - l->at)));
}

void test_python_objects(const struct question *q, struct hypothesis *h)
{
    const struct facts *f = q->f;
    double whole;
    if (!census_covers_growth(q, h, &whole)) {
        const struct kept *kept = find_container(q, is_piling_container);
        if (kept)
            weigh_kept(q, h, FAIR, kept);
        return;
    }
    double grown = facts_number(f->census.last, "object_bytes") -
                   facts_number(f->census.first, "object_bytes");
    double count = facts_number(f->census.last, "object_count") -
                   facts_number(f->census.first, "object_count");
    if (json_is_true(json_object_get(f->census.last, "is_sampled")) && grown < 0.3 * whole) {
        evidence_absent(
            h, "the census sampled only some objects: it found %s and cannot rule out more",
            CHANGE(grown));
        return;
    }
    weigh_census(q, h, grown, count, whole,
                 "Python objects (memory of C extensions is not counted)");
}

/* ---- tensors ---- */

struct tensors {
    double bytes, count;             /* tensors in host memory */
    double graph_bytes, graph_count; /* non-leaf tensors that require grad */
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
        double bytes = sign * facts_number(row, "bytes"), count = sign * facts_number(row, "count");
        if (!is_on_host(row) || isnan(bytes) || isnan(count))
            continue;
        t->bytes += bytes;
        t->count += count;
        if (!json_is_true(json_object_get(row, "requires_grad")) ||
            json_is_true(json_object_get(row, "is_grad")) ||
            json_is_true(json_object_get(
                row,
                "is_leaf"))) /* copies of the model's parameters require grad too, but are leaves */
            continue;
        t->graph_bytes += bytes;
        t->graph_count += count;
    }
}

static struct tensors tensor_growth(const struct facts *f)
{
    struct tensors t = {0};
    add_tensors(f->census.last, 1, &t);
    add_tensors(f->census.first, -1, &t);
    return t;
}

void test_tensors(const struct question *q, struct hypothesis *h)
{
    double whole;
    if (!census_covers_growth(q, h, &whole))
        return;
    if (!json_is_true(json_object_get(q->f->census.last, "has_torch"))) {
        evidence_against(h, DECIDES, "torch is not imported in the growing process");
        return;
    }
    struct tensors t = tensor_growth(q->f);
    weigh_census(q, h, t.bytes, t.count, whole, "host tensors referenced by Python");
}

/* ---- the autograd graph ---- */

/* Returns the number of live autograd nodes, such as "AddmmBackward0". */
static double node_count(const json_t *census)
{
    double count = 0;
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(census, "objects"), i, row)
    {
        const char *type = json_string_value(json_object_get(row, "type"));
        if (type && strstr(type, "Backward") && !strchr(type, '.'))
            count += fmax(0, facts_number(row, "count"));
    }
    return count;
}

bool has_frame(const struct facts_heap *heap, const struct growth_row *row,
               bool (*is_wanted)(const struct name *frame))
{
    const struct profile *p = heap->profile;
    uint32_t node = p && row->site < p->n_sites ? p->site_node[row->site] : 0;
    for (; node; node = p->nodes[node].parent) {
        const struct name *frames;
        size_t n = names_of_node(heap->names, node, &frames);
        for (size_t i = 0; i < n; i++)
            if (is_wanted(&frames[i]))
                return true;
    }
    return false;
}

/* Returns true for a library with torch's kernels. libtorch_python has none: it only wraps tensors
 * as Python objects. */
static bool is_torch_frame(const struct name *n)
{
    return n->lib && !strstr(n->lib, "libtorch_python") &&
           (strstr(n->lib, "libtorch") || strstr(n->lib, "libc10"));
}

bool made_by_torch(const struct facts_heap *heap, const struct growth_row *row)
{
    return has_frame(heap, row, is_torch_frame);
}

static void weigh_graph_census(const struct question *q, struct hypothesis *h, double whole)
{
    struct tensors t = tensor_growth(q->f);
    double nodes = node_count(q->f->census.last) - node_count(q->f->census.first);
    if (t.graph_bytes > 0.3 * whole) {
        h->share = q->is_growing ? fmin(1, t.graph_bytes / whole) : share_of(q, t.graph_bytes);
        evidence_for(h, STRONG, "tensors that require grad grew by %s (count %+.0f)",
                     SIZE(t.graph_bytes), t.graph_count);
    } else if (t.bytes > 0.5 * whole) {
        evidence_against(h, STRONG, "the growing tensors belong to no autograd graph (%s)",
                         SIZE(t.bytes));
    }
    if (nodes >= 8)
        evidence_for(h, FAIR, "live autograd nodes (…Backward0): %+.0f", nodes);
}

/* Adds evidence from the call site. Tensors saved by the autograd graph are owned by C++, so only
 * the heap profile finds them, not the census. */
static void weigh_graph_site(const struct question *q, struct hypothesis *h, double whole)
{
    double grown = 0;
    const struct growth_row *row = keeping_site(q, &grown);
    if (!q->f->heap.profile) {
        evidence_absent(h, "call sites were not recorded: %s", q->f->heap.why_not);
        return;
    }
    if (!row || !made_by_torch(&q->f->heap, row)) {
        evidence_against(h, STRONG, "torch did not allocate the growing memory%s%s",
                         row ? ", which comes from " : "", row ? PLACE(row) : "");
        return;
    }
    if (row == ledger_site(q->l, LEDGER_PINNED) || row == ledger_site(q->l, LEDGER_SHARED)) {
        evidence_against(h, STRONG, "the growth is shared memory mapped at %s", PLACE(row));
        return;
    }
    if (made_by_compiler(&q->f->heap, row)) {
        evidence_against(h, STRONG, "torch's compiler allocated the growing memory, at %s",
                         PLACE(row));
        return;
    }
    struct tensors t = q->f->census.first ? tensor_growth(q->f) : (struct tensors){0};
    bool is_unseen = !isnan(whole) && t.bytes < 0.3 * whole;
    size_t lines;
    h->site = row;
    h->share = fmax(h->share, share_of(q, grown + keeping_sites_beside(q, row, &lines)));
    evidence_for(h, is_unseen ? FAIR + WEAK : WEAK,
                 is_unseen ? "torch allocated %s at %s, but the tensors that Python references did "
                             "not grow as much"
                           : "torch allocated %s at %s",
                 SIZE(grown), PLACE(row));
}

/* Accepts a variable or container whose autograd graph grows. */
static bool is_growing_graph(const struct question *q, const struct kept *k)
{
    const struct kept_list *l = kept_of(&q->f->kept, q->f->main->id.pid);
    return k->is_graph && k->bytes >= kept_share * l->at[0].bytes;
}

void test_autograd(const struct question *q, struct hypothesis *h)
{
    double whole = (double)NAN;
    if (!q->has_grown) {
        evidence_add_no_growth(q, h, DECIDES);
        return;
    }
    if (census_covers_growth(q, h, &whole))
        weigh_graph_census(q, h, whole);
    else
        whole = (double)NAN;
    const struct kept *kept = find_container(q, is_growing_graph);
    if (kept)
        weigh_kept(q, h, STRONG, kept);
    weigh_graph_site(q, h, whole);
}

/* ---- call sites ---- */

/* If most of the growth is in other processes, which this heap profile does not cover, adds this as
 * evidence and returns true. */
static bool is_in_other_processes(const struct question *q, struct hypothesis *h)
{
    if (q->growth > q->total / 2)
        return false;
    evidence_absent(h, "only %s of the growth of %s is in the profiled process",
                    SIZE(fmax(0, q->growth)), SIZE(q->total));
    return true;
}

/* Adds the containers that keep the memory alive. */
static void add_containers(const struct question *q, struct hypothesis *h)
{
    const struct kept_list *l = kept_of(&q->f->kept, q->f->main->id.pid);
    for (size_t i = 0; l && i < l->count; i++)
        if (l->at[i].bytes >= kept_share * l->at[0].bytes)
            evidence_for(h, 0, "kept by %s", KEPT(l, i));
}

/* For a job that leaks although no call site clearly keeps memory alive: names the line whose live
 * memory grew most, among the lines that may leak. Returns false if there is no such line. */
static bool weigh_doubtful_site(const struct question *q, struct hypothesis *h)
{
    const struct growth *g = &q->f->heap.growth;
    const struct growth_row *most = NULL;
    bool leaks = q->f->job.is_known && q->f->job.leak == VERDICT_LEAK_YES;
    for (size_t i = 0; leaks && i < g->count; i++)
        if (g->rows[i].verdict.leak != VERDICT_LEAK_NO &&
            g->rows[i].growth_bytes > (most ? most->growth_bytes : census_least_bytes))
            most = &g->rows[i];
    if (!most)
        return false;
    h->site = most;
    h->share = share_of(q, most->growth_bytes);
    evidence_for(h, WEAK, "%s has %s more live memory than at the start (± %s)", PLACE(most),
                 SIZE(most->growth_bytes), SIZE(z95 * most->growth_sigma));
    return true;
}

void test_call_site(const struct question *q, struct hypothesis *h)
{
    double grown = 0;
    const struct growth_row *row = keeping_site(q, &grown);
    if (!q->f->heap.profile) {
        evidence_absent(h, "call sites were not recorded: %s", q->f->heap.why_not);
        decide_by(h, "run the job under `ebb run` with the heap profiler on");
        return;
    }
    if (!q->has_grown && !(row && has_grown_a_little(q))) {
        evidence_add_no_growth(q, h, STRONG);
    } else if (!row && (is_in_other_processes(q, h) || weigh_doubtful_site(q, h))) {
        return;
    } else if (!row) {
        evidence_against(h, STRONG, "no call site grows; the live heap changed by %s",
                         CHANGE(heap_growth(q)));
    } else {
        bool is_sure = row->verdict.leak == VERDICT_LEAK_YES;
        /* a worker's growth is compared with its own total, because only one of several similar
         * workers is profiled */
        bool is_worker = q->f->main->role == ROLE_DATA_WORKER;
        size_t lines;
        double beside = keeping_sites_beside(q, row, &lines), all = grown + beside;
        h->site = row;
        h->share = is_worker && q->growth > 0 ? fmin(1, all / q->growth) : share_of(q, all);
        evidence_for(h, is_sure ? STRONG : FAIR + WEAK,
                     "%s has %s more live memory than at the start (verdict: %s)", PLACE(row),
                     SIZE(grown), verdict_word_name(row->verdict.word));
        if (row->verdict.rate_bytes_per_step.known && is_sure)
            evidence_for(h, WEAK, "live memory of this call site grows by %s/step",
                         SIZE(row->verdict.rate_bytes_per_step.value));
        if (lines)
            evidence_for(h, 0, "%zu more growing line%s in the same function: %s", lines,
                         lines > 1 ? "s" : "", CHANGE(beside));
        weigh_once(q, h);
        add_containers(q, h);
        if (q->has_grown && h->share < 0.2)
            evidence_against(h, FAIR,
                             "the growing call site explains only a small part of the growth of %s",
                             SIZE(q->total));
    }
}

/* ---- retention ---- */

/* Returns the weight of the evidence for retention. BESIDE is the growth of retained memory. If it
 * is estimated from samples, the sampling error is subtracted from it. */
static double retention_weight(const struct question *q, double beside)
{
    double sure = beside - (q->l->knows_retained ? 0 : z95 * q->f->heap.sigma);
    /* otherwise, live memory in Python's arenas is not counted */
    bool is_measured = q->f->heap.profile || q->l->knows_retained;
    if (!is_measured || sure <= 0.3 * q->growth)
        return WEAK;
    return sure > 0.6 * q->growth ? STRONG : FAIR;
}

/* Returns the growth of retained memory: at most the growth of free memory according to the
 * allocator. Beyond that, memory was already free at the start and has only become resident. */
static double retained_growth(const struct question *q)
{
    const struct facts_figure *spare = facts_figure(q->f, "heap_free_bytes");
    double beside = ledger_beside_growth(q->l);
    if (!q->l->knows_retained || q->l->is_by_pages || !spare)
        return beside;
    double free_growth =
        facts_near(&spare->series, q->f->now_s) - facts_near(&spare->series, q->f->start_s);
    double arenas = ledger_growth(q->l, LEDGER_ARENAS);
    return arenas + fmin(beside - arenas, fmax(0, free_growth));
}

static void weigh_retention(const struct question *q, struct hypothesis *h, double live)
{
    char missed[TEXT_SIZE_MAX + 16] = "";
    double beside = retained_growth(q);
    bool is_for = beside > fmax(census_least_bytes, 0.3 * q->growth);
    h->share = is_for ? fmin(1, beside / q->growth) : 0;
    if (!q->l->knows_retained && q->f->heap.sigma > 0)
        snprintf(missed, sizeof missed, " (± %s)", SIZE(z95 * q->f->heap.sigma));
    evidence_add(h, is_for ? EVIDENCE_FOR : EVIDENCE_AGAINST,
                 is_for ? retention_weight(q, beside) : STRONG + WEAK,
                 "the live heap changed by %s%s while memory grew by %s: %s is %s", CHANGE(live),
                 missed, SIZE(q->growth), CHANGE(beside),
                 q->l->knows_retained ? "free memory that the allocator retains"
                                      : "not live memory, and not otherwise explained");
    if (!is_for)
        return;
    if (!q->f->heap.profile && !q->l->knows_retained)
        evidence_absent(h, "the reported live heap excludes small Python objects, which only the "
                           "heap profiler counts");
    else if (q->f->heap.most > q->f->heap.now.live + beside / 2)
        evidence_for(h, WEAK, "the live heap peaked at %s", SIZE(q->f->heap.most));
    decide_by(h, "return free memory to the system with MemoryCleanup(trim=True), or run with "
                 "MALLOC_ARENA_MAX=2");
}

/* Tests retention by comparing baselines. Returns false if the baselines do not show retention, or
 * if measurements of retained memory contradict retention. */
static bool weigh_floors(const struct question *q, struct hypothesis *h)
{
    struct floors floors = baselines_of(q);
    double kept = 0;
    bool is_denied = q->l->knows_retained && !(floors.held > 0.3 * floors.memory) &&
                     retained_growth(q) < 0.3 * q->total;
    if (!floors.is_freed || !q->f->heap.profile || is_denied)
        return false;
    keeping_site(q, &kept);
    h->share = share_of(q, q->total - kept);
    evidence_add_baselines(h, EVIDENCE_FOR, STRONG, &floors);
    decide_by(h, "return free memory to the system with MemoryCleanup(trim=True), or run with "
                 "MALLOC_ARENA_MAX=2");
    return true;
}

void test_retention(const struct question *q, struct hypothesis *h)
{
    double live = heap_growth(q);
    if (isnan(live)) {
        evidence_absent(h, "the live heap was not measured: the job has no heap profile and "
                           "reported no heap_live_bytes");
        decide_by(h, "run the job under `ebb run` with the heap profiler on");
    } else if (!q->has_grown || !(q->growth > 0)) {
        evidence_add_no_growth(q, h, STRONG);
    } else if (!is_in_other_processes(q, h) && !weigh_floors(q, h)) {
        weigh_retention(q, h, live);
    }
}
