/* Live bytes and growth by call site, estimated from samples. Growth within the sampling error is
 * ignored. */
#include "profile/growth.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "profile/tally.h"

static const double z95 = 1.96;
/* A change of less than a tenth of a call site's live bytes is usually within the sampling
 * error. */
static const double material_fraction = 0.1;
/* In the last sixth of the time, a row must grow by at least this fraction of what a steady rate
 * would give. Otherwise its growth may have ended. */
static const double GOES_ON = 0.3;
/* One-sided 99 % bound of Kolmogorov's statistic. The statistic is the largest amount by which the
 * cumulative distribution of samples exceeds the true one, times the square root of the number of
 * samples. */
static const double KOLMOGOROV_99 = 1.52;
/* Confidence of a row's verdict after it was changed to agree with the job's verdict. */
static const double FOLLOWS_CONFIDENCE = 0.65;

/* ---- the verdicts ---- */

static double importance(const struct tally *row)
{
    double growth = tally_growth(row);
    return row->live + 4 * (growth > 0 ? growth : 0) + row->wanted;
}

static int by_importance(const void *a, const void *b)
{
    const struct tally *const *x = a, *const *y = b;
    double left = importance(*x), right = importance(*y);
    return (left < right) - (left > right);
}

static int begin_series(struct tally *row)
{
    const struct verdict_options options = {.material_fraction = material_fraction,
                                            .zero_is_memory = true};
    if (!row->series)
        row->series = malloc(sizeof *row->series);
    return row->series ? verdict_init(row->series, &options) : -ENOMEM;
}

/* Selects the most important rows, at most GROWTH_ROWS, and starts a memory series for each. */
static int choose_rows(struct tallies *t, struct tally ***ret, size_t *ret_count)
{
    struct tally **list = calloc(t->count ? t->count : 1, sizeof(struct tally *));
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < t->count; i++)
        list[i] = &t->at[i];
    qsort(list, t->count, sizeof(struct tally *), by_importance);
    size_t n = 0;
    while (n < t->count && n < GROWTH_ROWS && importance(list[n]) > 0)
        n++;
    for (size_t i = 0; i < n; i++) {
        if (begin_series(list[i]) < 0) {
            free(list);
            return -ENOMEM;
        }
    }
    *ret = list;
    *ret_count = n;
    return 0;
}

static void feed_marks(struct tally **rows, size_t n, const struct growth_options *o, size_t *at,
                       uint64_t until_ns)
{
    for (; *at < o->n_marks && o->marks[*at].t_ns <= until_ns; ++*at)
        for (size_t i = 0; i < n; i++)
            verdict_mark(rows[i]->series, (int64_t)o->marks[*at].t_ns, &o->marks[*at].mark);
}

