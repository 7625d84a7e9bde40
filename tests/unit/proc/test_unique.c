/* Tests the counting of unique memory through pagemap: the results equal those of smaps, and pages
 * are counted in small slices that stay within the CPU share. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "kit.h"
#include "proc/unique.h"

#define MIB (UINT64_C(1) << 20)
static const uint32_t UNIQUE_BIT = 1u << SAMPLE_UNIQUE;

struct count {
    struct proc_root root;
    struct proc_tree *tree;
    struct proc_unique *unique;
    struct notebook seen;
    uint64_t now_ns; /* Simulated time, so that the tests do not wait. */
};

static void on_event(void *user, const struct proc_event *event)
{
    struct count *c = user;
    notebook_write(&c->seen, event);
    if (c->unique != NULL && (event->kind == PROCESS_DIED || event->kind == PROCESS_EXECED))
        proc_unique_forget(c->unique, event->node);
}

static void count_begin(struct count *c, pid_t pid, const struct proc_unique_options *options)
{
    memset(c, 0, sizeof(*c));
    c->now_ns = 1000 * NS_PER_S;
    assert_int_equal(proc_root_open("/proc", NULL, &c->root, NULL), 0);
    assert_int_equal(proc_tree_new(&c->root, on_event, c, &c->tree), 0);
    assert_int_equal(proc_unique_new(c->tree, options, &c->unique), 0);
    assert_int_equal(proc_tree_add(c->tree, pid, c->now_ns, NULL), 0);
}

static void count_end(struct count *c)
{
    proc_unique_free(c->unique);
    proc_tree_free(c->tree);
    proc_root_close(&c->root);
}

static struct proc_unique_cost cost_of(const struct count *c)
{
    struct proc_unique_cost cost;
    proc_unique_cost(c->unique, &cost);
    return cost;
}

static void slice(struct count *c)
{
    uint64_t next = proc_unique_slice(c->unique, c->now_ns);
    assert_true(next > c->now_ns);
    c->now_ns = next;
}

static void count_all(struct count *c, uint64_t scans)
{
    for (int i = 0; i < 100000 && cost_of(c).scans_done < scans; i++)
        slice(c);
    assert_int_equal(cost_of(c).scans_done, scans);
}

static uint64_t unique_of(const struct count *c, size_t i)
{
    const struct proc_node *n = proc_tree_at(c->tree, i);
    assert_true(sample_has(&n->sample, SAMPLE_UNIQUE));
    return n->sample.v[SAMPLE_UNIQUE];
}

/* Returns the value in bytes of the smaps_rollup line that begins with KEY. */
static uint64_t smaps_of(pid_t pid, const char *key)
{
    char path[64], line[256];
    uint64_t bytes = 0;
    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            bytes = strtoull(line + strlen(key), NULL, 10) * 1024;
    fclose(f);
    return bytes;
}

static uint64_t private_of(pid_t pid)
{
    return smaps_of(pid, "Private_Clean:") + smaps_of(pid, "Private_Dirty:");
}

static char *map_bytes(size_t bytes, int flags, int fd)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

static char *map_private(size_t bytes)
{
    return map_bytes(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
}

/* Returns 0 if UNIQUE is between the values of smaps before and after the count; otherwise returns
 * its distance from the nearer value. The true value changes during the count, because a write can
 * turn a shared page into a copy. */
static uint64_t distance(uint64_t unique, uint64_t before, uint64_t after)
{
    uint64_t low = before < after ? before : after, high = before < after ? after : before;
    return unique < low ? low - unique : unique > high ? unique - high : 0;
}

enum { SLACK = 16384, ATTEMPTS = 100 };

/* Counts each process of the tree again and returns the largest difference from smaps. */
static uint64_t count_beside_smaps(struct count *c)
{
    size_t n = proc_tree_count(c->tree);
    uint64_t before[2], worst = 0;
    assert_in_range(n, 1, 2);
    for (size_t i = 0; i < n; i++)
        before[i] = private_of(proc_tree_at(c->tree, i)->info.id.pid);
    count_all(c, cost_of(c).scans_done + n);
    for (size_t i = 0; i < n; i++) {
        uint64_t after = private_of(proc_tree_at(c->tree, i)->info.id.pid);
        uint64_t off = distance(unique_of(c, i), before[i], after);
        worst = off > worst ? off : worst;
    }
    return worst;
}

/* Other programs that map the same files may start and exit during a count, so one correct count is
 * enough. */
static void expect_tree_as_smaps(struct count *c)
{
    uint64_t off = UINT64_MAX;
    for (int i = 0; i < ATTEMPTS && off > SLACK; i++)
        off = count_beside_smaps(c);
    assert_in_range(off, 0, SLACK);
}

static void expect_as_smaps_with(kid_fn *fn, uint64_t at_least,
                                 const struct proc_unique_options *options)
{
    struct count c;
    pid_t pid = kid_start(fn, NULL);
    count_begin(&c, pid, options);
    expect_tree_as_smaps(&c);
    assert_true(unique_of(&c, 0) >= at_least);
    kid_end(pid);
    count_end(&c);
}

static void expect_as_smaps(kid_fn *fn, uint64_t at_least)
{
    expect_as_smaps_with(fn, at_least, NULL);
}

static void hold_private(void *arg)
{
    (void)arg;
    memset(map_private(24 * MIB), 1, 24 * MIB);
}

static void hold_all_kinds(void *arg)
{
    (void)arg;
    memset(map_private(4 * MIB), 1, 4 * MIB);
    /* Shared memory and file pages that no other process has mapped are unique as well. */
    memset(map_bytes(3 * MIB, MAP_SHARED | MAP_ANONYMOUS, -1), 1, 3 * MIB);
    int fd = memfd_create("test", 0);
    if (fd < 0 || ftruncate(fd, 2 * (off_t)MIB) < 0)
        abort();
    memset(map_bytes(2 * MIB, MAP_SHARED, fd), 1, 2 * MIB);
    /* In this private mapping of the same file, half of the pages are only read (shared) and half
     * are written (copied). */
    char *p = map_bytes(2 * MIB, MAP_PRIVATE, fd);
    volatile char sink = 0;
    for (size_t i = 0; i < MIB; i += 4096)
        sink = p[i];
    (void)sink;
    memset(p + MIB, 2, MIB);
    /* A second mapping of the executable. */
    int exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    char *code = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE, exe, 0);
    if (code == MAP_FAILED)
        abort();
    sink = code[0];
}

