/* Tests the states of the nodes of a job folder, on a clock that the test sets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "judge/cluster.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/ebb-cluster.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void write_text(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

/* Writes the heartbeat of NODE with a file time AGE_S seconds before now. */
static void beat(const char *node, int seq, int age_s)
{
    char path[128], text[64];
    const struct timespec old = {.tv_sec = time(NULL) - age_s};
    snprintf(path, sizeof path, "%s/%s", folder, node);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/run.json", node);
    write_text(path, "{\"state\": \"running\"}");
    snprintf(path, sizeof path, "%s/heartbeat", node);
    snprintf(text, sizeof text, "{\"seq\": %d, \"step\": 7}", seq);
    write_text(path, text);
    snprintf(path, sizeof path, "%s/%s/heartbeat", folder, node);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){old, old}, 0), 0);
}

static struct cluster *open_job(void)
{
    struct cluster *c = NULL;
    write_text("job.json", "{\"job_id\": \"1\", \"nodes\": 2}");
    assert_int_equal(cluster_open(folder, NULL, NULL, &c, NULL), 0);
    return c;
}

static void refresh(struct cluster *c, uint64_t now_s, bool stays)
{
    cluster_refresh(c, now_s * NS_PER_S, clock_wall_ns(), stays);
}

static void node_is_silent_30_s_after_its_last_heartbeat(void **state)
{
    struct cluster *c = open_job();
    (void)state;
    beat("node-00", 1, 0);
    beat("node-01", 1, 0);
    refresh(c, 100, true);
    assert_int_equal(cluster_count(c, NODE_RUNNING), 2);
    beat("node-00", 2, 0);
    refresh(c, 125, true);
    refresh(c, 131, true);
    assert_int_equal(c->nodes[0].state, NODE_RUNNING);
    assert_int_equal(c->nodes[1].state, NODE_SILENT);
    beat("node-01", 2, 0);
    refresh(c, 132, true);
    assert_int_equal(c->nodes[1].state, NODE_RUNNING);
    cluster_free(c);
}

static void first_scan_compares_heartbeats_of_the_nodes_with_each_other(void **state)
{
    struct cluster *c = open_job();
    (void)state;
    beat("node-00", 1, 5);
    beat("node-01", 1, 130);
    refresh(c, 100, false);
    assert_int_equal(c->nodes[0].state, NODE_RUNNING);
    assert_int_equal(c->nodes[1].state, NODE_SILENT);
    cluster_free(c);
}

/* Some file systems take file times from the clock of the node that writes the file. */
static void node_whose_clock_is_a_minute_behind_is_not_silent(void **state)
{
    struct cluster *c = open_job();
    (void)state;
    beat("node-00", 1, 0);
    beat("node-01", 1, 65);
    refresh(c, 100, false);
    assert_int_equal(cluster_count(c, NODE_RUNNING), 2);
    cluster_free(c);
}

static void later_scans_do_not_depend_on_the_clocks_of_nodes(void **state)
{
    struct cluster *c = open_job();
    (void)state;
    beat("node-00", 1, 0);
    beat("node-01", 1, 3600);
    refresh(c, 100, true);
    assert_int_equal(c->nodes[1].state, NODE_SILENT);
    beat("node-01", 2, 3595);
    refresh(c, 105, true);
    assert_int_equal(cluster_count(c, NODE_RUNNING), 2);
    cluster_free(c);
}

/* The clock of the file server may be ahead of the reader's. */
static void node_with_heartbeat_in_the_future_is_not_silent(void **state)
{
    struct cluster *c = open_job();
    (void)state;
    beat("node-00", 1, -60);
    beat("node-01", 1, -55);
    refresh(c, 100, false);
    assert_int_equal(cluster_count(c, NODE_RUNNING), 2);
    cluster_free(c);
}

/* A full disk may have room for the last heartbeat but not for the last run.json. */
static void node_is_not_running_if_heartbeat_reports_the_end(void **state)
{
    struct cluster *c = open_job();
    (void)state;
    beat("node-00", 1, 0);
    beat("node-01", 1, 0);
    write_text("node-01/heartbeat", "{\"seq\": 2, \"state\": \"ended\"}");
    refresh(c, 100, false);
    assert_int_equal(c->nodes[0].state, NODE_RUNNING);
    assert_int_equal(c->nodes[1].state, NODE_ENDED);
    cluster_free(c);
}

static void expected_node_without_a_folder_is_missing_until_it_joins(void **state)
{
    struct cluster *c = open_job();
    (void)state;
    beat("node-00", 1, 0);
    refresh(c, 100, true);
    assert_int_equal(c->n_nodes, 2);
    assert_int_equal(c->nodes[1].state, NODE_MISSING);
    beat("node-01", 1, 0);
    refresh(c, 101, true);
    assert_int_equal(c->nodes[1].state, NODE_RUNNING);
    assert_int_equal(cluster_judge(c, false), 0);
    assert_false(c->has_worst);
    cluster_free(c);
}

static void newer_folder_of_a_node_replaces_the_older_one(void **state)
{
    struct cluster *c = open_job();
    (void)state;
    beat("node-01", 9, 0);
    refresh(c, 100, true);
    beat("node-01.2", 1, 0);
    beat("node-01.10", 3, 0);
    refresh(c, 101, true);
    assert_int_equal(c->nodes[1].part, 10);
    assert_int_equal(c->nodes[1].beat.seq, 3);
    cluster_free(c);
}

static void run_folder_of_one_node_is_not_read_as_a_job_folder(void **state)
{
    struct cluster *c = NULL;
    struct err err = {""};
    (void)state;
    assert_false(cluster_is_folder(folder));
    write_text("run.json", "{}");
    write_text("job.json", "{}");
    assert_false(cluster_is_folder(folder));
    assert_int_equal(cluster_open(folder, NULL, NULL, &c, &err), -ENOENT);
    assert_false(cluster_is_folder("/nonexistent"));
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(node_is_silent_30_s_after_its_last_heartbeat),
        WITH_FOLDER(first_scan_compares_heartbeats_of_the_nodes_with_each_other),
        WITH_FOLDER(node_whose_clock_is_a_minute_behind_is_not_silent),
        WITH_FOLDER(later_scans_do_not_depend_on_the_clocks_of_nodes),
        WITH_FOLDER(node_with_heartbeat_in_the_future_is_not_silent),
        WITH_FOLDER(node_is_not_running_if_heartbeat_reports_the_end),
        WITH_FOLDER(expected_node_without_a_folder_is_missing_until_it_joins),
        WITH_FOLDER(newer_folder_of_a_node_replaces_the_older_one),
        WITH_FOLDER(run_folder_of_one_node_is_not_read_as_a_job_folder),
    };
    return cmocka_run_group_tests_name("cluster", tests, NULL, NULL);
}
