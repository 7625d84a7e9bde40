/* Whether what a process held grew to the end: what is kept, what comes and goes, and chance. */
#include "profile/held.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

static const double MB = 1e6;
enum { READINGS = 24, EVERY_S = 2, SITES = 4 };
enum { LOADED = 1, BATCHES = 2, KEPT = 3 }; /* the sites, 0 is none */

/* Forty-eight seconds of a process that holds 200 MB from its start. */
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

/* At reading I, SITE holds BYTES, has let go of FREED, and its samples have DEVIATION. */
static void hold(struct history *h, int i, uint32_t site, double bytes, double freed,
                 double deviation)
{
    *site_at(h, i, site) = (struct profile_held){.site = site,
                                                 .live_bytes = bytes,
                                                 .live_variance = deviation * deviation,
                                                 .allocated_bytes = bytes + freed,
                                                 .freed_bytes = freed};
}

/* Batches of 20 to 90 MB come and go. */
static void come_and_go(struct history *h)
{
    for (int i = 0; i < READINGS; i++)
        hold(h, i, BATCHES, (20 + ((unsigned)i * 2654435761u >> 16) % 70) * MB, (i + 1) * 500 * MB,
             8 * MB);
}

static void what_is_kept_is_seen_beside_what_comes_and_goes(void **state)
{
    struct history h;
    struct verdict_held grown;
    (void)state;
    begin(&h);
    come_and_go(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, i * 1.5 * MB, 0, 1 * MB);
    assert_true(held_grew(&h.profile, &grown));
    assert_int_equal(grown.result.word, VERDICT_LEAKING);
    assert_true(grown.result.confidence <= 0.65);
    assert_true(grown.growth_bytes > 25 * MB && grown.growth_bytes < 40 * MB);
    /* What was loaded is in the same samples at both ends: it is no part of the chance. */
    assert_true(grown.chance_bytes < 2 * MB);
    assert_true(grown.result.rate_bytes_per_min.low < 46 * MB &&
                grown.result.rate_bytes_per_min.high > 44 * MB);
}

static void few_equal_stairs_are_enough(void **state)
{
    struct history h;
    struct verdict_held grown;
    (void)state;
    begin(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, i / 4 * 20 * MB, 0, 1 * MB);
    assert_true(held_grew(&h.profile, &grown));
}

/* What was read is made into something else, which is kept instead. */
static void what_goes_from_one_place_to_another_does_not_grow(void **state)
{
    struct history h;
    struct verdict_held grown;
    (void)state;
    begin(&h);
    for (int i = 0; i < READINGS; i++) {
        hold(&h, i, KEPT, i * 5 * MB, 0, 1 * MB);
        hold(&h, i, BATCHES, (READINGS - i) * 5 * MB, i * 5 * MB, 1 * MB);
    }
    assert_false(held_grew(&h.profile, &grown));
}

/* What grows more and more slowly is no even growth, wherever its start is cut off. */
static void what_bends_is_not_called_even(void **state)
{
    struct history h;
    struct verdict_held grown;
    (void)state;
    begin(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, log1p(i) * 50 * MB, 0, 1 * MB);
    assert_false(held_grew(&h.profile, &grown));
}

/* Nor is it where what comes and goes hides the bend. */
static void what_comes_and_goes_does_not_make_a_bend_even(void **state)
{
    struct history h;
    struct verdict_held grown;
    (void)state;
    begin(&h);
    for (int i = 0; i < READINGS; i++) {
        hold(&h, i, KEPT, sqrt(i) * 30 * MB, 0, 1 * MB);
        hold(&h, i, BATCHES, (10 + 0.1 * i * i) * MB, (i + 1) * 500 * MB, 1 * MB);
    }
    assert_false(held_grew(&h.profile, &grown));
}

/* From the middle on batches are kept; what is held shows it before resident memory would. */
static void what_begins_to_grow_late_must_grow_for_nearly_half_of_the_time(void **state)
{
    struct history h;
    struct verdict_held grown;
    (void)state;
    for (int from = 10; from <= 16; from += 6) {
        begin(&h);
        for (int i = 0; i < READINGS; i++)
            hold(&h, i, KEPT, (i < from ? 0 : i - from) * 9 * MB, 0, 1 * MB);
        assert_int_equal(held_grew(&h.profile, &grown), from == 10);
    }
}

