/* Tests that after a server is killed at any moment, the next one loses no job and runs none
 * twice. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "fake_ebb.h"
#include "server/jobs/store.h"
#include "jobs_kit.h"

static void finish(int64_t id, const char *name)
{
    kit_touch(kit_run_path(id, name, "finish"));
}

/* Creates a row as a killed server would leave it. */
static int64_t leave(enum job_state state, const char *word, const char *first, const char *second)
{
    struct err err = {""};
    int64_t id = 0;
    struct store *s = kit_store();
    json_t *request =
        json_pack("{s:[s,s,s],s:s,s:s,s:{},s:i,s:i,s:[],s:{}}", "command", word, first, second,
                  "name", "x", "cwd", "/", "env", "gpus", 0, "priority", 0, "after", "options");
    char *text = json_dumps(request, 0);
    struct store_job row = {.state = JOB_QUEUED, .name = "x", .request = text, .submitted_ns = 5};
    if (store_add(s, &row, &id, &err) < 0)
        fail_msg("%s", err.text);
    for (enum job_state at = JOB_STARTING; at <= JOB_RUNNING && state != JOB_QUEUED; at++) {
        struct store_change change = {.state = at, .at_ns = 6 + (uint64_t)at, .run_dir = "1-x"};
        if (at <= state && store_change(s, id, &change, &err) < 0)
            fail_msg("%s", err.text);
    }
    free(text);
    json_decref(request);
    store_close(s);
    return id;
}

/* ---- job states that the test writes into the store ---- */

static void job_runs_once_if_server_was_killed_before_starting_the_job(void **state)
{
    (void)state;
    kit_start(); /* Starting the server creates the folders. */
    kit_stop();
    int64_t id = leave(JOB_STARTING, "quick", "0", kit.list);
    kit_start();
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
    assert_int_equal(kit_times(id), 1);
}

/* The lock is signed after the folder is created, so a signed lock without a folder means that the
 * job has run. */
static void job_whose_run_folder_was_removed_is_not_rerun(void **state)
{
    (void)state;
    kit_start();
    kit_stop();
    int64_t id = leave(JOB_STARTING, "quick", "0", kit.list);
    char path[512];
    snprintf(path, sizeof path, "%s/locks/%lld", kit.folder, (long long)id);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, "4194304 77\n", 11) == 11);
    close(fd);
    kit_start();
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_LOST);
    assert_int_equal(kit_times(id), 0);
}

static void job_queued_before_a_server_restart_runs_once(void **state)
{
    (void)state;
    kit_start();
    kit_stop();
    int64_t id = leave(JOB_QUEUED, "quick", "0", kit.list);
    kit_start();
    kit_wait_ended(id);
    assert_int_equal(kit_times(id), 1);
}

static void write_run_json(const char *text)
{
    const char *path = kit_run_path(1, "x", "run.json");
    char folder[256];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    mkdir(folder, 0700);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void job_that_ended_while_the_server_was_down_is_read_from_disk(void **state)
{
    (void)state;
    kit_start();
    kit_stop();
    int64_t id = leave(JOB_RUNNING, "quick", "0", kit.list);
    write_run_json("{\"state\":\"ended\",\"duration_s\":2,\"end\":{\"kind\":\"signalled\","
                   "\"status\":139,\"cause\":\"it crashed\",\"cause_kind\":\"signal\"}}");
    kit_start();
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_FAILED);
    assert_string_equal(kit_text(id, "reason"), "it crashed");
    assert_int_equal(kit_times(id), 0);
    double started = json_number_value(json_object_get(kit_get(id), "started_s"));
    double ended = json_number_value(json_object_get(kit_get(id), "ended_s"));
    assert_true(ended - started > 1.99 &&
                ended - started < 2.01); /* The duration does not depend on the wall clock. */
}

static void starting_job_is_not_rerun_if_run_json_records_an_end(void **state)
{
    (void)state;
    kit_start();
    kit_stop();
    int64_t id = leave(JOB_STARTING, "quick", "0", kit.list);
    write_run_json("{\"state\":\"ended\",\"end\":{\"kind\":\"exited\",\"status\":0}}");
    kit_start();
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
    assert_int_equal(kit_times(id), 0);
}

static void job_is_lost_if_no_lock_and_no_recorded_end_exist(void **state)
{
    static const char *const texts[] = {"{\"state\":\"running\",\"pid\":7}", "", "{\"state\":\"en"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (i > 0)
            kit_setup(NULL);
        kit_start();
        kit_stop();
        int64_t id = leave(i ? JOB_STARTING : JOB_RUNNING, "quick", "0", kit.list);
        write_run_json(texts[i]);
        kit_start();
        kit_wait_ended(id);
        assert_int_equal(jobs_state(kit.jobs, id), JOB_LOST);
        assert_int_equal(kit_times(id), 0);
        if (i + 1 < sizeof texts / sizeof *texts)
            kit_teardown(NULL);
    }
}

