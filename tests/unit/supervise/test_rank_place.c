/* Tests how a rank's position in its job is read from the environment variables of Slurm and
 * torchrun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "supervise/rank.h"

static const char *const *variables;

static const char *get_variable(const char *name)
{
    for (const char *const *v = variables; *v; v++)
        if (strncmp(*v, name, strlen(name)) == 0 && (*v)[strlen(name)] == '=')
            return *v + strlen(name) + 1;
    return NULL;
}

static bool read_place(const char *const *v, struct rank_place *ret)
{
    variables = v;
    return rank_place_read(get_variable, ret);
}

#define SLURM_STEP                                                                                 \
    "SLURM_JOB_ID=77", "SLURM_STEP_ID=2", "SLURM_PROCID=4", "SLURM_NODEID=1", "SLURM_LOCALID=1",   \
        "SLURM_STEP_NUM_TASKS=6", "SLURM_STEP_NUM_NODES=3"
#define TORCHRUN                                                                                   \
    "TORCHELASTIC_RUN_ID=none", "MASTER_PORT=29500", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1",     \
        "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2"

static void node_and_rank_are_read_from_slurm_variables(void **state)
{
    static const char *const v[] = {SLURM_STEP, "SLURM_STEP_TASKS_PER_NODE=3,2(x2)", NULL};
    struct rank_place p;
    char folder[RANK_FOLDER_MAX];
    (void)state;
    assert_true(read_place(v, &p));
    assert_int_equal(p.rank, 4);
    assert_int_equal(p.ranks, 6);
    assert_int_equal(p.node, 1);
    assert_int_equal(p.nodes, 3);
    assert_int_equal(p.local_ranks, 2);
    rank_place_folder(&p, folder);
    assert_string_equal(folder, "77.2");
}

static void requeued_slurm_job_has_a_new_job_folder(void **state)
{
    static const char *const v[] = {SLURM_STEP, "SLURM_RESTART_COUNT=2", NULL};
    struct rank_place p;
    char folder[RANK_FOLDER_MAX];
    (void)state;
    assert_true(read_place(v, &p));
    assert_int_equal(p.segment, 2);
    rank_place_folder(&p, folder);
    assert_string_equal(folder, "77.2.r2");
}

static void slurm_task_is_a_rank_but_the_batch_script_is_not(void **state)
{
    static const char *const batch[] = {"SLURM_JOB_ID=77", "SLURM_PROCID=0", "SLURM_NODEID=0",
                                        "SLURM_LOCALID=0", "SLURM_NTASKS=4", NULL};
    static const char *const single[] = {
        "SLURM_JOB_ID=77", "SLURM_STEP_ID=0",        "SLURM_PROCID=0",         "SLURM_NODEID=0",
        "SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_NUM_NODES=1", NULL};
    struct rank_place p;
    (void)state;
    assert_false(read_place(batch, &p));
    assert_true(read_place(single, &p));
    assert_int_equal(p.ranks, 1);
}

static void node_and_rank_are_read_from_torchrun_variables(void **state)
{
    static const char *const v[] = {TORCHRUN, "TORCHELASTIC_RESTART_COUNT=1", NULL};
    struct rank_place p;
    char folder[RANK_FOLDER_MAX];
    (void)state;
    assert_true(read_place(v, &p));
    assert_int_equal(p.rank, 5);
    assert_int_equal(p.node, 1);
    assert_int_equal(p.local_ranks, 4);
    assert_int_equal(p.segment, 1);
    rank_place_folder(&p, folder);
    assert_string_equal(folder, "none.29500");
}

static void node_count_comes_from_slurm_if_torchrun_runs_under_srun(void **state)
{
    static const char *const v[] = {
        "SLURM_JOB_ID=77",        "SLURM_STEP_ID=0", "SLURM_PROCID=1",
        "SLURM_NODEID=1",         "SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=2",
        "SLURM_STEP_NUM_NODES=2", TORCHRUN,          NULL};
    struct rank_place p;
    (void)state;
    assert_true(read_place(v, &p));
    assert_true(p.is_slurm);
    assert_string_equal(p.job_id, "77");
    assert_int_equal(p.rank, 5);
    assert_int_equal(p.ranks, 8);
    assert_int_equal(p.nodes, 2);
}

static void process_with_invalid_slurm_variables_is_not_a_rank(void **state)
{
    static const char *const v[] = {
        "SLURM_JOB_ID=77", "SLURM_STEP_ID=0",        "SLURM_PROCID=x",         "SLURM_NODEID=0",
        "SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_NODES=2", NULL};
    static const char *const outside[] = {
        "SLURM_JOB_ID=77", "SLURM_STEP_ID=0",        "SLURM_PROCID=4",         "SLURM_NODEID=0",
        "SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_NODES=2", NULL};
    struct rank_place p;
    (void)state;
    assert_false(read_place(v, &p));
    assert_false(read_place(outside, &p));
}

static void supervisors_of_two_launchers_have_different_addresses(void **state)
{
    static const char *const one[] = {SLURM_STEP, "SLURM_SRUN_COMM_PORT=40001", NULL};
    static const char *const two[] = {SLURM_STEP, "SLURM_SRUN_COMM_PORT=40002", NULL};
    struct rank_place a, b;
    struct sockaddr_un at_a, at_b;
    (void)state;
    assert_true(read_place(one, &a));
    assert_true(read_place(two, &b));
    socklen_t len = rank_place_address(&a, 7, &at_a);
    assert_int_equal(rank_place_address(&b, 7, &at_b), len);
    assert_memory_not_equal(&at_a, &at_b, len);
    b.launch = a.launch;
    rank_place_address(&b, 7, &at_b);
    assert_memory_equal(&at_a, &at_b, len);
}

static void slash_in_slurm_job_id_does_not_appear_in_job_folder_name(void **state)
{
    static const char *const v[] = {"SLURM_JOB_ID=../../etc", "SLURM_STEP_ID=0",
                                    "SLURM_PROCID=0",         "SLURM_NODEID=0",
                                    "SLURM_LOCALID=0",        "SLURM_STEP_NUM_TASKS=2",
                                    "SLURM_STEP_NUM_NODES=2", NULL};
    struct rank_place p;
    char folder[RANK_FOLDER_MAX];
    (void)state;
    assert_true(read_place(v, &p));
    rank_place_folder(&p, folder);
    assert_null(strchr(folder, '/'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(node_and_rank_are_read_from_slurm_variables),
        cmocka_unit_test(requeued_slurm_job_has_a_new_job_folder),
        cmocka_unit_test(slurm_task_is_a_rank_but_the_batch_script_is_not),
        cmocka_unit_test(node_and_rank_are_read_from_torchrun_variables),
        cmocka_unit_test(node_count_comes_from_slurm_if_torchrun_runs_under_srun),
        cmocka_unit_test(process_with_invalid_slurm_variables_is_not_a_rank),
        cmocka_unit_test(supervisors_of_two_launchers_have_different_addresses),
        cmocka_unit_test(slash_in_slurm_job_id_does_not_appear_in_job_folder_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
