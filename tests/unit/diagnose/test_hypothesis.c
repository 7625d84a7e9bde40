/* Each hypothesis with facts that speak for it, against it, and without those it needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "diagnose/advice.h"
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

/* ---- stories that many tests tell ---- */

static void it_leaks(void)
{
    story_memory(&s, MIB(500), MIB(900), 200);
    story_verdict(&s, 0, VERDICT_LEAKING);
    story_steps(&s, 50);
}

static void it_is_flat(void)
{
    story_memory(&s, MIB(500), MIB(500), 200);
    story_verdict(&s, 0, VERDICT_STABLE);
    story_steps(&s, 50);
}

static void it_stops_after(double seconds)
{
    story_memory(&s, MIB(500), MIB(900), 10 + seconds);
    story_verdict(&s, 0, VERDICT_PLATEAUED);
    s.processes[0].verdict.has_ended = true;
    s.processes[0].verdict.ended_step = (int64_t)seconds;
    story_steps(&s, 50);
}

static void expect(enum hypothesis_id id, enum hypothesis_word word)
{
    const struct hypothesis *h = story_ask(&s, id);
    if (h->word != word)
        fail_msg("%s is %s, not %s: %s", hypothesis_key(id), hypothesis_word_text(h->word),
                 hypothesis_word_text(word), h->n_evidence ? h->evidence[0].text : "no evidence");
}

static void expect_first(enum hypothesis_id id)
{
    story_ask(&s, id);
    if (s.ranked[0].id != id)
        fail_msg("%s is first, not %s", hypothesis_key(s.ranked[0].id), hypothesis_key(id));
}

static void expect_absent(enum hypothesis_id id, const char *text)
{
    const struct hypothesis *h = story_ask(&s, id);
    assert_true(story_says(h, EVIDENCE_ABSENT, text));
}

/* ---- when it grew ---- */

