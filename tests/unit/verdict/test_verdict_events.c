/* Growth at events: told from growth that goes on between them, from few readings too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "verdict/one_series.h"

struct program {
    uint64_t steps, pass, eval_every; /* eval_every 0: none */
    unsigned reads;                   /* a reading every so many steps of 0.15 s */
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

/* Pages that forked workers write to and so get for themselves, until they have all. */
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

/* The same, until a collector finds out at step 165 that it was garbage. */
static uint64_t collected(uint64_t step)
{
    return at_evaluations(step < 165 ? step : step - 160);
}

/* 40 MB at the first evaluation, and two thirds of the last each time. */
static uint64_t settles(uint64_t step)
{
    double held = 0, jump = 40e6;

    for (uint64_t at = 21; at <= step; at += 20, jump *= 0.67)
        held += jump;
    return 500 * MB + (uint64_t)held;
}

static void growth_that_flattens_out_is_not_tied_to_the_epochs_it_passes(void **state)
{
    (void)state;
    run((struct program){.steps = 241, .pass = 60, .reads = 7, .bytes = copies});
    assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
}

static void even_growth_over_few_epochs_is_leaking(void **state)
{
    static const unsigned READS[] = {2, 4, 6, 7};

    (void)state;
    for (size_t i = 0; i < sizeof(READS) / sizeof(READS[0]); i++) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        run((struct program){.steps = 246, .pass = 60, .reads = READS[i], .bytes = even});
        assert_int_equal(r.word, VERDICT_LEAKING);
    }
}

static void evaluations_with_three_readings_between_them_are_told(void **state)
{
    (void)state;
    run((struct program){
        .steps = 200, .pass = 60, .eval_every = 20, .reads = 6, .bytes = at_evaluations});
    assert_int_equal(r.word, VERDICT_STEPPING);
    assert_int_equal(r.event, VERDICT_MARK_EVAL);
}

static void even_growth_with_as_few_is_still_leaking(void **state)
{
    (void)state;
    run((struct program){.steps = 200, .pass = 60, .eval_every = 20, .reads = 6, .bytes = even});
    assert_int_equal(r.word, VERDICT_LEAKING);
}

static void with_one_reading_between_them_nothing_is_tied_to_evaluations(void **state)
{
    (void)state;
    run((struct program){
        .steps = 400, .pass = 60, .eval_every = 20, .reads = 20, .bytes = at_evaluations});
    assert_int_not_equal(r.word, VERDICT_STEPPING);
}

static void jumps_as_many_as_were_given_back_before_prove_nothing(void **state)
{
    (void)state;
    run((struct program){
        .steps = 330, .pass = 60, .eval_every = 20, .reads = 2, .bytes = collected});
    assert_int_not_equal(r.word, VERDICT_STEPPING);
}

static void jumps_that_get_smaller_settle(void **state)
{
    (void)state;
    for (uint64_t steps = 70; steps <= 240; steps += 10) {
        assert_int_equal(verdict_init(&v, NULL), 0);
        run((struct program){
            .steps = steps, .pass = 60, .eval_every = 20, .reads = 2, .bytes = settles});
        assert_int_not_equal(r.word, VERDICT_STEPPING);
    }
}

#define TEST(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(growth_that_flattens_out_is_not_tied_to_the_epochs_it_passes),
        TEST(even_growth_over_few_epochs_is_leaking),
        TEST(evaluations_with_three_readings_between_them_are_told),
        TEST(even_growth_with_as_few_is_still_leaking),
        TEST(with_one_reading_between_them_nothing_is_tied_to_evaluations),
        TEST(jumps_as_many_as_were_given_back_before_prove_nothing),
        TEST(jumps_that_get_smaller_settle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
