/* Tests that the memory ledger adds up to RSS for any set of measurements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "diagnose/synthetic.h"

static struct synthetic s;

static int begin(void **state)
{
    (void)state;
    synthetic_begin(&s);
    return 0;
}

static int end(void **state)
{
    (void)state;
    synthetic_end(&s);
    return 0;
}

static void make(void)
{
    double start = 0, now = 0;
    ledger_make(&s.f, &s.ledger);
    for (size_t i = 0; i < s.ledger.count; i++) {
        const struct ledger_entry *e = &s.ledger.entries[i];
        assert_true(e->now_bytes >= 0 && e->start_bytes >= 0);
        assert_true(e->low_bytes <= e->now_bytes && e->now_bytes <= e->high_bytes);
        start += e->start_bytes;
        now += e->now_bytes;
    }
    assert_true(fabs(start - s.ledger.rss_start_bytes) < 1);
    assert_true(fabs(now - s.ledger.rss_now_bytes) < 1);
}

static double now_bytes(enum ledger_kind kind)
{
    double sum = 0;
    for (size_t i = 0; i < s.ledger.count; i++)
        sum += s.ledger.entries[i].kind == kind ? s.ledger.entries[i].now_bytes : 0;
    return sum;
}

static void expect_bytes(double is, double wanted)
{
    if (fabs(is - wanted) > 1)
        fail_msg("%.0f bytes, not %.0f", is, wanted);
}

static void ledger_without_a_breakdown_leaves_all_memory_unexplained(void **state)
{
    (void)state;
    synthetic_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(900), 200);
    make();
    assert_int_equal(s.ledger.count, 1);
    expect_bytes(now_bytes(LEDGER_UNEXPLAINED), MIB(900));
    expect_bytes(s.ledger.named_growth_share * 100, 0);
}

static void ledger_subtracts_file_and_shared_pages_first(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_field(&s, 0, SAMPLE_FILE, MIB(100), MIB(150), 200);
    synthetic_field(&s, 0, SAMPLE_SHMEM, MIB(10), MIB(60), 200);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_FILES), MIB(50));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_SHARED), MIB(50));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(300));
}

static void ledger_has_an_entry_for_unused_python_arena_memory(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(200), MIB(250), VERDICT_STABLE);
    s.f.heap.start.spare = MIB(10);
    s.f.heap.now.spare = MIB(310);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_ARENAS), MIB(300));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(50));
    expect_bytes(ledger_beside_growth(&s.ledger), MIB(350));
}

static void arena_entry_of_the_ledger_is_empty_if_unused_memory_is_unknown(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(200), MIB(250), VERDICT_STABLE);
    s.f.heap.start.spare = s.f.heap.now.spare = (double)NAN;
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(350));
}

static void ledger_attributes_growth_beyond_call_sites_to_huge_pages(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_field(&s, 0, SAMPLE_HUGE, MIB(0), MIB(300), 200);
    synthetic_row(&s, "a.py", MIB(200), MIB(250), VERDICT_STABLE);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HUGE), MIB(300));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(50));
}

/* Huge pages contain nearly all memory from the start, so they do not explain the growth. */
static void constant_huge_pages_are_not_counted_as_growth(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_field(&s, 0, SAMPLE_HUGE, MIB(480), MIB(490), 200);
    synthetic_row(&s, "a.py", MIB(200), MIB(250), VERDICT_STABLE);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HUGE), MIB(10));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(340));
}

static void live_memory_in_huge_pages_is_part_of_the_live_heap(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_field(&s, 0, SAMPLE_HUGE, MIB(400), MIB(800), 200);
    synthetic_row(&s, "a.py", MIB(450), MIB(850), VERDICT_LEAKING);
    make();
    expect_bytes(ledger_live_growth(&s.ledger), MIB(400));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HUGE), 0);
}

/* Sets the resident bytes of malloc's heaps to START and NOW. The live memory in these heaps grows
 * from 200 to 400 MiB. */
static void set_heap_pages(double start, double now)
{
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_field(&s, 0, SAMPLE_HEAP, start, now, 200);
    synthetic_row(&s, "a.py", MIB(200), MIB(400), VERDICT_LEAKING);
    s.f.heap.start.malloc = s.f.heap.start.inside = MIB(200);
    s.f.heap.now.malloc = s.f.heap.now.inside = MIB(400);
}

static void heap_pages_without_live_memory_are_retained_memory(void **state)
{
    (void)state;
    set_heap_pages(MIB(220), MIB(590));
    make();
    expect_bytes(now_bytes(LEDGER_RETAINED), MIB(190));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(170));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(30));
    assert_true(s.ledger.knows_retained && s.ledger.is_by_pages);
}

