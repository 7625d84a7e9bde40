/* Tests hypotheses about when memory grew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "diagnose/scenarios.h"

static void memory_peak_at_the_end_is_not_evidence_of_growth(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(200), MIB(215), 100);
    synthetic_verdict(&s, 0, VERDICT_PLATEAUED);
    synthetic_steps(&s, 50);
    for (size_t i = 195; i < SYNTHETIC_POINTS; i++)
        synthetic_spike(&s, (double)i, MIB(70));
    s.v[0][SAMPLE_RSS][0] = 0;
    expect_first(HYPOTHESIS_NO_GROWTH);
    assert_true(has_evidence(&s.ranked[0], EVIDENCE_FOR,
                             "from 200 MiB to 215 MiB: growth has stopped and was small"));
    assert_true(has_evidence(synthetic_test(&s, HYPOTHESIS_DATA_LOAD), EVIDENCE_FOR,
                             "200 MiB of the final 215 MiB was allocated before"));
}

static void reported_start_up_allocation_never_exceeds_final_memory(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(200), MIB(195), 100);
    synthetic_verdict(&s, 0, VERDICT_PLATEAUED);
    synthetic_steps(&s, 50);
    s.v[0][SAMPLE_RSS][0] = 0;
    assert_true(
        has_evidence(synthetic_test(&s, HYPOTHESIS_NO_GROWTH), EVIDENCE_FOR, "no later growth"));
    assert_true(has_evidence(synthetic_test(&s, HYPOTHESIS_DATA_LOAD), EVIDENCE_FOR,
                             "195 MiB of the final 195 MiB was allocated before"));
}

/* Without marks, growth that ends early is treated as start-up. */
static void data_load_is_diagnosed_if_growth_ends_during_start_up(void **state)
{
    (void)state;
    synthetic_memory(&s, MIB(224), MIB(269), 60);
    synthetic_verdict(&s, 0, VERDICT_PLATEAUED);
    s.v[0][SAMPLE_RSS][0] = 0;
    s.f.start_s = s.f.begun_s = s.f.loaded_s = 60;
    expect_first(HYPOTHESIS_NO_GROWTH);
    s.f.loaded_s = 10;
    expect_first(HYPOTHESIS_DATA_LOAD);
    assert_true(has_evidence(synthetic_test(&s, HYPOTHESIS_NO_GROWTH), EVIDENCE_FOR,
                             "after start-up had added 45.0 MiB"));
}

static void single_jump_before_flat_memory_is_diagnosed_as_data_load(void **state)
{
    (void)state;
    growth_stops_after(2);
    expect(HYPOTHESIS_DATA_LOAD, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_DATA_LOAD);
}

static void single_jump_at_one_call_site_is_diagnosed_as_data_load(void **state)
{
    (void)state;
    growth_stops_after(2);
    synthetic_row(&s, "/job/data.py", MIB(100), MIB(500), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_DATA_LOAD);
    expect(HYPOTHESIS_CALL_SITE, LIKELY);
}

/* A late import or the loading of a data set can take several steps. */
static void growth_within_one_long_step_counts_as_a_jump(void **state)
{
    (void)state;
    size_t n = 0;
    growth_stops_after(20);
    expect(HYPOTHESIS_DATA_LOAD, RULED_OUT);
    for (size_t i = 0; i < s.f.n_marks; i++)
        if (s.f.marks[i].t_s < 11 || s.f.marks[i].t_s > 30)
            s.marks[n++] = s.f.marks[i];
    s.f.n_marks = n;
    expect(HYPOTHESIS_DATA_LOAD, NEARLY_CERTAIN);
}

static void growth_over_many_steps_does_not_count_as_a_jump(void **state)
{
    (void)state;
    growth_stops_after(8);
    assert_true(synthetic_test(&s, HYPOTHESIS_DATA_LOAD)->word <= UNLIKELY);
}

static void growth_that_continues_is_not_diagnosed_as_data_load(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_DATA_LOAD, RULED_OUT);
}

