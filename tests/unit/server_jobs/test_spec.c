/* Tests job requests, error messages for refused requests, and the command line of a job. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "server/jobs/spec.h"

static int read_text(const char *text, struct job_spec *spec, struct err *err)
{
    json_t *doc = json_parse(text, strlen(text), err);
    assert_non_null(doc);
    int rc = job_spec_read(doc, "/tmp", spec, err);
    json_decref(doc);
    return rc;
}

static struct job_spec accepted(const char *text)
{
    struct job_spec spec = {0};
    struct err err = {""};
    if (read_text(text, &spec, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    return spec;
}

static void refused(const char *text, const char *sentence)
{
    struct job_spec spec = {0};
    struct err err = {""};
    assert_int_equal(read_text(text, &spec, &err), -EINVAL);
    assert_string_equal(err.text, sentence);
    assert_null(spec.doc);
}

static void job_request_with_only_a_command_uses_defaults(void **state)
{
    (void)state;
    struct job_spec spec = accepted("{\"command\": [\"/usr/bin/python3\", \"train.py\"]}");
    char *text = json_dumps(spec.doc, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"after\":[],\"command\":[\"/usr/bin/python3\",\"train.py\"],"
                              "\"cwd\":\"/tmp\",\"env\":{},\"gpus\":0,\"limit\":null,"
                              "\"memory\":null,\"name\":\"python3\",\"options\":{},"
                              "\"priority\":0,\"slurm\":null}");
    assert_string_equal(spec.name, "python3");
    assert_int_equal(spec.memory_bytes, 0);
    assert_null(spec.memory_from);
    struct job_spec again = accepted(text);
    assert_true(json_equal(again.doc, spec.doc));
    free(text);
    job_spec_fini(&again);
    job_spec_fini(&spec);
    job_spec_fini(&spec);
}

static void absolute_limit_is_reserved_if_the_memory_key_is_missing(void **state)
{
    (void)state;
    struct job_spec spec = accepted("{\"command\":[\"x\"],\"memory\":\"2G\",\"limit\":\"3G\"}");
    assert_int_equal(spec.memory_bytes, UINT64_C(2) << 30);
    assert_string_equal(spec.memory_from, "declared");
    job_spec_fini(&spec);
    spec = accepted("{\"command\":[\"x\"],\"limit\":3221225472}");
    assert_int_equal(spec.memory_bytes, UINT64_C(3) << 30);
    assert_string_equal(spec.memory_from, "limit");
    job_spec_fini(&spec);
    spec = accepted("{\"command\":[\"x\"],\"limit\":\"80%\"}");
    assert_int_equal(spec.memory_bytes, 0);
    assert_null(spec.memory_from);
    job_spec_fini(&spec);
}

static void error_for_an_invalid_request_contains_key_and_value(void **state)
{
    (void)state;
    refused("[1]", "a request must be an object like {\"command\": [\"python\", \"train.py\"]}");
    refused("{\"name\":\"x\"}", "command: missing; a request must be an object like "
                                "{\"command\": [\"python\", \"train.py\"]}");
    refused("{\"command\":\"ls\"}",
            "command: \"ls\" is not a list of strings like [\"python\", \"train.py\"]");
    refused("{\"command\":null}",
            "command: null is not a list of strings like [\"python\", \"train.py\"]");
    refused("{\"command\":[]}", "command: [] is not a list of strings like [\"python\", "
                                "\"train.py\"]");
    refused("{\"command\":[\"a\",7]}", "command: 7 must be a string without NUL characters");
    refused("{\"command\":[\"a\\u0000b\"]}",
            "command: \"a\\u0000b\" must be a string without NUL characters");
    refused("{\"command\":[\"\"]}",
            "command: [\"\"] begins with an empty string; the first string must be the program");
    refused("{\"command\":[\"x\"],\"name\":\"\"}", "name: \"\" is not a string of 1 to 128 bytes");
    refused("{\"command\":[\"x\"],\"env\":{\"A=B\":\"c\"}}",
            "env: \"A=B\" is not a valid variable name");
    refused("{\"command\":[\"x\"],\"env\":{\"A\":1}}", "env.A: 1 is not a string");
    refused("{\"command\":[\"x\"],\"gpus\":65}", "gpus: 65 is not a whole number from 0 to 64");
    refused("{\"command\":[\"x\"],\"gpus\":1.5}", "gpus: 1.5 is not a whole number from 0 to 64");
    refused("{\"command\":[\"x\"],\"priority\":-101}",
            "priority: -101 is not a whole number from -100 to 100");
    refused("{\"command\":[\"x\"],\"memory\":\"50%\"}",
            "memory: \"50%\" is not a size like \"24G\" or a number of bytes");
    refused("{\"command\":[\"x\"],\"memory\":-1}",
            "memory: -1 is not a size like \"24G\" or a number of bytes");
    refused("{\"command\":[\"x\"],\"limit\":true}",
            "limit: true is not a size like \"24G\" or \"80%\"");
    refused("{\"command\":[\"x\"],\"after\":[0]}", "after: 0 is not a job id");
    refused("{\"command\":[\"x\"],\"after\":[2,2]}", "after: [2,2] contains a job twice");
    refused("{\"command\":[\"x\"],\"comand\":1}",
            "unknown key \"comand\"; the valid keys are command, name, cwd, env, gpus, "
            "memory, limit, priority, after, slurm and options");
}

static void working_folder_that_cannot_be_used_is_refused(void **state)
{
    (void)state;
    struct err err = {""};
    assert_int_equal(job_spec_check_cwd("/tmp", &err), 0);
    assert_int_equal(job_spec_check_cwd("/nowhere", &err), -EINVAL);
    assert_string_equal(err.text, "cwd: cannot use folder \"/nowhere\": No such file or directory");
    assert_int_equal(job_spec_check_cwd("/dev/null", &err), -EINVAL);
    assert_string_equal(err.text, "cwd: \"/dev/null\" is not a folder");
}

static void job_request_with_a_disallowed_option_of_ebb_run_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"run-dir", "run-d", "detached", "lock-fd", "name",
                                        "config",  "-x",    "a=b",      "",        "limit"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct job_spec spec = {0};
        struct err err = {""};
        json_t *doc = json_pack("{s:[s],s:{s:s}}", "command", "x", "options", names[i], "1");
        assert_int_equal(job_spec_read(doc, "/tmp", &spec, &err), -EINVAL);
        assert_non_null(strstr(err.text, names[i]));
        json_decref(doc);
    }
}

static void oversized_job_request_is_refused(void **state)
{
    (void)state;
    char name[256], text[512];
    memset(name, 'n', 129);
    name[129] = '\0';
    snprintf(text, sizeof(text), "{\"command\":[\"x\"],\"name\":\"%s\"}", name);
    struct job_spec spec = {0};
    struct err err = {""};
    assert_int_equal(read_text(text, &spec, &err), -EINVAL);
    assert_non_null(strstr(err.text, "… is not a string of 1 to 128 bytes"));
    char *large = malloc(JOB_COMMAND_MAX + 64);
    memset(large, 'a', JOB_COMMAND_MAX);
    large[JOB_COMMAND_MAX] = '\0';
    json_t *doc = json_pack("{s:[s,s]}", "command", "x", large);
    assert_int_equal(job_spec_read(doc, "/tmp", &spec, &err), -EINVAL);
    assert_non_null(strstr(err.text, "command: too long: 2 arguments and 131075 bytes in all"));
    json_decref(doc);
    doc = json_pack("{s:[s],s:{s:s}}", "command", "x", "env", "A", large);
    assert_int_equal(job_spec_read(doc, "/tmp", &spec, &err), -EINVAL);
    assert_non_null(strstr(err.text, "env: too large: 1 variables and"));
    json_decref(doc);
    doc = json_pack("{s:[s],s:{s:s}}", "command", "x", "options", "resume-args", large);
    assert_int_equal(job_spec_read(doc, "/tmp", &spec, &err), -EINVAL);
    assert_non_null(strstr(err.text, "options: "));
    json_decref(doc);
    free(large);
}

static bool has(char **list, const char *text)
{
    for (; *list; list++) {
        if (strcmp(*list, text) == 0)
            return true;
    }
    return false;
}

static void launch_command_has_all_options_and_then_the_job_command(void **state)
{
    (void)state;
    struct job_spec spec = accepted(
        "{\"command\":[\"sh\",\"-c\",\"echo \\\"$A\\\"; --x\"],\"name\":\"-n "
        "../a\",\"limit\":\"80%\","
        "\"options\":{\"restart\":true,\"resume-args\":\"--resume last\",\"max-restarts\":3,"
        "\"pss\":false}}");
    static const char *const want[] = {"/bin/ebb",
                                       "run",
                                       "--detached",
                                       "--lock-fd=7",
                                       "--folder-id=ab",
                                       "--run-dir=/s/runs/1-x",
                                       "--name=-n ../a",
                                       "--interval=2000ms",
                                       "--log-max=65536",
                                       "--limit=80%",
                                       "--restart",
                                       "--resume-args=--resume last",
                                       "--max-restarts=3",
                                       "--",
                                       "sh",
                                       "-c",
                                       "echo \"$A\"; --x"};
    const struct job_place place = {.run_dir = "/s/runs/1-x",
                                    .folder_id = "ab",
                                    .lock_fd = 7,
                                    .interval_ns = 2000000000,
                                    .log_bytes = 65536};
    struct job_launch launch;
    assert_int_equal(job_spec_launch(&spec, NULL, "/bin/ebb", &place, "", &launch), 0);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        assert_string_equal(launch.argv[i], want[i]);
    assert_null(launch.argv[sizeof(want) / sizeof(want[0])]);
    job_launch_fini(&launch);
    job_launch_fini(&launch);
    job_spec_fini(&spec);
}

static const struct job_place some_place = {.run_dir = "r", .folder_id = "f", .lock_fd = 3};

static void job_environment_has_variables_from_server_and_request(void **state)
{
    (void)state;
    setenv("EBB_TEST_OWN", "1", 1);
    setenv("TEST_KEPT", "1", 1);
    setenv("TEST_CHANGED", "1", 1);
    setenv("CUDA_VISIBLE_DEVICES", "5", 1);
    struct job_spec spec = accepted("{\"command\":[\"x\"],\"env\":{\"TEST_CHANGED\":\"a=b\","
                                    "\"EBB_HEAP\":\"0\",\"CUDA_VISIBLE_DEVICES\":\"9\"}}");
    struct job_launch launch;
    assert_int_equal(job_spec_launch(&spec, NULL, "e", &some_place, "0,3", &launch), 0);
    assert_false(has(launch.env, "EBB_TEST_OWN=1"));
    assert_true(has(launch.env, "EBB_HEAP=0"));
    assert_true(has(launch.env, "TEST_KEPT=1"));
    assert_true(has(launch.env, "TEST_CHANGED=a=b"));
    assert_false(has(launch.env, "TEST_CHANGED=1"));
    assert_true(has(launch.env, "CUDA_VISIBLE_DEVICES=0,3"));
    assert_false(has(launch.env, "CUDA_VISIBLE_DEVICES=9"));
    job_launch_fini(&launch);
    assert_int_equal(job_spec_launch(&spec, NULL, "e", &some_place, "", &launch), 0);
    assert_true(has(launch.env, "CUDA_VISIBLE_DEVICES=9"));
    job_launch_fini(&launch);
    job_spec_fini(&spec);
    spec = accepted("{\"command\":[\"x\"]}");
    assert_int_equal(job_spec_launch(&spec, NULL, "e", &some_place, "", &launch), 0);
    assert_true(has(launch.env, "CUDA_VISIBLE_DEVICES="));
    job_launch_fini(&launch);
    job_spec_fini(&spec);
}

static void run_folder_name_contains_no_slashes_or_spaces(void **state)
{
    (void)state;
    char name[JOB_FOLDER_MAX];
    job_spec_folder(17, "../../etc/pass wd", name);
    assert_string_equal(name, "17-.._.._etc_pass_wd");
    job_spec_folder(INT64_MAX, "ünïcödé", name);
    assert_string_equal(name, "9223372036854775807-__n__c__d__");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_request_with_only_a_command_uses_defaults),
        cmocka_unit_test(absolute_limit_is_reserved_if_the_memory_key_is_missing),
        cmocka_unit_test(error_for_an_invalid_request_contains_key_and_value),
        cmocka_unit_test(working_folder_that_cannot_be_used_is_refused),
        cmocka_unit_test(job_request_with_a_disallowed_option_of_ebb_run_is_refused),
        cmocka_unit_test(oversized_job_request_is_refused),
        cmocka_unit_test(launch_command_has_all_options_and_then_the_job_command),
        cmocka_unit_test(job_environment_has_variables_from_server_and_request),
        cmocka_unit_test(run_folder_name_contains_no_slashes_or_spaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
