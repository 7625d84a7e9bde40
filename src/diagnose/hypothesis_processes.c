/* Hypotheses about which process holds the memory: launchers, workers, and memory shared between
 * them. */
#include <math.h>
#include <string.h>

#include "diagnose/hypothesis_private.h"

/* A forked worker always writes to its own stack and heap. It is treated as copying data only if
 * its unshared memory exceeds this fraction of the inherited memory. */
static const double unshared_least_share = 0.1;
static const double compiled_least_bytes = 8 << 20;
static const double worker_least_s = 3;
enum { piled_least = 3 }; /* processes pile up if at least this many more exist than at the start */

/* Returns true if the roles of processes are known; a recording made from a CSV table has no
 * roles. */
static bool knows_roles(const struct facts *f)
{
    for (size_t i = 0; i < f->n_processes; i++)
        if (f->processes[i].role != ROLE_OTHER)
            return true;
    return false;
}

static size_t count_role(const struct facts *f, enum process_role role)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_processes; i++)
        n += f->processes[i].role == role;
    return n;
}

/* ---- a launcher ---- */

void test_launcher(const struct question *q, struct hypothesis *h)
{
    const struct facts *f = q->f;
    if (!f->main || !knows_roles(f)) {
        evidence_absent(h, "process roles were not recorded");
        return;
    }
    h->share = 1;
    if (f->main->role == ROLE_LAUNCHER) {
        evidence_for(
            h, STRONG + FAIR,
            "no training process among %zu processes; the largest, %s (pid %d), is a launcher",
            f->n_processes, f->main->name, (int)f->main->id.pid);
        return;
    }
    evidence_against(h, DECIDES, "the watched process %d (%s) is not a launcher: role %s, peak %s",
                     (int)f->main->id.pid, f->main->name, process_role_name(f->main->role),
                     SIZE(f->main->peak_bytes));
}

/* ---- workers ---- */

struct workers {
    size_t count, unique_known, growing;
    double rss, unique, largest;
};

static bool is_worker(const struct facts *f, const struct facts_process *p)
{
    bool is_other = f->is_table && p->role == ROLE_OTHER;
    return p != f->main &&
           (p->role == ROLE_DATA_WORKER || p->role == ROLE_COMPILE_WORKER || is_other);
}

static bool grows(const struct facts_verdict *v)
{
    return v->is_known && v->leak == VERDICT_LEAK_YES;
}

/* Returns the time from the first to the last reading of P. */
static double life_s(const struct facts_process *p)
{
    const struct facts_series *rss = &p->field[SAMPLE_RSS];
    return rss->count ? rss->t_s[rss->count - 1] - rss->t_s[0] : 0;
}

static struct workers workers_at(const struct facts *f, double t_s)
{
    struct workers w = {0};
    for (size_t i = 0; i < f->n_processes; i++) {
        const struct facts_process *p = &f->processes[i];
        const struct facts_series *series = &p->field[SAMPLE_RSS];
        double rss = facts_at(series, t_s), unique = facts_at(&p->field[SAMPLE_UNIQUE], t_s);
        if (!is_worker(f, p) || life_s(p) < worker_least_s || isnan(rss) || series->t_s[0] > t_s ||
            series->t_s[series->count - 1] < t_s)
            continue;
        w.count++;
        w.growing += grows(&p->verdict);
        w.rss += rss;
        w.largest = fmax(w.largest, rss);
        w.unique += isnan(unique) ? 0 : unique;
        w.unique_known += isnan(unique) ? 0 : 1;
    }
    return w;
}

/* Returns the workers at the time when their total RSS was highest. Only the middle of each
 * worker's life is examined. */
static struct workers workers_of(const struct facts *f)
{
    struct workers best = {0};
    for (size_t i = 0; i < f->n_processes; i++) {
        const struct facts_series *rss = &f->processes[i].field[SAMPLE_RSS];
        if (!is_worker(f, &f->processes[i]) || rss->count == 0)
            continue;
        struct workers w = workers_at(f, (rss->t_s[0] + rss->t_s[rss->count - 1]) / 2);
        if (w.rss > best.rss)
            best = w;
    }
    return best;
}

