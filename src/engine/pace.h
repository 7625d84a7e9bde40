/* Schedules samples. Each source is sampled periodically, but less often if its measured cost would
 * otherwise exceed a given share of one CPU. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pace {
    uint64_t period_ns;       /* requested interval between samples */
    uint32_t share_permyriad; /* maximum share of one CPU */
    uint64_t next_ns;         /* time at which the next sample is due */
    uint64_t count;           /* number of samples so far */
};

static inline struct pace pace_of(uint64_t period_ns, uint32_t share_permyriad)
{
    return (struct pace){.period_ns = period_ns, .share_permyriad = share_permyriad};
}
static inline bool pace_due(const struct pace *p, uint64_t now_ns)
{
    return now_ns >= p->next_ns;
}
/* Schedules the next sample. The last sample started at NOW_NS and used COST_NS of CPU time. */
static inline void pace_done(struct pace *p, uint64_t now_ns, uint64_t cost_ns)
{
    p->count++;
    uint64_t rest_ns = p->share_permyriad ? cost_ns * (10000 / p->share_permyriad) : 0;
    uint64_t wait_ns = rest_ns > p->period_ns ? rest_ns : p->period_ns;
    /* Ticks have some jitter. A sample that is taken slightly early is better than one that is
     * delayed by a whole tick. */
    p->next_ns = now_ns + wait_ns - wait_ns / 16;
}
