/* The ledger adds up to RSS whatever was measured, and never to more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "diagnose/story.h"

static struct story s;

static int begin(void **state)
{
    (void)state;
    story_begin(&s);
    return 0;
}

static int end(void **state)
{
    (void)state;
    story_end(&s);
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

static void expect_bytes(double is, double wanted)
{
    if (fabs(is - wanted) > 1)
        fail_msg("%.0f bytes, not %.0f", is, wanted);
}

static void without_kinds_all_of_it_is_unexplained(void **state)
{
    (void)state;
    story_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(900), 200);
    make();
    assert_int_equal(s.ledger.count, 1);
    expect_bytes(ledger_now(&s.ledger, LEDGER_UNEXPLAINED), MIB(900));
    expect_bytes(s.ledger.named_growth_share * 100, 0);
}

static void kinds_of_the_kernel_are_taken_first(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_field(&s, 0, SAMPLE_FILE, MIB(100), MIB(150), 200);
    story_field(&s, 0, SAMPLE_SHMEM, MIB(10), MIB(60), 200);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_FILES), MIB(50));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_SHARED), MIB(50));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(300));
}

static void what_no_object_has_of_python_s_arenas_is_their_own_entry(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(200), MIB(250), VERDICT_STABLE);
    s.f.heap.start_spare = MIB(10);
    s.f.heap.now_spare = MIB(310);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_ARENAS), MIB(300));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(50));
    expect_bytes(ledger_beside_growth(&s.ledger), MIB(350));
}

static void arenas_that_were_not_counted_are_no_entry(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(200), MIB(250), VERDICT_STABLE);
    s.f.heap.start_spare = s.f.heap.now_spare = (double)NAN;
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(350));
}

static void what_came_with_huge_pages_and_has_no_other_name_is_theirs(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_field(&s, 0, SAMPLE_HUGE, MIB(0), MIB(300), 200);
    story_row(&s, "a.py", MIB(200), MIB(250), VERDICT_STABLE);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HUGE), MIB(300));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(50));
}

/* Where all memory is in huge pages they say nothing of what came since. */
static void huge_pages_that_were_there_before_do_not_grow(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_field(&s, 0, SAMPLE_HUGE, MIB(480), MIB(490), 200);
    story_row(&s, "a.py", MIB(200), MIB(250), VERDICT_STABLE);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HUGE), MIB(10));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(340));
}

static void what_lives_in_huge_pages_is_the_heap_s(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_field(&s, 0, SAMPLE_HUGE, MIB(400), MIB(800), 200);
    story_row(&s, "a.py", MIB(450), MIB(850), VERDICT_LEAKING);
    make();
    expect_bytes(ledger_live_growth(&s.ledger), MIB(400));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HUGE), 0);
}

/* Half of what malloc has is alive, by pages that were counted. */
static void tell_heap_pages(double start, double now)
{
    story_memory(&s, MIB(500), MIB(900), 200);
    story_field(&s, 0, SAMPLE_HEAP, start, now, 200);
    story_row(&s, "a.py", MIB(200), MIB(400), VERDICT_LEAKING);
    s.f.heap.start_malloc = s.f.heap.start_inside = MIB(200);
    s.f.heap.now_malloc = s.f.heap.now_inside = MIB(400);
}

static void pages_of_malloc_s_heap_that_nothing_lives_in_are_retained(void **state)
{
    (void)state;
    tell_heap_pages(MIB(220), MIB(590));
    make();
    expect_bytes(ledger_now(&s.ledger, LEDGER_RETAINED), MIB(190));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(170));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(30));
    assert_true(s.ledger.knows_retained && s.ledger.is_by_pages);
}

/* A count takes seconds, and lags behind a process that grows. */
static void a_count_that_lags_is_brought_up_to_the_moment(void **state)
{
    (void)state;
    tell_heap_pages(MIB(170), MIB(540));
    story_field(&s, 0, SAMPLE_UNIQUE, MIB(450), MIB(820), 200); /* 50 and 80 MiB behind */
    story_field(&s, 0, SAMPLE_FILE, 0, 0, 200);
    story_field(&s, 0, SAMPLE_SHMEM, 0, 0, 200);
    make();
    if (fabs(ledger_growth(&s.ledger, LEDGER_RETAINED) - MIB(200)) > MIB(12))
        fail_msg("%.0f MiB", ledger_growth(&s.ledger, LEDGER_RETAINED) / MIB(1));
}

