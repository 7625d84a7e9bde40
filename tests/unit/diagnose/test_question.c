/* Whether memory grew, and by what it is asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "diagnose/advice.h"
#include "diagnose/facts_private.h"
#include "diagnose/tale.h"

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
static void what_any_program_comes_to_hold_is_not_told(void **state)
{
    (void)state;
    it_grew_once_by(MIB(18));
    story_row(&s, "/job/train.py", MIB(10), MIB(24), VERDICT_PLATEAUED);
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

/* What an epoch gathers and its end lets go, seen just before that. */
static void a_floor_that_has_not_risen_is_no_growth(void **state)
{
    (void)state;
    it_grew_once_by(MIB(100));
    for (size_t i = 0; i < STORY_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] = s.v[0][SAMPLE_ANON][i] = MIB(500) + (double)(i % 50) * MIB(2);
    s.f.start_s = 50;
    s.f.now_s = 199;
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void the_question_is(size_t process)
{
    const struct verdicts nobody = {0};
    facts_take_verdicts(&s.f, &nobody);
    assert_ptr_equal(s.f.main, &s.processes[process]);
}

static void a_worker_that_grows_is_the_question_where_the_one_that_trains_is_flat(void **state)
{
    (void)state;
    it_is_flat();
    story_process(&s, ROLE_DATA_WORKER);
    story_field(&s, 1, SAMPLE_RSS, MIB(200), MIB(200), 200);
    s.processes[1].peak_bytes = MIB(200);
    story_verdict(&s, 1, VERDICT_UNDECIDED);
    the_question_is(0);
    story_field(&s, 1, SAMPLE_RSS, MIB(200), MIB(300), 200);
    the_question_is(1);
    story_verdict(&s, 1, VERDICT_PLATEAUED);
    the_question_is(0);
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

#define T(f) cmocka_unit_test_setup_teardown(f, tale_begin, tale_end)

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
        T(what_any_program_comes_to_hold_is_not_told),
        T(file_pages_of_a_process_that_has_just_begun_are_not_those_of_its_first_moment),
        T(a_floor_that_has_not_risen_is_no_growth),
        T(a_worker_that_grows_is_the_question_where_the_one_that_trains_is_flat),
        T(undecided_growth_that_came_at_first_has_ended),
        T(growth_that_has_ended_is_asked_about_from_a_tenth_on),
        T(so_it_is_where_it_takes_a_tenth_of_the_room),
        T(small_growth_that_goes_on_is_growth),
        T(without_a_reading_nothing_can_be_tested),
        T(no_process_at_all_is_no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
