/* Computes trends of live memory by call site, as evidence for the verdict's model. */
#include "profile/held.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "profile/folder.h"
#include "verdict/fit.h"

/* A call site keeps its memory if it frees at most this fraction of its allocations. Its memory is
 * not allocated anew with every batch, so its sampling error stays the same from reading to
 * reading. */
static const double KEEPS = 0.2;
enum { READINGS_AT_LEAST = 9, POINTS = FIT_MAX / 2 };
/* Settled memory is the minimum of live memory within each block of readings. A block lasts BLOCK_S
 * seconds. Blocks are longer if there would otherwise be more than BLOCKS_MOST of them, and shorter
 * if there would otherwise be fewer than BLOCKS_AT_LEAST. */
enum { BLOCK_S = 6, BLOCKS_AT_LEAST = 6, BLOCKS_MOST = 24 };

static bool is_kept(const struct profile_held *h)
{
    return h->freed_bytes <= KEEPS * h->allocated_bytes;
}

/* Returns the first reading at or after the time that lies the fraction PART of the way from the
 * first reading to reading LAST. */
static const struct profile_reading *reading_after(const struct profile *p, size_t last,
                                                   double part)
{
    const struct profile_reading *r = p->readings;
    double end = (double)(p->readings[last].t_ns - r->t_ns);
    while (r < &p->readings[last] && (double)(r->t_ns - p->readings->t_ns) < part * end)
        r++;
    return r;
}

static double live_of(const struct profile_held *h)
{
    return h ? h->live_bytes : 0;
}

/* Returns the first of N readings that was taken at STEP or later, or NULL. */
static const struct profile_reading *reading_at_step(const struct profile *p, size_t n, double step)
{
    for (size_t i = 0; i < n; i++)
        if (p->readings[i].has_step && (double)p->readings[i].step >= step)
            return &p->readings[i];
    return NULL;
}

/* Returns the reading nearest to FROM that lies a whole number of epochs before reading LAST. In
 * two such readings, memory that is gathered within each epoch and then freed has the same size.
 * Returns FROM if the length of the epoch is unknown or too long. */
static const struct profile_reading *reading_in_phase(const struct profile *p, size_t last,
                                                      const struct profile_reading *from,
                                                      const struct held_window *w)
{
    const struct profile_reading *end = &p->readings[last];
    double epoch = w->epoch_end - w->epoch_start;
    if (!(w->epoch_end > 0) || !end->has_step || !from->has_step)
        return from;
    double before = round((double)(end->step - from->step) / epoch) * epoch;
    const struct profile_reading *at = reading_at_step(p, last, (double)end->step - before);
    return before > 0 && at ? at : from;
}

static void measure_grown(const struct profile *p, size_t n, const struct held_window *w,
                          struct model_sites *ret)
{
    const struct profile_reading *end = &p->readings[n - 1];
    const struct profile_reading *half =
        reading_in_phase(p, n - 1, reading_after(p, n - 1, 1. / 2), w);
    const struct profile_reading *late =
        reading_in_phase(p, n - 1, reading_after(p, n - 1, 3. / 4), w);
    for (size_t i = 0, at_half = 0, at_late = 0; i < end->count; i++) {
        const struct profile_held *now = &end->held[i];
        const struct profile_held *then = profile_held_by(half, &at_half, now->site);
        const struct profile_held *of_late = profile_held_by(late, &at_late, now->site);
        if (!is_kept(now) || !(profile_sure_growth(then, now) > 0))
            continue;
        ret->grown += now->live_bytes - live_of(then);
        ret->grown_late += now->live_bytes - live_of(of_late);
    }
}

/* The four readings AT bound three consecutive periods. Returns a sum over the call sites that keep
 * their memory. Each call site adds three times its growth in the period in which it grew least. */
static double steady_growth(const struct profile_reading *const at[4])
{
    double sum = 0;
    size_t from[3] = {0};
    for (size_t i = 0; i < at[3]->count; i++) {
        const struct profile_held *now = &at[3]->held[i];
        double live[4] = {[3] = now->live_bytes}, least = HUGE_VAL;
        for (size_t k = 0; k < 3; k++)
            live[k] = live_of(profile_held_by(at[k], &from[k], now->site));
        for (size_t k = 0; k < 3; k++)
            least = fmin(least, live[k + 1] - live[k]);
        sum += is_kept(now) ? 3 * fmax(0, least) : 0;
    }
    return sum;
}

