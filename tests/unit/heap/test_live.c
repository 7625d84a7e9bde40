/* Tests adding, finding and ending live samples, full buckets, thinning, and partially unmapped
 * mappings. The filter must never hide a sample. */
#include "heap/live.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fresh_table.h"

#define BASE (UINT64_C(512) << 10)
#define ARENA UINT64_C(0x7f0000000000)

static const struct live_sample small = {
    .size = 100, .interval = BASE, .site = 3, .born_ms = 1000, .kind = HEAP_KIND_MALLOC};

static const void *at(uint64_t address)
{
    return (const void *)(uintptr_t)address;
}

static bool filter_is_empty(void)
{
    for (size_t i = 0; i < LIVE_FILTER_BITS / 64; i++)
        if (atomic_load(&live_filter[i]) != 0)
            return false;
    return true;
}

static uint32_t count_entries(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < HEAP_LIVE; i++)
        n += atomic_load(&heap_process.table->live[i].ptr) != 0;
    return n;
}

/* Returns the next address after P whose filter bit number equals BIT in all bits of MASK. */
static uint64_t next_with(uint64_t p, uint32_t bit, uint32_t mask)
{
    do
        p += 16;
    while (((live_bit((uintptr_t)p) ^ bit) & mask) != 0);
    return p;
}

static void assert_same(const struct live_sample *a, const struct live_sample *b)
{
    assert_int_equal(a->size, b->size);
    assert_int_equal(a->interval, b->interval);
    assert_int_equal(a->site, b->site);
    assert_int_equal(a->born_ms, b->born_ms);
    assert_int_equal(a->kind, b->kind);
}

static const uint32_t SAME_BIT = LIVE_FILTER_BITS - 1, SAME_BUCKET = LIVE_BUCKETS - 1;

static void added_live_sample_is_returned_unchanged(void **state)
{
    struct live_sample sample = {.size = UINT64_C(1) << 40,
                                 .interval = SAMPLER_INTERVAL_MAX,
                                 .site = HEAP_SITES - 1,
                                 .born_ms = UINT32_MAX,
                                 .kind = HEAP_KIND_PYTHON},
                       ret = {0};

    (void)state;
    assert_false(live_maybe(at(ARENA + 16)));
    assert_true(live_add(at(ARENA + 16), &sample));
    assert_true(live_maybe(at(ARENA + 16)));
    assert_true(live_find(at(ARENA + 16), &ret));
    assert_same(&ret, &sample);
    ret = (struct live_sample){0};
    assert_true(live_end(at(ARENA + 16), &ret));
    assert_same(&ret, &sample);
    assert_false(live_end(at(ARENA + 16), &ret));
    assert_false(live_find(at(ARENA + 16), &ret));
    assert_true(filter_is_empty());
    assert_int_equal(count_entries(), 0);
}

static void unsampled_pointer_with_a_filter_bit_of_a_sample_is_not_found(void **state)
{
    struct live_sample ret = {.site = 77};
    uint64_t p = ARENA;

    (void)state;
    assert_true(live_add(at(p), &small));
    for (int i = 0; i < 3; i++) {
        p = next_with(p, live_bit(ARENA), SAME_BIT);
        assert_true(live_maybe(at(p)));
        assert_false(live_find(at(p), &ret));
        assert_false(live_end(at(p), &ret));
        assert_int_equal(ret.site, 77);
    }
    assert_true(live_find(at(ARENA), &ret));
}

static void filter_bit_is_cleared_when_the_last_sample_with_that_bit_ends(void **state)
{
    struct live_sample ret;
    uint64_t p[4] = {ARENA};

    (void)state;
    for (int i = 1; i < 4; i++)
        p[i] = next_with(p[i - 1], live_bit(ARENA), SAME_BIT);
    for (int i = 0; i < 4; i++)
        assert_true(live_add(at(p[i]), &small));
    for (int i = 0; i < 4; i++) {
        for (int k = i; k < 4; k++)
            assert_true(live_maybe(at(p[k])));
        assert_true(live_end(at(p[i]), &ret));
    }
    assert_true(filter_is_empty());
}

