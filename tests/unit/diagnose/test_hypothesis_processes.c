/* Tests hypotheses about which process grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "diagnose/scenarios.h"

static void launcher_is_diagnosed_if_job_has_no_training_process(void **state)
{
    (void)state;
    memory_is_flat();
    s.processes[0].role = ROLE_LAUNCHER;
    expect(HYPOTHESIS_LAUNCHER, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_LAUNCHER);
    s.processes[0].role = ROLE_MAIN;
    expect(HYPOTHESIS_LAUNCHER, RULED_OUT);
    s.processes[0].role = ROLE_OTHER;
    expect(HYPOTHESIS_LAUNCHER, CANNOT_TEST);
}

static void compile_workers_of_constant_size_are_diagnosed_as_overhead(void **state)
{
    (void)state;
    memory_is_flat();
    for (size_t i = 1; i <= 4; i++) {
        synthetic_process(&s, ROLE_COMPILE_WORKER);
        synthetic_field(&s, i, SAMPLE_RSS, MIB(400), MIB(400), 200);
        synthetic_field(&s, i, SAMPLE_UNIQUE, MIB(300), MIB(300), 200);
        synthetic_verdict(&s, i, VERDICT_STABLE);
    }
    const struct hypothesis *h = synthetic_test(&s, HYPOTHESIS_WORKERS);
    assert_true(h->word == LIKELY);
    assert_true(has_evidence(h, EVIDENCE_FOR,
                             "RSS at most 400 MiB each, 1.56 GiB in total, of which 1.17 GiB"));
    synthetic_verdict(&s, 1, VERDICT_LEAKING);
    assert_true(synthetic_test(&s, HYPOTHESIS_WORKERS)->word <= UNLIKELY);
}

static void worker_hypotheses_are_ruled_out_if_job_has_no_workers(void **state)
{
    (void)state;
    memory_leaks();
    expect(HYPOTHESIS_WORKERS, RULED_OUT);
    expect(HYPOTHESIS_COPY_ON_WRITE, RULED_OUT);
    s.processes[0].role = ROLE_OTHER;
    expect(HYPOTHESIS_WORKERS, CANNOT_TEST);
    expect(HYPOTHESIS_COPY_ON_WRITE, CANNOT_TEST);
}

static void process_pile_up_is_diagnosed_if_process_count_grows(void **state)
{
    (void)state;
    memory_is_flat();
    expect(HYPOTHESIS_PROCESSES, RULED_OUT);
    for (size_t i = 1; i <= 4; i++) {
        synthetic_process(&s, ROLE_OTHER);
        synthetic_field(&s, i, SAMPLE_RSS, MIB(80), MIB(80), 200);
        synthetic_field(&s, i, SAMPLE_UNIQUE, MIB(60), MIB(60), 200);
        s.processes[i].born_s = s.f.start_s + (s.f.now_s - s.f.start_s) * (double)i / 5;
    }
    const struct hypothesis *h = synthetic_test(&s, HYPOTHESIS_PROCESSES);
    assert_true(h->word >= LIKELY && h->word != CANNOT_TEST);
    assert_true(
        has_evidence(h, EVIDENCE_FOR, "the job had 0 processes at the start and has 4 now"));
    for (size_t i = 1; i <= 4; i++)
        /* All workers started with the job, so the number of processes does not grow. */
        s.processes[i].born_s = s.f.start_s;
    expect(HYPOTHESIS_PROCESSES, RULED_OUT);
}

static void causes_of_growth_that_ends_are_ruled_out_for_a_leak(void **state)
{
    (void)state;
    memory_leaks();
    s.f.job =
        (struct facts_verdict){.is_known = true, .word = VERDICT_LEAKING, .leak = VERDICT_LEAK_YES};
    /* retention cannot be tested, because the live heap was not measured */
    expect(HYPOTHESIS_RETENTION, CANNOT_TEST);
    expect(HYPOTHESIS_NO_GROWTH, RULED_OUT);
    expect(HYPOTHESIS_FIRST_TOUCH, RULED_OUT);
}

static void copy_on_write_is_diagnosed_if_only_unique_memory_grows(void **state)
{
    (void)state;
    memory_is_flat();
    for (size_t i = 1; i <= 2; i++) {
        synthetic_process(&s, ROLE_DATA_WORKER);
        synthetic_field(&s, i, SAMPLE_RSS, MIB(500), MIB(500), 200);
        synthetic_field(&s, i, SAMPLE_UNIQUE, MIB(5), MIB(150), 80);
        synthetic_verdict(&s, i, VERDICT_STABLE);
    }
    expect(HYPOTHESIS_COPY_ON_WRITE, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_COPY_ON_WRITE);
}

