/* What a process held at each reading, judged as a series. */
#include "profile/held.h"

#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "profile/folder.h"

/* A site that lets go of no more than this part of what it allocates keeps: what it holds does not
 * come and go with every batch, and samples of it are drawn once. */
static const double KEEPS = 0.2;
enum { LATE_PART = 8 };         /* of the time: its end */
static const double PART = 0.5; /* of a growth, that another has */
static const double LATE_RISE =
    0.05;                         /* of all that is held: what still grew late grew by so much */
static const double BEGUN = 0.05; /* of a growth: before so much of it is seen, none was */

static uint64_t sum_bytes(double bytes)
{
    return bytes > 1 ? (uint64_t)bytes : 1;
}

/* By site: 1 for those that keep what they hold at END. */
static void choose_keepers(const struct profile_reading *end, char *keeps)
{
    for (size_t i = 0; i < end->count; i++)
        keeps[end->held[i].site] = end->held[i].freed_bytes <= KEEPS * end->held[i].allocated_bytes;
}

/* Of those, the ones that hold surely more at END than half-way there: what a start-up takes and
 * keeps hides them in the sum. */
static void choose_late(const struct profile *p, size_t n, char *keeps)
{
    const struct profile_reading *end = &p->readings[n - 1], *half = &p->readings[0];
    uint64_t half_ns = half->t_ns + (end->t_ns - half->t_ns) / 2;
    while (half < end && half->t_ns < half_ns)
        half++;
    for (size_t i = 0, at = 0; i < end->count; i++) {
        const struct profile_held *now = &end->held[i];
        if (!(profile_sure_growth(profile_held_by(half, &at, now->site), now) > 0))
            keeps[now->site] = 0;
    }
}

/* COUNTS NULL: of all. */
static double sum_at(const struct profile_reading *r, const char *counts)
{
    double sum = 0;
    for (size_t i = 0; i < r->count; i++)
        sum += !counts || counts[r->held[i].site] ? r->held[i].live_bytes : 0;
    return sum;
}

/* By how much the least that was held since T_NS lies below that of late. */
static double growth_since(const struct profile *p, size_t n, const char *counts, uint64_t t_ns)
{
    uint64_t end_ns = p->readings[n - 1].t_ns, late_ns = end_ns - (end_ns - t_ns) / LATE_PART;
    double least = HUGE_VAL, of_late = HUGE_VAL;
    for (size_t i = 0; i < n; i++) {
        double sum = sum_at(&p->readings[i], counts);
        if (p->readings[i].t_ns >= t_ns)
            least = fmin(least, sum);
        if (p->readings[i].t_ns >= late_ns)
            of_late = fmin(of_late, sum);
    }
    return of_late - least;
}

/* What chance may be of the growth from A to B, as a variance. Samples that live at both are the
 * same; of a site that let go of much since A they are not. */
static double chance_of(const struct profile_reading *a, const struct profile_reading *b,
                        const char *counts)
{
    double sum = 0;
    for (size_t i = 0, at = 0; i < b->count; i++) {
        const struct profile_held *now = &b->held[i];
        if (counts && !counts[now->site])
            continue;
        const struct profile_held *then = profile_held_by(a, &at, now->site);
        if (!then) {
            sum += now->live_variance;
            continue;
        }
        double freed = now->freed_bytes - then->freed_bytes;
        double part = then->live_bytes > 0 ? fmin(1, fmax(0, freed / then->live_bytes)) : 1;
        sum += fmax(0, now->live_variance - (1 - part) * then->live_variance) +
               part * then->live_variance;
    }
    return sum;
}

static bool judge_held_sum(const struct profile *p, size_t n, const char *counts,
                           struct verdict_held *ret)
{
    const struct verdict_options options = {.is_held = true};
    AUTO_FREE struct verdict_series *series = malloc(sizeof *series);
    if (!series || verdict_init(series, &options) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        verdict_update(series, (int64_t)p->readings[i].t_ns,
                       sum_bytes(sum_at(&p->readings[i], counts)));
    verdict_job_over(series);
    verdict_judge(series, NULL, &ret->result);
    if (ret->result.leak != VERDICT_LEAK_YES)
        return false;
    ret->from_ns = (int64_t)p->readings[0].t_ns + (int64_t)(ret->result.onset_s * 1e9);
    const struct profile_reading *from = profile_reading_at(p, (uint64_t)ret->from_ns);
    const struct profile_reading *end = &p->readings[n - 1];
    if (!from)
        from = &p->readings[0];
    double none = sum_at(from, counts);
    none += BEGUN * (ret->result.floor_last_bytes - none);
    for (; from + 1 < end && sum_at(from + 1, counts) <= none; from++)
        ret->from_ns = (int64_t)from[1].t_ns;
    ret->growth_bytes = ret->result.floor_last_bytes - sum_at(from, counts);
    ret->chance_bytes = sqrt(chance_of(from, end, counts));
    return true;
}

/* What grew in one place may have gone from another. */
static bool has_grown_in_all(const struct profile *p, size_t n, const struct verdict_held *grown)
{
    return growth_since(p, n, NULL, (uint64_t)grown->from_ns) >= PART * grown->growth_bytes;
}

/* What is kept grows where nothing is let go, or does so where it still grew late, or it does not:
 * then all that is held is looked at, but for growth that was the keepers', which is known not to
 * be even. */
bool held_grew(const struct profile *p, struct verdict_held *ret)
{
    size_t n = profile_at_work(p);
    AUTO_FREE char *keeps = calloc(p->n_sites ? p->n_sites : 1, 1);
    if (!keeps || n == 0)
        return false;
    const struct profile_reading *end = &p->readings[n - 1];
    choose_keepers(end, keeps);
    if (judge_held_sum(p, n, keeps, ret))
        return has_grown_in_all(p, n, ret);
    choose_late(p, n, keeps);
    if (judge_held_sum(p, n, keeps, ret) && ret->growth_bytes >= LATE_RISE * profile_live_at(end))
        return has_grown_in_all(p, n, ret);
    choose_keepers(end, keeps);
    return judge_held_sum(p, n, NULL, ret) &&
           growth_since(p, n, keeps, (uint64_t)ret->from_ns) < PART * ret->growth_bytes;
}

struct list {
    struct held *at;
    size_t count;
};

static void add_held(void *user, const struct profile *p)
{
    struct list *l = user;
    size_t n = profile_at_work(p);
    if (!p->is_ended || n == 0)
        return;
    struct held one = {
        .pid = p->pid, .start_ns = p->start_ns, .worked_ns = p->readings[n - 1].t_ns};
    one.has_grown = held_grew(p, &one.grown);
    struct held *more = reallocarray(l->at, l->count + 1, sizeof *more);
    if (!more)
        return;
    l->at = more;
    more[l->count++] = one;
}

struct held *held_read(const char *path, size_t *ret_count)
{
    struct list l = {0};
    folder_each(path, add_held, &l);
    *ret_count = l.count;
    return l.at;
}