/* Counting pages takes seconds, so the count is outdated while the process grows. */
static void outdated_count_of_heap_pages_is_corrected_by_newer_samples(void **state)
{
    (void)state;
    set_heap_pages(MIB(170), MIB(540));
    /* the page counts are too low, by 50 MiB at the start and by 80 MiB at the end */
    synthetic_field(&s, 0, SAMPLE_UNIQUE, MIB(450), MIB(820), 200);
    synthetic_field(&s, 0, SAMPLE_FILE, 0, 0, 200);
    synthetic_field(&s, 0, SAMPLE_SHMEM, 0, 0, 200);
    make();
    if (fabs(ledger_growth(&s.ledger, LEDGER_RETAINED) - MIB(200)) > MIB(12))
        fail_msg("%.0f MiB", ledger_growth(&s.ledger, LEDGER_RETAINED) / MIB(1));
}

/* The allocator's free count is less accurate than page counts: it includes memory that was
 * returned to the system, and it is outdated if queries are slow and therefore rare. */
static void retained_memory_is_based_on_page_counts_if_known(void **state)
{
    (void)state;
    set_heap_pages(MIB(220), MIB(590));
    synthetic_figure(&s, "heap_live_bytes", MIB(200), MIB(400));
    synthetic_figure(&s, "heap_free_bytes", MIB(20), MIB(60));
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(170));
}

static void heap_page_count_below_the_live_memory_is_ignored(void **state)
{
    (void)state;
    set_heap_pages(MIB(10), MIB(10));
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(200));
    assert_false(s.ledger.knows_retained || s.ledger.is_by_pages);
}

static void ledger_has_an_entry_for_stacks(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_field(&s, 0, SAMPLE_STACK, MIB(10), MIB(310), 200);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_STACKS), MIB(300));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(100));
}

/* A buffer is allocated at once and written to gradually. */
static void ledger_names_the_call_site_of_a_block_that_is_filled_later(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(300), MIB(300), VERDICT_STABLE);
    synthetic_row(&s, "buffer.py", MIB(600), MIB(600), VERDICT_STABLE);
    s.rows[1].live_objects = 1;
    make();
    expect_bytes(ledger_live_growth(&s.ledger), 0);
    expect_bytes(ledger_growth(&s.ledger, LEDGER_TOUCHED), MIB(400));
    assert_ptr_equal(ledger_site(&s.ledger, LEDGER_TOUCHED), &s.rows[1]);
}

static void growth_by_late_writes_is_not_attributed_to_small_blocks(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(900), MIB(900), VERDICT_STABLE);
    s.rows[0].live_objects = 1e6;
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_TOUCHED), 0);
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(400));
}

static void growth_is_not_attributed_to_late_writes_if_sampling_error_is_large(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "buffer.py", MIB(700), MIB(700), VERDICT_STABLE);
    s.rows[0].live_objects = 1;
    s.f.heap.sigma = MIB(150);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_TOUCHED), 0);
}

static void ledger_orders_call_sites_by_growth(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(200), MIB(200), VERDICT_STABLE);
    synthetic_row(&s, "b.py", MIB(100), MIB(490), VERDICT_LEAKING);
    make();
    assert_int_equal(s.ledger.entries[0].kind, LEDGER_HEAP_SITE);
    assert_ptr_equal(s.ledger.entries[0].site, &s.rows[1]);
    expect_bytes(ledger_live_growth(&s.ledger), MIB(390));
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 1), MIB(390));
    assert_int_equal(s.ledger.entries[s.ledger.count - 1].kind, LEDGER_UNEXPLAINED);
}

/* The allocator's counts are missing, so it is unknown how much memory is retained. */
static void growth_that_no_measurement_covers_is_unexplained(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(300), MIB(500), VERDICT_LEAKING);
    make();
    assert_false(s.ledger.knows_retained);
    expect_bytes(now_bytes(LEDGER_RETAINED), 0);
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(200));
    expect_bytes(ledger_beside_growth(&s.ledger), MIB(200));
    expect_bytes(s.ledger.named_growth_share * 100, 50);
}

/* Of 400 MiB, 145 MiB is live, 85 MiB is retained according to the allocator, and the rest is
 * unexplained. */
