/* Computes the rows: assigns call sites to rows, and determines the live bytes of each row at every
 * reading. */
#include "profile/tally.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"

/* A baseline is the minimum over the first or the last 1/FLOOR_SHARE of the readings. */
enum { FLOOR_SHARE = 10 };

/* ---- the row of a call site ---- */

static void put_key(struct buf *out, const char *place, const char *function, uint64_t number,
                    const struct name *own)
{
    buf_printf(out, "%s\n%s\n%" PRIu64 "\n%s\n%s", place ? place : "", function ? function : "",
               number, own ? own->function : "", own && own->file ? own->file : "");
}

/* Appends the key of SITE. Call sites with equal keys share a row. */
static void put_row_key(const struct growth_options *o, struct names *names, uint32_t site, int gpu,
                        struct buf *out)
{
    const struct name *n = names_of_site(names, site), *own = NULL, *native;
    const char *place = n->file ? n->file : n->lib;
    if (gpu >= 0)
        buf_printf(out, "gpu %d\n", gpu);
    switch (o->by) {
    case GROWTH_BY_FUNCTION:
        put_key(out, place, n->function, 0, NULL);
        return;
    case GROWTH_BY_FILE:
        put_key(out, place, NULL, 0, NULL);
        return;
    case GROWTH_BY_LIB:
        native = names_native_of_site(names, site);
        put_key(out, native ? native->lib : n->lib, NULL, 0, NULL);
        return;
    case GROWTH_BY_STACK:
        put_key(out, NULL, NULL, site, NULL);
        return;
    case GROWTH_BY_PROGRAM:
        if (names_program_of_site(names, site, 1, &own)) {
            put_key(out, own->file, own->function, 0, NULL);
            return;
        }
        break;
    case GROWTH_BY_LOCATION:
        if (o->minds_program && !n->is_own)
            names_program_of_site(names, site, 1, &own);
        break;
    }
    put_key(out, place, n->function, n->line, own);
}

void tallies_fini(struct tallies *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->at[i].series);
    free(t->at);
    free(t->of_site);
    free(t->middle);
    texts_fini(&t->keys);
    buf_fini(&t->key);
}

int tallies_init(struct tallies *t)
{
    t->of_site = calloc(t->p->n_sites + 1, sizeof *t->of_site);
    t->middle = calloc(t->p->n_sites + 1, sizeof(const struct profile_held *));
    if (!t->of_site || !t->middle)
        return -ENOMEM;
    for (size_t i = 0; i <= t->p->n_sites; i++)
        t->of_site[i] = TALLY_NONE;
    return 0;
}

/* Finds the row of SITE, which is created at first use. */
static int row_for_site(struct tallies *t, struct names *names, uint32_t site, struct tally **ret)
{
    if (site >= t->p->n_sites)
        site = 0;
    if (t->of_site[site] == TALLY_NONE) {
        uint32_t number;
        buf_clear(&t->key);
        put_row_key(t->o, names, site, profile_site_gpu(t->p, site), &t->key);
        if (t->key.failed || texts_add(&t->keys, t->key.data, t->key.len, &number) < 0 ||
            !ARRAY_ROOM(t->at, t->count, t->cap))
            return -ENOMEM;
        if (number == t->count)
            t->at[t->count++] = (struct tally){.part_of = TALLY_NONE};
        t->of_site[site] = (int32_t)number;
        struct tally *row = &t->at[number];
        row->sites++;
        if (row->sites == 1)
            row->site = site;
    }
    *ret = &t->at[t->of_site[site]];
    return 0;
}

/* ---- readings ---- */

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

/* Returns the index of the reading from which growth is measured: the first reading with a step,
 * because memory that was loaded earlier is not growth. Returns 0 if there are no steps, or if the
 * first step came in the second half of the run. */
static size_t growth_from(const struct tallies *t)
{
    size_t at = 0;
    while (at < t->n_readings && !t->p->readings[at].has_step)
        at++;
    return 2 * at < t->n_readings ? at : 0;
}

/* Computes the baselines at both ends of the run. Each baseline is the minimum of several readings,
 * because a batch that happens to be live at one of these readings is not growth. */
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

/* Stores the reading in the middle of the run. Memory that is loaded once has stopped growing by
 * then; a leak continues to grow. */
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

/* Sets the allocated bytes from the last reading, which has every call site, including those
 * without live bytes. */
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
    /* Creates all rows before the baselines are computed. A row that first appears in a late
     * reading then has a baseline of 0 at the start. */
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

/* ---- requested differences ---- */

