/* Tests that hostile jobs, hostile supervisors and full disks do not affect the server. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "fake_ebb.h"
#include "jobs_kit.h"
#include "server/jobs/jobs_private.h"

static void job_is_lost_if_run_json_is_invalid(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{\"state\":\"ended\"}",
        "{\"state\":\"ended\",\"end\":7}",
        "{\"state\":7,\"end\":{}}",
    };
    (void)state;
    kit_start();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t id = kit_submit(NULL, "json", texts[i], NULL);
        kit_wait_ended(id);
        assert_int_equal(jobs_state(kit.jobs, id), JOB_LOST);
    }
}

static void job_is_lost_if_run_json_has_too_many_bytes_or_values(void **state)
{
    (void)state;
    kit_start();
    int64_t small = kit_submit(NULL, "huge", "1000", NULL);
    int64_t brackets = kit_submit(NULL, "huge", "1900000", NULL);
    int64_t large = kit_submit(NULL, "huge", "9000000", NULL);
    kit_wait_ended(small);
    kit_wait_ended(brackets);
    kit_wait_ended(large);
    assert_int_equal(jobs_state(kit.jobs, small), JOB_SUCCEEDED);
    assert_int_equal(jobs_state(kit.jobs, brackets), JOB_LOST);
    assert_int_equal(jobs_state(kit.jobs, large), JOB_LOST);
}

static void run_json_keys_of_the_wrong_type_are_ignored(void **state)
{
    (void)state;
    kit_start();
    int64_t id = kit_submit(
        NULL, "json",
        "{\"state\":\"ended\",\"pid\":\"x\",\"segment\":{},\"duration_s\":-1e300,\"tree\":[1],"
        "\"ask_bytes\":-5,\"limit\":{\"limit_bytes\":\"9\"},\"gpus\":{},\"given_back\":{\"host\":7,"
        "\"gpus\":[[],{\"freed_bytes\":9223372036854775807},{\"freed_bytes\":9223372036854775807}]}"
        ","
        "\"left\":{\"shm\":[{\"is_jobs\":true,\"bytes\":9223372036854775807},7]},"
        "\"verdict\":{\"tree\":{\"verdict\":\"leaking\",\"leak\":9,\"evidence\":[{}],\"oom\":[]}},"
        "\"end\":{\"kind\":[],\"status\":\"0\",\"cause\":{},\"cause_kind\":9}}",
        NULL);
    kit_wait_ended(id);
    assert_string_equal(kit_text(id, "state"), "failed");
    assert_true(json_is_null(json_object_get(kit_get(id), "pid")));
    assert_true(json_is_null(json_object_get(kit_get(id), "status")));
    assert_true(json_is_null(json_object_get(kit_get(id), "memory_bytes")));
    const json_t *verdict = json_object_get(kit_get(id), "verdict");
    assert_true(json_is_null(json_object_get(verdict, "leak")));
}

static void symlink_in_place_of_run_json_is_not_followed(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/other.json", kit.folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    static const char text[] = "{\"state\":\"ended\",\"end\":{\"kind\":\"exited\",\"status\":0}}";
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    kit_start();
    int64_t id = kit_submit(NULL, "link", path, NULL);
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_LOST);
}

static void long_failure_cause_is_truncated_between_characters(void **state)
{
    enum { LONG = 5000 };
    char *text = malloc(LONG * 3 + 300), *at = text;
    (void)state;
    at +=
        sprintf(at, "{\"state\":\"ended\",\"end\":{\"kind\":\"exited\",\"status\":1,\"cause\":\"x");
    for (int i = 0; i < LONG; i++)
        at += sprintf(at, "€");
    sprintf(at, "\"}}");
    kit_start();
    int64_t id = kit_submit(NULL, "json", text, NULL);
    free(text);
    kit_wait_ended(id);
    const char *cause = kit_text(id, "cause");
    assert_true(strlen(cause) > 400 && strlen(cause) <= 500);
    assert_string_equal(cause + strlen(cause) - 3, "€");
}

static bool has_pid(int64_t id)
{
    return json_integer_value(json_object_get(kit_get(id), "pid")) > 1;
}

static void supervisor_flooding_a_socket_does_not_block_the_server(void **state)
{
    struct err err = {""};
    (void)state;
    kit_start();
    int64_t id = kit_submit(NULL, "flood", NULL, NULL);
    int64_t other = kit_submit(NULL, "quick", "0", kit.list);
    kit_wait_ended(other);
    kit_wait_state(id, JOB_RUNNING);
    kit_wait(has_pid, id); /* Waits until the flood has begun. */
    kit_run_ms(400);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_RUNNING);
    assert_true(json_is_object(kit_get(id)));
    assert_int_equal(jobs_cancel(kit.jobs, id, "", 0, &err), 0);
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_CANCELLED);
}