static void full_bucket_refuses_new_samples_and_keeps_old_ones(void **state)
{
    struct live_sample sample = small, ret;
    uint64_t p[LIVE_CELLS + 1] = {ARENA};

    (void)state;
    for (uint32_t i = 0; i < LIVE_CELLS; i++) {
        sample.site = i;
        assert_true(live_add(at(p[i]), &sample));
        p[i + 1] = next_with(p[i], live_bit(ARENA), SAME_BUCKET);
    }
    assert_false(live_add(at(p[LIVE_CELLS]), &small));
    assert_int_equal(count_entries(), LIVE_CELLS);
    assert_true(live_end(at(p[5]), &ret));
    assert_int_equal(ret.site, 5);
    assert_true(live_add(at(p[LIVE_CELLS]), &small));
    assert_int_equal(heap_process.table->header.live_high, LIVE_CELLS + 1);
    for (uint32_t i = 0; i < LIVE_CELLS; i++)
        if (i != 5) {
            assert_true(live_end(at(p[i]), &ret));
            assert_int_equal(ret.site, i);
        }
    assert_true(live_end(at(p[LIVE_CELLS]), &ret));
    assert_true(filter_is_empty());
}

static void full_bucket_in_a_nearly_empty_table_is_not_thinned(void **state)
{
    uint64_t random = 1, p = ARENA;

    (void)state;
    for (; live_add(at(p), &small); p = next_with(p, live_bit(ARENA), SAME_BUCKET))
        ;
    live_thin(&random);
    assert_int_equal(sampler_interval(), BASE);
    assert_int_equal(count_entries(), LIVE_CELLS);
}

static void allocation_at_the_address_of_an_old_sample_ends_that_sample(void **state)
{
    struct live_sample sample = small, ret;

    (void)state;
    assert_true(live_add(at(ARENA), &small));
    sample.site = 9;
    assert_true(live_add(at(ARENA), &sample));
    assert_int_equal(drops(HEAP_DROP_STALE), 1);
    assert_int_equal(count_entries(), 1);
    assert_true(live_end(at(ARENA), &ret));
    assert_int_equal(ret.site, 9);
    assert_false(live_end(at(ARENA), &ret));
}

static void reused_entry_of_live_sample_table_gets_a_new_generation(void **state)
{
    struct live_sample ret;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        assert_true(live_add(at(ARENA + i * 4096), &small));
        assert_int_equal(heap_process.table->live[0].kind_turn >> 4, i + 1);
        assert_true(live_end(at(ARENA + i * 4096), &ret));
    }
    assert_int_equal(heap_process.table->header.live_high, 1);
}

/* The addresses are sparse, like the samples of a real heap. */
static uint64_t address_of(uint64_t i)
{
    uint64_t random = i;
    return ARENA + i * BASE + sampler_random(&random) % (BASE / 16) * 16;
}

static uint64_t fill_table(void)
{
    struct live_sample sample = small;
    uint64_t n = 0;
    for (;; n++) {
        sample.size = UINT64_C(16) << n % 20;
        sample.interval = BASE << n % 3;
        sample.site = (uint32_t)n % HEAP_SITES;
        if (!live_add(at(address_of(n)), &sample))
            return n;
    }
}

static void live_table_can_be_filled_almost_completely(void **state)
{
    struct live_sample ret;
    uint64_t n = fill_table();

    (void)state;
    assert_in_range(n, 20000, HEAP_LIVE);
    for (uint64_t i = 0; i < n; i++) {
        assert_true(live_maybe(at(address_of(i))));
        assert_true(live_find(at(address_of(i)), &ret));
        assert_int_equal(ret.site, i % HEAP_SITES);
    }
    for (uint64_t i = 0; i < n; i++)
        assert_true(live_end(at(address_of(i)), &ret));
    assert_true(filter_is_empty());
    assert_int_equal(count_entries(), 0);
}