static uint64_t row_bytes(double bytes)
{
    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* Passes readings and marks to the series. A reading is taken right after the mark that it belongs
 * to, so the mark is passed before the reading. */
static void feed(struct tallies *t, struct names *names, struct tally **rows, size_t n)
{
    const struct profile *p = t->p;
    size_t mark = 0;
    for (size_t i = 0; i < t->n_readings; i++) {
        const struct profile_reading *r = &p->readings[i];
        tallies_at(t, names, r);
        feed_marks(rows, n, t->o, &mark, i ? p->readings[i - 1].t_ns : 0);
        for (size_t k = 0; k < n; k++)
            verdict_update(rows[k]->series, (int64_t)r->t_ns, row_bytes(rows[k]->now));
    }
    feed_marks(rows, n, t->o, &mark, p->readings[t->n_readings - 1].t_ns);
}

/* Merges small rows, and judges the merged rows again. */
static int merge_and_judge(struct tallies *t, struct names *names, struct tally **rows, size_t *n)
{
    size_t merged = merge_small(t, names, rows, n);
    int r = merged ? tallies_floors(t, names) : 0;
    for (size_t i = 0; r == 0 && i < merged; i++)
        r = begin_series(rows[i]);
    if (r == 0 && merged)
        feed(t, names, rows, merged);
    return r;
}

/* ---- ages ---- */

struct aged {
    int32_t row;
    double age_s, bytes;
};

static int by_row_and_age(const void *a, const void *b)
{
    const struct aged *x = a, *y = b;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return (x->age_s > y->age_s) - (x->age_s < y->age_s);
}

static void put_ages(const struct aged *list, size_t n, double half_s, struct growth_row *row)
{
    double all = 0, below = 0;
    for (size_t i = 0; i < n; i++) {
        all += list[i].bytes;
        row->survivor_bytes += list[i].age_s >= half_s ? list[i].bytes : 0;
    }
    for (size_t i = 0; i < n; i++) {
        below += list[i].bytes;
        if (below * 2 >= all) {
            row->age_s = list[i].age_s;
            return;
        }
    }
}

/* Computes the ages of live memory. ROW_OF maps a tally to its row in the result, or TALLY_NONE. */
static int ages(const struct tallies *t, const int32_t *row_of, struct growth *g)
{
    const struct profile_reading *end = &t->p->readings[t->n_readings - 1];
    const struct profile_snapshot *s = profile_snapshot_at(t->p, end->t_ns);
    size_t n = 0;
    if (!s || !s->count)
        return 0;
    struct aged *list = calloc(s->count, sizeof *list);
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < s->count; i++) {
        const struct profile_sample *one = &s->samples[i];
        int32_t tally = t->of_site[one->site < t->p->n_sites ? one->site : 0];
        int32_t row = tally == TALLY_NONE ? TALLY_NONE : row_of[tally];
        if (row == TALLY_NONE)
            continue;
        double age = s->t_ns > one->born_ns ? (double)(s->t_ns - one->born_ns) / 1e9 : 0;
        list[n++] = (struct aged){row, age, profile_weight_bytes(one->size, one->interval)};
    }
    qsort(list, n, sizeof *list, by_row_and_age);
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i; j < n && list[j].row == list[i].row; j++)
            ;
        put_ages(list + i, j - i, (double)(s->t_ns - t->p->start_ns) / 2e9, &g->rows[list[i].row]);
    }
    free(list);
    return 0;
}

/* ---- the result ---- */

/* Returns the statistically certain part of the growth. */
static double sure_growth(const struct growth_row *row)
{
    double sure = row->growth_bytes - z95 * row->growth_sigma;
    return sure > 0 ? sure : 0;
}

/* Returns 0 for a leak that is at least a tenth of the largest growth, 1 for any other row that may
 * leak, and 2 for a row that does not leak or did not certainly grow. */
static int rank(const struct growth_row *row, double largest_growth)
{
    double sure = sure_growth(row);
    if (row->verdict.leak == VERDICT_LEAK_YES && sure > 0 && sure * 10 >= largest_growth)
        return 0;
    return row->verdict.leak != VERDICT_LEAK_NO && sure > 0 ? 1 : 2;
}

static int by_rank(const void *a, const void *b, void *largest_growth)
{
    const struct growth_row *x = a, *y = b;
    const double *largest = largest_growth;
    int left = rank(x, *largest), right = rank(y, *largest);
    double gx = sure_growth(x), gy = sure_growth(y);
    if (left != right)
        return left < right ? -1 : 1;
    if (gx != gy)
        return gx < gy ? 1 : -1;
    return (x->live_bytes < y->live_bytes) - (x->live_bytes > y->live_bytes);
}

static int by_row_growth(const void *a, const void *b)
{
    const struct growth_row *x = a, *y = b;
    return (x->growth_bytes < y->growth_bytes) - (x->growth_bytes > y->growth_bytes);
}

/* Returns false if the growth of ROW has certainly ended, that is, if it deviates from steady
 * growth by more than the sampling error. With few samples, even steady growth can seem to pause
 * for a long time. */
static bool may_go_on(const struct growth_row *row, const struct verdict_series *series)
{
    struct trend trend;
    trend_of(series, &trend);
    if (!trend.known || trend.sixth >= GOES_ON)
        return true;
    double lead_bytes = trend.ahead * row->growth_bytes;
    return trend.growth > 0 && lead_bytes <= KOLMOGOROV_99 * row->growth_sigma;
}

/* Adjusts a row's verdict to the job's verdict, because a row has few readings of its own. If the
 * job leaks, a row that certainly grew, and whose growth has not certainly ended, is part of that
 * leak. If the job does not leak, no row leaks. If the job is filling, a row whose own verdict is a
 * leak is filling, too. */
