/* Tests hypotheses based on counters of the kernel and drivers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "diagnose/scenarios.h"

static void growing_file_pages_are_diagnosed_as_page_cache(void **state)
{
    (void)state;
    memory_is_flat();
    synthetic_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(900), 200);
    synthetic_field(&s, 0, SAMPLE_FILE, MIB(100), MIB(500), 200);
    expect(HYPOTHESIS_MAPPED_FILES, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_MAPPED_FILES);
}

static void small_growth_of_file_pages_is_not_diagnosed(void **state)
{
    (void)state;
    memory_is_flat();
    synthetic_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(515), 200);
    synthetic_field(&s, 0, SAMPLE_FILE, MIB(100), MIB(115), 200);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void page_cache_is_ruled_out_if_file_pages_are_constant(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_MAPPED_FILES, RULED_OUT);
    expect(HYPOTHESIS_SHARED_MEMORY, RULED_OUT);
}

static void file_and_shmem_and_swap_hypotheses_require_rss_breakdown(void **state)
{
    (void)state;
    synthetic_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(900), 200);
    expect(HYPOTHESIS_MAPPED_FILES, CANNOT_TEST);
    expect(HYPOTHESIS_SHARED_MEMORY, CANNOT_TEST);
    expect(HYPOTHESIS_SWAP, CANNOT_TEST);
}

static void growing_shmem_is_diagnosed_as_shared_memory(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_field(&s, 0, SAMPLE_SHMEM, 0, MIB(380), 200);
    expect(HYPOTHESIS_SHARED_MEMORY, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_SHARED_MEMORY);
}

static void pinned_memory_hypothesis_requires_reports_from_torch(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_PINNED, CANNOT_TEST);
    synthetic_figure(&s, "pinned_host_bytes", 0, MIB(350));
    expect(HYPOTHESIS_PINNED, NEARLY_CERTAIN);
    s.f.n_figures = 0;
    synthetic_figure(&s, "pinned_host_bytes", MIB(10), MIB(10));
    expect(HYPOTHESIS_PINNED, RULED_OUT);
}

/* The driver pins shared mappings, so the pinned and the shared memory are the same memory. */
static void pinned_shared_memory_is_diagnosed_as_pinned_memory(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_field(&s, 0, SAMPLE_ANON, MIB(480), MIB(480), 200);
    synthetic_field(&s, 0, SAMPLE_SHMEM, MIB(20), MIB(420), 200);
    synthetic_figure(&s, "pinned_host_bytes", MIB(5), MIB(405));
    synthetic_figure(&s, "heap_live_bytes", MIB(200), MIB(200));
    synthetic_figure(&s, "heap_free_bytes", MIB(10), MIB(10));
    synthetic_row(&s, "/job/train.py", MIB(200), MIB(200), VERDICT_STABLE);
    synthetic_row(&s, "/job/pin.py", MIB(5), MIB(405), VERDICT_LEAKING);
    s.sites[1].mapped_share = 1;
    s.f.heap.start.malloc = s.f.heap.now.malloc = MIB(200);
    expect_first(HYPOTHESIS_PINNED);
    assert_ptr_equal(s.ranked[0].site, &s.rows[1]);
    assert_true(
        has_evidence(&s.ranked[0], EVIDENCE_FOR, "the pinned memory is mapped at pin.py:7"));
    expect(HYPOTHESIS_SHARED_MEMORY, RULED_OUT);
    expect(HYPOTHESIS_RETENTION, RULED_OUT);
    assert_true(synthetic_test(&s, HYPOTHESIS_AUTOGRAD)->word <= UNLIKELY);
}

static void swap_is_ruled_out_if_no_memory_was_swapped_out(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_SWAP, RULED_OUT);
    synthetic_field(&s, 0, SAMPLE_SWAP, 0, MIB(400), 200);
    synthetic_field(&s, 0, SAMPLE_RSS, MIB(500), MIB(500), 200);
    expect(HYPOTHESIS_SWAP, NEARLY_CERTAIN);
}

static void uncounted_huge_pages_are_ruled_out_only_if_disabled_in_kernel(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_THP, CANNOT_TEST);
    memcpy(s.f.thp, "never", 6);
    expect(HYPOTHESIS_THP, RULED_OUT);
    memcpy(s.f.thp, "always", 7);
    synthetic_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    expect(HYPOTHESIS_THP, POSSIBLE);
}

