/* Tests hypotheses about live memory with evidence for them, with evidence against them, and
 * without data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "diagnose/scenarios.h"

static void growing_object_count_makes_python_objects_a_likely_cause(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_census(&s, MIB(320), 0, false);
    expect(HYPOTHESIS_PYTHON_OBJECTS, NEARLY_CERTAIN);
    assert_true(synthetic_test(&s, HYPOTHESIS_TENSORS)->word <= UNLIKELY);
}

static void constant_object_count_makes_python_objects_an_unlikely_cause(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_census(&s, MIB(1), MIB(320), false);
    assert_true(synthetic_test(&s, HYPOTHESIS_PYTHON_OBJECTS)->word <= UNLIKELY);
    expect(HYPOTHESIS_TENSORS, NEARLY_CERTAIN);
}

static void python_object_hypothesis_requires_an_unsampled_census(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_census(&s, MIB(1), 0, false);
    json_object_set_new(s.f.census.last, "is_sampled", json_true());
    expect(HYPOTHESIS_PYTHON_OBJECTS, CANNOT_TEST);
}

static void python_object_hypothesis_requires_memory_growth(void **state)
{
    (void)state;
    growth_stops_after(15);
    synthetic_census(&s, 0, 0, false);
    expect(HYPOTHESIS_PYTHON_OBJECTS, CANNOT_TEST);
    expect(HYPOTHESIS_TENSORS, CANNOT_TEST);
}

/* The first census is at step 20, when most of the 400 MiB has already been allocated. */
static void growth_before_first_census_is_not_attributed_to_objects(void **state)
{
    (void)state;
    growth_stops_after(21.5);
    synthetic_census(&s, MIB(300), 0, false);
    assert_true(synthetic_test(&s, HYPOTHESIS_PYTHON_OBJECTS)->share < 0.2);
}

static void python_object_and_tensor_hypotheses_require_a_census(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_PYTHON_OBJECTS, CANNOT_TEST);
    expect(HYPOTHESIS_TENSORS, CANNOT_TEST);
    expect_absent(HYPOTHESIS_TENSORS, "no census");
    assert_non_null(strstr(synthetic_test(&s, HYPOTHESIS_TENSORS)->decide, "EBB_CENSUS_EVERY"));
}

static void kept_graph_is_diagnosed_if_grad_tensors_and_nodes_grow(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_census(&s, 0, MIB(320), true);
    expect(HYPOTHESIS_AUTOGRAD, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_AUTOGRAD);
}

static void kept_graph_is_not_diagnosed_for_model_copies(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_census(&s, 0, MIB(380), false);
    json_t *censuses[] = {s.f.census.first, s.f.census.last};
    for (int i = 0; i < 2; i++)
        json_object_set_new(json_array_get(json_object_get(censuses[i], "tensors"), 0),
                            "requires_grad", json_true());
    synthetic_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    assert_true(synthetic_test(&s, HYPOTHESIS_AUTOGRAD)->word <= UNLIKELY);
    expect(HYPOTHESIS_TENSORS, NEARLY_CERTAIN);
}

static void kept_graph_is_not_diagnosed_for_tensors_without_grad(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_census(&s, 0, MIB(320), false);
    assert_true(synthetic_test(&s, HYPOTHESIS_AUTOGRAD)->word <= UNLIKELY);
    expect_first(HYPOTHESIS_TENSORS);
}

static void kept_graph_hypothesis_requires_a_census_or_a_profile(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_AUTOGRAD, CANNOT_TEST);
}

static void leaking_call_site_is_named_with_its_line(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    synthetic_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    expect(HYPOTHESIS_CALL_SITE, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_CALL_SITE);
    assert_ptr_equal(s.ranked[0].site, &s.rows[0]);
    assert_true(has_evidence(&s.ranked[0], EVIDENCE_FOR, "train.py:7 (make)"));
}

