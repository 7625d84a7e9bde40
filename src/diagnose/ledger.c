/* The ledger: at either moment RSS is taken apart, the surest first, and nothing is given more than
 * is left. */
#include "diagnose/ledger.h"

#include <math.h>
#include <stdlib.h>

/* RSS that grew by less than this is not said to be explained or not. */
static const double growth_least_bytes = 1 << 20;
static const double z95 = 1.96;

const char *ledger_word(enum ledger_kind kind)
{
#define X(sym, word, text) [LEDGER_##sym] = (word),
    static const char *const words[] = {LEDGER_ENTRIES(X)};
#undef X
    return words[kind];
}

const char *ledger_text(enum ledger_kind kind)
{
#define X(sym, word, text) [LEDGER_##sym] = (text),
    static const char *const texts[] = {LEDGER_ENTRIES(X)};
#undef X
    return texts[kind];
}

/* ---- one moment ---- */

struct moment {
    bool is_start;
    double t_s, rss, left;
    double amount[LEDGER_KINDS];
    double heap_scale; /* resident bytes of a byte that was asked for */
    bool has[LEDGER_KINDS];
};

static double positive(double v)
{
    return v > 0 ? v : 0; /* NAN too */
}

/* At most what is left. */
static void take(struct moment *m, enum ledger_kind kind, double bytes)
{
    double got = fmin(positive(bytes), m->left);
    m->amount[kind] += got;
    m->left -= got;
    m->has[kind] = true;
}

static double field_at(const struct facts *f, enum sample_process_field field, double t_s)
{
    bool is_seldom_read = field != SAMPLE_RSS;
    const struct facts_series *s = &f->main->field[field];
    return is_seldom_read ? facts_near(s, t_s) : facts_at(s, t_s);
}

static double figure_at(const struct facts *f, const char *name, double t_s)
{
    const struct facts_figure *figure = facts_figure(f, name);
    return figure ? facts_near(&figure->series, t_s) : (double)NAN; /* sent when a step ends */
}

