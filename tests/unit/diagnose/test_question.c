/* Tests whether memory grew enough to be diagnosed, and which process is diagnosed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "diagnose/advice.h"
#include "diagnose/facts_private.h"
#include "diagnose/scenarios.h"

static void memory_with_a_stable_verdict_is_diagnosed_as_flat(void **state)
{
    (void)state;
    memory_is_flat();
    expect(HYPOTHESIS_NO_GROWTH, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void flat_memory_is_ruled_out_if_the_verdict_is_leaking(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
}

static void growth_is_taken_from_the_verdict_if_final_memory_is_low(void **state)
{
    (void)state;
    memory_is_flat();
    s.f.job = (struct facts_verdict){
        .is_known = true, .word = VERDICT_LEAKING, .leak = VERDICT_LEAK_YES, .per_min = MIB(10)};
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
    assert_true(s.question.has_grown);
    assert_true(fabs(s.question.total - MIB(10) / 60 * (s.f.now_s - s.f.start_s)) < 1);
}

/* The breakdown of resident memory is read at most once per second, so the last reading before the
 * start may precede the loading of some libraries. */
static void file_pages_at_the_start_come_from_the_nearest_reading(void **state)
{
    (void)state;
    memory_is_flat();
    double *file = s.v[0][SAMPLE_FILE];
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        file[i] = i == 5 ? MIB(20) : i >= 11 ? MIB(100) : (double)NAN;
    synthetic_remove_nan(&s, SAMPLE_FILE);
    synthetic_test(&s, HYPOTHESIS_NO_GROWTH);
    assert_true(fabs(s.question.base - MIB(400)) < 1);
    assert_true(fabs(ledger_growth(&s.ledger, LEDGER_FILES)) < 1);
}

static void file_pages_of_an_exiting_process_are_not_used(void **state)
{
    (void)state;
    memory_is_flat();
    s.f.now_s = 195;
    double *file = s.v[0][SAMPLE_FILE];
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        file[i] = i == 196 ? MIB(20) : i <= 180 ? MIB(100) : (double)NAN;
    synthetic_remove_nan(&s, SAMPLE_FILE);
    for (size_t i = 196; i < SYNTHETIC_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] -= MIB(80);
    synthetic_test(&s, HYPOTHESIS_NO_GROWTH);
    assert_true(fabs(ledger_growth(&s.ledger, LEDGER_FILES)) < 1);
    assert_true(fabs(s.question.growth) < 1);
}

static void causes_are_rated_even_if_growth_is_too_small_to_diagnose(void **state)
{
    (void)state;
    memory_grew_once_by(MIB(30));
    synthetic_census(&s, 0, 0, false);
    synthetic_row(&s, "/job/train.py", MIB(10), MIB(20), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_NO_GROWTH);
    expect(HYPOTHESIS_CALL_SITE, LIKELY);
    expect(HYPOTHESIS_PYTHON_OBJECTS, CANNOT_TEST);
    expect_absent(HYPOTHESIS_FIRST_TOUCH, "grew by only 30.0 MiB and then stopped: too little");
}

static void one_time_growth_is_diagnosed_unless_the_verdict_is_spiking(void **state)
{
    (void)state;
    memory_grew_once_by(MIB(100));
    synthetic_verdict(&s, 0, VERDICT_STABLE);
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
    synthetic_verdict(&s, 0, VERDICT_SPIKING);
    expect(HYPOTHESIS_NO_GROWTH, NEARLY_CERTAIN);
}

static void small_growth_that_stopped_is_not_diagnosed(void **state)
{
    (void)state;
    memory_grew_once_by(MIB(30));
    s.f.limit_bytes = MIB(16000);
    synthetic_row(&s, "/job/train.py", MIB(10), MIB(20), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_NO_GROWTH);
    expect(HYPOTHESIS_NO_GROWTH, NEARLY_CERTAIN);
    assert_true(has_evidence(&s.ranked[0], EVIDENCE_FOR, "has stopped and was small"));
}

static void small_growth_of_a_single_call_site_is_diagnosed(void **state)
{
    (void)state;
    memory_grew_once_by(MIB(35));
    synthetic_row(&s, "/job/train.py", MIB(10), MIB(40), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_CALL_SITE);
}

/* Every program retains a little memory in its first steps. */
static void growth_below_every_threshold_is_not_diagnosed(void **state)
{
    (void)state;
    memory_grew_once_by(MIB(18));
    synthetic_row(&s, "/job/train.py", MIB(10), MIB(24), VERDICT_PLATEAUED);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

/* Between two readings, file pages are assumed to change in proportion to RSS. */
static void file_pages_between_two_readings_change_with_rss(void **state)
{
    (void)state;
    memory_is_flat();
    double *file = s.v[0][SAMPLE_FILE], *rss = s.v[0][SAMPLE_RSS];
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++) {
        file[i] = i == 9 ? 0 : i >= 14 ? MIB(100) : (double)NAN;
        rss[i] = i < 10 ? MIB(10) : MIB(500);
    }
    synthetic_remove_nan(&s, SAMPLE_FILE);
    synthetic_test(&s, HYPOTHESIS_NO_GROWTH);
    assert_true(fabs(ledger_growth(&s.ledger, LEDGER_FILES)) < 1);
}