static void job_is_lost_if_the_run_folder_is_removed(void **state)
{
    char command[128];
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"g\"}", "hold", NULL, NULL);
    kit_wait_state(id, JOB_RUNNING);
    kit_wait(has_pid, id);
    pid_t pid = (pid_t)json_integer_value(json_object_get(kit_get(id), "pid"));
    snprintf(command, sizeof command, "rm -rf '%s/runs/1-g'", kit.folder);
    assert_int_equal(system(command), 0);
    assert_true(kit_open_folder(id) == -ENOENT);
    kit_run_ms(50);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_RUNNING);
    assert_true(pid > 1 && kill(pid, SIGKILL) == 0);
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_LOST);
}

static void missing_ebb_program_keeps_jobs_queued_and_is_reported(void **state)
{
    char program[128];
    (void)state;
    snprintf(program, sizeof program, "%s/ebb", kit.folder);
    const char *real = kit.options.program;
    kit.options.program = program;
    kit_start();
    int64_t id = kit_submit(NULL, "quick", "0", kit.list);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_QUEUED);
    json_t *trouble = jobs_trouble(kit.jobs);
    assert_int_equal(json_array_size(trouble), 1);
    json_decref(trouble);
    assert_non_null(strstr(kit_text(id, "waits_for"), "cannot start jobs"));
    assert_int_equal(symlink(real, program), 0);
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
    trouble = jobs_trouble(kit.jobs);
    assert_int_equal(json_array_size(trouble), 0);
    json_decref(trouble);
    assert_int_equal(kit_times(id), 1);
}

static void only_the_job_whose_working_folder_is_missing_fails(void **state)
{
    char folder[128], extra[256];
    (void)state;
    kit.options.slots = 1;
    kit_start();
    snprintf(folder, sizeof folder, "%s/cwd", kit.folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    int64_t first = kit_submit("{\"name\": \"f\"}", "hold", NULL, NULL);
    snprintf(extra, sizeof extra, "{\"cwd\": \"%s\"}", folder);
    int64_t id = kit_submit(extra, "quick", "0", kit.list);
    int64_t next = kit_submit(NULL, "quick", "0", kit.list);
    assert_int_equal(rmdir(folder), 0);
    kit_wait_state(first, JOB_RUNNING);
    kit_touch(kit_run_path(first, "f", "finish"));
    kit_wait_ended(next);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_FAILED);
    assert_non_null(strstr(kit_text(id, "reason"), "cwd"));
    assert_int_equal(jobs_state(kit.jobs, next), JOB_SUCCEEDED);
}

/* Prevents files from growing, as on a full disk. */
static void set_disk_full(bool is_full)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = is_full ? 0 : limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void server_with_full_disk_refuses_new_jobs_and_keeps_old_ones(void **state)
{
    struct err err = {""};
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    kit.options.slots = 1;
    kit_start();
    int64_t first = kit_submit("{\"name\": \"f\"}", "hold", NULL, NULL);
    int64_t second = kit_submit("{\"name\": \"s\"}", "quick", "0", kit.list);
    int64_t after = kit_submit("{\"after\": [1]}", "quick", "0", kit.list);
    kit_wait_state(first, JOB_RUNNING);
    set_disk_full(true);
    assert_true(kit_try_submit(NULL, "quick", "0", kit.list) < 0);
    assert_true(jobs_cancel(kit.jobs, second, "", 0, &err) < 0);
    assert_int_equal(jobs_state(kit.jobs, second), JOB_QUEUED);
    assert_int_equal(jobs_cancel(kit.jobs, first, "full", 0, &err),
                     0); /* A running job can still be cancelled. */
    kit_wait_ended(first);
    kit_run_ms(1500);
    assert_int_equal(jobs_state(kit.jobs, second), JOB_QUEUED);
    json_t *trouble = jobs_trouble(kit.jobs);
    assert_true(json_array_size(trouble) >= 1);
    json_decref(trouble);
    set_disk_full(false);
    kit_wait_ended(second);
    kit_wait_ended(after);
    assert_int_equal(jobs_state(kit.jobs, first), JOB_CANCELLED);
    assert_int_equal(jobs_state(kit.jobs, second), JOB_SUCCEEDED);
    assert_int_equal(jobs_state(kit.jobs, after), JOB_CANCELLED);
    kit_stop();
    kit_start();
    assert_string_equal(kit_text(first, "reason"), "full");
    trouble = jobs_trouble(kit.jobs);
    assert_int_equal(json_array_size(trouble), 0);
    json_decref(trouble);
    assert_int_equal(kit_times(second), 1);
}

static void hundreds_of_jobs_can_be_queued(void **state)
{
    enum { MANY = 600 };
    struct err err = {""};
    (void)state;
    kit.options.slots = 1;
    kit_start();
    int64_t first = kit_submit("{\"name\": \"f\"}", "hold", NULL, NULL);
    kit_wait_state(first, JOB_RUNNING);
    for (int i = 0; i < MANY; i++)
        kit_submit("{\"name\": \"w\"}", "quick", "0", NULL);
    json_t *list = NULL;
    struct store_filter query = {.states = 1 << JOB_QUEUED, .limit = 500};
    assert_int_equal(jobs_list(kit.jobs, &query, &list, &err), 0);
    assert_int_equal(json_array_size(json_object_get(list, "jobs")), 500);
    assert_true(json_is_true(json_object_get(list, "more")));
    json_decref(list);
    for (int64_t id = 2; id <= MANY - 20; id++)
        assert_int_equal(jobs_cancel(kit.jobs, id, "", 0, &err), 0);
    kit_touch(kit_run_path(first, "f", "finish"));
    kit_wait_ended(MANY + 1);
    kit_wait_ended(MANY);
}