static void call_site_with_the_most_growth_is_named_if_none_leaks(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/train.py", MIB(300), MIB(300), VERDICT_UNDECIDED);
    s.rows[0].growth_bytes = MIB(100);
    s.f.job =
        (struct facts_verdict){.is_known = true, .word = VERDICT_LEAKING, .leak = VERDICT_LEAK_YES};
    expect(HYPOTHESIS_CALL_SITE, POSSIBLE);
    expect_first(HYPOTHESIS_CALL_SITE);
    assert_ptr_equal(s.ranked[0].site, &s.rows[0]);
    s.f.job = (struct facts_verdict){.is_known = true};
    assert_true(synthetic_test(&s, HYPOTHESIS_CALL_SITE)->word <= UNLIKELY);
}

static void growth_that_ended_is_attributed_to_the_call_site_that_grew(void **state)
{
    (void)state;
    growth_stops_after(100);
    synthetic_row(&s, "/job/cache.py", MIB(10), MIB(400), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_CALL_SITE);
    assert_ptr_equal(s.ranked[0].site, &s.rows[0]);
}

static void growing_container_explains_a_leak_even_without_a_census(void **state)
{
    (void)state;
    memory_leaks();
    s.f.kept.count = 1;
    s.f.kept.at[0] = (struct kept_list){.pid = s.f.main->id.pid, .count = 1};
    struct kept *kept = &s.f.kept.at[0].at[0];
    *kept = (struct kept){.name = "Registry.series", .added = 4000, .bytes = MIB(900)};
    assert_true(has_evidence(synthetic_test(&s, HYPOTHESIS_PYTHON_OBJECTS), EVIDENCE_FOR,
                             "kept by Registry.series"));
    expect(HYPOTHESIS_PYTHON_OBJECTS, LIKELY);
    kept->bytes = MIB(2); /* too little to explain the growth */
    expect(HYPOTHESIS_PYTHON_OBJECTS, CANNOT_TEST);
    kept->bytes = MIB(900);
    kept->limit = 5000; /* growth ends when the container is full */
    expect(HYPOTHESIS_PYTHON_OBJECTS, CANNOT_TEST);
}

static void kept_graph_is_diagnosed_if_graph_of_a_variable_grows(void **state)
{
    (void)state;
    memory_leaks();
    s.f.kept.count = 1;
    s.f.kept.at[0] =
        (struct kept_list){.pid = s.f.main->id.pid, .since_step = 20, .step = 40, .count = 1};
    s.f.kept.at[0].at[0] = (struct kept){
        .name = "total", .type = "Tensor", .added = 90, .bytes = MIB(300), .is_graph = true};
    expect(HYPOTHESIS_AUTOGRAD, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_AUTOGRAD);
}

static void batch_that_is_live_only_at_the_end_is_an_unlikely_leak_cause(void **state)
{
    (void)state;
    growth_stops_after(100);
    synthetic_row(&s, "/job/load.py", MIB(10), MIB(400), VERDICT_STABLE);
    assert_true(synthetic_test(&s, HYPOTHESIS_CALL_SITE)->word <= UNLIKELY);
}

static void call_site_that_stopped_growing_is_an_unlikely_leak_cause(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/cache.py", MIB(10), MIB(400), VERDICT_PLATEAUED);
    assert_true(synthetic_test(&s, HYPOTHESIS_CALL_SITE)->word <= UNLIKELY);
}

static void constant_call_sites_are_ruled_out_as_the_cause_of_a_leak(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    expect(HYPOTHESIS_CALL_SITE, RULED_OUT);
}

static void growth_at_several_lines_of_one_function_is_added_up(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/metric.py", MIB(10), MIB(160), VERDICT_LEAKING);
    synthetic_row(&s, "/job/metric.py", MIB(10), MIB(150), VERDICT_LEAKING);
    synthetic_row(&s, "/job/other.py", MIB(10), MIB(60), VERDICT_LEAKING);
    const struct hypothesis *h = synthetic_test(&s, HYPOTHESIS_CALL_SITE);
    assert_true(h->share > 0.7 && h->share < 0.76); /* 290 of 400 MiB */
    bool is_said = false;
    for (size_t i = 0; i < h->n_evidence; i++)
        is_said = is_said ||
                  strstr(h->evidence[i].text, "1 more growing line in the same function: +140 MiB");
    assert_true(is_said);
}

