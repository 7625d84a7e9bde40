/* Hypotheses that show in what is alive, each with facts for it, against it, and without them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "diagnose/tale.h"

static void objects_that_grow_with_memory_pile_up(void **state)
{
    (void)state;
    it_leaks();
    story_census(&s, MIB(320), 0, false);
    expect(HYPOTHESIS_PYTHON_OBJECTS, NEARLY_CERTAIN);
    assert_true(story_ask(&s, HYPOTHESIS_TENSORS)->word <= UNLIKELY);
}

static void objects_that_do_not_grow_speak_against_it(void **state)
{
    (void)state;
    it_leaks();
    story_census(&s, MIB(1), MIB(320), false);
    assert_true(story_ask(&s, HYPOTHESIS_PYTHON_OBJECTS)->word <= UNLIKELY);
    expect(HYPOTHESIS_TENSORS, NEARLY_CERTAIN);
}

static void a_census_of_a_part_rules_nothing_out(void **state)
{
    (void)state;
    it_leaks();
    story_census(&s, MIB(1), 0, false);
    json_object_set_new(s.f.census_last, "is_sampled", json_true());
    expect(HYPOTHESIS_PYTHON_OBJECTS, CANNOT_TEST);
}

static void censuses_between_which_memory_is_flat_tell_nothing(void **state)
{
    (void)state;
    it_stops_after(15);
    story_census(&s, 0, 0, false);
    expect(HYPOTHESIS_PYTHON_OBJECTS, CANNOT_TEST);
    expect(HYPOTHESIS_TENSORS, CANNOT_TEST);
}

/* From step 20 on, when 50 of the 400 MiB are still to come. */
static void censuses_explain_no_growth_that_was_over_before_them(void **state)
{
    (void)state;
    it_stops_after(21.5);
    story_census(&s, MIB(300), 0, false);
    assert_true(story_ask(&s, HYPOTHESIS_PYTHON_OBJECTS)->share < 0.2);
}

static void without_a_census_objects_and_tensors_cannot_be_tested(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_PYTHON_OBJECTS, CANNOT_TEST);
    expect(HYPOTHESIS_TENSORS, CANNOT_TEST);
    expect_absent(HYPOTHESIS_TENSORS, "no census");
    assert_non_null(strstr(story_ask(&s, HYPOTHESIS_TENSORS)->decide, "EBB_CENSUS_EVERY"));
}

static void tensors_that_require_grad_and_nodes_are_a_kept_graph(void **state)
{
    (void)state;
    it_leaks();
    story_census(&s, 0, MIB(320), true);
    expect(HYPOTHESIS_AUTOGRAD, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_AUTOGRAD);
}

static void copies_of_a_model_are_no_graph_though_they_require_grad(void **state)
{
    (void)state;
    it_leaks();
    story_census(&s, 0, MIB(380), false);
    json_t *censuses[] = {s.f.census_first, s.f.census_last};
    for (int i = 0; i < 2; i++)
        json_object_set_new(json_array_get(json_object_get(censuses[i], "tensors"), 0),
                            "requires_grad", json_true());
    story_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    assert_true(story_ask(&s, HYPOTHESIS_AUTOGRAD)->word <= UNLIKELY);
    expect(HYPOTHESIS_TENSORS, NEARLY_CERTAIN);
}

static void plain_tensors_are_no_graph(void **state)
{
    (void)state;
    it_leaks();
    story_census(&s, 0, MIB(320), false);
    assert_true(story_ask(&s, HYPOTHESIS_AUTOGRAD)->word <= UNLIKELY);
    expect_first(HYPOTHESIS_TENSORS);
}

static void without_census_and_profile_a_graph_cannot_be_tested(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_AUTOGRAD, CANNOT_TEST);
}

static void a_call_site_that_leaks_is_named(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    story_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    expect(HYPOTHESIS_CALL_SITE, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_CALL_SITE);
    assert_ptr_equal(s.ranked[0].site, &s.rows[0]);
    assert_true(story_says(&s.ranked[0], EVIDENCE_FOR, "train.py:7 (make)"));
}

static void growth_that_has_ended_is_the_site_that_filled(void **state)
{
    (void)state;
    it_stops_after(100);
    story_row(&s, "/job/cache.py", MIB(10), MIB(400), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_CALL_SITE);
    assert_ptr_equal(s.ranked[0].site, &s.rows[0]);
}

