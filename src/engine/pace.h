/* Schedules samples. Each source has a period, and its measured cost may take only a given share of
 * one CPU. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pace {
    uint64_t period_ns;       /* requested time between samples */
    uint32_t share_permyriad; /* maximum share of one CPU */
    uint64_t next_ns;         /* time at which the next sample is due */
    uint64_t last_cost_ns;
    uint64_t total_cost_ns;
    uint64_t count;
};

static inline struct pace pace_of(uint64_t period_ns, uint32_t share_permyriad)
{
    return (struct pace){.period_ns = period_ns, .share_permyriad = share_permyriad};
}
static inline bool pace_due(const struct pace *p, uint64_t now_ns)
{
    return now_ns >= p->next_ns;
}
/* Schedules the next sample, after one that started at NOW_NS and took COST_NS of CPU time. */
void pace_done(struct pace *p, uint64_t now_ns, uint64_t cost_ns);
