/* The ledger divides RSS at each of the two moments into entries, the most certain first. Each
 * entry is limited to the RSS that remains after the previous entries. */
#include "diagnose/ledger.h"

#include <math.h>
#include <stdlib.h>

/* RSS growth below this is not divided into attributed and unattributed growth. */
static const double growth_least_bytes = 1 << 20;
static const double z95 = 1.96;
/* Blocks of at least large_bytes become resident page by page, as the program writes to them. If
 * the program had allocated enough memory that was not resident at the start (at least
 * touched_share of the unattributed growth), this growth is attributed to such blocks. */
static const double large_bytes = 1 << 20;
static const double touched_share = 0.3;
/* If the ratio of live memory to the resident part of malloc's heaps exceeds this, some live memory
 * is outside these heaps. */
static const double elsewhere_share = 1.1;

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

static double positive(double v)
{
    return v > 0 ? v : 0; /* NAN becomes 0 as well */
}

static void ledger_add(struct ledger *l, enum ledger_kind kind, double start, double now,
                       double low, double high)
{
    l->entries[l->count++] = (struct ledger_entry){.kind = kind,
                                                   .start_bytes = start,
                                                   .now_bytes = now,
                                                   .low_bytes = fmin(low, now),
                                                   .high_bytes = fmax(high, now),
                                                   .growth_bytes = now - start};
}

/* ---- one moment ---- */

struct moment {
    bool is_start;
    const struct facts_moment *heap;
    const json_t *census;
    double t_s, rss, left;
    double amount[LEDGER_KINDS];
    double used, spare; /* the allocator's own counts of live and free memory, or NAN */
    /* Bytes of retained memory that cannot be resident, because less RSS was left to assign. */
    double missing;
    bool has[LEDGER_KINDS];
};

/* Assigns BYTES to KIND, limited to the RSS that is left. */
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
    return figure ? facts_near(&figure->series, t_s)
                  /* the nearest report is used, because jobs report these figures only at the end
                   * of a step */
                  : (double)NAN;
}

/* Returns the growth of pinned memory between the reading of shared memory nearest to M, and M.
 * Shared memory is read less often than the job reports pinned memory. */
static double pinned_since(const struct facts *f, const struct moment *m)
{
    double read_s = facts_field_s(f->main, SAMPLE_SHMEM, m->t_s);
    return figure_at(f, "pinned_host_bytes", m->t_s) - figure_at(f, "pinned_host_bytes", read_s);
}

static void take_shared(const struct facts *f, struct moment *m)
{
    double shmem = field_at(f, SAMPLE_SHMEM, m->t_s), unique = field_at(f, SAMPLE_UNIQUE, m->t_s);
    double file = field_at(f, SAMPLE_FILE, m->t_s), stacks = field_at(f, SAMPLE_STACK, m->t_s);
    double pinned = figure_at(f, "pinned_host_bytes", m->t_s);
    if (!isnan(file))
        take(m, LEDGER_FILES, file);
    if (!isnan(pinned) && pinned > 0)
        take(m, LEDGER_PINNED, pinned);
    if (!isnan(shmem))
        take(m, LEDGER_SHARED,
             shmem + (pinned > 0 ? pinned_since(f, m) - m->amount[LEDGER_PINNED] : 0));
    if (f->main->role == ROLE_DATA_WORKER &&
        !isnan(unique)) /* a data-loader worker shares memory that it inherited from its parent */
        take(m, LEDGER_SHARED, m->left - unique);
    else if (!isnan(stacks))
        take(m, LEDGER_STACKS, stacks);
}

/* Sets the allocator's own counts of live and free memory, or NAN. Both come from one call and are
 * therefore consistent. */
static void set_allocator_counts(const struct facts *f, struct moment *m)
{
    /* A worker's allocator counts include its parent's memory. */
    bool is_worker = f->main->role == ROLE_DATA_WORKER;
    m->used = is_worker ? (double)NAN : figure_at(f, "heap_live_bytes", m->t_s);
    m->spare = is_worker ? (double)NAN : figure_at(f, "heap_free_bytes", m->t_s);
}

