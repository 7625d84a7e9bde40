/* Tests growth at call sites: memory that is never freed, temporary batches, sampling error, and
 * growth per unit of work. */
#include "profile/held.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

static const double MB = 1e6;
enum { READINGS = 24, EVERY_S = 2, SITES = 4, EPOCH = 12 }; /* there is one step per reading */
enum { LOADED = 1, BATCHES = 2, KEPT = 3 };                 /* Site numbers; 0 means no site. */

/* Describes 48 s of a process that has 200 MB of live memory from its start. */
struct history {
    struct profile profile;
    struct profile_reading readings[READINGS];
    struct profile_held held[READINGS][SITES - 1];
};

static struct profile_held *site_at(struct history *h, int reading, uint32_t site)
{
    return &h->held[reading][site - 1];
}

static void begin(struct history *h)
{
    memset(h, 0, sizeof *h);
    h->profile = (struct profile){.pid = 7,
                                  .start_ns = 100 * NS_PER_S,
                                  .n_sites = SITES,
                                  .readings = h->readings,
                                  .n_readings = READINGS};
    for (int i = 0; i < READINGS; i++) {
        h->readings[i] =
            (struct profile_reading){.t_ns = (uint64_t)(100 + EVERY_S * (i + 1)) * NS_PER_S,
                                     .has_step = true,
                                     .step = i,
                                     .held = h->held[i],
                                     .count = SITES - 1};
        for (uint32_t site = 1; site < SITES; site++)
            site_at(h, i, site)->site = site;
        *site_at(h, i, LOADED) = (struct profile_held){.site = LOADED,
                                                       .live_bytes = 200 * MB,
                                                       .live_variance = 400 * MB * MB,
                                                       .allocated_bytes = 200 * MB};
    }
}

/* Sets SITE at reading I: BYTES are live, with a standard deviation of DEVIATION, and FREED bytes
 * have been freed. */
static void hold(struct history *h, int i, uint32_t site, double bytes, double freed,
                 double deviation)
{
    *site_at(h, i, site) = (struct profile_held){.site = site,
                                                 .live_bytes = bytes,
                                                 .live_variance = deviation * deviation,
                                                 .allocated_bytes = bytes + freed,
                                                 .freed_bytes = freed};
}

/* Adds batches of 20 to 90 MB that are freed later. */
static void come_and_go(struct history *h)
{
    for (int i = 0; i < READINGS; i++)
        hold(h, i, BATCHES, (20 + ((unsigned)i * 2654435761u >> 16) % 70) * MB, (i + 1) * 500 * MB,
             8 * MB);
}

static struct model_sites sites_of(struct history *h)
{
    struct model_sites s;
    held_sites(&h->profile, READINGS, &(struct held_window){.epoch_end = EPOCH}, &s);
    assert_true(s.known);
    return s;
}

static void growth_includes_unfreed_memory_but_not_temporary_batches(void **state)
{
    struct history h;
    (void)state;
    begin(&h);
    come_and_go(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, i * 1.5 * MB, 0, 1 * MB);
    struct model_sites s = sites_of(&h);
    assert_true(s.grown > 15 * MB && s.grown < 20 * MB); /* half of 35 MB */
    assert_true(s.grown_late > 0.4 * s.grown);
    assert_true(s.kept.known && s.kept.growth > 30 * MB);
    assert_true(s.kept.lasting > 0 && s.kept.sixth > 0.8);
    assert_true(s.settled.known && s.settled.growth > 20 * MB);
}

static void temporary_batches_alone_are_not_growth(void **state)
{
    struct history h;
    (void)state;
    begin(&h);
    come_and_go(&h);
    struct model_sites s = sites_of(&h);
    assert_true(s.grown == 0);
    assert_true(s.kept.growth < 1 * MB);
}

static void cache_that_fills_early_does_not_grow_in_the_second_half(void **state)
{
    struct history h;
    (void)state;
    begin(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, (i < 8 ? i : 8) * 5 * MB, 0, 1 * MB);
    struct model_sites s = sites_of(&h);
    assert_true(s.grown == 0);
    assert_true(s.kept.sixth < 0.1);
}

static void growth_below_the_sampling_error_is_ignored(void **state)
{
    struct history h;
    (void)state;
    begin(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, 20 * MB + i * 0.1 * MB, 0, 9 * MB);
    assert_true(sites_of(&h).grown == 0);
}

static void growth_per_allocated_byte_is_constant_if_work_slows_down(void **state)
{
    struct history h;
    (void)state;
    begin(&h);
    for (int i = 0; i < READINGS; i++) { /* In the second half of the run, the same work takes three
                                            times as long as before. */
        double work = i < READINGS / 2 ? i : READINGS / 2 + (i - READINGS / 2) / 3.0;
        hold(&h, i, KEPT, work * 2 * MB, 0, 0.1 * MB);
        hold(&h, i, BATCHES, 30 * MB, (1 + work) * 300 * MB, 8 * MB);
    }
    struct model_sites s = sites_of(&h);
    assert_true(s.kept.third < 0.7);
    assert_true(s.by_work.third > 0.9 && s.by_work.third < 1.1);
}

static void growth_that_continues_after_first_epoch_counts_as_sustained(void **state)
{
    struct history h;
    (void)state;
    begin(&h);
    come_and_go(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, i * 2 * MB, 0, 0);
    struct model_sites s = sites_of(&h);
    assert_true(fabs(s.sustained - EPOCH * 2 * MB) < 1);
    assert_true(s.slowed < 1);
}

static void cache_filled_in_first_epoch_is_counted_as_slowed_growth(void **state)
{
    struct history h;
    (void)state;
    begin(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, (i < EPOCH ? i : EPOCH) * 2 * MB, 0, 0);
    struct model_sites s = sites_of(&h);
    assert_true(s.sustained < 1);
    assert_true(fabs(s.slowed - EPOCH * 2 * MB) < 1);
}

static void growth_is_not_split_by_epoch_if_the_epoch_end_is_unknown(void **state)
{
    struct history h;
    struct model_sites s;
    (void)state;
    begin(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, i * 2 * MB, 0, 0);
    held_sites(&h.profile, READINGS, &(struct held_window){.until_ns = UINT64_MAX}, &s);
    assert_true(s.known && s.sustained == 0 && s.slowed == 0);
}

static void growth_of_call_sites_is_unknown_with_only_four_heap_readings(void **state)
{
    struct history h;
    struct model_sites s;
    size_t count = 1;
    (void)state;
    begin(&h);
    const struct held_window all = {.until_ns = UINT64_MAX};
    held_sites(&h.profile, 4, &all, &s);
    assert_false(s.known);
    free(held_read("/nowhere/at/all", &all, &count));
    assert_int_equal(count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_includes_unfreed_memory_but_not_temporary_batches),
        cmocka_unit_test(temporary_batches_alone_are_not_growth),
        cmocka_unit_test(cache_that_fills_early_does_not_grow_in_the_second_half),
        cmocka_unit_test(growth_below_the_sampling_error_is_ignored),
        cmocka_unit_test(growth_per_allocated_byte_is_constant_if_work_slows_down),
        cmocka_unit_test(growth_that_continues_after_first_epoch_counts_as_sustained),
        cmocka_unit_test(cache_filled_in_first_epoch_is_counted_as_slowed_growth),
        cmocka_unit_test(growth_is_not_split_by_epoch_if_the_epoch_end_is_unknown),
        cmocka_unit_test(growth_of_call_sites_is_unknown_with_only_four_heap_readings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
