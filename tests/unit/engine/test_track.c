/* Histories of bounded size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/track.h"

static const uint64_t MIB = 1 << 20;

static void a_constant_series_has_no_growth_and_no_rate(void **state)
{
    struct track t = {0};
    uint64_t first, last;
    double rate = 1;
    (void)state;
    for (uint64_t i = 0; i < 100; i++)
        track_add(&t, i * NS_PER_S, 500 * MIB);
    assert_true(track_floor(&t, &first, &last));
    assert_int_equal(first, 500 * MIB);
    assert_int_equal(last, 500 * MIB);
    assert_true(track_rate(&t, &rate));
    assert_true(fabs(rate) < 1);
    assert_int_equal(track_mean(&t), 500 * MIB);
}

static void a_steady_leak_under_spikes_has_the_rate_of_its_floor(void **state)
{
    struct track t = {0};
    double rate;
    (void)state;
    /* 2 MiB a second, and every reading but one in four is 300 MiB higher */
    for (uint64_t i = 0; i < 3000; i++)
        track_add(&t, i * NS_PER_S / 4, 100 * MIB + i * MIB / 2 + (i % 4 ? 300 * MIB : 0));
    assert_true(track_rate(&t, &rate));
    assert_true(fabs(rate / (120.0 * (double)MIB) - 1) < 0.02);
    assert_int_equal(t.peak_bytes, 100 * MIB + 2999 * MIB / 2 + 300 * MIB);
}

static void a_week_at_ten_hertz_still_fits_and_keeps_its_floor(void **state)
{
    struct track t = {0};
    uint64_t first, last;
    (void)state;
    for (uint64_t i = 0; i < 6048000; i++)
        track_add(&t, i * NS_PER_S / 10, 1000 * MIB + (i * 7919) % (50 * MIB));
    assert_true(t.blocks <= TRACK_BLOCKS && t.blocks >= TRACK_BLOCKS / 2);
    assert_true(track_floor(&t, &first, &last));
    assert_true(first < 1001 * MIB && last < 1001 * MIB);
    assert_int_equal(t.samples, 6048000);
}

static void what_is_given_back_after_the_end_is_not_the_floor(void **state)
{
    struct track t = {0};
    uint64_t first, last;
    double rate;
    (void)state;
    for (uint64_t i = 0; i < 40; i++)
        track_add(&t, i * NS_PER_S, (100 + i) * MIB);
    t.from_ns = NS_PER_S;
    t.until_ns = 39 * NS_PER_S;
    for (uint64_t i = 40; i < 60; i++)
        track_add(&t, i * NS_PER_S, 50 * MIB);
    assert_true(track_floor(&t, &first, &last));
    assert_true(first < 110 * MIB && last > 130 * MIB);
    assert_true(track_rate(&t, &rate));
    assert_true(fabs(rate / (60.0 * (double)MIB) - 1) < 0.02);
    t.until_ns = 0; /* it went on after all */
    assert_true(track_floor(&t, &first, &last));
    assert_int_equal(last, 50 * MIB);
}

static void too_little_gives_no_rate(void **state)
{
    struct track t = {0};
    double rate = 42;
    uint64_t first, last;
    (void)state;
    assert_false(track_rate(&t, &rate));
    assert_false(track_floor(&t, &first, &last));
    assert_int_equal(track_mean(&t), 0);
    for (uint64_t i = 0; i < 7; i++)
        track_add(&t, i * NS_PER_S, i * MIB);
    assert_false(track_rate(&t, &rate));
    assert_true(rate == 42);
}

static void time_that_goes_back_is_taken_as_standing_still(void **state)
{
    struct track t = {0};
    (void)state;
    track_add(&t, 10 * NS_PER_S, MIB);
    track_add(&t, 5 * NS_PER_S, 2 * MIB);
    assert_int_equal(t.last_ns, 10 * NS_PER_S);
    assert_int_equal(t.last_bytes, 2 * MIB);
}

static void the_newest_readings_come_out_oldest_first(void **state)
{
    struct track t = {0};
    uint64_t recent[TRACK_RECENT];
    (void)state;
    for (uint64_t i = 0; i < 100; i++)
        track_add(&t, i * NS_PER_S, i);
    assert_int_equal(track_recent(&t, recent), TRACK_RECENT);
    assert_int_equal(recent[0], 100 - TRACK_RECENT);
    assert_int_equal(recent[TRACK_RECENT - 1], 99);
}

static void a_peak_between_ticks_counts(void **state)
{
    struct track t = {0};
    (void)state;
    track_add(&t, NS_PER_S, 10 * MIB);
    track_raise_peak(&t, 77 * MIB);
    track_raise_peak(&t, 5 * MIB);
    assert_int_equal(t.peak_bytes, 77 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_constant_series_has_no_growth_and_no_rate),
        cmocka_unit_test(a_steady_leak_under_spikes_has_the_rate_of_its_floor),
        cmocka_unit_test(a_week_at_ten_hertz_still_fits_and_keeps_its_floor),
        cmocka_unit_test(what_is_given_back_after_the_end_is_not_the_floor),
        cmocka_unit_test(too_little_gives_no_rate),
        cmocka_unit_test(time_that_goes_back_is_taken_as_standing_still),
        cmocka_unit_test(the_newest_readings_come_out_oldest_first),
        cmocka_unit_test(a_peak_between_ticks_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
