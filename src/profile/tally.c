/* Rows of call sites under way: which site belongs to which, and what each held at every reading.
 */
#include "profile/tally.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"

enum { FLOOR_SHARE = 10 /* of the readings at either end, that make a floor */ };

/* ---- which site belongs to which row ---- */

static struct row_key location_of(struct names *names, const struct name *n, uint32_t site,
                                  bool minds_program)
{
    struct row_key key = {n->file ? n->file : n->lib, n->function, n->line, NULL};
    if (minds_program && !n->is_own)
        names_program_of_site(names, site, 1, &key.own);
    return key;
}

static struct row_key row_key_of(const struct growth_options *o, struct names *names, uint32_t site)
{
    const struct name *n = names_of_site(names, site);
    const struct name *native = o->by == GROWTH_BY_LIB ? names_native_of_site(names, site) : NULL;
    const struct name *own;
    switch (o->by) {
    case GROWTH_BY_LOCATION:
        break;
    case GROWTH_BY_FUNCTION:
        return (struct row_key){n->file ? n->file : n->lib, n->function, 0, NULL};
    case GROWTH_BY_FILE:
        return (struct row_key){n->file ? n->file : n->lib, NULL, 0, NULL};
    case GROWTH_BY_LIB:
        return (struct row_key){native ? native->lib : n->lib, NULL, 0, NULL};
    case GROWTH_BY_PROGRAM:
        if (names_program_of_site(names, site, 1, &own))
            return (struct row_key){own->file, own->function, 0, NULL};
        break;
    case GROWTH_BY_STACK:
        return (struct row_key){NULL, NULL, site, NULL};
    }
    return location_of(names, n, site, o->minds_program && o->by == GROWTH_BY_LOCATION);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_key(const struct row_key *a, const struct row_key *b)
{
    bool is_same_own =
        a->own == b->own || (a->own && b->own && same_text(a->own->function, b->own->function) &&
                             same_text(a->own->file, b->own->file));
    return a->n == b->n && same_text(a->a, b->a) && same_text(a->b, b->b) && is_same_own;
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    for (; s && *s; s++)
        h = (h ^ (uint8_t)*s) * UINT64_C(0x100000001b3);
    return (h ^ 0xff) * UINT64_C(0x100000001b3);
}

void tallies_fini(struct tallies *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->at[i].series);
    free(t->at);
    free(t->of_site);
    free(t->middle);
    free(t->index);
}

int tallies_init(struct tallies *t)
{
    t->index_cap = 1024;
    while (t->index_cap < t->p->n_sites * 2)
        t->index_cap *= 2;
    t->of_site = calloc(t->p->n_sites + 1, sizeof *t->of_site);
    t->middle = calloc(t->p->n_sites + 1, sizeof(const struct profile_held *));
    t->index = calloc(t->index_cap, sizeof *t->index);
    if (!t->of_site || !t->middle || !t->index)
        return -ENOMEM;
    for (size_t i = 0; i <= t->p->n_sites; i++)
        t->of_site[i] = TALLY_NONE;
    return 0;
}

static int row_for_key(struct tallies *t, const struct row_key *key, int32_t *ret)
{
    uint64_t h = hash_text(hash_text(key->n * UINT64_C(0x9e3779b97f4a7c15), key->a), key->b);
    h = hash_text(h, key->own ? key->own->function : NULL);
    size_t at = (size_t)(h ^ h >> 29) & (t->index_cap - 1);
    for (; t->index[at]; at = (at + 1) & (t->index_cap - 1)) {
        const struct row_key *have = &t->at[t->index[at] - 1].key;
        if (same_key(have, key)) {
            *ret = (int32_t)t->index[at] - 1;
            return 0;
        }
    }
    if (!ARRAY_ROOM(t->at, t->count, t->cap))
        return -ENOMEM;
    t->at[t->count] = (struct tally){.key = *key, .part_of = TALLY_NONE};
    t->index[at] = (uint32_t)++t->count;
    *ret = (int32_t)t->count - 1;
    return 0;
}

/* The row of SITE, made at first sight. */
static int row_for_site(struct tallies *t, struct names *names, uint32_t site, struct tally **ret)
{
    if (site >= t->p->n_sites)
        site = 0;
    if (t->of_site[site] == TALLY_NONE) {
        struct row_key key = row_key_of(t->o, names, site);
        int r = row_for_key(t, &key, &t->of_site[site]);
        if (r < 0)
            return r;
        struct tally *row = &t->at[t->of_site[site]];
        row->sites++;
        if (row->sites == 1)
            row->site = site;
    }
    *ret = &t->at[t->of_site[site]];
    return 0;
}

/* ---- going through the readings ---- */

int tallies_at(struct tallies *t, struct names *names, const struct profile_reading *r)
{
    for (size_t i = 0; i < t->count; i++)
        t->at[i].now = t->at[i].now_variance = 0;
    for (size_t i = 0; i < r->count; i++) {
        struct tally *row;
        int e = row_for_site(t, names, r->held[i].site, &row);
        if (e < 0)
            return e;
        row->now += r->held[i].live_bytes;
        row->now_variance += r->held[i].live_variance;
        if (row->now > row->most)
            row->most = row->now;
    }
    return 0;
}