static int tally_no_step(const struct profile *p, int64_t step, struct err *err)
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
        return err_set(err, -ENODATA, "step %" PRId64 " is unknown: the job reported no steps",
                       step);
    return err_set(err, -ENODATA,
                   "the heap was not read at step %" PRId64 ": readings cover steps %" PRId64
                   " to %" PRId64,
                   step, first->step, last->step);
}

/* Adds the samples of S that were allocated at SINCE_NS or later, and before BEFORE_NS. */
static int want_samples(struct tallies *t, struct names *names, const struct profile_snapshot *s,
                        uint64_t since_ns, uint64_t before_ns)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct profile_sample *one = &s->samples[i];
        struct tally *row;
        if (one->born_ns < since_ns || one->born_ns >= before_ns)
            continue;
        int r = row_for_site(t, names, one->site, &row);
        if (r < 0)
            return r;
        row->wanted += profile_weight_bytes(one->size, one->interval);
    }
    return 0;
}

static int want_since(struct tallies *t, struct names *names, struct err *err)
{
    uint64_t since_ns;
    const struct profile_reading *end = &t->p->readings[t->n_readings - 1];
    const struct profile_snapshot *s = profile_snapshot_at(t->p, end->t_ns);
    if (!profile_time_of(t->p, t->o->from_step, &since_ns))
        return tally_no_step(t->p, t->o->from_step, err);
    if (!s)
        return err_set(err, -ENODATA, "the recording has no heap snapshot");
    return want_samples(t, names, s, since_ns, UINT64_MAX);
}

/* Returns the time of the last reading before STEP + 1 was completed, or T_NS if that is later. */
static uint64_t last_moment_of(const struct profile *p, int64_t step, uint64_t t_ns)
{
    for (size_t i = profile_working(p); i-- > 0;)
        if (p->readings[i].has_step && p->readings[i].step <= step)
            return p->readings[i].t_ns > t_ns ? p->readings[i].t_ns : t_ns;
    return t_ns;
}

static int want_survivors(struct tallies *t, struct names *names, struct err *err)
{
    const struct growth_options *o = t->o;
    uint64_t from_ns, to_ns;
    if (!profile_time_of(t->p, o->from_step, &from_ns))
        return tally_no_step(t->p, o->from_step, err);
    if (!profile_time_of(t->p, o->to_step, &to_ns))
        return tally_no_step(t->p, o->to_step, err);
    const struct profile_snapshot *s =
        profile_snapshot_at(t->p, last_moment_of(t->p, o->to_step, to_ns));
    if (!s || s->t_ns < from_ns)
        return err_set(err, -ENODATA,
                       "the recording has no heap snapshot between steps %" PRId64 " and %" PRId64,
                       o->from_step, o->to_step);
    return want_samples(t, names, s, 0, from_ns);
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

static int want_diff(struct tallies *t, struct names *names, struct err *err)
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

int tallies_want(struct tallies *t, struct names *names, struct err *err)
{
    switch (t->o->kind) {
    case GROWTH_OF_BASELINE:
        return 0;
    case GROWTH_SINCE:
        return want_since(t, names, err);
    case GROWTH_DIFF:
        return want_diff(t, names, err);
    case GROWTH_SURVIVORS:
        return want_survivors(t, names, err);
    }
    return 0;
}

/* ---- merging small rows of the same user function ---- */

/* A row with at least this fraction of the total growth is shown separately. */
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

/* A row that may be merged with others, and its user function. Rows are merged if they have the
 * same user function. */
struct small {
    struct tally *row;
    const struct name *own;
    int gpu;
};

static int by_function(const void *a, const void *b)
{
    const struct small *x = a, *y = b;
    int order = x->gpu - y->gpu;
    if (!order)
        order = strcmp(x->own->file, y->own->file);
    if (!order)
        order = strcmp(x->own->function, y->own->function);
    double left = tally_growth(x->row), right = tally_growth(y->row);
    return order ? order : (left < right) - (left > right);
}

static bool is_same_function(const struct small *a, const struct small *b)
{
    return a->gpu == b->gpu && strcmp(a->own->file, b->own->file) == 0 &&
           strcmp(a->own->function, b->own->function) == 0;
}

static size_t find_small(const struct profile *p, struct names *names, struct tally **rows,
                         size_t n, struct small *ret)
{
    double most = small_share * all_growth(rows, n);
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        struct small one = {.row = rows[i], .gpu = profile_site_gpu(p, rows[i]->site)};
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

/* Removes rows that were merged into others from ROWS, and moves the rows that absorbed them to the
 * front. */
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
    size_t n = list ? find_small(t->p, names, rows, *count, list) : 0;
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
