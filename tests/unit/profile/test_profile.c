/* Tests the weights of samples, and look-ups by time in a profile. */
#include "profile/profile.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>

static void check_near(double a, double b, double tolerance)
{
    if (fabs(a - b) > tolerance)
        fail_msg("%.12g is not %.12g", a, b);
}

static void sample_weights_are_those_of_poisson_sampling(void **state)
{
    (void)state;
    const double p = 1 - exp(-1);
    check_near(profile_probability(4096, 4096), p, 1e-12);
    check_near(profile_weight_bytes(4096, 4096), 4096 / p, 1e-9);
    check_near(profile_weight_objects(4096, 4096), 1 / p, 1e-12);
    /* A tiny sample represents about one interval of bytes, a huge sample represents only its own
     * bytes. */
    check_near(profile_weight_bytes(16, 512 << 10), (512 << 10) + 8, 1);
    check_near(profile_weight_bytes(1 << 30, 512 << 10), 1 << 30, 1e-3);
}

static void sample_weight_is_exact_for_size_zero_and_interval_zero(void **state)
{
    (void)state;
    assert_true(profile_weight_bytes(0, 4096) == 0);
    assert_true(profile_weight_objects(0, 4096) == 0);
    assert_true(profile_probability(5, 0) == 1);
    assert_true(profile_weight_bytes(5, 0) == 5);
}

static struct profile_reading readings[] = {
    {.t_ns = 1000},
    {.t_ns = 2000, .has_step = true, .step = 10},
    {.t_ns = 3000},
    {.t_ns = 4000, .has_step = true, .step = 30},
    {.t_ns = 5000, .has_step = true, .step = 31},
};
static struct profile_snapshot snapshots[] = {{.t_ns = 1500}, {.t_ns = 4000}};
static const struct profile profile = {
    .readings = readings, .n_readings = 5, .snapshots = snapshots, .n_snapshots = 2};

static void time_of_a_step_is_interpolated_between_readings(void **state)
{
    uint64_t t = 0;
    (void)state;
    assert_true(profile_time_of(&profile, 10, &t));
    assert_int_equal(t, 2000);
    assert_true(profile_time_of(&profile, 20, &t));
    assert_int_equal(t, 3000);
    assert_true(profile_time_of(&profile, 31, &t));
    assert_int_equal(t, 5000);
    assert_false(profile_time_of(&profile, 9, &t));
    assert_false(profile_time_of(&profile, 32, &t));
}

static void step_time_is_found_even_if_step_numbers_start_again(void **state)
{
    struct profile_reading again[] = {
        {.t_ns = 1000, .has_step = true, .step = 5},
        {.t_ns = 2000, .has_step = true, .step = 0},
        {.t_ns = 3000, .has_step = true, .step = 10},
    };
    const struct profile p = {.readings = again, .n_readings = 3};
    uint64_t t = 0;
    (void)state;
    assert_true(profile_time_of(&p, 5, &t));
    assert_int_equal(t, 1000);
    assert_true(profile_time_of(&p, 7, &t));
    assert_int_equal(t, 2700);
}

static void last_heap_reading_at_or_before_a_time_is_found(void **state)
{
    (void)state;
    assert_null(profile_reading_at(&profile, 999));
    assert_ptr_equal(profile_reading_at(&profile, 1000), &readings[0]);
    assert_ptr_equal(profile_reading_at(&profile, 4999), &readings[3]);
    assert_ptr_equal(profile_reading_at(&profile, UINT64_MAX), &readings[4]);
    assert_null(profile_snapshot_at(&profile, 1499));
    assert_ptr_equal(profile_snapshot_at(&profile, 3999), &snapshots[0]);
    assert_ptr_equal(profile_snapshot_at(&profile, 4000), &snapshots[1]);
}

static void empty_profile_has_no_readings(void **state)
{
    const struct profile none = {0};
    uint64_t t;
    (void)state;
    assert_false(profile_time_of(&none, 1, &t));
    assert_null(profile_reading_at(&none, 1));
    assert_null(profile_snapshot_at(&none, 1));
    profile_free(NULL);
}

enum { WORKING_MAX = 100 };

/* Returns how many of N readings show the process at work. The readings are one second apart, and
 * MIB contains their live sizes. */
static size_t working(const double *mib, size_t n)
{
    struct profile_held held[WORKING_MAX];
    struct profile_reading seen[WORKING_MAX];
    const struct profile p = {.is_ended = true, .readings = seen, .n_readings = n};
    for (size_t i = 0; i < n; i++) {
        held[i] = (struct profile_held){.live_bytes = mib[i] * 1048576};
        seen[i] = (struct profile_reading){
            .t_ns = (i + 1) * UINT64_C(1000000000), .held = &held[i], .count = 1};
    }
    return profile_working(&p);
}

