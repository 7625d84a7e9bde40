/* Tests process trees: replaced workers, several leaks, and pages that become private. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "verdict/verdict.h"

static const double MB = 1e6;
static const int64_t SECOND = 1000000000;

static bool is_about(double value, double expected)
{
    return fabs(value - expected) <= 1e-6 * expected;
}

static struct verdict_interval rate(double value)
{
    return (struct verdict_interval){true, value, 0.9 * value, 1.1 * value};
}

/* A process leaks PACE bytes per step and 100 times that per minute, and has grown by 100 MB. */
static struct verdict_result leaking(double pace)
{
    return (struct verdict_result){
        .word = VERDICT_LEAKING,
        .leak = VERDICT_LEAK_YES,
        .confidence = 0.97,
        .rate_bytes_per_step = rate(pace),
        .rate_bytes_per_min = rate(100 * pace),
        .has_floor = true,
        .floor_first_bytes = 300 * MB,
        .floor_last_bytes = 400 * MB,
        .oom = {.known = true,
                .has_t = true,
                .has_step = true,
                .eta_s_low = 400,
                .eta_s_high = HUGE_VAL,
                .eta_step_low = 40,
                .eta_step_high = 80},
        .n_evidence = 1,
        .evidence = {{.code = VERDICT_SAID_PEAK_OOM, .value = {MB, 400, HUGE_VAL, 0}}}};
}

static struct verdict_member member(const struct verdict_result *r, double unique)
{
    return (struct verdict_member){.result = r,
                                   .rss_bytes = 400 * MB,
                                   .has_unique = unique > 0,
                                   .unique_bytes = unique,
                                   .alive = true};
}

static void replaced_worker_does_not_change_the_verdict_on_the_tree(void **state)
{
    const struct verdict_result passing = leaking(MB);
    const struct verdict_result staying = {.word = VERDICT_STABLE,
                                           .leak = VERDICT_LEAK_NO,
                                           .confidence = 0.9,
                                           .has_floor = true,
                                           .floor_first_bytes = 400 * MB,
                                           .floor_last_bytes = 400 * MB};
    struct verdict_member members[2] = {member(&passing, 120 * MB), member(&staying, 0)};
    struct verdict_tree_result tree;

    (void)state;
    verdict_tree_judge(members, 2, NULL, &tree);
    assert_int_equal(tree.word, VERDICT_LEAKING);
    members[0].is_replacement = true;
    verdict_tree_judge(members, 2, NULL, &tree);
    assert_int_equal(tree.word, VERDICT_STABLE);
    assert_false(tree.has_grower);
    assert_int_equal(tree.growers, 0);
    assert_int_equal(tree.flat[0].count, 2);
    /* A replaced worker decides the verdict if there is no other process. */
    verdict_tree_judge(members, 1, NULL, &tree);
    assert_int_equal(tree.word, VERDICT_LEAKING);
}

/* The memory of a process is level. The verdicts on its workers are undecided, and each worker
 * grows by 30 MB. */
static void undecided_processes_are_judged_by_total_growth(void **state)
{
    const struct verdict_result standing = {.word = VERDICT_PLATEAUED,
                                            .confidence = 0.8,
                                            .has_floor = true,
                                            .floor_first_bytes = 100 * MB,
                                            .floor_last_bytes = 400 * MB};
    const struct verdict_result open = {.word = VERDICT_UNDECIDED,
                                        .confidence = 0.5,
                                        .has_floor = true,
                                        .floor_first_bytes = 370 * MB,
                                        .floor_last_bytes = 400 * MB};
    struct verdict_member members[] = {member(&standing, 0), member(&open, 0), member(&open, 0),
                                       member(&open, 0)};
    struct verdict_tree_result t;

    (void)state;
    verdict_tree_judge(members, 2, NULL, &t); /* 30 of 800 MB */
    assert_int_equal(t.word, VERDICT_PLATEAUED);
    verdict_tree_judge(members, 4, NULL, &t); /* 90 of 1600 MB */
    assert_int_equal(t.word, VERDICT_UNDECIDED);
    assert_int_equal(t.leak, VERDICT_LEAK_UNKNOWN);
    assert_int_equal(t.growers, 0);
    assert_int_equal(t.n_flat, 1); /* Growing workers are not counted as flat. */
    assert_int_equal(t.flat[0].count, 1);
}

