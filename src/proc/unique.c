/* Schedules the measurement of unique memory: selects the process to measure next, limits the
 * duration of each slice, and pauses between slices. */
#include "proc/unique.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "proc/node.h"
#include "proc/pagemap.h"

enum { UNIQUE_MOVED_BYTES = 1 << 20, UNIQUE_HURRY_PERMYRIAD = 2500 };

/* Arguments and result of a slice in the helper thread. While the helper is busy, only the helper
 * uses the struct. */
struct slice {
    struct pagemap_scan scan;
    struct pagemap_pace pace;
    /* the slice ends at until_ns, or after a call that takes longer than longest_ns */
    uint64_t until_ns, longest_ns;
    int result; /* result of the last pagemap_step */
};

struct proc_unique {
    struct proc_tree *tree;
    struct proc_unique_options opt;
    struct tree_node *node; /* the process being measured, or NULL */
    uint64_t begun_ns;      /* time at which the measurement of NODE began */
    struct slice slice;
    bool is_away; /* the helper is still waiting for a lock of the process */
    /* slot of the process measured last; the next process is the one after it in order of birth */
    uint32_t last_slot;
    uint64_t stale_due_ns;           /* time at which to check for stale readings again */
    uint64_t resume_ns;              /* end of the pause after the last slice */
    uint64_t slice_ns, slice_cpu_ns; /* start time and CPU cost of the last slice */
    bool is_hurried;
    struct proc_unique_cost cost;
};

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
    return value != 0 ? value : fallback;
}

int proc_unique_new(struct proc_tree *tree, const struct proc_unique_options *options,
                    struct proc_unique **ret)
{
    static const struct proc_unique_options none;
    const struct proc_unique_options *o = options ? options : &none;
    if (o->cpu_permyriad > 10000)
        return -EINVAL;
    struct proc_unique *u = calloc(1, sizeof *u);
    if (!u)
        return -ENOMEM;
    u->tree = tree;
    u->opt = (struct proc_unique_options){
        .slice_ns = or_default(o->slice_ns, NS_PER_MS / 2),
        .cpu_permyriad = (uint32_t)or_default(o->cpu_permyriad, 100),
        .period_ns = or_default(o->period_ns, 10 * NS_PER_S),
        .stall_budget_ns = or_default(o->stall_budget_ns, 5 * NS_PER_MS),
        .is_launched = o->is_launched,
    };
    pagemap_pace_init(&u->slice.pace, u->opt.stall_budget_ns, o->no_pagemap_scan);
    u->slice.scan.maps_fd = u->slice.scan.pagemap_fd = -1;
    u->last_slot = UINT32_MAX;
    *ret = u;
    return 0;
}

void proc_unique_free(struct proc_unique *u)
{
    if (!u || (u->is_away && proc_helper_keeps(u->tree->helper, u)))
        return;
    pagemap_end(&u->slice.scan);
    free(u);
}

static void stop_scan(struct proc_unique *u)
{
    if (!u->is_away)
        pagemap_end(&u->slice.scan);
    u->node = NULL;
}

void proc_unique_forget(struct proc_unique *u, const struct proc_node *node)
{
    if (!u->node || &u->node->pub != node)
        return;
    stop_scan(u);
    u->cost.scans_given_up++;
}

/* True if the resident memory of the process has changed by more than 5 % since its pages were last
 * counted. The old count is then inaccurate, so the process is measured sooner. */
static bool has_moved(const struct tree_node *n)
{
    uint64_t rss = n->pub.sample.v[SAMPLE_RSS], then = n->unique_rss_bytes;
    uint64_t moved = rss > then ? rss - then : then - rss;
    return n->unique_done_ns != 0 && n->unique_failures == 0 && moved > then / 20 &&
           moved > UNIQUE_MOVED_BYTES;
}

/* True if N may be a vfork child that has not called exec yet. The pages of such a child would be
 * counted twice, for N and for its parent. */
static bool may_be_parents_memory(const struct proc_tree *tree, const struct tree_node *n)
{
    enum { SAME_VM = 1 }; /* KCMP_VM; kcmp returns 0 if both processes have the same memory */
    const struct tree_node *parent = tree_find(tree, n->pub.info.ppid);
    if (!parent || parent->start_stack != n->start_stack)
        return false;
    return syscall(SYS_kcmp, parent->pub.info.id.pid, n->pub.info.id.pid, SAME_VM, 0, 0) <= 0;
}

/* Returns the time at which N is due to be measured. New processes wait briefly, because many are
 * short-lived, and because a vfork child still uses its parent's pages. */
