/* Tests that growth at events is distinguished from growth between events, even with few
 * readings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "verdict/one_series.h"

struct program {
    uint64_t steps, pass, eval_every; /* eval_every is 0 if there are no evaluations */
    unsigned reads; /* number of steps, of 0.15 s each, from one reading to the next */
    uint64_t (*bytes)(uint64_t step);
};

static void run(struct program p)
{
    mark(0, VERDICT_MARK_BEGIN, 0);
    for (uint64_t s = 1; s <= p.steps; s++) {
        int64_t t = (int64_t)s * SECOND * 3 / 20;

        if (s % p.reads == 0)
            verdict_update(&v, t - 1, p.bytes(s));
        mark(t, VERDICT_MARK_STEP, s);
        if (p.eval_every && s % p.eval_every == 0)
            mark(t + 1, VERDICT_MARK_EVAL, s);
        if (s % p.pass == 0)
            mark(t + 2, VERDICT_MARK_EPOCH, s);
    }
    verdict_judge(&v, NULL, &r);
}

/* Forked workers copy shared pages by writing to them, until all pages are copied. */
static uint64_t copies(uint64_t step)
{
    return 570 * MB + (uint64_t)(270e6 * (1 - exp(-(double)step / 90)));
}

static uint64_t even(uint64_t step)
{
    return 500 * MB + step * MB;
}

static uint64_t at_evaluations(uint64_t step)
{
    return 500 * MB + (step - 1) / 20 * 16 * MB;
}

/* Memory grows at evaluations, but a garbage collection at step 165 frees the growth. */
static uint64_t collected(uint64_t step)
{
    return at_evaluations(step < 165 ? step : step - 160);
}

/* The first evaluation adds 40 MB, and each later one adds two thirds of the previous jump. */
static uint64_t settles(uint64_t step)
{
    double held = 0, jump = 40e6;

    for (uint64_t at = 21; at <= step; at += 20, jump *= 0.67)
        held += jump;
    return 500 * MB + (uint64_t)held;
}

/* Each evaluation allocates memory in two parts, the second one a step after the mark. */
static uint64_t in_two_parts(uint64_t step)
{
    return at_evaluations(step) - (step > 20 && step % 20 == 1 ? 11 * MB : 0);
}

/* Every second evaluation also leaves garbage that is freed after five steps. */
static uint64_t with_garbage(uint64_t step)
{
    bool is_second = (step - 1) / 20 % 2 == 1;

    return at_evaluations(step) + (is_second && (step - 1) % 20 < 5 ? 40 * MB : 0);
}

/* The fourth evaluation retains five times as much memory as each of the others. */
static uint64_t one_is_large(uint64_t step)
{
    return at_evaluations(step) + (step > 80 ? 64 * MB : 0);
}

/* There is no noise. Each evaluation adds 100 KB, except the fifth and sixth, which add 30 MB
 * each. */
static uint64_t two_and_crumbs(uint64_t step)
{
    uint64_t n = (step - 1) / 20;

    return 500 * MB + n * MB / 10 + (n >= 5 ? 30 * MB : 0) + (n >= 6 ? 30 * MB : 0);
}

/* Only the second, third and fourth epoch of 60 steps add memory, like a training schedule with
 * longer texts. */
static uint64_t three_epochs(uint64_t step)
{
    uint64_t n = (step - 1) / 60;

    return 500 * MB + (n < 3 ? n : 3) * 40 * MB;
}

static uint64_t each_epoch(uint64_t step)
{
    return 500 * MB + (step - 1) / 60 * 40 * MB;
}

/* At some evaluations, the retained memory fits into free blocks of the heap. */
static uint64_t uneven(uint64_t step)
{
    static const uint64_t JUMPS[] = {12, 0, 20, 15, 6, 10, 23, 0, 7, 8, 22, 9, 0, 5, 10, 12};
    uint64_t held = 0;

    for (uint64_t k = 0; k < (step - 1) / 20; k++)
        held += JUMPS[k % (sizeof(JUMPS) / sizeof(JUMPS[0]))];
    return 500 * MB + held * MB;
}

/* Memory jumps every 23 steps by about as much as at an evaluation; one jump in five coincides with
 * an evaluation. */
static uint64_t in_pieces(uint64_t step)
{
    return 500 * MB + step / 23 * 16 * MB;
}

