/* Tests that each stack is stored once, can be read back, and is truncated and counted when the
 * tree is full. */
#include "heap/stacks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fresh_table.h"

/* Returns the frames of SITE, outermost first. */
static size_t frames_of(uint32_t site, uint64_t *ret, size_t max)
{
    const struct heap_table *t = heap_process.table;
    size_t n = 0;
    for (uint32_t node = t->sites[site].node; node != 0; node = t->nodes[node].parent)
        n++;
    assert_true(n <= max);
    size_t i = n;
    for (uint32_t node = t->sites[site].node; node != 0; node = t->nodes[node].parent)
        ret[--i] = t->nodes[node].frame;
    return n;
}

static void stack_is_stored_once_and_read_back(void **state)
{
    const uint64_t a[] = {10, 20, 30}, b[] = {10, 20, 31};
    uint64_t back[8];
    uint32_t site = stacks_site(a, 3), other = stacks_site(b, 3);

    (void)state;
    assert_true(site != 0 && other != 0 && site != other);
    assert_int_equal(stacks_site(a, 3), site);
    assert_int_equal(stacks_site(b, 3), other);
    assert_int_equal(frames_of(site, back, 8), 3);
    assert_memory_equal(back, a, sizeof(a));
    assert_int_equal(frames_of(other, back, 8), 3);
    assert_memory_equal(back, b, sizeof(b));
    assert_int_equal(heap_process.table->header.nodes, 5);
    assert_int_equal(heap_process.table->header.sites, 3);
}

static void shorter_stack_shares_tree_nodes_with_a_longer_one(void **state)
{
    const uint64_t frames[] = {10, 20, 30};
    uint32_t longer = stacks_site(frames, 3), shorter = stacks_site(frames, 2);

    (void)state;
    assert_true(longer != shorter && shorter != 0);
    assert_int_equal(heap_process.table->header.nodes, 4);
}

static void stack_of_identical_frames_is_stored_at_full_depth(void **state)
{
    uint64_t frames[HEAP_STACK_MAX], back[HEAP_STACK_MAX];

    (void)state;
    for (size_t i = 0; i < HEAP_STACK_MAX; i++)
        frames[i] = 42;
    uint32_t site = stacks_site(frames, HEAP_STACK_MAX);
    assert_int_equal(frames_of(site, back, HEAP_STACK_MAX), HEAP_STACK_MAX);
    assert_memory_equal(back, frames, sizeof(frames));
    assert_int_equal(stacks_site(frames, HEAP_STACK_MAX), site);
}

static void only_the_empty_stack_has_call_site_zero(void **state)
{
    const uint64_t zero = 0;

    (void)state;
    assert_int_equal(stacks_site(&zero, 0), 0);
    uint32_t site = stacks_site(&zero, 1);
    assert_true(site != 0);
    assert_int_equal(stacks_site(&zero, 1), site);
    assert_int_equal(heap_process.table->header.nodes, 2);
    assert_true(heap_process.table->nodes[1].frame != 0);
}

/* The addresses differ in few bits, like those of real frames. */
static void stack_number(uint32_t i, uint64_t frames[4])
{
    frames[0] = UINT64_C(1) << 48 | 0x1000;
    frames[1] = UINT64_C(2) << 48 | (0x2000 + i % 100 * 5);
    frames[2] = HEAP_FRAME_PYTHON | (uint64_t)(i / 100 % 100) << 32 | 4;
    frames[3] = UINT64_C(3) << 48 | (0x3000 + (uint64_t)i * 16);
}

static void many_different_stacks_get_different_call_sites(void **state)
{
    uint64_t frames[4], back[4];
    uint32_t sites[10000];

    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        stack_number(i, frames);
        sites[i] = stacks_site(frames, 4);
        assert_int_equal(sites[i], i + 1);
    }
    for (uint32_t i = 0; i < 10000; i++) {
        stack_number(i, frames);
        assert_int_equal(stacks_site(frames, 4), sites[i]);
        assert_int_equal(frames_of(sites[i], back, 4), 4);
        assert_memory_equal(back, frames, sizeof(frames));
    }
    assert_int_equal(heap_process.table->header.sites, 10001);
    assert_int_equal(drops(HEAP_DROP_NODES) + drops(HEAP_DROP_SITES), 0);
}

static void call_sites_that_do_not_fit_in_the_table_become_site_zero(void **state)
{
    (void)state;
    for (uint64_t i = 1; i < HEAP_SITES; i++)
        assert_int_equal(stacks_site(&i, 1), i);
    assert_int_equal(heap_process.table->header.sites, HEAP_SITES);
    for (uint64_t i = HEAP_SITES; i < HEAP_SITES + 10; i++)
        assert_int_equal(stacks_site(&i, 1), 0);
    assert_int_equal(drops(HEAP_DROP_SITES), 10);
    assert_int_equal(heap_process.table->header.sites, HEAP_SITES);
    uint64_t known = 5;
    assert_int_equal(stacks_site(&known, 1), 5);
}

/* Adds stacks of 100 frames until ENOUGH nodes are used. With stacks this long, the tree runs out
 * of nodes before it runs out of call sites. */
static void fill_tree(uint32_t enough)
{
    for (uint64_t k = 1; heap_process.table->header.nodes < enough; k++) {
        uint64_t deep[100];
        for (uint64_t i = 0; i < 100; i++)
            deep[i] = k << 32 | (i + 1);
        stacks_site(deep, 100);
    }
}

