/* Curves that real programs drew and that were once judged wrongly, made small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "verdict/one_series.h"

enum { PASS = 75, STEPS = 300 };
static const uint64_t KB = 1000;
static bool said(enum verdict_evidence_code code)
{
    for (uint32_t i = 0; i < r.n_evidence; i++)
        if (r.evidence[i].code == code)
            return true;
    return false;
}

/* A small deterministic noise, 0 to 700 KB. */
static uint64_t noise(uint64_t i)
{
    return ((i * 2654435761u >> 16) & 7) * 100 * KB;
}

/* One step of 0.15 s that ends with BYTES resident; after each pass a checkpoint and the mark of
 * its end. */
static void step(uint64_t s, uint64_t bytes)
{
    int64_t t = (int64_t)s * SECOND * 3 / 20;

    if (s == 1)
        mark(0, VERDICT_MARK_BEGIN, 0);
    verdict_update(&v, t - 1, bytes);
    mark(t, VERDICT_MARK_STEP, s);
    if (s % PASS == 0) {
        mark(t + 1, VERDICT_MARK_SAVE, s);
        mark(t + 2, VERDICT_MARK_EPOCH, s);
    }
}

/* Memory that grew once; a loader runs dry in the last steps of each pass and gives some back,
 * which is taken again; a little stays, less than counts. With KEPT that much more stays each time.
 */
static void feed_dips(uint64_t kept)
{
    for (uint64_t s = 1; s <= STEPS; s++) {
        uint64_t passes = (s - 1) / PASS, level = 400 * MB + passes * (700 * KB + kept);
        bool is_dry = s % PASS == 0 || s % PASS > PASS - 4;

        if (s < 60)
            level -= 75 * MB;
        step(s, is_dry ? level - 7 * MB + passes * MB : level);
    }
    verdict_judge(&v, NULL, &r);
}

static void a_return_to_a_level_that_was_there_before_is_no_rise(void **state)
{
    (void)state;
    feed_dips(0);
    assert_int_equal(r.leak, VERDICT_LEAK_NO);
}

static void what_stays_beside_such_a_return_is(void **state)
{
    (void)state;
    feed_dips(20 * MB);
    assert_int_equal(r.word, VERDICT_STEPPING);
}

/* 2 MB a step in the first pass and 1.55 afterwards, up to step LAST: an allocator that fills its
 * own caches first. */
static void a_slower_rise_that_is_straight_is_called_soon_after_the_pass(void **state)
{
    static const uint64_t LAST[] = {PASS * 5 / 4, PASS * 3 / 2, PASS * 2, STEPS};

    for (size_t i = 0; i < sizeof LAST / sizeof LAST[0]; i++) {
        (void)fresh(state);
        for (uint64_t s = 1; s <= LAST[i]; s++)
            step(s, 300 * MB + 2 * MB * s - (s > PASS ? 450 * KB * (s - PASS) : 0) + noise(s));
        verdict_judge(&v, NULL, &r);
        assert_int_equal(r.word, VERDICT_LEAKING);
    }
}

/* One curve through the pass and what followed, which slows down all the while. */
static void a_warm_up_that_outlasts_the_pass_is_not(void **state)
{
    for (uint64_t last = PASS + 12; last <= STEPS; last += 12) {
        (void)fresh(state);
        for (uint64_t s = 1; s <= last; s++)
            step(s, (uint64_t)(300e6 + 300e6 * (1 - exp(-(double)s / 120))) + noise(s));
        verdict_judge(&v, NULL, &r);
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
    }
}

/* The same with 0.9 MB after the pass: too slow to be called before a second one has gone by. */
static void what_may_be_the_tail_of_a_pass_is_said_to_be_that(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= PASS * 3 / 2; s++)
        step(s, 300 * MB + 2 * MB * s - (s > PASS ? 1100 * KB * (s - PASS) : 0));
    verdict_judge(&v, NULL, &r);
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_true(said(VERDICT_SAID_TAIL));
    assert_false(said(VERDICT_SAID_NOISE));
}

/* 1.6 MB a step under noise of several steps' growth, up to step LAST; with ENDS only so long. */
static void feed_noisy(uint64_t last, uint64_t ends)
{
    for (uint64_t s = 1; s <= last; s++)
        step(s, 300 * MB + 1600 * KB * (s < ends ? s : ends) + 15 * noise(s));
    verdict_judge(&v, NULL, &r);
}

static void noise_that_hides_the_rise_after_the_pass_does_not_hide_that_all_is_one(void **state)
{
    for (uint64_t last = PASS * 5 / 4; last <= STEPS; last += 10) {
        (void)fresh(state);
        feed_noisy(last, STEPS);
        assert_int_equal(r.word, VERDICT_LEAKING);
    }
}

/* A loader reads some way ahead into the next pass, and then all has been read. */
static void what_ends_a_little_after_the_pass_is_never_called(void **state)
{
    for (uint64_t last = PASS; last <= STEPS; last += 5) {
        (void)fresh(state);
        feed_noisy(last, PASS + 8);
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
    }
}

/* 1 MB a step over 600 MB: what counts takes 15 steps, and that it ended cannot be said before. */
static void that_growth_ended_is_not_said_before_it_could_be_seen(void **state)
{
    (void)state;
    for (uint64_t last = PASS + 6; last <= PASS + 12; last++) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        for (uint64_t s = 1; s <= last; s++)
            step(s, 600 * MB + s * MB);
        verdict_judge(&v, NULL, &r);
        assert_int_not_equal(r.leak, VERDICT_LEAK_NO);
    }
}

/* 8 MB and 3 MB in turns, together every 10 steps: two or three jumps have no shape, but the pass
 * had the same. */
static void nor_where_it_goes_on_in_the_jumps_it_came_in(void **state)
{
    (void)state;
    for (uint64_t last = PASS + 13; last <= PASS + 20; last++) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        for (uint64_t s = 1; s <= last; s++)
            step(s, 50 * MB + (s + 9) / 10 * 8 * MB + (s + 6) / 10 * 3 * MB);
        verdict_judge(&v, NULL, &r);
        assert_int_not_equal(r.leak, VERDICT_LEAK_NO);
    }
}

static void that_it_did_is_said_at_once(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= PASS + 8; s++)
        step(s, 600 * MB + (s < PASS ? s : PASS) * MB);
    verdict_judge(&v, NULL, &r);
    assert_int_equal(r.word, VERDICT_PLATEAUED);
}

#define TEST(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_return_to_a_level_that_was_there_before_is_no_rise),
        TEST(what_stays_beside_such_a_return_is),
        TEST(a_slower_rise_that_is_straight_is_called_soon_after_the_pass),
        TEST(a_warm_up_that_outlasts_the_pass_is_not),
        TEST(what_may_be_the_tail_of_a_pass_is_said_to_be_that),
        TEST(noise_that_hides_the_rise_after_the_pass_does_not_hide_that_all_is_one),
        TEST(what_ends_a_little_after_the_pass_is_never_called),
        TEST(that_growth_ended_is_not_said_before_it_could_be_seen),
        TEST(nor_where_it_goes_on_in_the_jumps_it_came_in),
        TEST(that_it_did_is_said_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