static void weigh_workers(const struct question *q, struct hypothesis *h, const struct workers *w)
{
    /* These workers do not grow, so they explain none of the growth. If nothing grows, they
     * explain their part of all memory, where RSS includes shared pages once per process. */
    double all = fmax(q->base + q->growth, 0) + w->rss;
    h->share = q->is_growing || !(all > 0) ? 0 : w->rss / all;
    if (w->unique_known) {
        evidence_for(
            h, FAIR + WEAK,
            "%zu workers do not grow: RSS at most %s each, %s in total, of which %s is unshared",
            w->count, SIZE(w->largest), SIZE(w->rss), SIZE(w->unique));
    } else {
        evidence_for(h, FAIR, "%zu workers do not grow: RSS at most %s each, %s in total", w->count,
                     SIZE(w->largest), SIZE(w->rss));
        evidence_absent(h,
                        "unique memory was not sampled: shared pages are counted in each worker");
    }
    if (q->is_growing)
        evidence_against(h, FAIR, "the growth of %s is not in the workers", SIZE(q->total));
}

void test_workers(const struct question *q, struct hypothesis *h)
{
    struct workers w = workers_of(q->f);
    if (w.count == 0 && !knows_roles(q->f) && q->f->n_processes <= 1) {
        evidence_absent(h, "the recording has one process, and its role is unknown");
    } else if (w.count == 0) {
        evidence_against(h, DECIDES, "there is no worker among %zu process%s", q->f->n_processes,
                         q->f->n_processes == 1 ? "" : "es");
    } else if (w.growing) {
        evidence_against(h, STRONG, "%zu of %zu workers grow", w.growing, w.count);
    } else {
        weigh_workers(q, h, &w);
    }
}

/* ---- copy on write ---- */

struct unsharing {
    size_t count;
    double unique, rss; /* growth of all workers over their lives */
    double given;       /* memory that the workers inherited at birth */
};

/* Returns true if P was probably forked, because it began with most of the memory of the main
 * process. A forked process begins with all memory of its parent, and shares it. */
static bool is_forked(const struct facts *f, const struct facts_process *p)
{
    double first = facts_at(&p->field[SAMPLE_RSS], p->born_s);
    double parent = f->main ? facts_at(&f->main->field[SAMPLE_RSS], p->born_s) : (double)NAN;
    return first > 0.5 * parent;
}

static struct unsharing unsharing_of(const struct facts *f)
{
    struct unsharing u = {0};
    for (size_t i = 0; i < f->n_processes; i++) {
        const struct facts_process *p = &f->processes[i];
        const struct facts_series *unshared = &p->field[SAMPLE_UNIQUE];
        double unique = facts_max(unshared, 0, (double)INFINITY) -
                        (is_forked(f, p) ? 0 : facts_at(unshared, 0));
        double rss = facts_growth(&p->field[SAMPLE_RSS], 0, (double)INFINITY);
        if (p->role != ROLE_DATA_WORKER || isnan(unique) || isnan(rss))
            continue;
        u.count++;
        u.unique += unique;
        u.rss += fmax(0, rss);
        u.given += facts_at(&p->field[SAMPLE_RSS], p->born_s);
    }
    return u;
}

void test_copy_on_write(const struct question *q, struct hypothesis *h)
{
    struct unsharing u = unsharing_of(q->f);
    size_t workers = count_role(q->f, ROLE_DATA_WORKER);
    if (!knows_roles(q->f)) {
        evidence_absent(h, "process roles were not recorded");
    } else if (workers == 0) {
        evidence_against(h, DECIDES, "there is no data-loader worker among %zu process%s",
                         q->f->n_processes, q->f->n_processes == 1 ? "" : "es");
    } else if (u.count == 0) {
        evidence_absent(h, "unique memory of the %zu data-loader workers was not sampled", workers);
        decide_by(h, "run without --no-unique");
    } else if (u.unique > unshared_least_share * u.given && u.unique > 2 * u.rss &&
               is_worth_diagnosing(q, u.unique)) {
        h->share = share_of(q, u.unique);
        evidence_for(
            h, STRONG,
            "%zu data-loader workers copied %s of shared pages while their RSS grew by only %s",
            u.count, SIZE(u.unique), SIZE(u.rss));
        if (q->is_growing && q->f->main->role == ROLE_DATA_WORKER)
            evidence_against(h, STRONG,
                             "the worker's RSS grows; copying shared pages does not raise RSS");
        else if (q->word == VERDICT_STABLE || q->word == VERDICT_PLATEAUED)
            evidence_for(h, WEAK, "the parent process of the data-loader workers does not grow");
    } else {
        evidence_against(
            h, STRONG,
            "%zu data-loader workers copied %s of shared pages while their RSS grew by %s", u.count,
            SIZE(fmax(0, u.unique)), SIZE(u.rss));
    }
}