static void measure_steady(const struct profile *p, size_t n, struct model_sites *ret)
{
    const struct profile_reading *end = &p->readings[n - 1];
    const struct profile_reading *half = reading_after(p, n - 1, 1. / 2);
    ret->steady = steady_growth((const struct profile_reading *const[]){
        half, reading_after(p, n - 1, 2. / 3), reading_after(p, n - 1, 5. / 6), end});
    ret->steady_long = steady_growth((const struct profile_reading *const[]){
        reading_after(p, n - 1, 1. / 4), half, reading_after(p, n - 1, 3. / 4), end});
}

/* Compares the growth of each call site after the first epoch with its growth within that epoch.
 * The first quarter of the epoch is not used, because much of its growth is start-up. */
static void measure_sustained(const struct profile *p, size_t n, const struct held_window *w,
                              struct model_sites *ret)
{
    double epoch = w->epoch_end - w->epoch_start;
    const struct profile_reading *now = &p->readings[n - 1];
    const struct profile_reading *from = reading_at_step(p, n, w->epoch_start + epoch / 4);
    const struct profile_reading *end = reading_at_step(p, n, w->epoch_end);
    if (!(w->epoch_end > 0) || !end || !(from < end) || !(now->step > end->step))
        return;
    double within = (double)(end->step - from->step), after = (double)(now->step - end->step);
    for (size_t i = 0, at_from = 0, at_end = 0; i < now->count; i++) {
        const struct profile_held *h = &now->held[i];
        double then = live_of(profile_held_by(end, &at_end, h->site));
        double rate = fmax(0, then - live_of(profile_held_by(from, &at_from, h->site))) / within;
        double since = fmax(0, h->live_bytes - then) / after;
        if (!is_kept(h))
            continue;
        ret->sustained += epoch * fmin(rate, since);
        ret->slowed += epoch * fmax(0, rate - since);
    }
}

/* Divides the N points (X, Y) into POINTS equal parts, and fits a trend to the lowest point of each
 * part. */
static void trend_of_many(const double *x, const double *y, size_t n, struct trend *ret)
{
    double low_x[POINTS], low_y[POINTS];
    size_t m = n < POINTS ? n : POINTS;
    for (size_t i = 0; i < m; i++) {
        size_t least = i * n / m;
        for (size_t k = least; k < (i + 1) * n / m; k++)
            if (y[k] <= y[least])
                least = k;
        low_x[i] = x[least];
        low_y[i] = y[least];
    }
    trend_of_points(low_x, low_y, m, 0, ret);
}

/* Fits trends, by time and by bytes allocated, to the live memory of call sites that free
 * little. */
static bool measure_kept(const struct profile *p, size_t n, struct model_sites *ret)
{
    const struct profile_reading *end = &p->readings[n - 1];
    AUTO_FREE char *keeps = calloc(p->n_sites + 1, 1);
    AUTO_FREE double *x = calloc(3 * n, sizeof *x);
    if (!keeps || !x)
        return false;
    double *work = x + n, *kept = x + 2 * n;
    for (size_t i = 0; i < end->count; i++)
        keeps[end->held[i].site] = is_kept(&end->held[i]);
    for (size_t i = 0; i < n; i++) {
        const struct profile_reading *r = &p->readings[i];
        x[i] = (double)(r->t_ns - p->readings->t_ns) * 1e-9;
        for (size_t k = 0; k < r->count; k++) {
            kept[i] += keeps[r->held[k].site] ? r->held[k].live_bytes : 0;
            work[i] += r->held[k].allocated_bytes;
        }
        /* the sum may drop, because a reading does not contain call sites without live bytes */
        if (i)
            work[i] = fmax(work[i], work[i - 1]);
    }
    trend_of_many(x, kept, n, &ret->kept);
    trend_of_many(work, kept, n, &ret->by_work);
    return true;
}

/* Returns the sum, over all call sites, of the minimum of their live bytes in the readings FROM <=
 * i < TO. Memory that is freed at times is not part of that minimum. LEAST and SEEN have room for
 * every call site. */
