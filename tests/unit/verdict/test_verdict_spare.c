/* What malloc knows of resident memory that rises unevenly: in use, or free and kept. */
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

/* Jumps that come too rarely to have a shape, as of an allocator that takes another piece. */
static uint64_t jumps(uint64_t step)
{
    return (step > 50 ? 14 : 0) * MB + (step > 95 ? 23 : 0) * MB + (step > 118 ? 16 : 0) * MB +
           (step > 142 ? 18 : 0) * MB;
}

/* Of those jumps so many tenths are what malloc has got back and keeps; what is in use rises until
 * the pass ends, and by LIVE_A_STEP for good. Resident memory is left undecided, whatever is said
 * of jumps like these. */
static void run(uint64_t spare_of_ten, uint64_t live_a_step)
{
    assert_int_equal(verdict_init(&in_use, NULL), 0);
    assert_int_equal(verdict_init(&spare, NULL), 0);
    for (uint64_t s = 1; s <= STEPS; s++) {
        uint64_t used = 200 * MB + (s < PASS ? s : PASS) * MB / 4 + s * live_a_step;

        read_step(&v, s, used + 100 * MB + jumps(s) + s % 3 * MB / 10);
        read_step(&in_use, s, used);
        read_step(&spare, s, 20 * MB + spare_of_ten * jumps(s) / 10);
    }
    verdict_judge(&v, NULL, &r);
    r.word = VERDICT_UNDECIDED;
    r.leak = VERDICT_LEAK_UNKNOWN;
    verdict_judge(&in_use, NULL, &live);
}

static void hear(void)
{
    verdict_apply_free(&r, &v, &live, &in_use, &spare);
}

static void what_malloc_keeps_is_no_open_question(void **state)
{
    char text[VERDICT_TEXT_MAX];

    (void)state;
    run(10, 0);
    hear();
    assert_int_equal(r.word, VERDICT_PLATEAUED);
    assert_int_equal(r.leak, VERDICT_LEAK_NO);
    assert_true(r.confidence <= 0.7);
    assert_false(r.oom.known);
    verdict_evidence_text(text, sizeof text, &r.evidence[0]);
    assert_non_null(strstr(text, "what is in use stands"));
}

/* Small objects of Python, or mappings: malloc does not know of them. */
static void what_malloc_does_not_know_stays_open(void **state)
{
    (void)state;
    run(3, 0);
    hear();
    assert_int_equal(r.word, VERDICT_UNDECIDED);
}

static void what_is_in_use_must_stand(void **state)
{
    (void)state;
    run(10, MB);
    hear();
    assert_int_equal(r.word, VERDICT_UNDECIDED);
}

static void a_leak_of_memory_that_nobody_uses_is_open(void **state)
{
    (void)state;
    run(10, 0);
    r.word = VERDICT_LEAKING;
    r.leak = VERDICT_LEAK_YES;
    r.alarm = true;
    hear();
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_int_equal(r.leak, VERDICT_LEAK_UNKNOWN);
    assert_false(r.alarm);
}

/* Few readings leave the slope of what is in use wide, though it is known to stand. */
static void what_is_in_use_stands_by_its_slope_however_wide(void **state)
{
    (void)state;
    run(10, 0);
    live.rate_bytes_per_step.value = 0.1 * r.rate_bytes_per_step.value;
    live.rate_bytes_per_step.high = 0.3 * r.rate_bytes_per_step.value;
    hear();
    assert_int_equal(r.word, VERDICT_PLATEAUED);
}

static void what_was_decided_to_be_none_stays(void **state)
{
    (void)state;
    run(10, 0);
    r.word = VERDICT_STABLE;
    r.leak = VERDICT_LEAK_NO;
    hear();
    assert_int_equal(r.word, VERDICT_STABLE);
}

#define TEST(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_malloc_keeps_is_no_open_question),
        TEST(what_malloc_does_not_know_stays_open),
        TEST(what_is_in_use_must_stand),
        TEST(a_leak_of_memory_that_nobody_uses_is_open),
        TEST(what_is_in_use_stands_by_its_slope_however_wide),
        TEST(what_was_decided_to_be_none_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
