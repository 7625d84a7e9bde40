/* Tests that advice contains values measured in the run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "diagnose/advice.h"
#include "diagnose/scenarios.h"

static const struct advice *advised(struct advice list[ADVICE_MAX], enum hypothesis_id because)
{
    size_t n = advice_make(&s.question, s.ranked, list);
    for (size_t i = 0; i < n; i++)
        if (list[i].because == because)
            return &list[i];
    return NULL;
}

static void advice_contains_the_memory_measured_in_the_run(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    growth_stops_after(50);
    synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH);
    const struct advice *a = advised(list, HYPOTHESIS_FIRST_TOUCH);
    assert_non_null(a);
    assert_string_equal(a->effect, "saves 400 MiB");
}

static void advice_to_limit_a_container_is_given_only_for_user_code(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    memory_leaks();
    s.f.kept.count = 1;
    s.f.kept.at[0] = (struct kept_list){
        .pid = s.f.main->id.pid,
        .count = 1,
        .at = {{.name = "Registry.series", .type = "dict", .added = 9, .bytes = MIB(900)}}};
    synthetic_test(&s, HYPOTHESIS_PYTHON_OBJECTS);
    const struct advice *a = advised(list, HYPOTHESIS_PYTHON_OBJECTS);
    assert_non_null(a);
    assert_string_equal(a->what, "limit or clear Registry.series");
    s.f.kept.at[0].at[0].is_library = true;
    synthetic_test(&s, HYPOTHESIS_PYTHON_OBJECTS);
    a = advised(list, HYPOTHESIS_PYTHON_OBJECTS);
    assert_non_null(a);
    assert_null(strstr(a->what, "Registry.series"));
}

static void advice_on_a_full_cache_is_not_repeated_for_the_call_site(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    growth_stops_after(50);
    synthetic_row(&s, "/job/collate.py", MIB(10), MIB(410), VERDICT_PLATEAUED);
    synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH);
    assert_non_null(advised(list, HYPOTHESIS_FIRST_TOUCH));
    assert_null(advised(list, HYPOTHESIS_CALL_SITE));
}

static void advice_rules_out_a_leak_only_after_growth_has_stopped(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    growth_stops_after(50);
    synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH);
    assert_non_null(strstr(advised(list, HYPOTHESIS_FIRST_TOUCH)->what, "not a leak; to use"));
    s.question.word = VERDICT_FILLING;
    assert_null(strstr(advised(list, HYPOTHESIS_FIRST_TOUCH)->what, "not a leak"));
}

static void advice_for_a_filling_buffer_gives_the_size_of_the_block(void **state)
{
    (void)state;
    struct advice list[ADVICE_MAX];
    memory_leaks();
    synthetic_row(&s, "/job/replay.py", MIB(900), MIB(900), VERDICT_STABLE);
    s.rows[0].live_objects = 1;
    synthetic_test(&s, HYPOTHESIS_FIRST_TOUCH);
    const struct advice *a = advised(list, HYPOTHESIS_FIRST_TOUCH);
    assert_non_null(a);
    assert_non_null(strstr(a->what, "900 MiB was allocated in one block"));
}

static void restart_is_advised_if_limit_and_step_count_are_known(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    memory_leaks();
    s.f.limit_bytes = MIB(2000);
    s.f.max_steps = 5000;
    synthetic_test(&s, HYPOTHESIS_CALL_SITE);
    size_t n = advice_make(&s.question, s.ranked, list);
    bool is_there = false;
    for (size_t i = 0; i < n; i++)
        is_there = is_there || strstr(list[i].what, "--restart-every 1100steps");
    assert_true(is_there);
}

static void removal_of_cleanup_calls_is_advised_if_they_free_little(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    memory_leaks();
    s.f.cleanup = (struct marks_cleanup){.count = 19, .freed_bytes = MIB(1), .cost_s = 3.8};
    synthetic_test(&s, HYPOTHESIS_CALL_SITE);
    size_t n = advice_make(&s.question, s.ranked, list);
    assert_true(n > 0);
    assert_string_equal(
        list[n - 1].what,
        "remove MemoryCleanup: 19 calls freed 1.0 MiB in total and took 2.0 % of the "
        "time");
}

static void advice_for_unexplained_growth_is_to_use_ebb_run(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    memory_leaks();
    s.processes[0].role = ROLE_OTHER;
    synthetic_test(&s, HYPOTHESIS_CALL_SITE);
    assert_true(advice_make(&s.question, s.ranked, list) >= 2);
    assert_non_null(strstr(list[0].what, "ebb run"));
    assert_string_equal(list[0].effect, "");
}

static void heap_profiler_is_not_advised(void)
{
    struct advice list[ADVICE_MAX];
    s.processes[0].role = ROLE_OTHER;
    synthetic_test(&s, HYPOTHESIS_CALL_SITE);
    size_t n = advice_make(&s.question, s.ranked, list);
    for (size_t i = 0; i < n; i++)
        assert_null(strstr(list[i].what, "heap profiler"));
}

static void heap_profiler_is_not_advised_if_the_profiler_already_ran(void **state)
{
    (void)state;
    memory_leaks();
    s.f.heap.is_on = true; /* the profiler ran, although it has no usable heap readings */
    heap_profiler_is_not_advised();
}