static void job_is_judged_leaking_if_only_the_sum_over_processes_leaks(void **state)
{
    const struct verdict_result passing = leaking(MB), whole = leaking(MB / 2);
    struct verdict_member one = member(&passing, 120 * MB), stays;
    const struct verdict_result staying = {.word = VERDICT_STABLE, .leak = VERDICT_LEAK_NO};
    struct verdict_tree_result tree;

    (void)state;
    one.is_replacement = true;
    stays = member(&staying, 0);
    verdict_tree_judge((struct verdict_member[]){one, stays}, 2, &whole, &tree);
    assert_int_equal(tree.word, VERDICT_LEAKING);
    assert_false(tree.has_grower);
}

static void job_growth_rate_is_the_sum_over_all_leaking_processes(void **state)
{
    const struct verdict_result first = leaking(3 * MB), second = leaking(MB);
    struct verdict_member members[2] = {member(&first, 120 * MB), member(&second, 120 * MB)};
    struct verdict_result r = first;

    (void)state;
    verdict_tree_sum(members, 2, 0, &r);
    assert_true(is_about(r.rate_bytes_per_step.value, 4 * MB));
    assert_true(is_about(r.rate_bytes_per_step.low, 3.6 * MB));
    assert_true(is_about(r.rate_bytes_per_min.high, 440 * MB));
    assert_true(is_about(r.oom.eta_s_low, 300));
    assert_true(isinf(r.oom.eta_s_high));
    assert_true(is_about(r.oom.eta_step_high, 60));
    assert_true(is_about(r.evidence[0].value[1], 300));
}

/* Shared pages are included in the growth of both processes, but leak only once. */
static void growth_rate_of_a_tree_counts_possibly_shared_memory_once(void **state)
{
    const struct verdict_result first = leaking(3 * MB), second = leaking(MB);
    const double unique[] = {0, 20 * MB};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct verdict_member members[2] = {member(&first, 120 * MB), member(&second, unique[i])};
        struct verdict_result r = first;

        verdict_tree_sum(members, 2, 0, &r);
        assert_true(is_about(r.rate_bytes_per_step.value, 3 * MB));
        assert_true(is_about(r.oom.eta_s_low, 400));
    }
}

/* In a tree observed for one minute, a process of 300 MB forks two workers at second 10, and memory
 * grows from then on. SUMMED_PACE is the growth of the sum over the processes. */
static struct verdict_result judge_unshared(double summed_pace)
{
    static struct verdict_series whole, apart;
    struct verdict_result r;

    assert_int_equal(verdict_init(&whole, NULL), 0);
    assert_int_equal(verdict_init(&apart, NULL), 0);
    for (int i = 0; i < 240; i++) {
        double grown = i < 40 ? 0 : i - 40, full = i < 40 ? 300 * MB : 900 * MB;

        verdict_update(&whole, i * SECOND / 4, (uint64_t)(300 * MB + grown * MB));
        verdict_update(&apart, i * SECOND / 4, (uint64_t)(full + summed_pace * grown));
    }
    r = leaking(MB);
    r.onset_s = 10;
    verdict_check_unshared(&r, &whole, &apart);
    return r;
}

static void shared_pages_that_become_private_are_not_called_a_leak(void **state)
{
    struct verdict_result r = judge_unshared(0);

    (void)state;
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_int_equal(r.leak, VERDICT_LEAK_UNKNOWN);
    assert_false(r.alarm);
}

static void new_memory_in_workers_that_share_pages_is_called_a_leak(void **state)
{
    (void)state;
    assert_int_equal(judge_unshared(MB).word, VERDICT_LEAKING);
    /* the new memory is mapped by all three processes */
    assert_int_equal(judge_unshared(3 * MB).word, VERDICT_LEAKING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaced_worker_does_not_change_the_verdict_on_the_tree),
        cmocka_unit_test(undecided_processes_are_judged_by_total_growth),
        cmocka_unit_test(job_is_judged_leaking_if_only_the_sum_over_processes_leaks),
        cmocka_unit_test(job_growth_rate_is_the_sum_over_all_leaking_processes),
        cmocka_unit_test(growth_rate_of_a_tree_counts_possibly_shared_memory_once),
        cmocka_unit_test(shared_pages_that_become_private_are_not_called_a_leak),
        cmocka_unit_test(new_memory_in_workers_that_share_pages_is_called_a_leak),
    };

    return cmocka_run_group_tests_name("verdict_tree", tests, NULL, NULL);
}
