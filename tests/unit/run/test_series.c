/* Tests series of bounded size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "base/clock.h"
#include "run/series.h"

static const uint64_t W = 50 * NS_PER_MS;

static void series_without_readings_has_no_points(void **state)
{
    struct series s;
    struct series_point p;
    (void)state;
    series_init(&s, 4, W, 0);
    assert_false(series_last(&s, &p));
    assert_false(series_after(&s, 5, &p));
    assert_false(series_after(NULL, 5, &p));
    assert_false(series_max(NULL, 0, UINT64_MAX, &p));
    assert_int_equal(series_room(NULL), 0);
    assert_int_equal(series_points(&s, NULL), 0);
    assert_int_equal(series_mean(NULL), 0);
    series_fini(&s);
}

static void series_keeps_every_reading_while_it_has_free_buckets(void **state)
{
    struct series s;
    struct series_point points[64];
    (void)state;
    series_init(&s, 16, W, 0);
    for (uint64_t i = 0; i < 16; i++)
        assert_int_equal(series_add(&s, i * W, 100 + i), 0);
    assert_true(series_room(&s) <= 64);
    assert_int_equal(series_points(&s, points), 16);
    for (uint64_t i = 0; i < 16; i++) {
        assert_int_equal(points[i].t_ns, i * W);
        assert_int_equal(points[i].v, 100 + i);
    }
    series_fini(&s);
}

static void week_long_series_keeps_extremes_and_first_and_last_reading(void **state)
{
    struct series s;
    struct series_point p, *points;
    const uint64_t n = 6048000;
    (void)state;
    series_init(&s, 64, W, 0);
    for (uint64_t i = 0; i < n; i++)
        series_add(&s, i * NS_PER_S / 10, i == 4000000 ? 7 : i == 4000001 ? 9999 : 1000 + i % 10);
    assert_true(s.count <= 64 && s.count >= 32);
    assert_int_equal(s.readings, n);
    assert_true(series_min(&s, 0, UINT64_MAX, &p));
    assert_int_equal(p.v, 7);
    assert_int_equal(p.t_ns, 400000 * NS_PER_S);
    assert_true(series_max(&s, 0, UINT64_MAX, &p));
    assert_int_equal(p.v, 9999);
    assert_true(series_max(&s, 0, 300000 * NS_PER_S, &p));
    assert_int_equal(p.v, 1009);
    points = calloc(series_room(&s), sizeof *points);
    size_t count = series_points(&s, points);
    assert_int_equal(points[0].t_ns, 0);
    assert_int_equal(points[count - 1].t_ns, (n - 1) * NS_PER_S / 10);
    for (size_t i = 1; i < count; i++)
        assert_true(points[i].t_ns >= points[i - 1].t_ns);
    free(points);
    series_fini(&s);
}

static void series_of_sparse_readings_stays_within_its_bucket_limit(void **state)
{
    struct series s;
    (void)state;
    series_init(&s, 8, W, 0);
    for (uint64_t i = 0; i < 1000; i++) {
        assert_int_equal(series_add(&s, i * 3600 * NS_PER_S, i), 0);
        assert_true(s.count <= 8 && s.cap <= 8);
    }
    series_fini(&s);
}

static void series_search_finds_the_first_reading_at_or_after_a_time(void **state)
{
    struct series s;
    struct series_point p;
    (void)state;
    series_init(&s, 8, W, 0);
    series_add(&s, 10 * NS_PER_S, 1);
    series_add(&s, 10 * NS_PER_S + 5, 3);
    series_add(&s, 20 * NS_PER_S, 2);
    assert_true(series_after(&s, 0, &p) && p.v == 1);
    assert_true(series_after(&s, 10 * NS_PER_S + 1, &p) && p.v == 3);
    assert_true(series_after(&s, 11 * NS_PER_S, &p) && p.v == 2);
    assert_false(series_after(&s, 21 * NS_PER_S, &p));
    series_fini(&s);
}

static void reading_with_an_earlier_time_gets_the_time_of_the_last_one(void **state)
{
    struct series s;
    struct series_point p;
    (void)state;
    series_init(&s, 8, W, 0);
    series_add(&s, 10 * NS_PER_S, 1);
    series_add(&s, 5 * NS_PER_S, 2);
    assert_true(series_last(&s, &p));
    assert_int_equal(p.t_ns, 10 * NS_PER_S);
    assert_int_equal(p.v, 2);
    series_fini(&s);
}

static void start_value_is_the_last_reading_of_the_first_second(void **state)
{
    struct series s;
    (void)state;
    series_init(&s, 8, W, 0);
    series_add(&s, 10 * NS_PER_S, 1);
    series_add(&s, 10 * NS_PER_S + NS_PER_S / 2, 5);
    series_add(&s, 12 * NS_PER_S, 9);
    assert_int_equal(s.first.v, 1);
    assert_int_equal(s.start, 5);
    assert_int_equal(series_mean(&s), 5);
    series_fini(&s);
}

static void newest_values_of_a_series_are_maxima_of_the_last_buckets(void **state)
{
    struct series s;
    uint64_t v[3];
    (void)state;
    series_init(&s, 8, W, 0);
    for (uint64_t i = 0; i < 5; i++) {
        series_add(&s, i * W, 10 * i);
        series_add(&s, i * W + 1, 1);
    }
    assert_int_equal(series_newest(&s, 3, v), 3);
    assert_int_equal(v[0], 20);
    assert_int_equal(v[2], 40);
    series_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(series_without_readings_has_no_points),
        cmocka_unit_test(series_keeps_every_reading_while_it_has_free_buckets),
        cmocka_unit_test(week_long_series_keeps_extremes_and_first_and_last_reading),
        cmocka_unit_test(series_of_sparse_readings_stays_within_its_bucket_limit),
        cmocka_unit_test(series_search_finds_the_first_reading_at_or_after_a_time),
        cmocka_unit_test(reading_with_an_earlier_time_gets_the_time_of_the_last_one),
        cmocka_unit_test(start_value_is_the_last_reading_of_the_first_second),
        cmocka_unit_test(newest_values_of_a_series_are_maxima_of_the_last_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
