/* Tests jobs from submission to their end, and cancels in every state. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "fake_ebb.h"
#include "jobs_kit.h"

static double number(int64_t id, const char *object, const char *key)
{
    return json_number_value(json_object_get(json_object_get(kit_get(id), object), key));
}

static void cancel(int64_t id, const char *reason)
{
    struct err err = {""};
    if (jobs_cancel(kit.jobs, id, reason, UINT64_MAX, &err) < 0)
        fail_msg("%s", err.text);
}

static void finish(int64_t id, const char *name)
{
    kit_touch(kit_run_path(id, name, "finish"));
}

/* ---- start and end of jobs ---- */

static void submitted_job_starts_at_once_and_succeeds(void **state)
{
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"a\"}", "hold", kit.list, NULL);
    assert_int_equal(id, 1);
    kit_wait_state(id, JOB_RUNNING);
    finish(id, "a");
    kit_wait_ended(id);
    assert_string_equal(kit_text(id, "state"), "succeeded");
    assert_int_equal(kit_times(id), 1);
    json_t *job = kit_get(id);
    double submitted = json_number_value(json_object_get(job, "submitted_s"));
    double started = json_number_value(json_object_get(job, "started_s"));
    double ended = json_number_value(json_object_get(job, "ended_s"));
    assert_true(submitted > 1e9 && started >= submitted && ended >= started);
    const json_t *changes = json_object_get(job, "changes");
    static const char *const words[] = {"queued", "starting", "running", "succeeded"};
    assert_int_equal(json_array_size(changes), 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(changes, i), "state")),
                            words[i]);
    assert_true(kit.changes >= 3);
}

static void job_submitted_before_the_queue_starts_runs_once(void **state)
{
    struct err err = {""};
    (void)state;
    kit_open();
    int64_t id = kit_submit(NULL, "quick", "0", kit.list);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_QUEUED);
    assert_int_equal(jobs_start(kit.jobs, &err), 0);
    kit_wait_ended(id);
    kit_run_ms(100);
    assert_int_equal(kit_times(id), 1);
}

static void failed_job_has_the_cause_that_the_supervisor_reported(void **state)
{
    (void)state;
    kit_start();
    int64_t id = kit_submit(NULL, "quick", "3", kit.list);
    kit_wait_ended(id);
    assert_string_equal(kit_text(id, "state"), "failed");
    assert_string_equal(kit_text(id, "reason"), "it said so");
    assert_string_equal(kit_text(id, "cause_kind"), "exit status");
    assert_int_equal(json_integer_value(json_object_get(kit_get(id), "status")), 3);
    assert_int_equal(kit_times(id), 1);
}

static void error_message_of_ebb_run_becomes_the_failure_reason(void **state)
{
    (void)state;
    kit_start();
    int64_t id = kit_submit(NULL, "refuse", NULL, NULL);
    kit_wait_ended(id);
    assert_string_equal(kit_text(id, "state"), "failed");
    assert_string_equal(kit_text(id, "reason"), "there is no such thing here");
    assert_true(json_is_null(json_object_get(kit_get(id), "run_dir")));
    id = kit_submit(NULL, "killed", NULL, NULL);
    kit_wait_ended(id);
    assert_string_equal(kit_text(id, "state"), "failed");
    assert_non_null(strstr(kit_text(id, "reason"), "signal 9"));
}

static void supervisor_messages_are_stored_and_published(void **state)
{
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"n\"}", "hold", NULL, NULL);
    kit_wait_state(id, JOB_RUNNING);
    for (int i = 0; i < 2000 && kit.lives < 2; i++)
        loop_once(kit.loop, 20);
    assert_int_equal(kit.lives, 2); /* The two live messages are a sample and a verdict. */
    assert_true(number(id, "memory", "job_bytes") == 4096);
    assert_true(number(id, "memory", "peak_bytes") == 5000);
    assert_true(number(id, "memory", "gpu_bytes") == 7);
    assert_true(number(id, "progress", "max_steps") == 9);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(kit_get(id), "verdict"), "verdict")),
        "leaking");
    assert_int_equal(json_array_size(json_object_get(kit_get(id), "spark")), 7);
    assert_true(json_integer_value(json_object_get(kit_get(id), "pid")) > 0);
    struct err err;
    assert_int_equal(jobs_checkpoint(kit.jobs, id, &err), 0);
    kit_wait_state(id, JOB_CHECKPOINTING);
    assert_string_equal(kit_text(id, "reason"), "asked");
    finish(id, "n");
    kit_wait_ended(id);
    assert_true(number(id, "memory", "peak_bytes") == 5000);
    assert_int_equal(json_array_size(json_object_get(kit_get(id), "spark")), 7);
}

