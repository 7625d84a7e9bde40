/* Hypotheses that show in which process it is, for, against, and without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "diagnose/tale.h"

static void a_launcher_alone_was_watched_instead_of_the_job(void **state)
{
    (void)state;
    it_is_flat();
    s.processes[0].role = ROLE_LAUNCHER;
    expect(HYPOTHESIS_LAUNCHER, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_LAUNCHER);
    s.processes[0].role = ROLE_MAIN;
    expect(HYPOTHESIS_LAUNCHER, RULED_OUT);
    s.processes[0].role = ROLE_OTHER;
    expect(HYPOTHESIS_LAUNCHER, CANNOT_TEST);
}

static void large_workers_that_are_flat_are_said_to_be(void **state)
{
    (void)state;
    it_is_flat();
    for (size_t i = 1; i <= 4; i++) {
        story_process(&s, ROLE_COMPILE_WORKER);
        story_field(&s, i, SAMPLE_RSS, MIB(400), MIB(400), 200);
        story_field(&s, i, SAMPLE_UNIQUE, MIB(300), MIB(300), 200);
        story_verdict(&s, i, VERDICT_STABLE);
    }
    const struct hypothesis *h = story_ask(&s, HYPOTHESIS_WORKERS);
    assert_true(h->word == LIKELY);
    assert_true(
        story_says(h, EVIDENCE_FOR, "RSS up to 400 MiB, in all 1.56 GiB, of which 1.17 GiB"));
    story_verdict(&s, 1, VERDICT_LEAKING);
    assert_true(story_ask(&s, HYPOTHESIS_WORKERS)->word <= UNLIKELY);
}

static void without_workers_they_are_ruled_out(void **state)
{
    (void)state;
    it_leaks();
    expect(HYPOTHESIS_WORKERS, RULED_OUT);
    expect(HYPOTHESIS_COPY_ON_WRITE, RULED_OUT);
    s.processes[0].role = ROLE_OTHER;
    expect(HYPOTHESIS_WORKERS, CANNOT_TEST);
    expect(HYPOTHESIS_COPY_ON_WRITE, CANNOT_TEST);
}

static void unique_memory_that_grows_under_flat_rss_is_copied(void **state)
{
    (void)state;
    it_is_flat();
    for (size_t i = 1; i <= 2; i++) {
        story_process(&s, ROLE_DATA_WORKER);
        story_field(&s, i, SAMPLE_RSS, MIB(500), MIB(500), 200);
        story_field(&s, i, SAMPLE_UNIQUE, MIB(5), MIB(150), 80);
        story_verdict(&s, i, VERDICT_STABLE);
    }
    expect(HYPOTHESIS_COPY_ON_WRITE, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_COPY_ON_WRITE);
}

static void a_worker_that_leaks_does_not_only_copy(void **state)
{
    (void)state;
    it_leaks();
    s.processes[0].role = ROLE_DATA_WORKER;
    story_process(&s, ROLE_DATA_WORKER);
    story_field(&s, 1, SAMPLE_RSS, MIB(500), MIB(500), 200);
    for (size_t i = 0; i <= 1; i++)
        story_field(&s, i, SAMPLE_UNIQUE, MIB(5), MIB(900), 200);
    story_row(&s, "/job/data.py", MIB(10), MIB(400), VERDICT_LEAKING);
    assert_true(
        story_says(story_ask(&s, HYPOTHESIS_COPY_ON_WRITE), EVIDENCE_AGAINST, "itself grows"));
    expect_first(HYPOTHESIS_CALL_SITE);
}

/* Its stack, its heap, the batch it makes. */
static void what_any_fork_writes_to_is_not_copied_data(void **state)
{
    (void)state;
    it_is_flat();
    for (size_t i = 1; i <= 2; i++) {
        story_process(&s, ROLE_DATA_WORKER);
        story_field(&s, i, SAMPLE_RSS, MIB(500), MIB(505), 200);
        story_field(&s, i, SAMPLE_UNIQUE, MIB(9), MIB(20), 80);
        story_verdict(&s, i, VERDICT_STABLE);
    }
    assert_true(story_ask(&s, HYPOTHESIS_COPY_ON_WRITE)->word <= UNLIKELY);
    expect_first(HYPOTHESIS_NO_GROWTH);
}

static void workers_with_memory_of_their_own_copy_nothing(void **state)
{
    (void)state;
    it_is_flat();
    story_process(&s, ROLE_DATA_WORKER);
    story_field(&s, 1, SAMPLE_RSS, MIB(50), MIB(200), 200);
    story_field(&s, 1, SAMPLE_UNIQUE, MIB(40), MIB(190), 200);
    expect(HYPOTHESIS_COPY_ON_WRITE, RULED_OUT);
    s.processes[1].field[SAMPLE_UNIQUE].count = 0;
    expect(HYPOTHESIS_COPY_ON_WRITE, CANNOT_TEST);
}

static void call_sites_of_the_compiler_that_grow_are_recompilation(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/lib/torch/_dynamo/guards.py", MIB(10), MIB(380), VERDICT_LEAKING);
    expect(HYPOTHESIS_COMPILE, LIKELY);
    story_process(&s, ROLE_COMPILE_WORKER);
    expect(HYPOTHESIS_COMPILE, NEARLY_CERTAIN);
    expect_first(HYPOTHESIS_COMPILE);
}

static void what_runs_compiled_code_is_not_the_compiler(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/lib/torch/_dynamo/eval_frame.py", MIB(10), MIB(380), VERDICT_LEAKING);
    expect(HYPOTHESIS_COMPILE, RULED_OUT);
}

static void without_a_compiler_there_is_no_recompilation(void **state)
{
    (void)state;
    it_leaks();
    story_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    expect(HYPOTHESIS_COMPILE, RULED_OUT);
    s.processes[0].role = ROLE_OTHER;
    s.f.heap.profile = NULL;
    s.f.heap.growth.count = 0;
    expect(HYPOTHESIS_COMPILE, CANNOT_TEST);
}

#define T(f) cmocka_unit_test_setup_teardown(f, tale_begin, tale_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_launcher_alone_was_watched_instead_of_the_job),
        T(large_workers_that_are_flat_are_said_to_be),
        T(without_workers_they_are_ruled_out),
        T(unique_memory_that_grows_under_flat_rss_is_copied),
        T(a_worker_that_leaks_does_not_only_copy),
        T(what_any_fork_writes_to_is_not_copied_data),
        T(workers_with_memory_of_their_own_copy_nothing),
        T(call_sites_of_the_compiler_that_grow_are_recompilation),
        T(what_runs_compiled_code_is_not_the_compiler),
        T(without_a_compiler_there_is_no_recompilation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
