/* Tests simplified memory curves of real programs that earlier rules misjudged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "verdict/one_series.h"

enum { PASS = 75, STEPS = 300 };
static const uint64_t KB = 1000;
/* Returns small deterministic noise from 0 to 700 KB. */
static uint64_t noise(uint64_t i)
{
    return ((i * 2654435761u >> 16) & 7) * 100 * KB;
}

/* Adds one step of 0.15 s that ends with BYTES resident; each epoch ends with a checkpoint and a
 * mark. */
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

/* Memory grew once. In the last steps of each epoch, a data loader releases some memory, which is
 * then allocated again together with KEPT additional bytes that are never released. */
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

static void memory_released_and_reallocated_each_epoch_is_not_growth(void **state)
{
    (void)state;
    feed_dips(0);
    assert_int_equal(r.leak, VERDICT_LEAK_NO);
}

static void growth_at_each_epoch_end_is_judged_stepping(void **state)
{
    (void)state;
    feed_dips(20 * MB);
    assert_int_equal(r.word, VERDICT_STEPPING);
}

/* Memory grows by 2 MB/step in the first epoch and by 1.55 MB/step from then to step LAST, as with
 * an allocator that fills its caches first. */
static void linear_growth_that_is_slower_after_the_epoch_is_a_leak(void **state)
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

/* Growth slows down continuously, with no change at the end of the epoch. */
static void start_up_growth_longer_than_the_first_epoch_is_not_a_leak(void **state)
{
    for (uint64_t last = PASS + 12; last <= STEPS; last += 12) {
        (void)fresh(state);
        for (uint64_t s = 1; s <= last; s++)
            step(s, (uint64_t)(300e6 + 300e6 * (1 - exp(-(double)s / 120))) + noise(s));
        verdict_judge(&v, NULL, &r);
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
    }
}

/* With 0.9 MB/step after the epoch, growth is too slow to be a leak before the second epoch has
 * ended. */
static void growth_that_slows_after_the_first_epoch_is_judged_undecided(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= PASS * 3 / 2; s++)
        step(s, 300 * MB + 2 * MB * s - (s > PASS ? 1100 * KB * (s - PASS) : 0));
    verdict_judge(&v, NULL, &r);
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_true(has_evidence(VERDICT_SAID_TAIL));
    assert_false(has_evidence(VERDICT_SAID_NOISE));
}

/* Memory grows by 1.6 MB/step up to step ENDS, with noise as large as the growth of several steps;
 * LAST is the last step. */
static void feed_noisy(uint64_t last, uint64_t ends)
{
    for (uint64_t s = 1; s <= last; s++)
        step(s, 300 * MB + 1600 * KB * (s < ends ? s : ends) + 15 * noise(s));
    verdict_judge(&v, NULL, &r);
}

static void noisy_growth_beyond_the_first_epoch_is_a_leak(void **state)
{
    for (uint64_t last = PASS * 5 / 4; last <= STEPS; last += 10) {
        (void)fresh(state);
        feed_noisy(last, STEPS);
        assert_int_equal(r.word, VERDICT_LEAKING);
    }
}

/* A data loader reads ahead into the next epoch until it has read all data. */
static void growth_that_ends_soon_after_the_first_epoch_is_not_a_leak(void **state)
{
    for (uint64_t last = PASS; last <= STEPS; last += 5) {
        (void)fresh(state);
        feed_noisy(last, PASS + 8);
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
    }
}

/* At 1 MB/step on top of 600 MB, growth is material after 15 steps; until then, no end of growth is
 * visible. */
static void linear_growth_soon_after_the_first_epoch_may_be_a_leak(void **state)
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

/* Jumps of 8 MB and 3 MB alternate every 10 steps. Two or three jumps alone show no trend, but the
 * first epoch had the same jumps. */
static void pause_between_regular_jumps_is_not_the_end_of_growth(void **state)
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

static void growth_end_is_recognized_8_steps_after_the_first_epoch(void **state)
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
        TEST(memory_released_and_reallocated_each_epoch_is_not_growth),
        TEST(growth_at_each_epoch_end_is_judged_stepping),
        TEST(linear_growth_that_is_slower_after_the_epoch_is_a_leak),
        TEST(start_up_growth_longer_than_the_first_epoch_is_not_a_leak),
        TEST(growth_that_slows_after_the_first_epoch_is_judged_undecided),
        TEST(noisy_growth_beyond_the_first_epoch_is_a_leak),
        TEST(growth_that_ends_soon_after_the_first_epoch_is_not_a_leak),
        TEST(linear_growth_soon_after_the_first_epoch_may_be_a_leak),
        TEST(pause_between_regular_jumps_is_not_the_end_of_growth),
        TEST(growth_end_is_recognized_8_steps_after_the_first_epoch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