/* ---- cancelling ---- */

static void queued_job_is_cancelled_at_once(void **state)
{
    (void)state;
    kit.options.slots = 1;
    kit_start();
    int64_t first = kit_submit("{\"name\": \"f\"}", "hold", NULL, NULL);
    int64_t id = kit_submit(NULL, "quick", "0", kit.list);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_QUEUED);
    assert_non_null(strstr(kit_text(id, "waits_for"), "slot"));
    cancel(id, "not wanted any more");
    assert_string_equal(kit_text(id, "state"), "cancelled");
    assert_string_equal(kit_text(id, "reason"), "not wanted any more");
    struct err err;
    assert_int_equal(jobs_cancel(kit.jobs, id, NULL, 0, &err), -EALREADY);
    assert_int_equal(jobs_cancel(kit.jobs, 77, NULL, 0, &err), -ENOENT);
    kit_wait_state(first, JOB_RUNNING);
    finish(first, "f");
    kit_wait_ended(first);
    kit_run_ms(100);
    assert_int_equal(kit_times(id), 0);
}

static void running_job_is_cancelled_through_its_supervisor(void **state)
{
    (void)state;
    kit_start();
    int64_t id = kit_submit(NULL, "hold", NULL, NULL);
    kit_wait_state(id, JOB_RUNNING);
    cancel(id, "enough");
    assert_int_equal(jobs_state(kit.jobs, id), JOB_STOPPING);
    cancel(id, "again"); /* The second cancel has no effect. */
    kit_wait_ended(id);
    assert_string_equal(kit_text(id, "state"), "cancelled");
    assert_string_equal(kit_text(id, "reason"), "enough");
}

static void job_can_be_cancelled_while_it_is_starting(void **state)
{
    char go[96];
    (void)state;
    snprintf(go, sizeof go, "%s/go", kit.folder);
    kit_start();
    int64_t id = kit_submit("{\"name\": \"l\"}", "late", go, kit.list);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_STARTING);
    cancel(id, NULL);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_STOPPING);
    kit_touch(go);
    kit_wait_ended(id);
    /* The job is cancelled although it exited with status 0. */
    assert_string_equal(kit_text(id, "state"), "cancelled");
    assert_string_equal(kit_text(id, "reason"), "by request");
    assert_int_equal(kit_times(id), 1);
}

static void job_without_control_socket_can_be_cancelled(void **state)
{
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"d\"}", "deaf", NULL, NULL);
    kit_wait_state(id, JOB_RUNNING);
    cancel(id, "x");
    kit_run_ms(200);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_STOPPING);
    finish(id, "d");
    kit_wait_ended(id);
    assert_string_equal(kit_text(id, "state"), "cancelled");
}

/* ---- the queue ---- */

static void job_of_higher_priority_gets_the_next_free_slot(void **state)
{
    (void)state;
    kit.options.slots = 1;
    kit_start();
    int64_t first = kit_submit("{\"name\": \"f\"}", "hold", NULL, NULL);
    int64_t low = kit_submit("{\"priority\": -1}", "quick", "0", kit.list);
    int64_t high = kit_submit("{\"priority\": 5}", "quick", "0", kit.list);
    kit_wait_state(first, JOB_RUNNING);
    finish(first, "f");
    kit_wait_ended(low);
    kit_wait_ended(high);
    FILE *f = fopen(kit.list, "re");
    long long a = 0, b = 0;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lld %lld", &a, &b), 2);
    fclose(f);
    assert_int_equal(a, high);
    assert_int_equal(b, low);
}

static void job_that_can_never_start_is_refused_when_submitted(void **state)
{
    (void)state;
    kit.options.gpus = 2;
    kit.options.memory_bytes = UINT64_C(8) << 30;
    kit_start();
    assert_int_equal(kit_try_submit("{\"gpus\": 3}", "quick", "0", NULL), -EINVAL);
    assert_non_null(strstr(kit_sentence, "can never start"));
    assert_int_equal(kit_try_submit("{\"memory\": \"9G\"}", "quick", "0", NULL), -EINVAL);
    assert_int_equal(kit_try_submit("{\"after\": [9]}", "quick", "0", NULL), -EINVAL);
    assert_non_null(strstr(kit_sentence, "no such job: 9"));
}

