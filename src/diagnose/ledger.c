/* The ledger: at either moment RSS is taken apart, the surest first, and nothing is given more than
 * is left. */
#include "diagnose/ledger.h"

#include <math.h>
#include <stdlib.h>

/* RSS that grew by less than this is not said to be explained or not. */
static const double growth_least_bytes = 1 << 20;
static const double z95 = 1.96;
/* Pieces of which a page is given when it is first written to; and of what rose without a name so
 * much must have been there and empty for all of it to be such. */
static const double large_bytes = 1 << 20;
static const double touched_share = 0.3;

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
    double used, spare; /* by the allocator's own count; NAN: it was not asked */
    double missing;     /* of spare: has no room in RSS */
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
    return facts_field_at(f->main, field, t_s);
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

/* Kinds are read less often than the job tells what it has pinned: how much came since. */
static double pinned_since(const struct facts *f, const struct moment *m)
{
    double read_s = facts_field_s(f->main, SAMPLE_SHMEM, m->t_s);
    return figure_at(f, "pinned_host_bytes", m->t_s) - figure_at(f, "pinned_host_bytes", read_s);
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
        take(m, LEDGER_SHARED,
             shmem + (pinned > 0 ? pinned_since(f, m) - m->amount[LEDGER_PINNED] : 0));
    if (f->main->role == ROLE_DATA_WORKER && !isnan(unique)) /* its parent's memory, still */
        take(m, LEDGER_SHARED, m->left - unique);
}

static double asked_at(const struct facts *f, const struct moment *m)
{
    return m->is_start ? f->heap.start : f->heap.now;
}

/* Of the allocator: what it has in use by its own count, and what it keeps; in one and the same
 * call, so that what goes from one to the other is in both or in neither. NAN: it was not asked. */
static void ask_allocator(const struct facts *f, struct moment *m)
{
    bool is_worker = f->main->role == ROLE_DATA_WORKER; /* what it has is its parent's, too */
    m->used = is_worker ? (double)NAN : figure_at(f, "heap_live_bytes", m->t_s);
    m->spare = is_worker ? (double)NAN : figure_at(f, "heap_free_bytes", m->t_s);
}

/* ---- what is mapped as shared memory ---- */

static double row_growth(const struct facts *f, size_t i)
{
    return f->heap.growth.rows[i].live_bytes - f->heap.start_bytes[i];
}

static double shared_of(const struct moment *m)
{
    return m->amount[LEDGER_PINNED] + m->amount[LEDGER_SHARED];
}

/* A driver maps what it pins as shared memory, which the kernel does not count as anonymous, and
 * the profiler sees the mapping. Of rows that mapped what they hold those are such for which there
 * is no room in the growth of anonymous memory, but in that of shared memory. */
static void find_shared_rows(const struct facts *f, const struct moment *start,
                             const struct moment *now, struct ledger *l)
{
    double too_much = f->heap.now - f->heap.start - positive(now->left - start->left);
    double shared = shared_of(now) - shared_of(start);
    for (size_t i = 0; i < f->heap.growth.count && i < GROWTH_ROWS; i++) {
        double grown = row_growth(f, i);
        if (grown < growth_least_bytes || f->heap.mapped_share[i] < 0.5 || too_much < grown / 2 ||
            shared < grown / 2)
            continue;
        l->is_shared[i] = true;
        too_much -= grown;
        shared -= grown;
    }
}

static bool is_shared_row(const struct ledger *l, size_t i)
{
    return i < GROWTH_ROWS && l->is_shared[i];
}

static double shared_rows(const struct facts *f, const struct ledger *l, bool is_start)
{
    double sum = 0;
    for (size_t i = 0; i < f->heap.growth.count; i++)
        if (is_shared_row(l, i))
            sum += is_start ? f->heap.start_bytes[i] : f->heap.growth.rows[i].live_bytes;
    return sum;
}

/* Of what is shared the line that has most of its growth. */
static void name_shared(const struct facts *f, struct ledger *l, struct ledger_entry *e)
{
    double most = e->growth_bytes / 2;
    for (size_t i = 0; i < f->heap.growth.count; i++) {
        if (!is_shared_row(l, i) || row_growth(f, i) <= most ||
            e->growth_bytes < growth_least_bytes)
            continue;
        most = row_growth(f, i);
        e->site = &f->heap.growth.rows[i];
    }
}

/* ---- the heap ---- */

/* All that lives on the heap. Where the allocator told what it has in use, that takes the place of
 * what was sampled of it, and its error goes; small Python objects and mappings are sampled. */
static double live_at(const struct facts *f, const struct ledger *l, const struct moment *m,
                      bool is_exact)
{
    double sampled = asked_at(f, m) - shared_rows(f, l, m->is_start);
    double of_malloc = m->is_start ? f->heap.start_malloc : f->heap.now_malloc;
    sampled += m->is_start ? f->heap.start_rounding : f->heap.now_rounding;
    double drift = m->is_start ? f->heap.start_drift : f->heap.now_drift;
    return is_exact ? m->used + drift + sampled - of_malloc : sampled;
}

