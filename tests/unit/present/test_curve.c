/* Long series made short: what must not be lost. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "present/curve.h"

static size_t points(const struct curve *curve, struct curve_point **ret)
{
    *ret = calloc(curve_room(curve), sizeof **ret);
    assert_non_null(*ret);
    size_t n = curve_points(curve, *ret);
    assert_true(n <= curve_room(curve));
    return n;
}

static void a_short_series_stays_as_it_is(void **state)
{
    struct curve curve;
    struct curve_point *p;
    (void)state;
    curve_init(&curve, 100);
    for (int i = 0; i < 100; i++)
        curve_add(&curve, i, (i * 37) % 100);
    size_t n = points(&curve, &p);
    assert_int_equal(n, 100);
    for (int i = 0; i < 100; i++) {
        assert_true(p[i].t == i);
        assert_true(p[i].v == (i * 37) % 100);
    }
    free(p);
    curve_fini(&curve);
}

static void one_reading_is_one_point_and_none_is_none(void **state)
{
    struct curve curve;
    struct curve_point *p;
    (void)state;
    curve_init(&curve, 4);
    assert_int_equal(points(&curve, &p), 0);
    free(p);
    curve_add(&curve, 3, 7);
    assert_int_equal(points(&curve, &p), 1);
    assert_true(p[0].t == 3 && p[0].v == 7);
    free(p);
    curve_fini(&curve);
}

static void no_spike_and_no_dip_of_a_long_series_is_lost(void **state)
{
    enum { READINGS = 100000, MOST = 200 };
    struct curve curve;
    struct curve_point *p;
    (void)state;
    for (int at = 1; at < READINGS; at += 7919) {
        double least = 1e9, greatest = 0;
        curve_init(&curve, MOST);
        for (int i = 0; i < READINGS; i++)
            curve_add(&curve, i, i == at ? 9000 : i == READINGS - at ? 1 : 1000 + i % 3);
        size_t n = points(&curve, &p);
        assert_true(n <= MOST + 2);
        assert_true(p[0].t == 0 && p[n - 1].t == READINGS - 1);
        for (size_t i = 0; i < n; i++) {
            least = fmin(least, p[i].v);
            greatest = fmax(greatest, p[i].v);
            assert_true(i == 0 || p[i].t >= p[i - 1].t);
            assert_true(p[i].v != 9000 || p[i].t == at);
        }
        assert_true(greatest == 9000 && least == 1);
        free(p);
        curve_fini(&curve);
    }
}

static void what_is_no_number_is_passed_over(void **state)
{
    struct curve curve;
    struct curve_point *p;
    (void)state;
    curve_init(&curve, 4);
    curve_add(&curve, 0, (double)NAN);
    curve_add(&curve, (double)INFINITY, 1);
    curve_add(&curve, 1, -(double)INFINITY);
    curve_add(&curve, 2, 5);
    assert_int_equal(points(&curve, &p), 1);
    assert_true(p[0].t == 2 && p[0].v == 5);
    free(p);
    curve_fini(&curve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_series_stays_as_it_is),
        cmocka_unit_test(one_reading_is_one_point_and_none_is_none),
        cmocka_unit_test(no_spike_and_no_dip_of_a_long_series_is_lost),
        cmocka_unit_test(what_is_no_number_is_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