static void hold_huge_pages(void *arg)
{
    (void)arg;
    char *p = map_private(32 * MIB);
    madvise(p, 32 * MIB, MADV_HUGEPAGE);
    memset(p, 1, 32 * MIB);
}

static void hold_behind_no_rights(void *arg)
{
    (void)arg;
    char *p = map_private(64 * MIB);
    memset(p + 32 * MIB, 1, 4 * MIB);
    if (mprotect(p, 64 * MIB, PROT_NONE) < 0)
        abort();
}

/* Alternates the access rights of pages, so that each page is a separate mapping. */
static void hold_many_mappings(void *arg)
{
    (void)arg;
    enum { PAGES = 20000 };
    char *p = map_private(PAGES * (size_t)4096);
    for (size_t i = 0; i < PAGES; i++)
        p[i * 4096] = 1;
    for (size_t i = 0; i < PAGES; i += 2)
        if (mprotect(p + i * 4096, 4096, PROT_READ) < 0)
            abort();
}

/* Touches a few pages every 3 MiB, so that present pages alternate with holes. */
static void hold_scattered(void *arg)
{
    (void)arg;
    char *p = map_private(1024 * MIB);
    /* With huge pages, most of the region would become present. */
    madvise(p, 1024 * MIB, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < 1024 * MIB; i += 3 * MIB)
        memset(p + i, 1, 4096 * (1 + i / MIB % 7));
}

static void counted_unique_memory_equals_smaps_for_private_memory(void **state)
{
    (void)state;
    expect_as_smaps(hold_private, 24 * MIB);
}

static void counted_unique_memory_equals_smaps_for_shared_and_file_pages(void **state)
{
    (void)state;
    expect_as_smaps(hold_all_kinds, 8 * MIB);
}

static void counted_unique_memory_equals_smaps_for_huge_pages(void **state)
{
    (void)state;
    expect_as_smaps(hold_huge_pages, 32 * MIB);
}

/* One huge page is full, one has a single touched byte, and the shared huge pages must not be
 * counted. */
static void hold_a_few_huge_pages(void *arg)
{
    (void)arg;
    char *p = map_private(32 * MIB);
    madvise(p, 32 * MIB, MADV_HUGEPAGE);
    memset(p + 8 * MIB, 1, 4 * MIB);
    p[20 * MIB] = 1;
    memset(map_private(8 * MIB), 1, 8 * MIB);
    char *shared = map_bytes(8 * MIB, MAP_SHARED | MAP_ANONYMOUS, -1);
    madvise(shared, 8 * MIB, MADV_HUGEPAGE);
    memset(shared, 1, 8 * MIB);
}

/* The kernel may merge small pages into huge ones, or split huge ones, at any time. */
static uint64_t count_huge_beside_smaps(struct count *c, pid_t pid)
{
    uint64_t before = smaps_of(pid, "AnonHugePages:");
    count_all(c, cost_of(c).scans_done + 1);
    const struct sample *s = &proc_tree_at(c->tree, 0)->sample;
    return distance(s->v[SAMPLE_HUGE], before, smaps_of(pid, "AnonHugePages:"));
}

static void count_of_anonymous_huge_pages_equals_smaps(void **state)
{
    (void)state;
    struct count c;
    pid_t pid = kid_start(hold_a_few_huge_pages, NULL);
    count_begin(&c, pid, NULL);
    uint64_t off = count_huge_beside_smaps(&c, pid);
    if (!sample_has(&proc_tree_at(c.tree, 0)->sample, SAMPLE_HUGE)) {
        print_message("this kernel has no PAGEMAP_SCAN: huge pages are not counted\n");
    } else {
        for (int i = 0; i < ATTEMPTS && off > 0; i++)
            off = count_huge_beside_smaps(&c, pid);
        assert_int_equal(off, 0);
    }
    kid_end(pid);
    count_end(&c);
}