static void started_job_without_a_run_folder_is_lost(void **state)
{
    (void)state;
    kit_start();
    kit_stop();
    int64_t id = leave(JOB_RUNNING, "quick", "0", kit.list);
    kit_start();
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_LOST);
    assert_int_equal(kit_times(id), 0);
}

/* ---- running jobs ---- */

static void running_job_can_be_cancelled_by_a_restarted_server(void **state)
{
    struct err err = {""};
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"h\"}", "hold", kit.list, NULL);
    kit_wait_state(id, JOB_RUNNING);
    kit_stop();
    kit_start();
    assert_int_equal(jobs_state(kit.jobs, id), JOB_RUNNING);
    json_t *room = jobs_room_json(kit.jobs);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(room, "slots"), "used")),
                     1);
    json_decref(room);
    assert_int_equal(jobs_cancel(kit.jobs, id, "now", UINT64_MAX, &err), 0);
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_CANCELLED);
    assert_int_equal(kit_times(id), 1);
}

static void cancel_request_survives_a_server_restart(void **state)
{
    struct err err = {""};
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"d\"}", "deaf", NULL, NULL);
    kit_wait_state(id, JOB_RUNNING);
    assert_int_equal(jobs_cancel(kit.jobs, id, "so be it", UINT64_MAX, &err), 0);
    kit_stop();
    finish(id, "d");
    kit_start();
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_CANCELLED);
    assert_string_equal(kit_text(id, "reason"), "so be it");
}

static void job_cancelled_before_the_start_never_runs(void **state)
{
    struct err err = {""};
    (void)state;
    kit_start();
    kit_stop();
    int64_t id = leave(JOB_STARTING, "quick", "0", kit.list);
    struct store *s = kit_store();
    struct store_change change = {
        .state = JOB_STOPPING, .reason = "stop", .at_ns = 9, .end = "{\"asked\":true}"};
    assert_int_equal(store_change(s, id, &change, &err), 0);
    store_close(s);
    kit_start();
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_CANCELLED);
    assert_string_equal(kit_text(id, "reason"), "stop");
    kit_run_ms(100);
    assert_int_equal(kit_times(id), 0);
}

static void restarted_server_waits_for_a_job_that_is_still_starting(void **state)
{
    char go[96];
    (void)state;
    snprintf(go, sizeof go, "%s/go", kit.folder);
    kit_start();
    int64_t id = kit_submit("{\"name\": \"l\"}", "late", go, kit.list);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_STARTING);
    kit_stop();
    kit_start();
    kit_run_ms(150);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_STARTING);
    kit_touch(go);
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
    assert_int_equal(kit_times(id), 1);
    while (waitpid(-1, NULL, WNOHANG) > 0) /* Reaps the child process of the first server. */
        ;
}

static void job_counts_as_running_while_an_unsigned_lock_is_held(void **state)
{
    char go[96];
    (void)state;
    snprintf(go, sizeof go, "%s/go", kit.folder);
    kit_start();
    int64_t id = kit_submit(NULL, "lock-only", go, NULL);
    kit_wait_state(id, JOB_RUNNING);
    kit_run_ms(200);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_RUNNING);
    kit_touch(go);
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_LOST);
}

static void held_lock_proves_a_job_is_running_even_if_the_pid_is_reused(void **state)
{
    char path[128], line[64];
    (void)state;
    kit_start();
    kit_stop();
    int64_t id = leave(JOB_RUNNING, "quick", "0", kit.list);
    write_run_json("{\"state\":\"ended\",\"end\":{\"kind\":\"exited\",\"status\":0}}");
    snprintf(path, sizeof path, "%s/locks/1", kit.folder);
    /* The start time in the lock file is not that of this process. */
    int n = snprintf(line, sizeof line, "%d 1\n", (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, line, (size_t)n) == n);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    kit_start();
    kit_run_ms(150);
    /* The job is considered running because the lock is held. */
    assert_int_equal(jobs_state(kit.jobs, id), JOB_RUNNING);
    close(fd);
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
}

static void jobs_that_wait_for_a_failed_job_are_cancelled_at_restart(void **state)
{
    (void)state;
    kit_start();
    int64_t first = kit_submit("{\"name\": \"f\"}", "hold", NULL, NULL);
    int64_t second = kit_submit("{\"after\": [1]}", "quick", "0", kit.list);
    int64_t third = kit_submit("{\"after\": [2]}", "quick", "0", kit.list);
    kit_wait_state(first, JOB_RUNNING);
    kit_stop();
    struct err err = {""};
    /* The server was killed after it stored the end and before it cancelled the waiting jobs. */
    struct store *s = kit_store();
    struct store_change change = {.state = JOB_FAILED, .at_ns = 9};
    assert_int_equal(store_change(s, first, &change, &err), 0);
    store_close(s);
    kit_start();
    kit_wait_ended(second);
    assert_int_equal(jobs_state(kit.jobs, second), JOB_CANCELLED);
    assert_int_equal(jobs_state(kit.jobs, third), JOB_CANCELLED);
    finish(first, "f");
}