/* The jump may be pages that were allocated earlier, or free memory retained by the allocator. */
static void jump_of_free_heap_memory_is_not_diagnosed_as_data_load(void **state)
{
    (void)state;
    growth_stops_after(100);
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] = s.v[0][SAMPLE_ANON][i] = i < 60 ? MIB(500) : MIB(900);
    expect(HYPOTHESIS_DATA_LOAD, NEARLY_CERTAIN);
    synthetic_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    assert_true(synthetic_test(&s, HYPOTHESIS_DATA_LOAD)->word <= UNLIKELY);
}

static void temporary_spike_does_not_count_as_a_lasting_jump(void **state)
{
    (void)state;
    growth_stops_after(100);
    synthetic_spike(&s, 60, MIB(2000));
    assert_true(synthetic_test(&s, HYPOTHESIS_DATA_LOAD)->word <= UNLIKELY);
}

static void data_load_hypothesis_requires_marks(void **state)
{
    (void)state;
    memory_is_flat();
    s.f.n_marks = 0;
    expect_absent(HYPOTHESIS_DATA_LOAD, "no marks");
}

static void growth_that_ends_with_first_epoch_is_diagnosed_as_a_cache(void **state)
{
    (void)state;
    growth_stops_after(50);
    s.f.examples = 400;
    synthetic_row(&s, "/job/data.py", MIB(10), MIB(400), VERDICT_PLATEAUED);
    expect(HYPOTHESIS_FIRST_TOUCH, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_FIRST_TOUCH);
    const struct hypothesis *h = &s.ranked[0];
    assert_ptr_equal(h->site, &s.rows[0]);
    assert_true(has_evidence(h, EVIDENCE_FOR, "step 50"));
    assert_true(has_evidence(h, EVIDENCE_FOR, ": about 1.00 MiB per example"));
}

/* The buffer is one large block, allocated before training, whose pages become resident as the job
 * writes to them. */
static void late_writes_to_a_buffer_are_diagnosed_as_first_touch(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/replay.py", MIB(900), MIB(900), VERDICT_STABLE);
    s.rows[0].live_objects = 1;
    expect_first(HYPOTHESIS_FIRST_TOUCH);
    assert_ptr_equal(synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH)->site, &s.rows[0]);
    s.rows[0].live_objects = 1e6;
    assert_true(synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH)->word <= UNLIKELY);
}

/* If the free memory of the heap grows, the cause is fragmentation or an earlier, longer batch. */
static void growth_of_free_memory_in_first_epoch_is_not_diagnosed_as_cache(void **state)
{
    (void)state;
    growth_stops_after(50);
    synthetic_row(&s, "/job/data.py", MIB(100), MIB(100), VERDICT_STABLE);
    synthetic_figure(&s, "heap_live_bytes", MIB(100), MIB(100));
    synthetic_figure(&s, "heap_free_bytes", MIB(10), MIB(400));
    expect_first(HYPOTHESIS_RETENTION);
    assert_true(has_evidence(synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH), EVIDENCE_AGAINST,
                             "allocations are freed"));
}

static void growth_that_is_partly_free_memory_is_not_diagnosed_as_cache(void **state)
{
    (void)state;
    growth_stops_after(50);
    synthetic_row(&s, "/job/data.py", MIB(100), MIB(260), VERDICT_PLATEAUED);
    synthetic_figure(&s, "heap_live_bytes", MIB(100), MIB(260));
    synthetic_figure(&s, "heap_free_bytes", MIB(10), MIB(250));
    assert_true(
        has_evidence(synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH), EVIDENCE_AGAINST, "is free"));
    expect_first(HYPOTHESIS_RETENTION);
}

static void cache_is_ruled_out_if_growth_outlasts_the_first_epoch(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_FIRST_TOUCH, RULED_OUT);
}

static void cache_is_unlikely_if_growth_ends_long_after_the_first_epoch(void **state)
{
    (void)state;
    growth_stops_after(120);
    assert_true(synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH)->word <= UNLIKELY);
}

