/* Hypotheses that show in when memory grew, each with facts for it, against it, and without them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "diagnose/tale.h"

static void one_jump_and_then_flat_is_the_data(void **state)
{
    (void)state;
    it_stops_after(2);
    expect(HYPOTHESIS_DATA_LOAD, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_DATA_LOAD);
}

static void one_jump_is_the_data_whatever_line_holds_it(void **state)
{
    (void)state;
    it_stops_after(2);
    story_row(&s, "/job/data.py", MIB(100), MIB(500), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_DATA_LOAD);
    expect(HYPOTHESIS_CALL_SITE, LIKELY);
}

/* A library that is imported late, or a data set, takes its time. */
static void a_rise_within_one_long_step_is_a_jump(void **state)
{
    (void)state;
    size_t n = 0;
    it_stops_after(20);
    expect(HYPOTHESIS_DATA_LOAD, RULED_OUT);
    for (size_t i = 0; i < s.f.n_marks; i++)
        if (s.f.marks[i].t_s < 11 || s.f.marks[i].t_s > 30)
            s.marks[n++] = s.f.marks[i];
    s.f.n_marks = n;
    expect(HYPOTHESIS_DATA_LOAD, NEARLY_CERTAIN);
}

static void what_takes_many_steps_is_no_jump(void **state)
{
    (void)state;
    it_stops_after(8);
    assert_true(story_ask(&s, HYPOTHESIS_DATA_LOAD)->word <= UNLIKELY);
}

static void growth_that_goes_on_is_not_the_data(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_DATA_LOAD, RULED_OUT);
}

/* Pages that were asked for before and are only now touched, or the allocator's. */
static void a_jump_of_what_is_not_alive_is_not_the_data(void **state)
{
    (void)state;
    it_stops_after(100);
    for (size_t i = 0; i < STORY_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] = s.v[0][SAMPLE_ANON][i] = i < 60 ? MIB(500) : MIB(900);
    expect(HYPOTHESIS_DATA_LOAD, NEARLY_CERTAIN);
    story_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    assert_true(story_ask(&s, HYPOTHESIS_DATA_LOAD)->word <= UNLIKELY);
}

static void a_spike_is_no_jump(void **state)
{
    (void)state;
    it_stops_after(100);
    story_spike(&s, 60, MIB(2000));
    assert_true(story_ask(&s, HYPOTHESIS_DATA_LOAD)->word <= UNLIKELY);
}

static void without_marks_the_data_is_said_to_be_uncertain(void **state)
{
    (void)state;
    it_is_flat();
    s.f.n_marks = 0;
    expect_absent(HYPOTHESIS_DATA_LOAD, "no marks");
}

static void growth_that_ends_with_the_first_pass_is_a_cache(void **state)
{
    (void)state;
    it_stops_after(50);
    s.f.examples = 400;
    story_row(&s, "/job/data.py", MIB(10), MIB(400), VERDICT_PLATEAUED);
    expect(HYPOTHESIS_FIRST_TOUCH, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_FIRST_TOUCH);
    const struct hypothesis *h = &s.ranked[0];
    assert_ptr_equal(h->site, &s.rows[0]);
    assert_true(story_says(h, EVIDENCE_FOR, "step 50"));
    assert_true(story_says(h, EVIDENCE_FOR, "for each example about 1.00 MiB"));
}

/* Whether that is over, or goes on until all of it is written to. */
static void a_buffer_that_was_there_before_and_is_filled_is_first_touch(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/replay.py", MIB(900), MIB(900), VERDICT_STABLE);
    s.rows[0].live_objects = 1;
    expect_first(HYPOTHESIS_FIRST_TOUCH);
    assert_ptr_equal(story_ask(&s, HYPOTHESIS_FIRST_TOUCH)->site, &s.rows[0]);
    s.rows[0].live_objects = 1e6;
    assert_true(story_ask(&s, HYPOTHESIS_FIRST_TOUCH)->word <= UNLIKELY);
}

