/* Tests the job store under failures: foreign or damaged files, a full disk, a killed server. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "server/jobs/store.h"
#include "server/jobs/store_private.h"
#include "store_kit.h"

/* ---- foreign and damaged files ---- */

static void write_file(const char *name, const void *data, size_t len)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(io_write_all(fd, data, len), 0);
    close(fd);
}

static void run_sql(const char *sql)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(store_kit_path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void job_store_of_a_newer_version_is_refused_and_not_changed(void **state)
{
    (void)state;
    store_close(store_kit_open());
    run_sql("PRAGMA user_version = 7");
    store_kit_refused(-ENOTSUP, "has version 7, but this ebb supports at most version 2");
    store_kit_refused(-ENOTSUP, "has version 7");
}

static void job_store_of_version_1_is_migrated_with_its_rows(void **state)
{
    struct err err = {""};
    struct store_job got;
    (void)state;
    run_sql(store_schema[0]);
    run_sql("PRAGMA application_id = 1700946547; PRAGMA user_version = 1;"
            "INSERT INTO jobs (id, state, priority, name, run_dir, submitted_ns, ended_ns, request)"
            " VALUES (7, 5, 0, 'a', '7-a', 1, 2, '{}'), (8, 0, 0, 'b', NULL, 3, NULL, '{}');"
            "DELETE FROM jobs WHERE id = 8;");
    for (int i = 0; i < 2; i++) {
        struct store *s = store_kit_open();
        assert_int_equal(store_get(s, 7, &got, &err), 0);
        assert_string_equal(got.run_dir, "7-a");
        assert_null(got.folder_id);
        assert_int_equal(got.ended_age_ns, 0);
        assert_int_equal(store_kit_add(s, "c", JOB_QUEUED), 9 + i);
        store_close(s);
    }
}

static void database_of_another_program_is_refused_as_job_store(void **state)
{
    (void)state;
    run_sql("CREATE TABLE theirs (a)");
    store_kit_refused(-EBADMSG, "is a database of another program");
}

static void file_that_is_not_a_database_is_refused_as_job_store(void **state)
{
    (void)state;
    char text[8192];
    memset(text, 'x', sizeof(text));
    write_file(store_kit_path, text, sizeof(text));
    store_kit_refused(-EBADMSG, "is damaged");
    assert_int_equal(store_kit_size(""), sizeof(text));
}

static void job_store_in_a_missing_folder_is_refused(void **state)
{
    (void)state;
    snprintf(store_kit_path, sizeof(store_kit_path), "%s/none/jobs.db", store_kit_folder);
    store_kit_refused(-EIO, "No such file or directory");
}

static void damaged_page_in_the_job_store_is_reported_when_it_is_read(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = store_kit_open();
    for (int i = 0; i < 300; i++)
        store_kit_add(s, "some name that is rather long so that there are pages", JOB_QUEUED);
    store_close(s);
    off_t size = store_kit_size("");
    assert_true(size > 16 * 4096);
    int fd = open(store_kit_path, O_RDWR | O_CLOEXEC), refused = 0;
    uint8_t page[4096], noise[4096];
    assert_true(fd >= 0);
    memset(noise, 0xA5, sizeof(noise));
    for (off_t at = 0; at < size; at += 4096) {
        assert_int_equal(pread(fd, page, sizeof(page), at), sizeof(page));
        assert_int_equal(pwrite(fd, noise, sizeof(noise), at), sizeof(noise));
        s = NULL;
        int rc = store_open(store_kit_path, &s, &err);
        assert_true(rc == 0 || rc == -EBADMSG);
        refused += rc < 0;
        if (rc == 0) { /* Damage in an unused page is harmless. */
            struct store_kit_seen seen = {.stop_at = 60};
            assert_int_equal(store_list(s, &(struct store_filter){0}, store_kit_see, &seen, &err),
                             0);
            store_close(s);
        }
        assert_int_equal(pwrite(fd, page, sizeof(page), at), sizeof(page));
    }
    assert_true(refused > 10);
    close(fd);
    store_close(store_kit_open());
}

static void nfs_and_smb_are_recognized_as_network_file_systems(void **state)
{
    (void)state;
    assert_false(store_is_local(NFS_SUPER_MAGIC));
    assert_false(store_is_local(0xFE534D42));
    assert_true(store_is_local(EXT4_SUPER_MAGIC));
    assert_true(store_is_local(TMPFS_MAGIC));
    assert_true(store_is_local(OVERLAYFS_SUPER_MAGIC));
}

/* ---- a full disk ---- */

/* Adds jobs until the disk is full. Returns the number of accepted jobs, or -1. */
static int64_t fill(struct store *s, struct err *err)
{
    char *request = malloc(20001);
    memset(request, 'r', 20000);
    request[20000] = '\0';
    struct store_job job = {
        .state = JOB_QUEUED, .name = "x", .request = request, .submitted_ns = 1};
    int64_t id = 0, last = 0;
    int rc = 0;
    while (last < 10000 && (rc = store_add(s, &job, &id, err)) == 0)
        last = id;
    free(request);
    return rc == -ENOSPC ? last : -1;
}

static uint64_t queued(struct store *s)
{
    uint64_t counts[JOB_STATES] = {0};
    store_count(s, counts);
    return counts[JOB_QUEUED];
}

static void job_store_reports_a_full_disk_and_recovers(void **state)
{
    (void)state;
    struct err err = {""};
    struct rlimit before, small;
    struct store *s = store_kit_open();
    store_kit_add(s, "before", JOB_QUEUED);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = (rlim_t)store_kit_size("-wal") + 200000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int64_t last = fill(s, &err);
    uint64_t full = queued(s);
    int grouped = store_begin(s, NULL);
    int64_t in_group = fill(s, NULL);
    int lost = store_end(s, 0, NULL);
    struct store_job job;
    int read_rc = store_get(s, 1, &job, NULL); /* Reading needs no disk space. */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(last > 1);
    assert_non_null(strstr(err.text, "no space left for the job store"));
    assert_int_equal(full, last);
    assert_int_equal(read_rc, 0);
    assert_int_equal(grouped, 0);
    assert_true(in_group > last);
    assert_int_equal(lost, -ENOSPC);
    /* The transaction that failed on the full disk was rolled back. */
    assert_int_equal(queued(s), full);
    uint64_t counted = queued(s);
    store_kit_add(s, "after", JOB_QUEUED);
    assert_int_equal(queued(s), counted + 1);
    store_close(s);
    s = store_kit_open();
    assert_int_equal(queued(s), counted + 1);
    store_close(s);
}

/* Runs in a separate process on a private tmpfs of 512 KiB. Returns 77 if it cannot be mounted. */
static int on_a_small_disk(void)
{
    struct err err = {""};
    struct store *s = NULL;
    char filler[160];
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", store_kit_folder, "tmpfs", 0, "size=512k") < 0)
        return 77;
    if (store_open(store_kit_path, &s, &err) < 0)
        return 1;
    snprintf(filler, sizeof(filler), "%s/filler", store_kit_folder);
    int fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 0) < 0 || posix_fallocate(fd, 0, 128 << 10) != 0)
        return 2;
    close(fd);
    int64_t last = fill(s, &err);
    if (last < 1 || queued(s) != (uint64_t)last)
        return 3;
    unlink(filler);
    struct store_job job = {.state = JOB_QUEUED, .name = "x", .request = "{}", .submitted_ns = 1};
    int64_t id = 0;
    if (store_add(s, &job, &id, &err) < 0 || id != last + 1)
        return 4;
    store_close(s);
    if (store_open(store_kit_path, &s, &err) < 0 || queued(s) != (uint64_t)last + 1)
        return 5;
    store_close(s);
    return 0;
}

