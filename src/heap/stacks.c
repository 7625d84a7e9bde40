/* The tree of stacks. Nodes are found by parent and frame, and call sites by node. To add a node or
 * a call site, a thread reserves a number and fills in the entry with that number. Complete entries
 * are then published in the order of their numbers. Any thread that finds the next entry complete
 * publishes it, so no thread waits for another. Two threads that add the same new frame at the same
 * time may create two nodes; then only one of the two nodes is in the index, and nothing refers to
 * the other. */
#include "heap/stacks.h"

enum {
    SLOTS = HEAP_NODES * 2,
    /* As long as the tree has at most this number of nodes, stacks are stored whole. Importing a
     * hundred libraries creates stacks that never occur again, so the last quarter of the tree is
     * kept for later stacks. Of those later stacks only the innermost PYTHON_KEPT or NATIVE_KEPT
     * frames are stored, so the place of the allocation is still known. */
    WHOLE_NODES = HEAP_NODES / 4 * 3,
    PYTHON_KEPT = 3,
    NATIVE_KEPT = 16,
};

/* A hash table with open addressing. Each slot holds the number of a node; 0 marks an empty
 * slot. */
static _Atomic(uint16_t) slots[SLOTS] __attribute__((aligned(4096)));
_Static_assert(HEAP_NODES <= 1 << 16, "a node's number fits in a slot");
/* Number of nodes and number of call sites that are taken. Entries that were just taken may be
 * incomplete and not visible in the table yet. Number 0 is taken from the start. */
static _Atomic(uint32_t) nodes_taken = 1, sites_taken = 1;

/* Hashes a frame together with all its callers. The hash does not depend on the parent's number, so
 * all slots of a stack can be computed and prefetched before the first slot is read. Otherwise a
 * sample would wait for the slots one after the other, because usually none of them is in the
 * processor's cache. */
static uint64_t path_hash(uint64_t outside, uint64_t frame)
{
    uint64_t x = (frame ^ outside) * UINT64_C(0x9e3779b97f4a7c15);
    return (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
}

static uint32_t node_slot(uint64_t hash)
{
    return (uint32_t)(hash >> 32) % SLOTS;
}

/* Returns the word to store for a frame. It is never 0, because 0 marks a node that is not complete
 * yet. */
static uint64_t word_of(uint64_t frame)
{
    return frame ? frame : 1;
}

static void fetch_slots(uint64_t hash, const uint64_t *frames, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        hash = path_hash(hash, word_of(frames[i]));
        __builtin_prefetch(&slots[node_slot(hash)]);
    }
}

static void fetch_nodes(const struct heap_table *t, uint64_t hash, const uint64_t *frames, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        hash = path_hash(hash, word_of(frames[i]));
        uint16_t node = HEAP_LOAD(slots[node_slot(hash)]);
        __builtin_prefetch(&t->nodes[node]);
    }
}

/* Publishes complete nodes. Two threads may complete a node each at the same time. Their stores and
 * these loads are sequentially consistent, so at least one of the two threads sees that both nodes
 * are complete. */
static void count_nodes(struct heap_table *t)
{
    uint32_t n = atomic_load(&t->header.nodes);
    while (n == 0 || (n < HEAP_NODES && __atomic_load_n(&t->nodes[n].frame, __ATOMIC_SEQ_CST) != 0))
        if (atomic_compare_exchange_strong(&t->header.nodes, &n, n + 1))
            n++;
}

static void count_sites(struct heap_table *t)
{
    uint32_t n = atomic_load(&t->header.sites);
    while (n == 0 || (n < HEAP_SITES && __atomic_load_n(&t->sites[n].node, __ATOMIC_SEQ_CST) != 0))
        if (atomic_compare_exchange_strong(&t->header.sites, &n, n + 1))
            n++;
}

/* Creates a node, but does not add it to the index. Returns 0 if there are already ROOM nodes. */
static uint32_t make_node(struct heap_table *t, uint32_t parent, uint64_t frame, uint32_t room)
{
    uint32_t node;
    if (!heap_take(&nodes_taken, 1, room, &node))
        return 0;
    t->nodes[node].parent = parent;
    __atomic_store_n(&t->nodes[node].frame, frame, __ATOMIC_SEQ_CST);
    count_nodes(t);
    return node;
}

/* Returns the node of FRAME under PARENT. Creates it if needed; returns 0 if there are already ROOM
 * nodes. At most half of the slots are ever used, so the search for an empty slot is short. */