static void huge_page_memory_is_unknown_without_pagemap_scan(void **state)
{
    (void)state;
    struct count c;
    const struct proc_unique_options old = {.no_pagemap_scan = true};
    pid_t pid = kid_start(hold_a_few_huge_pages, NULL);
    count_begin(&c, pid, &old);
    /* Under a sanitizer the count may be given up, because the address space has huge holes. */
    for (int i = 0; i < 100000 && cost_of(&c).scans_done + cost_of(&c).scans_given_up == 0; i++)
        slice(&c);
    assert_false(sample_has(&proc_tree_at(c.tree, 0)->sample, SAMPLE_HUGE));
    kid_end(pid);
    count_end(&c);
}

/* Runs after exec, so that no other process shares its anonymous memory. */
static int hold_and_tell(int fd)
{
    hold_all_kinds(NULL);
    hold_a_few_huge_pages(NULL);
    hold_scattered(NULL);
    hold_many_mappings(NULL);
    char *zeroes = map_private(4 * MIB);
    volatile char sink = 0;
    for (size_t i = 0; i < 4 * MIB; i += 4096)
        sink = zeroes[i]; /* All reads use the kernel's zero page, which belongs to no process. */
    (void)sink;
    if (write(fd, "x", 1) != 1)
        return 1;
    sleep_for_ever();
}

static void exec_holder(void *arg)
{
    char fd[16];
    snprintf(fd, sizeof(fd), "%d", *(int *)arg);
    execl("/proc/self/exe", "test_unique", fd, (char *)NULL);
    _exit(1);
}