static void follow_job(struct growth_row *row, const struct verdict_series *series,
                       enum verdict_word job)
{
    struct verdict_result *r = &row->verdict;
    enum verdict_leak job_leak = verdict_word_leak(job);
    if (job_leak == VERDICT_LEAK_YES && r->leak != VERDICT_LEAK_YES && sure_growth(row) > 0 &&
        may_go_on(row, series))
        r->word = VERDICT_LEAKING;
    else if (job_leak == VERDICT_LEAK_NO && r->leak == VERDICT_LEAK_YES)
        r->word = VERDICT_PLATEAUED;
    else if (job == VERDICT_FILLING && r->leak == VERDICT_LEAK_YES)
        r->word = VERDICT_FILLING;
    else
        return;
    r->leak = verdict_word_leak(r->word);
    r->confidence = FOLLOWS_CONFIDENCE;
    r->forecast.known = r->growth_ended.known = false;
}

static void fill_row(struct growth_row *row, const struct tallies *t, const struct tally *from,
                     struct names *names)
{
    const struct growth_options *o = t->o;
    double half = z95 * sqrt(from->variance > 0 ? from->variance : 0);
    bool is_asked = o->kind != GROWTH_OF_BASELINE;
    *row = (struct growth_row){
        .name = names_of_site(names, from->site),
        .native = names_native_of_site(names, from->site),
        .site = from->site,
        .gpu = profile_site_gpu(t->p, from->site),
        .sites = from->sites,
        .live_bytes = from->live,
        .live_low = from->live > half ? from->live - half : 0,
        .live_high = from->live + half,
        .live_objects = from->objects,
        .allocated_bytes = from->allocated,
        .growth_bytes = is_asked ? from->wanted : tally_growth(from),
        .growth_sigma = is_asked ? 0 : tally_sigma(from),
    };
    row->n_program = names_program_of_site(names, from->site, GROWTH_PROGRAM_MAX, row->program);
    if (o->by == GROWTH_BY_PROGRAM && row->n_program)
        row->name = row->program[0];
    verdict_judge(from->series, NULL, &row->verdict);
    if (!is_asked)
        follow_job(row, from->series, o->job_word);
}

/* Stores in each merged row the source lines that it was merged from, sorted by decreasing
 * growth. */
static void put_places(const struct tallies *t, struct names *names, const int32_t *row_of,
                       struct growth *ret)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct tally *part = &t->at[i];
        int32_t into = part->part_of == TALLY_NONE ? (int32_t)i : part->part_of;
        if (row_of[into] == TALLY_NONE || !t->at[into].parts)
            continue;
        struct growth_row *row = &ret->rows[row_of[into]];
        struct growth_place one = {names_of_site(names, part->site), part->own_growth,
                                   part->own_live};
        size_t at = row->n_places < GROWTH_PLACES_MAX ? row->n_places : GROWTH_PLACES_MAX;
        for (row->n_places++; at > 0 && row->places[at - 1].growth_bytes < one.growth_bytes; at--)
            if (at < GROWTH_PLACES_MAX)
                row->places[at] = row->places[at - 1];
        if (at < GROWTH_PLACES_MAX)
            row->places[at] = one;
    }
}

/* Maps each call site to its row. Called after the rows were sorted; overwrites ROW_OF. */
static int map_sites(const struct tallies *t, int32_t *row_of, struct growth *ret)
{
    ret->row_of_site = calloc(t->p->n_sites + 1, sizeof *ret->row_of_site);
    if (!ret->row_of_site)
        return -ENOMEM;
    for (size_t i = 0; i < ret->count; i++)
        row_of[t->of_site[ret->rows[i].site]] = (int32_t)i;
    for (size_t i = 0; i < t->p->n_sites; i++)
        ret->row_of_site[i] = t->of_site[i] == TALLY_NONE ? TALLY_NONE : row_of[t->of_site[i]];
    return 0;
}