/* Where more was asked for at the start than can be resident, that much was never touched, and is
 * taken not to have been since; or what stays would seem to grow. */
static void take_sampled(const struct facts *f, struct ledger *l, struct moment *start,
                         struct moment *now)
{
    bool is_exact = !isnan(start->used) && !isnan(now->used);
    double had = live_at(f, l, start, is_exact), has = live_at(f, l, now, is_exact);
    double untouched = positive(had - start->left);
    l->untouched_bytes = untouched;
    take(start, LEDGER_HEAP_OTHER, had - untouched);
    take(now, LEDGER_HEAP_OTHER, has - untouched);
}

static void take_counted(const struct facts *f, struct moment *m)
{
    double live = figure_at(f, "heap_live_bytes", m->t_s);
    if (isnan(live))
        return;
    take(m, LEDGER_HEAP, live);
    if (f->census_first)
        take(m, LEDGER_OBJECTS,
             census_bytes(m->is_start ? f->census_first : f->census_last, "object_bytes"));
}

static void take_retained(struct moment *m)
{
    if (isnan(m->used) || isnan(m->spare))
        return;
    m->missing = positive(m->spare - m->left);
    take(m, LEDGER_RETAINED, m->spare);
}

/* By sampling, so that a page more or less may be in use; only what was counted at both moments. */
static void take_arenas(const struct facts *f, struct moment *start, struct moment *now)
{
    if (!(f->heap.start_spare + f->heap.now_spare > 0)) /* NAN, too */
        return;
    take(start, LEDGER_ARENAS, f->heap.start_spare);
    take(now, LEDGER_ARENAS, f->heap.now_spare);
}

/* What row I asked for in large pieces, before, and has: only of such are pages given when they are
 * first written to. */
static double large_row(const struct facts *f, const struct ledger *l, size_t i)
{
    const struct growth_row *row = &f->heap.growth.rows[i];
    double held = fmin(row->live_bytes, f->heap.start_bytes[i]);
    bool is_large = row->live_objects > 0 && row->live_bytes / row->live_objects >= large_bytes;
    return is_large && !is_shared_row(l, i) ? held : 0;
}

/* Where more was asked for at the start than was resident, that was not yet written to; how much of
 * it lay beside it unseen is not known, but large pieces are all that it can be. */
static void take_touched(const struct facts *f, const struct ledger *l, const struct moment *start,
                         struct moment *now)
{
    double large = 0, risen = positive(now->left - start->left);
    double error = isnan(start->used) || isnan(now->used) ? z95 * f->heap.sigma : 0;
    for (size_t i = 0; i < f->heap.growth.count; i++)
        large += large_row(f, l, i);
    if (large > 0 && l->untouched_bytes - error > fmax(large_bytes, touched_share * risen))
        take(now, LEDGER_TOUCHED, fmin(risen, large));
}

/* The largest of those pieces. */
static void name_touched(const struct facts *f, const struct ledger *l, struct ledger_entry *e)
{
    double most = e->growth_bytes / 2;
    for (size_t i = 0; i < f->heap.growth.count; i++) {
        if (large_row(f, l, i) <= most)
            continue;
        most = large_row(f, l, i);
        e->site = &f->heap.growth.rows[i];
    }
}

/* The first byte that is written in a huge page brings all of it, and nobody has asked for the
 * rest. Of what has no name so much may lie in such pages; and has come since by as much as they
 * became more. */
static void take_huge(const struct facts *f, struct moment *start, struct moment *now)
{
    double had = field_at(f, SAMPLE_HUGE, start->t_s), has = field_at(f, SAMPLE_HUGE, now->t_s);
    if (isnan(had) || isnan(has) || !(had > 0 || has > 0))
        return;
    take(start, LEDGER_HUGE, had);
    take(now, LEDGER_HUGE, fmin(has, start->amount[LEDGER_HUGE] + positive(has - had)));
}

static void take_apart(const struct facts *f, struct ledger *l, struct moment *start,
                       struct moment *now)
{
    struct moment *both[] = {start, now};
    for (int i = 0; i < 2; i++) {
        both[i]->rss = both[i]->left = positive(field_at(f, SAMPLE_RSS, both[i]->t_s));
        take_shared(f, both[i]);
        ask_allocator(f, both[i]);
        if (!f->heap.profile)
            take_counted(f, both[i]);
    }
    if (f->heap.profile) {
        find_shared_rows(f, start, now, l);
        take_sampled(f, l, start, now);
    }
    take_retained(start);
    take_retained(now);
    take_arenas(f, start, now);
    take_touched(f, l, start, now);
    take_huge(f, start, now);
}

