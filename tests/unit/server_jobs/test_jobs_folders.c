/* Tests the ownership of folders in runs/, and that ids are never reused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "fake_ebb.h"
#include "server/jobs/store.h"
#include "jobs_kit.h"

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...)
{
    char command[1024];
    int n = snprintf(command, sizeof command, "cd '%s' && ", kit.folder);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command + n, sizeof command - (size_t)n, fmt, ap);
    va_end(ap);
    if (system(command) != 0)
        fail_msg("%s", command);
}

static bool is_gone(int64_t id)
{
    return jobs_state(kit.jobs, id) == JOB_STATES;
}

static int64_t run_quick(const char *name)
{
    char extra[64];
    snprintf(extra, sizeof extra, "{\"name\": \"%s\"}", name);
    int64_t id = kit_submit(extra, "quick", "0", kit.list);
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
    return id;
}

/* Returns the name of a job's folder in runs/. */
static const char *folder_of(int64_t id)
{
    const char *path = kit_text(id, "run_dir");
    return *path ? strrchr(path, '/') + 1 : "";
}

static bool has_recording(int64_t id)
{
    int fd = kit_open_folder(id);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* ---- folders ---- */

static void job_gets_another_folder_name_if_the_usual_one_is_taken(void **state)
{
    (void)state;
    kit.options.keep.count = 2;
    kit_start();
    shell("mkdir runs/1-k && echo mine >runs/1-k/run.json && ln -s ../list runs/2-k && "
          "touch runs/3-k && mkdir runs/4-k");
    for (int64_t id = 1; id <= 4; id++) {
        assert_int_equal(run_quick("k"), id);
        assert_true(has_recording(id));
        const char *name = folder_of(id);
        shell("test -L 'runs/%s/.folder-id' && test '%s' != %lld-k", name, name, (long long)id);
    }
    kit_wait(is_gone, 2);
    shell("test mine = \"$(cat runs/1-k/run.json)\" && test -L runs/2-k && test -f runs/3-k && "
          "test -d runs/4-k");
    shell("test 0 = $(ls -d runs/1-k-* runs/2-k-* 2>/dev/null | wc -l)");
}

static void foreign_folder_at_the_path_of_a_run_is_not_changed(void **state)
{
    (void)state;
    kit.options.keep.count = 1;
    kit_start();
    int64_t id = run_quick("k");
    shell("mv runs/1-k elsewhere && mkdir runs/1-k && cp elsewhere/run.json runs/1-k && "
          "touch runs/1-k/mine");
    assert_false(has_recording(id));
    run_quick("k");
    kit_wait(is_gone, id);
    kit_run_ms(50);
    shell("test -f runs/1-k/mine && test -f elsewhere/run.json");
}

static void copy_of_a_run_folder_is_neither_used_nor_removed(void **state)
{
    (void)state;
    kit.options.keep.count = 1;
    kit_start();
    run_quick("k");
    shell("cp -r runs/1-k runs/2-k && cp -r runs/1-k runs/1-k.copy");
    int64_t id = run_quick("k");
    assert_string_not_equal(folder_of(id), "2-k");
    kit_wait(is_gone, 1);
    shell("test ! -e runs/1-k && test -d runs/2-k && test -d runs/1-k.copy");
}

static void run_json_of_a_foreign_folder_is_ignored(void **state)
{
    char finish[256];
    (void)state;
    kit_start();
    int64_t id = kit_submit("{\"name\": \"h\"}", "hold", NULL, NULL);
    kit_wait_state(id, JOB_RUNNING);
    shell("mv runs/1-h runs/moved && mkdir runs/1-h && "
          "echo '{\"state\":\"ended\",\"end\":{\"kind\":\"exited\",\"status\":0}}' "
          ">runs/1-h/run.json");
    kit_stop();
    snprintf(finish, sizeof finish, "%s/runs/1-h/finish",
             kit.folder); /* Another folder now has the path of the job's run folder. */
    kit_touch(finish);
    kit_start();
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_LOST);
    assert_false(has_recording(id));
}

static void retention_size_limit_ignores_foreign_folders(void **state)
{
    (void)state;
    kit.options.keep.bytes = 2 << 20;
    kit_start();
    int64_t id = run_quick("k");
    shell("mkdir runs/mine runs/1-other && dd if=/dev/zero of=runs/mine/f bs=65536 count=64 "
          "2>/dev/null && cp runs/mine/f runs/1-other/");
    kit_stop(); /* The server measures all folders when it starts. */
    kit_start();
    shell("dd if=/dev/zero of=runs/1-k/f bs=65536 count=16 2>/dev/null");
    run_quick("k");
    kit_run_ms(1500); /* Waits for a retention check. */
    assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
    shell("test -f runs/mine/f");
}