static void retained_memory_equals_the_allocator_count_of_free_memory(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(10), MIB(150), VERDICT_LEAKING);
    synthetic_figure(&s, "heap_live_bytes", MIB(15), MIB(160));
    synthetic_figure(&s, "heap_free_bytes", MIB(5), MIB(90));
    s.f.heap.sigma = MIB(10);
    make();
    assert_true(s.ledger.knows_retained);
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(85));
    expect_bytes(ledger_beside_growth(&s.ledger), MIB(85));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(170));
}

/* Sampling found only 80 of the 145 MiB of growth; the allocator's own count has no such error. */
static void sampled_live_bytes_are_corrected_by_the_allocator_count(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(100), MIB(180), VERDICT_LEAKING);
    synthetic_row(&s, "b.py", MIB(100), MIB(100), VERDICT_STABLE);
    synthetic_figure(&s, "heap_live_bytes", MIB(200), MIB(345));
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), MIB(145));
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 1), 0);
    expect_bytes(ledger_live_growth(&s.ledger), MIB(145));
}

/* A batch was live when the heap was read, but not when the allocator was queried. */
static void sampling_correction_at_most_doubles_growth_of_a_call_site(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(100), MIB(110), VERDICT_STABLE);
    synthetic_figure(&s, "heap_live_bytes", MIB(100), MIB(400));
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), MIB(20));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HEAP_OTHER), MIB(280));
    s.f.n_figures = 0;
    synthetic_figure(&s, "heap_live_bytes", MIB(100), MIB(50));
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), -MIB(50));
}

static void free_heap_memory_beyond_rss_is_counted_as_not_resident(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(600), 200);
    synthetic_row(&s, "a.py", MIB(400), MIB(400), VERDICT_STABLE);
    synthetic_figure(&s, "heap_live_bytes", MIB(400), MIB(400));
    synthetic_figure(&s, "heap_free_bytes", MIB(50), MIB(270));
    make();
    for (size_t i = 0; i < s.ledger.count; i++)
        if (s.ledger.entries[i].kind == LEDGER_RETAINED) {
            expect_bytes(s.ledger.entries[i].now_bytes, MIB(200));
            expect_bytes(s.ledger.entries[i].low_bytes, MIB(130));
        }
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(150));
}

/* Small Python objects and mappings do not come from malloc. */
static void live_memory_from_mmap_is_added_to_the_allocator_count(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(100), MIB(400), VERDICT_LEAKING);
    s.f.heap.start.malloc = MIB(50);
    s.f.heap.now.malloc = MIB(50);
    synthetic_figure(&s, "heap_live_bytes", MIB(50), MIB(50));
    synthetic_figure(&s, "heap_free_bytes", MIB(10), MIB(110));
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(100));
    expect_bytes(s.ledger.named_growth_share * 100, 100);
}

/* 80 MiB was allocated after the last query of the allocator. */
static void growth_since_the_last_allocator_query_is_part_of_live_growth(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(100), MIB(400), VERDICT_LEAKING);
    synthetic_figure(&s, "heap_live_bytes", MIB(110), MIB(330));
    s.f.heap.now.drift = MIB(80);
    make();
    expect_bytes(ledger_live_growth(&s.ledger), MIB(300));
}

/* A Python object of 24 bytes occupies 32 bytes. */
static void ledger_includes_the_size_rounding_of_python_objects(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", 0, MIB(300), VERDICT_LEAKING);
    s.f.heap.now.malloc = 0;
    s.f.heap.now.rounding = MIB(100);
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), MIB(400));
    expect_bytes(s.ledger.named_growth_share * 100, 100);
}

static void live_heap_is_the_allocator_count_if_no_profile_exists(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    synthetic_figure(&s, "heap_free_bytes", MIB(20), MIB(400));
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(380));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(20));
}

/* Memory of a call site may have been allocated but never written to. */
static void bytes_of_all_call_sites_do_not_exceed_resident_memory(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(100), MIB(4000), VERDICT_LEAKING);
    synthetic_row(&s, "b.py", MIB(100), MIB(500), VERDICT_LEAKING);
    make();
    assert_true(now_bytes(LEDGER_HEAP_SITE) <= MIB(900) + 1);
    assert_true(s.ledger.entries[0].high_bytes <= MIB(900) + 1);
}

/* Sampling may find more live memory than is resident, with a different error at each reading. */
static void constant_call_site_shows_no_growth_despite_sampling_errors(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_row(&s, "a.py", MIB(550), MIB(550), VERDICT_STABLE);
    synthetic_row(&s, "b.py", 0, MIB(300), VERDICT_LEAKING);
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), 0);
    assert_true(ledger_row_growth(&s.f, &s.ledger, 1) > MIB(250));
}

