/* Checks a process tree that grows although none of its processes does: shared pages may have
 * become private. */
#include "verdict/judging.h"

#include <math.h>

/* The sum over the processes must grow by at least this fraction of the tree's growth. */
static const double FOLLOWS = 0.4;

/* Returns the growth of V's baseline between two times on its clock. */
static double rise_between(const struct verdict_series *v, double from_ns, double to_ns)
{
    struct view w;
    double from = (from_ns - (double)v->clock.first_ns) * 1e-9 - v->clock.gap_s;
    double to = (to_ns - (double)v->clock.first_ns) * 1e-9 - v->clock.gap_s;
    size_t i = 0, k;
    view_build(&w, v, false, -HUGE_VAL, -HUGE_VAL);
    if (w.n == 0)
        return 0;
    while (i + 1 < w.n && w.x[i] < from)
        i++;
    for (k = w.n - 1; k > i && w.x[k] > to; k--)
        ;
    return w.low[k] - w.low[i];
}

/* Only the later half of the rise is compared: when workers are forked, the sum over the processes
 * jumps by all memory that they share with their parent. */
void verdict_check_unshared(struct verdict_result *r, const struct verdict_series *whole,
                            const struct verdict_series *summed)
{
    double onset_ns = (double)whole->clock.first_ns + r->onset_s * 1e9,
           end_ns = (double)whole->clock.last_ns;
    double half_ns = (onset_ns + end_ns) / 2;
    if (r->leak != VERDICT_LEAK_YES ||
        rise_between(summed, half_ns, end_ns) >= FOLLOWS * rise_between(whole, half_ns, end_ns))
        return;
    result_leave_open(r);
    r->alarm = r->forecast.known = false;
}