/* ---- compiling ---- */

/* Returns true for a source file of the compiler, except eval_frame.py, which is also on the stack
 * when compiled code runs. */
static bool is_compiler_frame(const struct name *n)
{
    const char *file = n->file;
    return file && !strstr(file, "/_dynamo/eval_frame.py") &&
           (strstr(file, "/_dynamo/") || strstr(file, "/_inductor/") || strstr(file, "/triton/"));
}

/* Returns true for a frame that exists because the compiler is being imported. Optimizers import
 * the compiler too, without compiling anything. */
static bool is_compiler_import(const struct name *n)
{
    return is_compiler_frame(n) && strcmp(n->function, "<module>") == 0;
}

bool made_by_compiler(const struct facts_heap *heap, const struct growth_row *row)
{
    return (is_compiler_frame(row->name) || has_frame(heap, row, is_compiler_frame)) &&
           !is_compiler_import(row->name) && !has_frame(heap, row, is_compiler_import);
}

void test_compile(const struct question *q, struct hypothesis *h)
{
    const struct facts_heap *heap = &q->f->heap;
    double grown = 0;
    size_t workers = count_role(q->f, ROLE_COMPILE_WORKER);
    for (size_t i = 0; i < heap->growth.count; i++)
        if (ledger_row_growth(q->f, q->l, i) > 0 && made_by_compiler(heap, &heap->growth.rows[i]))
            grown += ledger_row_growth(q->f, q->l, i);
    if (!heap->profile && workers == 0 && !knows_roles(q->f)) {
        evidence_absent(h, "neither process roles nor call sites were recorded");
        return;
    }
    if (heap->profile && grown > 0.1 * fmax(q->total, compiled_least_bytes)) {
        h->share = share_of(q, grown);
        evidence_for(h, STRONG, "memory allocated for the compiler grew by %s since the start",
                     SIZE(grown));
    } else if (heap->profile) {
        evidence_against(h, STRONG,
                         "memory allocated for the compiler grew by only %s since the start",
                         SIZE(fmax(0, grown)));
    } else {
        evidence_absent(h, "call sites were not recorded: %s", heap->why_not);
    }
    if (workers == 0) /* weak evidence, because not every backend uses compile workers */
        evidence_against(h, h->share > 0 ? WEAK : FAIR,
                         "there is no compile worker among %zu process%s", q->f->n_processes,
                         q->f->n_processes == 1 ? "" : "es");
    else
        evidence_for(h, WEAK, "%zu compile workers ran", workers);
}

/* ---- processes that pile up ---- */

/* The processes other than the main process that were alive at T_S, and their unique memory. For a
 * process whose unique memory is unknown, its RSS is used, part of which may be shared. */
struct pile {
    /* LATE is the number of processes born in the second half of the compared time */
    size_t count, late;
    double bytes;
};

static struct pile pile_at(const struct facts *f, double t_s)
{
    double middle_s = (f->start_s + f->now_s) / 2;
    struct pile r = {0};
    for (size_t i = 0; i < f->n_processes; i++) {
        const struct facts_process *p = &f->processes[i];
        double unique = facts_at(&p->field[SAMPLE_UNIQUE], t_s);
        double rss = facts_at(&p->field[SAMPLE_RSS], t_s);
        if (p == f->main || p->role == ROLE_LAUNCHER || p->born_s > t_s || p->died_s <= t_s)
            continue;
        r.count++;
        r.late += p->born_s > middle_s;
        r.bytes += !isnan(unique) ? unique : isnan(rss) ? 0 : rss;
    }
    return r;
}

void test_processes(const struct question *q, struct hypothesis *h)
{
    const struct facts *f = q->f;
    if (!f->main || f->is_table) {
        evidence_absent(h, "starts and exits of processes were not recorded");
        return;
    }
    struct pile before = pile_at(f, f->start_s), now = pile_at(f, f->now_s);
    double grown = now.bytes - before.bytes;
    h->share = share_of(q, grown);
    if (now.count >= before.count + piled_least && now.late > 0 && grown > 0)
        evidence_for(
            h, STRONG + (h->share > 0.5 ? FAIR : 0),
            "besides the main process, the job had %zu processes at the start and has %zu now, %zu "
            "of them started in the second half of the run; their total memory grew by %s",
            before.count, now.count, now.late, SIZE(grown));
    else
        evidence_against(
            h, DECIDES,
            "besides the main process, the job had %zu processes at the start and has %zu now",
            before.count, now.count);
}
