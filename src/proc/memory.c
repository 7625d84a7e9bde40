/* The memory of a whole tree with shared pages counted once, as bounds. */
#include "proc/tree.h"

#include <unistd.h>

#include "proc/node.h"

static uint64_t add_sat(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Every mapped page of the machine, once: no job can hold more. UINT64_MAX where not known. */
static uint64_t mapped_on_machine(const struct proc_tree *tree)
{
    char text[4096];
    struct proc_meminfo m;
    if (tree->machine_mapped_bytes)
        return tree->machine_mapped_bytes;
    ssize_t len = tree->meminfo_fd >= 0 ? pread(tree->meminfo_fd, text, sizeof(text), 0) : -1;
    if (len <= 0 || proc_meminfo_parse(text, (size_t)len, &m) < 0 || m.anon_bytes == 0)
        return UINT64_MAX;
    return add_sat(m.anon_bytes, m.mapped_bytes);
}

void proc_tree_know_machine(struct proc_tree *tree, uint64_t mapped_bytes)
{
    tree->machine_mapped_bytes = mapped_bytes;
}

void proc_tree_memory(struct proc_tree *tree, struct proc_tree_memory *ret)
{
    struct proc_tree_memory m = {0};
    uint64_t counted = 0, largest_shared = 0, pss = 0;
    size_t with_rss = 0, with_pss = 0;
    for (size_t i = 0; i < tree->count; i++) {
        const struct sample *s = &tree->nodes[i]->pub.sample;
        if (!sample_has(s, SAMPLE_RSS))
            continue;
        uint64_t rss = s->v[SAMPLE_RSS], unique = 0;
        with_rss++;
        if (sample_has(s, SAMPLE_UNIQUE)) {
            unique = min_u64(s->v[SAMPLE_UNIQUE], rss);
            m.unique_known++;
            m.unique_bytes = add_sat(m.unique_bytes, s->v[SAMPLE_UNIQUE]);
        }
        if (s->read >> SAMPLE_PSS & 1u) {
            with_pss++;
            pss = add_sat(pss, s->v[SAMPLE_PSS]);
        }
        m.rss_sum_bytes = add_sat(m.rss_sum_bytes, rss);
        counted = add_sat(counted, unique);
        if (rss - unique > largest_shared)
            largest_shared = rss - unique;
    }
    m.known = with_rss > 0;
    m.low_bytes = add_sat(counted, largest_shared);
    m.high_bytes = m.low_bytes;
    if (m.known && with_pss == with_rss)
        m.low_bytes = m.high_bytes = pss;
    else if (m.rss_sum_bytes > m.low_bytes) {
        m.high_bytes = min_u64(m.rss_sum_bytes, mapped_on_machine(tree));
        if (m.high_bytes < m.low_bytes)
            m.high_bytes = m.low_bytes;
    }
    *ret = m;
}