/* It counts what it gave away as free, too; and is asked seldom where that takes long. */
static void pages_are_believed_before_the_allocator(void **state)
{
    (void)state;
    tell_heap_pages(MIB(220), MIB(590));
    story_figure(&s, "heap_live_bytes", MIB(200), MIB(400));
    story_figure(&s, "heap_free_bytes", MIB(20), MIB(60));
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(170));
}

static void a_heap_that_cannot_hold_what_lives_is_another_allocator_s(void **state)
{
    (void)state;
    tell_heap_pages(MIB(10), MIB(10));
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(200));
    assert_false(s.ledger.knows_retained || s.ledger.is_by_pages);
}

static void stacks_are_an_entry_of_their_own(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_field(&s, 0, SAMPLE_STACK, MIB(10), MIB(310), 200);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_STACKS), MIB(300));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(100));
}

/* A buffer that was asked for at once and is filled bit by bit. */
static void what_was_asked_for_in_a_large_piece_and_is_written_later_is_named(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(300), MIB(300), VERDICT_STABLE);
    story_row(&s, "buffer.py", MIB(600), MIB(600), VERDICT_STABLE);
    s.rows[1].live_objects = 1;
    make();
    expect_bytes(ledger_live_growth(&s.ledger), 0);
    expect_bytes(ledger_growth(&s.ledger, LEDGER_TOUCHED), MIB(400));
    assert_ptr_equal(ledger_site(&s.ledger, LEDGER_TOUCHED), &s.rows[1]);
}

static void small_pieces_are_not_written_later(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(900), MIB(900), VERDICT_STABLE);
    s.rows[0].live_objects = 1e6;
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_TOUCHED), 0);
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(400));
}

static void what_sampling_may_have_added_was_not_asked_for(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "buffer.py", MIB(700), MIB(700), VERDICT_STABLE);
    s.rows[0].live_objects = 1;
    s.f.heap.sigma = MIB(150);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_TOUCHED), 0);
}

static void call_sites_are_named_and_the_most_growth_is_first(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(200), MIB(200), VERDICT_STABLE);
    story_row(&s, "b.py", MIB(100), MIB(490), VERDICT_LEAKING);
    make();
    assert_int_equal(s.ledger.entries[0].kind, LEDGER_HEAP_SITE);
    assert_ptr_equal(s.ledger.entries[0].site, &s.rows[1]);
    expect_bytes(ledger_live_growth(&s.ledger), MIB(390));
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 1), MIB(390));
    assert_int_equal(s.ledger.entries[s.ledger.count - 1].kind, LEDGER_UNEXPLAINED);
}

/* Nobody said that the allocator has it. */
static void what_is_beside_the_call_sites_is_unexplained(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(300), MIB(500), VERDICT_LEAKING);
    make();
    assert_false(s.ledger.knows_retained);
    expect_bytes(ledger_now(&s.ledger, LEDGER_RETAINED), 0);
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(200));
    expect_bytes(ledger_beside_growth(&s.ledger), MIB(200));
    expect_bytes(s.ledger.named_growth_share * 100, 50);
}

/* Of 400 MiB the allocator has 145 more in use and keeps 85 more; what else has come is nobody's.
 */
static void retained_is_what_the_allocator_says_and_not_the_remainder(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(10), MIB(150), VERDICT_LEAKING);
    story_figure(&s, "heap_live_bytes", MIB(15), MIB(160));
    story_figure(&s, "heap_free_bytes", MIB(5), MIB(90));
    s.f.heap.sigma = MIB(10);
    make();
    assert_true(s.ledger.knows_retained);
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(85));
    expect_bytes(ledger_beside_growth(&s.ledger), MIB(85));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(170));
}