/* The reading from which growth counts: where there are steps, the first that knows of one, for
 * what is loaded before the first step is no growth. Not where most of the time had passed by then.
 */
static size_t growth_from(const struct tallies *t)
{
    size_t at = 0;
    while (at < t->n_readings && !t->p->readings[at].has_step)
        at++;
    return 2 * at < t->n_readings ? at : 0;
}

/* Keeps the floors at either end: a batch that happens to be alive at a reading is none. */
static void keep_floors(struct tallies *t, size_t from, size_t at)
{
    size_t n = (t->n_readings - from) / FLOOR_SHARE;
    n = n ? n : 1;
    for (size_t i = 0; i < t->count; i++) {
        struct tally *row = &t->at[i];
        if (at >= from && at < from + n && (at == from || row->now < row->first)) {
            row->first = row->now;
            row->first_variance = row->now_variance;
        }
        if (at == t->n_readings - n || (at > t->n_readings - n && row->now < row->last))
            row->last = row->now;
    }
}

/* What is loaded once grows before the middle of the run, a leak after it, too. */
static void keep_middle(struct tallies *t, const struct profile_reading *r)
{
    for (size_t i = 0; i < r->count; i++)
        t->middle[r->held[i].site < t->p->n_sites ? r->held[i].site : 0] = &r->held[i];
}

static void keep_last(struct tallies *t, const struct profile_reading *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct profile_held *h = &r->held[i];
        uint32_t site = h->site < t->p->n_sites ? h->site : 0;
        struct tally *row = &t->at[t->of_site[site]];
        row->live += h->live_bytes;
        row->objects += h->live_objects;
        row->variance += h->live_variance;
        double growth = profile_sure_growth(t->middle[site], h);
        if (growth > row->site_growth ||
            (growth >= row->site_growth && h->live_bytes > row->site_live)) {
            row->site_growth = growth;
            row->site_live = h->live_bytes;
            row->site = site;
        }
    }
}

/* The last reading of all has every site, also those that hold nothing. */
static void keep_allocated(struct tallies *t)
{
    const struct profile_reading *r = tallies_totals(t);
    for (size_t i = 0; i < r->count; i++) {
        int32_t row = t->of_site[r->held[i].site < t->p->n_sites ? r->held[i].site : 0];
        if (row != TALLY_NONE)
            t->at[row].allocated += r->held[i].allocated_bytes;
    }
}

const struct profile_reading *tallies_totals(const struct tallies *t)
{
    size_t n = t->o->until_ns ? t->n_readings : t->p->n_readings;
    return &t->p->readings[n - 1];
}

int tallies_floors(struct tallies *t, struct names *names)
{
    size_t from = growth_from(t);
    for (size_t i = 0; i < t->n_readings; i++) {
        int r = tallies_at(t, names, &t->p->readings[i]);
        if (r < 0)
            return r;
        keep_floors(t, from, i);
    }
    return 0;
}

double tally_growth(const struct tally *row)
{
    return row->last - row->first;
}

double tally_sigma(const struct tally *row)
{
    return sqrt(fmax(row->variance + row->first_variance, 0));
}

int tallies_read(struct tallies *t, struct names *names)
{
    const struct profile *p = t->p;
    /* All rows first: one that begins late held nothing before. */
    for (size_t i = 0; i < t->n_readings; i++) {
        int r = tallies_at(t, names, &p->readings[i]);
        if (r < 0)
            return r;
    }
    int r = tallies_floors(t, names);
    if (r < 0)
        return r;
    keep_middle(t, &p->readings[t->n_readings / 2]);
    keep_last(t, &p->readings[t->n_readings - 1]);
    keep_allocated(t);
    return 0;
}

/* ---- what is asked for besides ---- */

int tally_no_step(const struct profile *p, int64_t step, struct err *err)
{
    const struct profile_reading *first = NULL, *last = NULL;
    for (size_t i = 0; i < p->n_readings; i++) {
        const struct profile_reading *r = &p->readings[i];
        if (r->has_step) {
            first = first ? first : r;
            last = r;
        }
    }
    if (!first)
        return err_set(err, -ENODATA, "step %" PRId64 " is not known: the job told no steps", step);
    return err_set(err, -ENODATA,
                   "step %" PRId64 " is not among those at which the heap was read, %" PRId64
                   " to %" PRId64,
                   step, first->step, last->step);
}

int tallies_want(struct tallies *t, struct names *names, uint32_t site, double bytes)
{
    struct tally *row;
    int r = row_for_site(t, names, site, &row);
    if (r == 0)
        row->wanted += bytes;
    return r;
}