static void flat_memory_comes_first_even_if_copy_on_write_is_certain(void **state)
{
    (void)state;
    memory_is_flat();
    synthetic_process(&s, ROLE_DATA_WORKER);
    synthetic_field(&s, 1, SAMPLE_RSS, MIB(500), MIB(500), 200);
    synthetic_field(&s, 1, SAMPLE_UNIQUE, MIB(5), MIB(100), 80);
    synthetic_verdict(&s, 1, VERDICT_STABLE);
    expect(HYPOTHESIS_COPY_ON_WRITE, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void copy_on_write_is_unlikely_if_a_worker_leaks(void **state)
{
    (void)state;
    memory_leaks();
    s.processes[0].role = ROLE_DATA_WORKER;
    synthetic_process(&s, ROLE_DATA_WORKER);
    synthetic_field(&s, 1, SAMPLE_RSS, MIB(500), MIB(500), 200);
    for (size_t i = 0; i <= 1; i++)
        synthetic_field(&s, i, SAMPLE_UNIQUE, MIB(5), MIB(900), 200);
    synthetic_row(&s, "/job/data.py", MIB(10), MIB(400), VERDICT_LEAKING);
    assert_true(has_evidence(synthetic_test(&s, HYPOTHESIS_COPY_ON_WRITE), EVIDENCE_AGAINST,
                             "the worker's RSS grows"));
    expect_first(HYPOTHESIS_CALL_SITE);
}

/* A new worker writes to its stack, its heap and its first batch. */
static void copy_on_write_is_not_diagnosed_for_small_unshared_growth(void **state)
{
    (void)state;
    memory_is_flat();
    for (size_t i = 1; i <= 2; i++) {
        synthetic_process(&s, ROLE_DATA_WORKER);
        synthetic_field(&s, i, SAMPLE_RSS, MIB(500), MIB(505), 200);
        synthetic_field(&s, i, SAMPLE_UNIQUE, MIB(9), MIB(20), 80);
        synthetic_verdict(&s, i, VERDICT_STABLE);
    }
    assert_true(synthetic_test(&s, HYPOTHESIS_COPY_ON_WRITE)->word <= UNLIKELY);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void copy_on_write_is_ruled_out_if_workers_never_shared_pages(void **state)
{
    (void)state;
    memory_is_flat();
    synthetic_process(&s, ROLE_DATA_WORKER);
    synthetic_field(&s, 1, SAMPLE_RSS, MIB(50), MIB(200), 200);
    synthetic_field(&s, 1, SAMPLE_UNIQUE, MIB(40), MIB(190), 200);
    expect(HYPOTHESIS_COPY_ON_WRITE, RULED_OUT);
    s.processes[1].field[SAMPLE_UNIQUE].count = 0;
    expect(HYPOTHESIS_COPY_ON_WRITE, CANNOT_TEST);
}

static void recompilation_is_diagnosed_if_call_sites_in_compiler_grow(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/lib/torch/_dynamo/guards.py", MIB(10), MIB(380), VERDICT_LEAKING);
    expect(HYPOTHESIS_COMPILE, LIKELY);
    synthetic_process(&s, ROLE_COMPILE_WORKER);
    expect(HYPOTHESIS_COMPILE, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_COMPILE);
}

static void recompilation_is_not_diagnosed_for_growth_in_compiled_code(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/lib/torch/_dynamo/eval_frame.py", MIB(10), MIB(380), VERDICT_LEAKING);
    expect(HYPOTHESIS_COMPILE, RULED_OUT);
}

static void recompilation_is_not_diagnosed_for_import_of_the_compiler(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/lib/torch/_dynamo/utils.py", MIB(10), MIB(380), VERDICT_LEAKING);
    s.names[0].function = "<module>";
    expect(HYPOTHESIS_COMPILE, RULED_OUT);
}

static void recompilation_is_ruled_out_if_no_compiler_was_used(void **state)
{
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    expect(HYPOTHESIS_COMPILE, RULED_OUT);
    s.processes[0].role = ROLE_OTHER;
    s.f.heap.profile = NULL;
    s.f.heap.growth.count = 0;
    expect(HYPOTHESIS_COMPILE, CANNOT_TEST);
}

#define T(f) cmocka_unit_test_setup_teardown(f, scenario_begin, scenario_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(launcher_is_diagnosed_if_job_has_no_training_process),
        T(compile_workers_of_constant_size_are_diagnosed_as_overhead),
        T(worker_hypotheses_are_ruled_out_if_job_has_no_workers),
        T(process_pile_up_is_diagnosed_if_process_count_grows),
        T(causes_of_growth_that_ends_are_ruled_out_for_a_leak),
        T(copy_on_write_is_diagnosed_if_only_unique_memory_grows),
        T(flat_memory_comes_first_even_if_copy_on_write_is_certain),
        T(copy_on_write_is_unlikely_if_a_worker_leaks),
        T(copy_on_write_is_not_diagnosed_for_small_unshared_growth),
        T(copy_on_write_is_ruled_out_if_workers_never_shared_pages),
        T(recompilation_is_diagnosed_if_call_sites_in_compiler_grow),
        T(recompilation_is_not_diagnosed_for_growth_in_compiled_code),
        T(recompilation_is_not_diagnosed_for_import_of_the_compiler),
        T(recompilation_is_ruled_out_if_no_compiler_was_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