static void growth_that_flattens_is_not_judged_a_leak(void **state)
{
    (void)state;
    run((struct program){.steps = 241, .pass = 60, .reads = 7, .bytes = copies});
    assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
}

static void steady_growth_over_few_epochs_is_judged_leaking_not_stepping(void **state)
{
    static const unsigned READS[] = {2, 4, 6, 7};

    (void)state;
    for (size_t i = 0; i < sizeof(READS) / sizeof(READS[0]); i++) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        run((struct program){.steps = 246, .pass = 60, .reads = READS[i], .bytes = even});
        assert_int_equal(r.word, VERDICT_LEAKING);
    }
}

static void growth_at_evaluations_3_readings_apart_is_judged_stepping(void **state)
{
    (void)state;
    run((struct program){
        .steps = 200, .pass = 60, .eval_every = 20, .reads = 6, .bytes = at_evaluations});
    assert_int_equal(r.word, VERDICT_STEPPING);
    assert_int_equal(r.event, VERDICT_MARK_EVAL);
}

static void steady_growth_between_evaluations_is_judged_leaking(void **state)
{
    (void)state;
    run((struct program){.steps = 200, .pass = 60, .eval_every = 20, .reads = 6, .bytes = even});
    assert_int_equal(r.word, VERDICT_LEAKING);
}

static void growth_at_evaluations_1_reading_apart_is_not_judged_stepping(void **state)
{
    (void)state;
    run((struct program){
        .steps = 400, .pass = 60, .eval_every = 20, .reads = 20, .bytes = at_evaluations});
    assert_int_not_equal(r.word, VERDICT_STEPPING);
}

static void jumps_freed_by_garbage_collection_are_not_judged_stepping(void **state)
{
    (void)state;
    run((struct program){
        .steps = 330, .pass = 60, .eval_every = 20, .reads = 2, .bytes = collected});
    assert_int_not_equal(r.word, VERDICT_STEPPING);
}

static void shrinking_jumps_at_evaluations_are_not_judged_stepping(void **state)
{
    (void)state;
    for (uint64_t steps = 70; steps <= 240; steps += 10) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        run((struct program){
            .steps = steps, .pass = 60, .eval_every = 20, .reads = 2, .bytes = settles});
        assert_int_not_equal(r.word, VERDICT_STEPPING);
    }
}

/* Checks that the verdict is stepping at every step from FROM on. */
static void assert_stepping_from(uint64_t (*bytes)(uint64_t), uint64_t from)
{
    for (uint64_t steps = from; steps <= 240; steps++) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        run((struct program){
            .steps = steps, .pass = 60, .eval_every = 20, .reads = 1, .bytes = bytes});
        assert_int_equal(r.word, VERDICT_STEPPING);
    }
}

static void memory_added_one_step_after_evaluations_is_judged_stepping(void **state)
{
    (void)state;
    assert_stepping_from(in_two_parts, 64);
}

static void garbage_freed_after_evaluations_keeps_the_stepping_verdict(void **state)
{
    (void)state;
    assert_stepping_from(with_garbage, 84);
}

static void one_large_jump_among_equal_jumps_keeps_the_stepping_verdict(void **state)
{
    (void)state;
    assert_stepping_from(one_is_large, 124);
}

static void two_large_jumps_among_tiny_ones_are_not_judged_stepping(void **state)
{
    (void)state;
    for (uint64_t steps = 64; steps <= 240; steps += 3) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        run((struct program){
            .steps = steps, .pass = 60, .eval_every = 20, .reads = 1, .bytes = two_and_crumbs});
        assert_int_not_equal(r.word, VERDICT_STEPPING);
    }
}

static void growth_that_ends_after_the_third_epoch_is_not_a_leak(void **state)
{
    (void)state;
    for (uint64_t steps = 70; steps <= 420; steps += 7) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        run((struct program){.steps = steps, .pass = 60, .reads = 1, .bytes = three_epochs});
        assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
    }
}

static void ended_job_with_growth_at_3_epoch_ends_is_judged_stepping(void **state)
{
    (void)state;
    run((struct program){.steps = 239, .pass = 60, .reads = 1, .bytes = each_epoch});
    assert_int_not_equal(r.word, VERDICT_STEPPING);
    verdict_job_over(&v);
    verdict_judge(&v, NULL, &r);
    assert_int_equal(r.word, VERDICT_STEPPING);
    assert_int_equal(r.event, VERDICT_MARK_EPOCH);
}