static void counted_unique_memory_equals_smaps_for_a_launched_program(void **state)
{
    (void)state;
    struct count c[2];
    int fds[2];
    char byte;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = kid_spawn(exec_holder, &fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    for (int launched = 0; launched < 2; launched++) {
        const struct proc_unique_options o = {.is_launched = launched};
        count_begin(&c[launched], pid, &o);
        expect_tree_as_smaps(&c[launched]);
    }
    const struct sample *read_each = &proc_tree_at(c[0].tree, 0)->sample;
    const struct sample *counted = &proc_tree_at(c[1].tree, 0)->sample;
    for (int i = 0; i < ATTEMPTS && counted->v[SAMPLE_HUGE] != read_each->v[SAMPLE_HUGE]; i++)
        for (int launched = 0; launched < 2; launched++)
            count_all(&c[launched], cost_of(&c[launched]).scans_done + 1);
    assert_int_equal(counted->v[SAMPLE_HUGE], read_each->v[SAMPLE_HUGE]);
    assert_int_equal(counted->v[SAMPLE_STACK], read_each->v[SAMPLE_STACK]);
    kid_end(pid);
    count_end(&c[0]);
    count_end(&c[1]);
    close(fds[0]);
    close(fds[1]);
}

static void present_pages_of_inaccessible_mappings_are_counted(void **state)
{
    (void)state;
    expect_as_smaps(hold_behind_no_rights, 4 * MIB);
}

static void counted_unique_memory_equals_smaps_for_20000_mappings(void **state)
{
    (void)state;
    expect_as_smaps(hold_many_mappings, 20000 * UINT64_C(4096));
}

static void counted_unique_memory_equals_smaps_for_scattered_pages(void **state)
{
    (void)state;
    expect_as_smaps(hold_scattered, 4 * MIB);
}

static void write_half(void *arg)
{
    char *p = arg;
    memset(p, 2, 8 * MIB);
}

static void fork_and_write_half(void *arg)
{
    (void)arg;
    char *p = map_private(16 * MIB);
    madvise(p, 16 * MIB, MADV_NOHUGEPAGE);
    memset(p, 1, 16 * MIB);
    kid_start(write_half, p);
}

static void pages_shared_after_a_fork_are_not_unique(void **state)
{
    (void)state;
    struct count c;
    pid_t pid = kid_start(fork_and_write_half, NULL);
    count_begin(&c, pid, NULL);
    assert_int_equal(proc_tree_count(c.tree), 2);
    expect_tree_as_smaps(&c);
    proc_tree_tick(c.tree, c.now_ns);
    for (size_t i = 0; i < 2; i++)
        assert_true(unique_of(&c, i) >= 8 * MIB && unique_of(&c, i) < 16 * MIB);
    /* The total consists of 16 MiB of the parent, 8 MiB of copied pages, and a small amount of
     * other memory. */
    struct proc_tree_memory m;
    proc_tree_memory(c.tree, &m);
    assert_true(m.low_bytes >= 24 * MIB && m.low_bytes < m.rss_sum_bytes);
    kid_end(pid);
    count_end(&c);
}

static void hold_8_mib_more(void *arg)
{
    (void)arg;
    memset(map_private(8 * MIB), 3, 8 * MIB);
}

static void fork_and_grow(void *arg)
{
    (void)arg;
    memset(map_private(32 * MIB), 1, 32 * MIB);
    kid_start(hold_8_mib_more, NULL);
}

static void unmeasured_memory_of_a_child_is_estimated_from_rss_growth(void **state)
{
    (void)state;
    struct count c;
    pid_t pid = kid_start(fork_and_grow, NULL);
    count_begin(&c, pid, NULL);
    assert_int_equal(proc_tree_count(c.tree), 2);
    proc_tree_tick(c.tree, c.now_ns);
    uint64_t first = proc_node_unmeasured(c.tree, proc_tree_at(c.tree, 0));
    uint64_t child = proc_node_unmeasured(c.tree, proc_tree_at(c.tree, 1));
    assert_true(first >= 31 * MIB); /* The kernel's count of resident memory is only approximate. */
    assert_in_range(child, 7 * MIB, 24 * MIB);
    count_all(&c, 2);
    for (size_t i = 0; i < 2; i++)
        assert_true(proc_node_unmeasured(c.tree, proc_tree_at(c.tree, i)) < MIB);
    kid_end(pid);
    count_end(&c);
}

static void estimate_for_unmeasured_child_includes_copied_pages(void **state)
{
    (void)state;
    struct count c;
    pid_t pid = kid_start(fork_and_write_half, NULL);
    count_begin(&c, pid, NULL);
    assert_int_equal(proc_tree_count(c.tree), 2);
    assert_int_equal(proc_tree_walk(c.tree, c.now_ns), 0);
    proc_tree_tick(c.tree, c.now_ns);
    uint64_t child = proc_node_unmeasured(c.tree, proc_tree_at(c.tree, 1));
    assert_in_range(child, 8 * MIB, 14 * MIB);
    kid_end(pid);
    count_end(&c);
}

static void fork_once(int signo)
{
    (void)signo;
    if (fork_tied() == 0)
        sleep_for_ever();
}

static void fork_when_told(void *arg)
{
    (void)arg;
    char *p = map_private(16 * MIB);
    memset(p, 1, 16 * MIB);
    signal(SIGUSR1, fork_once);
}

static void child_forked_after_counting_unique_memory_is_not_counted_twice(void **state)
{
    (void)state;
    struct count c;
    struct proc_tree_memory alone, with_child;
    pid_t pid = kid_start(fork_when_told, NULL);
    count_begin(&c, pid, NULL);
    count_all(&c, 1);
    proc_tree_memory(c.tree, &alone);
    assert_true(unique_of(&c, 0) >= 16 * MIB);
    kill(pid, SIGUSR1);
    EVENTUALLY(proc_tree_count(c.tree) == 2,
               assert_int_equal(proc_tree_walk(c.tree, c.now_ns += NS_PER_MS), 0));
    proc_tree_memory(c.tree, &with_child);
    /* The kernel counts resident memory per CPU, so the sum is only approximate. */
    assert_true(with_child.rss_sum_bytes >= alone.rss_sum_bytes + 15 * MIB);
    assert_true(with_child.low_bytes < alone.low_bytes + 8 * MIB);
    kid_end(pid);
    count_end(&c);
}

/* A count takes several slices. A process is forked between the first and the last slice, so that
 * pages counted in the first slice become shared. */
static void child_forked_while_counting_unique_memory_is_not_counted_twice(void **state)
{
    (void)state;
    struct count c;
    struct proc_tree_memory alone, with_child;
    pid_t pid = kid_start(fork_when_told, NULL);
    count_begin(&c, pid, &(struct proc_unique_options){.slice_ns = 1});
    count_all(&c, 1);
    uint64_t slices = cost_of(&c).slices;
    c.now_ns += 10 * NS_PER_S;
    count_all(&c, 2);
    slices = cost_of(&c).slices - slices;
    proc_tree_memory(c.tree, &alone);
    c.now_ns += 10 * NS_PER_S;
    for (uint64_t i = 0; i < slices * 3 / 4; i++)
        slice(&c);
    kill(pid, SIGUSR1);
    EVENTUALLY(proc_tree_count(c.tree) == 2,
               assert_int_equal(proc_tree_walk(c.tree, c.now_ns += NS_PER_MS), 0));
    count_all(&c, 3);
    proc_tree_tick(c.tree, c.now_ns);
    proc_tree_memory(c.tree, &with_child);
    assert_true(with_child.rss_sum_bytes >= alone.rss_sum_bytes + 15 * MIB);
    assert_true(with_child.low_bytes < alone.low_bytes + 8 * MIB);
    kid_end(pid);
    count_end(&c);
}

static void wait_for_state(pid_t pid, char wanted)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (int i = 0; i < 60000; i++) {
        ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof text - 1);
        const char *end = len > 0 ? memrchr(text, ')', (size_t)len) : NULL;
        if (end && end[2] == wanted)
            return;
        usleep(1000);
    }
    fail_msg("%d did not reach state %c: %s", (int)pid, wanted, text);
}

/* On a busy machine an exit takes some time, during which the process has no readable memory but is
 * not dead. */
