/* What a process held at each reading, judged as a series. */
#include "profile/held.h"

#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "profile/folder.h"

/* A site that lets go of no more than this part of what it allocates keeps: what it holds does not
 * come and go with every batch, and samples of it are drawn once. */
static const double KEEPS = 0.2;
enum { LATE_PART = 8 };             /* of the time: its end */
static const double ALL_GREW = 0.5; /* of that, all that is held grew by */

static uint64_t whole_bytes(double bytes)
{
    return bytes > 1 ? (uint64_t)bytes : 1;
}

/* By site: 1 for those that count. */
static void choose(const struct profile *p, const struct profile_reading *end, bool keepers_only,
                   char *counts)
{
    for (size_t i = 0; i < p->n_sites; i++)
        counts[i] = !keepers_only;
    for (size_t i = 0; keepers_only && i < end->count; i++)
        counts[end->held[i].site] =
            end->held[i].freed_bytes <= KEEPS * end->held[i].allocated_bytes;
}

/* COUNTS NULL: of all. */
static double sum_at(const struct profile_reading *r, const char *counts)
{
    double sum = 0;
    for (size_t i = 0; i < r->count; i++)
        sum += !counts || counts[r->held[i].site] ? r->held[i].live_bytes : 0;
    return sum;
}

/* Of all that is held, the least that was since T_NS: what grows in one place may have gone from
 * another. */
static double least_since(const struct profile *p, size_t n, uint64_t t_ns)
{
    double least = HUGE_VAL;
    for (size_t i = 0; i < n; i++)
        if (p->readings[i].t_ns >= t_ns)
            least = fmin(least, sum_at(&p->readings[i], NULL));
    return least;
}

/* What chance may be of the growth from A to B, as a variance. Samples that live at both are the
 * same; of a site that let go of much since A they are not. */
static double chance_of(const struct profile_reading *a, const struct profile_reading *b,
                        const char *counts)
{
    double sum = 0;
    for (size_t i = 0, k = 0; i < b->count; i++) {
        const struct profile_held *now = &b->held[i];
        if (!counts[now->site])
            continue;
        while (k < a->count && a->held[k].site < now->site)
            k++;
        if (k == a->count || a->held[k].site != now->site) {
            sum += now->live_variance;
            continue;
        }
        const struct profile_held *then = &a->held[k];
        double freed = now->freed_bytes - then->freed_bytes;
        double part = then->live_bytes > 0 ? fmin(1, fmax(0, freed / then->live_bytes)) : 1;
        sum += fmax(0, now->live_variance - (1 - part) * then->live_variance) +
               part * then->live_variance;
    }
    return sum;
}

static bool judge(const struct profile *p, size_t n, const char *counts, struct verdict_held *ret)
{
    const struct verdict_options options = {.is_held = true};
    AUTO_FREE struct verdict_series *series = malloc(sizeof *series);
    if (!series || verdict_init(series, &options) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        verdict_update(series, (int64_t)p->readings[i].t_ns,
                       whole_bytes(sum_at(&p->readings[i], counts)));
    verdict_job_over(series);
    verdict_judge(series, NULL, &ret->result);
    if (ret->result.leak != VERDICT_LEAK_YES)
        return false;
    ret->from_ns = (int64_t)p->readings[0].t_ns + (int64_t)(ret->result.onset_s * 1e9);
    const struct profile_reading *from = profile_reading_at(p, (uint64_t)ret->from_ns);
    const struct profile_reading *end = &p->readings[n - 1];
    if (!from)
        from = &p->readings[0];
    ret->growth_bytes = ret->result.floor_last_bytes - sum_at(from, counts);
    ret->chance_bytes = sqrt(chance_of(from, end, counts));
    uint64_t late_ns = end->t_ns - (end->t_ns - from->t_ns) / LATE_PART;
    return least_since(p, n, late_ns) - least_since(p, n, from->t_ns) >=
           ALL_GREW * ret->growth_bytes;
}

bool held_grew(const struct profile *p, struct verdict_held *ret)
{
    size_t n = profile_working(p);
    AUTO_FREE char *counts = calloc(p->n_sites ? p->n_sites : 1, 1);
    if (!counts || n == 0)
        return false;
    for (int keepers_only = 1; keepers_only >= 0; keepers_only--) {
        choose(p, &p->readings[n - 1], keepers_only, counts);
        if (judge(p, n, counts, ret))
            return true;
    }
    return false;
}

struct list {
    struct held *at;
    size_t count;
};

static void add(void *user, const struct profile *p)
{
    struct list *l = user;
    struct held one = {.pid = p->pid, .start_ns = p->start_ns};
    if (!held_grew(p, &one.grown))
        return;
    struct held *more = reallocarray(l->at, l->count + 1, sizeof *more);
    if (!more)
        return;
    l->at = more;
    more[l->count++] = one;
}

struct held *held_read(const char *path, size_t *ret_count)
{
    struct list l = {0};
    folder_each(path, add, &l);
    *ret_count = l.count;
    return l.at;
}
