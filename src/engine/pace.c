/* Schedules samples according to their measured cost. */
#include "engine/pace.h"

void pace_done(struct pace *p, uint64_t now_ns, uint64_t cost_ns)
{
    p->last_cost_ns = cost_ns;
    p->total_cost_ns += cost_ns;
    p->count++;
    uint64_t rest_ns = p->share_permyriad ? cost_ns * (10000 / p->share_permyriad) : 0;
    uint64_t wait_ns = rest_ns > p->period_ns ? rest_ns : p->period_ns;
    /* Ticks have some jitter. A sample that is taken a little early is better than a sample that is
     * a whole tick late. */
    p->next_ns = now_ns + wait_ns - wait_ns / 16;
}
