/* Hypotheses that show in which process it is: launchers, workers, what they share. */
#include <math.h>
#include <string.h>

#include "diagnose/hypothesis_private.h"

/* A fork writes to its own stack and heap: only beyond this part of what it was given is it
 * copying.
 */
static const double unshared_least_share = 0.1;
static const double compiled_least_bytes = 8 << 20;
static const double worker_least_s = 3;

/* A table tells no roles. */
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
    struct sizes s;
    if (!f->main || !knows_roles(f)) {
        say(h, EVIDENCE_ABSENT, 0, "the roles of processes were not recorded");
        return;
    }
    h->share = 1;
    if (f->main->role == ROLE_LAUNCHER) {
        say(h, EVIDENCE_FOR, STRONG + FAIR,
            "of %zu processes none trains, and the largest, %s %d, only starts others",
            f->n_processes, f->main->name, (int)f->main->id.pid);
        return;
    }
    say(h, EVIDENCE_AGAINST, DECIDES, "process %d %s was watched itself: %s, up to %s",
        (int)f->main->id.pid, f->main->name, process_role_name(f->main->role),
        size_of(&s, 0, f->main->peak_bytes));
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

/* How long it was seen. */
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

/* When they were largest together. */
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

static void say_workers(const struct question *q, struct hypothesis *h, const struct workers *w)
{
    struct sizes s;
    /* where nothing grows it is the sum of RSS that one asks about, shared or not */
    double all = fmax(q->base + q->growth, 0) + w->rss;
    h->share = q->is_growing || !(all > 0) ? 0 : w->rss / all;
    if (w->unique_known) {
        say(h, EVIDENCE_FOR, FAIR + WEAK,
            "%zu processes with RSS up to %s, in all %s, of which %s is their own, do not grow",
            w->count, size_of(&s, 0, w->largest), size_of(&s, 1, w->rss),
            size_of(&s, 2, w->unique));
    } else {
        say(h, EVIDENCE_FOR, FAIR, "%zu processes with RSS up to %s, in all %s, do not grow",
            w->count, size_of(&s, 0, w->largest), size_of(&s, 1, w->rss));
        say(h, EVIDENCE_ABSENT, 0,
            "unique memory was not read: what they share is counted in each");
    }
    if (q->is_growing)
        say(h, EVIDENCE_AGAINST, FAIR, "the growth of %s is not in them", size_of(&s, 3, q->total));
}

void test_workers(const struct question *q, struct hypothesis *h)
{
    struct workers w = workers_of(q->f);
    if (w.count == 0 && !knows_roles(q->f) && q->f->n_processes <= 1) {
        say(h, EVIDENCE_ABSENT, 0, "one process is in the recording, and its role is not told");
    } else if (w.count == 0) {
        say(h, EVIDENCE_AGAINST, DECIDES, "there is no worker among %zu process%s",
            q->f->n_processes, q->f->n_processes == 1 ? "" : "es");
    } else if (w.growing) {
        say(h, EVIDENCE_AGAINST, STRONG, "%zu of %zu workers grow themselves", w.growing, w.count);
    } else {
        say_workers(q, h, &w);
    }
}

/* ---- copy on write ---- */

struct unsharing {
    size_t count;
    double unique, rss; /* growth over their lives */
    double given;       /* what they had when they came */
};

static double life_growth(const struct facts_series *s)
{
    double first = (double)NAN, last = (double)NAN;
    for (size_t i = 0; i < s->count; i++) {
        if (isnan(s->v[i]))
            continue;
        first = isnan(first) ? s->v[i] : first;
        last = s->v[i];
    }
    return last - first;
}

static double most_growth(const struct facts_series *s)
{
    double first = (double)NAN, most = (double)NAN;
    for (size_t i = 0; i < s->count; i++) {
        first = isnan(first) ? s->v[i] : first;
        most = fmax(most, s->v[i]);
    }
    return most - first;
}