/* Sampling saw 80 of 145 MiB: the allocator's own count has no such error. */
static void what_the_allocator_has_in_use_corrects_what_was_sampled(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(100), MIB(180), VERDICT_LEAKING);
    story_row(&s, "b.py", MIB(100), MIB(100), VERDICT_STABLE);
    story_figure(&s, "heap_live_bytes", MIB(200), MIB(345));
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), MIB(145));
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 1), 0);
    expect_bytes(ledger_live_growth(&s.ledger), MIB(145));
}

/* A batch was alive when the heap was read, and not when the allocator was asked. */
static void a_site_is_not_made_to_hold_more_than_twice_of_what_was_seen(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(100), MIB(110), VERDICT_STABLE);
    story_figure(&s, "heap_live_bytes", MIB(100), MIB(400));
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), MIB(20));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HEAP_OTHER), MIB(280));
    s.f.n_figures = 0;
    story_figure(&s, "heap_live_bytes", MIB(100), MIB(50));
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), -MIB(50));
}

static void what_is_free_and_has_no_room_in_rss_may_not_be_resident(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(600), 200);
    story_row(&s, "a.py", MIB(400), MIB(400), VERDICT_STABLE);
    story_figure(&s, "heap_live_bytes", MIB(400), MIB(400));
    story_figure(&s, "heap_free_bytes", MIB(50), MIB(270));
    make();
    for (size_t i = 0; i < s.ledger.count; i++)
        if (s.ledger.entries[i].kind == LEDGER_RETAINED) {
            expect_bytes(s.ledger.entries[i].now_bytes, MIB(200));
            expect_bytes(s.ledger.entries[i].low_bytes, MIB(130));
        }
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(150));
}

/* Small Python objects and mappings are no part of what malloc has. */
static void what_did_not_come_from_malloc_is_not_taken_from_the_allocator(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(100), MIB(400), VERDICT_LEAKING);
    s.f.heap.start_malloc = MIB(50);
    s.f.heap.now_malloc = MIB(50);
    story_figure(&s, "heap_live_bytes", MIB(50), MIB(50));
    story_figure(&s, "heap_free_bytes", MIB(10), MIB(110));
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(100));
    expect_bytes(s.ledger.named_growth_share * 100, 100);
}

/* It was last asked when 80 MiB were still to come. */
static void an_allocator_that_was_asked_before_is_brought_up_to_date_by_sampling(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(100), MIB(400), VERDICT_LEAKING);
    story_figure(&s, "heap_live_bytes", MIB(110), MIB(330));
    s.f.heap.now_drift = MIB(80);
    make();
    expect_bytes(ledger_live_growth(&s.ledger), MIB(300));
}

/* 24 bytes take 32. */
static void what_python_rounds_up_is_resident_too(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", 0, MIB(300), VERDICT_LEAKING);
    s.f.heap.now_malloc = 0;
    s.f.heap.now_rounding = MIB(100);
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), MIB(400));
    expect_bytes(s.ledger.named_growth_share * 100, 100);
}

static void without_a_profile_the_allocators_count_of_free_memory_is_it(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    story_figure(&s, "heap_free_bytes", MIB(20), MIB(400));
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_RETAINED), MIB(380));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(20));
}

/* Asked for and never touched. */
static void more_than_is_resident_is_not_given_to_call_sites(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(100), MIB(4000), VERDICT_LEAKING);
    story_row(&s, "b.py", MIB(100), MIB(500), VERDICT_LEAKING);
    make();
    assert_true(ledger_now(&s.ledger, LEDGER_HEAP_SITE) <= MIB(900) + 1);
    assert_true(s.ledger.entries[0].high_bytes <= MIB(900) + 1);
}

/* Sampling may see more alive than is resident, and at one moment more so than at the other. */
static void a_site_that_stays_does_not_grow_by_being_made_smaller(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_row(&s, "a.py", MIB(550), MIB(550), VERDICT_STABLE);
    story_row(&s, "b.py", 0, MIB(300), VERDICT_LEAKING);
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), 0);
    assert_true(ledger_row_growth(&s.f, &s.ledger, 1) > MIB(250));
}

/* A library that reserves 512 MiB and never touches them, in a process that comes to have room for
 * them. */