/* ---- memory mapped as shared ---- */

/* Returns the sampled growth of row I of the heap profile. */
static double row_sampled(const struct facts *f, size_t i)
{
    return f->heap.growth.rows[i].live_bytes - f->heap.sites[i].start_bytes;
}

static bool is_shared_row(const struct ledger *l, size_t i)
{
    return i < GROWTH_ROWS && l->is_shared[i];
}

/* Returns the live bytes of all rows that map shared memory, now or at the start. */
static double shared_rows(const struct facts *f, const struct ledger *l, bool is_start)
{
    double sum = 0;
    for (size_t i = 0; i < f->heap.growth.count; i++)
        if (is_shared_row(l, i))
            sum += is_start ? f->heap.sites[i].start_bytes : f->heap.growth.rows[i].live_bytes;
    return sum;
}

static double shared_of(const struct moment *m)
{
    return m->amount[LEDGER_PINNED] + m->amount[LEDGER_SHARED];
}

/* Finds rows that map shared memory, which the kernel does not count as anonymous. The profiler
 * recognizes mappings of /dev/shm and memfds. A driver's mapping of pinned memory looks private to
 * the profiler; such a mapping is treated as shared if its growth exceeds the growth of anonymous
 * memory but not the growth of shared memory. */
static void find_shared_rows(const struct facts *f, const struct moment *start,
                             const struct moment *now, struct ledger *l)
{
    double too_much = f->heap.now.live - f->heap.start.live - positive(now->left - start->left);
    double shared = shared_of(now) - shared_of(start);
    for (size_t i = 0; i < f->heap.growth.count && i < GROWTH_ROWS; i++) {
        double grown = row_sampled(f, i);
        bool may_be_pinned = grown >= growth_least_bytes && f->heap.sites[i].mapped_share >= 0.5 &&
                             too_much >= grown / 2 && shared >= grown / 2;
        if (f->heap.sites[i].shared_share < 0.5 && !may_be_pinned)
            continue;
        l->is_shared[i] = true;
        too_much -= grown;
        shared -= grown;
    }
}

/* Names the line whose shared memory grew most. */
static void name_shared(const struct facts *f, struct ledger *l, struct ledger_entry *e)
{
    double most = e->growth_bytes / 2;
    for (size_t i = 0; i < f->heap.growth.count; i++) {
        if (!is_shared_row(l, i) || row_sampled(f, i) <= most ||
            e->growth_bytes < growth_least_bytes)
            continue;
        most = row_sampled(f, i);
        e->site = &f->heap.growth.rows[i];
    }
}

/* ---- the heap ---- */

/* Returns all live memory on the heap. If IS_EXACT, malloc's memory is taken from the allocator's
 * own count, which has no sampling error. Otherwise it is estimated from samples. Small Python
 * objects and mappings are always estimated from samples. */
static double live_at(const struct facts *f, const struct ledger *l, const struct moment *m,
                      bool is_exact)
{
    double sampled = m->heap->live - shared_rows(f, l, m->is_start) + m->heap->rounding;
    return is_exact ? m->used + m->heap->drift + sampled - m->heap->malloc : sampled;
}

/* Assigns the live memory of the profiled heap. If more memory was live at the start than can have
 * been resident, the program had not written to the excess yet. The excess is subtracted at both
 * moments, so that it does not look like growth. */
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
    if (m->census)
        take(m, LEDGER_OBJECTS, facts_number(m->census, "object_bytes"));
}

/* Returns the resident pages of malloc's heaps that hold no live memory, measured independently of
 * the allocator's own counts. Returns NAN if these pages are unknown, or if live memory is outside
 * malloc's heaps because the program uses another allocator. */