static void a_batch_that_happens_to_be_alive_is_not_kept(void **state)
{
    (void)state;
    it_stops_after(100);
    story_row(&s, "/job/load.py", MIB(10), MIB(400), VERDICT_STABLE);
    assert_true(story_ask(&s, HYPOTHESIS_CALL_SITE)->word <= UNLIKELY);
}

static void while_memory_grows_a_site_that_has_filled_is_not_it(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/cache.py", MIB(10), MIB(400), VERDICT_PLATEAUED);
    assert_true(story_ask(&s, HYPOTHESIS_CALL_SITE)->word <= UNLIKELY);
}

static void sites_that_hold_what_they_held_speak_against_it(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    expect(HYPOTHESIS_CALL_SITE, RULED_OUT);
}

static void lines_of_one_function_keep_together(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/metric.py", MIB(10), MIB(160), VERDICT_LEAKING);
    story_row(&s, "/job/metric.py", MIB(10), MIB(150), VERDICT_LEAKING);
    story_row(&s, "/job/other.py", MIB(10), MIB(60), VERDICT_LEAKING);
    const struct hypothesis *h = story_ask(&s, HYPOTHESIS_CALL_SITE);
    assert_true(h->share > 0.7 && h->share < 0.76); /* 290 of 400 MiB */
    bool is_said = false;
    for (size_t i = 0; i < h->n_evidence; i++)
        is_said = is_said || strstr(h->evidence[i].text, "1 more line of that function: +140 MiB");
    assert_true(is_said);
}

static void who_keeps_it_is_said(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/collate.py", MIB(10), MIB(400), VERDICT_LEAKING);
    s.f.kept.count = 1;
    s.f.kept.at[0] =
        (struct kept_list){.pid = s.f.main->id.pid, .since_step = 20, .step = 40, .count = 2};
    s.f.kept.at[0].at[0] = (struct kept){"seen of a Collator", "list", 20, MIB(100)};
    s.f.kept.at[0].at[1] = (struct kept){"names", "dict", 20, MIB(2)}; /* too little beside it */
    const struct hypothesis *h = story_ask(&s, HYPOTHESIS_CALL_SITE);
    const char *last = h->evidence[h->n_evidence - 1].text;
    assert_string_equal(last, "kept by seen of a Collator (list): 20 entries more at step 40 than "
                              "at step 20, 100 MiB at most");
}

static void without_a_profile_call_sites_cannot_be_tested(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_CALL_SITE, CANNOT_TEST);
    expect_absent(HYPOTHESIS_CALL_SITE, "the profiler was off");
}

static void a_flat_heap_under_growing_memory_is_retention(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    expect(HYPOTHESIS_RETENTION, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_RETENTION);
}

static void a_heap_that_grows_with_memory_is_no_retention(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    expect(HYPOTHESIS_RETENTION, RULED_OUT);
}

static void what_the_allocator_says_it_keeps_is_retention_by_the_ledgers_figure(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/model.py", MIB(100), MIB(250), VERDICT_UNDECIDED);
    story_figure(&s, "heap_live_bytes", MIB(100), MIB(250));
    story_figure(&s, "heap_free_bytes", MIB(10), MIB(240));
    const struct hypothesis *h = story_ask(&s, HYPOTHESIS_RETENTION);
    assert_true(fabs(ledger_growth(&s.ledger, LEDGER_RETAINED) - MIB(230)) < 1);
    assert_true(story_says(h, EVIDENCE_FOR, "+230 MiB is free, and the allocator has it"));
    assert_true(story_says(h, EVIDENCE_FOR, "changed by +150 MiB"));
}

/* At one moment a batch is alive and at the other not. */
static void floors_tell_retention_from_a_batch_under_way(void **state)
{
    (void)state;
    it_stops_after(100);
    story_row(&s, "/job/load.py", MIB(10), MIB(400), VERDICT_STABLE);
    story_figure(&s, "heap_live_bytes", MIB(100), MIB(100));
    expect_first(HYPOTHESIS_RETENTION);
    expect(HYPOTHESIS_RETENTION, NEARLY_CERTAIN);
}