static void rank_rows(const struct growth_options *o, struct growth *g)
{
    double largest = 0;
    if (o->kind != GROWTH_OF_BASELINE) {
        qsort(g->rows, g->count, sizeof *g->rows, by_row_growth);
        return;
    }
    for (size_t i = 0; i < g->count; i++)
        if (g->rows[i].verdict.leak != VERDICT_LEAK_NO)
            largest = fmax(largest, sure_growth(&g->rows[i]));
    qsort_r(g->rows, g->count, sizeof *g->rows, by_rank, &largest);
}

static int put_rows(struct tallies *t, struct names *names, struct tally **chosen, size_t n,
                    struct growth *ret)
{
    AUTO_FREE int32_t *row_of = calloc(t->count ? t->count : 1, sizeof *row_of);
    ret->rows = calloc(n ? n : 1, sizeof *ret->rows);
    if (!row_of || !ret->rows)
        return -ENOMEM;
    for (size_t i = 0; i < t->count; i++)
        row_of[i] = TALLY_NONE;
    for (size_t i = 0; i < n; i++) {
        fill_row(&ret->rows[i], t, chosen[i], names);
        row_of[chosen[i] - t->at] = (int32_t)i;
    }
    ret->count = n;
    put_places(t, names, row_of, ret);
    int r = ages(t, row_of, ret);
    rank_rows(t->o, ret);
    return r < 0 ? r : map_sites(t, row_of, ret);
}

static void put_totals(const struct tallies *t, struct growth *ret)
{
    double variance = 0;
    const struct profile_reading *first = t->p->readings, *last = first + t->n_readings - 1;
    for (size_t i = 0; i < t->count; i++) {
        ret->live_bytes += t->at[i].live;
        variance += t->at[i].variance;
    }
    const struct profile_reading *totals = tallies_totals(t);
    for (size_t i = 0; i < totals->count; i++)
        ret->allocated_bytes += totals->held[i].allocated_bytes;
    double half = z95 * sqrt(variance);
    ret->live_low = ret->live_bytes > half ? ret->live_bytes - half : 0;
    ret->live_high = ret->live_bytes + half;
    ret->span_s = (double)(last->t_ns - t->p->start_ns) / 1e9;
    if (t->n_readings == profile_working(t->p) && t->n_readings < t->p->n_readings)
        ret->before_end_s = (double)(t->p->readings[t->p->n_readings - 1].t_ns - last->t_ns) / 1e9;
    for (size_t i = 0; i < t->n_readings; i++) {
        if (!t->p->readings[i].has_step)
            continue;
        if (!ret->has_steps)
            ret->first_step = t->p->readings[i].step;
        ret->has_steps = true;
        ret->last_step = t->p->readings[i].step;
    }
}

static size_t readings_until(const struct profile *p, uint64_t until_ns)
{
    size_t n = 0, working = profile_working(p);
    while (n < working && (!until_ns || p->readings[n].t_ns <= until_ns))
        n++;
    return n;
}

int growth_of(const struct profile *p, struct names *names, const struct growth_options *options,
              struct growth *ret, struct err *err)
{
    struct tallies t = {.p = p, .o = options, .n_readings = readings_until(p, options->until_ns)};
    AUTO_FREE struct tally **chosen = NULL;
    struct growth g = {0};
    size_t n;
    if (!t.n_readings)
        return err_set(err, -ENODATA, "the process exited before its heap was first read");
    int r = tallies_init(&t);
    if (r == 0)
        r = tallies_read(&t, names);
    if (r == 0)
        r = tallies_want(&t, names, err);
    if (r == 0)
        r = choose_rows(&t, &chosen, &n);
    if (r == 0) {
        feed(&t, names, chosen, n);
        if (options->minds_program && options->kind == GROWTH_OF_BASELINE)
            r = merge_and_judge(&t, names, chosen, &n);
    }
    if (r == 0)
        r = put_rows(&t, names, chosen, n, &g);
    if (r == 0) {
        put_totals(&t, &g);
        *ret = g;
    } else {
        growth_fini(&g);
        if (r == -ENOMEM)
            err_set(err, r, "out of memory");
    }
    tallies_fini(&t);
    return r;
}

void growth_fini(struct growth *g)
{
    free(g->rows);
    free(g->row_of_site);
    *g = (struct growth){0};
}