static void nearly_full_stack_tree_keeps_the_innermost_python_frames(void **state)
{
    uint64_t frames[60], back[60], other[60];

    (void)state;
    for (uint64_t i = 0; i < 60; i++)
        frames[i] = (i % 10 == 0 ? HEAP_FRAME_PYTHON : 0) | (1000 + i);
    uint32_t known = stacks_site(frames, 60);
    fill_tree(HEAP_NODES / 4 * 3);
    uint64_t dropped = drops(HEAP_DROP_NODES);
    assert_int_equal(stacks_site(frames, 60), known);
    assert_int_equal(drops(HEAP_DROP_NODES), dropped);

    memcpy(other, frames, sizeof(other));
    other[59] = 2000;
    uint32_t site = stacks_site(other, 60);
    assert_true(site != 0 && site != known);
    assert_int_equal(drops(HEAP_DROP_NODES), dropped + 1);
    assert_int_equal(frames_of(site, back, 60),
                     30); /* The stored stack starts at the third innermost Python frame. */
    assert_memory_equal(back, other + 30, 30 * sizeof(*back));
    assert_int_equal(stacks_site(other, 60), site);
}

static void nearly_full_stack_tree_keeps_the_innermost_native_frames(void **state)
{
    uint64_t frames[40], back[40];

    (void)state;
    for (uint64_t i = 0; i < 40; i++)
        frames[i] = 1000 + i;
    fill_tree(HEAP_NODES / 4 * 3);
    size_t n = frames_of(stacks_site(frames, 40), back, 40);
    assert_true(n > 0 && n < 40);
    assert_memory_equal(back, frames + 40 - n, n * sizeof(*back));
}

static void full_stack_tree_drops_the_innermost_frames(void **state)
{
    uint64_t frames[100], back[100];

    (void)state;
    for (size_t i = 0; i < 100; i++)
        frames[i] = HEAP_FRAME_PYTHON | (1000 + i);
    uint32_t site = stacks_site(frames + 97, 2);
    fill_tree(HEAP_NODES);
    uint64_t dropped = drops(HEAP_DROP_NODES);
    assert_int_equal(stacks_site(frames, 100), site);
    assert_int_equal(drops(HEAP_DROP_NODES), dropped + 1);
    assert_int_equal(frames_of(site, back, 100), 2);
    uint64_t new_root = UINT64_MAX;
    assert_int_equal(stacks_site(&new_root, 1), 0);
    assert_int_equal(drops(HEAP_DROP_SITES), 0);
}

static void totals_of_a_call_site_are_sums_of_sample_weights(void **state)
{
    const struct heap_site *site = &heap_process.table->sites[7];

    (void)state;
    stacks_allocated(7, 1000, 0.5);
    stacks_allocated(7, 10, 1);
    stacks_allocated(7, 1, 1.0 / 524288);
    stacks_freed(7, 1000, 0.5);
    assert_int_equal(site->samples, 3);
    assert_int_equal(site->allocated_bytes, 2000 + 10 + 524288);
    assert_int_equal(site->allocated_objects_x16, 16 * (2 + 1 + 524288));
    assert_int_equal(site->freed_bytes, 2000);
    stacks_freed(UINT32_MAX, 5, 1);
    assert_int_equal(heap_process.table->sites[0].freed_bytes, 5);
}

static void new_stack_tree_contains_only_the_root(void **state)
{
    const uint64_t frames[] = {10, 20};

    (void)state;
    assert_int_equal(heap_process.table->header.nodes, 1);
    assert_int_equal(heap_process.table->header.sites, 1);
    stacks_site(frames, 2);
    memset(heap_process.table, 0, sizeof(*heap_process.table));
    stacks_reset();
    assert_int_equal(heap_process.table->header.nodes, 1);
    assert_int_equal(stacks_site(frames, 1), 1);
    assert_int_equal(heap_process.table->nodes[1].frame, 10);
    assert_int_equal(heap_process.table->header.nodes, 2);
}

static void stack_lookup_without_a_table_finds_nothing(void **state)
{
    const uint64_t frame = 10;
    struct heap_table *table = heap_process.table;

    (void)state;
    heap_process.table = NULL;
    assert_int_equal(stacks_site(&frame, 1), 0);
    stacks_allocated(0, 1, 1);
    stacks_freed(0, 1, 1);
    heap_process.table = table;
    assert_int_equal(table->sites[0].samples, 0);
}

#define FRESH(test) cmocka_unit_test_setup_teardown(test, fresh_table, drop_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(stack_is_stored_once_and_read_back),
        FRESH(shorter_stack_shares_tree_nodes_with_a_longer_one),
        FRESH(stack_of_identical_frames_is_stored_at_full_depth),
        FRESH(only_the_empty_stack_has_call_site_zero),
        FRESH(many_different_stacks_get_different_call_sites),
        FRESH(call_sites_that_do_not_fit_in_the_table_become_site_zero),
        FRESH(nearly_full_stack_tree_keeps_the_innermost_python_frames),
        FRESH(nearly_full_stack_tree_keeps_the_innermost_native_frames),
        FRESH(full_stack_tree_drops_the_innermost_frames),
        FRESH(totals_of_a_call_site_are_sums_of_sample_weights),
        FRESH(new_stack_tree_contains_only_the_root),
        FRESH(stack_lookup_without_a_table_finds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