static void forked_child_that_exits_unmeasured_is_not_counted_twice(void **state)
{
    (void)state;
    struct count c;
    struct proc_tree_memory with_child, ending;
    pid_t pid = kid_start(fork_when_told, NULL);
    count_begin(&c, pid, NULL);
    kill(pid, SIGUSR1);
    EVENTUALLY(proc_tree_count(c.tree) == 2,
               assert_int_equal(proc_tree_walk(c.tree, c.now_ns += NS_PER_MS), 0));
    proc_tree_tick(c.tree, c.now_ns);
    proc_tree_memory(c.tree, &with_child);
    pid_t child = proc_tree_at(c.tree, 1)->info.id.pid;
    kill(child, SIGKILL);
    wait_for_state(child, 'Z');
    proc_tree_clear_read(c.tree);
    for (int i = 0; i < 100000 && !sample_has(&proc_tree_at(c.tree, 0)->sample, SAMPLE_UNIQUE); i++)
        slice(&c);
    assert_true(unique_of(&c, 0) >= 16 * MIB);
    proc_tree_memory(c.tree, &ending);
    assert_true(ending.rss_sum_bytes >=
                32 * MIB); /* The sum of RSS still includes the exiting process. */
    assert_true(ending.low_bytes < with_child.low_bytes + 8 * MIB);
    kid_end(pid);
    count_end(&c);
}

/* ---- holes ---- */

static const size_t TIB = (size_t)1 << 40;

static void reserve_a_tebibyte(void *arg)
{
    (void)arg;
    char *p = map_private(TIB);
    for (size_t i = 0; i < 5; i++)
        memset(p + i * (TIB / 5) + 4096 * i, 1, 10 * 4096);
    if (mmap(NULL, TIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) ==
        MAP_FAILED)
        abort();
}

/* PAGEMAP_SCAN exists since Linux 6.7. */
static bool can_skip_holes(const struct count *c)
{
    return cost_of(c).scans_done > 0;
}

static void counting_unique_memory_skips_an_untouched_reservation_of_1_tib(void **state)
{
    (void)state;
    struct count c;
    pid_t pid = kid_start(reserve_a_tebibyte, NULL);
    count_begin(&c, pid, NULL);
    for (int i = 0; i < 10000 && cost_of(&c).scans_done + cost_of(&c).scans_given_up == 0; i++)
        slice(&c);
    /* Reading entries for two TiB would take 65,536 calls of maximum size. */
    assert_true(cost_of(&c).calls < 20000);
    if (can_skip_holes(&c))
        expect_tree_as_smaps(&c);
    else
        assert_true(proc_tree_at(c.tree, 0)->sample.stale & UNIQUE_BIT);
    kid_end(pid);
    count_end(&c);
}

static void counting_unique_memory_without_pagemap_scan_stops_at_a_huge_hole(void **state)
{
    (void)state;
    struct count c;
    const struct proc_unique_options old = {.no_pagemap_scan = true};
    pid_t pid = kid_start(reserve_a_tebibyte, NULL);
    count_begin(&c, pid, &old);
    for (int i = 0; i < 10000 && cost_of(&c).scans_given_up == 0; i++)
        slice(&c);
    assert_int_equal(cost_of(&c).scans_given_up, 1);
    assert_true(cost_of(&c).calls < 2000);
    const struct sample *s = &proc_tree_at(c.tree, 0)->sample;
    assert_true(s->stale & UNIQUE_BIT);
    assert_false(sample_has(s, SAMPLE_UNIQUE));
    kid_end(pid);
    count_end(&c);
}

/* Under AddressSanitizer every process has a shadow mapping of terabytes, most of it untouched. */
static void counted_unique_memory_equals_smaps_without_pagemap_scan(void **state)
{
    (void)state;
    const struct proc_unique_options old = {.no_pagemap_scan = true};
#ifdef __SANITIZE_ADDRESS__
    (void)old;
    expect_as_smaps(hold_all_kinds, 8 * MIB);
#else
    expect_as_smaps_with(hold_all_kinds, 8 * MIB, &old);
#endif
}

/* ---- CPU share and order of counts ---- */

static const struct proc_unique_options one_call_per_slice = {.slice_ns = 1};
/* Allows 100 % of a CPU, so each pause is only as long as the slice before it. With the default of
 * 1 %, a pause could take seconds of simulated time on a busy machine. */
static const struct proc_unique_options eager = {.cpu_permyriad = 10000};

static void counting_unique_memory_pauses_to_stay_within_the_cpu_share(void **state)
{
    (void)state;
    struct count c;
    pid_t pid = kid_start(hold_private, NULL);
    count_begin(&c, pid, &one_call_per_slice);
    for (int i = 0; i < 50; i++) {
        uint64_t cpu = cost_of(&c).cpu_ns, now = c.now_ns;
        uint64_t next = proc_unique_slice(c.unique, now);
        cpu = cost_of(&c).cpu_ns - cpu;
        assert_true(next - now >= cpu * 100);
        /* A call before the pause has ended does nothing. */
        uint64_t slices = cost_of(&c).slices;
        (void)proc_unique_slice(c.unique, now + cpu);
        if (cpu > 0)
            assert_int_equal(cost_of(&c).slices, slices);
        c.now_ns = next;
    }
    kid_end(pid);
    count_end(&c);
}