static void gpus_and_memory_of_running_jobs_are_reserved(void **state)
{
    (void)state;
    kit.options.gpus = 2;
    kit.options.slots = 4;
    kit.options.memory_bytes = UINT64_C(8) << 30;
    kit_start();
    int64_t a =
        kit_submit("{\"gpus\": 1, \"memory\": \"6G\", \"name\": \"a\"}", "hold", NULL, NULL);
    int64_t b = kit_submit("{\"gpus\": 1, \"name\": \"b\"}", "hold", NULL, NULL);
    int64_t c = kit_submit("{\"memory\": \"3G\"}", "quick", "0", NULL);
    assert_int_equal(jobs_state(kit.jobs, c), JOB_QUEUED);
    assert_non_null(strstr(kit_text(c, "waits_for"), "memory"));
    assert_int_equal(json_integer_value(json_array_get(json_object_get(kit_get(a), "gpus"), 0)), 0);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(kit_get(b), "gpus"), 0)), 1);
    json_t *room = jobs_room_json(kit.jobs);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(room, "memory"), "used_bytes")),
        INT64_C(6) << 30);
    json_decref(room);
    kit_wait_state(a, JOB_RUNNING);
    finish(a, "a");
    kit_wait_ended(c);
    kit_wait_state(b, JOB_RUNNING);
    finish(b, "b");
    kit_wait_ended(b);
}

static void suggested_memory_is_reserved_for_later_jobs_of_the_same_name(void **state)
{
    (void)state;
    kit.options.memory_bytes = UINT64_C(8) << 30;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"big\"}", "json",
                            "{\"state\":\"ended\",\"end\":{\"kind\":\"exited\",\"status\":0},"
                            "\"ask_bytes\":5368709120,\"tree\":{\"peak_bytes\":4294967296}}",
                            NULL);
    kit_wait_ended(id);
    assert_true(number(id, "memory", "peak_bytes") == 4294967296.0);
    id = kit_submit("{\"name\": \"big\"}", "quick", "0", NULL);
    assert_string_equal(kit_text(id, "memory_from"), "learned");
    assert_true(json_number_value(json_object_get(kit_get(id), "memory_bytes")) == 5368709120.0);
    kit_wait_ended(id);
}

/* ---- jobs that wait for other jobs ---- */

static void waiting_job_starts_after_the_awaited_job_has_succeeded(void **state)
{
    (void)state;
    kit_start();
    int64_t first = kit_submit("{\"name\": \"f\"}", "hold", NULL, NULL);
    int64_t second = kit_submit("{\"after\": [1]}", "quick", "0", kit.list);
    int64_t done = kit_submit("{\"after\": [2]}", "quick", "0", kit.list);
    kit_wait_state(first, JOB_RUNNING);
    assert_int_equal(jobs_state(kit.jobs, second), JOB_QUEUED);
    assert_string_equal(kit_text(second, "waits_for"), "waits for job 1 to succeed");
    finish(first, "f");
    kit_wait_ended(done);
    assert_int_equal(jobs_state(kit.jobs, second), JOB_SUCCEEDED);
    assert_int_equal(jobs_state(kit.jobs, done), JOB_SUCCEEDED);
}

static void jobs_that_wait_for_a_cancelled_job_are_cancelled(void **state)
{
    enum { CHAIN = 40 };
    char extra[96];
    (void)state;
    kit_start();
    int64_t first = kit_submit("{\"name\": \"f\"}", "hold", NULL, NULL), id = first;
    for (int i = 0; i < CHAIN; i++) {
        snprintf(extra, sizeof extra, "{\"after\": [%lld]}", (long long)id);
        id = kit_submit(extra, "quick", "0", kit.list);
    }
    kit_wait_state(first, JOB_RUNNING);
    cancel(first, "stop");
    kit_wait_ended(id);
    for (int64_t i = first + 1; i <= id; i++) {
        assert_int_equal(jobs_state(kit.jobs, i), JOB_CANCELLED);
        snprintf(extra, sizeof extra, "job %lld, which this job depends on, was cancelled",
                 (long long)i - 1);
        assert_string_equal(kit_text(i, "reason"), extra);
        assert_int_equal(kit_times(i), 0);
    }
    /* This job is submitted after the first job was cancelled. */
    snprintf(extra, sizeof extra, "{\"after\": [%lld]}", (long long)first);
    id = kit_submit(extra, "quick", "0", kit.list);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_CANCELLED);
}

static void rerun_submits_the_request_of_an_earlier_job_again(void **state)
{
    struct err err = {""};
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"r\", \"env\": {\"A\": \"b\"}}", "quick", "0", kit.list);
    kit_wait_ended(id);
    int64_t again = kit_try_rerun(id);
    const json_t *job = kit_get(again);
    assert_int_equal(json_integer_value(json_object_get(job, "rerun_of")), id);
    /* In the API, a job has only the names of its environment variables, not the values. */
    assert_string_equal(json_string_value(json_array_get(json_object_get(job, "env"), 0)), "A");
    json_t *request = NULL;
    assert_int_equal(jobs_request(kit.jobs, again, &request, &err), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(request, "env"), "A")),
                        "b");
    json_decref(request);
    assert_int_equal(jobs_request(kit.jobs, 99, &request, &err), -ENOENT);
    kit_wait_ended(again);
    assert_int_equal(kit_times(again), 1);
    assert_int_equal(kit_try_rerun(99), -ENOENT);
}

