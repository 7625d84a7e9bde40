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
    return facts_at(&f->main->field[field], t_s);
}

static double figure_at(const struct facts *f, const char *name, double t_s)
{
    const struct facts_figure *figure = facts_figure(f, name);
    return figure ? facts_at(&figure->series, t_s) : (double)NAN;
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

static void take_heap(const struct facts *f, struct moment *m)
{
    double live = figure_at(f, "heap_live_bytes", m->t_s);
    m->heap_scale = 1;
    if (f->heap.profile) {
        double asked = m->is_start ? f->heap.start : f->heap.now;
        double before = m->left;
        take(m, LEDGER_HEAP_OTHER, asked);
        if (asked > 0)
            m->heap_scale = fmin(1, before / asked);
        return;
    }
    if (isnan(live))
        return;
    take(m, LEDGER_HEAP, live);
    if (f->census_first)
        take(m, LEDGER_OBJECTS,
             census_bytes(m->is_start ? f->census_first : f->census_last, "object_bytes"));
}

static void take_apart(const struct facts *f, struct moment *m)
{
    m->rss = m->left = positive(field_at(f, SAMPLE_RSS, m->t_s));
    take_shared(f, m);
    take_heap(f, m);
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

/* What is resident beside all this and was not at the start: with every allocation watched it is
 * what was freed and not given back, or lost between the pieces. */
static void add_rest(const struct facts *f, const struct moment *start, const struct moment *now,
                     struct ledger *l)
{
    double risen = now->left - start->left, rest = now->left;
    if (f->main->role == ROLE_DATA_WORKER && now->has[LEDGER_SHARED] &&
        !isnan(field_at(f, SAMPLE_UNIQUE, now->t_s))) {
        add(l, LEDGER_UNSHARED, start->left, now->left, 0, now->left);
        return;
    }
    if (f->heap.profile && risen > 0) {
        add(l, LEDGER_RETAINED, 0, risen, positive(risen - z95 * f->heap.sigma),
            risen + z95 * f->heap.sigma);
        rest -= risen;
    }
    add(l, LEDGER_UNEXPLAINED, start->left, rest, rest, rest);
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
    take_apart(f, &start);
    take_apart(f, &now);
    ret->is_known = true;
    ret->rss_start_bytes = start.rss;
    ret->rss_now_bytes = now.rss;
    for (int kind = 0; kind < LEDGER_KINDS; kind++) {
        double had = start.amount[kind], has = now.amount[kind];
        bool is_guess = kind == LEDGER_PINNED || kind == LEDGER_OBJECTS;
        if (kind != LEDGER_HEAP_OTHER && (start.has[kind] || now.has[kind]))
            add(ret, (enum ledger_kind)kind, had, has, is_guess ? 0 : has, has);
    }
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