static void unique_memory_of_each_process_is_counted_once_per_period(void **state)
{
    (void)state;
    struct count c;
    pid_t pid = kid_start(fork_and_write_half, NULL);
    count_begin(&c, pid, &eager);
    count_all(&c, 2);
    uint64_t began = c.now_ns;
    count_all(&c, 4);
    assert_in_range(c.now_ns - began, 5 * NS_PER_S, 25 * NS_PER_S);
    kid_end(pid);
    count_end(&c);
}

static void process_whose_rss_changed_is_measured_sooner(void **state)
{
    (void)state;
    struct count c;
    pid_t pid = kid_start(hold_private, NULL);
    count_begin(&c, pid, &eager);
    struct sample *s = &proc_tree_at(c.tree, 0)->sample;
    count_all(&c, 1);
    uint64_t began = c.now_ns;
    /* Simulates a tick that reports, before the next count, that the process's memory has grown. */
    sample_put(s, SAMPLE_RSS, s->v[SAMPLE_RSS] + 64 * MIB);
    count_all(&c, 2);
    assert_in_range(c.now_ns - began, NS_PER_S, 4 * NS_PER_S);
    began = c.now_ns;
    count_all(&c, 3); /* The memory of the process has not changed since the last count. */
    assert_in_range(c.now_ns - began, 8 * NS_PER_S, 25 * NS_PER_S);
    kid_end(pid);
    count_end(&c);
}

static void counted_unique_memory_is_marked_as_new_in_one_tick_only(void **state)
{
    (void)state;
    struct count c;
    pid_t pid = kid_start(hold_private, NULL);
    count_begin(&c, pid, NULL);
    const struct sample *s = &proc_tree_at(c.tree, 0)->sample;
    count_all(&c, 1);
    proc_tree_tick(c.tree, c.now_ns);
    assert_true(s->read & UNIQUE_BIT);
    proc_tree_clear_read(c.tree);
    proc_tree_tick(c.tree, c.now_ns);
    assert_int_equal(s->read, 1u << SAMPLE_RSS);
    assert_true(s->known & UNIQUE_BIT);
    kid_end(pid);
    count_end(&c);
}

static void unique_memory_becomes_stale_if_counting_takes_too_long(void **state)
{
    (void)state;
    struct count c;
    /* Each pause is a hundred times as long as the preceding call, which may take seconds on a busy
     * machine. */
    const struct proc_unique_options tiny = {.slice_ns = 1, .period_ns = 1000 * NS_PER_S};
    pid_t pid = kid_start(hold_scattered, NULL);
    count_begin(&c, pid, &tiny);
    const struct sample *s = &proc_tree_at(c.tree, 0)->sample;
    c.now_ns += NS_PER_S;
    slice(&c);
    slice(&c);
    assert_int_equal(cost_of(&c).scans_done, 0);
    assert_false(s->stale & UNIQUE_BIT);
    c.now_ns += 3000 * NS_PER_S;
    slice(&c);
    assert_true(s->stale & UNIQUE_BIT);
    count_all(&c, 1);
    assert_false(s->stale & UNIQUE_BIT);
    kid_end(pid);
    count_end(&c);
}

/* ---- exits ---- */

static void counting_unique_memory_stops_when_the_process_exits(void **state)
{
    (void)state;
    struct count c;
    pid_t pid = kid_start(hold_private, NULL);
    count_begin(&c, pid, &one_call_per_slice);
    c.now_ns += NS_PER_S;
    for (int i = 0; i < 5; i++)
        slice(&c);
    kid_end(pid);
    /* A search in the freed address space of an exited process finds no pages. Only the end of the
     * search shows that the process has exited. */
    for (int i = 0; i < 100000 && cost_of(&c).scans_given_up == 0; i++)
        slice(&c);
    assert_int_equal(cost_of(&c).scans_given_up, 1);
    assert_int_equal(cost_of(&c).scans_done, 0);
    proc_tree_tick(c.tree, c.now_ns);
    assert_int_equal(proc_tree_count(c.tree), 0);
    slice(&c);
    count_end(&c);
}

static void counting_unique_memory_stops_if_the_tree_frees_the_process(void **state)
{
    (void)state;
    struct count c;
    pid_t pid = kid_start(hold_private, NULL);
    count_begin(&c, pid, &one_call_per_slice);
    c.now_ns += NS_PER_S;
    for (int i = 0; i < 5; i++)
        slice(&c);
    kid_end(pid);
    struct proc_unique *untold = c.unique;
    /* While c.unique is NULL, the callback does not report the removed process to proc_unique. */
    c.unique = NULL;
    proc_tree_tick(c.tree, c.now_ns);
    c.unique = untold;
    assert_int_equal(proc_tree_count(c.tree), 0);
    slice(&c);
    assert_int_equal(cost_of(&c).scans_given_up, 1);
    count_end(&c);
}

