/* Tests the memory required by earlier runs of the same command. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run/earlier.h"

#define MIB (UINT64_C(1) << 20)

static char runs[64];

static int make_runs(void **state)
{
    (void)state;
    strcpy(runs, "/tmp/ebb-earlier.XXXXXX");
    return mkdtemp(runs) ? 0 : -1;
}

static int remove_runs(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", runs);
    return system(command);
}

/* Writes run.json into the folder PATH below RUNS, which may be a run folder or the folder of a
 * node. */
static void add_run(const char *path, const char *script, uint64_t ask_bytes, int status,
                    bool leaks)
{
    char file[256], *slash;
    snprintf(file, sizeof file, "%s/%s", runs, path);
    if ((slash = strchr(file + strlen(runs) + 1, '/'))) {
        *slash = '\0';
        mkdir(file, 0777);
        *slash = '/';
    }
    mkdir(file, 0777);
    strcat(file, "/run.json");
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fprintf(out,
            "{\"name\": \"python\", \"command\": [\"python\", \"%s\"], \"ask_bytes\": %llu, "
            "\"end\": {\"kind\": \"exited\", \"status\": "
            "%d}, \"duration_s\": 1, \"verdict\": {\"tree\": {\"leak\": %s}}}",
            script, (unsigned long long)ask_bytes, status, leaks ? "true" : "false");
    fclose(out);
}

static void percentile_of_few_values_is_the_largest_value(void **state)
{
    uint64_t values[100] = {3, 9, 1};
    (void)state;
    assert_int_equal(earlier_percentile(values, 0), 0);
    assert_int_equal(earlier_percentile(values, 3), 9);
    for (uint64_t i = 0; i < 100; i++)
        values[i] = 100 - i;
    assert_int_equal(earlier_percentile(values, 100), 98);
    assert_int_equal(earlier_percentile(values, 49), 49);
}

static void only_healthy_earlier_runs_of_the_same_command_are_used(void **state)
{
    struct earlier e;
    (void)state;
    add_run("train-1", "train", 500 * MIB, 0, false);
    add_run("train-2", "train", 700 * MIB, 0, false);
    add_run("train-3", "train", 9000 * MIB, 0, true);
    add_run("train-4", "train", 8000 * MIB, 1, false);
    add_run("other-1", "other", 7000 * MIB, 0, false);
    char own[128];
    snprintf(own, sizeof own, "%s/train-1", runs);
    earlier_read(own, &e);
    assert_int_equal(e.runs, 2);
    assert_int_equal(e.bytes, 700 * MIB);
}

static void multi_node_job_counts_once_with_the_largest_node(void **state)
{
    struct earlier e;
    (void)state;
    add_run("7.0/node-00", "train", 500 * MIB, 0, false);
    add_run("7.0/node-01", "train", 900 * MIB, 0, false);
    add_run("8.0/node-00", "train", 999 * MIB, 0, false);
    add_run("8.0/node-01", "train", 999 * MIB, 0, true);
    char own[128];
    snprintf(own, sizeof own, "%s/7.0", runs);
    earlier_read(own, &e);
    assert_int_equal(e.runs, 1);
    assert_int_equal(e.bytes, 900 * MIB);
}

static void missing_runs_folder_gives_no_earlier_runs(void **state)
{
    struct earlier e;
    (void)state;
    earlier_read("/nonexistent/train-1", &e);
    assert_int_equal(e.runs, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentile_of_few_values_is_the_largest_value),
        cmocka_unit_test_setup_teardown(only_healthy_earlier_runs_of_the_same_command_are_used,
                                        make_runs, remove_runs),
        cmocka_unit_test_setup_teardown(multi_node_job_counts_once_with_the_largest_node, make_runs,
                                        remove_runs),
        cmocka_unit_test(missing_runs_folder_gives_no_earlier_runs),
    };
    return cmocka_run_group_tests_name("earlier", tests, NULL, NULL);
}
