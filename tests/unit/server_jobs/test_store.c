/* Tests the job store: rows, lists, counters, transactions, and the size of its files. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "server/jobs/store.h"
#include "store_kit.h"

static void stored_job_has_all_its_fields_after_the_store_is_reopened(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = store_kit_open();
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
    store_kit_change(s, id, JOB_RUNNING, 6);
    store_kit_change(s, id, JOB_CHECKPOINTING, 7);
    c = (struct store_change){.state = JOB_FAILED, .reason = "exit 3", .at_ns = 9, .end = "{}"};
    assert_int_equal(store_change(s, id, &c, &err), 0);
    store_close(s);
    s = store_kit_open();
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

static void invalid_state_transition_changes_nothing_in_the_store(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = store_kit_open();
    int64_t id = store_kit_add(s, "x", JOB_QUEUED);
    struct store_change c = {.state = JOB_SUCCEEDED, .at_ns = 1};
    assert_int_equal(store_change(s, id, &c, &err), -EINVAL);
    assert_string_equal(err.text, "job 1 is queued and cannot become succeeded");
    assert_int_equal(store_change(s, 99, &c, &err), -ENOENT);
    assert_string_equal(err.text, "no such job: 99");
    uint64_t counts[JOB_STATES];
    store_count(s, counts);
    assert_int_equal(counts[JOB_QUEUED], 1);
    assert_int_equal(counts[JOB_SUCCEEDED], 0);
    store_close(s);
}

static void requeued_job_has_no_run_folder_and_no_gpus(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = store_kit_open();
    int64_t id = store_kit_add(s, "x", JOB_QUEUED);
    struct store_change c = {.state = JOB_STARTING, .at_ns = 2, .run_dir = "1-x", .gpus = "0"};
    assert_int_equal(store_change(s, id, &c, &err), 0);
    store_kit_change(s, id, JOB_QUEUED, 3);
    struct store_job got;
    assert_int_equal(store_get(s, id, &got, &err), 0);
    assert_null(got.run_dir);
    assert_null(got.gpus);
    assert_int_equal(got.started_ns, 0);
    store_close(s);
}

static void lists_are(struct store *s, struct store_filter filter, const char *want)
{
    struct store_kit_seen seen = {.count = 0};
    struct err err = {""};
    char text[256] = "";
    assert_int_equal(store_list(s, &filter, store_kit_see, &seen, &err), 0);
    for (size_t i = 0; i < seen.count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%" PRId64, i ? " " : "",
                 seen.ids[i]);
    assert_string_equal(text, want);
}

static void job_store_list_can_be_filtered_sorted_and_limited(void **state)
{
    (void)state;
    enum { ACTIVE = 1 << JOB_QUEUED | 1 << JOB_STARTING | 1 << JOB_RUNNING };
    struct store *s = store_kit_open();
    for (int i = 1; i <= 8; i++)
        store_kit_add(s, i % 2 ? "odd" : "even",
                      i <= 4   ? JOB_SUCCEEDED
                      : i <= 6 ? JOB_STARTING
                               : JOB_QUEUED);
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
    struct store_kit_seen seen = {.stop_at = 2};
    struct err err = {""};
    assert_int_equal(store_list(s, &(struct store_filter){0}, store_kit_see, &seen, &err), 0);
    assert_int_equal(seen.count, 2);
    store_close(s);
}

static void job_ids_are_never_reused(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = store_kit_open();
    assert_int_equal(store_kit_add(s, "x", JOB_QUEUED), 1);
    assert_int_equal(store_kit_add(s, "x", JOB_QUEUED), 2);
    assert_int_equal(store_remove(s, 2, &err), 0);
    assert_int_equal(store_remove(s, 2, &err), -ENOENT);
    store_close(s);
    s = store_kit_open();
    assert_int_equal(store_kit_add(s, "x", JOB_QUEUED), 3);
    json_t *changes = NULL;
    assert_int_equal(store_changes(s, 2, &changes, &err), 0);
    assert_int_equal(json_array_size(changes), 0);
    json_decref(changes);
    uint64_t counts[JOB_STATES];
    store_count(s, counts);
    assert_int_equal(counts[JOB_QUEUED], 2);
    store_close(s);
}

static void learned_memory_is_the_largest_of_the_five_newest_peaks(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = store_kit_open();
    assert_int_equal(store_learned(s, "a"), 0);
    static const uint64_t peaks[] = {900, 100, 200, 300, 200, 100};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(store_learn(s, "a", peaks[i], i, &err), 0);
        assert_int_equal(store_learned(s, "a"), i < 5 ? 900 : 300);
    }
    assert_int_equal(store_learned(s, "b"), 0);
    store_close(s);
}

static void job_store_counters_survive_a_restart(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = store_kit_open();
    assert_int_equal(store_count_up(s, "clean", 1, &err), 0);
    assert_int_equal(store_count_up(s, "clean", 2.5, &err), 0);
    store_close(s);
    s = store_kit_open();
    struct store_counter *counters = NULL;
    size_t count;
    double value;
    assert_int_equal(store_counters(s, &counters, &count, &err), 0);
    assert_int_equal(count, 1);
    assert_string_equal(counters[0].key, "clean");
    assert_true(counters[0].value == 3.5);
    free(counters);
    assert_int_equal(store_counter(s, "clean", &value, &err), 0);
    assert_true(value == 3.5);
    assert_int_equal(store_counter(s, "other", &value, &err), 0);
    assert_true(value == 0);
    store_close(s);
}

static void failed_nested_transaction_rolls_back_the_outermost_one(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = store_kit_open();
    uint64_t counts[JOB_STATES];
    assert_int_equal(store_begin(s, &err), 0);
    int64_t id = store_kit_add(s, "x", JOB_QUEUED);
    assert_int_equal(store_learn(s, "x", 5, 1, &err), 0);
    assert_int_equal(store_end(s, 0, &err), 0);
    assert_int_equal(store_begin(s, &err), 0);
    store_kit_change(s, id, JOB_STARTING, 2);
    store_kit_add(s, "y", JOB_QUEUED);
    assert_int_equal(store_begin(s, &err), 0);
    assert_int_equal(store_end(s, -EIO, &err), -EIO);
    assert_int_equal(store_begin(s, &err), -EIO);
    assert_int_equal(store_end(s, 0, &err), -EIO);
    store_count(s, counts);
    assert_int_equal(counts[JOB_QUEUED], 1);
    assert_int_equal(counts[JOB_STARTING], 0);
    struct store_job got;
    assert_int_equal(store_get(s, id, &got, &err), 0);
    assert_int_equal(got.state, JOB_QUEUED);
    assert_int_equal(store_learned(s, "x"), 5);
    store_close(s);
}

static void oldest_and_newest_of_many_state_changes_stay_stored(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = store_kit_open();
    int64_t id = store_kit_add(s, "x", JOB_STARTING);
    assert_int_equal(store_begin(s, &err), 0);
    for (unsigned i = 0; i < 3000; i++)
        store_kit_change(s, id, i % 2 ? JOB_RUNNING : JOB_CHECKPOINTING, i + 1);
    assert_int_equal(store_end(s, 0, &err), 0);
    json_t *changes = NULL;
    assert_int_equal(store_changes(s, id, &changes, &err), 0);
    assert_int_equal(json_array_size(changes), 1100);
    json_decref(changes);
    store_close(s);
}

static void store_files_do_not_grow_when_jobs_are_removed(void **state)
{
    (void)state;
    struct err err = {""};
    struct store *s = store_kit_open();
    for (int i = 0; i < 400; i++) {
        int64_t id = store_kit_add(s, "x", JOB_QUEUED);
        store_kit_change(s, id, JOB_CANCELLED, 5);
        assert_int_equal(store_remove(s, id, &err), 0);
    }
    assert_true(store_kit_size("-wal") <= 2 << 20);
    assert_true(store_kit_size("") <= 1 << 20);
    store_close(s);
    assert_int_equal(store_kit_size("-wal"), -1);
}

static void second_server_on_the_same_job_store_is_refused(void **state)
{
    (void)state;
    struct store *s = store_kit_open();
    store_kit_add(s, "x", JOB_QUEUED);
    store_kit_refused(-EBUSY, "in use by another server");
    pid_t child = fork();
    if (child == 0) {
        struct store *other = NULL;
        _exit(store_open(store_kit_path, &other, NULL) == -EBUSY ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    store_kit_add(s, "x", JOB_QUEUED);
    store_close(s);
    s = store_kit_open();
    store_close(s);
}

static void store_file_has_mode_0600(void **state)
{
    (void)state;
    struct stat st;
    store_close(store_kit_open());
    assert_int_equal(stat(store_kit_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, store_kit_setup, store_kit_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(stored_job_has_all_its_fields_after_the_store_is_reopened),
        TEST(invalid_state_transition_changes_nothing_in_the_store),
        TEST(requeued_job_has_no_run_folder_and_no_gpus),
        TEST(job_store_list_can_be_filtered_sorted_and_limited),
        TEST(job_ids_are_never_reused),
        TEST(learned_memory_is_the_largest_of_the_five_newest_peaks),
        TEST(job_store_counters_survive_a_restart),
        TEST(failed_nested_transaction_rolls_back_the_outermost_one),
        TEST(oldest_and_newest_of_many_state_changes_stay_stored),
        TEST(store_files_do_not_grow_when_jobs_are_removed),
        TEST(second_server_on_the_same_job_store_is_refused),
        TEST(store_file_has_mode_0600),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
