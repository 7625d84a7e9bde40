/* Tests that jobs have correct times even if the machine's clock is set while they are running. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "fake_ebb.h"
#include "jobs_kit.h"

enum { PATIENCE_S = 600 }; /* Time limit of a job on a busy machine, in seconds. */

static const double year_s = 365.0 * 24 * 3600;
static double set_by_s; /* Difference between the simulated and the real wall clock, in seconds. */

uint64_t __real_clock_wall_ns(void); // NOLINT(bugprone-reserved-identifier)
uint64_t __wrap_clock_wall_ns(void); // NOLINT(bugprone-reserved-identifier)

uint64_t __wrap_clock_wall_ns(void) // NOLINT(bugprone-reserved-identifier)
{
    return (uint64_t)((double)__real_clock_wall_ns() + set_by_s * 1e9);
}

static int set_up(void **state)
{
    set_by_s = 0;
    return kit_setup(state);
}

static void finish(int64_t id, const char *name)
{
    kit_touch(kit_run_path(id, name, "finish"));
}

static double number(int64_t id, const char *key)
{
    const json_t *v = json_object_get(kit_get(id), key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

/* Checks that the times of an ended job are in order and close together. */
static void check_times(int64_t id)
{
    const double submitted_s = number(id, "submitted_s");
    double before_s = submitted_s;
    size_t i;
    const json_t *change;
    assert_true(number(id, "started_s") >= submitted_s);
    assert_true(number(id, "ended_s") >= number(id, "started_s"));
    assert_true(number(id, "ended_s") - submitted_s < PATIENCE_S);
    json_array_foreach(json_object_get(kit_get(id), "changes"), i, change)
    {
        double t_s = json_number_value(json_object_get(change, "t_s"));
        assert_true(t_s >= before_s && t_s - submitted_s < PATIENCE_S);
        before_s = t_s;
    }
}

static void setting_the_clock_does_not_change_job_times(void **state)
{
    static const double by_years[] = {1, -1, 30, -30};
    (void)state;
    for (size_t i = 0; i < sizeof by_years / sizeof *by_years; i++) {
        set_by_s = 0;
        if (!kit.jobs)
            kit_start();
        int64_t id = kit_submit("{\"name\": \"h\"}", "hold", kit.list, NULL);
        kit_wait_state(id, JOB_RUNNING);
        set_by_s = by_years[i] * year_s;
        finish(id, "h");
        kit_wait_ended(id);
        assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
        check_times(id);
    }
}

static void job_times_stay_correct_if_the_clock_is_set_ahead_and_back(void **state)
{
    struct err err = {""};
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"h\"}", "hold", kit.list, NULL);
    kit_wait_state(id, JOB_RUNNING);
    set_by_s = year_s;
    assert_int_equal(jobs_cancel(kit.jobs, id, "no need", 0, &err), 0);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_STOPPING);
    set_by_s = 0;
    kit_wait_ended(id);
    check_times(id);
}

static void queued_job_starts_after_the_system_clock_was_set_back(void **state)
{
    (void)state;
    kit_start();
    int64_t first = kit_submit("{\"name\": \"h\"}", "hold", kit.list, NULL);
    kit_wait_state(first, JOB_RUNNING);
    int64_t second = kit_submit("{\"after\": [1]}", "quick", "0", kit.list);
    set_by_s = -year_s;
    finish(first, "h");
    kit_wait_ended(second);
    assert_int_equal(jobs_state(kit.jobs, second), JOB_SUCCEEDED);
    check_times(second);
}

static void setting_the_clock_does_not_delay_a_cancel(void **state)
{
    struct err err = {""};
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"d\"}", "hold", kit.list, NULL);
    kit_wait_state(id, JOB_RUNNING);
    set_by_s = -30 * year_s;
    assert_int_equal(jobs_cancel(kit.jobs, id, NULL, NS_PER_S, &err), 0);
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_CANCELLED);
    check_times(id);
}

static void times_of_an_adopted_job_stay_in_order_if_clock_is_set_back(void **state)
{
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"h\"}", "hold", kit.list, NULL);
    kit_wait_state(id, JOB_RUNNING);
    kit_stop();
    set_by_s = -year_s;
    kit_start();
    finish(id, "h");
    kit_wait_ended(id);
    check_times(id);
}

static void retention_age_limit_ignores_a_clock_set_a_year_ahead(void **state)
{
    (void)state;
    kit.options.keep.age_ns = UINT64_C(3600) * NS_PER_S;
    kit_start();
    int64_t id = kit_submit(NULL, "quick", "0", kit.list);
    kit_wait_ended(id);
    set_by_s = year_s;
    int64_t second = kit_submit(NULL, "quick", "0", kit.list);
    kit_wait_ended(second);
    kit_run_ms(1500); /* Waits for a retention check. */
    assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
    assert_int_equal(jobs_state(kit.jobs, second), JOB_SUCCEEDED);
}

static void retention_age_limit_ignores_a_clock_set_ahead_at_restart(void **state)
{
    (void)state;
    kit.options.keep.age_ns = UINT64_C(30) * 86400 * NS_PER_S;
    kit_start();
    int64_t id = kit_submit(NULL, "quick", "0", kit.list);
    kit_wait_ended(id);
    kit_stop();
    set_by_s = 400 * 86400.0;
    kit_start();
    int64_t second = kit_submit(NULL, "quick", "0", kit.list);
    kit_wait_ended(second);
    kit_run_ms(1500); /* Waits for a retention check. */
    assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
    assert_int_equal(jobs_state(kit.jobs, second), JOB_SUCCEEDED);
}

static bool is_removed(int64_t id)
{
    return jobs_state(kit.jobs, id) == JOB_STATES;
}

static bool is_over(int64_t id)
{
    return is_removed(id) || job_state_is_final(jobs_state(kit.jobs, id));
}

/* The age of a job is measured in server running time, which does not depend on the clock and is
 * kept across restarts. */
static void age_of_ended_jobs_adds_up_over_server_restarts(void **state)
{
    (void)state;
    kit.options.keep.age_ns = 2 * NS_PER_S;
    set_by_s = year_s;
    kit_start();
    int64_t id = kit_submit(NULL, "quick", "0", kit.list);
    kit_wait(is_over, id);
    set_by_s = 0;
    for (int i = 0; i < 20 && !is_removed(id); i++) {
        kit_run_ms(700); /* Waits for a retention check. */
        kit_stop();
        kit_start();
    }
    assert_true(is_removed(id));
}

#define CLOCK_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, kit_teardown)

int main(int argc, char **argv)
{
    int status;
    if (fake_ebb(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        CLOCK_TEST(setting_the_clock_does_not_change_job_times),
        CLOCK_TEST(job_times_stay_correct_if_the_clock_is_set_ahead_and_back),
        CLOCK_TEST(queued_job_starts_after_the_system_clock_was_set_back),
        CLOCK_TEST(setting_the_clock_does_not_delay_a_cancel),
        CLOCK_TEST(times_of_an_adopted_job_stay_in_order_if_clock_is_set_back),
        CLOCK_TEST(retention_age_limit_ignores_a_clock_set_a_year_ahead),
        CLOCK_TEST(retention_age_limit_ignores_a_clock_set_ahead_at_restart),
        CLOCK_TEST(age_of_ended_jobs_adds_up_over_server_restarts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