static void call_site_evidence_names_the_fastest_growing_container(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/collate.py", MIB(10), MIB(400), VERDICT_LEAKING);
    s.f.kept.count = 1;
    s.f.kept.at[0] =
        (struct kept_list){.pid = s.f.main->id.pid, .since_step = 20, .step = 40, .count = 2};
    s.f.kept.at[0].at[0] =
        (struct kept){.name = "seen of a Collator", .type = "list", .added = 20, .bytes = MIB(100)};
    /* the second container is not named, because it has grown much less than the first one */
    s.f.kept.at[0].at[1] =
        (struct kept){.name = "names", .type = "dict", .added = 20, .bytes = MIB(2)};
    const struct hypothesis *h = synthetic_test(&s, HYPOTHESIS_CALL_SITE);
    const char *last = h->evidence[h->n_evidence - 1].text;
    assert_string_equal(last, "kept by seen of a Collator (list): 20 entries added from step 20 to "
                              "step 40, at most 100 MiB");
}

static void call_site_hypothesis_requires_a_heap_profile(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_CALL_SITE, CANNOT_TEST);
    expect_absent(HYPOTHESIS_CALL_SITE, "the heap profiler was off");
}

static void retention_is_diagnosed_if_rss_grows_and_live_heap_is_flat(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    expect(HYPOTHESIS_RETENTION, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_RETENTION);
}

static void retention_is_not_diagnosed_if_live_heap_grows_like_rss(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    expect(HYPOTHESIS_RETENTION, RULED_OUT);
}

static void retention_is_diagnosed_if_free_memory_of_the_allocator_grows(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/model.py", MIB(100), MIB(250), VERDICT_UNDECIDED);
    synthetic_figure(&s, "heap_live_bytes", MIB(100), MIB(250));
    synthetic_figure(&s, "heap_free_bytes", MIB(10), MIB(240));
    const struct hypothesis *h = synthetic_test(&s, HYPOTHESIS_RETENTION);
    assert_true(fabs(ledger_growth(&s.ledger, LEDGER_RETAINED) - MIB(230)) < 1);
    assert_true(
        has_evidence(h, EVIDENCE_FOR, "+230 MiB is free memory that the allocator retains"));
    assert_true(has_evidence(h, EVIDENCE_FOR, "changed by +150 MiB"));
}

/* The batch is live at only one of the two heap readings. */
static void retention_is_diagnosed_even_if_last_reading_has_a_live_batch(void **state)
{
    (void)state;
    growth_stops_after(100);
    synthetic_row(&s, "/job/load.py", MIB(10), MIB(400), VERDICT_STABLE);
    synthetic_figure(&s, "heap_live_bytes", MIB(100), MIB(100));
    expect_first(HYPOTHESIS_RETENTION);
    expect(HYPOTHESIS_RETENTION, NEARLY_CERTAIN);
}

/* The allocator's own count excludes small Python objects. */
static void retention_is_not_diagnosed_if_small_live_objects_grow(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    s.f.heap.start.malloc = s.f.heap.now.malloc = 0;
    synthetic_figure(&s, "heap_live_bytes", MIB(100), MIB(100));
    expect_first(HYPOTHESIS_CALL_SITE);
    assert_true(synthetic_test(&s, HYPOTHESIS_RETENTION)->word <= UNLIKELY);
}

/* The allocator's own count excludes Python's arenas, so this count alone does not prove
 * retention. */
static void retention_shown_only_by_allocator_count_is_rated_possible(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    expect(HYPOTHESIS_RETENTION, POSSIBLE);
    expect_absent(HYPOTHESIS_RETENTION, "small Python objects");
}

