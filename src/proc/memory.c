/* Computes lower and upper bounds of the memory of a process tree, with shared pages counted
 * once. */
#include "proc/tree.h"

#include "base/number.h"
#include "proc/node.h"

static uint64_t add_sat(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Returns the size of all mapped pages of the machine, each counted once, which is an upper bound
 * for any job's memory. Returns UINT64_MAX if unknown. */
static uint64_t mapped_on_machine(const struct proc_tree *tree)
{
    struct proc_meminfo m;
    if (tree->machine_mapped_bytes)
        return tree->machine_mapped_bytes;
    if (proc_read_meminfo(tree->root, &m) < 0 || m.anon_bytes == 0)
        return UINT64_MAX;
    return add_sat(m.anon_bytes, m.mapped_bytes);
}

void proc_tree_know_machine(struct proc_tree *tree, uint64_t mapped_bytes)
{
    tree->machine_mapped_bytes = mapped_bytes;
}

static uint64_t unique_bytes_of(const struct sample *s)
{
    return sample_has(s, SAMPLE_UNIQUE) ? u64_min(s->v[SAMPLE_UNIQUE], s->v[SAMPLE_RSS]) : 0;
}

/* Returns the part of N's shared memory that may already be included in another process's unique
 * memory. This happens in two cases: the other process was measured before N was born, so N may be
 * a fork of that process; or N is about to exit and has no reading in this tick, so pages that both
 * processes shared may have become unique to the other process. */
static uint64_t counted_elsewhere(const struct proc_tree *tree, const struct tree_node *n)
{
    bool is_there = n->pub.sample.read >> SAMPLE_RSS & 1u;
    uint64_t most = 0;
    for (size_t i = 0; i < tree->count; i++) {
        const struct tree_node *other = tree->nodes[i];
        if (other == n || other->unique_done_ns == 0 ||
            (is_there && other->unique_begun_ns >= n->pub.born_ns) ||
            !sample_has(&other->pub.sample, SAMPLE_RSS))
            continue;
        most = u64_max(most, unique_bytes_of(&other->pub.sample));
    }
    return most;
}

/* The parts of the lower bound, sum(u) and max(s), for the processes added so far; tree.h defines u
 * and s. */
struct bound {
    uint64_t counted, largest_shared;
};

static void bound_add(struct bound *b, const struct proc_tree *tree, const struct tree_node *n,
                      uint64_t rss, uint64_t unique)
{
    b->counted = add_sat(b->counted, unique);
    if (rss - unique <= b->largest_shared)
        return;
    uint64_t shared = rss - unique, elsewhere = counted_elsewhere(tree, n);
    b->largest_shared = u64_max(b->largest_shared, u64_minus(shared, elsewhere));
}

/* Adds the memory of a process, excluding its file pages. statm reports file pages and shared
 * memory as one number. The size of the shared memory alone is in status, which is read less
 * often. */
static void add_without_files(struct bound *b, struct proc_tree_memory *m,
                              const struct proc_tree *tree, const struct tree_node *n)
{
    const struct sample *s = &n->pub.sample;
    uint64_t rss = s->v[SAMPLE_RSS], unique = unique_bytes_of(s);
    uint64_t shmem = sample_has(s, SAMPLE_SHMEM) ? s->v[SAMPLE_SHMEM] : 0;
    uint64_t shared = u64_minus(rss, n->anon_bytes);
    uint64_t file = u64_minus(shared, shmem);
    uint64_t unique_file = u64_minus(n->unique_file_bytes, shmem);
    unique -= u64_min(unique, u64_min(unique_file, file));
    m->shared_sum_bytes = add_sat(m->shared_sum_bytes, shared);
    m->sum_without_files_bytes = add_sat(m->sum_without_files_bytes, rss - file);
    bound_add(b, tree, n, rss - file, u64_min(unique, rss - file));
}

void proc_tree_memory(struct proc_tree *tree, struct proc_tree_memory *ret)
{
    struct proc_tree_memory m = {0};
    struct bound whole = {0}, without_files = {0};
    uint64_t pss = 0;
    size_t with_rss = 0, with_pss = 0;
    for (size_t i = 0; i < tree->count; i++) {
        const struct sample *s = &tree->nodes[i]->pub.sample;
        if (!sample_has(s, SAMPLE_RSS))
            continue;
        uint64_t rss = s->v[SAMPLE_RSS], unique = unique_bytes_of(s);
        with_rss++;
        if (sample_has(s, SAMPLE_UNIQUE)) {
            m.unique_known++;
            m.unique_bytes = add_sat(m.unique_bytes, s->v[SAMPLE_UNIQUE]);
        }
        if (s->read >> SAMPLE_PSS & 1u) {
            with_pss++;
            pss = add_sat(pss, s->v[SAMPLE_PSS]);
        }
        m.rss_sum_bytes = add_sat(m.rss_sum_bytes, rss);
        bound_add(&whole, tree, tree->nodes[i], rss, unique);
        add_without_files(&without_files, &m, tree, tree->nodes[i]);
    }
    m.known = with_rss > 0;
    m.low_bytes = add_sat(whole.counted, whole.largest_shared);
    m.low_without_files_bytes = add_sat(without_files.counted, without_files.largest_shared);
    m.high_bytes = m.low_bytes;
    if (m.known && with_pss == with_rss)
        m.low_bytes = m.high_bytes = pss;
    else if (m.rss_sum_bytes > m.low_bytes)
        m.high_bytes = u64_max(m.low_bytes, u64_min(m.rss_sum_bytes, mapped_on_machine(tree)));
    *ret = m;
}

/* Returns the process from which N was forked, or NULL if that process is not in the tree. After a
 * fork both processes have the same stack address; exec changes it. If the parent is not known, as
 * for an orphan, the oldest process with the same stack address is assumed to be the parent. */
static const struct tree_node *forked_from(const struct proc_tree *tree, const struct tree_node *n)
{
    const struct tree_node *oldest = NULL;
    for (size_t i = 0; n->start_stack != 0 && i < tree->count; i++) {
        const struct tree_node *other = tree->nodes[i];
        if (other == n || other->start_stack != n->start_stack)
            continue;
        if (other->pub.info.id.pid == n->pub.info.ppid)
            return other;
        if (!oldest && other->pub.slot < n->pub.slot)
            oldest = other;
    }
    return oldest;
}

uint64_t proc_node_unmeasured(struct proc_tree *tree, struct proc_node *node)
{
    struct tree_node *n = node_of(node);
    if (!n->fork_is_known) {
        /* a fork initially shares the anonymous memory of its parent, and maps file pages only when
         * it touches them */
        const struct tree_node *from = forked_from(tree, n);
        n->fork_bytes = from ? from->anon_bytes : 0;
        n->fork_is_known = true;
    }
    bool is_measured = node->sample.known >> SAMPLE_UNIQUE & 1u;
    uint64_t rss = sample_has(&node->sample, SAMPLE_RSS) ? node->sample.v[SAMPLE_RSS] : 0;
    uint64_t grown = u64_minus(rss, is_measured ? n->unique_rss_bytes : n->fork_bytes);
    if (is_measured || n->fork_bytes == 0)
        return grown;
    /* A forked process that writes to a shared page gets its own copy of that page. The process's
     * RSS does not change, but each copy is a page fault, so the number of page faults is an upper
     * bound for the copied pages. */
    return u64_max(grown, u64_min(pages_to_bytes(tree->root, n->minor_faults), rss));
}
