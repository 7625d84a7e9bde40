/* The job store: what is in it stays in it, whoever is killed and whatever is full or damaged. */
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
#include "jobs/store.h"
#include "jobs/store_private.h"

static char folder[64], path[128];

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/ebb-test-store.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/jobs.db", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : -1;
}

static struct store *open_store(void)
{
    struct store *s = NULL;
    struct err err = {""};
    if (store_open(path, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static void refused_to_open(int code, const char *part)
{
    struct store *s = NULL;
    struct err err = {""};
    assert_int_equal(store_open(path, &s, &err), code);
    assert_null(s);
    if (!strstr(err.text, part) || !strstr(err.text, path))
        fail_msg("\"%s\" has no \"%s\"", err.text, part);
}

static int64_t add(struct store *s, const char *name, enum job_state state)
{
    struct err err = {""};
    int64_t id = 0;
    struct store_job job = {.state = state,
                            .name = name,
                            .request = "{\"command\":[\"x\"]}",
                            .submitted_ns = 1000000000};
    if (store_add(s, &job, &id, &err) < 0)
        fail_msg("%s", err.text);
    return id;
}

static void change(struct store *s, int64_t id, enum job_state state, uint64_t at_ns)
{
    struct err err = {""};
    struct store_change c = {.state = state, .at_ns = at_ns};
    if (store_change(s, id, &c, &err) < 0)
        fail_msg("%s", err.text);
}

static void a_job_is_there_again_with_all_of_it_after_a_reopen(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = open_store();
    struct store_job job = {.state = JOB_QUEUED,
                            .name = "näme",
                            .request = "{\"a\":1}",
                            .priority = -7,
                            .rerun_of = 3,
                            .memory_bytes = UINT64_C(5) << 40,
                            .memory_from = "declared",
                            .submitted_ns = UINT64_C(1700000000123456789)};
    int64_t id = 0;
    assert_int_equal(store_add(s, &job, &id, &err), 0);
    assert_int_equal(id, 1);
    struct store_change c = {.state = JOB_STARTING,
                             .reason = "its turn",
                             .at_ns = 5,
                             .gpus = "0,2",
                             .run_dir = "1-n_me"};
    assert_int_equal(store_change(s, id, &c, &err), 0);
    change(s, id, JOB_RUNNING, 6);
    change(s, id, JOB_CHECKPOINTING, 7);
    c = (struct store_change){.state = JOB_FAILED, .reason = "exit 3", .at_ns = 9, .end = "{}"};
    assert_int_equal(store_change(s, id, &c, &err), 0);
    store_close(s);
    s = open_store();
    struct store_job got;
    assert_int_equal(store_get(s, id, &got, &err), 0);
    assert_int_equal(got.state, JOB_FAILED);
    assert_string_equal(got.name, "näme");
    assert_string_equal(got.request, "{\"a\":1}");
    assert_string_equal(got.reason, "exit 3");
    assert_string_equal(got.end, "{}");
    assert_string_equal(got.gpus, "0,2");
    assert_string_equal(got.run_dir, "1-n_me");
    assert_string_equal(got.memory_from, "declared");
    assert_int_equal(got.priority, -7);
    assert_int_equal(got.rerun_of, 3);
    assert_int_equal(got.memory_bytes, UINT64_C(5) << 40);
    assert_int_equal(got.submitted_ns, UINT64_C(1700000000123456789));
    assert_int_equal(got.started_ns, 6);
    assert_int_equal(got.ended_ns, 9);
    json_t *changes = NULL;
    assert_int_equal(store_changes(s, id, &changes, &err), 0);
    assert_int_equal(json_array_size(changes), 5);
    assert_string_equal(json_string_value(json_object_get(json_array_get(changes, 1), "reason")),
                        "its turn");
    assert_string_equal(json_string_value(json_object_get(json_array_get(changes, 4), "state")),
                        "failed");
    json_decref(changes);
    store_close(s);
}

static void a_state_that_may_not_follow_changes_nothing(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = open_store();
    int64_t id = add(s, "x", JOB_QUEUED);
    struct store_change c = {.state = JOB_SUCCEEDED, .at_ns = 1};
    assert_int_equal(store_change(s, id, &c, &err), -EINVAL);
    assert_string_equal(err.text, "job 1 is queued and cannot become succeeded");
    assert_int_equal(store_change(s, 99, &c, &err), -ENOENT);
    assert_string_equal(err.text, "there is no job 99");
    uint64_t counts[JOB_STATES];
    assert_int_equal(store_count(s, counts, &err), 0);
    assert_int_equal(counts[JOB_QUEUED], 1);
    assert_int_equal(counts[JOB_SUCCEEDED], 0);
    store_close(s);
}

static void a_job_that_never_started_goes_back_without_its_place(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = open_store();
    int64_t id = add(s, "x", JOB_QUEUED);
    struct store_change c = {.state = JOB_STARTING, .at_ns = 2, .run_dir = "1-x", .gpus = "0"};
    assert_int_equal(store_change(s, id, &c, &err), 0);
    change(s, id, JOB_QUEUED, 3);
    struct store_job got;
    assert_int_equal(store_get(s, id, &got, &err), 0);
    assert_null(got.run_dir);
    assert_null(got.gpus);
    assert_int_equal(got.started_ns, 0);
    store_close(s);
}

struct seen {
    int64_t ids[64];
    size_t count, stop_at;
};

static int see(void *user, const struct store_job *job)
{
    struct seen *seen = user;
    assert_true(seen->count < 64);
    seen->ids[seen->count++] = job->id;
    return seen->count == seen->stop_at;
}

static void lists_are(struct store *s, struct store_filter filter, const char *want)
{
    struct seen seen = {.count = 0};
    struct err err = {""};
    char text[256] = "";
    assert_int_equal(store_list(s, &filter, see, &seen, &err), 0);
    for (size_t i = 0; i < seen.count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%" PRId64, i ? " " : "",
                 seen.ids[i]);
    assert_string_equal(text, want);
}

static void lists_are_by_state_name_and_page(void **state)
{
    (void)state;
    enum { ACTIVE = 1 << JOB_QUEUED | 1 << JOB_STARTING | 1 << JOB_RUNNING };
    struct store *s = open_store();
    for (int i = 1; i <= 8; i++)
        add(s, i % 2 ? "odd" : "even", i <= 4 ? JOB_SUCCEEDED : i <= 6 ? JOB_STARTING : JOB_QUEUED);
    lists_are(s, (struct store_filter){0}, "8 7 6 5 4 3 2 1");
    lists_are(s, (struct store_filter){.oldest_first = true, .limit = 3}, "1 2 3");
    lists_are(s, (struct store_filter){.before = 4, .limit = 2}, "3 2");
    lists_are(s, (struct store_filter){.states = ACTIVE}, "8 7 6 5");
    lists_are(s, (struct store_filter){.states = ACTIVE, .oldest_first = true}, "5 6 7 8");
    lists_are(s, (struct store_filter){.states = 1 << JOB_SUCCEEDED, .before = 4}, "3 2 1");
    lists_are(s, (struct store_filter){.states = 1 << JOB_LOST}, "");
    lists_are(s, (struct store_filter){.states = 1 << JOB_SUCCEEDED | 1 << JOB_QUEUED},
              "8 7 4 3 2 1");
    lists_are(s, (struct store_filter){.name = "even"}, "8 6 4 2");
    lists_are(s, (struct store_filter){.name = "even", .states = ACTIVE, .limit = 1}, "8");
    lists_are(s, (struct store_filter){.name = "' OR 1 --"}, "");
    struct seen seen = {.stop_at = 2};
    struct err err = {""};
    assert_int_equal(store_list(s, &(struct store_filter){0}, see, &seen, &err), 0);
    assert_int_equal(seen.count, 2);
    store_close(s);
}

static void a_number_is_never_used_twice(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = open_store();
    assert_int_equal(add(s, "x", JOB_QUEUED), 1);
    assert_int_equal(add(s, "x", JOB_QUEUED), 2);
    assert_int_equal(store_remove(s, 2, &err), 0);
    assert_int_equal(store_remove(s, 2, &err), -ENOENT);
    store_close(s);
    s = open_store();
    assert_int_equal(add(s, "x", JOB_QUEUED), 3);
    json_t *changes = NULL;
    assert_int_equal(store_changes(s, 2, &changes, &err), 0);
    assert_int_equal(json_array_size(changes), 0);
    json_decref(changes);
    uint64_t counts[JOB_STATES];
    store_count(s, counts, &err);
    assert_int_equal(counts[JOB_QUEUED], 2);
    store_close(s);
}

static void of_peaks_the_largest_of_the_last_five_counts(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = open_store();
    assert_int_equal(store_learned(s, "a"), 0);
    static const uint64_t peaks[] = {900, 100, 200, 300, 200, 100};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(store_learn(s, "a", peaks[i], i, &err), 0);
        assert_int_equal(store_learned(s, "a"), i < 5 ? 900 : 300);
    }
    assert_int_equal(store_learned(s, "b"), 0);
    store_close(s);
}

static void counters_outlive_the_server(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = open_store();
    assert_int_equal(store_count_up(s, "clean", 1, &err), 0);
    assert_int_equal(store_count_up(s, "clean", 2.5, &err), 0);
    store_close(s);
    s = open_store();
    json_t *counters = NULL;
    assert_int_equal(store_counters(s, &counters, &err), 0);
    assert_true(json_real_value(json_object_get(counters, "clean")) == 3.5);
    json_decref(counters);
    store_close(s);
}

static void several_calls_are_one_commit_or_none(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = open_store();
    uint64_t counts[JOB_STATES];
    assert_int_equal(store_begin(s, &err), 0);
    assert_int_equal(store_begin(s, &err), -EINVAL);
    int64_t id = add(s, "x", JOB_QUEUED);
    assert_int_equal(store_change(s, 77, &(struct store_change){.state = JOB_LOST}, &err), -ENOENT);
    assert_int_equal(store_learn(s, "x", 5, 1, &err), 0);
    assert_int_equal(store_commit(s, &err), 0);
    assert_int_equal(store_commit(s, &err), -EINVAL);
    assert_int_equal(store_begin(s, &err), 0);
    change(s, id, JOB_STARTING, 2);
    add(s, "y", JOB_QUEUED);
    store_cancel(s);
    store_count(s, counts, &err);
    assert_int_equal(counts[JOB_QUEUED], 1);
    assert_int_equal(counts[JOB_STARTING], 0);
    struct store_job got;
    assert_int_equal(store_get(s, id, &got, &err), 0);
    assert_int_equal(got.state, JOB_QUEUED);
    assert_int_equal(store_learned(s, "x"), 5);
    store_close(s);
}

static void of_very_many_changes_the_first_and_the_latest_stay(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = open_store();
    int64_t id = add(s, "x", JOB_STARTING);
    assert_int_equal(store_begin(s, &err), 0);
    for (unsigned i = 0; i < 3000; i++)
        change(s, id, i % 2 ? JOB_RUNNING : JOB_CHECKPOINTING, i + 1);
    assert_int_equal(store_commit(s, &err), 0);
    json_t *changes = NULL;
    assert_int_equal(store_changes(s, id, &changes, &err), 0);
    assert_int_equal(json_array_size(changes), 1100);
    json_decref(changes);
    store_close(s);
}

static off_t size_of(const char *suffix)
{
    char name[160];
    struct stat st;
    snprintf(name, sizeof(name), "%s%s", path, suffix);
    return stat(name, &st) < 0 ? -1 : st.st_size;
}

static void neither_the_log_nor_the_file_grows_with_what_is_removed_again(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = open_store();
    for (int i = 0; i < 400; i++) {
        int64_t id = add(s, "x", JOB_QUEUED);
        change(s, id, JOB_CANCELLED, 5);
        assert_int_equal(store_remove(s, id, &err), 0);
    }
    assert_true(size_of("-wal") <= 2 << 20);
    assert_true(size_of("") <= 1 << 20);
    store_close(s);
    assert_int_equal(size_of("-wal"), -1);
}

static void a_second_server_is_refused_and_the_first_goes_on(void **state)
{
    (void)state;
    struct store *s = open_store();
    add(s, "x", JOB_QUEUED);
    refused_to_open(-EBUSY, "in use by another server");
    pid_t child = fork();
    if (child == 0) {
        struct store *other = NULL;
        _exit(store_open(path, &other, NULL) == -EBUSY ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    add(s, "x", JOB_QUEUED);
    store_close(s);
    s = open_store();
    store_close(s);
}

static void nobody_else_may_read_it(void **state)
{
    (void)state;
    struct stat st;
    store_close(open_store());
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* ---- what is not ours, or not whole ---- */

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
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void a_newer_version_is_refused_and_left_alone(void **state)
{
    (void)state;
    store_close(open_store());
    run_sql("PRAGMA user_version = 7");
    refused_to_open(-ENOTSUP, "is of version 7, this ebb knows up to 1");
    refused_to_open(-ENOTSUP, "is of version 7");
}

static void another_programs_database_is_refused(void **state)
{
    (void)state;
    run_sql("CREATE TABLE theirs (a)");
    refused_to_open(-EBADMSG, "no job store of ebb");
}

static void a_file_that_is_none_is_refused(void **state)
{
    (void)state;
    char text[8192];
    memset(text, 'x', sizeof(text));
    write_file(path, text, sizeof(text));
    refused_to_open(-EBADMSG, "is damaged");
    assert_int_equal(size_of(""), sizeof(text));
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "%s/none/jobs.db", folder);
    refused_to_open(-EIO, "No such file or directory");
}

static void a_damaged_page_is_found_at_the_start_or_when_it_is_met(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = open_store();
    for (int i = 0; i < 300; i++)
        add(s, "some name that is rather long so that there are pages", JOB_QUEUED);
    store_close(s);
    off_t size = size_of("");
    assert_true(size > 16 * 4096);
    int fd = open(path, O_RDWR | O_CLOEXEC), refused = 0;
    uint8_t page[4096], noise[4096];
    assert_true(fd >= 0);
    memset(noise, 0xA5, sizeof(noise));
    for (off_t at = 0; at < size; at += 4096) {
        assert_int_equal(pread(fd, page, sizeof(page), at), sizeof(page));
        assert_int_equal(pwrite(fd, noise, sizeof(noise), at), sizeof(noise));
        s = NULL;
        int rc = store_open(path, &s, &err);
        assert_true(rc == 0 || rc == -EBADMSG);
        refused += rc < 0;
        if (rc == 0) { /* a page that is free: nothing of ours is in it */
            struct seen seen = {.stop_at = 60};
            assert_int_equal(store_list(s, &(struct store_filter){0}, see, &seen, &err), 0);
            store_close(s);
        }
        assert_int_equal(pwrite(fd, page, sizeof(page), at), sizeof(page));
    }
    assert_true(refused > 10);
    close(fd);
    store_close(open_store());
}

static void a_network_file_system_is_no_place(void **state)
{
    (void)state;
    assert_false(store_is_local(NFS_SUPER_MAGIC));
    assert_false(store_is_local(0xFE534D42));
    assert_true(store_is_local(EXT4_SUPER_MAGIC));
    assert_true(store_is_local(TMPFS_MAGIC));
    assert_true(store_is_local(OVERLAYFS_SUPER_MAGIC));
}

/* ---- a full disk ---- */

/* Adds until there is no room: how many were accepted, or -1 with a word about it. */
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
    store_count(s, counts, NULL);
    return counts[JOB_QUEUED];
}

static void a_full_disk_is_said_and_the_store_goes_on_when_there_is_room(void **state)
{
    (void)state;
    struct err err = {""};
    struct rlimit before, small;
    struct store *s = open_store();
    add(s, "before", JOB_QUEUED);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = (rlim_t)size_of("-wal") + 200000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int64_t last = fill(s, &err);
    uint64_t full = queued(s);
    int grouped = store_begin(s, NULL);
    int64_t in_group = fill(s, NULL);
    int lost = store_commit(s, NULL);
    struct store_job job;
    int read_rc = store_get(s, 1, &job, NULL); /* reading needs no room */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(last > 1);
    assert_non_null(strstr(err.text, "there is no room for the job store"));
    assert_int_equal(full, last);
    assert_int_equal(read_rc, 0);
    assert_int_equal(grouped, 0);
    assert_true(in_group > last);
    assert_int_equal(lost, -ENOSPC);
    assert_int_equal(queued(s), full); /* all of the group is gone */
    uint64_t counted = queued(s);
    add(s, "after", JOB_QUEUED);
    assert_int_equal(queued(s), counted + 1);
    store_close(s);
    s = open_store();
    assert_int_equal(queued(s), counted + 1);
    store_close(s);
}

/* In a process of its own: a tmpfs of 512 KiB that nobody else sees. 77 where that cannot be. */
static int on_a_small_disk(void)
{
    struct err err = {""};
    struct store *s = NULL;
    char filler[160];
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", folder, "tmpfs", 0, "size=512k") < 0)
        return 77;
    if (store_open(path, &s, &err) < 0)
        return 1;
    snprintf(filler, sizeof(filler), "%s/filler", folder);
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
    if (store_open(path, &s, &err) < 0 || queued(s) != (uint64_t)last + 1)
        return 5;
    store_close(s);
    return 0;
}

static void so_it_is_on_a_disk_that_is_really_full(void **state)
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

/* ---- killed ---- */

/* Accepts, changes and removes without end, and tells of each what is done. */
static void write_for_ever(int fd)
{
    struct store *s = NULL;
    if (store_open(path, &s, NULL) < 0)
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
    assert_true(read(ends[0], said, sizeof(said)) == (ssize_t)sizeof(said)); /* it is at it */
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

static void what_was_accepted_survives_kill_9_at_any_moment(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int round = 0; round < 40; round++) {
        int64_t last, said;
        struct err err = {""};
        struct store_job job;
        seed = seed * 1664525 + 1013904223;
        killed_after((seed >> 8) % 20000, &last, &said);
        struct store *s = open_store(); /* its quick_check is in there */
        assert_int_equal(store_get(s, last, &job, &err), 0);
        /* what was said has happened; the next change may have, too */
        assert_true((int64_t)job.state >= said);
        uint64_t counts[JOB_STATES], all;
        store_count(s, counts, &err);
        all = counts[JOB_QUEUED] + counts[JOB_STARTING];
        assert_true(all == (uint64_t)last || all == (uint64_t)last + 1);
        store_close(s);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_is_there_again_with_all_of_it_after_a_reopen),
        TEST(a_state_that_may_not_follow_changes_nothing),
        TEST(a_job_that_never_started_goes_back_without_its_place),
        TEST(lists_are_by_state_name_and_page),
        TEST(a_number_is_never_used_twice),
        TEST(of_peaks_the_largest_of_the_last_five_counts),
        TEST(counters_outlive_the_server),
        TEST(several_calls_are_one_commit_or_none),
        TEST(of_very_many_changes_the_first_and_the_latest_stay),
        TEST(neither_the_log_nor_the_file_grows_with_what_is_removed_again),
        TEST(a_second_server_is_refused_and_the_first_goes_on),
        TEST(nobody_else_may_read_it),
        TEST(a_newer_version_is_refused_and_left_alone),
        TEST(another_programs_database_is_refused),
        TEST(a_file_that_is_none_is_refused),
        TEST(a_folder_that_is_not_there_is_named),
        TEST(a_damaged_page_is_found_at_the_start_or_when_it_is_met),
        TEST(a_network_file_system_is_no_place),
        TEST(a_full_disk_is_said_and_the_store_goes_on_when_there_is_room),
        TEST(so_it_is_on_a_disk_that_is_really_full),
        TEST(what_was_accepted_survives_kill_9_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