/* A fork has its parent's memory from its first moment, and nothing of its own. */
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
        double unique = is_forked(f, p) ? facts_most(&p->field[SAMPLE_UNIQUE], 0, (double)INFINITY)
                                        : most_growth(&p->field[SAMPLE_UNIQUE]);
        double rss = life_growth(&p->field[SAMPLE_RSS]);
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
    struct sizes s;
    struct unsharing u = unsharing_of(q->f);
    size_t workers = count_role(q->f, ROLE_DATA_WORKER);
    if (!knows_roles(q->f)) {
        say(h, EVIDENCE_ABSENT, 0, "the roles of processes were not recorded");
    } else if (workers == 0) {
        say(h, EVIDENCE_AGAINST, DECIDES, "there is no data-loader worker among %zu process%s",
            q->f->n_processes, q->f->n_processes == 1 ? "" : "es");
    } else if (u.count == 0) {
        say(h, EVIDENCE_ABSENT, 0, "unique memory of the %zu data-loader workers was not read",
            workers);
        decide_by(h, "a run without --no-unique");
    } else if (u.unique > unshared_least_share * u.given && u.unique > 2 * u.rss &&
               is_worth_asking(q, u.unique)) {
        h->share = q->has_grown ? share_of(q, u.unique) : 1;
        say(h, EVIDENCE_FOR, STRONG,
            "%zu data-loader workers made %s their own, in all, while their RSS grew by %s",
            u.count, size_of(&s, 0, u.unique), size_of(&s, 1, u.rss));
        if (q->is_growing && q->f->main->role == ROLE_DATA_WORKER)
            say(h, EVIDENCE_AGAINST, STRONG,
                "RSS of such a worker itself grows: what is copied was resident before");
        else if (q->word == VERDICT_STABLE || q->word == VERDICT_PLATEAUED)
            say(h, EVIDENCE_FOR, WEAK, "the process they were forked from does not grow");
    } else {
        say(h, EVIDENCE_AGAINST, STRONG,
            "%zu data-loader workers made %s their own, in all, while their RSS grew by %s",
            u.count, size_of(&s, 0, fmax(0, u.unique)), size_of(&s, 1, u.rss));
    }
}

/* ---- compiling ---- */

/* Files of the compiler; eval_frame.py is there whenever compiled code runs, too. */
static bool is_compiler(const char *file)
{
    return file && !strstr(file, "/_dynamo/eval_frame.py") &&
           (strstr(file, "/_dynamo/") || strstr(file, "/_inductor/") || strstr(file, "/triton/"));
}

bool made_by_compiler(const struct facts_heap *heap, const struct growth_row *row)
{
    const struct profile *p = heap->profile;
    uint32_t node = p && row->site < p->n_sites ? p->site_node[row->site] : 0;
    if (is_compiler(row->name->file))
        return true;
    for (; node; node = p->nodes[node].parent) {
        const struct name *frames;
        size_t n = names_of_node(heap->names, node, &frames);
        for (size_t i = 0; i < n; i++)
            if (is_compiler(frames[i].file))
                return true;
    }
    return false;
}

void test_compile(const struct question *q, struct hypothesis *h)
{
    const struct facts_heap *heap = &q->f->heap;
    struct sizes s;
    double grown = 0;
    size_t workers = count_role(q->f, ROLE_COMPILE_WORKER);
    for (size_t i = 0; i < heap->growth.count; i++)
        if (ledger_row_growth(q->f, q->l, i) > 0 && made_by_compiler(heap, &heap->growth.rows[i]))
            grown += ledger_row_growth(q->f, q->l, i);
    if (!heap->profile && workers == 0 && !knows_roles(q->f)) {
        say(h, EVIDENCE_ABSENT, 0, "neither roles of processes nor call sites were recorded");
        return;
    }
    if (heap->profile && grown > 0.1 * fmax(q->total, compiled_least_bytes)) {
        h->share = share_of(q, grown);
        say(h, EVIDENCE_FOR, STRONG,
            "what the compiler made or called for holds %s more than at the start",
            size_of(&s, 0, grown));
    } else if (heap->profile) {
        say(h, EVIDENCE_AGAINST, STRONG,
            "what the compiler made or called for holds %s more than at the start",
            size_of(&s, 0, fmax(0, grown)));
    } else {
        say(h, EVIDENCE_ABSENT, 0, "no call sites: %s", heap->why_not);
    }
    if (workers == 0) /* not every backend has them */
        say(h, EVIDENCE_AGAINST, h->share > 0 ? WEAK : FAIR,
            "there is no compile worker among %zu process%s", q->f->n_processes,
            q->f->n_processes == 1 ? "" : "es");
    else
        say(h, EVIDENCE_FOR, WEAK, "%zu compile workers were there", workers);
}