static void heap_profiler_is_not_advised_if_it_cannot_run(void **state)
{
    (void)state;
    memory_leaks();
    s.f.heap.is_unavailable = true; /* the profiler cannot run in a static program */
    heap_profiler_is_not_advised();
}

static void advice_for_a_call_site_never_names_a_library_container(void **state)
{
    struct advice list[ADVICE_MAX];
    (void)state;
    memory_leaks();
    synthetic_row(&s, "/job/train.py", MIB(10), MIB(400), VERDICT_LEAKING);
    s.f.kept.at[0] = (struct kept_list){
        .pid = s.f.main->id.pid,
        .at = {{.name = "torch.cache", .type = "dict", .added = 9, .is_library = true},
               {.name = "__main__.seen", .type = "list", .added = 9}},
        .count = 2};
    s.f.kept.count = 1;
    synthetic_test(&s, HYPOTHESIS_CALL_SITE);
    assert_true(advice_make(&s.question, s.ranked, list) > 0);
    assert_non_null(strstr(list[0].what, "limit or clear __main__.seen"));
    s.f.kept.at[0].count = 1;
    synthetic_test(&s, HYPOTHESIS_CALL_SITE);
    assert_true(advice_make(&s.question, s.ranked, list) > 0);
    assert_null(strstr(list[0].what, "torch.cache"));
    assert_non_null(strstr(list[0].what, "train.py"));
}

/* The host grows by 1 MiB/step, and a GPU by 40 MiB/step. */
static void advice_for_gpu_growth_uses_the_gpu_growth_rate(void **state)
{
    (void)state;
    struct advice list[ADVICE_MAX];
    struct name name = {.kind = NAME_PYTHON, .function = "validate", .file = "/job/train.py"};
    struct growth_row row = {.name = &name,
                             .growth_bytes = MIB(7000),
                             .verdict = {.word = VERDICT_LEAKING,
                                         .leak = VERDICT_LEAK_YES,
                                         .rate_bytes_per_step = {.known = true, .value = MIB(38)}}};
    memory_is_flat();
    s.processes[0].verdict.per_step = MIB(1);
    s.gpu_v[SYNTHETIC_POINTS - 1] = MIB(7000);
    s.f.gpu_heap.job = (struct facts_series){s.t_s, s.gpu_v, SYNTHETIC_POINTS};
    s.f.gpu = (struct facts_verdict){
        .is_known = true, .word = VERDICT_LEAKING, .leak = VERDICT_LEAK_YES, .per_step = MIB(40)};
    s.f.gpu_heap.growth = (struct growth){.rows = &row, .count = 1};
    synthetic_test(&s, HYPOTHESIS_GPU);
    const struct advice *a = advised(list, HYPOTHESIS_GPU);
    assert_non_null(a);
    assert_string_equal(a->effect, "saves 38 MiB/step");
    s.f.gpu_heap.growth = (struct growth){0};
}

#define T(f) cmocka_unit_test_setup_teardown(f, scenario_begin, scenario_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(advice_contains_the_memory_measured_in_the_run),
        T(advice_to_limit_a_container_is_given_only_for_user_code),
        T(advice_on_a_full_cache_is_not_repeated_for_the_call_site),
        T(advice_rules_out_a_leak_only_after_growth_has_stopped),
        T(advice_for_a_filling_buffer_gives_the_size_of_the_block),
        T(restart_is_advised_if_limit_and_step_count_are_known),
        T(removal_of_cleanup_calls_is_advised_if_they_free_little),
        T(advice_for_unexplained_growth_is_to_use_ebb_run),
        T(heap_profiler_is_not_advised_if_the_profiler_already_ran),
        T(heap_profiler_is_not_advised_if_it_cannot_run),
        T(advice_for_a_call_site_never_names_a_library_container),
        T(advice_for_gpu_growth_uses_the_gpu_growth_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
