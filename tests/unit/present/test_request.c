/* Tests the suggested memory request in the syntax of each scheduler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "present/document.h"
#include "present/summary.h"

static const double GIB = 1 << 30;

static void assert_request(const struct request *r, const char *expected)
{
    struct doc d = {0};
    struct buf out = {0};
    request_put(&d, r);
    doc_terminal(&out, &d, false, 100);
    assert_string_equal(buf_str(&out), expected);
    doc_fini(&d);
    buf_fini(&out);
}

static void memory_request_for_slurm_is_printed_as_a_mem_option(void **state)
{
    (void)state;
    assert_request(&(struct request){.bytes = 20.3 * GIB}, "request    --mem=21G\n");
    assert_request(
        &(struct request){.bytes = 20.3 * GIB, .is_per_node = true, .runs = 12},
        "request    --mem=21G per node, enough for 98 % of the last 12 runs of this command\n");
}

static void memory_request_for_kubernetes_is_printed_as_a_resource_limit(void **state)
{
    (void)state;
    assert_request(&(struct request){.bytes = 20.3 * GIB, .words = REQUEST_KUBERNETES},
                   "request    resources.limits.memory: 21Gi\n");
    assert_request(&(struct request){.bytes = 0.7 * GIB, .words = REQUEST_KUBERNETES},
                   "request    resources.limits.memory: 750Mi\n");
}

static void suggested_memory_of_a_leaking_job_grows_with_step_count(void **state)
{
    (void)state;
    assert_request(
        &(struct request){.bytes = 20.3 * GIB,
                          .is_leak = true,
                          .steps = 200,
                          .planned_steps = 1000,
                          .planned_bytes = 59.2 * GIB,
                          .fixed_bytes = 8 * GIB},
        "request    --mem=21G for 200 steps as it is, 60G for all 1000, 8G once fixed\n");
    assert_request(&(struct request){.bytes = 20.3 * GIB, .is_leak = true, .fixed_bytes = GIB},
                   "request    --mem=21G as it is, 1050M once fixed\n");
}

static void suggested_memory_is_omitted_if_no_size_is_known(void **state)
{
    (void)state;
    assert_request(&(struct request){.is_leak = true, .steps = 7}, "");
}

static void kubernetes_request_is_shown_only_in_a_pod_without_slurm(void **state)
{
    (void)state;
    unsetenv("SLURM_JOB_ID");
    unsetenv("KUBERNETES_SERVICE_HOST");
    assert_int_equal(request_words_here(), REQUEST_SLURM);
    setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    assert_int_equal(request_words_here(), REQUEST_KUBERNETES);
    setenv("SLURM_JOB_ID", "1", 1);
    assert_int_equal(request_words_here(), REQUEST_SLURM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_request_for_slurm_is_printed_as_a_mem_option),
        cmocka_unit_test(memory_request_for_kubernetes_is_printed_as_a_resource_limit),
        cmocka_unit_test(suggested_memory_of_a_leaking_job_grows_with_step_count),
        cmocka_unit_test(suggested_memory_is_omitted_if_no_size_is_known),
        cmocka_unit_test(kubernetes_request_is_shown_only_in_a_pod_without_slurm),
    };
    return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