/* ---- call sites ---- */

/* What row I holds at either moment, so that all of them are what the heap is. */
static double row_start(const struct facts *f, const struct ledger_scale *s, size_t i)
{
    return s->start * f->heap.start_bytes[i];
}

static double row_now(const struct facts *f, const struct ledger_scale *s, size_t i)
{
    double had = f->heap.start_bytes[i], has = f->heap.growth.rows[i].live_bytes;
    return s->now * (has > had ? s->start * had + s->growth * (has - had) : s->start * has);
}

/* What sampling got wrong at the start it has wrong ever since: it is the growth that is made to
 * fit, at most twofold, and only what then is too much is taken from all. */
static struct ledger_scale scale_rows(const struct facts *f, const struct ledger *l, double had,
                                      double has)
{
    const struct growth_row *rows = f->heap.growth.rows;
    double sampled = f->heap.start - shared_rows(f, l, true), stays = 0, grown = 0;
    struct ledger_scale s = {sampled > 0 ? had / sampled : 1, 1, 1};
    for (size_t i = 0; i < f->heap.growth.count; i++) {
        if (is_shared_row(l, i))
            continue;
        stays += fmin(rows[i].live_bytes, f->heap.start_bytes[i]);
        grown += positive(rows[i].live_bytes - f->heap.start_bytes[i]);
    }
    if (grown > 0)
        s.growth = fmin(2, positive((has - s.start * stays) / grown));
    double all = s.start * stays + s.growth * grown;
    if (all > has)
        s.now = has / all;
    return s;
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
    l->scale = scale_rows(f, l, rest_start, rest_now);
    for (size_t i = 0; list && i < h->growth.count; i++)
        list[i] = is_shared_row(l, i)
                      ? (struct ranked){.row = i}
                      : (struct ranked){i, row_start(f, &l->scale, i), row_now(f, &l->scale, i)};
    if (list)
        qsort(list, h->growth.count, sizeof *list, by_change);
    for (size_t i = 0; list && i < h->growth.count && i < LEDGER_SITES; i++) {
        const struct growth_row *row = &h->growth.rows[list[i].row];
        double at_start = fmin(list[i].start, rest_start), at_now = fmin(list[i].now, rest_now);
        if (at_start + at_now <= 0)
            continue;
        double scale = row->live_bytes > 0 ? list[i].now / row->live_bytes : 1;
        add(l, LEDGER_HEAP_SITE, at_start, at_now, row->live_low * scale,
            fmin(row->live_high * scale, now->rss));
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

/* What was not measured by anyone directly lies between nothing and that. Of what is free that part
 * may not be resident which has no room in RSS. */
static double low_of(const struct moment *now, enum ledger_kind kind, double bytes)
{
    if (kind == LEDGER_RETAINED)
        return positive(bytes - now->missing);
    bool is_at_most = kind == LEDGER_PINNED || kind == LEDGER_OBJECTS || kind == LEDGER_TOUCHED ||
                      kind == LEDGER_HUGE;
    return is_at_most ? 0 : bytes;
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
    take_apart(f, ret, &start, &now);
    ret->is_known = true;
    ret->rss_start_bytes = start.rss;
    ret->rss_now_bytes = now.rss;
    for (int kind = 0; kind < LEDGER_KINDS; kind++) {
        double had = start.amount[kind], has = now.amount[kind];
        enum ledger_kind k = (enum ledger_kind)kind;
        if (k != LEDGER_HEAP_OTHER && (start.has[k] || now.has[k]))
            add(ret, k, had, has, low_of(&now, k, has), has);
        if (ret->count > 0 && (k == LEDGER_PINNED || k == LEDGER_SHARED) &&
            ret->entries[ret->count - 1].kind == k)
            name_shared(f, ret, &ret->entries[ret->count - 1]);
        if (k == LEDGER_TOUCHED && now.has[k])
            name_touched(f, ret, &ret->entries[ret->count - 1]);
    }
    ret->knows_retained = start.has[LEDGER_RETAINED] && now.has[LEDGER_RETAINED];
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
    double shared = ledger_growth(l, LEDGER_PINNED) + ledger_growth(l, LEDGER_SHARED);
    if (is_shared_row(l, i))
        return fmin(row_growth(f, i), shared);
    return row_now(f, &l->scale, i) - row_start(f, &l->scale, i);
}

const struct growth_row *ledger_site(const struct ledger *l, enum ledger_kind kind)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->entries[i].kind == kind)
            return l->entries[i].site;
    return NULL;
}

double ledger_beside_growth(const struct ledger *l)
{
    enum ledger_kind kept = l->knows_retained ? LEDGER_RETAINED : LEDGER_UNEXPLAINED;
    return ledger_growth(l, kept) + ledger_growth(l, LEDGER_ARENAS);
}