static void retention_is_not_diagnosed_if_growth_is_in_huge_pages(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_verdict(&s, 0, VERDICT_PLATEAUED);
    memcpy(s.f.thp, "madvise", 8);
    synthetic_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    synthetic_field(&s, 0, SAMPLE_HUGE, 0, MIB(400), 200);
    expect(HYPOTHESIS_THP, NEARLY_CERTAIN);
    expect(HYPOTHESIS_RETENTION, RULED_OUT);
    expect_first(HYPOTHESIS_THP);
}

static void constant_huge_pages_are_ruled_out_as_the_cause_of_growth(void **state)
{
    (void)state;
    memory_leaks();
    memcpy(s.f.thp, "madvise", 8);
    synthetic_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    synthetic_field(&s, 0, SAMPLE_HUGE, MIB(20), MIB(20), 200);
    expect(HYPOTHESIS_THP, RULED_OUT);
}

static void gpu_growth_is_diagnosed_if_gpu_grows_and_host_is_flat(void **state)
{
    (void)state;
    memory_is_flat();
    expect(HYPOTHESIS_GPU, CANNOT_TEST);
    synthetic_figure(&s, "cuda_allocated_bytes", MIB(100), MIB(900));
    expect(HYPOTHESIS_GPU, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_GPU);
}

static void grow_gpu(enum verdict_word word, double from, double to)
{
    memory_is_flat();
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        s.gpu_v[i] = i < 15 ? from : to;
    s.f.gpu_heap.job = (struct facts_series){s.t_s, s.gpu_v, SYNTHETIC_POINTS};
    s.f.gpu = (struct facts_verdict){.is_known = true, .word = word};
}

static void gpu_growth_with_a_stable_verdict_is_ruled_out(void **state)
{
    (void)state;
    grow_gpu(VERDICT_STABLE, MIB(700), MIB(908));
    expect(HYPOTHESIS_GPU, RULED_OUT);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void gpu_growth_that_ended_is_diagnosed_only_above_10_percent(void **state)
{
    (void)state;
    grow_gpu(VERDICT_PLATEAUED, MIB(700), MIB(908));
    expect(HYPOTHESIS_GPU, NEARLY_CERTAIN);
    grow_gpu(VERDICT_PLATEAUED, MIB(700), MIB(760));
    expect(HYPOTHESIS_GPU, RULED_OUT);
}

static void leaking_gpu_memory_is_diagnosed_as_gpu_growth(void **state)
{
    (void)state;
    grow_gpu(VERDICT_LEAKING, MIB(700), MIB(760));
    expect_first(HYPOTHESIS_GPU);
}

/* Sets PyTorch's reserved GPU memory; MOST is the peak of allocated memory. */
static void reserve_gpu(double from, double to, double most)
{
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        s.gpu_reserved_v[i] = from + (to - from) * (double)i / (SYNTHETIC_POINTS - 1);
    s.f.gpu_heap.allocated = s.f.gpu_heap.job;
    s.f.gpu_heap.reserved = (struct facts_series){s.t_s, s.gpu_reserved_v, SYNTHETIC_POINTS};
    s.f.gpu_heap.reserved_bytes = to;
    s.f.gpu_heap.most_allocated_bytes = most;
}

static void gpu_fragmentation_is_diagnosed_if_unused_reserve_grows(void **state)
{
    (void)state;
    grow_gpu(VERDICT_STABLE, MIB(700), MIB(700));
    expect(HYPOTHESIS_GPU_FRAGMENTS, CANNOT_TEST);
    reserve_gpu(MIB(1000), MIB(4000), MIB(900));
    expect(HYPOTHESIS_GPU_FRAGMENTS, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_GPU_FRAGMENTS);
}

static void gpu_fragmentation_is_ruled_out_if_reserved_memory_was_in_use(void **state)
{
    (void)state;
    grow_gpu(VERDICT_STABLE, MIB(700), MIB(700));
    reserve_gpu(MIB(1000), MIB(4000), MIB(3800));
    expect(HYPOTHESIS_GPU_FRAGMENTS, RULED_OUT);
    reserve_gpu(MIB(1000), MIB(1040), MIB(100));
    expect(HYPOTHESIS_GPU_FRAGMENTS, RULED_OUT);
}

static void gpu_fragmentation_is_not_diagnosed_if_gpu_memory_leaks(void **state)
{
    (void)state;
    grow_gpu(VERDICT_LEAKING, MIB(700), MIB(3000));
    reserve_gpu(MIB(1000), MIB(4000), MIB(3000));
    expect(HYPOTHESIS_GPU_FRAGMENTS, RULED_OUT);
    expect_first(HYPOTHESIS_GPU);
}

static void constant_gpu_memory_of_a_leaking_job_rules_out_gpu_growth(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_figure(&s, "cuda_allocated_bytes", MIB(100), MIB(100));
    expect(HYPOTHESIS_GPU, RULED_OUT);
}

static void cgroup_memory_mapped_by_no_process_is_diagnosed_as_shmem(void **state)
{
    static double mapped[SYNTHETIC_POINTS];
    (void)state;
    memory_is_flat();
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++) {
        s.charge_v[i] = MIB(500) + MIB(1) * (double)i;
        mapped[i] = MIB(500);
    }
    s.f.charge = (struct facts_series){s.t_s, s.charge_v, SYNTHETIC_POINTS};
    s.f.tree_high = (struct facts_series){s.t_s, mapped, SYNTHETIC_POINTS};
    s.f.job =
        (struct facts_verdict){.is_known = true, .word = VERDICT_LEAKING, .leak = VERDICT_LEAK_YES};
    expect(HYPOTHESIS_SHARED_MEMORY, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_SHARED_MEMORY);
    s.f.tree_high = s.f.charge;
    assert_int_not_equal(synthetic_test(&s, HYPOTHESIS_SHARED_MEMORY)->word, NEARLY_CERTAIN);
}