static void exec_when_told(void *arg)
{
    char byte;
    hold_private(NULL);
    if (fork_tied() != 0)
        return;
    if (read(*(int *)arg, &byte, 1) == 1)
        execlp("sleep", "sleep", "1000", (char *)NULL);
    _exit(1);
}

static void unique_memory_is_unknown_after_exec_until_counted_again(void **state)
{
    (void)state;
    struct count c;
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = kid_start(exec_when_told, &fds[0]);
    count_begin(&c, pid, NULL);
    count_all(&c, 2);
    assert_int_equal(write(fds[1], "x", 1), 1);
    EVENTUALLY(c.seen.count[PROCESS_EXECED] == 1, proc_tree_walk(c.tree, c.now_ns));
    assert_false(sample_has(&proc_tree_at(c.tree, 1)->sample, SAMPLE_UNIQUE));
    for (int i = 0; i < 1000 && !sample_has(&proc_tree_at(c.tree, 1)->sample, SAMPLE_UNIQUE); i++)
        slice(&c);
    assert_true(unique_of(&c, 1) < 8 * MIB); /* Before the exec, the process had 24 MiB. */
    kid_end(pid);
    close(fds[0]);
    close(fds[1]);
    count_end(&c);
}

static int count_strangers(void *arg)
{
    struct proc_root root;
    struct proc_tree *tree;
    struct proc_unique *u;
    struct proc_unique_cost cost;
    uint64_t now = 1000 * NS_PER_S;
    if (proc_root_open("/proc", NULL, &root, NULL) < 0 ||
        proc_tree_new(&root, NULL, NULL, &tree) < 0 || proc_unique_new(tree, NULL, &u) < 0 ||
        proc_tree_add_all(tree, now, NULL) < 0)
        return 1;
    const struct proc_node *n = proc_tree_find(tree, *(pid_t *)arg);
    if (n == NULL)
        return 2;
    for (int i = 0; i < 1000 && !(n->sample.stale & UNIQUE_BIT); i++)
        now = proc_unique_slice(u, now);
    if (!(n->sample.stale & UNIQUE_BIT) || sample_has(&n->sample, SAMPLE_UNIQUE))
        return 4;
    proc_unique_cost(u, &cost);
    if (cost.scans_given_up == 0)
        return 5;
    proc_unique_free(u);
    proc_tree_free(tree);
    proc_root_close(&root);
    return 0;
}

static void unique_memory_of_an_unreadable_process_is_stale(void **state)
{
    (void)state;
    if (!has_strangers()) {
        print_message("skipped: there is no process of another user\n");
        skip();
    }
    pid_t stranger = geteuid() == 0 ? kid_start(NULL, NULL) : 1;
    assert_int_equal(as_nobody(count_strangers, &stranger), 0);
    if (geteuid() == 0)
        kid_end(stranger);
}

static void slice_until(struct count *c, uint64_t until_ns)
{
    while (c->now_ns < until_ns)
        slice(c);
}

/* Counts again and returns the start of the slice that completed the count. */
static uint64_t count_next(struct count *c)
{
    uint64_t scans = cost_of(c).scans_done, began_ns = 0;
    for (int i = 0; i < 100000 && cost_of(c).scans_done == scans; i++) {
        began_ns = c->now_ns;
        slice(c);
    }
    assert_int_equal(cost_of(c).scans_done, scans + 1);
    return began_ns;
}

static void hurried_counting_measures_a_new_process_without_delay(void **state)
{
    struct count c;
    pid_t pid = kid_start(hold_private, NULL);
    (void)state;
    count_begin(&c, pid, NULL);
    uint64_t born_ns = c.now_ns;
    uint64_t next = proc_unique_slice(c.unique, c.now_ns);
    assert_int_equal(cost_of(&c).scans_done, 0);
    assert_true(next > born_ns + NS_PER_S / 2);
    proc_unique_hurry(c.unique, true);
    assert_true(count_next(&c) < born_ns + NS_PER_S);
    assert_true(unique_of(&c, 0) >= 24 * MIB);
    kid_end(pid);
    count_end(&c);
}