/* They are not in the allocator's count. */
static void small_objects_that_a_site_keeps_are_not_retention(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    s.f.heap.start_malloc = s.f.heap.now_malloc = 0;
    story_figure(&s, "heap_live_bytes", MIB(100), MIB(100));
    expect_first(HYPOTHESIS_CALL_SITE);
    assert_true(story_ask(&s, HYPOTHESIS_RETENTION)->word <= UNLIKELY);
}

/* Python's arenas are not in the allocator's count: it alone proves nothing. */
static void the_allocators_count_alone_makes_retention_possible_only(void **state)
{
    (void)state;
    it_leaks();
    story_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    expect(HYPOTHESIS_RETENTION, POSSIBLE);
    expect_absent(HYPOTHESIS_RETENTION, "small Python objects");
}

/* The workers grow, by 90 MiB, and this process by 15. */
static void the_heap_of_one_process_says_nothing_against_growth_in_others(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(515), 200);
    story_verdict(&s, 0, VERDICT_UNDECIDED);
    story_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    for (size_t i = 0; i < STORY_POINTS; i++)
        s.charge_v[i] = MIB(500) + MIB(0.5) * (double)i;
    s.f.charge = (struct facts_series){s.t_s, s.charge_v, STORY_POINTS};
    expect(HYPOTHESIS_CALL_SITE, CANNOT_TEST);
    expect(HYPOTHESIS_RETENTION, CANNOT_TEST);
    expect_absent(HYPOTHESIS_CALL_SITE, "only 15.0 MiB is in the process");
    s.f.charge.count = 0;
    expect(HYPOTHESIS_CALL_SITE, RULED_OUT);
}

/* It had 250 MiB free from the start, for which RSS had no room while more was asked for than was
 * touched. */
static void what_was_free_before_is_not_retained_since(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/model.py", MIB(500), MIB(700), VERDICT_STABLE);
    story_figure(&s, "heap_live_bytes", MIB(500), MIB(700));
    story_figure(&s, "heap_free_bytes", MIB(250), MIB(250));
    const struct hypothesis *h = story_ask(&s, HYPOTHESIS_RETENTION);
    assert_true(ledger_growth(&s.ledger, LEDGER_RETAINED) > MIB(190));
    assert_true(h->word <= UNLIKELY);
}

/* What the allocator holds, free or not, is what it was: memory grew elsewhere. */
static void an_allocator_that_holds_no_more_than_before_retains_nothing(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    story_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    expect(HYPOTHESIS_RETENTION, NEARLY_CERTAIN);
    story_figure(&s, "heap_free_bytes", MIB(20), MIB(20));
    assert_true(story_ask(&s, HYPOTHESIS_RETENTION)->word <= UNLIKELY);
}

#define T(f) cmocka_unit_test_setup_teardown(f, tale_begin, tale_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(objects_that_grow_with_memory_pile_up),
        T(objects_that_do_not_grow_speak_against_it),
        T(a_census_of_a_part_rules_nothing_out),
        T(censuses_between_which_memory_is_flat_tell_nothing),
        T(censuses_explain_no_growth_that_was_over_before_them),
        T(without_a_census_objects_and_tensors_cannot_be_tested),
        T(tensors_that_require_grad_and_nodes_are_a_kept_graph),
        T(copies_of_a_model_are_no_graph_though_they_require_grad),
        T(plain_tensors_are_no_graph),
        T(without_census_and_profile_a_graph_cannot_be_tested),
        T(a_call_site_that_leaks_is_named),
        T(growth_that_has_ended_is_the_site_that_filled),
        T(a_batch_that_happens_to_be_alive_is_not_kept),
        T(while_memory_grows_a_site_that_has_filled_is_not_it),
        T(sites_that_hold_what_they_held_speak_against_it),
        T(lines_of_one_function_keep_together),
        T(who_keeps_it_is_said),
        T(without_a_profile_call_sites_cannot_be_tested),
        T(a_flat_heap_under_growing_memory_is_retention),
        T(a_heap_that_grows_with_memory_is_no_retention),
        T(what_the_allocator_says_it_keeps_is_retention_by_the_ledgers_figure),
        T(floors_tell_retention_from_a_batch_under_way),
        T(small_objects_that_a_site_keeps_are_not_retention),
        T(the_allocators_count_alone_makes_retention_possible_only),
        T(the_heap_of_one_process_says_nothing_against_growth_in_others),
        T(what_was_free_before_is_not_retained_since),
        T(an_allocator_that_holds_no_more_than_before_retains_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