static void cgroup_memory_that_stopped_growing_does_not_explain_a_leak(void **state)
{
    static double mapped[SYNTHETIC_POINTS];
    (void)state;
    memory_leaks();
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++) {
        mapped[i] = s.v[0][SAMPLE_RSS][i];
        s.charge_v[i] = mapped[i] + MIB(20) * fmin((double)i, SYNTHETIC_POINTS / 4);
    }
    s.f.charge = (struct facts_series){s.t_s, s.charge_v, SYNTHETIC_POINTS};
    s.f.tree_high = (struct facts_series){s.t_s, mapped, SYNTHETIC_POINTS};
    s.f.job =
        (struct facts_verdict){.is_known = true, .word = VERDICT_LEAKING, .leak = VERDICT_LEAK_YES};
    const struct hypothesis *h = synthetic_test(&s, HYPOTHESIS_SHARED_MEMORY);
    assert_true(has_evidence(h, EVIDENCE_AGAINST, "in the second half"));
    assert_true(h->word <= UNLIKELY);
}

#define T(f) cmocka_unit_test_setup_teardown(f, scenario_begin, scenario_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(cgroup_memory_mapped_by_no_process_is_diagnosed_as_shmem),
        T(cgroup_memory_that_stopped_growing_does_not_explain_a_leak),
        T(growing_file_pages_are_diagnosed_as_page_cache),
        T(small_growth_of_file_pages_is_not_diagnosed),
        T(page_cache_is_ruled_out_if_file_pages_are_constant),
        T(file_and_shmem_and_swap_hypotheses_require_rss_breakdown),
        T(growing_shmem_is_diagnosed_as_shared_memory),
        T(pinned_memory_hypothesis_requires_reports_from_torch),
        T(pinned_shared_memory_is_diagnosed_as_pinned_memory),
        T(swap_is_ruled_out_if_no_memory_was_swapped_out),
        T(uncounted_huge_pages_are_ruled_out_only_if_disabled_in_kernel),
        T(retention_is_not_diagnosed_if_growth_is_in_huge_pages),
        T(constant_huge_pages_are_ruled_out_as_the_cause_of_growth),
        T(gpu_growth_is_diagnosed_if_gpu_grows_and_host_is_flat),
        T(gpu_growth_with_a_stable_verdict_is_ruled_out),
        T(gpu_growth_that_ended_is_diagnosed_only_above_10_percent),
        T(leaking_gpu_memory_is_diagnosed_as_gpu_growth),
        T(gpu_fragmentation_is_diagnosed_if_unused_reserve_grows),
        T(gpu_fragmentation_is_ruled_out_if_reserved_memory_was_in_use),
        T(gpu_fragmentation_is_not_diagnosed_if_gpu_memory_leaks),
        T(constant_gpu_memory_of_a_leaking_job_rules_out_gpu_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