/* Blocks until this process is killed, because the vfork child never calls exec. */
static void hold_and_vfork(void *arg)
{
    hold_private(arg);
    if (vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
}

/* A vfork child uses the pages of its parent. If the child were measured without delay, these pages
 * would be counted twice. */
static void hurried_counting_waits_before_measuring_a_vfork_child(void **state)
{
    struct count c;
    pid_t pid = kid_spawn(hold_and_vfork, NULL);
    (void)state;
    count_begin(&c, pid, NULL);
    EVENTUALLY(proc_tree_count(c.tree) == 2, proc_tree_walk(c.tree, c.now_ns));
    uint64_t born_ns = c.now_ns;
    proc_tree_tick(c.tree, born_ns);
    proc_unique_hurry(c.unique, true);
    slice_until(&c, born_ns + NS_PER_S * 9 / 10);
    assert_int_equal(cost_of(&c).scans_done, 1);
    assert_true(unique_of(&c, 0) >= 24 * MIB);
    assert_false(proc_tree_at(c.tree, 1)->sample.known & UNIQUE_BIT);
    kid_end(pid);
    count_end(&c);
}

static void hurried_counting_measures_changed_memory_without_delay(void **state)
{
    struct count c;
    pid_t pid = kid_start(hold_private, NULL);
    (void)state;
    count_begin(&c, pid, NULL);
    c.now_ns = count_next(&c);
    uint64_t done_ns = c.now_ns;
    proc_tree_at(c.tree, 0)->sample.v[SAMPLE_RSS] += 8 * MIB;
    proc_unique_hurry(c.unique, true);
    assert_true(count_next(&c) < done_ns + NS_PER_S);
    kid_end(pid);
    count_end(&c);
}

static void counting_unique_memory_with_over_100_percent_of_a_cpu_is_rejected(void **state)
{
    (void)state;
    struct proc_unique *u;
    const struct proc_unique_options more_than_all = {.cpu_permyriad = 10001};
    assert_int_equal(proc_unique_new(NULL, &more_than_all, &u), -EINVAL);
    proc_unique_free(NULL);
}

#ifdef __SANITIZE_ADDRESS__
/* The sanitizer's shadow memory is a mapping of terabytes, most of it untouched. Without
 * PAGEMAP_SCAN, counting its pages would take too long. */
static bool can_count(void)
{
    struct count c;
    pid_t pid = kid_start(NULL, NULL);
    count_begin(&c, pid, NULL);
    for (int i = 0; i < 100000 && cost_of(&c).scans_done + cost_of(&c).scans_given_up == 0; i++)
        slice(&c);
    bool done = cost_of(&c).scans_done > 0;
    kid_end(pid);
    count_end(&c);
    return done;
}
#else
static bool can_count(void)
{
    return true;
}
#endif

int main(int argc, char **argv)
{
    if (argc == 2 && argv[1][0] >= '0' && argv[1][0] <= '9')
        return hold_and_tell(atoi(argv[1]));
    if (!can_count()) {
        print_message("skipped: this kernel cannot skip the holes of the sanitizer\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counted_unique_memory_equals_smaps_for_private_memory),
        cmocka_unit_test(counted_unique_memory_equals_smaps_for_shared_and_file_pages),
        cmocka_unit_test(counted_unique_memory_equals_smaps_for_huge_pages),
        cmocka_unit_test(count_of_anonymous_huge_pages_equals_smaps),
        cmocka_unit_test(huge_page_memory_is_unknown_without_pagemap_scan),
        cmocka_unit_test(counted_unique_memory_equals_smaps_for_a_launched_program),
        cmocka_unit_test(present_pages_of_inaccessible_mappings_are_counted),
        cmocka_unit_test(counted_unique_memory_equals_smaps_for_20000_mappings),
        cmocka_unit_test(counted_unique_memory_equals_smaps_for_scattered_pages),
        cmocka_unit_test(pages_shared_after_a_fork_are_not_unique),
        cmocka_unit_test(unmeasured_memory_of_a_child_is_estimated_from_rss_growth),
        cmocka_unit_test(estimate_for_unmeasured_child_includes_copied_pages),
        cmocka_unit_test(child_forked_after_counting_unique_memory_is_not_counted_twice),
        cmocka_unit_test(child_forked_while_counting_unique_memory_is_not_counted_twice),
        cmocka_unit_test(forked_child_that_exits_unmeasured_is_not_counted_twice),
        cmocka_unit_test(counting_unique_memory_skips_an_untouched_reservation_of_1_tib),
        cmocka_unit_test(counting_unique_memory_without_pagemap_scan_stops_at_a_huge_hole),
        cmocka_unit_test(counted_unique_memory_equals_smaps_without_pagemap_scan),
        cmocka_unit_test(counting_unique_memory_pauses_to_stay_within_the_cpu_share),
        cmocka_unit_test(unique_memory_of_each_process_is_counted_once_per_period),
        cmocka_unit_test(process_whose_rss_changed_is_measured_sooner),
        cmocka_unit_test(counted_unique_memory_is_marked_as_new_in_one_tick_only),
        cmocka_unit_test(unique_memory_becomes_stale_if_counting_takes_too_long),
        cmocka_unit_test(counting_unique_memory_stops_when_the_process_exits),
        cmocka_unit_test(counting_unique_memory_stops_if_the_tree_frees_the_process),
        cmocka_unit_test(unique_memory_is_unknown_after_exec_until_counted_again),
        cmocka_unit_test(unique_memory_of_an_unreadable_process_is_stale),
        cmocka_unit_test(hurried_counting_measures_a_new_process_without_delay),
        cmocka_unit_test(hurried_counting_waits_before_measuring_a_vfork_child),
        cmocka_unit_test(hurried_counting_measures_changed_memory_without_delay),
        cmocka_unit_test(counting_unique_memory_with_over_100_percent_of_a_cpu_is_rejected),
    };
    return cmocka_run_group_tests_name("unique", tests, NULL, NULL);
}
