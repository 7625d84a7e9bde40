/* Hypotheses that show in what the kernel and drivers count, for, against, and without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "diagnose/tale.h"

static void growth_of_file_pages_is_page_cache(void **state)
{
    (void)state;
    it_is_flat();
    story_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(900), 200);
    story_field(&s, 0, SAMPLE_FILE, MIB(100), MIB(500), 200);
    expect(HYPOTHESIS_MAPPED_FILES, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_MAPPED_FILES);
}

static void a_few_file_pages_more_are_nothing_to_ask_about(void **state)
{
    (void)state;
    it_is_flat();
    story_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(515), 200);
    story_field(&s, 0, SAMPLE_FILE, MIB(100), MIB(115), 200);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void file_pages_that_stay_rule_page_cache_out(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_MAPPED_FILES, RULED_OUT);
    expect(HYPOTHESIS_SHARED_MEMORY, RULED_OUT);
}

static void without_kinds_of_memory_they_cannot_be_tested(void **state)
{
    (void)state;
    story_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(900), 200);
    expect(HYPOTHESIS_MAPPED_FILES, CANNOT_TEST);
    expect(HYPOTHESIS_SHARED_MEMORY, CANNOT_TEST);
    expect(HYPOTHESIS_SWAP, CANNOT_TEST);
}

static void growth_of_shared_memory_is_shared_memory(void **state)
{
    (void)state;
    it_leaks();
    story_field(&s, 0, SAMPLE_SHMEM, 0, MIB(380), 200);
    expect(HYPOTHESIS_SHARED_MEMORY, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_SHARED_MEMORY);
}

static void pinned_memory_is_told_by_torch_or_not_at_all(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_PINNED, CANNOT_TEST);
    story_figure(&s, "pinned_host_bytes", 0, MIB(350));
    expect(HYPOTHESIS_PINNED, NEARLY_CERTAIN);
    s.f.n_figures = 0;
    story_figure(&s, "pinned_host_bytes", MIB(10), MIB(10));
    expect(HYPOTHESIS_PINNED, RULED_OUT);
}

/* The driver pins shared mappings: one explanation, not two, and no heap that lets go. */
static void shared_memory_that_is_pinned_is_pinned_memory(void **state)
{
    (void)state;
    it_leaks();
    story_field(&s, 0, SAMPLE_ANON, MIB(480), MIB(480), 200);
    story_field(&s, 0, SAMPLE_SHMEM, MIB(20), MIB(420), 200);
    story_figure(&s, "pinned_host_bytes", MIB(5), MIB(405));
    story_figure(&s, "heap_live_bytes", MIB(200), MIB(200));
    story_figure(&s, "heap_free_bytes", MIB(10), MIB(10));
    story_row(&s, "/job/train.py", MIB(200), MIB(200), VERDICT_STABLE);
    story_row(&s, "/job/pin.py", MIB(5), MIB(405), VERDICT_LEAKING);
    s.row_mapped[1] = 1;
    s.f.heap.start_malloc = s.f.heap.now_malloc = MIB(200);
    expect_first(HYPOTHESIS_PINNED);
    assert_ptr_equal(s.ranked[0].site, &s.rows[1]);
    assert_true(story_says(&s.ranked[0], EVIDENCE_FOR, "it is mapped at pin.py:7"));
    expect(HYPOTHESIS_SHARED_MEMORY, RULED_OUT);
    expect(HYPOTHESIS_RETENTION, RULED_OUT);
    assert_true(story_ask(&s, HYPOTHESIS_AUTOGRAD)->word <= UNLIKELY);
}

static void swap_counts_only_where_something_was_swapped(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_SWAP, RULED_OUT);
    story_field(&s, 0, SAMPLE_SWAP, 0, MIB(400), 200);
    story_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(500), 200);
    expect(HYPOTHESIS_SWAP, NEARLY_CERTAIN);
}

static void huge_pages_are_ruled_out_only_where_they_are_off(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_THP, CANNOT_TEST);
    memcpy(s.f.thp, "never", 6);
    expect(HYPOTHESIS_THP, RULED_OUT);
    memcpy(s.f.thp, "always", 7);
    story_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    expect(HYPOTHESIS_THP, POSSIBLE);
}