static uint64_t unique_due_at(const struct proc_unique *u, const struct tree_node *n)
{
    if (n->unique_due_ns != 0 && !has_moved(n))
        return n->unique_due_ns;
    if (n->unique_due_ns != 0)
        return n->unique_done_ns + (u->is_hurried ? 0 : u->opt.period_ns / 5);
    if (u->is_hurried && !may_be_parents_memory(u->tree, n))
        return n->pub.born_ns;
    uint64_t wait = u->opt.period_ns / 10;
    return n->pub.born_ns + (wait < NS_PER_S ? wait : NS_PER_S);
}

/* Returns the index of the first node whose slot is at least SLOT, or 0 if there is none. Slots
 * increase along the list. */
static size_t first_from(const struct proc_tree *tree, uint32_t slot)
{
    size_t at = ARRAY_SEARCH(i, tree->count, tree->nodes[i]->pub.slot < slot);
    return at == tree->count ? 0 : at;
}

static struct tree_node *next_due(struct proc_unique *u, uint64_t now_ns, uint64_t *ret_earliest)
{
    const struct proc_tree *tree = u->tree;
    /* continue after the process measured last */
    size_t first = first_from(tree, u->last_slot + 1);
    /* search again at this time at the latest, because a change in memory may make a process due
     * sooner */
    *ret_earliest = now_ns + u->opt.period_ns / 10;
    for (size_t i = 0; i < tree->count; i++) {
        struct tree_node *n = tree->nodes[(first + i) % tree->count];
        uint64_t due = unique_due_at(u, n);
        if (due <= now_ns)
            return n;
        if (due < *ret_earliest)
            *ret_earliest = due;
    }
    return NULL;
}

/* Schedules another attempt after a failure. The wait doubles after each failure, up to 32 periods,
 * because permission rarely changes. */
static void give_up(struct proc_unique *u, struct tree_node *n, uint64_t now_ns)
{
    u->cost.scans_given_up++;
    n->unique_due_ns = now_ns + (u->opt.period_ns << n->unique_failures);
    if (n->unique_failures < 5)
        n->unique_failures++;
}

static void mark_stale(struct tree_node *n)
{
    n->pub.sample.stale |= 1u << SAMPLE_UNIQUE;
}

static void start_scan(struct proc_unique *u, struct tree_node *n, uint64_t now_ns)
{
    const struct proc_root *root = u->tree->root;
    u->last_slot = n->pub.slot;
    int maps = node_open(root, n, "maps", O_RDONLY);
    int pagemap = maps < 0 ? maps : node_open(root, n, "pagemap", O_RDONLY);
    if (pagemap < 0) {
        cleanup_close(&maps);
        mark_stale(n);
        give_up(u, n, now_ns);
        return;
    }
    uint64_t rss = sample_has(&n->pub.sample, SAMPLE_RSS) ? n->pub.sample.v[SAMPLE_RSS] : 0;
    pagemap_begin(&u->slice.scan, maps, pagemap, root->page_bytes, rss / root->page_bytes,
                  u->opt.is_launched && u->tree->count == 1);
    u->node = n;
    u->begun_ns = now_ns;
}

static void put_kind(struct proc_unique *u, enum sample_process_field field, enum pagemap_kind kind)
{
    sample_put(&u->node->pub.sample, field,
               pages_to_bytes(u->tree->root, u->slice.scan.kind_pages[kind]));
}

static void finish_scan(struct proc_unique *u, uint64_t now_ns)
{
    struct tree_node *n = u->node;
    uint64_t bytes = pages_to_bytes(u->tree->root, u->slice.scan.unique_pages);
    sample_put(&n->pub.sample, SAMPLE_UNIQUE, bytes);
    n->unique_file_bytes = pages_to_bytes(u->tree->root, u->slice.scan.unique_file_pages);
    if (!u->slice.pace.no_seek)
        sample_put(&n->pub.sample, SAMPLE_HUGE, u->slice.scan.huge_bytes);
    put_kind(u, SAMPLE_HEAP, PAGEMAP_HEAP);
    put_kind(u, SAMPLE_STACK, PAGEMAP_STACK);
    n->unique_begun_ns = u->begun_ns;
    n->unique_done_ns = now_ns;
    n->unique_rss_bytes = pages_to_bytes(u->tree->root, u->slice.scan.rss_pages);
    n->unique_due_ns = now_ns + u->opt.period_ns;
    n->unique_failures = 0;
    u->cost.scans_done++;
    stop_scan(u);
}

/* Stops the scan if the tree has freed the node without an event. */
static void check_node(struct proc_unique *u)
{
    if (!u->node)
        return;
    size_t i = first_from(u->tree, u->last_slot);
    if (u->tree->count > 0 && u->tree->nodes[i]->pub.slot == u->last_slot)
        return;
    stop_scan(u);
    u->cost.scans_given_up++;
}