/* Fragments, or what a longer batch left. */
static void growth_that_ends_with_the_first_pass_and_is_not_alive_is_no_cache(void **state)
{
    (void)state;
    it_stops_after(50);
    story_row(&s, "/job/data.py", MIB(100), MIB(100), VERDICT_STABLE);
    story_figure(&s, "heap_live_bytes", MIB(100), MIB(100));
    story_figure(&s, "heap_free_bytes", MIB(10), MIB(400));
    expect_first(HYPOTHESIS_RETENTION);
    assert_true(story_says(story_ask(&s, HYPOTHESIS_FIRST_TOUCH), EVIDENCE_AGAINST, "is let go"));
}

static void growth_of_which_most_is_free_is_no_cache(void **state)
{
    (void)state;
    it_stops_after(50);
    story_row(&s, "/job/data.py", MIB(100), MIB(260), VERDICT_PLATEAUED);
    story_figure(&s, "heap_live_bytes", MIB(100), MIB(260));
    story_figure(&s, "heap_free_bytes", MIB(10), MIB(250));
    assert_true(story_says(story_ask(&s, HYPOTHESIS_FIRST_TOUCH), EVIDENCE_AGAINST, "is free"));
    expect_first(HYPOTHESIS_RETENTION);
}

static void growth_beyond_the_first_pass_rules_a_cache_out(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_FIRST_TOUCH, RULED_OUT);
}

static void growth_that_ends_elsewhere_speaks_against_a_cache(void **state)
{
    (void)state;
    it_stops_after(120);
    assert_true(story_ask(&s, HYPOTHESIS_FIRST_TOUCH)->word <= UNLIKELY);
}

static void within_the_first_pass_a_cache_is_likely_and_not_more(void **state)
{
    (void)state;
    it_leaks();
    story_verdict(&s, 0, VERDICT_FILLING);
    s.f.steps_per_epoch = 1000;
    const struct hypothesis *h = story_ask(&s, HYPOTHESIS_FIRST_TOUCH);
    assert_true(h->word == LIKELY || h->word == NEARLY_CERTAIN);
    assert_true(story_says(h, EVIDENCE_FOR, "step 190 of 1000"));
}

static void without_the_length_of_a_pass_a_cache_cannot_be_told(void **state)
{
    (void)state;
    it_leaks();
    s.f.steps_per_epoch = 0;
    expect(HYPOTHESIS_FIRST_TOUCH, CANNOT_TEST);
    expect_absent(HYPOTHESIS_FIRST_TOUCH, "no marks");
}

static void growth_at_the_ends_of_steps_rules_accumulation_out(void **state)
{
    (void)state;
    it_leaks();
    s.f.substeps = 1000;
    expect(HYPOTHESIS_ACCUMULATION, RULED_OUT);
}

static void a_saw_tooth_within_steps_is_accumulation(void **state)
{
    (void)state;
    it_is_flat();
    s.f.n_marks = 0;
    for (double t_s = 10; t_s < 200; t_s += 3) {
        story_mark(&s, VERDICT_MARK_STEP, t_s + 0.5);
        story_spike(&s, t_s - 1, MIB(100));
    }
    s.f.substeps = 600;
    expect(HYPOTHESIS_ACCUMULATION, LIKELY);
}

static void without_steps_accumulation_cannot_be_tested(void **state)
{
    (void)state;
    it_leaks();
    s.f.n_marks = 0;
    s.f.has_steps = false;
    expect(HYPOTHESIS_ACCUMULATION, CANNOT_TEST);
}

static void peaks_at_evaluations_that_fall_again_are_spikes(void **state)
{
    (void)state;
    it_is_flat();
    story_verdict(&s, 0, VERDICT_SPIKING);
    for (double t_s = 30; t_s < 190; t_s += 20) {
        story_spike(&s, t_s, MIB(200));
        story_mark(&s, VERDICT_MARK_EVAL, t_s + 0.1);
    }
    expect(HYPOTHESIS_EVAL_SPIKE, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_EVAL_SPIKE);
    expect(HYPOTHESIS_EVAL_STEP, RULED_OUT);
}