static void first_epoch_ends_at_epoch_mark_if_epoch_length_is_unknown(void **state)
{
    (void)state;
    growth_stops_after(120);
    for (size_t i = 0; i < s.f.n_marks; i++)
        s.marks[i].step = (int64_t)i + 1;
    s.f.steps_per_epoch = 0;
    synthetic_mark(&s, VERDICT_MARK_EPOCH, 60);
    const struct hypothesis *h = synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH);
    assert_true(has_evidence(h, EVIDENCE_AGAINST,
                             "growth ended at step 120, but the first epoch ended at step 50"));
    s.processes[0].verdict.ended_step = 52;
    h = synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH);
    assert_true(has_evidence(h, EVIDENCE_FOR, "stopped when the first epoch ended, at step 52"));
}

static void epoch_mark_without_step_numbers_gives_no_epoch_length(void **state)
{
    (void)state;
    growth_stops_after(120);
    for (size_t i = 0; i < s.f.n_marks; i++)
        s.marks[i].step = -1;
    s.f.steps_per_epoch = 0;
    synthetic_mark(&s, VERDICT_MARK_EPOCH, 60);
    const struct hypothesis *h = synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH);
    assert_true(has_evidence(h, EVIDENCE_AGAINST, "growth ended at step 120, not at the end"));
}

static void cache_is_a_likely_cause_during_the_first_epoch(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_verdict(&s, 0, VERDICT_FILLING);
    s.f.steps_per_epoch = 1000;
    const struct hypothesis *h = synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH);
    assert_true(h->word == LIKELY || h->word == NEARLY_CERTAIN);
    assert_true(has_evidence(h, EVIDENCE_FOR, "step 190 of 1000"));
}

static void cache_hypothesis_requires_the_epoch_length(void **state)
{
    (void)state;
    memory_leaks();
    s.f.steps_per_epoch = 0;
    expect(HYPOTHESIS_FIRST_TOUCH, CANNOT_TEST);
    expect_absent(HYPOTHESIS_FIRST_TOUCH, "no marks");
}

static void gradient_accumulation_is_ruled_out_by_growth_at_step_ends(void **state)
{
    (void)state;
    memory_leaks();
    s.f.substeps = 1000;
    expect(HYPOTHESIS_ACCUMULATION, RULED_OUT);
}

static void sawtooth_over_steps_is_diagnosed_as_gradient_accumulation(void **state)
{
    (void)state;
    memory_is_flat();
    s.f.n_marks = 0;
    for (double t_s = 10; t_s < 200; t_s += 3) {
        synthetic_mark(&s, VERDICT_MARK_STEP, t_s + 0.5);
        synthetic_spike(&s, t_s - 1, MIB(100));
    }
    s.f.substeps = 600;
    expect(HYPOTHESIS_ACCUMULATION, LIKELY);
}

static void gradient_accumulation_hypothesis_requires_step_marks(void **state)
{
    (void)state;
    memory_leaks();
    s.f.n_marks = 0;
    s.f.has_steps = false;
    expect(HYPOTHESIS_ACCUMULATION, CANNOT_TEST);
}

static void temporary_peaks_at_evaluations_are_diagnosed_as_eval_spikes(void **state)
{
    (void)state;
    memory_is_flat();
    synthetic_verdict(&s, 0, VERDICT_SPIKING);
    for (double t_s = 30; t_s < 190; t_s += 20) {
        synthetic_spike(&s, t_s, MIB(200));
        synthetic_mark(&s, VERDICT_MARK_EVAL, t_s + 0.1);
    }
    expect(HYPOTHESIS_EVAL_SPIKE, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_EVAL_SPIKE);
    expect(HYPOTHESIS_EVAL_STEP, RULED_OUT);
}

static void evaluation_without_a_peak_is_evidence_against_eval_spikes(void **state)
{
    (void)state;
    memory_is_flat();
    synthetic_mark(&s, VERDICT_MARK_EVAL, 100.5);
    assert_true(
        has_evidence(synthetic_test(&s, HYPOTHESIS_EVAL_SPIKE), EVIDENCE_AGAINST, "1 eval"));
}

static void evaluation_hypotheses_require_evaluation_marks(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_EVAL_SPIKE, CANNOT_TEST);
    expect(HYPOTHESIS_EVAL_STEP, CANNOT_TEST);
}