/* Rare refusals are ignored, because a bucket may be full long before the table is. */
static void fill_to_the_last(void)
{
    struct live_sample sample = small;
    for (uint64_t n = 0; count_entries() < HEAP_LIVE && n < 400000; n += 4096)
        for (uint64_t i = n; i < n + 4096; i++) {
            sample.size = UINT64_C(16) << i % 20;
            sample.interval = BASE << i % 3;
            live_add(at(address_of(i)), &sample);
        }
}

static void full_live_table_refuses_new_samples(void **state)
{
    struct live_sample ret;

    (void)state;
    fill_to_the_last();
    assert_int_equal(count_entries(), HEAP_LIVE);
    assert_int_equal(heap_process.table->header.live_high, HEAP_LIVE);
    for (uint64_t i = 0; i < 1000; i++)
        assert_false(live_add(at((ARENA << 1) + i * BASE), &small));
    uint64_t first = atomic_load(&heap_process.table->live[0].ptr);
    assert_true(live_end(at(first), &ret));
    assert_true(live_add(at(first), &ret));
}

/* Returns the live bytes estimated from the weights, and the variance that thinning to the interval
 * FLOOR would add to this estimate. */
static double estimate(uint64_t floor, double *ret_variance)
{
    double sum = 0;
    *ret_variance = 0;
    for (uint32_t i = 0; i < HEAP_LIVE; i++) {
        const struct heap_live *e = &heap_process.table->live[i];
        uint64_t size = e->size, interval = (uint64_t)e->interval * SAMPLER_UNIT;
        if (e->ptr == 0)
            continue;
        double p = sampler_probability(size, interval), weight = (double)size / p;
        sum += weight;
        if (interval < floor) {
            double stays = sampler_probability(size, floor) / p;
            *ret_variance += weight * weight * (1 - stays) / stays;
        }
    }
    return sum;
}

static void start_full(void)
{
    memset(heap_process.table, 0, sizeof(*heap_process.table));
    reset_all();
    fill_to_the_last();
}

static void thinning_makes_room_and_keeps_the_estimated_live_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        uint64_t random = seed;
        double before, after, variance, unused;
        start_full();
        live_thin(&random);
        uint64_t floor = sampler_floor(false);
        assert_true(floor >= 2 * BASE);
        assert_int_equal(sampler_interval(), floor);
        assert_true(count_entries() < HEAP_LIVE / 4 * 3);
        assert_int_equal(count_entries() + drops(HEAP_DROP_THINNED), HEAP_LIVE);
        after = estimate(0, &unused);

        start_full();
        before = estimate(floor, &variance);
        assert_true(fabs(after - before) < 5 * sqrt(variance));
        assert_true(sqrt(variance) < before / 50);
    }
}

static void samples_kept_by_thinning_have_the_raised_interval(void **state)
{
    uint64_t random = 4;
    struct live_sample ret;

    (void)state;
    fill_to_the_last();
    live_thin(&random);
    for (uint32_t i = 0; i < HEAP_LIVE; i++) {
        uint64_t p = heap_process.table->live[i].ptr;
        if (p == 0)
            continue;
        assert_true(live_maybe(at(p)));
        assert_true(live_end(at(p), &ret));
        assert_true(ret.interval >= sampler_floor(false));
    }
    assert_true(filter_is_empty());
}

static void thinning_keeps_all_large_samples(void **state)
{
    struct live_sample sample = small;
    uint64_t random = 1;

    (void)state;
    sample.size = UINT64_C(1) << 40;
    for (uint64_t i = 0; i < 64; i++)
        assert_true(live_add(at((ARENA << 1) + i * BASE), &sample));
    fill_to_the_last();
    live_thin(&random);
    for (uint64_t i = 0; i < 64; i++) {
        assert_true(live_find(at((ARENA << 1) + i * BASE), &sample));
        assert_int_equal(sample.interval, sampler_floor(false));
    }
}

