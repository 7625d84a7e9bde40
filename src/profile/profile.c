/* Computes the weights of samples, and finds readings in a profile by time. */
#include "profile/profile.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/number.h"

struct profile *profile_ref(struct profile *p)
{
    struct profile *whole = p->whole ? p->whole : p;
    whole->refs++;
    return p;
}

static void free_moments(struct profile *p)
{
    for (size_t i = 0; i < p->n_readings; i++)
        free((void *)(uintptr_t)p->readings[i].held);
    for (size_t i = 0; i < p->n_snapshots; i++)
        free((void *)(uintptr_t)p->snapshots[i].samples);
    free(p->readings);
    free(p->snapshots);
}

void profile_free(struct profile *p)
{
    if (p && p->whole)
        p = p->whole;
    if (!p || p->refs-- > 0)
        return;
    free_moments(p);
    if (p->gpu)
        free_moments(p->gpu);
    free(p->gpu);
    free(p->modules);
    free(p->codes);
    free(p->nodes);
    free(p->site_node);
    free(p->text);
    free(p);
}

int profile_site_gpu(const struct profile *p, uint32_t site)
{
    return site < p->n_sites ? p->nodes[p->site_node[site]].gpu - 1 : -1;
}

/* Removes the entries of GPU memory from the array AT, which has *N entries of SIZE bytes, and
 * updates *N. Each entry begins with its call site. Returns the removed entries in their order, and
 * their number in *RET_N. Returns NULL if out of memory. */
static void *take_gpu_entries(const struct profile *p, void *at, size_t *n, size_t size,
                              size_t *ret_n)
{
    char *entries = at, *taken = calloc(*n + 1, size);
    size_t host = 0, gpu = 0;
    for (size_t i = 0; taken && i < *n; i++) {
        uint32_t site;
        memcpy(&site, entries + i * size, sizeof site);
        char *to = profile_site_gpu(p, site) >= 0 ? taken + gpu++ * size : entries + host++ * size;
        if (to != entries + i * size)
            memcpy(to, entries + i * size, size);
    }
    if (taken) {
        *n = host;
        *ret_n = gpu;
    }
    return taken;
}

static int split_moments(struct profile *p, struct profile *gpu)
{
    gpu->readings = calloc(p->n_readings + 1, sizeof *gpu->readings);
    gpu->snapshots = calloc(p->n_snapshots + 1, sizeof *gpu->snapshots);
    if (!gpu->readings || !gpu->snapshots)
        return -ENOMEM;
    for (size_t i = 0; i < p->n_readings; i++) {
        struct profile_reading *from = &p->readings[i], *to = &gpu->readings[i];
        *to = *from;
        to->arena_bytes = to->inside_bytes = 0;
        to->held = take_gpu_entries(p, (void *)(uintptr_t)from->held, &from->count,
                                    sizeof *from->held, &to->count);
        if (!to->held)
            return -ENOMEM;
        gpu->n_readings++;
    }
    for (size_t i = 0; i < p->n_snapshots; i++) {
        struct profile_snapshot *from = &p->snapshots[i], *to = &gpu->snapshots[i];
        *to = *from;
        to->samples = take_gpu_entries(p, (void *)(uintptr_t)from->samples, &from->count,
                                       sizeof *from->samples, &to->count);
        if (!to->samples)
            return -ENOMEM;
        gpu->n_snapshots++;
    }
    return 0;
}

int profile_split(struct profile *p)
{
    bool has_gpu = false;
    for (uint32_t i = 0; i < p->n_sites; i++)
        has_gpu = has_gpu || profile_site_gpu(p, i) >= 0;
    if (!has_gpu)
        return 0;
    struct profile *gpu = calloc(1, sizeof *gpu);
    if (!gpu)
        return -ENOMEM;
    *gpu = *p;
    gpu->whole = p;
    gpu->readings = NULL;
    gpu->snapshots = NULL;
    gpu->n_readings = gpu->n_snapshots = 0;
    p->gpu = gpu;
    return split_moments(p, gpu);
}

double profile_probability(uint64_t size, uint64_t interval)
{
    if (interval == 0)
        return 1;
    return -expm1(-(double)size / (double)interval);
}

double profile_weight_bytes(uint64_t size, uint64_t interval)
{
    return size > 0 ? (double)size / profile_probability(size, interval) : 0;
}

double profile_weight_objects(uint64_t size, uint64_t interval)
{
    return size > 0 ? 1 / profile_probability(size, interval) : 0;
}

