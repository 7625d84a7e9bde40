/* Tests the settings of a profiled process. */
#include "heap/life.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct heap_process settings(const char *heap, const char *socket)
{
    struct heap_process p = {0};
    life_settings(heap, socket, &p);
    return p;
}

static bool is_profiled_by(const char *heap, const char *socket)
{
    struct heap_process process = {0};
    return life_settings(heap, socket, &process);
}

static void profiler_without_settings_uses_the_defaults(void **state)
{
    (void)state;
    const char *const silent[] = {NULL, "", ",", "1", "on"};
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++) {
        struct heap_process p = settings(silent[i], "/run/x");
        assert_true(is_profiled_by(silent[i], "/run/x"));
        assert_int_equal(p.base_interval, 512 << 10);
        assert_true(p.wants_python_small);
    }
}

static void profiler_is_off_if_ebb_heap_is_0_or_no_socket_is_set(void **state)
{
    (void)state;
    assert_false(is_profiled_by("0", "/run/x"));
    assert_false(is_profiled_by(NULL, NULL));
    assert_false(is_profiled_by("interval=4096", ""));
}

static void profiler_settings_are_accepted_in_any_order(void **state)
{
    (void)state;
    struct heap_process p = settings("python=0,interval=4096", "/run/x");
    assert_int_equal(p.base_interval, 4096);
    assert_false(p.wants_python_small);
    p = settings("interval=1000000000000,python=1", "/run/x");
    assert_int_equal(p.base_interval, UINT64_C(1000000000000));
    assert_true(p.wants_python_small);
}

static void missing_or_invalid_seccomp_filter_setting_means_zero(void **state)
{
    (void)state;
    assert_int_equal(settings("interval=4096", "/run/x").filters, 0);
    assert_int_equal(settings("filters=", "/run/x").filters, 0);
    assert_int_equal(settings("filters=x", "/run/x").filters, 0);
    assert_int_equal(settings("python=1,filters=2", "/run/x").filters, 2);
}

static void seccomp_filter_count_is_read_from_proc_status(void **state)
{
    (void)state;
    assert_int_equal(life_filters("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t3\nSpec:\t1\n"), 3);
    assert_int_equal(life_filters("Name:\tx\nSeccomp:\t2\nSpec:\t1\n"), 1);
    assert_int_equal(life_filters("Name:\tx\nSeccomp:\t0\n"), 0);
    assert_int_equal(life_filters("Name:\tx\n"), 0);
    assert_int_equal(life_filters(""), 0);
}

static void invalid_profiler_settings_change_nothing(void **state)
{
    (void)state;
    const char *const odd[] = {
        "interval=", "interval=0", "interval=-1", "interval=4k",  "interval=9999999999999999999",
        "python=",   "python=2",   "python=yes",  "intervals=10", "=",
        "interval"};
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        struct heap_process p = settings(odd[i], "/run/x");
        assert_int_equal(p.base_interval, 512 << 10);
        assert_true(p.wants_python_small);
    }
    assert_int_equal(settings("x=1,interval=128,y", "/run/x").base_interval, 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profiler_without_settings_uses_the_defaults),
        cmocka_unit_test(profiler_is_off_if_ebb_heap_is_0_or_no_socket_is_set),
        cmocka_unit_test(profiler_settings_are_accepted_in_any_order),
        cmocka_unit_test(missing_or_invalid_seccomp_filter_setting_means_zero),
        cmocka_unit_test(seccomp_filter_count_is_read_from_proc_status),
        cmocka_unit_test(invalid_profiler_settings_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