/* Memory grows by 50 MiB at each evaluation. */
static void memory_grows_at_evaluations(void)
{
    synthetic_memory(&s, MIB(500), MIB(500), 200);
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] += s.t_s[i] > 30 ? MIB(50) * floor((s.t_s[i] - 10) / 20) : 0;
    memcpy(s.v[0][SAMPLE_ANON], s.v[0][SAMPLE_RSS], sizeof s.v[0][SAMPLE_ANON]);
    synthetic_verdict(&s, 0, VERDICT_STEPPING);
    s.processes[0].verdict.event = VERDICT_MARK_EVAL;
    synthetic_steps(&s, 50);
    for (double t_s = 30; t_s < 190; t_s += 20)
        synthetic_mark(&s, VERDICT_MARK_EVAL, t_s - 0.5);
}

static void rise_at_each_evaluation_is_diagnosed_as_growth_at_events(void **state)
{
    (void)state;
    memory_grows_at_evaluations();
    expect(HYPOTHESIS_EVAL_STEP, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_EVAL_STEP);
}

/* Training ends with an evaluation, whose memory is freed before the next reading. */
static void memory_freed_after_last_evaluation_does_not_reduce_growth(void **state)
{
    (void)state;
    memory_grows_at_evaluations();
    s.f.now_s = 170;
    for (size_t i = 171; i < SYNTHETIC_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] = s.v[0][SAMPLE_ANON][i] = MIB(100);
    s.f.n_marks = 0;
    synthetic_steps(&s, 50);
    for (double t_s = 30; t_s < 180; t_s += 20)
        synthetic_mark(&s, VERDICT_MARK_EVAL, t_s - 0.5);
    assert_true(synthetic_test(&s, HYPOTHESIS_EVAL_STEP)->share > 0.8);
}

/* In a short run with few evaluations, the verdict may attribute any growth to them. */
static void growth_between_evaluations_is_not_explained_by_evaluations(void **state)
{
    (void)state;
    memory_grows_at_evaluations();
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] += MIB(20) * fmax(0, s.t_s[i] - 10);
    memcpy(s.v[0][SAMPLE_ANON], s.v[0][SAMPLE_RSS], sizeof s.v[0][SAMPLE_ANON]);
    synthetic_row(&s, "/job/train.py", MIB(10), MIB(3800), VERDICT_UNDECIDED);
    expect_first(HYPOTHESIS_CALL_SITE);
}

/* The garbage collector frees memory of evaluations, and the allocator retains it. */
static void rss_growth_at_evals_with_flat_heap_is_diagnosed_as_spikes(void **state)
{
    (void)state;
    memory_grows_at_evaluations();
    synthetic_verdict(&s, 0, VERDICT_UNDECIDED);
    synthetic_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    expect_first(HYPOTHESIS_EVAL_SPIKE);
    assert_true(has_evidence(&s.ranked[0], EVIDENCE_FOR, "allocations are freed"));
    assert_true(synthetic_test(&s, HYPOTHESIS_EVAL_STEP)->word <= UNLIKELY);
}

/* Only the last evaluations raise resident memory, so the baselines of the two halves of the run do
 * not differ. The live heap shows that these evaluations freed their memory. */
static void memory_freed_after_evaluations_contradicts_growth_at_events(void **state)
{
    (void)state;
    memory_grows_at_evaluations();
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] = s.v[0][SAMPLE_ANON][i] =
            fmax(MIB(500), s.v[0][SAMPLE_RSS][i] - MIB(300));
    synthetic_verdict(&s, 0, VERDICT_UNDECIDED);
    double without = synthetic_test(&s, HYPOTHESIS_EVAL_STEP)->log_odds;
    synthetic_figure(&s, "heap_live_bytes", MIB(300), MIB(305));
    const struct hypothesis *h = synthetic_test(&s, HYPOTHESIS_EVAL_STEP);
    assert_true(h->log_odds < without);
    assert_true(has_evidence(h, EVIDENCE_AGAINST, "while the live heap changed by"));
}

/* The last 20 s include free memory left by a late evaluation. The allocator counts this memory,
 * but the baseline of the second half of the run does not include it. */