static double kept_pages(const struct facts *f, const struct moment *m, bool is_exact)
{
    double pages = facts_heap_pages(f, m->t_s);
    double inside = m->heap->inside;
    if (!f->heap.profile || f->main->role == ROLE_DATA_WORKER || isnan(pages) || !(inside > 0))
        return (double)NAN;
    if (is_exact)
        inside += m->used + m->heap->drift - m->heap->malloc;
    if (inside > elsewhere_share * pages + (is_exact ? 0 : z95 * f->heap.sigma))
        return (double)NAN;
    return positive(pages - inside);
}

/* Assigns memory retained by the allocator: from page counts if the pages were counted for both
 * moments, else from the allocator's own count. */
static void take_retained(const struct facts *f, struct ledger *l, struct moment *start,
                          struct moment *now)
{
    bool is_exact = !isnan(start->used) && !isnan(now->used);
    struct moment *both[] = {start, now};
    double kept[] = {kept_pages(f, start, is_exact), kept_pages(f, now, is_exact)};
    l->is_by_pages = !isnan(kept[0]) && !isnan(kept[1]);
    for (int i = 0; i < 2; i++) {
        double bytes = l->is_by_pages         ? kept[i]
                       : isnan(both[i]->used) ? (double)NAN
                                              : both[i]->spare;
        if (isnan(bytes))
            continue;
        both[i]->missing = positive(bytes - both[i]->left);
        take(both[i], LEDGER_RETAINED, bytes);
    }
}

/* Assigns empty memory in Python's arenas, if it was counted at both moments. The count is an
 * estimate from samples and may be off by a page. */
static void take_arenas(const struct facts *f, struct moment *start, struct moment *now)
{
    if (!(f->heap.start.spare + f->heap.now.spare > 0)) /* also returns if either value is NAN */
        return;
    take(start, LEDGER_ARENAS, f->heap.start.spare);
    take(now, LEDGER_ARENAS, f->heap.now.spare);
}

/* Returns the live bytes of row I that were allocated before the start in large blocks, whose pages
 * become resident only when first written to. */
static double large_row(const struct facts *f, const struct ledger *l, size_t i)
{
    const struct growth_row *row = &f->heap.growth.rows[i];
    double held = fmin(row->live_bytes, f->heap.sites[i].start_bytes);
    bool is_large = row->live_objects > 0 && row->live_bytes / row->live_objects >= large_bytes;
    return is_large && !is_shared_row(l, i) ? held : 0;
}

/* Assigns growth to memory that was allocated but not resident at the start, if there is enough of
 * such memory. The program may have written to all of the large blocks since, but not to more. */
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

/* Among the call sites with large blocks that the program has written to since the start, names the
 * one with the most bytes. */
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

/* Assigns unattributed memory to huge pages, limited to the total size and the total growth of the
 * huge pages. The first write to a huge page makes the whole page resident, although most of it may
 * never be allocated. */
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
        set_allocator_counts(f, both[i]);
        if (!f->heap.profile)
            take_counted(f, both[i]);
    }
    if (f->heap.profile) {
        find_shared_rows(f, start, now, l);
        take_sampled(f, l, start, now);
    }
    take_retained(f, l, start, now);
    take_arenas(f, start, now);
    take_touched(f, l, start, now);
    take_huge(f, start, now);
}

/* ---- call sites: sampled bytes, scaled to the resident part ---- */

/* Return the live bytes of row I at the start and now, scaled so that the rows add up to the
 * heap. */
static double row_start(const struct facts *f, const struct ledger_scale *s, size_t i)
{
    return s->start * f->heap.sites[i].start_bytes;
}

static double row_now(const struct facts *f, const struct ledger_scale *s, size_t i)
{
    double had = f->heap.sites[i].start_bytes, has = f->heap.growth.rows[i].live_bytes;
    return s->now * (has > had ? s->start * had + s->growth * (has - had) : s->start * has);
}

/* Returns factors for the sampled rows, so that they add up to the heap. START scales memory that
 * was live at the start, even if it is still live. GROWTH scales growth; it is at most 2. NOW then
 * scales all rows down if they still exceed the heap. */