static void evaluations_without_a_rise_speak_against_spikes(void **state)
{
    (void)state;
    it_is_flat();
    story_mark(&s, VERDICT_MARK_EVAL, 100.5);
    assert_true(story_says(story_ask(&s, HYPOTHESIS_EVAL_SPIKE), EVIDENCE_AGAINST, "1 eval"));
}

static void without_marked_evaluations_they_cannot_be_tested(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_EVAL_SPIKE, CANNOT_TEST);
    expect(HYPOTHESIS_EVAL_STEP, CANNOT_TEST);
}

/* 50 MiB more after each. */
static void it_steps(void)
{
    story_memory(&s, MIB(500), MIB(500), 200);
    for (size_t i = 0; i < STORY_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] += s.t_s[i] > 30 ? MIB(50) * floor((s.t_s[i] - 10) / 20) : 0;
    memcpy(s.v[0][SAMPLE_ANON], s.v[0][SAMPLE_RSS], sizeof s.v[0][SAMPLE_ANON]);
    story_verdict(&s, 0, VERDICT_STEPPING);
    s.processes[0].verdict.event = VERDICT_MARK_EVAL;
    story_steps(&s, 50);
    for (double t_s = 30; t_s < 190; t_s += 20)
        story_mark(&s, VERDICT_MARK_EVAL, t_s - 0.5);
}

static void a_floor_that_rises_at_evaluations_stays(void **state)
{
    (void)state;
    it_steps();
    expect(HYPOTHESIS_EVAL_STEP, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_EVAL_STEP);
}

/* A training that ends with an evaluation: all is given back within the next reading. */
static void what_is_given_back_after_the_last_evaluation_is_not_taken_off(void **state)
{
    (void)state;
    it_steps();
    s.f.now_s = 170;
    for (size_t i = 171; i < STORY_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] = s.v[0][SAMPLE_ANON][i] = MIB(100);
    s.f.n_marks = 0;
    story_steps(&s, 50);
    for (double t_s = 30; t_s < 180; t_s += 20)
        story_mark(&s, VERDICT_MARK_EVAL, t_s - 0.5);
    assert_true(story_ask(&s, HYPOTHESIS_EVAL_STEP)->share > 0.8);
}

/* A short run with few of them: the verdict may take any rise for one of theirs. */
static void a_verdict_of_stepping_explains_what_came_with_evaluations_and_not_more(void **state)
{
    (void)state;
    it_steps();
    for (size_t i = 0; i < STORY_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] += MIB(20) * fmax(0, s.t_s[i] - 10);
    memcpy(s.v[0][SAMPLE_ANON], s.v[0][SAMPLE_RSS], sizeof s.v[0][SAMPLE_ANON]);
    story_row(&s, "/job/train.py", MIB(10), MIB(3800), VERDICT_UNDECIDED);
    expect_first(HYPOTHESIS_CALL_SITE);
}

/* The garbage collector takes what they made, and the allocator keeps it. */
static void a_floor_that_rises_while_what_is_made_is_let_go_is_a_spike(void **state)
{
    (void)state;
    it_steps();
    story_verdict(&s, 0, VERDICT_UNDECIDED);
    story_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    expect_first(HYPOTHESIS_EVAL_SPIKE);
    assert_true(story_says(&s.ranked[0], EVIDENCE_FOR, "is let go"));
    assert_true(story_ask(&s, HYPOTHESIS_EVAL_STEP)->word <= UNLIKELY);
}

/* Only the last ones left something: floors by halves do not show it, the profiler does. */
static void what_is_free_after_evaluations_is_not_kept_by_them(void **state)
{
    (void)state;
    it_steps();
    for (size_t i = 0; i < STORY_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] = s.v[0][SAMPLE_ANON][i] =
            fmax(MIB(500), s.v[0][SAMPLE_RSS][i] - MIB(300));
    story_verdict(&s, 0, VERDICT_UNDECIDED);
    double without = story_ask(&s, HYPOTHESIS_EVAL_STEP)->log_odds;
    story_figure(&s, "heap_live_bytes", MIB(300), MIB(305));
    const struct hypothesis *h = story_ask(&s, HYPOTHESIS_EVAL_STEP);
    assert_true(h->log_odds < without);
    assert_true(story_says(h, EVIDENCE_AGAINST, "is not alive on the heap"));
}