static void leak_with_uneven_jumps_at_events_is_judged_stepping(void **state)
{
    (void)state;
    for (unsigned reads = 1; reads <= 6; reads++) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        run((struct program){
            .steps = 310, .pass = 60, .eval_every = 20, .reads = reads, .bytes = uneven});
        assert_int_equal(r.word, VERDICT_STEPPING);
        assert_int_equal(r.leak, VERDICT_LEAK_YES);
        assert_int_equal(r.event, VERDICT_MARK_EVAL);
    }
}

static void leak_with_jumps_unrelated_to_events_is_not_judged_stepping(void **state)
{
    (void)state;
    for (unsigned reads = 1; reads <= 6; reads++) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        run((struct program){
            .steps = 310, .pass = 60, .eval_every = 20, .reads = reads, .bytes = in_pieces});
        assert_int_equal(r.word, VERDICT_LEAKING);
    }
}

/* Applies verdict_name_leak to a leak that was found in another series. */
static void leak_is_judged_stepping_if_memory_jumps_at_events(void **state)
{
    (void)state;
    run((struct program){.steps = 190, .pass = 60, .eval_every = 20, .reads = 2, .bytes = uneven});
    r.word = VERDICT_LEAKING;
    verdict_name_leak(&r, &v);
    assert_int_equal(r.word, VERDICT_STEPPING);
    assert_int_equal(r.event, VERDICT_MARK_EVAL);
    assert_int_equal(r.evidence[0].code, VERDICT_SAID_EVENT_STEPS);
    r.word = VERDICT_UNDECIDED;
    verdict_name_leak(&r, &v);
    assert_int_equal(r.word, VERDICT_UNDECIDED);
}

/* The cache is full after 20 of 300 steps. */
static uint64_t full_early(uint64_t step)
{
    return 500 * MB + (step < 20 ? step : 20) * 2 * MB;
}

/* The memory of the cache is allocated at once, like the state of an optimizer. */
static uint64_t taken_at_once(uint64_t step)
{
    return 500 * MB + (step > 2 ? 40 * MB : 0);
}

static void growth_that_ends_within_20_steps_is_judged_plateaued(void **state)
{
    (void)state;
    run((struct program){.steps = 300, .pass = 60, .reads = 1, .bytes = full_early});
    assert_int_equal(r.word, VERDICT_PLATEAUED);
    assert_true(r.growth_ended.known && r.growth_ended.has_step);
    assert_in_range(r.growth_ended.step, 12, 24);
    assert_true(r.floor_first_bytes < 520e6 && r.floor_last_bytes > 539e6);
}

static void memory_with_one_jump_in_the_first_steps_is_judged_stable(void **state)
{
    (void)state;
    run((struct program){.steps = 300, .pass = 60, .reads = 1, .bytes = taken_at_once});
    assert_int_equal(r.word, VERDICT_STABLE);
}

#define TEST(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(growth_that_flattens_is_not_judged_a_leak),
        TEST(steady_growth_over_few_epochs_is_judged_leaking_not_stepping),
        TEST(growth_at_evaluations_3_readings_apart_is_judged_stepping),
        TEST(steady_growth_between_evaluations_is_judged_leaking),
        TEST(growth_at_evaluations_1_reading_apart_is_not_judged_stepping),
        TEST(jumps_freed_by_garbage_collection_are_not_judged_stepping),
        TEST(shrinking_jumps_at_evaluations_are_not_judged_stepping),
        TEST(memory_added_one_step_after_evaluations_is_judged_stepping),
        TEST(garbage_freed_after_evaluations_keeps_the_stepping_verdict),
        TEST(one_large_jump_among_equal_jumps_keeps_the_stepping_verdict),
        TEST(two_large_jumps_among_tiny_ones_are_not_judged_stepping),
        TEST(growth_that_ends_after_the_third_epoch_is_not_a_leak),
        TEST(ended_job_with_growth_at_3_epoch_ends_is_judged_stepping),
        TEST(leak_with_uneven_jumps_at_events_is_judged_stepping),
        TEST(leak_with_jumps_unrelated_to_events_is_not_judged_stepping),
        TEST(leak_is_judged_stepping_if_memory_jumps_at_events),
        TEST(growth_that_ends_within_20_steps_is_judged_plateaued),
        TEST(memory_with_one_jump_in_the_first_steps_is_judged_stable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
