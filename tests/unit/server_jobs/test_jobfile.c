/* Job files: what is written for others to read, and what others have written. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "server/jobs/jobfile.h"

static char folder[64], path[128];

static int setup(void **state)
{
    (void)state;
    setenv("TZ", "UTC", 1);
    strcpy(folder, "/tmp/ebb-test-jobfile.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/training_jobs.json", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : -1;
}

static json_t *read_back(const char *text)
{
    struct err err = {""};
    json_t *list = NULL;
    assert_int_equal(io_replace_file(AT_FDCWD, path, text, strlen(text)), 0);
    if (jobfile_read(path, &list, &err) < 0)
        fail_msg("%s", err.text);
    return list;
}

static void refused(const char *text, const char *part)
{
    struct err err = {""};
    json_t *list = NULL;
    assert_int_equal(io_replace_file(AT_FDCWD, path, text, strlen(text)), 0);
    assert_int_equal(jobfile_read(path, &list, &err), -EINVAL);
    assert_null(list);
    if (!strstr(err.text, part) || !strstr(err.text, path))
        fail_msg("\"%s\" has no \"%s\"", err.text, part);
}

static const char *text_at(const json_t *list, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(list, i), key));
}

static double number_at(const json_t *list, size_t i, const char *key)
{
    return json_number_value(json_object_get(json_array_get(list, i), key));
}

static void a_file_of_another_server_is_understood(void **state)
{
    (void)state;
    json_t *list = read_back(
        "{\"92ea59fa\": {\"job_id\": \"92ea59fa\", \"status\": \"completed\", \"progress\": 100.0,"
        " \"created_at\": \"2026-01-31T12:00:00.250000\", \"started_at\": "
        "\"2026-01-31T13:00:01+01:00\", \"completed_at\": \"2026-01-31T12:30:00Z\","
        " \"config\": {\"base_model\": \"x\"}},"
        " \"58487f7c\": {\"status\": \"Pending\", \"job_name\": \"second\", \"created_at\": "
        "1769860800000, \"command\": \"python train.py --name 'a b'\", \"working_dir\": \"/tmp\","
        " \"gpus\": 1},"
        " \"c\": {\"status\": \"training\", \"created\": 1769860800.5},"
        " \"d\": {\"status\": \"failed\", \"error\": \"CUDA out of memory\"},"
        " \"e\": {\"status\": \"stopped\"}, \"f\": {\"status\": \"who knows\"}, \"g\": {}}");
    static const char *const states[] = {"succeeded", "queued", "running", "failed",
                                         "cancelled", "lost",   "lost"};
    assert_int_equal(json_array_size(list), 7);
    for (size_t i = 0; i < 7; i++)
        assert_string_equal(text_at(list, i, "state"), states[i]);
    assert_string_equal(text_at(list, 0, "job_id"), "92ea59fa");
    assert_true(number_at(list, 0, "submitted_s") == 1769860800.25);
    assert_true(number_at(list, 0, "started_s") == 1769860801.0);
    assert_true(number_at(list, 0, "ended_s") == 1769862600.0);
    assert_true(json_is_null(json_object_get(json_array_get(list, 0), "request")));
    assert_string_equal(text_at(list, 1, "job_id"), "58487f7c");
    assert_true(number_at(list, 1, "submitted_s") == 1769860800.0);
    char *request = json_dumps(json_object_get(json_array_get(list, 1), "request"),
                               JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(request, "{\"command\":[\"python\",\"train.py\",\"--name\",\"a b\"],"
                                 "\"cwd\":\"/tmp\",\"gpus\":1,\"name\":\"second\"}");
    free(request);
    assert_true(number_at(list, 2, "submitted_s") == 1769860800.5);
    assert_string_equal(text_at(list, 3, "reason"), "CUDA out of memory");
    assert_string_equal(text_at(list, 5, "reason"), "its status in the job file was \"who knows\"");
    json_decref(list);
}

static void a_list_and_a_list_in_an_object_are_understood(void **state)
{
    (void)state;
    json_t *list = read_back("[{\"id\": 7, \"state\": \"done\", \"cmd\": [\"ls\"]}]");
    assert_string_equal(text_at(list, 0, "job_id"), "7");
    assert_string_equal(text_at(list, 0, "name"), "7");
    assert_string_equal(text_at(list, 0, "state"), "succeeded");
    json_decref(list);
    list = read_back("{\"jobs\": [{\"id\": \"a\", \"status\": \"in progress\"}]}");
    assert_string_equal(text_at(list, 0, "state"), "running");
    json_decref(list);
    list = read_back("{}");
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
}

static void what_is_no_job_file_is_refused(void **state)
{
    (void)state;
    struct err err = {""};
    json_t *list = NULL;
    assert_int_equal(jobfile_read(path, &list, &err), -ENOENT);
    assert_non_null(strstr(err.text, "cannot be read: No such file or directory"));
    refused("", "not valid JSON");
    refused("{\"a\": ", "not valid JSON");
    refused("7", "not valid JSON");
    refused("{\"a\": 1}", "entry a is not an object");
    refused("[{\"status\": \"done\"}]", "has no job_id");
    refused("[[]]", "entry of the list is not an object");
}

static void what_was_written_can_be_read(void **state)
{
    (void)state;
    struct err err = {""};
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
    assert_int_equal(io_replace_file(AT_FDCWD, path, text.data, text.len), 0);
    json_t *doc = json_parse(text.data, text.len, NULL);
    buf_fini(&text);
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
    json_t *list = NULL;
    assert_int_equal(jobfile_read(path, &list, &err), 0);
    assert_string_equal(text_at(list, 0, "state"), "running");
    assert_true(number_at(list, 0, "started_s") == 1769860801.0);
    json_decref(list);
    json_decref(doc);
    json_decref(jobs);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_of_another_server_is_understood),
        TEST(a_list_and_a_list_in_an_object_are_understood),
        TEST(what_is_no_job_file_is_refused),
        TEST(what_was_written_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