static void restarted_server_removes_locks_of_ended_jobs_only(void **state)
{
    char path[128];
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"h\"}", "hold", NULL, NULL);
    kit_wait_state(id, JOB_RUNNING);
    kit_stop();
    snprintf(path, sizeof path, "%s/locks/78", kit.folder);
    assert_int_equal(symlink("/dev/null", path), 0);
    snprintf(path, sizeof path, "%s/locks/77", kit.folder);
    kit_touch(path);
    kit_start();
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/locks/78", kit.folder);
    assert_int_equal(faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW), -1);
    json_t *trouble = jobs_trouble(kit.jobs);
    assert_int_equal(json_array_size(trouble), 0);
    json_decref(trouble);
    snprintf(path, sizeof path, "%s/locks/1", kit.folder);
    assert_int_equal(access(path, F_OK), 0);
    finish(id, "h");
    kit_wait_ended(id);
    assert_int_equal(access(path, F_OK), -1);
}

/* ---- servers killed at random moments ---- */

/* Starts a server that accepts jobs as fast as it can, reports them, and is killed. */
static pid_t server_that_submits(int said)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    kit_start();
    for (int i = 0; i < 100000; i++) {
        int64_t id = kit_submit("{\"name\": \"k\"}", "quick", "0", kit.list);
        if (write(said, &id, sizeof id) != sizeof id)
            _exit(1);
        kit_run_ms(2);
    }
    _exit(1);
}

static void wait_until_it_says(int said)
{
    struct pollfd p = {.fd = said, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 100 * 1000), 1);
}

/* Returns true if no job is queued or running. This also covers jobs that the killed server
 * accepted but did not report. */
static bool is_idle(int64_t id)
{
    json_t *room = jobs_room_json(kit.jobs);
    json_int_t used = json_integer_value(json_object_get(json_object_get(room, "slots"), "used"));
    json_int_t queued = json_integer_value(json_object_get(room, "queued"));
    (void)id;
    json_decref(room);
    return used == 0 && queued == 0;
}

static void server_killed_at_any_time_loses_no_job_and_reruns_none(void **state)
{
    enum { KILLS = 12, IDS_MAX = 10000 };
    static bool is_accepted[IDS_MAX];
    int64_t last = 0, id;
    int said[2];
    (void)state;
    kit.options.slots = 3;
    assert_int_equal(pipe2(said, O_CLOEXEC | O_NONBLOCK), 0);
    for (int i = 0; i < KILLS; i++) {
        pid_t pid = server_that_submits(said[1]);
        if (i % 3 == 0) /* On a slow machine some jobs are still running. */
            wait_until_it_says(said[0]);
        usleep((useconds_t)(20000 + rand() % 60000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        while (read(said[0], &id, sizeof id) == sizeof id) {
            last = id > last ? id : last;
            assert_in_range(id, 1, IDS_MAX - KILLS);
            is_accepted[id] = true;
        }
    }
    close(said[0]);
    close(said[1]);
    kit_start();
    kit_wait(is_idle, 0);
    /* An id stays unused if the server was killed between reserving it and storing the job. */
    for (id = 1; id < last + KILLS; id++) {
        bool is_stored = jobs_state(kit.jobs, id) != JOB_STATES;
        assert_true(is_stored || !is_accepted[id]);
        if (is_stored)
            assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
        assert_int_equal(kit_times(id), is_stored);
    }
    assert_true(last > 0);
}

int main(int argc, char **argv)
{
    int status;
    if (fake_ebb(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        TEST(job_runs_once_if_server_was_killed_before_starting_the_job),
        TEST(job_whose_run_folder_was_removed_is_not_rerun),
        TEST(job_queued_before_a_server_restart_runs_once),
        TEST(job_that_ended_while_the_server_was_down_is_read_from_disk),
        TEST(starting_job_is_not_rerun_if_run_json_records_an_end),
        TEST(job_is_lost_if_no_lock_and_no_recorded_end_exist),
        TEST(started_job_without_a_run_folder_is_lost),
        TEST(running_job_can_be_cancelled_by_a_restarted_server),
        TEST(cancel_request_survives_a_server_restart),
        TEST(job_cancelled_before_the_start_never_runs),
        TEST(restarted_server_waits_for_a_job_that_is_still_starting),
        TEST(job_counts_as_running_while_an_unsigned_lock_is_held),
        TEST(held_lock_proves_a_job_is_running_even_if_the_pid_is_reused),
        TEST(jobs_that_wait_for_a_failed_job_are_cancelled_at_restart),
        TEST(restarted_server_removes_locks_of_ended_jobs_only),
        TEST(server_killed_at_any_time_loses_no_job_and_reruns_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