static struct ledger_scale scale_rows(const struct facts *f, const struct ledger *l, double had,
                                      double has)
{
    const struct growth_row *rows = f->heap.growth.rows;
    double sampled = f->heap.start.live - shared_rows(f, l, true), stays = 0, grown = 0;
    struct ledger_scale s = {sampled > 0 ? had / sampled : 1, 1, 1};
    for (size_t i = 0; i < f->heap.growth.count; i++) {
        if (is_shared_row(l, i))
            continue;
        stays += fmin(rows[i].live_bytes, f->heap.sites[i].start_bytes);
        grown += positive(rows[i].live_bytes - f->heap.sites[i].start_bytes);
    }
    if (grown > 0)
        s.growth = fmin(2, positive((has - s.start * stays) / grown));
    double all = s.start * stays + s.growth * grown;
    if (all > has)
        s.now = has / all;
    return s;
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

/* Adds the rows of the live heap: separate entries for the rows that changed most, and one entry
 * for all others. The entries add up to REST_START bytes at the start and REST_NOW bytes now. */
static void add_sites(const struct facts *f, double rest_start, double rest_now, struct ledger *l)
{
    const struct facts_heap *h = &f->heap;
    struct ranked *list = calloc(h->growth.count ? h->growth.count : 1, sizeof *list);
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
        ledger_add(l, LEDGER_HEAP_SITE, at_start, at_now, row->live_low * scale,
                   fmin(row->live_high * scale, l->rss_now_bytes));
        l->entries[l->count - 1].site = row;
        rest_start -= at_start;
        rest_now -= at_now;
    }
    free(list);
    ledger_add(l, LEDGER_HEAP_OTHER, rest_start, rest_now, positive(rest_now - half),
               fmin(rest_now + half, l->rss_now_bytes));
}

/* ---- both moments ---- */

static void add_rest(const struct facts *f, const struct moment *start, const struct moment *now,
                     struct ledger *l)
{
    bool is_worker = f->main->role == ROLE_DATA_WORKER && now->has[LEDGER_SHARED] &&
                     !isnan(field_at(f, SAMPLE_UNIQUE, now->t_s));
    ledger_add(l, is_worker ? LEDGER_UNSHARED : LEDGER_UNEXPLAINED, start->left, now->left,
               is_worker ? 0 : now->left, now->left);
}

/* Returns the lower bound of an entry of BYTES. It is 0 if only an upper bound is known for this
 * kind of memory. Retained memory beyond RSS is not counted, because it cannot be resident. */
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

/* Returns the attributed fraction of RSS growth: the growth of all entries except UNEXPLAINED. */
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
    struct moment start = {.is_start = true,
                           .heap = &f->heap.start,
                           .census = f->census.first,
                           .t_s = f->start_s},
                  now = {.heap = &f->heap.now, .census = f->census.last, .t_s = f->now_s};
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
            ledger_add(ret, k, had, has, low_of(&now, k, has), has);
        if (ret->count > 0 && (k == LEDGER_PINNED || k == LEDGER_SHARED) &&
            ret->entries[ret->count - 1].kind == k)
            name_shared(f, ret, &ret->entries[ret->count - 1]);
        if (k == LEDGER_TOUCHED && now.has[k])
            name_touched(f, ret, &ret->entries[ret->count - 1]);
    }
    ret->knows_retained = start.has[LEDGER_RETAINED] && now.has[LEDGER_RETAINED];
    if (f->heap.profile)
        add_sites(f, start.amount[LEDGER_HEAP_OTHER], now.amount[LEDGER_HEAP_OTHER], ret);
    add_rest(f, &start, &now, ret);
    qsort(ret->entries, ret->count, sizeof *ret->entries, by_growth);
    ret->named_growth_share = named_share(ret);
}

/* ---- queries ---- */

double ledger_row_growth(const struct facts *f, const struct ledger *l, size_t i)
{
    double shared = ledger_growth(l, LEDGER_PINNED) + ledger_growth(l, LEDGER_SHARED);
    if (is_shared_row(l, i))
        return fmin(row_sampled(f, i), shared);
    return row_now(f, &l->scale, i) - row_start(f, &l->scale, i);
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
