/* Tests uneven growth of resident memory that is explained by malloc's counts of live and retained
 * memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "verdict/one_series.h"

static struct verdict_series in_use, spare;
static struct verdict_result live;

enum { STEPS = 160, PASS = 40 };

static void read_step(struct verdict_series *s, uint64_t step, uint64_t bytes)
{
    int64_t t = (int64_t)step * SECOND / 4;
    const struct verdict_mark end = {.kind = VERDICT_MARK_STEP, .has_step = true, .step = step};
    const struct verdict_mark epoch = {.kind = VERDICT_MARK_EPOCH, .has_step = true, .step = step};

    verdict_update(s, t - 1, bytes);
    verdict_mark(s, t, &end);
    if (step % PASS == 0)
        verdict_mark(s, t + 1, &epoch);
}

/* Memory grows in jumps that are too rare for a straight line or a curve to fit, as when an
 * allocator maps another chunk. */
static uint64_t jumps(uint64_t step)
{
    return (step > 50 ? 14 : 0) * MB + (step > 95 ? 23 : 0) * MB + (step > 118 ? 16 : 0) * MB +
           (step > 142 ? 18 : 0) * MB;
}

/* malloc retains SPARE_OF_TEN tenths of the jumps as free memory. The live heap grows until the
 * epoch ends, and then by LIVE_PER_STEP per step. The verdict on resident memory is set to
 * undecided, so that the live heap has to decide. */
static void run(uint64_t spare_of_ten, uint64_t live_per_step)
{
    assert_int_equal(verdict_init(&in_use, NULL), 0);
    assert_int_equal(verdict_init(&spare, NULL), 0);
    for (uint64_t s = 1; s <= STEPS; s++) {
        uint64_t used = 200 * MB + (s < PASS ? s : PASS) * MB / 4 + s * live_per_step;

        read_step(&v, s, used + 100 * MB + jumps(s) + s % 3 * MB / 10);
        read_step(&in_use, s, used);
        read_step(&spare, s, 20 * MB + spare_of_ten * jumps(s) / 10);
    }
    verdict_judge(&v, NULL, &r);
    r.word = VERDICT_UNDECIDED;
    r.leak = VERDICT_LEAK_UNKNOWN;
    verdict_judge(&in_use, NULL, &live);
}

static void apply_figures(void)
{
    verdict_apply_free(&r, &v, &live, &in_use, &spare);
}

static void growth_retained_by_the_allocator_is_judged_plateaued(void **state)
{
    char text[VERDICT_TEXT_MAX];

    (void)state;
    run(10, 0);
    apply_figures();
    assert_int_equal(r.word, VERDICT_PLATEAUED);
    assert_int_equal(r.leak, VERDICT_LEAK_NO);
    assert_true(r.confidence <= 0.7);
    assert_false(r.oom.known);
    verdict_evidence_text(text, sizeof text, &r.evidence[0]);
    assert_non_null(strstr(text, "the live heap stopped growing"));
}

/* malloc's counts exclude small Python objects and mappings. */
static void growth_outside_the_allocator_keeps_the_verdict_undecided(void **state)
{
    (void)state;
    run(10, 0);
    assert_true(verdict_outside_heap(&v, &in_use, &spare) < 0.1);
    fresh(state);
    run(3, 0);
    assert_true(verdict_outside_heap(&v, &in_use, &spare) > 0.5);
    apply_figures();
    assert_int_equal(r.word, VERDICT_UNDECIDED);
}

static void growth_of_the_live_heap_keeps_the_verdict_undecided(void **state)
{
    (void)state;
    run(10, MB);
    apply_figures();
    assert_int_equal(r.word, VERDICT_UNDECIDED);
}

static void leak_becomes_undecided_if_the_allocator_retains_the_growth(void **state)
{
    (void)state;
    run(10, 0);
    r.word = VERDICT_LEAKING;
    r.leak = VERDICT_LEAK_YES;
    r.alarm = true;
    apply_figures();
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_int_equal(r.leak, VERDICT_LEAK_UNKNOWN);
    assert_false(r.alarm);
}

/* With few readings, the slope of the live heap is uncertain although it is level. */
static void live_heap_with_an_uncertain_slope_is_treated_as_flat(void **state)
{
    (void)state;
    run(10, 0);
    live.rate_bytes_per_step.value = 0.1 * r.rate_bytes_per_step.value;
    live.rate_bytes_per_step.high = 0.3 * r.rate_bytes_per_step.value;
    apply_figures();
    assert_int_equal(r.word, VERDICT_PLATEAUED);
}

static void allocator_counts_do_not_change_a_decided_verdict(void **state)
{
    (void)state;
    run(10, 0);
    r.word = VERDICT_STABLE;
    r.leak = VERDICT_LEAK_NO;
    apply_figures();
    assert_int_equal(r.word, VERDICT_STABLE);
}

#define TEST(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(growth_retained_by_the_allocator_is_judged_plateaued),
        TEST(growth_outside_the_allocator_keeps_the_verdict_undecided),
        TEST(growth_of_the_live_heap_keeps_the_verdict_undecided),
        TEST(leak_becomes_undecided_if_the_allocator_retains_the_growth),
        TEST(live_heap_with_an_uncertain_slope_is_treated_as_flat),
        TEST(allocator_counts_do_not_change_a_decided_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