/* A library reserves 512 MiB that it never writes to, while the process grows by more than that. */
static void large_untouched_site_does_not_hide_growth_of_another_site(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(1700), MIB(14700), 200);
    synthetic_row(&s, "/lib/scipy.py", MIB(512), MIB(512), VERDICT_STABLE);
    synthetic_row(&s, "/lib/torch.py", MIB(1400), MIB(1400), VERDICT_STABLE);
    synthetic_row(&s, "/job/collate.py", MIB(300), MIB(13200), VERDICT_PLATEAUED);
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), 0);
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 1), 0);
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 2), MIB(12900));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HEAP_OTHER), 0);
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(100));
}

static void ledger_without_a_profile_uses_allocator_count_and_census(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_figure(&s, "heap_live_bytes", MIB(300), MIB(600));
    synthetic_census(&s, MIB(60), 0, false);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HEAP), MIB(300));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_OBJECTS), MIB(60));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(40));
}

static void pinned_memory_is_not_counted_again_as_shared(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_field(&s, 0, SAMPLE_SHMEM, MIB(100), MIB(400), 200);
    synthetic_figure(&s, "pinned_host_bytes", MIB(50), MIB(350));
    make();
    expect_bytes(now_bytes(LEDGER_PINNED), MIB(350));
    expect_bytes(now_bytes(LEDGER_SHARED), MIB(50));
}

/* Pins 400 MiB through shared mappings whose call site is in the profile. */
static void pin_through_shared_mappings(void)
{
    synthetic_memory(&s, MIB(500), MIB(900), 200);
    synthetic_field(&s, 0, SAMPLE_ANON, MIB(470), MIB(470), 200);
    synthetic_field(&s, 0, SAMPLE_SHMEM, MIB(30), MIB(430), 200);
    synthetic_row(&s, "/job/train.py", MIB(300), MIB(300), VERDICT_STABLE);
    synthetic_row(&s, "/job/pin.py", MIB(10), MIB(410), VERDICT_LEAKING);
    s.sites[1].mapped_share = 1;
    s.f.heap.start.malloc = s.f.heap.now.malloc = MIB(300);
}

static void pinned_shared_mapping_of_a_call_site_is_not_heap_memory(void **state)
{
    (void)state;
    pin_through_shared_mappings();
    synthetic_figure(&s, "pinned_host_bytes", MIB(10), MIB(410));
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_PINNED), MIB(400));
    assert_ptr_equal(ledger_site(&s.ledger, LEDGER_PINNED), &s.rows[1]);
    assert_null(ledger_site(&s.ledger, LEDGER_SHARED));
    expect_bytes(ledger_live_growth(&s.ledger), 0);
    expect_bytes(now_bytes(LEDGER_HEAP_SITE), MIB(300));
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), 0);
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 1), MIB(400));
}

static void mapping_known_to_be_shared_is_never_part_of_the_heap(void **state)
{
    (void)state;
    pin_through_shared_mappings();
    synthetic_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(1400), 200);
    synthetic_field(&s, 0, SAMPLE_ANON, MIB(470), MIB(970), 200);
    s.sites[1].shared_share = 1;
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_SHARED), MIB(400));
    assert_ptr_equal(ledger_site(&s.ledger, LEDGER_SHARED), &s.rows[1]);
    expect_bytes(ledger_live_growth(&s.ledger), 0);
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(500));
}

static void ledger_names_the_call_site_of_unpinned_shared_memory(void **state)
{
    (void)state;
    pin_through_shared_mappings();
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_SHARED), MIB(400));
    assert_ptr_equal(ledger_site(&s.ledger, LEDGER_SHARED), &s.rows[1]);
    expect_bytes(ledger_live_growth(&s.ledger), 0);
}

/* Anonymous memory grows by as much as the mapping, so the mapping is treated as anonymous, and the
 * growth of shared memory has another origin. */
static void mapping_counts_as_heap_if_anonymous_memory_grows_equally(void **state)
{
    (void)state;
    pin_through_shared_mappings();
    synthetic_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(1300), 200);
    synthetic_field(&s, 0, SAMPLE_ANON, MIB(470), MIB(870), 200);
    make();
    assert_null(ledger_site(&s.ledger, LEDGER_SHARED));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_SHARED), MIB(400));
    expect_bytes(ledger_live_growth(&s.ledger), MIB(400));
}

/* Memory from malloc is never shared, even if the kernel counts shared memory. */
static void shared_memory_is_not_attributed_to_malloc_call_sites(void **state)
{
    (void)state;
    pin_through_shared_mappings();
    s.sites[1].mapped_share = 0;
    make();
    assert_null(ledger_site(&s.ledger, LEDGER_SHARED));
}