static void memory_that_came_with_huge_pages_is_theirs_and_no_allocator_s(void **state)
{
    (void)state;
    it_leaks();
    story_verdict(&s, 0, VERDICT_PLATEAUED);
    memcpy(s.f.thp, "madvise", 8);
    story_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    story_field(&s, 0, SAMPLE_HUGE, 0, MIB(400), 200);
    expect(HYPOTHESIS_THP, NEARLY_CERTAIN);
    expect(HYPOTHESIS_RETENTION, RULED_OUT);
    expect_first(HYPOTHESIS_THP);
}

static void huge_pages_that_do_not_become_more_explain_nothing(void **state)
{
    (void)state;
    it_leaks();
    memcpy(s.f.thp, "madvise", 8);
    story_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    story_field(&s, 0, SAMPLE_HUGE, MIB(20), MIB(20), 200);
    expect(HYPOTHESIS_THP, RULED_OUT);
}

static void gpu_memory_that_grows_alone_is_the_gpu(void **state)
{
    (void)state;
    it_is_flat();
    expect(HYPOTHESIS_GPU, CANNOT_TEST);
    story_figure(&s, "cuda_allocated_bytes", MIB(100), MIB(900));
    expect(HYPOTHESIS_GPU, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_GPU);
}

static void the_gpu_grew(enum verdict_word word, double from, double to)
{
    it_is_flat();
    for (size_t i = 0; i < STORY_POINTS; i++)
        s.gpu_v[i] = i < 15 ? from : to;
    s.f.gpu_job = (struct facts_series){s.t_s, s.gpu_v, STORY_POINTS};
    s.f.gpu = (struct facts_verdict){.is_known = true, .word = word};
}

static void gpu_memory_that_came_with_the_start_is_no_growth(void **state)
{
    (void)state;
    the_gpu_grew(VERDICT_STABLE, MIB(700), MIB(908));
    expect(HYPOTHESIS_GPU, RULED_OUT);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void gpu_memory_that_has_stopped_is_asked_about_from_a_tenth_on(void **state)
{
    (void)state;
    the_gpu_grew(VERDICT_PLATEAUED, MIB(700), MIB(908));
    expect(HYPOTHESIS_GPU, NEARLY_CERTAIN);
    the_gpu_grew(VERDICT_PLATEAUED, MIB(700), MIB(760));
    expect(HYPOTHESIS_GPU, RULED_OUT);
}

static void gpu_memory_that_leaks_is_the_gpu(void **state)
{
    (void)state;
    the_gpu_grew(VERDICT_LEAKING, MIB(700), MIB(760));
    expect_first(HYPOTHESIS_GPU);
}

static void the_hosts_own_growth_rules_the_gpu_out(void **state)
{
    (void)state;
    it_leaks();
    story_figure(&s, "cuda_allocated_bytes", MIB(100), MIB(100));
    expect(HYPOTHESIS_GPU, RULED_OUT);
}

#define T(f) cmocka_unit_test_setup_teardown(f, tale_begin, tale_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(growth_of_file_pages_is_page_cache),
        T(a_few_file_pages_more_are_nothing_to_ask_about),
        T(file_pages_that_stay_rule_page_cache_out),
        T(without_kinds_of_memory_they_cannot_be_tested),
        T(growth_of_shared_memory_is_shared_memory),
        T(pinned_memory_is_told_by_torch_or_not_at_all),
        T(shared_memory_that_is_pinned_is_pinned_memory),
        T(swap_counts_only_where_something_was_swapped),
        T(huge_pages_are_ruled_out_only_where_they_are_off),
        T(memory_that_came_with_huge_pages_is_theirs_and_no_allocator_s),
        T(huge_pages_that_do_not_become_more_explain_nothing),
        T(gpu_memory_that_grows_alone_is_the_gpu),
        T(gpu_memory_that_came_with_the_start_is_no_growth),
        T(gpu_memory_that_has_stopped_is_asked_about_from_a_tenth_on),
        T(gpu_memory_that_leaks_is_the_gpu),
        T(the_hosts_own_growth_rules_the_gpu_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