uint64_t profile_whole(double v)
{
    return (uint64_t)number_to_i64(fmax(v, 0));
}

static bool step_before(const struct profile *p, size_t *at)
{
    while (*at > 0)
        if (p->readings[--*at].has_step)
            return true;
    return false;
}

bool profile_time_of(const struct profile *p, int64_t step, uint64_t *ret_ns)
{
    size_t after = 0;
    while (after < p->n_readings &&
           (!p->readings[after].has_step || p->readings[after].step < step))
        after++;
    if (after == p->n_readings)
        return false;
    const struct profile_reading *b = &p->readings[after];
    size_t before = after;
    if (b->step == step) {
        *ret_ns = b->t_ns;
        return true;
    }
    if (!step_before(p, &before))
        return false;
    /* the last reading before STEP was completed */
    const struct profile_reading *a = &p->readings[before];
    double part = ((double)step - (double)a->step) / ((double)b->step - (double)a->step);
    *ret_ns = a->t_ns + (uint64_t)(part * (double)(b->t_ns - a->t_ns));
    return true;
}

const struct profile_reading *profile_reading_at(const struct profile *p, uint64_t t_ns)
{
    size_t after = ARRAY_SEARCH(i, p->n_readings, p->readings[i].t_ns <= t_ns);
    return after > 0 ? &p->readings[after - 1] : NULL;
}

const struct profile_snapshot *profile_snapshot_at(const struct profile *p, uint64_t t_ns)
{
    size_t n = p->n_snapshots;
    while (n > 0 && p->snapshots[n - 1].t_ns > t_ns)
        n--;
    return n > 0 ? &p->snapshots[n - 1] : NULL;
}

double profile_live_at(const struct profile_reading *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->count; i++)
        sum += r->held[i].live_bytes;
    return sum;
}

const struct profile_held *profile_held_by(const struct profile_reading *r, size_t *at,
                                           uint32_t site)
{
    while (*at < r->count && r->held[*at].site < site)
        ++*at;
    return *at < r->count && r->held[*at].site == site ? &r->held[*at] : NULL;
}

double profile_sure_growth(const struct profile_held *before, const struct profile_held *now)
{
    double growth = now->live_bytes - (before ? before->live_bytes : 0);
    double variance = now->live_variance + (before ? before->live_variance : 0);
    return fmax(growth - 2 * sqrt(fmax(variance, 0)), 0);
}

static const double alike = 1.001;

/* Returns the index of the first reading from which on the process was exiting and live bytes never
 * grew. If there is no such reading, returns the index of the last reading. */
static size_t first_ended(const struct profile *p)
{
    size_t i = p->n_readings - 1;
    while (i > 0 && p->readings[i - 1].is_ended &&
           profile_live_at(&p->readings[i]) <= alike * profile_live_at(&p->readings[i - 1]))
        i--;
    return i;
}

/* Returns for how long the process may have been releasing memory. This is the time since memory
 * last grew, limited to a tenth of the process's life, but at least five seconds. */
static uint64_t tail_ns_of(const struct profile *p)
{
    const uint64_t least_ns = UINT64_C(5000000000);
    const struct profile_reading *last = &p->readings[p->n_readings - 1], *r = last;
    while (r > p->readings && profile_live_at(r) <= alike * profile_live_at(r - 1))
        r--;
    uint64_t idle_ns = last->t_ns - r->t_ns, most_ns = (last->t_ns - p->readings[0].t_ns) / 10;
    uint64_t tail_ns = idle_ns < most_ns ? idle_ns : most_ns;
    return tail_ns > least_ns ? tail_ns : least_ns;
}

size_t profile_working(const struct profile *p)
{
    size_t n = p->n_readings, before = 0;
    const double much_less = 0.9;
    if (n < 2 || !p->is_ended)
        return n;
    size_t ended = first_ended(p);
    uint64_t end_ns = p->readings[ended ? ended - 1 : 0].t_ns, tail_ns = tail_ns_of(p);
    while (before + 2 < n && p->readings[before + 1].t_ns + tail_ns < end_ns)
        before++;
    double held = much_less * profile_live_at(&p->readings[before]);
    while (n > before + 1 && profile_live_at(&p->readings[n - 1]) <
                                 fmax(held, much_less * profile_live_at(&p->readings[n - 2])))
        n--;
    return n;
}

size_t profile_at_work(const struct profile *p)
{
    size_t n = profile_working(p), ended = p->is_ended && n > 0 ? first_ended(p) : n;
    return ended > 0 && ended < n ? ended : n;
}