static void heap_readings_after_the_end_of_work_are_excluded(void **state)
{
    (void)state;
    assert_int_equal(working((double[]){100, 110, 120, 130}, 4), 4);
    assert_int_equal(working((double[]){200, 200, 200, 200, 200, 200, 120}, 7), 6);
    /* The process freed only what it had allocated recently: memory is back at the level of the
     * first reading. */
    assert_int_equal(working((double[]){200, 220, 240, 260, 200}, 5), 4);
    assert_int_equal(working((double[]){200, 230, 260, 200, 150}, 5), 3);
    assert_int_equal(working((double[]){200, 200, 260, 200, 200}, 5), 5); /* a spike */
}

/* Builds a hundred readings. Memory grows from reading to reading, except in the last IDLE
 * readings, in which the process has freed at least half of its memory and is idle. */
static size_t working_before(size_t idle)
{
    double mib[WORKING_MAX];
    for (size_t i = 0; i < WORKING_MAX; i++)
        mib[i] = i < WORKING_MAX - idle ? 200 + (double)i : 100;
    return working(mib, WORKING_MAX);
}

static void heap_readings_of_a_short_idle_time_at_the_end_are_excluded(void **state)
{
    (void)state;
    assert_int_equal(working_before(3), WORKING_MAX - 3);
    assert_int_equal(working_before(9), WORKING_MAX - 9);
    /* An idle time this long is not treated as the end of the run. */
    assert_int_equal(working_before(30), WORKING_MAX);
}

/* Memory grows from the reading at 1 s to the reading at 7 s. Most of it is freed before the
 * reading at 8 s. The next ENDED readings are taken while the process is exiting. The last reading
 * is taken after the exit, at 8 s + WAY_OUT_S. */
static struct profile on_its_way_out(struct profile_reading *seen, struct profile_held *held,
                                     unsigned way_out_s, size_t ended)
{
    const double mib[] = {100, 150, 200, 250, 300, 350, 400, 120, 100, 100, 100};
    size_t n = 9 + ended;
    for (size_t i = 0; i < n; i++) {
        held[i] = (struct profile_held){.live_bytes = mib[i] * 1048576};
        seen[i] = (struct profile_reading){.t_ns = (i + 1) * UINT64_C(1000000000),
                                           .is_ended = i >= 8,
                                           .held = &held[i],
                                           .count = 1};
    }
    seen[n - 1].t_ns = (8 + way_out_s) * UINT64_C(1000000000);
    return (struct profile){.is_ended = true, .readings = seen, .n_readings = n};
}

static void heap_readings_during_a_long_exit_are_excluded(void **state)
{
    struct profile_reading seen[WORKING_MAX];
    struct profile_held held[WORKING_MAX];
    (void)state;
    for (unsigned way_out_s = 1; way_out_s <= 60; way_out_s *= 4)
        for (size_t ended = 0; ended <= 2; ended++) {
            struct profile p = on_its_way_out(seen, held, way_out_s + 2, ended);
            assert_int_equal(profile_working(&p), 7);
            assert_int_equal(profile_at_work(&p), 7);
        }
}

static void readings_count_as_work_until_memory_is_freed_at_exit(void **state)
{
    struct profile_reading seen[WORKING_MAX];
    struct profile_held held[WORKING_MAX];
    (void)state;
    struct profile p = on_its_way_out(seen, held, 5, 2);
    for (size_t i = 7; i < p.n_readings; i++)
        held[i].live_bytes = 450 * 1048576.0;
    assert_int_equal(profile_working(&p), 11);
    assert_int_equal(profile_at_work(&p), 8);
    /* The process was marked as exiting, but continues to work. */
    held[10].live_bytes = 500 * 1048576.0;
    assert_int_equal(profile_at_work(&p), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_weights_are_those_of_poisson_sampling),
        cmocka_unit_test(sample_weight_is_exact_for_size_zero_and_interval_zero),
        cmocka_unit_test(time_of_a_step_is_interpolated_between_readings),
        cmocka_unit_test(step_time_is_found_even_if_step_numbers_start_again),
        cmocka_unit_test(last_heap_reading_at_or_before_a_time_is_found),
        cmocka_unit_test(empty_profile_has_no_readings),
        cmocka_unit_test(heap_readings_after_the_end_of_work_are_excluded),
        cmocka_unit_test(heap_readings_of_a_short_idle_time_at_the_end_are_excluded),
        cmocka_unit_test(heap_readings_during_a_long_exit_are_excluded),
        cmocka_unit_test(readings_count_as_work_until_memory_is_freed_at_exit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