static double census_bytes(const json_t *census, const char *key)
{
    const json_t *v = json_object_get(census, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void take_shared(const struct facts *f, struct moment *m)
{
    double shmem = field_at(f, SAMPLE_SHMEM, m->t_s), unique = field_at(f, SAMPLE_UNIQUE, m->t_s);
    double file = field_at(f, SAMPLE_FILE, m->t_s);
    double pinned = figure_at(f, "pinned_host_bytes", m->t_s);
    if (!isnan(file))
        take(m, LEDGER_FILES, file);
    if (!isnan(pinned) && pinned > 0)
        take(m, LEDGER_PINNED, pinned);
    if (!isnan(shmem))
        take(m, LEDGER_SHARED, shmem - m->amount[LEDGER_PINNED]);
    if (f->main->role == ROLE_DATA_WORKER && !isnan(unique)) /* its parent's memory, still */
        take(m, LEDGER_SHARED, m->left - unique);
}

static double asked_at(const struct facts *f, const struct moment *m)
{
    return m->is_start ? f->heap.start : f->heap.now;
}

/* Resident bytes of one that a call site asked for, where more was asked for than can be resident
 * at one of the moments; the same at both, or what stays would seem to grow. */
static double heap_scale(const struct facts *f, const struct moment *start,
                         const struct moment *now)
{
    double had = asked_at(f, start), has = asked_at(f, now);
    return fmin(had > 0 ? fmin(1, start->left / had) : 1, has > 0 ? fmin(1, now->left / has) : 1);
}

static void take_heap(const struct facts *f, struct moment *m, double scale)
{
    double live = figure_at(f, "heap_live_bytes", m->t_s);
    if (f->heap.profile) {
        take(m, LEDGER_HEAP_OTHER, scale * asked_at(f, m));
        return;
    }
    if (isnan(live))
        return;
    take(m, LEDGER_HEAP, live);
    if (f->census_first)
        take(m, LEDGER_OBJECTS,
             census_bytes(m->is_start ? f->census_first : f->census_last, "object_bytes"));
}

/* What the allocator has from the kernel (in use and free, of one and the same call) less what
 * lives of it. Without a profile its own count of what is free is that. */
static void take_retained(const struct facts *f, struct moment *m, double scale)
{
    double used = figure_at(f, "heap_live_bytes", m->t_s);
    double spare = figure_at(f, "heap_free_bytes", m->t_s);
    if (isnan(used) || isnan(spare) || f->main->role == ROLE_DATA_WORKER)
        return;
    double live = m->is_start ? f->heap.start_malloc : f->heap.now_malloc;
    take(m, LEDGER_RETAINED, f->heap.profile ? used + spare - scale * live : spare);
}

static void take_apart(const struct facts *f, struct moment *start, struct moment *now)
{
    start->rss = start->left = positive(field_at(f, SAMPLE_RSS, start->t_s));
    now->rss = now->left = positive(field_at(f, SAMPLE_RSS, now->t_s));
    take_shared(f, start);
    take_shared(f, now);
    double scale = f->heap.profile ? heap_scale(f, start, now) : 1;
    take_heap(f, start, scale);
    take_heap(f, now, scale);
    take_retained(f, start, scale);
    take_retained(f, now, scale);
    start->heap_scale = now->heap_scale = scale;
}

/* ---- both ---- */

static void add(struct ledger *l, enum ledger_kind kind, double start, double now, double low,
                double high)
{
    l->entries[l->count++] = (struct ledger_entry){.kind = kind,
                                                   .start_bytes = start,
                                                   .now_bytes = now,
                                                   .low_bytes = fmin(low, now),
                                                   .high_bytes = fmax(high, now),
                                                   .growth_bytes = now - start};
}

struct ranked {
    size_t row;
    double start, now;
};

static int by_change(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    double left = fabs(x->now - x->start), right = fabs(y->now - y->start);
    if (left != right)
        return left < right ? 1 : -1;
    return (x->now < y->now) - (x->now > y->now);
}

/* Those that changed most by name, the others together. */
static void add_sites(const struct facts *f, const struct moment *start, const struct moment *now,
                      struct ledger *l)
{
    const struct facts_heap *h = &f->heap;
    struct ranked *list = calloc(h->growth.count ? h->growth.count : 1, sizeof *list);
    double rest_start = start->amount[LEDGER_HEAP_OTHER], rest_now = now->amount[LEDGER_HEAP_OTHER];
    double half = z95 * h->sigma;
    for (size_t i = 0; list && i < h->growth.count; i++)
        list[i] = (struct ranked){i, h->start_bytes[i] * start->heap_scale,
                                  h->growth.rows[i].live_bytes * now->heap_scale};
    if (list)
        qsort(list, h->growth.count, sizeof *list, by_change);
    for (size_t i = 0; list && i < h->growth.count && i < LEDGER_SITES; i++) {
        const struct growth_row *row = &h->growth.rows[list[i].row];
        double at_start = fmin(list[i].start, rest_start), at_now = fmin(list[i].now, rest_now);
        if (at_start + at_now <= 0)
            continue;
        add(l, LEDGER_HEAP_SITE, at_start, at_now, row->live_low * now->heap_scale,
            fmin(row->live_high, now->rss));
        l->entries[l->count - 1].site = row;
        rest_start -= at_start;
        rest_now -= at_now;
    }
    free(list);
    add(l, LEDGER_HEAP_OTHER, rest_start, rest_now, positive(rest_now - half),
        fmin(rest_now + half, now->rss));
}

static void add_rest(const struct facts *f, const struct moment *start, const struct moment *now,
                     struct ledger *l)
{
    bool is_worker = f->main->role == ROLE_DATA_WORKER && now->has[LEDGER_SHARED] &&
                     !isnan(field_at(f, SAMPLE_UNIQUE, now->t_s));
    add(l, is_worker ? LEDGER_UNSHARED : LEDGER_UNEXPLAINED, start->left, now->left,
        is_worker ? 0 : now->left, now->left);
}

/* What was not measured by anyone directly lies between nothing and that; what is a reading less
 * what lives is as sure as the latter. */
static double low_of(const struct facts *f, enum ledger_kind kind, double bytes)
{
    if (kind == LEDGER_RETAINED && f->heap.profile)
        return positive(bytes - z95 * f->heap.sigma);
    return kind == LEDGER_PINNED || kind == LEDGER_OBJECTS || kind == LEDGER_RETAINED ? 0 : bytes;
}

static double high_of(const struct facts *f, enum ledger_kind kind, double bytes, double rss)
{
    bool is_sampled = kind == LEDGER_RETAINED && f->heap.profile;
    return is_sampled ? fmin(rss, bytes + z95 * f->heap.sigma) : bytes;
}

static int by_growth(const void *a, const void *b)
{
    const struct ledger_entry *x = a, *y = b;
    bool left = x->kind == LEDGER_UNEXPLAINED, right = y->kind == LEDGER_UNEXPLAINED;
    if (left != right)
        return left ? 1 : -1;
    if (x->growth_bytes != y->growth_bytes)
        return x->growth_bytes < y->growth_bytes ? 1 : -1;
    return (x->now_bytes < y->now_bytes) - (x->now_bytes > y->now_bytes);
}

/* What fell makes room for what rose: the unexplained part alone is not named. */
static double named_share(const struct ledger *l)
{
    double grown = l->rss_now_bytes - l->rss_start_bytes;
    if (grown < growth_least_bytes)
        return (double)NAN;
    double unnamed = positive(ledger_growth(l, LEDGER_UNEXPLAINED));
    return fmax(0, 1 - unnamed / grown);
}

void ledger_make(const struct facts *f, struct ledger *ret)
{
    struct moment start = {.is_start = true, .t_s = f->start_s}, now = {.t_s = f->now_s};
    *ret = (struct ledger){
        .start_s = f->start_s, .now_s = f->now_s, .named_growth_share = (double)NAN};
    if (!f->main || isnan(field_at(f, SAMPLE_RSS, f->now_s)))
        return;
    take_apart(f, &start, &now);
    ret->is_known = true;
    ret->rss_start_bytes = start.rss;
    ret->rss_now_bytes = now.rss;
    for (int kind = 0; kind < LEDGER_KINDS; kind++) {
        double had = start.amount[kind], has = now.amount[kind];
        enum ledger_kind k = (enum ledger_kind)kind;
        if (k != LEDGER_HEAP_OTHER && (start.has[k] || now.has[k]))
            add(ret, k, had, has, low_of(f, k, has), high_of(f, k, has, now.rss));
    }
    ret->knows_retained = start.has[LEDGER_RETAINED] && now.has[LEDGER_RETAINED];
    ret->heap_scale = now.heap_scale;
    if (f->heap.profile)
        add_sites(f, &start, &now, ret);
    add_rest(f, &start, &now, ret);
    qsort(ret->entries, ret->count, sizeof *ret->entries, by_growth);
    ret->named_growth_share = named_share(ret);
}

/* ---- asking ---- */

double ledger_now(const struct ledger *l, enum ledger_kind kind)
{
    double sum = 0;
    for (size_t i = 0; i < l->count; i++)
        sum += l->entries[i].kind == kind ? l->entries[i].now_bytes : 0;
    return sum;
}

double ledger_growth(const struct ledger *l, enum ledger_kind kind)
{
    double sum = 0;
    for (size_t i = 0; i < l->count; i++)
        sum += l->entries[i].kind == kind ? l->entries[i].growth_bytes : 0;
    return sum;
}

double ledger_live_growth(const struct ledger *l)
{
    return ledger_growth(l, LEDGER_HEAP_SITE) + ledger_growth(l, LEDGER_HEAP_OTHER) +
           ledger_growth(l, LEDGER_HEAP);
}

double ledger_row_growth(const struct facts *f, const struct ledger *l, size_t i)
{
    return l->heap_scale * (f->heap.growth.rows[i].live_bytes - f->heap.start_bytes[i]);
}

double ledger_beside_growth(const struct ledger *l)
{
    return ledger_growth(l, l->knows_retained ? LEDGER_RETAINED : LEDGER_UNEXPLAINED);
}