/* One of them left a hole, late: floors by halves do not show it, but the allocator says so. */
static void free_memory_that_peaks_could_have_left_is_of_spikes(void **state)
{
    (void)state;
    it_is_flat();
    for (size_t i = 180; i < STORY_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] += MIB(40);
    story_verdict(&s, 0, VERDICT_UNDECIDED);
    for (double t_s = 30; t_s < 170; t_s += 20) {
        story_spike(&s, t_s, MIB(60));
        story_mark(&s, VERDICT_MARK_EVAL, t_s + 0.1);
    }
    story_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    story_figure(&s, "heap_live_bytes", MIB(300), MIB(300));
    story_figure(&s, "heap_free_bytes", MIB(10), MIB(50));
    expect_first(HYPOTHESIS_EVAL_SPIKE);
    story_verdict(&s, 0, VERDICT_LEAKING);
    assert_true(story_ask(&s, HYPOTHESIS_EVAL_SPIKE)->share < 0.1);
}

static void a_floor_that_rises_with_what_lives_is_none(void **state)
{
    (void)state;
    it_steps();
    story_verdict(&s, 0, VERDICT_UNDECIDED);
    story_figure(&s, "heap_live_bytes", MIB(300), MIB(700));
    expect_first(HYPOTHESIS_EVAL_STEP);
}

static void even_growth_is_not_of_evaluations(void **state)
{
    (void)state;
    it_leaks();
    for (double t_s = 30; t_s < 190; t_s += 20)
        story_mark(&s, VERDICT_MARK_EVAL, t_s + 0.5);
    expect(HYPOTHESIS_EVAL_STEP, RULED_OUT);
}

#define T(f) cmocka_unit_test_setup_teardown(f, tale_begin, tale_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(one_jump_and_then_flat_is_the_data),
        T(one_jump_is_the_data_whatever_line_holds_it),
        T(a_rise_within_one_long_step_is_a_jump),
        T(what_takes_many_steps_is_no_jump),
        T(growth_that_goes_on_is_not_the_data),
        T(a_jump_of_what_is_not_alive_is_not_the_data),
        T(a_spike_is_no_jump),
        T(without_marks_the_data_is_said_to_be_uncertain),
        T(growth_that_ends_with_the_first_pass_is_a_cache),
        T(a_buffer_that_was_there_before_and_is_filled_is_first_touch),
        T(growth_that_ends_with_the_first_pass_and_is_not_alive_is_no_cache),
        T(growth_of_which_most_is_free_is_no_cache),
        T(growth_beyond_the_first_pass_rules_a_cache_out),
        T(growth_that_ends_elsewhere_speaks_against_a_cache),
        T(within_the_first_pass_a_cache_is_likely_and_not_more),
        T(without_the_length_of_a_pass_a_cache_cannot_be_told),
        T(growth_at_the_ends_of_steps_rules_accumulation_out),
        T(a_saw_tooth_within_steps_is_accumulation),
        T(without_steps_accumulation_cannot_be_tested),
        T(peaks_at_evaluations_that_fall_again_are_spikes),
        T(evaluations_without_a_rise_speak_against_spikes),
        T(without_marked_evaluations_they_cannot_be_tested),
        T(a_floor_that_rises_at_evaluations_stays),
        T(what_is_given_back_after_the_last_evaluation_is_not_taken_off),
        T(a_verdict_of_stepping_explains_what_came_with_evaluations_and_not_more),
        T(a_floor_that_rises_while_what_is_made_is_let_go_is_a_spike),
        T(what_is_free_after_evaluations_is_not_kept_by_them),
        T(free_memory_that_peaks_could_have_left_is_of_spikes),
        T(a_floor_that_rises_with_what_lives_is_none),
        T(even_growth_is_not_of_evaluations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