static void what_was_filled_has_ended(void **state)
{
    struct history h;
    struct verdict_held grown;
    (void)state;
    begin(&h);
    come_and_go(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, (i < 14 ? i : 14) * 5 * MB, 0, 1 * MB);
    assert_false(held_grew(&h.profile, &grown));
}

static void little_growth_is_none(void **state)
{
    struct history h;
    struct verdict_held grown;
    (void)state;
    begin(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, i * 0.4 * MB, 0, 0.1 * MB);
    assert_false(held_grew(&h.profile, &grown));
}

/* A start-up of a third of the time takes ten times as much, and is over. */
static void what_grows_after_a_long_start_up_is_not_hidden_by_it(void **state)
{
    struct history h;
    struct verdict_held grown;
    (void)state;
    for (double pace = 2; pace > 0; pace -= 1.2) {
        begin(&h);
        for (int i = 0; i < READINGS; i++) {
            hold(&h, i, BATCHES, (i < 8 ? i * i * i * 0.4 : 8 * 8 * 8 * 0.4) * MB, 0, 5 * MB);
            hold(&h, i, KEPT, (i < 7 ? 0 : i - 7) * pace * MB, 0, 0.5 * MB);
        }
        assert_int_equal(held_grew(&h.profile, &grown), pace > 1);
        if (pace < 1) /* too little of all */
            continue;
        assert_int_equal(grown.result.word, VERDICT_LEAKING);
        assert_true(grown.growth_bytes > 28 * MB && grown.growth_bytes < 36 * MB);
        assert_true(grown.from_ns >= 114 * (int64_t)NS_PER_S); /* not since the start-up began */
        assert_true(grown.chance_bytes < 1 * MB);
    }
}

/* A buffer whose oldest goes when a new one comes holds the same; its samples are drawn anew all
 * the time, and may drift. */
static void what_is_drawn_anew_has_the_chance_of_both_ends(void **state)
{
    struct history h;
    struct verdict_held grown;
    (void)state;
    begin(&h);
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, (100 + i * 1.5) * MB, (i + 1) * 30 * MB, 12 * MB);
    assert_true(held_grew(&h.profile, &grown));
    assert_true(grown.chance_bytes > 15 * MB && grown.chance_bytes < 18 * MB);
    assert_true(grown.growth_bytes < 3 * grown.chance_bytes);
}

static void readings_of_its_exit_do_not_count(void **state)
{
    struct history h;
    struct verdict_held grown;
    (void)state;
    begin(&h);
    h.profile.is_ended = true;
    for (int i = 0; i < READINGS; i++)
        hold(&h, i, KEPT, i * 5 * MB, 0, 1 * MB);
    hold(&h, READINGS - 1, KEPT, 0, 115 * MB, 0);
    assert_true(held_grew(&h.profile, &grown));
    assert_true(grown.growth_bytes > 80 * MB);
}

static void a_process_that_was_never_read_holds_nothing(void **state)
{
    struct profile none = {.pid = 7};
    struct verdict_held grown;
    size_t count = 1;
    (void)state;
    assert_false(held_grew(&none, &grown));
    assert_null(held_read("/nowhere/at/all", &count));
    assert_int_equal(count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_is_seen_beside_what_comes_and_goes),
        cmocka_unit_test(few_equal_stairs_are_enough),
        cmocka_unit_test(what_goes_from_one_place_to_another_does_not_grow),
        cmocka_unit_test(what_bends_is_not_called_even),
        cmocka_unit_test(what_comes_and_goes_does_not_make_a_bend_even),
        cmocka_unit_test(what_begins_to_grow_late_must_grow_for_nearly_half_of_the_time),
        cmocka_unit_test(what_was_filled_has_ended),
        cmocka_unit_test(little_growth_is_none),
        cmocka_unit_test(what_grows_after_a_long_start_up_is_not_hidden_by_it),
        cmocka_unit_test(what_is_drawn_anew_has_the_chance_of_both_ends),
        cmocka_unit_test(readings_of_its_exit_do_not_count),
        cmocka_unit_test(a_process_that_was_never_read_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