/* ---- mappings ---- */

static const struct live_sample mapping = {
    .size = 64 * 4096, .interval = BASE, .site = 3, .born_ms = 5, .kind = HEAP_KIND_MAP};

static double weight_of(uint64_t p, uint64_t size)
{
    struct live_sample ret;
    assert_true(live_find(at(p), &ret));
    assert_int_equal(ret.size, size);
    assert_int_equal(ret.site, 3);
    assert_int_equal(ret.born_ms, 5);
    assert_int_equal(ret.kind, HEAP_KIND_MAP);
    return (double)size / sampler_probability(ret.size, ret.interval);
}

static void assert_bytes(double value, double expected)
{
    if (!(fabs(value / expected - 1) < 0.005))
        fail_msg("%g is not %g", value, expected);
}

static uint64_t freed_of_site_3(void)
{
    return heap_process.table->sites[3].freed_bytes;
}

static void mapping_unmapped_in_the_middle_becomes_two_mappings(void **state)
{
    double whole = (double)mapping.size / sampler_probability(mapping.size, BASE);

    (void)state;
    assert_true(live_add(at(ARENA), &mapping));
    live_cut(ARENA + 16 * 4096, 8 * 4096);
    assert_int_equal(count_entries(), 2);
    assert_bytes(weight_of(ARENA, 16 * 4096), whole * 16 / 64);
    assert_bytes(weight_of(ARENA + 24 * 4096, 40 * 4096), whole * 40 / 64);
    assert_bytes((double)freed_of_site_3(), whole * 8 / 64);
    assert_int_equal(heap_process.table->header.ends, 0);
}

static void mapping_cut_by_munmap_to_one_page_counts_as_one_page(void **state)
{
    struct live_sample large = mapping;

    (void)state;
    large.size = UINT64_C(1) << 40;
    assert_true(live_add(at(ARENA), &large));
    live_cut(ARENA + 4096, ((size_t)1 << 40) - 4096);
    assert_bytes(weight_of(ARENA, 4096), 4096);
    assert_bytes((double)freed_of_site_3(), 0x1p40);
}

static void munmap_trims_or_removes_every_mapping_in_the_range(void **state)
{
    (void)state;
    assert_true(live_add(at(ARENA), &mapping));
    live_cut(ARENA - 4096, 2 * 4096);
    weight_of(ARENA + 4096, 63 * 4096);
    live_cut(ARENA + 63 * 4096, 100 * 4096);
    weight_of(ARENA + 4096, 62 * 4096);
    for (uint64_t i = 1; i < 100; i++)
        assert_true(live_add(at(ARENA + i * 4096 * 64), &mapping));
    live_cut(ARENA, 100 * 64 * 4096);
    assert_int_equal(count_entries(), 0);
    assert_int_equal(heap_process.table->header.ends, 100);
    assert_true(filter_is_empty());
}

static void munmap_rounds_up_to_pages_but_keeps_adjacent_mappings(void **state)
{
    struct live_sample odd = mapping;

    (void)state;
    odd.size = 5000;
    assert_true(live_add(at(ARENA), &odd));
    assert_true(live_add(at(ARENA + 8192), &mapping));
    assert_true(live_add(at(ARENA - mapping.size), &mapping));
    live_cut(ARENA, 4097);
    assert_int_equal(count_entries(), 2);
    weight_of(ARENA + 8192, mapping.size);
    weight_of(ARENA - mapping.size, mapping.size);
}

static void munmap_does_not_end_samples_that_are_not_mappings(void **state)
{
    struct live_sample ret;

    (void)state;
    assert_true(live_add(at(ARENA), &mapping));
    assert_true(live_end(at(ARENA), &ret));
    assert_true(live_add(at(ARENA), &small));
    assert_int_equal(heap_process.table->header.live_high, 1);
    live_cut(ARENA, 1 << 20);
    live_cut(ARENA, 0);
    assert_true(live_find(at(ARENA), &ret));
    assert_int_equal(freed_of_site_3(), 0);
}