static void job_store_recovers_from_a_full_tmpfs(void **state)
{
    (void)state;
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(on_a_small_disk());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("no tmpfs may be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* ---- writers killed at random moments ---- */

/* Adds and changes jobs until the process is killed, and reports every commit. */
static void write_for_ever(int fd)
{
    struct store *s = NULL;
    if (store_open(store_kit_path, &s, NULL) < 0)
        _exit(1);
    for (;;) {
        struct store_job job = {
            .state = JOB_QUEUED, .name = "k", .request = "{}", .submitted_ns = 1};
        struct store_change c = {.state = JOB_STARTING, .at_ns = 2, .run_dir = "r"};
        int64_t said[2] = {0, JOB_QUEUED};
        if (store_add(s, &job, &said[0], NULL) < 0 || write(fd, said, sizeof(said)) < 0)
            _exit(1);
        if (said[0] % 3 == 0)
            continue;
        said[1] = JOB_STARTING;
        if (store_change(s, said[0], &c, NULL) < 0 || write(fd, said, sizeof(said)) < 0)
            _exit(1);
    }
}

static void killed_after(unsigned microseconds, int64_t *ret_last, int64_t *ret_state)
{
    int ends[2];
    int64_t said[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        write_for_ever(ends[1]);
    }
    close(ends[1]);
    /* The writing process has started and reported its first commit. */
    assert_true(read(ends[0], said, sizeof(said)) == (ssize_t)sizeof(said));
    *ret_last = said[0];
    *ret_state = said[1];
    nanosleep(&(struct timespec){.tv_nsec = (long)microseconds * 1000}, NULL);
    kill(child, SIGKILL);
    while (read(ends[0], said, sizeof(said)) == (ssize_t)sizeof(said)) {
        *ret_last = said[0];
        *ret_state = said[1];
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    close(ends[0]);
}

static void stored_jobs_survive_sigkill_of_the_writer_at_any_moment(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int round = 0; round < 40; round++) {
        int64_t last, said;
        struct err err = {""};
        struct store_job job;
        seed = seed * 1664525 + 1013904223;
        killed_after((seed >> 8) % 20000, &last, &said);
        struct store *s = store_kit_open(); /* runs quick_check */
        assert_int_equal(store_get(s, last, &job, &err), 0);
        /* Every reported change must be stored. One more change may have been stored but not
         * reported before the kill. */
        assert_true((int64_t)job.state >= said);
        uint64_t counts[JOB_STATES], all;
        store_count(s, counts);
        all = counts[JOB_QUEUED] + counts[JOB_STARTING];
        assert_true(all == (uint64_t)last || all == (uint64_t)last + 1);
        store_close(s);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, store_kit_setup, store_kit_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(job_store_of_a_newer_version_is_refused_and_not_changed),
        TEST(job_store_of_version_1_is_migrated_with_its_rows),
        TEST(database_of_another_program_is_refused_as_job_store),
        TEST(file_that_is_not_a_database_is_refused_as_job_store),
        TEST(job_store_in_a_missing_folder_is_refused),
        TEST(damaged_page_in_the_job_store_is_reported_when_it_is_read),
        TEST(nfs_and_smb_are_recognized_as_network_file_systems),
        TEST(job_store_reports_a_full_disk_and_recovers),
        TEST(job_store_recovers_from_a_full_tmpfs),
        TEST(stored_jobs_survive_sigkill_of_the_writer_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