/* `ebb run` was killed between creating and signing the folder, so it started no job. */
static void job_runs_once_if_ebb_run_died_before_signing_the_folder(void **state)
{
    struct err err = {""};
    int64_t id = 0;
    char request[512];
    (void)state;
    kit_start();
    kit_stop();
    struct store *s = kit_store();
    snprintf(request, sizeof request,
             "{\"command\":[\"quick\",\"0\",\"%s\"],\"name\":\"k\",\"cwd\":\"/\",\"env\":{},"
             "\"gpus\":0,\"priority\":0,\"after\":[],\"options\":{}}",
             kit.list);
    struct store_job row = {.state = JOB_STARTING,
                            .name = "k",
                            .request = request,
                            .run_dir = "1-k",
                            .folder_id = "0123456789abcdef0123456789abcdef",
                            .submitted_ns = 5};
    assert_int_equal(store_add(s, &row, &id, &err), 0);
    store_close(s);
    shell("mkdir runs/1-k");
    kit_start();
    kit_wait_ended(id);
    assert_int_equal(jobs_state(kit.jobs, id), JOB_SUCCEEDED);
    assert_int_equal(kit_times(id), 1);
    assert_string_not_equal(folder_of(id), "1-k");
}

/* ---- ids ---- */

static void server_with_a_new_job_store_reuses_no_ids_and_ends_no_job(void **state)
{
    (void)state;
    kit.options.keep.count = 100;
    kit_start();
    run_quick("k");
    int64_t runs = kit_submit("{\"name\": \"h\"}", "hold", NULL, NULL);
    run_quick("k");
    kit_wait_state(runs, JOB_RUNNING);
    kit_stop();
    shell("mkdir old && mv jobs.db* old/");
    kit_start();
    json_t *trouble = jobs_trouble(kit.jobs);
    assert_non_null(strstr(json_string_value(json_array_get(trouble, 0)),
                           "running jobs that are not in the job store: 1, for example job 2"));
    json_decref(trouble);
    for (int64_t id = 4; id <= 7; id++) {
        assert_int_equal(run_quick("k"), id);
        assert_int_equal(kit_times(id), 1);
    }
    shell("test -f locks/2 && test -f runs/1-k/run.json && test -f runs/3-k/run.json");
    kit_stop();
    shell("rm -f jobs.db* && mv old/jobs.db* .");
    /* The server uses the old store again: it adopts the running job and continues the sequence of
     * ids. */
    kit_start();
    assert_int_equal(jobs_state(kit.jobs, runs), JOB_RUNNING);
    assert_int_equal(run_quick("k"), 8);
    kit_touch(kit_run_path(runs, "h", "finish"));
    kit_wait_ended(runs);
    assert_int_equal(jobs_state(kit.jobs, runs), JOB_SUCCEEDED);
}

static void new_job_id_exceeds_ids_of_run_folders_if_last_id_is_missing(void **state)
{
    static const char *const marks[] = {"rm last-id", ": >last-id", "echo x >last-id",
                                        "echo 99999999999999999999 >last-id"};
    (void)state;
    kit_start();
    for (int i = 0; i < 3; i++)
        run_quick("k");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        kit_stop();
        shell("rm jobs.db* && mkdir -p runs/999-mine && %s", marks[i]);
        kit_start();
        assert_int_equal(run_quick("k"), 4 + (int64_t)i);
    }
}

static void ids_of_removed_jobs_are_not_reused(void **state)
{
    (void)state;
    kit.options.keep.count = 1;
    kit_start();
    for (int i = 0; i < 3; i++)
        run_quick("k");
    kit_wait(is_gone, 2);
    kit_stop();
    shell("rm -r jobs.db* runs/*-k");
    kit_start();
    assert_int_equal(run_quick("k"), 4);
}

int main(int argc, char **argv)
{
    int status;
    if (fake_ebb(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        TEST(job_gets_another_folder_name_if_the_usual_one_is_taken),
        TEST(foreign_folder_at_the_path_of_a_run_is_not_changed),
        TEST(copy_of_a_run_folder_is_neither_used_nor_removed),
        TEST(run_json_of_a_foreign_folder_is_ignored),
        TEST(retention_size_limit_ignores_foreign_folders),
        TEST(job_runs_once_if_ebb_run_died_before_signing_the_folder),
        TEST(server_with_a_new_job_store_reuses_no_ids_and_ends_no_job),
        TEST(new_job_id_exceeds_ids_of_run_folders_if_last_id_is_missing),
        TEST(ids_of_removed_jobs_are_not_reused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