static void find_stale(struct proc_unique *u, uint64_t now_ns)
{
    if (now_ns < u->stale_due_ns)
        return;
    u->stale_due_ns = now_ns + u->opt.period_ns / 4;
    for (size_t i = 0; i < u->tree->count; i++) {
        struct tree_node *n = u->tree->nodes[i];
        uint64_t since = n->unique_done_ns != 0 ? n->unique_done_ns : n->pub.born_ns;
        if (now_ns > since + 2 * u->opt.period_ns)
            mark_stale(n);
    }
}

static void run_slice(void *arg)
{
    struct slice *s = arg;
    do
        s->result = pagemap_step(&s->scan, &s->pace);
    while (s->result == PAGEMAP_MORE && clock_mono_ns() < s->until_ns &&
           s->pace.longest_call_ns <= s->longest_ns);
}

static void take_result(struct proc_unique *u, uint64_t now_ns)
{
    if (u->slice.result == PAGEMAP_DONE)
        finish_scan(u, now_ns);
    else if (u->slice.result < 0) {
        /* after -ESRCH, the next walk finds out whether the process died or called exec */
        if (u->slice.result != -ESRCH)
            mark_stale(u->node);
        give_up(u, u->node, now_ns);
        stop_scan(u);
    }
}

/* Measures until the slice ends, or until no process is due. In the second case, returns true and
 * sets *RET_EARLIEST to the time at which the next process may be due. */
static bool unique_work(struct proc_unique *u, uint64_t began_ns, uint64_t now_ns,
                        uint64_t *ret_earliest, uint64_t *ret_cpu_ns)
{
    struct slice *s = &u->slice;
    s->until_ns = began_ns + u->opt.slice_ns;
    s->longest_ns = s->pace.longest_call_ns > u->opt.stall_budget_ns ? s->pace.longest_call_ns
                                                                     : u->opt.stall_budget_ns;
    do {
        if (!u->node) {
            struct tree_node *n = next_due(u, now_ns, ret_earliest);
            if (!n)
                return true;
            start_scan(u, n, now_ns);
            continue;
        }
        uint64_t cpu_ns;
        int r = proc_helper_call(u->tree->helper, run_slice, s, &cpu_ns);
        *ret_cpu_ns += cpu_ns;
        u->is_away = r == -EINPROGRESS;
        if (r < 0)
            return false;
        take_result(u, now_ns);
        if (s->pace.longest_call_ns > s->longest_ns)
            /* a system call took long because the machine is busy, so the count continues after the
             * pause */
            break;
    } while (clock_mono_ns() < s->until_ns);
    return false;
}

/* Collects the result of a slice that the helper had not completed in time. Returns false if the
 * helper is still busy. */
static bool resume_after_helper(struct proc_unique *u, uint64_t now_ns)
{
    if (proc_helper_is_busy(u->tree->helper))
        return false;
    if (!u->is_away)
        return true;
    u->is_away = false;
    if (!u->node)
        pagemap_end(&u->slice.scan);
    else
        take_result(u, now_ns);
    return true;
}

/* Returns the length of the pause after a slice. */
static uint64_t pause_ns(const struct proc_unique *u)
{
    uint32_t share = u->opt.cpu_permyriad;
    if (u->is_hurried && share < UNIQUE_HURRY_PERMYRIAD)
        share = UNIQUE_HURRY_PERMYRIAD;
    return u->slice_cpu_ns * 10000 / share;
}

void proc_unique_hurry(struct proc_unique *u, bool is_hurried)
{
    u->is_hurried = is_hurried;
    u->resume_ns = u->slice_ns + pause_ns(u);
}

uint64_t proc_unique_slice(struct proc_unique *u, uint64_t now_ns)
{
    enum { AWAY_MS = 100 }; /* interval between two checks of a busy helper */
    check_node(u);
    find_stale(u, now_ns);
    /* Pauses between slices limit ebb's share of the CPU. */
    if (now_ns < u->resume_ns)
        return u->resume_ns;
    if (!resume_after_helper(u, now_ns))
        return u->resume_ns = now_ns + AWAY_MS * NS_PER_MS;
    uint64_t began_ns = clock_mono_ns(), cpu_ns = clock_thread_cpu_ns(), earliest_ns = 0;
    uint64_t helper_ns = 0;
    bool idle = unique_work(u, began_ns, now_ns, &earliest_ns, &helper_ns);
    cpu_ns = clock_thread_cpu_ns() - cpu_ns + (u->tree->helper ? helper_ns : 0);
    u->cost.cpu_ns += cpu_ns;
    u->cost.slices++;
    u->slice_ns = now_ns;
    u->slice_cpu_ns = cpu_ns;
    u->resume_ns = now_ns + pause_ns(u);
    return idle && earliest_ns > u->resume_ns ? earliest_ns : u->resume_ns;
}

void proc_unique_cost(const struct proc_unique *u, struct proc_unique_cost *ret)
{
    *ret = u->cost;
    ret->calls = u->slice.pace.calls;
    ret->longest_call_ns = u->slice.pace.longest_call_ns;
}