static void nothing_grows_where_the_verdict_is_stable(void **state)
{
    (void)state;
    it_is_flat();
    expect(HYPOTHESIS_NO_GROWTH, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void memory_that_leaks_rules_no_growth_out(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
}

static void it_grew_once_by(double bytes)
{
    story_memory(&s, MIB(500), MIB(500) + bytes, 30);
    story_verdict(&s, 0, VERDICT_PLATEAUED);
    s.processes[0].verdict.has_ended = true;
    s.processes[0].verdict.ended_step = 20;
    story_steps(&s, 50);
}

/* Kinds are read once a second or less often: the last reading before the start may be of a time
 * when libraries were still coming in. */
static void file_pages_are_those_of_the_nearest_reading(void **state)
{
    (void)state;
    it_is_flat();
    double *file = s.v[0][SAMPLE_FILE];
    for (size_t i = 0; i < STORY_POINTS; i++)
        file[i] = i == 5 ? MIB(20) : i >= 11 ? MIB(100) : (double)NAN;
    story_ask(&s, HYPOTHESIS_NO_GROWTH);
    assert_true(fabs(s.question.base - MIB(400)) < 1);
    assert_true(fabs(ledger_growth(&s.ledger, LEDGER_FILES)) < 1);
}

static void file_pages_are_not_those_of_a_process_on_its_way_out(void **state)
{
    (void)state;
    it_is_flat();
    s.f.now_s = 195;
    double *file = s.v[0][SAMPLE_FILE];
    for (size_t i = 0; i < STORY_POINTS; i++)
        file[i] = i == 196 ? MIB(20) : i <= 180 ? MIB(100) : (double)NAN;
    for (size_t i = 196; i < STORY_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] -= MIB(80);
    story_ask(&s, HYPOTHESIS_NO_GROWTH);
    assert_true(fabs(ledger_growth(&s.ledger, LEDGER_FILES)) < 1);
    assert_true(fabs(s.question.growth) < 1);
}

/* What is too little to ask about is not said to have no cause. */
static void small_growth_that_has_ended_rules_no_cause_out(void **state)
{
    (void)state;
    it_grew_once_by(MIB(30));
    story_census(&s, 0, 0, false);
    story_row(&s, "/job/train.py", MIB(10), MIB(20), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_NO_GROWTH);
    expect(HYPOTHESIS_CALL_SITE, LIKELY);
    expect(HYPOTHESIS_PYTHON_OBJECTS, CANNOT_TEST);
    expect_absent(HYPOTHESIS_FIRST_TOUCH, "grew by 30.0 MiB and has stopped: too little");
}

static void what_is_flat_by_the_verdict_is_asked_about_where_it_had_grown_before(void **state)
{
    (void)state;
    it_grew_once_by(MIB(100));
    story_verdict(&s, 0, VERDICT_STABLE);
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
    story_verdict(&s, 0, VERDICT_SPIKING);
    expect(HYPOTHESIS_NO_GROWTH, NEARLY_CERTAIN);
}

static void small_growth_that_has_ended_is_none(void **state)
{
    (void)state;
    it_grew_once_by(MIB(30));
    s.f.limit_bytes = MIB(16000);
    story_row(&s, "/job/train.py", MIB(10), MIB(20), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_NO_GROWTH);
    expect(HYPOTHESIS_NO_GROWTH, NEARLY_CERTAIN);
    assert_true(story_says(&s.ranked[0], EVIDENCE_FOR, "has ended, and is small"));
}

static void small_growth_of_which_one_site_has_most_is_told(void **state)
{
    (void)state;
    it_grew_once_by(MIB(35));
    story_row(&s, "/job/train.py", MIB(10), MIB(40), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_CALL_SITE);
}

/* Any program comes to hold a little with its first steps. */
static void what_a_site_holds_is_told_from_a_twentieth_on(void **state)
{
    (void)state;
    it_grew_once_by(MIB(20));
    story_row(&s, "/job/train.py", MIB(10), MIB(28), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

/* Between two readings file pages came as memory did. */
static void
file_pages_of_a_process_that_has_just_begun_are_not_those_of_its_first_moment(void **state)
{
    (void)state;
    it_is_flat();
    double *file = s.v[0][SAMPLE_FILE], *rss = s.v[0][SAMPLE_RSS];
    for (size_t i = 0; i < STORY_POINTS; i++) {
        file[i] = i == 9 ? 0 : i >= 14 ? MIB(100) : (double)NAN;
        rss[i] = i < 10 ? MIB(10) : MIB(500);
    }
    story_ask(&s, HYPOTHESIS_NO_GROWTH);
    assert_true(fabs(ledger_growth(&s.ledger, LEDGER_FILES)) < 1);
}

static void undecided_growth_that_came_at_first_has_ended(void **state)
{
    (void)state;
    it_grew_once_by(MIB(20));
    story_verdict(&s, 0, VERDICT_UNDECIDED);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void growth_that_has_ended_is_asked_about_from_a_tenth_on(void **state)
{
    (void)state;
    it_grew_once_by(MIB(60));
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
}

static void so_it_is_where_it_takes_a_tenth_of_the_room(void **state)
{
    (void)state;
    it_grew_once_by(MIB(30));
    s.f.limit_bytes = MIB(600);
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
}

static void small_growth_that_goes_on_is_growth(void **state)
{
    (void)state;
    it_grew_once_by(MIB(30));
    story_verdict(&s, 0, VERDICT_LEAKING);
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
}

static void without_a_reading_nothing_can_be_tested(void **state)
{
    (void)state;
    expect(HYPOTHESIS_NO_GROWTH, CANNOT_TEST);
    expect(HYPOTHESIS_DATA_LOAD, CANNOT_TEST);
    expect(HYPOTHESIS_FIRST_TOUCH, CANNOT_TEST);
    expect(HYPOTHESIS_RETENTION, CANNOT_TEST);
    assert_false(s.ledger.is_known);
}

static void no_process_at_all_is_no_crash(void **state)
{
    (void)state;
    struct advice advice[ADVICE_MAX];
    s.f.n_processes = 0;
    s.f.main = NULL;
    story_ask(&s, HYPOTHESIS_NO_GROWTH);
    for (int i = 0; i < HYPOTHESIS_COUNT; i++)
        assert_false(story_says(&s.ranked[i], EVIDENCE_FOR, NULL));
    assert_int_equal(advice_make(&s.question, s.ranked, advice), 0);
}

static void one_jump_and_then_flat_is_the_data(void **state)
{
    (void)state;
    it_stops_after(2);
    expect(HYPOTHESIS_DATA_LOAD, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_DATA_LOAD);
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
    memcpy(s.processes[0].verdict.event, "eval", 5);
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

/* ---- what is alive ---- */

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

/* ---- what the kernel counts ---- */

/* The workers grow, by 90 MiB, and this process by 15. */
static void the_heap_of_one_process_says_nothing_against_growth_in_others(void **state)
{
    (void)state;
    story_memory(&s, MIB(500), MIB(515), 200);
    story_verdict(&s, 0, VERDICT_UNDECIDED);
    story_row(&s, "/job/model.py", MIB(300), MIB(300), VERDICT_STABLE);
    for (size_t i = 0; i < STORY_POINTS; i++)
        s.machine_v[MACHINE_CHARGE][i] = MIB(500) + MIB(0.5) * (double)i;
    s.f.machine[MACHINE_CHARGE] =
        (struct facts_series){s.t_s, s.machine_v[MACHINE_CHARGE], STORY_POINTS};
    expect(HYPOTHESIS_CALL_SITE, CANNOT_TEST);
    expect(HYPOTHESIS_RETENTION, CANNOT_TEST);
    expect_absent(HYPOTHESIS_CALL_SITE, "only 15.0 MiB is in the process");
    s.f.machine[MACHINE_CHARGE].count = 0;
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

/* ---- which process ---- */

static void a_launcher_alone_was_watched_instead_of_the_job(void **state)
{
    (void)state;
    it_is_flat();
    s.processes[0].role = ROLE_LAUNCHER;
    expect(HYPOTHESIS_LAUNCHER, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_LAUNCHER);
    s.processes[0].role = ROLE_MAIN;
    expect(HYPOTHESIS_LAUNCHER, RULED_OUT);
    s.processes[0].role = ROLE_OTHER;
    expect(HYPOTHESIS_LAUNCHER, CANNOT_TEST);
}

static void large_workers_that_are_flat_are_said_to_be(void **state)
{
    (void)state;
    it_is_flat();
    for (size_t i = 1; i <= 4; i++) {
        story_process(&s, ROLE_COMPILE_WORKER);
        story_field(&s, i, SAMPLE_RSS, MIB(400), MIB(400), 200);
        story_field(&s, i, SAMPLE_UNIQUE, MIB(300), MIB(300), 200);
        story_verdict(&s, i, VERDICT_STABLE);
    }
    const struct hypothesis *h = story_ask(&s, HYPOTHESIS_WORKERS);
    assert_true(h->word == LIKELY);
    assert_true(
        story_says(h, EVIDENCE_FOR, "RSS up to 400 MiB, in all 1.56 GiB, of which 1.17 GiB"));
    story_verdict(&s, 1, VERDICT_LEAKING);
    assert_true(story_ask(&s, HYPOTHESIS_WORKERS)->word <= UNLIKELY);
}

static void without_workers_they_are_ruled_out(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_WORKERS, RULED_OUT);
    expect(HYPOTHESIS_COPY_ON_WRITE, RULED_OUT);
    s.processes[0].role = ROLE_OTHER;
    expect(HYPOTHESIS_WORKERS, CANNOT_TEST);
    expect(HYPOTHESIS_COPY_ON_WRITE, CANNOT_TEST);
}

static void unique_memory_that_grows_under_flat_rss_is_copied(void **state)
{
    (void)state;
    it_is_flat();
    for (size_t i = 1; i <= 2; i++) {
        story_process(&s, ROLE_DATA_WORKER);
        story_field(&s, i, SAMPLE_RSS, MIB(500), MIB(500), 200);
        story_field(&s, i, SAMPLE_UNIQUE, MIB(5), MIB(150), 80);
        story_verdict(&s, i, VERDICT_STABLE);
    }
    expect(HYPOTHESIS_COPY_ON_WRITE, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_COPY_ON_WRITE);
}

/* Its stack, its heap, the batch it makes. */
static void what_any_fork_writes_to_is_not_copied_data(void **state)
{
    (void)state;
    it_is_flat();
    for (size_t i = 1; i <= 2; i++) {
        story_process(&s, ROLE_DATA_WORKER);
        story_field(&s, i, SAMPLE_RSS, MIB(500), MIB(505), 200);
        story_field(&s, i, SAMPLE_UNIQUE, MIB(9), MIB(20), 80);
        story_verdict(&s, i, VERDICT_STABLE);
    }
    assert_true(story_ask(&s, HYPOTHESIS_COPY_ON_WRITE)->word <= UNLIKELY);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void workers_with_memory_of_their_own_copy_nothing(void **state)
{
    (void)state;
    it_is_flat();
    story_process(&s, ROLE_DATA_WORKER);
    story_field(&s, 1, SAMPLE_RSS, MIB(50), MIB(200), 200);
    story_field(&s, 1, SAMPLE_UNIQUE, MIB(40), MIB(190), 200);
    expect(HYPOTHESIS_COPY_ON_WRITE, RULED_OUT);
    s.processes[1].field[SAMPLE_UNIQUE].count = 0;
    expect(HYPOTHESIS_COPY_ON_WRITE, CANNOT_TEST);
}

static void call_sites_of_the_compiler_that_grow_are_recompilation(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/lib/torch/_dynamo/guards.py", MIB(10), MIB(380), VERDICT_LEAKING);
    expect(HYPOTHESIS_COMPILE, LIKELY);
    story_process(&s, ROLE_COMPILE_WORKER);
    expect(HYPOTHESIS_COMPILE, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_COMPILE);
}

static void what_runs_compiled_code_is_not_the_compiler(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/lib/torch/_dynamo/eval_frame.py", MIB(10), MIB(380), VERDICT_LEAKING);
    expect(HYPOTHESIS_COMPILE, RULED_OUT);
}

static void without_a_compiler_there_is_no_recompilation(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    expect(HYPOTHESIS_COMPILE, RULED_OUT);
    s.processes[0].role = ROLE_OTHER;
    s.f.heap.profile = NULL;
    s.f.heap.growth.count = 0;
    expect(HYPOTHESIS_COMPILE, CANNOT_TEST);
}

/* ---- what to do ---- */

static const struct advice *advised(struct advice list[ADVICE_MAX], enum hypothesis_id because)
{
    size_t n = advice_make(&s.question, s.ranked, list);
    for (size_t i = 0; i < n; i++)
        if (list[i].because == because)
            return &list[i];
    return NULL;
}

static void advice_has_the_figures_of_this_run(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    it_stops_after(50);
    story_ask(&s, HYPOTHESIS_FIRST_TOUCH);
    const struct advice *a = advised(list, HYPOTHESIS_FIRST_TOUCH);
    assert_non_null(a);
    assert_string_equal(a->effect, "400 MiB less");
}

static void a_leak_with_a_limit_and_a_length_gets_a_restart(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    it_leaks();
    s.f.limit_bytes = MIB(2000);
    s.f.max_steps = 5000;
    story_ask(&s, HYPOTHESIS_CALL_SITE);
    size_t n = advice_make(&s.question, s.ranked, list);
    bool is_there = false;
    for (size_t i = 0; i < n; i++)
        is_there = is_there || strstr(list[i].what, "--restart-every 1100steps");
    assert_true(is_there);
}

static void a_cleanup_that_frees_nothing_is_to_be_removed(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    it_leaks();
    s.f.cleanup = (struct facts_cleanup){.count = 19, .freed_bytes = MIB(1), .cost_s = 3.8};
    story_ask(&s, HYPOTHESIS_CALL_SITE);
    size_t n = advice_make(&s.question, s.ranked, list);
    assert_true(n > 0);
    assert_string_equal(list[n - 1].what,
                        "remove the cleanup: 19 times freed 1.00 MiB in all and took 2.0 % of the "
                        "time");
}

static void where_nothing_tells_the_advice_is_to_measure(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    it_leaks();
    s.processes[0].role = ROLE_OTHER;
    story_ask(&s, HYPOTHESIS_CALL_SITE);
    assert_true(advice_make(&s.question, s.ranked, list) >= 2);
    assert_non_null(strstr(list[0].what, "ebb run"));
    assert_string_equal(list[0].effect, "");
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(nothing_grows_where_the_verdict_is_stable),
        T(memory_that_leaks_rules_no_growth_out),
        T(file_pages_are_those_of_the_nearest_reading),
        T(file_pages_are_not_those_of_a_process_on_its_way_out),
        T(small_growth_that_has_ended_rules_no_cause_out),
        T(what_is_flat_by_the_verdict_is_asked_about_where_it_had_grown_before),
        T(small_growth_that_has_ended_is_none),
        T(small_growth_of_which_one_site_has_most_is_told),
        T(what_a_site_holds_is_told_from_a_twentieth_on),
        T(file_pages_of_a_process_that_has_just_begun_are_not_those_of_its_first_moment),
        T(undecided_growth_that_came_at_first_has_ended),
        T(growth_that_has_ended_is_asked_about_from_a_tenth_on),
        T(so_it_is_where_it_takes_a_tenth_of_the_room),
        T(small_growth_that_goes_on_is_growth),
        T(without_a_reading_nothing_can_be_tested),
        T(no_process_at_all_is_no_crash),
        T(one_jump_and_then_flat_is_the_data),
        T(growth_that_goes_on_is_not_the_data),
        T(a_jump_of_what_is_not_alive_is_not_the_data),
        T(a_spike_is_no_jump),
        T(without_marks_the_data_is_said_to_be_uncertain),
        T(growth_that_ends_with_the_first_pass_is_a_cache),
        T(growth_that_ends_with_the_first_pass_and_is_not_alive_is_no_cache),
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
        T(a_verdict_of_stepping_explains_what_came_with_evaluations_and_not_more),
        T(a_floor_that_rises_while_what_is_made_is_let_go_is_a_spike),
        T(free_memory_that_peaks_could_have_left_is_of_spikes),
        T(a_floor_that_rises_with_what_lives_is_none),
        T(even_growth_is_not_of_evaluations),
        T(objects_that_grow_with_memory_pile_up),
        T(objects_that_do_not_grow_speak_against_it),
        T(a_census_of_a_part_rules_nothing_out),
        T(censuses_between_which_memory_is_flat_tell_nothing),
        T(censuses_explain_no_growth_that_was_over_before_them),
        T(without_a_census_objects_and_tensors_cannot_be_tested),
        T(tensors_that_require_grad_and_nodes_are_a_kept_graph),
        T(plain_tensors_are_no_graph),
        T(without_census_and_profile_a_graph_cannot_be_tested),
        T(a_call_site_that_leaks_is_named),
        T(growth_that_has_ended_is_the_site_that_filled),
        T(a_batch_that_happens_to_be_alive_is_not_kept),
        T(while_memory_grows_a_site_that_has_filled_is_not_it),
        T(sites_that_hold_what_they_held_speak_against_it),
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
        T(a_launcher_alone_was_watched_instead_of_the_job),
        T(large_workers_that_are_flat_are_said_to_be),
        T(without_workers_they_are_ruled_out),
        T(unique_memory_that_grows_under_flat_rss_is_copied),
        T(what_any_fork_writes_to_is_not_copied_data),
        T(workers_with_memory_of_their_own_copy_nothing),
        T(call_sites_of_the_compiler_that_grow_are_recompilation),
        T(what_runs_compiled_code_is_not_the_compiler),
        T(without_a_compiler_there_is_no_recompilation),
        T(advice_has_the_figures_of_this_run),
        T(a_leak_with_a_limit_and_a_length_gets_a_restart),
        T(a_cleanup_that_frees_nothing_is_to_be_removed),
        T(where_nothing_tells_the_advice_is_to_measure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