/* The breakdown of resident memory was last read 40 s ago, and 80 MiB has been pinned since
 * then. */
static void recently_pinned_memory_is_not_counted_as_shared_growth(void **state)
{
    (void)state;
    pin_through_shared_mappings();
    synthetic_figure(&s, "pinned_host_bytes", MIB(20), MIB(400));
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        s.v[0][SAMPLE_SHMEM][i] = i <= 162 ? s.figure_v[0][i] + MIB(10) : (double)NAN;
    synthetic_remove_nan(&s, SAMPLE_SHMEM);
    make();
    expect_bytes(now_bytes(LEDGER_PINNED), MIB(400));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_SHARED), 0);
}

static void shared_pages_that_a_worker_copies_count_as_unshared_growth(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(500), 200);
    synthetic_field(&s, 0, SAMPLE_UNIQUE, MIB(5), MIB(150), 200);
    s.processes[0].role = ROLE_DATA_WORKER;
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNSHARED), MIB(145));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_SHARED), -MIB(145));
    assert_true(isnan(s.ledger.named_growth_share));
}

static void ledger_of_shrinking_memory_adds_up_to_rss(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(900), MIB(200), 200);
    synthetic_row(&s, "a.py", MIB(600), MIB(300), VERDICT_STABLE);
    make();
    assert_true(isnan(s.ledger.named_growth_share));
}

static void ledger_of_a_run_without_samples_is_unknown(void **state)
{
    (void)state;
    ledger_make(&s.f, &s.ledger);
    assert_false(s.ledger.is_known);
    s.f.main = NULL;
    ledger_make(&s.f, &s.ledger);
    assert_false(s.ledger.is_known);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(ledger_without_a_breakdown_leaves_all_memory_unexplained),
        T(ledger_subtracts_file_and_shared_pages_first),
        T(ledger_has_an_entry_for_unused_python_arena_memory),
        T(arena_entry_of_the_ledger_is_empty_if_unused_memory_is_unknown),
        T(ledger_attributes_growth_beyond_call_sites_to_huge_pages),
        T(heap_pages_without_live_memory_are_retained_memory),
        T(outdated_count_of_heap_pages_is_corrected_by_newer_samples),
        T(retained_memory_is_based_on_page_counts_if_known),
        T(heap_page_count_below_the_live_memory_is_ignored),
        T(ledger_has_an_entry_for_stacks),
        T(constant_huge_pages_are_not_counted_as_growth),
        T(live_memory_in_huge_pages_is_part_of_the_live_heap),
        T(ledger_names_the_call_site_of_a_block_that_is_filled_later),
        T(growth_by_late_writes_is_not_attributed_to_small_blocks),
        T(growth_is_not_attributed_to_late_writes_if_sampling_error_is_large),
        T(ledger_orders_call_sites_by_growth),
        T(growth_that_no_measurement_covers_is_unexplained),
        T(retained_memory_equals_the_allocator_count_of_free_memory),
        T(sampled_live_bytes_are_corrected_by_the_allocator_count),
        T(sampling_correction_at_most_doubles_growth_of_a_call_site),
        T(free_heap_memory_beyond_rss_is_counted_as_not_resident),
        T(live_memory_from_mmap_is_added_to_the_allocator_count),
        T(growth_since_the_last_allocator_query_is_part_of_live_growth),
        T(ledger_includes_the_size_rounding_of_python_objects),
        T(live_heap_is_the_allocator_count_if_no_profile_exists),
        T(bytes_of_all_call_sites_do_not_exceed_resident_memory),
        T(constant_call_site_shows_no_growth_despite_sampling_errors),
        T(large_untouched_site_does_not_hide_growth_of_another_site),
        T(ledger_without_a_profile_uses_allocator_count_and_census),
        T(pinned_memory_is_not_counted_again_as_shared),
        T(pinned_shared_mapping_of_a_call_site_is_not_heap_memory),
        T(mapping_known_to_be_shared_is_never_part_of_the_heap),
        T(ledger_names_the_call_site_of_unpinned_shared_memory),
        T(mapping_counts_as_heap_if_anonymous_memory_grows_equally),
        T(shared_memory_is_not_attributed_to_malloc_call_sites),
        T(recently_pinned_memory_is_not_counted_as_shared_growth),
        T(shared_pages_that_a_worker_copies_count_as_unshared_growth),
        T(ledger_of_shrinking_memory_adds_up_to_rss),
        T(ledger_of_a_run_without_samples_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
