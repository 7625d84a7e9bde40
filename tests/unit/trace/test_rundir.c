/* Tests the path and name of a run folder, and the errors when creating it. */
#include "trace/rundir.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

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
#include "trace/fake_job.h"

static const uint64_t wall_ns = UINT64_C(1700000000) * NS_PER_S; /* 2023-11-14 22:13:20 UTC */

static void check_latest(const char *expected)
{
    char target[256] = "";
    assert_true(readlink("ebb-runs/latest", target, sizeof target - 1) > 0);
    assert_string_equal(target, expected);
}

static void new_run_folder_has_a_dated_name_and_is_linked_as_latest(void **state)
{
    (void)state;
    struct rundir one, two;
    struct stat st;
    assert_int_equal(rundir_create(NULL, "train", wall_ns, &one, NULL), 0);
    check_latest("train-20231114-221320");
    assert_int_equal(one.path[0], '/');
    assert_int_equal(fstat(one.fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0755);
    assert_int_equal(fcntl(one.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(rundir_create(NULL, "train", wall_ns, &two, NULL), 0);
    check_latest("train-20231114-221320-2");
    rundir_fini(&one);
    rundir_fini(&two);
    rundir_fini(&two);
}

static void check_name(const char *name, const char *expected)
{
    struct rundir dir;
    assert_int_equal(rundir_create(NULL, name, wall_ns, &dir, NULL), 0);
    const char *base = strrchr(dir.path, '/') + 1;
    assert_int_equal(strncmp(base, expected, strlen(expected)), 0);
    assert_int_equal(strncmp(base + strlen(expected), "-2023", 5), 0);
    rundir_fini(&dir);
}

static void run_name_is_reduced_to_safe_characters(void **state)
{
    (void)state;
    char big[300];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = '\0';
    check_name("a b/../\n\x1b[1m\xc3\xa9", "a_b_..____1m__");
    check_name("..", "run");
    check_name(".", "run");
    check_name("", "run");
    check_name(NULL, "run");
    check_name("--help", "_-help");
    big[64] = '\0';
    check_name(big, big);
    big[64] = 'x';
    char cut[65];
    memcpy(cut, big, 64);
    cut[64] = '\0';
    check_name(big, cut);
}

static void run_folder_given_by_path_does_not_change_the_latest_link(void **state)
{
    (void)state;
    char path[256];
    struct rundir dir;
    struct err err = {0};
    snprintf(path, sizeof path, "%s/deep/er/run/", fake_job_folder());
    assert_int_equal(rundir_create(path, "x", wall_ns, &dir, &err), 0);
    path[strlen(path) - 1] = '\0';
    assert_string_equal(dir.path, path);
    rundir_fini(&dir);
    assert_int_equal(rundir_create(path, "x", wall_ns, &dir, &err), -EEXIST);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "exists"));
}

static void run_folder_below_a_path_that_is_a_file_is_refused(void **state)
{
    (void)state;
    char path[256], below[300];
    struct rundir dir;
    struct err err = {0};
    fake_job_write_file(fake_job_path(path, "file"), "", 0);
    snprintf(below, sizeof below, "%s/run", path);
    assert_int_equal(rundir_create(below, "x", wall_ns, &dir, &err), -ENOTDIR);
    assert_non_null(strstr(err.text, below));
    assert_non_null(strstr(err.text, "is a file"));
    assert_int_equal(rundir_create("", "x", wall_ns, &dir, &err), -ENOENT);
}

static void existing_folder_named_latest_is_left_unchanged(void **state)
{
    (void)state;
    struct rundir dir;
    struct stat st;
    assert_true(unlink("ebb-runs/latest") == 0 || errno == ENOENT);
    assert_int_equal(mkdir("ebb-runs/latest", 0777), 0);
    assert_int_equal(rundir_create(NULL, "own", wall_ns, &dir, NULL), 0);
    assert_int_equal(lstat("ebb-runs/latest", &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(rmdir("ebb-runs/latest"), 0);
    rundir_fini(&dir);
}

enum { CANNOT_BE_NOBODY = 2 };

static void check_nobody(int status)
{
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT_BE_NOBODY) {
        print_message("skipped: cannot become another user here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Runs as nobody, because root can write to any folder. */
static int try_as_nobody(const char *path)
{
    struct rundir dir;
    struct err err = {0};
    if (getuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
        return CANNOT_BE_NOBODY;
    if (rundir_create(path, "x", wall_ns, &dir, &err) != -EACCES)
        return 3;
    return strstr(err.text, path) && strstr(err.text, strerror(EACCES)) ? 0 : 4;
}

static void run_folder_cannot_be_created_in_an_unwritable_folder(void **state)
{
    (void)state;
    char path[256], below[300];
    int status;
    assert_int_equal(mkdir(fake_job_path(path, "closed"), 0555), 0);
    assert_int_equal(chmod(fake_job_folder(), 0755), 0);
    snprintf(below, sizeof below, "%s/run", path);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(try_as_nobody(below));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    check_nobody(status);
}

/* Runs as nobody, because root can open a folder of mode 0. */
static int try_with_closed_umask(const char *path)
{
    struct rundir dir;
    struct err err = {0};
    struct stat st;
    if (getuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
        return CANNOT_BE_NOBODY;
    umask(0777);
    if (rundir_create(path, "x", wall_ns, &dir, &err) != -EACCES)
        return 3;
    if (!strstr(err.text, path))
        return 4;
    return lstat(path, &st) < 0 && errno == ENOENT ? 0 : 5;
}

static void run_folder_that_cannot_be_opened_after_creation_is_removed(void **state)
{
    (void)state;
    char path[256], below[300];
    int status;
    assert_int_equal(mkdir(fake_job_path(path, "umask"), 0777), 0);
    assert_int_equal(chmod(path, 0777), 0);
    assert_int_equal(chmod(fake_job_folder(), 0755), 0);
    snprintf(below, sizeof below, "%s/run", path);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(try_with_closed_umask(below));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    check_nobody(status);
}

static void stale_temporary_link_to_latest_run_is_replaced(void **state)
{
    (void)state;
    char stale[64];
    struct rundir dir;
    struct stat st;
    assert_true(mkdir("ebb-runs", 0777) == 0 || errno == EEXIST);
    snprintf(stale, sizeof stale, "ebb-runs/.latest.%ld", (long)getpid());
    assert_int_equal(symlink("long-ago", stale), 0);
    assert_int_equal(rundir_create(NULL, "again", wall_ns, &dir, NULL), 0);
    check_latest("again-20231114-221320");
    assert_int_equal(lstat(stale, &st), -1);
    rundir_fini(&dir);
}

static void run_json_is_replaced_atomically(void **state)
{
    (void)state;
    char path[256];
    struct rundir dir;
    struct buf b = {0};
    json_t *doc = json_pack("{s:i}", "status", 1);
    assert_int_equal(rundir_create(fake_job_path(path, "json"), "x", wall_ns, &dir, NULL), 0);
    assert_int_equal(rundir_write_json(&dir, doc), 0);
    json_object_set_new(doc, "status", json_integer(2));
    assert_int_equal(rundir_write_json(&dir, doc), 0);
    fake_job_read_bytes(fake_job_path(path, "json/run.json"), &b);
    assert_string_equal(buf_str(&b), "{\n  \"status\": 2\n}\n");
    buf_fini(&b);
    json_decref(doc);
    rundir_fini(&dir);
}

static void run_json_replaces_a_folder_of_the_same_name(void **state)
{
    (void)state;
    char path[256];
    struct rundir dir;
    struct buf b = {0};
    json_t *doc = json_pack("{s:i}", "status", 1);
    assert_int_equal(rundir_create(fake_job_path(path, "aside"), "x", wall_ns, &dir, NULL), 0);
    assert_int_equal(mkdir(fake_job_path(path, "aside/run.json"), 0777), 0);
    assert_int_equal(mkdir(fake_job_path(path, "aside/run.json/not-empty"), 0777), 0);
    assert_int_equal(rundir_write_json(&dir, doc), 0);
    fake_job_read_bytes(fake_job_path(path, "aside/run.json"), &b);
    assert_string_equal(buf_str(&b), "{\n  \"status\": 1\n}\n");
    buf_fini(&b);
    json_decref(doc);
    rundir_fini(&dir);
}

static int open_as(const char *name, const char *folder_id)
{
    char path[256];
    int fd = rundir_open_signed(AT_FDCWD, fake_job_path(path, name), folder_id);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

static void signed_run_folder_can_be_opened_only_with_its_id(void **state)
{
    (void)state;
    char path[256], link[256];
    struct rundir dir;
    assert_int_equal(rundir_create(fake_job_path(path, "signed"), "x", wall_ns, &dir, NULL), 0);
    assert_int_equal(open_as("signed", ""), 0);
    assert_int_equal(open_as("signed", "abc"), -ENOENT);
    assert_int_equal(rundir_sign(&dir, "abc", NULL), 0);
    assert_int_equal(open_as("signed", "abc"), 0);
    assert_int_equal(open_as("signed", "abcd"), -ENOENT);
    assert_int_equal(open_as("signed", "ab"), -ENOENT);
    assert_int_equal(open_as("signed", ""), -ENOENT);
    assert_int_equal(symlink("signed", fake_job_path(link, "link")), 0);
    assert_int_equal(open_as("link", "abc"), -ENOENT);
    assert_int_equal(open_as("nowhere", "abc"), -ENOENT);
    rundir_fini(&dir);
}

static void signature_that_is_not_a_link_matches_no_folder_id(void **state)
{
    (void)state;
    char path[256], id[256];
    struct rundir dir;
    assert_int_equal(rundir_create(fake_job_path(path, "odd"), "x", wall_ns, &dir, NULL), 0);
    rundir_fini(&dir);
    assert_int_equal(mkfifo(fake_job_path(id, "odd/.folder-id"), 0600), 0);
    assert_int_equal(open_as("odd", ""), -ENOENT);
    assert_int_equal(open_as("odd", "abc"), -ENOENT);
    assert_int_equal(unlink(id), 0);
    assert_int_equal(open_as("odd", ""), 0);
}

static void run_folder_that_cannot_be_signed_after_creation_is_removed(void **state)
{
    (void)state;
    char path[256];
    struct rundir dir;
    struct stat st;
    struct err err;
    static const char too_long[] = "0123456789012345678901234567890123456789"
                                   "0123456789012345678901234567890123456789";
    assert_int_equal(rundir_create(fake_job_path(path, "gone"), "x", wall_ns, &dir, NULL), 0);
    assert_int_equal(rundir_sign(&dir, too_long, &err), -EINVAL);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(dir.fd, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_run_folder_has_a_dated_name_and_is_linked_as_latest),
        cmocka_unit_test(run_name_is_reduced_to_safe_characters),
        cmocka_unit_test(run_folder_given_by_path_does_not_change_the_latest_link),
        cmocka_unit_test(run_folder_below_a_path_that_is_a_file_is_refused),
        cmocka_unit_test(existing_folder_named_latest_is_left_unchanged),
        cmocka_unit_test(run_folder_cannot_be_created_in_an_unwritable_folder),
        cmocka_unit_test(run_folder_that_cannot_be_opened_after_creation_is_removed),
        cmocka_unit_test(stale_temporary_link_to_latest_run_is_replaced),
        cmocka_unit_test(run_json_is_replaced_atomically),
        cmocka_unit_test(run_json_replaces_a_folder_of_the_same_name),
        cmocka_unit_test(signed_run_folder_can_be_opened_only_with_its_id),
        cmocka_unit_test(signature_that_is_not_a_link_matches_no_folder_id),
        cmocka_unit_test(run_folder_that_cannot_be_signed_after_creation_is_removed),
    };
    umask(022);
    setenv("TZ", "UTC", 1);
    if (chdir(fake_job_folder()) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