/* Memory that accumulates during an epoch is sampled just before it is freed. */
static void memory_freed_at_each_epoch_end_is_not_diagnosed_as_growth(void **state)
{
    (void)state;
    memory_grew_once_by(MIB(100));
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        s.v[0][SAMPLE_RSS][i] = s.v[0][SAMPLE_ANON][i] = MIB(500) + (double)(i % 50) * MIB(2);
    s.f.start_s = 50;
    s.f.now_s = 199;
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void expect_main_process(size_t process)
{
    const struct verdicts nobody = {0};
    facts_take_verdicts(&s.f, &nobody, false);
    assert_ptr_equal(s.f.main, &s.processes[process]);
}

static void growing_worker_is_diagnosed_if_the_trainer_is_flat(void **state)
{
    (void)state;
    memory_is_flat();
    synthetic_process(&s, ROLE_DATA_WORKER);
    synthetic_field(&s, 1, SAMPLE_RSS, MIB(200), MIB(200), 200);
    s.processes[1].peak_bytes = MIB(200);
    synthetic_verdict(&s, 1, VERDICT_UNDECIDED);
    expect_main_process(0);
    synthetic_field(&s, 1, SAMPLE_RSS, MIB(200), MIB(300), 200);
    expect_main_process(1);
    synthetic_verdict(&s, 1, VERDICT_PLATEAUED);
    expect_main_process(0);
}

static void growth_only_in_first_half_is_not_diagnosed_if_undecided(void **state)
{
    (void)state;
    memory_grew_once_by(MIB(20));
    synthetic_verdict(&s, 0, VERDICT_UNDECIDED);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void growth_by_more_than_a_tenth_of_start_memory_is_diagnosed(void **state)
{
    (void)state;
    memory_grew_once_by(MIB(60));
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
}

static void growth_by_more_than_a_tenth_of_the_headroom_is_diagnosed(void **state)
{
    (void)state;
    memory_grew_once_by(MIB(30));
    s.f.limit_bytes = MIB(600);
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
}

static void small_continuing_growth_is_diagnosed(void **state)
{
    (void)state;
    memory_grew_once_by(MIB(30));
    synthetic_verdict(&s, 0, VERDICT_LEAKING);
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
}

static void all_hypotheses_require_memory_readings(void **state)
{
    (void)state;
    expect(HYPOTHESIS_NO_GROWTH, CANNOT_TEST);
    expect(HYPOTHESIS_DATA_LOAD, CANNOT_TEST);
    expect(HYPOTHESIS_FIRST_TOUCH, CANNOT_TEST);
    expect(HYPOTHESIS_RETENTION, CANNOT_TEST);
    assert_false(s.ledger.is_known);
}

static void diagnosis_of_a_recording_without_processes_succeeds(void **state)
{
    (void)state;
    struct advice advice[ADVICE_MAX];
    s.f.n_processes = 0;
    s.f.main = NULL;
    synthetic_test(&s, HYPOTHESIS_NO_GROWTH);
    for (int i = 0; i < HYPOTHESIS_COUNT; i++)
        assert_false(has_evidence(&s.ranked[i], EVIDENCE_FOR, NULL));
    assert_int_equal(advice_make(&s.question, s.ranked, advice), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, scenario_begin, scenario_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(memory_with_a_stable_verdict_is_diagnosed_as_flat),
        T(flat_memory_is_ruled_out_if_the_verdict_is_leaking),
        T(growth_is_taken_from_the_verdict_if_final_memory_is_low),
        T(file_pages_at_the_start_come_from_the_nearest_reading),
        T(file_pages_of_an_exiting_process_are_not_used),
        T(causes_are_rated_even_if_growth_is_too_small_to_diagnose),
        T(one_time_growth_is_diagnosed_unless_the_verdict_is_spiking),
        T(small_growth_that_stopped_is_not_diagnosed),
        T(small_growth_of_a_single_call_site_is_diagnosed),
        T(growth_below_every_threshold_is_not_diagnosed),
        T(file_pages_between_two_readings_change_with_rss),
        T(memory_freed_at_each_epoch_end_is_not_diagnosed_as_growth),
        T(growing_worker_is_diagnosed_if_the_trainer_is_flat),
        T(growth_only_in_first_half_is_not_diagnosed_if_undecided),
        T(growth_by_more_than_a_tenth_of_start_memory_is_diagnosed),
        T(growth_by_more_than_a_tenth_of_the_headroom_is_diagnosed),
        T(small_continuing_growth_is_diagnosed),
        T(all_hypotheses_require_memory_readings),
        T(diagnosis_of_a_recording_without_processes_succeeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
