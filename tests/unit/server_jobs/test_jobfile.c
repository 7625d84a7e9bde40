/* Tests writing job files and reading those of other servers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "server/jobs/jobfile.h"

static const char path[] = "training_jobs.json";

static int setup(void **state)
{
    (void)state;
    return setenv("TZ", "UTC", 1);
}

/* Entries that were read; names and requests are text. */
static struct {
    char name[32], *request;
    enum job_state state;
    /* Times are compared in microseconds, because the file stores seconds as a double, which is not
     * more precise. */
    uint64_t submitted_us, started_us, ended_us;
} entries[8];
static size_t entry_count;

static int take(void *user, const struct jobfile_entry *e, struct err *err)
{
    (void)user, (void)err;
    assert_true(entry_count < 8);
    snprintf(entries[entry_count].name, sizeof entries->name, "%s", e->name);
    entries[entry_count].state = e->state;
    entries[entry_count].submitted_us = (e->submitted_ns + 500) / 1000;
    entries[entry_count].started_us = (e->started_ns + 500) / 1000;
    entries[entry_count].ended_us = (e->ended_ns + 500) / 1000;
    free(entries[entry_count].request);
    entries[entry_count++].request =
        e->request ? json_dumps(e->request, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    return 0;
}

static void read_back(const char *text)
{
    struct err err = {""};
    entry_count = 0;
    if (jobfile_read(path, text, strlen(text), take, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static void refused(const char *text, const char *part)
{
    struct err err = {""};
    entry_count = 0;
    assert_int_equal(jobfile_read(path, text, strlen(text), take, NULL, &err), -EINVAL);
    assert_int_equal(entry_count, 0);
    if (!strstr(err.text, part) || !strstr(err.text, path))
        fail_msg("\"%s\" has no \"%s\"", err.text, part);
}

static void job_file_with_the_key_names_of_other_servers_is_read(void **state)
{
    (void)state;
    read_back(
        "{\"92ea59fa\": {\"job_id\": \"92ea59fa\", \"status\": \"completed\", \"progress\": 100.0,"
        " \"created_at\": \"2026-01-31T12:00:00.250000\", \"started_at\": "
        "\"2026-01-31T13:00:01+01:00\", \"completed_at\": \"2026-01-31T12:30:00Z\","
        " \"config\": {\"base_model\": \"x\"}},"
        " \"58487f7c\": {\"status\": \"Pending\", \"job_name\": \"second\", \"created_at\": "
        "1769860800000, \"command\": \"python train.py --name 'a b'\", \"working_dir\": \"/tmp\","
        " \"gpus\": 1},"
        " \"c\": {\"status\": \"training\", \"created\": 1769860800.5},"
        " \"d\": {\"status\": \"failed\", \"error\": \"CUDA out of memory\","
        " \"created_at\": \"2026-01-31T10:30:00-0130\"},"
        " \"e\": {\"status\": \"stopped\"}, \"f\": {\"status\": \"who knows\"}, \"g\": {}}");
    static const enum job_state states[] = {JOB_SUCCEEDED, JOB_QUEUED, JOB_RUNNING, JOB_FAILED,
                                            JOB_CANCELLED, JOB_LOST,   JOB_LOST};
    assert_int_equal(entry_count, 7);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(entries[i].state, states[i]);
    assert_string_equal(entries[0].name, "92ea59fa");
    assert_int_equal(entries[0].submitted_us, 1769860800250000);
    assert_int_equal(entries[0].started_us, 1769860801000000);
    assert_int_equal(entries[0].ended_us, 1769862600000000);
    assert_null(entries[0].request);
    assert_string_equal(entries[1].name, "second");
    assert_int_equal(entries[1].submitted_us, 1769860800000000);
    assert_string_equal(entries[1].request,
                        "{\"command\":[\"python\",\"train.py\",\"--name\",\"a b\"],"
                        "\"cwd\":\"/tmp\",\"gpus\":1,\"name\":\"second\"}");
    assert_int_equal(entries[2].submitted_us, 1769860800500000);
    assert_int_equal(entries[3].submitted_us, 1769860800000000);
}

static void job_file_may_be_a_list_or_an_object_with_the_key_jobs(void **state)
{
    (void)state;
    read_back("[{\"id\": 7, \"state\": \"done\", \"cmd\": [\"ls\"]}]");
    assert_string_equal(entries[0].name, "7");
    assert_int_equal(entries[0].state, JOB_SUCCEEDED);
    read_back("{\"jobs\": [{\"id\": \"a\", \"status\": \"in progress\"}]}");
    assert_int_equal(entries[0].state, JOB_RUNNING);
    read_back("{}");
    assert_int_equal(entry_count, 0);
}

static void invalid_job_file_is_refused(void **state)
{
    (void)state;
    refused("", "not valid JSON");
    refused("{\"a\": ", "not valid JSON");
    refused("7", "not valid JSON");
    refused("{\"a\": 1}", "entry a is not an object");
    refused("[{\"status\": \"done\"}]", "has no job_id");
    refused("[[]]", "entry of the list is not an object");
}

static void written_job_file_can_be_read_back(void **state)
{
    (void)state;
    json_t *jobs = json_pack(
        "[{s:i, s:s, s:s, s:[s], s:s, s:f, s:f, s:n, s:{s:i, s:i}, s:{s:I}, s:n},"
        " {s:i, s:s, s:s, s:s, s:n, s:n}]",
        "id", 17, "name", "n", "state", "stopping", "command", "ls", "cwd", "/", "submitted_s",
        1769860800.5, "started_s", 1769860801.0, "ended_s", "progress", "step", 420, "max_steps",
        1000, "memory", "job_bytes", (json_int_t)1 << 40, "reason", "id", 18, "name", "m", "state",
        "lost", "reason", "nobody knows", "progress", "memory");
    assert_non_null(jobs);
    struct buf text = {0};
    buf_add_str(&text, "{\n");
    assert_int_equal(jobfile_put(&text, json_array_get(jobs, 0)), 0);
    buf_add_str(&text, ",\n");
    assert_int_equal(jobfile_put(&text, json_array_get(jobs, 1)), 0);
    buf_add_str(&text, "\n}\n");
    json_t *doc = json_parse(text.data, text.len, NULL);
    json_t *entry = json_object_get(doc, "17");
    assert_string_equal(json_string_value(json_object_get(entry, "status")), "running");
    assert_string_equal(json_string_value(json_object_get(entry, "state")), "stopping");
    assert_true(json_number_value(json_object_get(entry, "progress")) == 42.0);
    assert_string_equal(json_string_value(json_object_get(entry, "created_at")),
                        "2026-01-31T12:00:00+0000");
    assert_true(json_is_null(json_object_get(entry, "completed_at")));
    assert_true(json_is_null(json_object_get(entry, "error")));
    entry = json_object_get(doc, "18");
    assert_string_equal(json_string_value(json_object_get(entry, "status")), "failed");
    assert_string_equal(json_string_value(json_object_get(entry, "error")), "nobody knows");
    assert_true(json_is_null(json_object_get(entry, "progress")));
    read_back(buf_str(&text));
    assert_int_equal(entries[0].state, JOB_RUNNING);
    assert_int_equal(entries[0].started_us, 1769860801000000);
    buf_fini(&text);
    json_decref(doc);
    json_decref(jobs);
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        free(entries[i].request);
        entries[i].request = NULL;
    }
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(job_file_with_the_key_names_of_other_servers_is_read),
        TEST(job_file_may_be_a_list_or_an_object_with_the_key_jobs),
        TEST(invalid_job_file_is_refused),
        TEST(written_job_file_can_be_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
