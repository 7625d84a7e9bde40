/* Tests that pages in malloc's heaps and in stacks are recognized from a process's maps alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "kit.h"
#include "proc/unique.h"

#define MIB (UINT64_C(1) << 20)
#define ARENA (64 * MIB)

/* [heap] and [stack] initially contain pages of the parent, and a few more may be touched during
 * the test. */
enum { SLACK = 64 << 10 };

static void ignore(void *user, const struct proc_event *event)
{
    (void)user;
    (void)event;
}

static struct sample count(pid_t pid, const struct proc_unique_options *options)
{
    struct proc_root root;
    struct proc_tree *tree;
    struct proc_unique *unique;
    struct proc_unique_cost cost = {0};
    uint64_t now_ns = 1000 * NS_PER_S;
    assert_int_equal(proc_root_open("/proc", NULL, &root, NULL), 0);
    assert_int_equal(proc_tree_new(&root, ignore, NULL, &tree), 0);
    assert_int_equal(proc_unique_new(tree, options, &unique), 0);
    assert_int_equal(proc_tree_add(tree, pid, now_ns, NULL), 0);
    for (int i = 0; i < 100000 && cost.scans_done + cost.scans_given_up == 0; i++) {
        now_ns = proc_unique_slice(unique, now_ns);
        proc_unique_cost(unique, &cost);
    }
    struct sample s = proc_tree_at(tree, 0)->sample;
    proc_unique_free(unique);
    proc_tree_free(tree);
    proc_root_close(&root);
    return s;
}

/* Returns the Rss value in bytes of the mappings called NAME in smaps. */
static uint64_t resident_of(pid_t pid, const char *name)
{
    char path[64], line[512];
    uint64_t bytes = 0;
    bool is_it = false;
    snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strchr(line, '-') != NULL && strspn(line, "0123456789abcdef") >= 8)
            is_it = strstr(line, name) != NULL;
        else if (is_it && strncmp(line, "Rss:", 4) == 0)
            bytes += strtoull(line + 4, NULL, 10) * 1024;
    }
    fclose(f);
    return bytes;
}

static char *reserve(size_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        abort();
    /* With huge pages, more pages would be present than were touched. */
    madvise(p, bytes, MADV_NOHUGEPAGE);
    return p;
}

static void open_and_touch(char *p, size_t open, size_t touched)
{
    if (mprotect(p, open, PROT_READ | PROT_WRITE) < 0)
        abort();
    memset(p, 1, touched);
}

/* Reserves the address range from one multiple of 64 MiB to the next. */
static char *reserve_arena(void)
{
    char *p = reserve(2 * ARENA);
    uintptr_t at = ((uintptr_t)p + ARENA - 1) / ARENA * ARENA;
    if (at > (uintptr_t)p)
        munmap(p, at - (uintptr_t)p);
    munmap((char *)at + ARENA, (uintptr_t)p + ARENA - at);
    return (char *)at;
}

static void hold_brk(void *arg)
{
    (void)arg;
    /* Calls brk directly, because musl's sbrk always fails. */
    long start = syscall(SYS_brk, 0L);
    long end = start + 24 * (long)MIB;
    if (syscall(SYS_brk, end) == end)
        memset((void *)start, 1, 20 * MIB); /* NOLINT */
}

static void hold_an_arena(void *arg)
{
    (void)arg;
    open_and_touch(reserve_arena(), 9 * MIB, 5 * MIB);
}

/* This mapping looks like an arena but does not begin at a multiple of 64 MiB. */
static void hold_no_arena(void *arg)
{
    (void)arg;
    char *p = reserve(ARENA);
    if ((uintptr_t)p % ARENA == 0)
        p += MIB;
    open_and_touch(p, 9 * MIB, 5 * MIB);
}

static void hold_stacks(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++)
        open_and_touch(reserve(8 * MIB + 4096) + 4096, 8 * MIB, MIB);
    /* This mapping is too large to be a stack. */
    open_and_touch(reserve(32 * MIB + 4096) + 4096, 32 * MIB, 7 * MIB);
}

static bool is_near(uint64_t is, uint64_t wanted)
{
    return is + SLACK >= wanted && is <= wanted + SLACK;
}

#ifdef __SANITIZE_ADDRESS__
static const bool is_sanitized = true;
#else
static const bool is_sanitized = false;
#endif

/* The kernel may merge pages of [heap] into huge pages during a count, so one correct count is
 * enough. */
static void expect_kinds(kid_fn *fn, uint64_t heaps, uint64_t stacks,
                         const struct proc_unique_options *options)
{
    enum { ATTEMPTS = 100 };
    bool is_right = false;
    pid_t pid = kid_start(fn, NULL);
    for (int i = 0; i < ATTEMPTS && !is_right; i++) {
        struct sample s = count(pid, options);
        uint64_t heap = resident_of(pid, "[heap]"), stack = resident_of(pid, "[stack]");
        is_right = sample_has(&s, SAMPLE_UNIQUE) ? is_near(s.v[SAMPLE_HEAP], heap + heaps) &&
                                                       is_near(s.v[SAMPLE_STACK], stack + stacks)
                                                 /* Without PAGEMAP_SCAN the count fails if too
                                                  * many pages are absent, as in ASan's shadow. */
                                                 : is_sanitized;
    }
    kid_end(pid);
    assert_true(is_right);
}

static void brk_segment_is_counted_as_heap(void **state)
{
    (void)state;
    expect_kinds(hold_brk, 0, 0, NULL);
    pid_t pid = kid_start(hold_brk, NULL);
    struct sample s = count(pid, NULL);
    kid_end(pid);
    assert_true(is_sanitized || sample_has(&s, SAMPLE_UNIQUE));
    assert_true(!sample_has(&s, SAMPLE_UNIQUE) || s.v[SAMPLE_HEAP] >= 20 * MIB);
}

static void glibc_arena_is_recognized_by_address_and_reservation(void **state)
{
    (void)state;
    expect_kinds(hold_an_arena, 5 * MIB, 0, NULL);
    expect_kinds(hold_no_arena, 0, 0, NULL);
}

static void mapping_above_a_guard_page_is_counted_as_stack(void **state)
{
    (void)state;
    expect_kinds(hold_stacks, 0, 3 * MIB, NULL);
}

static void heap_and_stacks_are_counted_without_pagemap_scan(void **state)
{
    (void)state;
    const struct proc_unique_options old = {.no_pagemap_scan = true};
    expect_kinds(hold_an_arena, 5 * MIB, 0, &old);
    expect_kinds(hold_stacks, 0, 3 * MIB, &old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brk_segment_is_counted_as_heap),
        cmocka_unit_test(glibc_arena_is_recognized_by_address_and_reservation),
        cmocka_unit_test(mapping_above_a_guard_page_is_counted_as_stack),
        cmocka_unit_test(heap_and_stacks_are_counted_without_pagemap_scan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