static double settled_in(const struct profile *p, size_t from, size_t to, double *least,
                         uint32_t *seen)
{
    double sum = 0;
    memset(seen, 0, p->n_sites * sizeof *seen);
    for (size_t i = from; i < to; i++)
        for (size_t k = 0; k < p->readings[i].count; k++) {
            const struct profile_held *h = &p->readings[i].held[k];
            least[h->site] = seen[h->site]++ ? fmin(least[h->site], h->live_bytes) : h->live_bytes;
        }
    for (size_t i = 0; i < p->n_sites; i++)
        sum += seen[i] == to - from ? least[i] : 0;
    return sum;
}

static bool measure_settled(const struct profile *p, size_t n, struct model_sites *ret)
{
    AUTO_FREE double *least = calloc(p->n_sites + 1, sizeof *least);
    AUTO_FREE uint32_t *seen = calloc(p->n_sites + 1, sizeof *seen);
    double x[BLOCKS_MOST], y[BLOCKS_MOST];
    uint64_t lasted_ns = p->readings[n - 1].t_ns - p->readings[0].t_ns;
    size_t blocks = (size_t)(lasted_ns / (BLOCK_S * NS_PER_S));
    if (!least || !seen)
        return false;
    if (n < 2 * BLOCKS_AT_LEAST)
        return true;
    blocks = blocks < BLOCKS_AT_LEAST ? BLOCKS_AT_LEAST : blocks;
    blocks = blocks > BLOCKS_MOST ? BLOCKS_MOST : blocks;
    for (size_t i = 0; i < blocks; i++) {
        size_t to = (i + 1) * n / blocks;
        x[i] = (double)(p->readings[to - 1].t_ns - p->readings->t_ns) * 1e-9;
        y[i] = settled_in(p, i * n / blocks, to, least, seen);
    }
    trend_of_points(x, y, blocks, 0, &ret->settled);
    return true;
}

void held_sites(const struct profile *p, size_t n, const struct held_window *w,
                struct model_sites *ret)
{
    *ret = (struct model_sites){0};
    if (n < READINGS_AT_LEAST)
        return;
    measure_grown(p, n, w, ret);
    measure_steady(p, n, ret);
    measure_sustained(p, n, w, ret);
    ret->known = measure_kept(p, n, ret) && measure_settled(p, n, ret);
}

/* Returns the number of readings that were taken at or before UNTIL_NS, and before P began to
 * exit. */
static size_t readings_until(const struct profile *p, uint64_t until_ns)
{
    size_t n = p->is_ended ? profile_at_work(p) : p->n_readings;
    while (n > 0 && p->readings[n - 1].t_ns > until_ns)
        n--;
    return n;
}

struct held_lists {
    struct held *at;
    size_t count;
    const struct held_window *window;
};

static void add_held(struct held_lists *l, const struct profile *p)
{
    size_t n = readings_until(p, l->window->until_ns);
    struct held *more = n ? reallocarray(l->at, l->count + 1, sizeof *more) : NULL;
    if (!more)
        return;
    l->at = more;
    more[l->count] =
        (struct held){.pid = p->pid, .start_ns = p->start_ns, .worked_ns = p->readings[n - 1].t_ns};
    struct held *h = &more[l->count++];
    held_sites(p, n, l->window, &h->sites);
    uint64_t gap_ns = HELD_EARLIER_S * NS_PER_S;
    held_sites(p, readings_until(p, h->worked_ns > gap_ns ? h->worked_ns - gap_ns : 0), l->window,
               &h->earlier);
}

struct held *held_list(const struct folder_heaps *heaps, const struct held_window *w,
                       size_t *ret_count)
{
    struct held_lists l = {.window = w};
    for (size_t i = 0; i < heaps->count; i++)
        add_held(&l, heaps->at[i].profile);
    *ret_count = l.count;
    return l.at;
}

static void add_history(void *user, struct folder_heap *h, int error, const struct err *why)
{
    (void)why;
    if (error == 0)
        add_held(user, h->profile);
}

struct held *held_read(const char *path, const struct held_window *w, size_t *ret_count)
{
    struct held_lists l = {.window = w};
    folder_each(path, add_history, &l);
    *ret_count = l.count;
    return l.at;
}
