/* Sites as the exports see them. */
#include "profile/export_sites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

int export_no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "not enough memory to export the profile");
}

int export_sites(const struct profile *p, struct export_site **ret, struct err *err)
{
    if (p->n_readings == 0)
        return err_set(err, -ENODATA, "the heap of process %d was never read: nothing to export",
                       (int)p->pid);
    struct export_site *sites = calloc(p->n_sites ? p->n_sites : 1, sizeof(*sites));
    if (!sites)
        return export_no_memory(err);
    size_t working = profile_working(p);
    for (size_t i = 0; i < p->n_readings; i++) {
        const struct profile_reading *r = &p->readings[i];
        bool is_last = i + 1 == working, is_after = i >= working;
        for (size_t k = 0; k < r->count; k++) {
            if (r->held[k].site >= p->n_sites)
                continue;
            struct export_site *s = &sites[r->held[k].site];
            s->allocated_bytes = r->held[k].allocated_bytes;
            s->allocated_objects = r->held[k].allocated_objects;
            if (is_after)
                continue;
            s->live_bytes = is_last ? r->held[k].live_bytes : 0;
            s->live_objects = is_last ? r->held[k].live_objects : 0;
        }
    }
    *ret = sites;
    return 0;
}

uint64_t export_whole(double v)
{
    if (!(v >= 0.5)) /* also what is no number */
        return 0;
    return v < 9e18 ? (uint64_t)(v + 0.5) : INT64_MAX;
}

size_t export_stack(const struct profile *p, uint32_t site, uint32_t ret[EXPORT_DEPTH])
{
    size_t n = 0;
    uint32_t node = site < p->n_sites ? p->site_node[site] : 0;
    while (node != 0 && node < p->n_nodes && n < EXPORT_DEPTH) {
        ret[n++] = node;
        node = p->nodes[node].parent < node ? p->nodes[node].parent : 0;
    }
    for (size_t i = 0; i < n / 2; i++) {
        uint32_t other = ret[i];
        ret[i] = ret[n - 1 - i];
        ret[n - 1 - i] = other;
    }
    return n;
}