static bool is_in_its_second_segment(int64_t id)
{
    return json_integer_value(json_object_get(kit_get(id), "segment")) == 1;
}

/* Returns true if the supervisor's first message was received. */
static bool is_connected(int64_t id)
{
    return json_integer_value(json_object_get(kit_get(id), "pid")) > 0;
}

static void rapid_state_changes_of_a_job_are_all_stored(void **state)
{
    struct err err = {""};
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"a\"}", "restart", NULL, NULL);
    kit_wait_state(id, JOB_RUNNING);
    kit_wait(is_connected, id);
    assert_int_equal(jobs_checkpoint(kit.jobs, id, &err), 0);
    kit_wait(is_in_its_second_segment, id);
    finish(id, "a");
    kit_wait_ended(id);
    static const char *const words[] = {"queued",  "starting", "running", "checkpointing",
                                        "running", "stopping", "running", "succeeded"};
    const json_t *changes = json_object_get(kit_get(id), "changes");
    assert_int_equal(json_array_size(changes), 8);
    for (size_t i = 0; i < 8; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(changes, i), "state")),
                            words[i]);
    assert_string_equal(json_string_value(json_object_get(json_array_get(changes, 5), "reason")),
                        "little is left");
}

/* ---- jobs leave nothing behind ---- */

static int open_fds(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void many_short_jobs_leave_no_descriptors_or_processes_or_locks(void **state)
{
    enum { JOBS = 80 };
    char path[128];
    (void)state;
    kit.options.slots = 4;
    kit_start();
    kit_wait_ended(kit_submit(NULL, "quick", "0", kit.list));
    int before = open_fds();
    for (int i = 1; i < JOBS; i++)
        kit_submit(NULL, "quick", "0", kit.list);
    for (int64_t id = 1; id <= JOBS; id++) {
        kit_wait_ended(id);
        assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
        assert_int_equal(kit_times(id), 1);
    }
    assert_int_equal(open_fds(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    snprintf(path, sizeof path, "%s/locks", kit.folder);
    assert_int_equal(rmdir(path), 0); /* rmdir succeeds only if the folder of locks is empty. */
    struct jobs_metrics metrics;
    unsigned found = 0;
    jobs_metrics(kit.jobs, &metrics);
    for (size_t i = 0; i < metrics.counter_count; i++) {
        const struct store_counter *c = &metrics.counters[i];
        if (strcmp(c->key, "submitted") == 0 || strcmp(c->key, "ended.succeeded") == 0) {
            assert_true(c->value == JOBS);
            found++;
        }
    }
    assert_int_equal(found, 2);
    assert_int_equal(metrics.by_state[JOB_SUCCEEDED], JOBS);
    assert_int_equal(metrics.running_count, 0);
    jobs_metrics_fini(&metrics);
}

int main(int argc, char **argv)
{
    int status;
    if (fake_ebb(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        TEST(submitted_job_starts_at_once_and_succeeds),
        TEST(job_submitted_before_the_queue_starts_runs_once),
        TEST(failed_job_has_the_cause_that_the_supervisor_reported),
        TEST(rapid_state_changes_of_a_job_are_all_stored),
        TEST(error_message_of_ebb_run_becomes_the_failure_reason),
        TEST(supervisor_messages_are_stored_and_published),
        TEST(queued_job_is_cancelled_at_once),
        TEST(running_job_is_cancelled_through_its_supervisor),
        TEST(job_can_be_cancelled_while_it_is_starting),
        TEST(job_without_control_socket_can_be_cancelled),
        TEST(job_of_higher_priority_gets_the_next_free_slot),
        TEST(job_that_can_never_start_is_refused_when_submitted),
        TEST(gpus_and_memory_of_running_jobs_are_reserved),
        TEST(suggested_memory_is_reserved_for_later_jobs_of_the_same_name),
        TEST(waiting_job_starts_after_the_awaited_job_has_succeeded),
        TEST(jobs_that_wait_for_a_cancelled_job_are_cancelled),
        TEST(rerun_submits_the_request_of_an_earlier_job_again),
        TEST(many_short_jobs_leave_no_descriptors_or_processes_or_locks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