static uint32_t child(struct heap_table *t, uint32_t parent, uint64_t frame, uint64_t hash,
                      uint32_t room)
{
    uint32_t made = 0;
    for (uint32_t at = node_slot(hash);; at = (at + 1) % SLOTS) {
        uint16_t node = HEAP_LOAD_ACQUIRE(slots[at]);
        if (node == 0) {
            if (made == 0 && (made = make_node(t, parent, frame, room)) == 0)
                return 0;
            if (atomic_compare_exchange_strong(&slots[at], &node, (uint16_t)made))
                return made;
        }
        if (t->nodes[node].parent == parent && t->nodes[node].frame == frame)
            return node;
    }
}

static uint32_t site_of(struct heap_table *t, uint32_t node)
{
    uint32_t site = HEAP_LOAD_ACQUIRE(t->nodes[node].site), made;
    if (site != 0)
        return site;
    if (!heap_take(&sites_taken, 1, HEAP_SITES, &made)) {
        heap_drop(HEAP_DROP_SITES);
        return 0;
    }
    __atomic_store_n(&t->sites[made].node, node, __ATOMIC_SEQ_CST);
    count_sites(t);
    return atomic_compare_exchange_strong(&t->nodes[node].site, &site, made) ? made : site;
}

/* A node of the tree, with the hash of its frame and all callers. */
struct path {
    uint32_t node;
    uint64_t hash;
};

/* Follows FRAMES through the tree from *AT, adding nodes while there is room. Advances *AT and
 * returns the number of frames that were followed. */
static size_t follow(struct heap_table *t, struct path *at, const uint64_t *frames, size_t n,
                     uint32_t room)
{
    size_t i = 0;
    fetch_slots(at->hash, frames, n);
    fetch_nodes(t, at->hash, frames, n);
    for (; i < n; i++) {
        uint64_t hash = path_hash(at->hash, word_of(frames[i]));
        uint32_t next = child(t, at->node, word_of(frames[i]), hash, room);
        if (next == 0)
            break;
        *at = (struct path){next, hash};
    }
    return i;
}

/* For a stack that must be shortened: returns the index of the first frame to keep. The innermost
 * frames are kept, because they identify the place of the allocation. */
static size_t inner_part(const uint64_t *frames, size_t n)
{
    size_t at = n, seen = 0;
    while (at > 0 && seen < PYTHON_KEPT)
        seen += (frames[--at] & HEAP_FRAME_PYTHON) != 0;
    if (seen == 0 && n > NATIVE_KEPT)
        return n - NATIVE_KEPT;
    return at;
}

uint32_t stacks_site(const uint64_t *frames, size_t n)
{
    struct heap_table *t = heap_process.table;
    struct path root = {0};
    if (!t)
        return 0;
    /* The frame that stands for a GPU is never dropped, because it identifies the device. */
    if (n > 0 && heap_frame_is_gpu(frames[0])) {
        if (follow(t, &root, frames, 1, HEAP_NODES) == 0) {
            heap_drop(HEAP_DROP_NODES);
            return 0;
        }
        frames++;
        n--;
    }
    struct path at = root;
    if (follow(t, &at, frames, n, WHOLE_NODES) < n) {
        size_t from = inner_part(frames, n);
        at = root;
        if (follow(t, &at, frames + from, n - from, HEAP_NODES) < n)
            heap_drop(HEAP_DROP_NODES);
    }
    return at.node ? site_of(t, at.node) : 0;
}

static uint64_t round_count(double x)
{
    return (uint64_t)(x + 0.5);
}

static struct heap_site *site_at(uint32_t site)
{
    struct heap_table *t = heap_process.table;
    return t ? &t->sites[site < HEAP_SITES ? site : 0] : NULL;
}

void stacks_allocated(uint32_t site, uint64_t size, double probability)
{
    struct heap_site *s = site_at(site);
    if (!s)
        return;
    HEAP_ADD(s->samples, 1);
    HEAP_ADD(s->allocated_bytes, round_count((double)size / probability));
    HEAP_ADD(s->allocated_objects_x16, round_count(16 / probability));
}

void stacks_freed(uint32_t site, uint64_t size, double probability)
{
    struct heap_site *s = site_at(site);
    if (s)
        HEAP_ADD(s->freed_bytes, round_count((double)size / probability));
}

void stacks_reset(void)
{
    struct heap_table *t = heap_process.table;
    heap_zero(slots, sizeof slots);
    atomic_store(&nodes_taken, 1);
    atomic_store(&sites_taken, 1);
    if (t) {
        count_nodes(t);
        count_sites(t);
    }
}
