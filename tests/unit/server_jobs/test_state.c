/* Tests the names of job states, and the transitions between the states. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "server/jobs/state.h"

static void every_job_state_can_be_parsed_from_its_name(void **state)
{
    (void)state;
    for (unsigned i = 0; i < JOB_STATES; i++) {
        enum job_state found = JOB_STATES;
        assert_int_equal(job_state_parse(job_state_word((enum job_state)i), &found), 0);
        assert_int_equal(found, i);
    }
    enum job_state untouched = JOB_LOST;
    assert_int_equal(job_state_parse("ended", &untouched), -EINVAL);
    assert_int_equal(job_state_parse("", &untouched), -EINVAL);
    assert_int_equal(untouched, JOB_LOST);
}

static void final_job_state_allows_no_transition(void **state)
{
    (void)state;
    for (unsigned from = 0; from < JOB_STATES; from++) {
        for (unsigned to = 0; to < JOB_STATES; to++) {
            if (job_state_is_final((enum job_state)from))
                assert_false(job_state_may_follow((enum job_state)from, (enum job_state)to));
        }
    }
    assert_true(job_state_is_final(JOB_LOST));
    assert_false(job_state_is_final(JOB_STOPPING));
    assert_false(job_state_is_final(JOB_STATES));
}

static void every_active_job_state_can_become_final(void **state)
{
    (void)state;
    for (unsigned from = 0; from < JOB_SUCCEEDED; from++) {
        assert_true(job_state_may_follow((enum job_state)from, JOB_CANCELLED));
        assert_true(job_state_may_follow((enum job_state)from, JOB_FAILED));
        assert_true(job_state_may_follow((enum job_state)from, (enum job_state)from));
    }
}

static void running_job_cannot_become_queued(void **state)
{
    (void)state;
    assert_true(job_state_may_follow(JOB_STARTING, JOB_QUEUED));
    assert_false(
        /* A queued job must become `starting` before it is `running`. */
        job_state_may_follow(JOB_QUEUED, JOB_RUNNING));
    assert_false(job_state_may_follow(JOB_QUEUED, JOB_SUCCEEDED));
    for (unsigned from = JOB_RUNNING; from < JOB_STATES; from++) {
        assert_false(job_state_may_follow((enum job_state)from, JOB_QUEUED));
        assert_false(job_state_may_follow((enum job_state)from, JOB_STARTING));
    }
    /* The guard may restart a job that is stopping. */
    assert_true(job_state_may_follow(JOB_STOPPING, JOB_RUNNING));
    assert_false(job_state_may_follow(JOB_STATES, JOB_RUNNING));
    assert_false(job_state_may_follow(JOB_RUNNING, JOB_STATES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_state_can_be_parsed_from_its_name),
        cmocka_unit_test(final_job_state_allows_no_transition),
        cmocka_unit_test(every_active_job_state_can_become_final),
        cmocka_unit_test(running_job_cannot_become_queued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