static void job_ignoring_an_accepted_cancel_is_killed(void **state)
{
    struct err err;
    (void)state;
    kit.options.force_ns = NS_PER_S;
    kit_start();
    int64_t id = kit_submit(NULL, "impostor", NULL, NULL);
    kit_wait_state(id, JOB_RUNNING);
    assert_int_equal(jobs_cancel(kit.jobs, id, "enough", NS_PER_S, &err), 0);
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_CANCELLED);
}

/* A job can create any file at the path of a later job's lock file. Only the later job may fail
 * because of this file. */
static void unusable_lock_file_fails_only_the_job_with_the_same_id(void **state)
{
    char path[256];
    (void)state;
    kit_start();
    snprintf(path, sizeof path, "%s/locks/1", kit.folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/locks/2", kit.folder);
    assert_int_equal(symlink("/dev/null", path), 0);
    snprintf(path, sizeof path, "%s/locks/3", kit.folder);
    int held = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(held >= 0 && flock(held, LOCK_EX) == 0);
    for (int64_t id = 1; id <= 4; id++) {
        assert_int_equal(kit_submit(NULL, "quick", "0", kit.list), id);
        kit_wait_ended(id);
        assert_int_equal(jobs_state(kit.jobs, id), id == 4 ? JOB_SUCCEEDED : JOB_FAILED);
        assert_int_equal(kit_times(id), id == 4);
    }
    close(held);
}

/* ---- allocation failures ---- */

static bool is_starved;

static void *allocate(size_t size)
{
    return is_starved ? NULL : malloc(size);
}

/* Calls jobs_run_over while no memory can be allocated for JSON values. */
static void end_without_memory(int64_t id, const struct executor_end *end)
{
    struct job_live *live = jobs_find(kit.jobs, id)->live;
    live->run->x->kind->release(live->run);
    is_starved = true;
    jobs_run_over(kit.jobs, id, end);
    is_starved = false;
    assert_int_equal(jobs_state(kit.jobs, id), JOB_RUNNING);
}

static void job_ends_later_if_memory_is_short_when_it_ends(void **state)
{
    char why[] = "the disk is gone";
    (void)state;
    json_set_alloc_funcs(allocate, free);
    kit_start();
    int64_t failed = kit_submit(NULL, "hold", NULL, NULL);
    int64_t succeeded = kit_submit(NULL, "hold", NULL, NULL);
    kit_wait_state(failed, JOB_RUNNING);
    kit_wait_state(succeeded, JOB_RUNNING);
    json_t *run =
        json_pack("{s:s,s:{s:s,s:i}}", "state", "ended", "end", "kind", "exited", "status", 0);
    end_without_memory(failed, &(struct executor_end){.no_start = why, .has_folder = true});
    end_without_memory(succeeded, &(struct executor_end){.run_json = run, .has_folder = true});
    json_decref(run);
    memset(why, 'x', sizeof why - 1); /* the report is valid only during the call */
    /* a cancel that comes after the end does not change how the job ended */
    assert_int_equal(jobs_cancel(kit.jobs, succeeded, NULL, 0, NULL), 0);
    kit_wait_ended(failed);
    kit_wait_ended(succeeded);
    assert_int_equal(jobs_state(kit.jobs, failed), JOB_FAILED);
    assert_string_equal(kit_text(failed, "reason"), "the disk is gone");
    assert_int_equal(jobs_state(kit.jobs, succeeded), JOB_SUCCEEDED);
    kit_wait_ended(kit_submit(NULL, "quick", "0", NULL)); /* both slots are free again */
}

int main(int argc, char **argv)
{
    int status;
    if (fake_ebb(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        TEST(job_is_lost_if_run_json_is_invalid),
        TEST(job_is_lost_if_run_json_has_too_many_bytes_or_values),
        TEST(run_json_keys_of_the_wrong_type_are_ignored),
        TEST(symlink_in_place_of_run_json_is_not_followed),
        TEST(long_failure_cause_is_truncated_between_characters),
        TEST(supervisor_flooding_a_socket_does_not_block_the_server),
        TEST(job_is_lost_if_the_run_folder_is_removed),
        TEST(missing_ebb_program_keeps_jobs_queued_and_is_reported),
        TEST(only_the_job_whose_working_folder_is_missing_fails),
        TEST(server_with_full_disk_refuses_new_jobs_and_keeps_old_ones),
        TEST(hundreds_of_jobs_can_be_queued),
        TEST(job_ignoring_an_accepted_cancel_is_killed),
        TEST(unusable_lock_file_fails_only_the_job_with_the_same_id),
        TEST(job_ends_later_if_memory_is_short_when_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
