/* Tests the peak memory of a job and the suggested memory request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/peak.h"

static const uint64_t MIB = 1 << 20, GIB = 1 << 30;

static void job_peak_includes_cgroup_peak_reached_between_two_readings(void **state)
{
    struct peak p = {0};
    (void)state;
    peak_charge(&p, 50 * MIB, 40 * MIB, 50 * MIB);
    peak_charge(&p, 50 * MIB, 40 * MIB, 550 * MIB);
    peak_tree(&p, 30 * MIB, 60 * MIB, 0, true);
    assert_int_equal(peak_bytes(&p), 540 * MIB);
    /* The request is 648 MiB rounded up to a multiple of 64 MiB. */
    assert_int_equal(peak_request_bytes(&p), 704 * MIB);
}

static void job_peak_includes_cgroup_peak_reached_before_first_reading(void **state)
{
    struct peak p = {0};
    (void)state;
    /* Usage reached 300 MiB before the first reading. */
    peak_charge(&p, 10 * MIB, 0, 300 * MIB);
    assert_int_equal(peak_bytes(&p), 290 * MIB);
}

static void job_peak_is_largest_sample_if_cgroup_peak_is_unknown(void **state)
{
    struct peak p = {0};
    (void)state;
    peak_charge(&p, 100 * MIB, 70 * MIB, 0);
    peak_charge(&p, 90 * MIB, 80 * MIB, 0);
    peak_charge(&p, 20 * MIB, 10 * MIB, 0);
    assert_int_equal(peak_bytes(&p), 80 * MIB);
}

static void suggested_memory_request_excludes_file_cache(void **state)
{
    struct peak p = {0};
    uint64_t usage = 100 * MIB;
    (void)state;
    /* At each reading, the usage equals its peak so far, because file cache keeps growing. */
    for (int i = 0; i < 20; i++, usage += GIB) {
        peak_charge(&p, usage, 90 * MIB, usage);
        peak_tree(&p, 95 * MIB, 95 * MIB, 20 * MIB, true);
    }
    /* The job deletes its file, which frees the file cache. */
    peak_charge(&p, 100 * MIB, 90 * MIB, usage - GIB);
    assert_int_equal(peak_bytes(&p), 95 * MIB);
    assert_int_equal(peak_request_bytes(&p), 128 * MIB);
}

static void suggested_request_includes_at_most_1_gib_of_mapped_files(void **state)
{
    struct peak p = {0};
    (void)state;
    peak_charge(&p, 20 * GIB, 300 * MIB, 20 * GIB);
    peak_tree(&p, 20 * GIB + 300 * MIB, 20 * GIB + 300 * MIB, 20 * GIB, true);
    assert_int_equal(peak_bytes(&p), 20 * GIB + 300 * MIB);
    assert_int_equal(peak_request_bytes(&p), 1600 * MIB); /* 1.2 (1 GiB + 300 MiB) */
    peak_charge(&p, 20 * GIB, 5 * GIB, 20 * GIB);
    /* The request is never below the peak of unreclaimable memory. */
    assert_int_equal(peak_request_bytes(&p), 6 * GIB);
}

static void suggested_request_includes_all_mapped_files_if_no_cgroup(void **state)
{
    struct peak p = {0};
    (void)state;
    peak_tree(&p, 10 * GIB, 10 * GIB, 9 * GIB, true);
    assert_int_equal(peak_request_bytes(&p), 12 * GIB);
}

static void job_peak_includes_upper_bounds_of_short_lived_processes(void **state)
{
    struct peak p = {0};
    (void)state;
    peak_tree(&p, 20 * MIB, 20 * MIB, 0, true);
    for (int i = 0; i < 3; i++)
        peak_tree(&p, 30 * MIB, 20 * MIB + 50 * 25 * MIB, 0, true);
    for (int i = 0; i < 50; i++)
        peak_died(&p, 1, 25 * MIB);
    assert_int_equal(peak_bytes(&p), 20 * MIB + 50 * 25 * MIB);
    peak_died(&p, 4, 100 * GIB); /* This process started and exited between two ticks. */
    assert_int_equal(peak_bytes(&p), 20 * MIB + 50 * 25 * MIB);
}

static void peaks_of_processes_that_run_in_sequence_are_not_added_up(void **state)
{
    struct peak p = {0};
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        peak_tree(&p, 40 * MIB, 60 * MIB, 0, true);
        peak_died(&p, i, 20 * MIB);
    }
    assert_int_equal(peak_bytes(&p), 60 * MIB);
}

static void memory_of_a_process_that_exits_unmeasured_is_counted_once(void **state)
{
    struct peak p = {0};
    (void)state;
    peak_tree(&p, 25 * MIB, 25 * MIB, 0, true);
    peak_died(&p, 0, 25 * MIB);
    assert_int_equal(peak_bytes(&p), 25 * MIB);
}

static void job_peak_uses_rss_upper_bound_if_unique_memory_is_unknown(void **state)
{
    struct peak p = {0};
    (void)state;
    peak_tree(&p, 30 * MIB, 700 * MIB, 0, false);
    assert_int_equal(peak_bytes(&p), 700 * MIB);
    /* The cgroup charge takes precedence over the upper bound because it is more accurate. */
    peak_charge(&p, 500 * MIB, 400 * MIB, 500 * MIB);
    assert_int_equal(peak_bytes(&p), 500 * MIB - 100 * MIB);
}

static void job_peak_is_at_least_the_peak_of_the_largest_process(void **state)
{
    struct peak p = {0};
    (void)state;
    peak_tree(&p, 30 * MIB, 30 * MIB, 0, true);
    peak_process(&p, 300 * MIB);
    peak_raise(&p, 200 * MIB);
    assert_int_equal(peak_bytes(&p), 300 * MIB);
    peak_raise(&p, 310 * MIB);
    assert_int_equal(peak_bytes(&p), 310 * MIB);
}

static void job_peak_is_reset_when_the_job_restarts_in_the_same_cgroup(void **state)
{
    struct peak p = {0};
    (void)state;
    peak_charge(&p, 500 * MIB, 400 * MIB, 900 * MIB);
    peak_charge(&p, 60 * MIB, 10 * MIB, 500 * MIB);
    peak_restart(&p);
    assert_int_equal(peak_bytes(&p), 0);
    assert_int_equal(peak_request_bytes(&p), 0);
    peak_charge(&p, 80 * MIB, 30 * MIB, 100 * MIB);
    assert_int_equal(peak_bytes(&p), 50 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_peak_includes_cgroup_peak_reached_between_two_readings),
        cmocka_unit_test(job_peak_includes_cgroup_peak_reached_before_first_reading),
        cmocka_unit_test(job_peak_is_largest_sample_if_cgroup_peak_is_unknown),
        cmocka_unit_test(suggested_memory_request_excludes_file_cache),
        cmocka_unit_test(suggested_request_includes_at_most_1_gib_of_mapped_files),
        cmocka_unit_test(suggested_request_includes_all_mapped_files_if_no_cgroup),
        cmocka_unit_test(job_peak_includes_upper_bounds_of_short_lived_processes),
        cmocka_unit_test(peaks_of_processes_that_run_in_sequence_are_not_added_up),
        cmocka_unit_test(memory_of_a_process_that_exits_unmeasured_is_counted_once),
        cmocka_unit_test(job_peak_uses_rss_upper_bound_if_unique_memory_is_unknown),
        cmocka_unit_test(job_peak_is_at_least_the_peak_of_the_largest_process),
        cmocka_unit_test(job_peak_is_reset_when_the_job_restarts_in_the_same_cgroup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
