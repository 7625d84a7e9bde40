/* Reads all parts of a profile that profile.h guarantees to be readable. */
#pragma once

#include <stdlib.h>

#include "profile/profile.h"

static inline double touch_text(struct profile_text text)
{
    double sum = 0;
    for (size_t i = 0; i < text.len; i++)
        sum += text.at[i];
    return sum;
}

static inline double touch_profile(const struct profile *p)
{
    double sum = 0;
    for (size_t i = 0; i < p->n_nodes; i++)
        if (p->nodes[i].depth > HEAP_STACK_MAX || (i > 0 && p->nodes[i].parent >= i))
            abort();
    for (size_t i = 0; i < p->n_sites; i++)
        sum += p->nodes[p->site_node[i]].depth;
    for (size_t i = 0; i < p->n_modules; i++)
        sum += touch_text(p->modules[i].path);
    for (size_t i = 0; i < p->n_codes; i++)
        sum += touch_text(p->codes[i].name) + touch_text(p->codes[i].lines);
    for (size_t i = 0; i < p->n_readings; i++) {
        if (i > 0 && p->readings[i].t_ns < p->readings[i - 1].t_ns)
            abort();
        for (size_t k = 0; k < p->readings[i].count; k++)
            sum += p->site_node[p->readings[i].held[k].site];
    }
    for (size_t i = 0; i < p->n_snapshots; i++)
        for (size_t k = 0; k < p->snapshots[i].count; k++)
            sum += p->site_node[p->snapshots[i].samples[k].site];
    return sum;
}