static void what_was_never_touched_does_not_become_resident_with_growth(void **state)
{
    (void)state;
    story_memory(&s, MIB(1700), MIB(14700), 200);
    story_row(&s, "/lib/scipy.py", MIB(512), MIB(512), VERDICT_STABLE);
    story_row(&s, "/lib/torch.py", MIB(1400), MIB(1400), VERDICT_STABLE);
    story_row(&s, "/job/collate.py", MIB(300), MIB(13200), VERDICT_PLATEAUED);
    make();
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), 0);
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 1), 0);
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 2), MIB(12900));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HEAP_OTHER), 0);
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(100));
}

static void the_allocators_count_and_a_census_name_a_part(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_figure(&s, "heap_live_bytes", MIB(300), MIB(600));
    story_census(&s, MIB(60), 0, false);
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_HEAP), MIB(300));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_OBJECTS), MIB(60));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNEXPLAINED), MIB(40));
}

static void pinned_memory_is_not_counted_as_shared_too(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(900), 200);
    story_field(&s, 0, SAMPLE_SHMEM, MIB(100), MIB(400), 200);
    story_figure(&s, "pinned_host_bytes", MIB(50), MIB(350));
    make();
    expect_bytes(ledger_now(&s.ledger, LEDGER_PINNED), MIB(350));
    expect_bytes(ledger_now(&s.ledger, LEDGER_SHARED), MIB(50));
}

/* 400 MiB pinned through shared mappings of which the profiler knows the line. */
static void it_pins(void)
{
    story_memory(&s, MIB(500), MIB(900), 200);
    story_field(&s, 0, SAMPLE_ANON, MIB(470), MIB(470), 200);
    story_field(&s, 0, SAMPLE_SHMEM, MIB(30), MIB(430), 200);
    story_row(&s, "/job/train.py", MIB(300), MIB(300), VERDICT_STABLE);
    story_row(&s, "/job/pin.py", MIB(10), MIB(410), VERDICT_LEAKING);
    s.row_mapped[1] = 1;
    s.f.heap.start_malloc = s.f.heap.now_malloc = MIB(300);
}

static void what_is_mapped_as_shared_memory_is_no_heap(void **state)
{
    (void)state;
    it_pins();
    story_figure(&s, "pinned_host_bytes", MIB(10), MIB(410));
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_PINNED), MIB(400));
    assert_ptr_equal(ledger_site(&s.ledger, LEDGER_PINNED), &s.rows[1]);
    assert_null(ledger_site(&s.ledger, LEDGER_SHARED));
    expect_bytes(ledger_live_growth(&s.ledger), 0);
    expect_bytes(ledger_now(&s.ledger, LEDGER_HEAP_SITE), MIB(300));
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 0), 0);
    expect_bytes(ledger_row_growth(&s.f, &s.ledger, 1), MIB(400));
}

static void shared_memory_that_is_not_pinned_has_its_line_too(void **state)
{
    (void)state;
    it_pins();
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_SHARED), MIB(400));
    assert_ptr_equal(ledger_site(&s.ledger, LEDGER_SHARED), &s.rows[1]);
    expect_bytes(ledger_live_growth(&s.ledger), 0);
}

/* There is room for it in anonymous memory: what is shared came from elsewhere. */
static void what_is_mapped_for_itself_is_heap_although_shared_memory_grows(void **state)
{
    (void)state;
    it_pins();
    story_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(1300), 200);
    story_field(&s, 0, SAMPLE_ANON, MIB(470), MIB(870), 200);
    make();
    assert_null(ledger_site(&s.ledger, LEDGER_SHARED));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_SHARED), MIB(400));
    expect_bytes(ledger_live_growth(&s.ledger), MIB(400));
}

/* Nor is what malloc gave, however much the kernel counts as shared. */
static void what_was_not_mapped_is_never_shared(void **state)
{
    (void)state;
    it_pins();
    s.row_mapped[1] = 0;
    make();
    assert_null(ledger_site(&s.ledger, LEDGER_SHARED));
}