int tallies_since(struct tallies *t, struct names *names, struct err *err)
{
    uint64_t since_ns;
    const struct profile_reading *end = &t->p->readings[t->n_readings - 1];
    const struct profile_snapshot *s = profile_snapshot_at(t->p, end->t_ns);
    if (!profile_time_of(t->p, t->o->since_step, &since_ns))
        return tally_no_step(t->p, t->o->since_step, err);
    if (!s)
        return err_set(err, -ENODATA, "no snapshot was kept");
    for (size_t i = 0; i < s->count; i++) {
        const struct profile_sample *one = &s->samples[i];
        double bytes = profile_weight_bytes(one->size, one->interval);
        int r = one->born_ns >= since_ns ? tallies_want(t, names, one->site, bytes) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static const struct profile_reading *reading_of_step(const struct profile *p, int64_t step,
                                                     struct err *err)
{
    uint64_t t_ns;
    const struct profile_reading *r =
        profile_time_of(p, step, &t_ns) ? profile_reading_at(p, t_ns) : NULL;
    if (!r)
        tally_no_step(p, step, err);
    return r;
}

int tallies_diff(struct tallies *t, struct names *names, struct err *err)
{
    const struct profile_reading *from = reading_of_step(t->p, t->o->from_step, err);
    const struct profile_reading *to = from ? reading_of_step(t->p, t->o->to_step, err) : NULL;
    if (!to)
        return -ENODATA;
    int r = tallies_at(t, names, to);
    for (size_t i = 0; r == 0 && i < t->count; i++)
        t->at[i].wanted = t->at[i].now;
    if (r == 0)
        r = tallies_at(t, names, from);
    for (size_t i = 0; r == 0 && i < t->count; i++)
        t->at[i].wanted -= t->at[i].now;
    return r;
}

/* ---- small rows that were reached from one function of the user's become one ---- */

/* A row of a tenth of all growth or more is worth its own line. */
static const double small_share = 0.1;

static bool may_grow(const struct tally *row)
{
    struct verdict_result result;
    verdict_judge(row->series, NULL, &result);
    double growth = tally_growth(row);
    return growth > 0 && (result.leak != VERDICT_LEAK_NO || growth < 2 * tally_sigma(row));
}

static double all_growth(struct tally **rows, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += may_grow(rows[i]) ? tally_growth(rows[i]) : 0;
    return sum;
}

/* A row that may be merged, and by what. */
struct small {
    struct tally *row;
    const struct name *own;
};

static int by_function(const void *a, const void *b)
{
    const struct small *x = a, *y = b;
    int order = strcmp(x->own->file, y->own->file);
    if (!order)
        order = strcmp(x->own->function, y->own->function);
    double left = tally_growth(x->row), right = tally_growth(y->row);
    return order ? order : (left < right) - (left > right);
}

static bool is_same_function(const struct small *a, const struct small *b)
{
    return strcmp(a->own->file, b->own->file) == 0 &&
           strcmp(a->own->function, b->own->function) == 0;
}

static size_t find_small(struct names *names, struct tally **rows, size_t n, struct small *ret)
{
    double most = small_share * all_growth(rows, n);
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        struct small one = {.row = rows[i]};
        if (tally_growth(rows[i]) < most && may_grow(rows[i]) &&
            names_program_of_site(names, rows[i]->site, 1, &one.own))
            ret[found++] = one;
    }
    qsort(ret, found, sizeof *ret, by_function);
    return found;
}

static void keep_own(struct tally *row)
{
    row->own_growth = tally_growth(row);
    row->own_live = row->live;
}

static void take_in(struct tallies *t, struct tally *row, struct tally *part)
{
    int32_t from = (int32_t)(part - t->at), into = (int32_t)(row - t->at);
    keep_own(part);
    part->part_of = into;
    row->parts++;
    row->sites += part->sites;
    row->live += part->live;
    row->objects += part->objects;
    row->variance += part->variance;
    row->allocated += part->allocated;
    part->live = part->objects = part->variance = part->allocated = 0;
    for (size_t i = 0; i <= t->p->n_sites; i++)
        if (t->of_site[i] == from)
            t->of_site[i] = into;
}

/* Those that took others in first, without those that were taken. */
static size_t reorder(struct tally **rows, size_t *count)
{
    size_t merged = 0, left = 0;
    for (size_t i = 0; i < *count; i++)
        if (rows[i]->part_of == TALLY_NONE)
            rows[left++] = rows[i];
    for (size_t i = 0; i < left; i++)
        if (rows[i]->parts) {
            struct tally *one = rows[i];
            rows[i] = rows[merged];
            rows[merged++] = one;
        }
    *count = left;
    return merged;
}

size_t merge_small(struct tallies *t, struct names *names, struct tally **rows, size_t *count)
{
    struct small *list = calloc(*count + 1, sizeof *list);
    size_t n = list ? find_small(names, rows, *count, list) : 0;
    for (size_t i = 0, j; i < n; i = j) {
        struct tally *row = list[i].row;
        keep_own(row);
        for (j = i + 1; j < n && is_same_function(&list[i], &list[j]); j++) {
            row->parts += row->parts == 0;
            take_in(t, row, list[j].row);
        }
    }
    free(list);
    return reorder(rows, count);
}