static void eval_spikes_are_diagnosed_even_if_last_eval_leaves_free_memory(void **state)
{
    (void)state;
    memory_is_flat();
    for (size_t i = 180; i < SYNTHETIC_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] += MIB(40);
    synthetic_verdict(&s, 0, VERDICT_UNDECIDED);
    for (double t_s = 30; t_s < 170; t_s += 20) {
        synthetic_spike(&s, t_s, MIB(60));
        synthetic_mark(&s, VERDICT_MARK_EVAL, t_s + 0.1);
    }
    synthetic_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    synthetic_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    synthetic_figure(&s, "heap_free_bytes", MIB(10), MIB(50));
    expect_first(HYPOTHESIS_EVAL_SPIKE);
    synthetic_verdict(&s, 0, VERDICT_LEAKING);
    assert_true(synthetic_test(&s, HYPOTHESIS_EVAL_SPIKE)->share < 0.1);
}

static void growth_at_events_is_diagnosed_if_live_heap_jumps_at_evals(void **state)
{
    (void)state;
    memory_grows_at_evaluations();
    synthetic_verdict(&s, 0, VERDICT_UNDECIDED);
    synthetic_figure(&s, "heap_live_bytes", MIB(300), MIB(700));
    expect_first(HYPOTHESIS_EVAL_STEP);
}

static void steady_growth_is_not_diagnosed_as_growth_at_events(void **state)
{
    (void)state;
    memory_leaks();
    for (double t_s = 30; t_s < 190; t_s += 20)
        synthetic_mark(&s, VERDICT_MARK_EVAL, t_s + 0.5);
    expect(HYPOTHESIS_EVAL_STEP, RULED_OUT);
}

#define T(f) cmocka_unit_test_setup_teardown(f, scenario_begin, scenario_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(memory_peak_at_the_end_is_not_evidence_of_growth),
        T(reported_start_up_allocation_never_exceeds_final_memory),
        T(data_load_is_diagnosed_if_growth_ends_during_start_up),
        T(single_jump_before_flat_memory_is_diagnosed_as_data_load),
        T(single_jump_at_one_call_site_is_diagnosed_as_data_load),
        T(growth_within_one_long_step_counts_as_a_jump),
        T(growth_over_many_steps_does_not_count_as_a_jump),
        T(growth_that_continues_is_not_diagnosed_as_data_load),
        T(jump_of_free_heap_memory_is_not_diagnosed_as_data_load),
        T(temporary_spike_does_not_count_as_a_lasting_jump),
        T(data_load_hypothesis_requires_marks),
        T(growth_that_ends_with_first_epoch_is_diagnosed_as_a_cache),
        T(late_writes_to_a_buffer_are_diagnosed_as_first_touch),
        T(growth_of_free_memory_in_first_epoch_is_not_diagnosed_as_cache),
        T(growth_that_is_partly_free_memory_is_not_diagnosed_as_cache),
        T(cache_is_ruled_out_if_growth_outlasts_the_first_epoch),
        T(cache_is_unlikely_if_growth_ends_long_after_the_first_epoch),
        T(first_epoch_ends_at_epoch_mark_if_epoch_length_is_unknown),
        T(epoch_mark_without_step_numbers_gives_no_epoch_length),
        T(cache_is_a_likely_cause_during_the_first_epoch),
        T(cache_hypothesis_requires_the_epoch_length),
        T(gradient_accumulation_is_ruled_out_by_growth_at_step_ends),
        T(sawtooth_over_steps_is_diagnosed_as_gradient_accumulation),
        T(gradient_accumulation_hypothesis_requires_step_marks),
        T(temporary_peaks_at_evaluations_are_diagnosed_as_eval_spikes),
        T(evaluation_without_a_peak_is_evidence_against_eval_spikes),
        T(evaluation_hypotheses_require_evaluation_marks),
        T(rise_at_each_evaluation_is_diagnosed_as_growth_at_events),
        T(memory_freed_after_last_evaluation_does_not_reduce_growth),
        T(growth_between_evaluations_is_not_explained_by_evaluations),
        T(rss_growth_at_evals_with_flat_heap_is_diagnosed_as_spikes),
        T(memory_freed_after_evaluations_contradicts_growth_at_events),
        T(eval_spikes_are_diagnosed_even_if_last_eval_leaves_free_memory),
        T(growth_at_events_is_diagnosed_if_live_heap_jumps_at_evals),
        T(steady_growth_is_not_diagnosed_as_growth_at_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
