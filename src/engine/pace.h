/* When to sample again: each source has its period and may use only its share of one CPU, by its
 * measured cost. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pace {
    uint64_t period_ns;       /* wanted */
    uint32_t share_permyriad; /* of one CPU, at most */
    uint64_t next_ns;         /* due then */
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
/* A sample begun at NOW_NS cost COST_NS of CPU: sets when the next is due. */
void pace_done(struct pace *p, uint64_t now_ns, uint64_t cost_ns);
