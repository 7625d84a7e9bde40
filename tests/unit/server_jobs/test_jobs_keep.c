/* Tests the retention of ended jobs, and the job file. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "fake_ebb.h"
#include "jobs_kit.h"

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...)
{
    char command[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    if (system(command) != 0)
        fail_msg("%s", command);
}

static bool is_there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static bool is_gone(int64_t id)
{
    return jobs_state(kit.jobs, id) == JOB_STATES;
}

/* Returns true if the job has ended, even if it was removed since. */
static bool is_over(int64_t id)
{
    return is_gone(id) || job_state_is_final(jobs_state(kit.jobs, id));
}

static bool is_trash_empty(int64_t id)
{
    char path[128];
    int count = 0;
    (void)id;
    snprintf(path, sizeof path, "%s/runs/.trash", kit.folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count == 2;
}

static void wait_for_empty_trash(void)
{
    kit_wait(is_trash_empty, 0);
}

static void retention_count_limit_removes_oldest_jobs_and_their_folders(void **state)
{
    (void)state;
    kit.options.keep.count = 3;
    kit_start();
    for (int i = 0; i < 6; i++)
        kit_wait_ended(kit_submit("{\"name\": \"k\"}", "quick", "0", NULL));
    kit_wait(is_gone, 3);
    wait_for_empty_trash();
    for (int64_t id = 1; id <= 6; id++) {
        assert_int_equal(is_gone(id), id <= 3);
        assert_int_equal(is_there(kit_run_path(id, "k", "run.json")), id > 3);
    }
    assert_int_equal(kit.removed, 3);
    struct err err;
    json_t *doc = NULL;
    assert_int_equal(jobs_get(kit.jobs, 1, true, &doc, &err), -ENOENT);
}

static void retention_age_limit_removes_old_jobs_but_no_running_jobs(void **state)
{
    (void)state;
    kit.options.keep.age_ns = NS_PER_S / 2;
    kit_start();
    int64_t runs = kit_submit("{\"name\": \"h\"}", "hold", NULL, NULL);
    int64_t id = kit_submit("{\"name\": \"k\"}", "quick", "0", NULL);
    kit_wait(is_over, id);
    kit_wait_state(runs, JOB_RUNNING);
    kit_run_ms(700);
    /* The end of this job triggers a retention check. */
    kit_wait(is_over, kit_submit("{\"name\": \"k\"}", "quick", "0", NULL));
    kit_wait(is_gone, id);
    assert_int_equal(jobs_state(kit.jobs, runs), JOB_RUNNING);
    kit_touch(kit_run_path(runs, "h", "finish"));
    kit_wait(is_over, runs);
}

/* Adds a job that ended when the store was AGE_S old. */
static void add_ended(struct store *s, uint64_t age_s)
{
    struct err err = {""};
    const struct store_job row = {.name = "x", .request = "{}", .submitted_ns = 5};
    const struct store_change change = {
        .state = JOB_CANCELLED, .at_ns = 6, .ended_age_ns = age_s * NS_PER_S};
    int64_t id;
    if (store_add(s, &row, &id, &err) < 0 || store_change(s, id, &change, &err) < 0)
        fail_msg("%s", err.text);
}

static void retention_age_limit_finds_an_old_job_behind_many_newer_ones(void **state)
{
    (void)state;
    kit_start();
    kit_stop();
    struct store *s = kit_store();
    for (int i = 0; i < 100; i++)
        add_ended(s, 7000);
    add_ended(s, 1000);
    assert_int_equal(store_count_up(s, "age_s", 7200, NULL), 0);
    store_close(s);
    kit.options.keep.age_ns = UINT64_C(3600) * NS_PER_S;
    kit_start();
    kit_wait(is_gone, 101);
    for (int64_t id = 1; id <= 100; id++)
        assert_int_equal(jobs_state(kit.jobs, id), JOB_CANCELLED);
}

static void retention_size_limit_removes_the_oldest_jobs(void **state)
{
    (void)state;
    kit.options.keep.bytes = 3 << 20;
    kit_start();
    for (int64_t id = 1; id <= 3; id++) {
        kit_submit("{\"name\": \"b\"}", "quick", "0", NULL);
        kit_wait_ended(id);
        shell("dd if=/dev/zero of='%s' bs=65536 count=20 2>/dev/null",
              kit_run_path(id, "b", "big"));
    }
    kit_stop(); /* The server measures all folders when it starts. */
    kit_start();
    kit_wait(is_gone, 1);
    wait_for_empty_trash();
    kit_run_ms(100);
    assert_false(is_gone(2));
    assert_false(is_gone(3));
    assert_true(is_there(kit_run_path(2, "b", "big")));
}

/* Creates folders nested deeper than PATH_MAX. */
static void make_deep(const char *path)
{
    enum { LEVELS = 300 };
    static const char name[] = "dddddddddddddddddddddddddddddddddd";
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < LEVELS; i++) {
        assert_int_equal(mkdirat(dir, name, 0700), 0);
        int next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(dir);
        dir = next;
    }
    close(openat(dir, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    close(dir);
}

static void removal_of_a_deep_run_folder_follows_no_symlinks(void **state)
{
    (void)state;
    kit.options.keep.count = 1;
    kit_start();
    kit_wait_ended(kit_submit("{\"name\": \"t\"}", "quick", "0", NULL));
    shell("mkdir '%s/precious' && echo x >'%s/precious/file'", kit.folder, kit.folder);
    shell("cd '%s/runs/1-t' && ln -s '%s/precious' link && ln -s '%s/precious/file' l2 && "
          "mkdir closed && touch closed/f && chmod 0 closed && mkfifo pipe && "
          "touch -- '-rf' 'a b' \"$(printf 'new\\nline')\"",
          kit.folder, kit.folder, kit.folder);
    make_deep(kit_run_path(1, "t", ""));
    shell("cd '%s/runs/1-t' && i=0; while [ $i -lt 300 ]; do : >f$i; i=$((i+1)); done", kit.folder);
    kit_wait_ended(kit_submit("{\"name\": \"t\"}", "quick", "0", NULL));
    kit_wait(is_gone, 1);
    wait_for_empty_trash();
    char path[128];
    snprintf(path, sizeof path, "%s/precious/file", kit.folder);
    assert_true(is_there(path));
    json_t *trouble = jobs_trouble(kit.jobs);
    assert_int_equal(json_array_size(trouble), 0);
    json_decref(trouble);
}

static void trash_folder_is_emptied_when_the_server_starts(void **state)
{
    (void)state;
    kit_start();
    kit_stop();
    shell("mkdir -p '%s/runs/.trash/old/deep' && touch '%s/runs/.trash/old/deep/f'", kit.folder,
          kit.folder);
    kit_start();
    wait_for_empty_trash();
}

static void trash_folder_is_created_again_if_it_is_missing(void **state)
{
    (void)state;
    kit.options.keep.count = 1;
    kit_start();
    shell("rmdir '%s/runs/.trash'", kit.folder);
    for (int i = 0; i < 2; i++)
        kit_wait_ended(kit_submit("{\"name\": \"k\"}", "quick", "0", NULL));
    kit_wait(is_gone, 1);
    wait_for_empty_trash();
    assert_false(is_there(kit_run_path(1, "k", "run.json")));
}

static bool has_trouble(int64_t id)
{
    json_t *trouble = jobs_trouble(kit.jobs);
    size_t count = json_array_size(trouble);
    (void)id;
    json_decref(trouble);
    return count > 0;
}

/* Not even root can remove this mount point, which exists only in the test's own mount
 * namespace. */
static void mount_that_cannot_be_removed_does_not_block_other_removals(void **state)
{
    char path[256];
    (void)state;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        print_message("mounts cannot be made here: %s\n", strerror(errno));
        skip();
    }
    kit.options.keep.count = 1;
    kit_start();
    kit_wait_ended(kit_submit("{\"name\": \"k\"}", "quick", "0", NULL));
    snprintf(path, sizeof path, "%s", kit_run_path(1, "k", "mount"));
    assert_int_equal(mkdir(path, 0700), 0);
    if (mount("none", path, "tmpfs", 0, NULL) < 0) {
        print_message("no tmpfs can be mounted here: %s\n", strerror(errno));
        skip();
    }
    for (int i = 0; i < 4; i++)
        kit_wait_ended(kit_submit("{\"name\": \"k\"}", "quick", "0", NULL));
    kit_wait(is_gone, 4);
    kit_wait(has_trouble, 0);
    for (int64_t id = 1; id <= 4; id++)
        assert_false(is_there(kit_run_path(id, "k", "run.json")));
    kit_stop();
    shell("umount '%s'/runs/.trash/*/mount", kit.folder);
    kit_start(); /* The new server tries to remove the folder again. */
    wait_for_empty_trash();
    assert_false(has_trouble(0));
}

static void job_with_a_missing_run_folder_can_be_removed(void **state)
{
    (void)state;
    kit.options.keep.count = 1;
    kit_start();
    kit_wait_ended(kit_submit("{\"name\": \"k\"}", "quick", "0", NULL));
    shell("rm -rf '%s/runs/1-k'", kit.folder);
    kit_wait_ended(kit_submit("{\"name\": \"k\"}", "quick", "0", NULL));
    kit_wait(is_gone, 1);
}

/* ---- the job file ---- */

static char job_file[128];
static const char *status_in_file(const char *id)
{
    static char word[32];
    json_t *doc = json_load_file(job_file, 0, NULL);
    const char *status = json_string_value(json_object_get(json_object_get(doc, id), "status"));
    snprintf(word, sizeof word, "%s", status ? status : "");
    json_decref(doc);
    return word;
}

static bool is_completed_in_file(int64_t id)
{
    char key[24];
    snprintf(key, sizeof key, "%lld", (long long)id);
    return strcmp(status_in_file(key), "completed") == 0;
}

static void keep_file(const char *name)
{
    snprintf(job_file, sizeof job_file, "%s/%s", kit.folder, name);
    kit.options.job_file = job_file;
}

static void job_file_is_updated_when_jobs_change(void **state)
{
    (void)state;
    keep_file("training_jobs.json");
    kit_start();
    kit_wait_ended(kit_submit("{\"name\": \"k\"}", "quick", "0", NULL));
    kit_wait(is_completed_in_file, 1);
    int64_t id = kit_submit("{\"name\": \"k\"}", "quick", "0", NULL);
    kit_wait(is_completed_in_file, id);
    assert_true(is_completed_in_file(1));
}

static bool is_second_cancelled_in_file(int64_t id)
{
    (void)id;
    return strcmp(status_in_file("2"), "cancelled") == 0;
}

/* The file has more jobs than one slice writes, and one of them changes while the file is being
 * written. */
static void job_file_contains_each_of_many_jobs_exactly_once(void **state)
{
    enum { QUEUED = 400 };
    struct err err;
    char theirs[128];
    (void)state;
    keep_file("many.json");
    kit.options.slots = 1;
    kit_start();
    int64_t runs = kit_submit("{\"name\": \"h\"}", "hold", NULL, NULL);
    shell("for i in $(seq %d); do echo \"$i\"; done | sed 's/.*/{\"job_id\": \"&\", \"status\": "
          "\"queued\", \"command\": [\"quick\", \"0\"]}/; 1s/^/[/; $!s/$/,/; $s/$/]/' >'%s/theirs'",
          QUEUED, kit.folder);
    snprintf(theirs, sizeof theirs, "%s/theirs", kit.folder);
    assert_int_equal(jobs_import(kit.jobs, theirs, &err), QUEUED);
    assert_int_equal(jobs_cancel(kit.jobs, 2, "no need", 0, &err), 0);
    kit_wait(is_second_cancelled_in_file, 2);
    json_error_t error;
    json_t *file_doc = json_load_file(job_file, JSON_REJECT_DUPLICATES, &error);
    if (!file_doc)
        fail_msg("%s", error.text);
    assert_int_equal(json_object_size(file_doc), QUEUED + 1);
    assert_string_equal(status_in_file("1"), "running");
    assert_string_equal(status_in_file("3"), "queued");
    assert_string_equal(status_in_file("401"), "queued");
    json_decref(file_doc);
    /* No temporary file of the job file remains. */
    shell("test 1 = $(ls -A '%s' | grep -c many.json)", kit.folder);
    kit_touch(kit_run_path(runs, "h", "finish"));
}

static bool has_no_trouble(int64_t id)
{
    return !has_trouble(id);
}

static void unwritable_job_file_is_reported_until_it_can_be_written(void **state)
{
    (void)state;
    keep_file("later/jobs.json");
    kit_start();
    kit_wait(has_trouble, 0);
    json_t *trouble = jobs_trouble(kit.jobs);
    assert_non_null(strstr(json_string_value(json_array_get(trouble, 0)),
                           "later/jobs.json: No such file or directory"));
    json_decref(trouble);
    shell("mkdir '%s/later'", kit.folder);
    kit_wait(has_no_trouble, 0);
    kit_wait_ended(kit_submit("{\"name\": \"k\"}", "quick", "0", NULL));
    kit_wait(is_completed_in_file, 1);
}

static void writing_the_job_file_replaces_a_symlink(void **state)
{
    (void)state;
    keep_file("full.json");
    shell("ln -s /dev/full '%s/full.json'", kit.folder);
    kit_start();
    kit_wait_ended(kit_submit("{\"name\": \"k\"}", "quick", "0", NULL));
    kit_wait(is_completed_in_file, 1);
    kit_stop();
    shell("test -f '%s/full.json' && test ! -L '%s/full.json'", kit.folder, kit.folder);
}

static void job_file_of_another_server_is_imported_once(void **state)
{
    struct err err = {""};
    (void)state;
    snprintf(job_file, sizeof job_file, "%s/theirs.json", kit.folder);
    shell("cat >'%s' <<'E'\n{\"a\": {\"status\": \"completed\", \"name\": \"one\"},"
          " \"b\": {\"status\": \"running\", \"name\": \"two\"},"
          " \"c\": {\"status\": \"queued\", \"name\": \"three\", \"command\": [\"quick\", \"0\", "
          "\"%s\"]}}\nE",
          job_file, kit.list);
    kit_open(); /* The store is opened before jobs_start, as in the server. */
    int n = jobs_import(kit.jobs, job_file, &err);
    if (n != 3)
        fail_msg("%d: %s", n, err.text);
    assert_int_equal(jobs_start(kit.jobs, &err), 0);
    kit_wait_ended(3);
    assert_int_equal(jobs_state(kit.jobs, 2), JOB_LOST);
    assert_int_equal(jobs_state(kit.jobs, 3), JOB_SUCCEEDED);
    assert_int_equal(kit_times(3), 1);
    assert_int_equal(jobs_import(kit.jobs, job_file, &err),
                     0); /* A job file with the same content is not imported again. */
    assert_int_equal(jobs_state(kit.jobs, 4), JOB_STATES);
    shell("echo >>'%s'", job_file); /* Changes the file, so that it is imported again. */
    assert_int_equal(jobs_import(kit.jobs, job_file, &err), 3);
    kit_wait_ended(6);
    kit_run_ms(100);
    assert_int_equal(kit_times(6), 1);
    assert_int_equal(kit_try_rerun(1), -EINVAL);
}

int main(int argc, char **argv)
{
    int status;
    if (fake_ebb(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        TEST(retention_count_limit_removes_oldest_jobs_and_their_folders),
        TEST(retention_age_limit_removes_old_jobs_but_no_running_jobs),
        TEST(retention_age_limit_finds_an_old_job_behind_many_newer_ones),
        TEST(retention_size_limit_removes_the_oldest_jobs),
        TEST(removal_of_a_deep_run_folder_follows_no_symlinks),
        TEST(trash_folder_is_emptied_when_the_server_starts),
        TEST(trash_folder_is_created_again_if_it_is_missing),
        TEST(job_with_a_missing_run_folder_can_be_removed),
        TEST(job_file_is_updated_when_jobs_change),
        TEST(job_file_contains_each_of_many_jobs_exactly_once),
        TEST(unwritable_job_file_is_reported_until_it_can_be_written),
        TEST(writing_the_job_file_replaces_a_symlink),
        TEST(job_file_of_another_server_is_imported_once),
        /* This test must be the last, because it changes the mount namespace. */
        TEST(mount_that_cannot_be_removed_does_not_block_other_removals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