/* ---- lookups without a table ---- */

static void live_lookup_finds_no_sample_after_reset_or_without_a_table(void **state)
{
    struct live_sample ret;
    uint64_t random = 1;
    struct heap_table *table = heap_process.table;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        assert_true(live_add(at(ARENA + i * 16), &mapping));
    live_reset();
    assert_true(filter_is_empty());
    assert_false(live_find(at(ARENA), &ret));
    heap_process.table = NULL;
    assert_false(live_add(at(ARENA), &small));
    assert_false(live_find(at(ARENA), &ret));
    assert_false(live_end(at(ARENA), &ret));
    live_thin(&random);
    live_cut(ARENA, 4096);
    assert_true(filter_is_empty());
    heap_process.table = table;
}

static void reset_in_a_sandboxed_process_removes_all_live_samples(void **state)
{
    struct live_sample ret;

    (void)state;
    assert_true(live_add(at(ARENA), &small));
    atomic_store(&heap_process.is_confined, 1);
    live_reset();
    assert_true(filter_is_empty());
    assert_false(live_find(at(ARENA), &ret));
}

static void strings_are_stored_until_the_string_section_is_full(void **state)
{
    static char large[HEAP_TEXT_BYTES];
    struct heap_table *t = heap_process.table;
    struct heap_text a = heap_text_add(t, "one", 3), b = heap_text_add(t, "second", 6);

    (void)state;
    assert_int_equal(a.len, 3);
    assert_memory_equal(t->text + a.at, "one", 3);
    assert_memory_equal(t->text + b.at, "second", 6);
    assert_int_equal(heap_text_add(t, "", 0).len, 0);
    assert_int_equal(drops(HEAP_DROP_TEXT), 0);
    assert_int_equal(heap_text_add(t, large, sizeof(large) - 8).len, 0);
    assert_int_equal(heap_text_add(t, large, SIZE_MAX).len, 0);
    assert_int_equal(drops(HEAP_DROP_TEXT), 2);
    assert_int_equal(heap_text_add(t, large, sizeof(large) - 9).at, 9);
    assert_int_equal(heap_text_add(t, "x", 1).len, 0);
}

#define FRESH(test) cmocka_unit_test_setup_teardown(test, fresh_table, drop_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(added_live_sample_is_returned_unchanged),
        FRESH(unsampled_pointer_with_a_filter_bit_of_a_sample_is_not_found),
        FRESH(filter_bit_is_cleared_when_the_last_sample_with_that_bit_ends),
        FRESH(full_bucket_refuses_new_samples_and_keeps_old_ones),
        FRESH(full_bucket_in_a_nearly_empty_table_is_not_thinned),
        FRESH(allocation_at_the_address_of_an_old_sample_ends_that_sample),
        FRESH(reused_entry_of_live_sample_table_gets_a_new_generation),
        FRESH(live_table_can_be_filled_almost_completely),
        FRESH(full_live_table_refuses_new_samples),
        FRESH(thinning_makes_room_and_keeps_the_estimated_live_bytes),
        FRESH(samples_kept_by_thinning_have_the_raised_interval),
        FRESH(thinning_keeps_all_large_samples),
        FRESH(mapping_unmapped_in_the_middle_becomes_two_mappings),
        FRESH(mapping_cut_by_munmap_to_one_page_counts_as_one_page),
        FRESH(munmap_trims_or_removes_every_mapping_in_the_range),
        FRESH(munmap_rounds_up_to_pages_but_keeps_adjacent_mappings),
        FRESH(munmap_does_not_end_samples_that_are_not_mappings),
        FRESH(live_lookup_finds_no_sample_after_reset_or_without_a_table),
        FRESH(reset_in_a_sandboxed_process_removes_all_live_samples),
        FRESH(strings_are_stored_until_the_string_section_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