/* Workers grow by 90 MiB and this process by 15 MiB. */
static void flat_heap_rules_out_call_sites_unless_a_worker_grows(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(500), MIB(515), 200);
    synthetic_verdict(&s, 0, VERDICT_UNDECIDED);
    synthetic_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        s.charge_v[i] = MIB(500) + MIB(0.5) * (double)i;
    s.f.charge = (struct facts_series){s.t_s, s.charge_v, SYNTHETIC_POINTS};
    expect(HYPOTHESIS_CALL_SITE, CANNOT_TEST);
    expect(HYPOTHESIS_RETENTION, CANNOT_TEST);
    expect_absent(HYPOTHESIS_CALL_SITE, "only 15.0 MiB of the growth of");
    s.f.charge.count = 0;
    expect(HYPOTHESIS_CALL_SITE, RULED_OUT);
}

/* At the start, 250 MiB was free but not resident, because it had never been written to. */
static void retention_is_unlikely_if_heap_was_already_free_at_the_start(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/model.py", MIB(500), MIB(700), VERDICT_STABLE);
    synthetic_figure(&s, "heap_live_bytes", MIB(500), MIB(700));
    synthetic_figure(&s, "heap_free_bytes", MIB(250), MIB(250));
    const struct hypothesis *h = synthetic_test(&s, HYPOTHESIS_RETENTION);
    assert_true(ledger_growth(&s.ledger, LEDGER_RETAINED) > MIB(190));
    assert_true(h->word <= UNLIKELY);
}

/* The allocator's live and free memory did not grow in total, so the growth is outside the
 * allocator. */
static void constant_free_memory_in_the_allocator_contradicts_retention(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    synthetic_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    expect(HYPOTHESIS_RETENTION, NEARLY_CERTAIN);
    synthetic_figure(&s, "heap_free_bytes", MIB(20), MIB(20));
    assert_true(synthetic_test(&s, HYPOTHESIS_RETENTION)->word <= UNLIKELY);
}

#define T(f) cmocka_unit_test_setup_teardown(f, scenario_begin, scenario_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(growing_object_count_makes_python_objects_a_likely_cause),
        T(constant_object_count_makes_python_objects_an_unlikely_cause),
        T(python_object_hypothesis_requires_an_unsampled_census),
        T(python_object_hypothesis_requires_memory_growth),
        T(growth_before_first_census_is_not_attributed_to_objects),
        T(python_object_and_tensor_hypotheses_require_a_census),
        T(growing_container_explains_a_leak_even_without_a_census),
        T(kept_graph_is_diagnosed_if_grad_tensors_and_nodes_grow),
        T(kept_graph_is_not_diagnosed_for_model_copies),
        T(kept_graph_is_not_diagnosed_for_tensors_without_grad),
        T(kept_graph_hypothesis_requires_a_census_or_a_profile),
        T(leaking_call_site_is_named_with_its_line),
        T(call_site_with_the_most_growth_is_named_if_none_leaks),
        T(growth_that_ended_is_attributed_to_the_call_site_that_grew),
        T(kept_graph_is_diagnosed_if_graph_of_a_variable_grows),
        T(batch_that_is_live_only_at_the_end_is_an_unlikely_leak_cause),
        T(call_site_that_stopped_growing_is_an_unlikely_leak_cause),
        T(constant_call_sites_are_ruled_out_as_the_cause_of_a_leak),
        T(growth_at_several_lines_of_one_function_is_added_up),
        T(call_site_evidence_names_the_fastest_growing_container),
        T(call_site_hypothesis_requires_a_heap_profile),
        T(retention_is_diagnosed_if_rss_grows_and_live_heap_is_flat),
        T(retention_is_not_diagnosed_if_live_heap_grows_like_rss),
        T(retention_is_diagnosed_if_free_memory_of_the_allocator_grows),
        T(retention_is_diagnosed_even_if_last_reading_has_a_live_batch),
        T(retention_is_not_diagnosed_if_small_live_objects_grow),
        T(retention_shown_only_by_allocator_count_is_rated_possible),
        T(flat_heap_rules_out_call_sites_unless_a_worker_grows),
        T(retention_is_unlikely_if_heap_was_already_free_at_the_start),
        T(constant_free_memory_in_the_allocator_contradicts_retention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