/* Kinds were last read 40 s ago, and 80 MiB were pinned since. */
static void what_was_pinned_since_kinds_were_read_is_not_taken_from_shared_memory(void **state)
{
    (void)state;
    it_pins();
    story_figure(&s, "pinned_host_bytes", MIB(20), MIB(400));
    for (size_t i = 0; i < STORY_POINTS; i++)
        s.v[0][SAMPLE_SHMEM][i] = i <= 162 ? s.figure_v[0][i] + MIB(10) : (double)NAN;
    make();
    expect_bytes(ledger_now(&s.ledger, LEDGER_PINNED), MIB(400));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_SHARED), 0);
}

static void a_workers_memory_is_its_parents_until_it_writes(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(500), 200);
    story_field(&s, 0, SAMPLE_UNIQUE, MIB(5), MIB(150), 200);
    s.processes[0].role = ROLE_DATA_WORKER;
    make();
    expect_bytes(ledger_growth(&s.ledger, LEDGER_UNSHARED), MIB(145));
    expect_bytes(ledger_growth(&s.ledger, LEDGER_SHARED), -MIB(145));
    assert_true(isnan(s.ledger.named_growth_share));
}

static void memory_that_shrinks_adds_up_too(void **state)
{
    (void)state;
    story_memory(&s, MIB(900), MIB(200), 200);
    story_row(&s, "a.py", MIB(600), MIB(300), VERDICT_STABLE);
    make();
    assert_true(isnan(s.ledger.named_growth_share));
}

static void nothing_read_is_no_ledger(void **state)
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
        T(without_kinds_all_of_it_is_unexplained),
        T(kinds_of_the_kernel_are_taken_first),
        T(what_no_object_has_of_python_s_arenas_is_their_own_entry),
        T(arenas_that_were_not_counted_are_no_entry),
        T(what_came_with_huge_pages_and_has_no_other_name_is_theirs),
        T(pages_of_malloc_s_heap_that_nothing_lives_in_are_retained),
        T(a_count_that_lags_is_brought_up_to_the_moment),
        T(pages_are_believed_before_the_allocator),
        T(a_heap_that_cannot_hold_what_lives_is_another_allocator_s),
        T(stacks_are_an_entry_of_their_own),
        T(huge_pages_that_were_there_before_do_not_grow),
        T(what_lives_in_huge_pages_is_the_heap_s),
        T(what_was_asked_for_in_a_large_piece_and_is_written_later_is_named),
        T(small_pieces_are_not_written_later),
        T(what_sampling_may_have_added_was_not_asked_for),
        T(call_sites_are_named_and_the_most_growth_is_first),
        T(what_is_beside_the_call_sites_is_unexplained),
        T(retained_is_what_the_allocator_says_and_not_the_remainder),
        T(what_the_allocator_has_in_use_corrects_what_was_sampled),
        T(a_site_is_not_made_to_hold_more_than_twice_of_what_was_seen),
        T(what_is_free_and_has_no_room_in_rss_may_not_be_resident),
        T(what_did_not_come_from_malloc_is_not_taken_from_the_allocator),
        T(an_allocator_that_was_asked_before_is_brought_up_to_date_by_sampling),
        T(what_python_rounds_up_is_resident_too),
        T(without_a_profile_the_allocators_count_of_free_memory_is_it),
        T(more_than_is_resident_is_not_given_to_call_sites),
        T(a_site_that_stays_does_not_grow_by_being_made_smaller),
        T(what_was_never_touched_does_not_become_resident_with_growth),
        T(the_allocators_count_and_a_census_name_a_part),
        T(pinned_memory_is_not_counted_as_shared_too),
        T(what_is_mapped_as_shared_memory_is_no_heap),
        T(shared_memory_that_is_not_pinned_has_its_line_too),
        T(what_is_mapped_for_itself_is_heap_although_shared_memory_grows),
        T(what_was_not_mapped_is_never_shared),
        T(what_was_pinned_since_kinds_were_read_is_not_taken_from_shared_memory),
        T(a_workers_memory_is_its_parents_until_it_writes),
        T(memory_that_shrinks_adds_up_too),
        T(nothing_read_is_no_ledger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
