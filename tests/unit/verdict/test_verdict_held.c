/* What the profiler tells about resident memory of a job that is over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "verdict/verdict.h"

static const double MB = 1e6;
static const int64_t SECOND = 1000000000;
enum { SECONDS = 50 };

static struct verdict_series v;
static struct verdict_result r;

/* Fifty seconds of resident memory: 8 of start-up to 400 MB, then a stair of BYTES after each EVERY
 * seconds. */
static void reside(int every, double bytes)
{
    assert_int_equal(verdict_init(&v, NULL), 0);
    for (int i = 0; i < 8; i++)
        verdict_update(&v, i * SECOND, (uint64_t)((i + 1) * 50 * MB));
    for (int i = 8; i < SECONDS; i++)
        verdict_update(&v, i * SECOND, (uint64_t)(400 * MB + (i - 8) / every * bytes));
    verdict_job_over(&v);
    verdict_judge(&v, NULL, &r);
}

/* What is held grew by BYTES from the tenth second on, a tenth of which chance may be. */
static struct verdict_held held(double bytes)
{
    return (struct verdict_held){
        .from_ns = 10 * SECOND,
        .growth_bytes = bytes,
        .chance_bytes = bytes / 10,
        .result = {.word = VERDICT_LEAKING,
                   .leak = VERDICT_LEAK_YES,
                   .confidence = 0.65,
                   .rate_bytes_per_min = {true, 1.5 * bytes, 1.4 * bytes, 1.6 * bytes}}};
}

static bool said(enum verdict_evidence_code code)
{
    for (uint32_t i = 0; i < r.n_evidence; i++)
        if (r.evidence[i].code == code)
            return true;
    return false;
}

static void growth_in_uneven_jumps_is_a_leak_if_what_is_held_grew_evenly(void **state)
{
    struct verdict_held h = held(80 * MB);
    char text[VERDICT_TEXT_MAX];

    (void)state;
    reside(10, 25 * MB);
    assert_int_not_equal(r.leak, VERDICT_LEAK_YES);
    verdict_apply_held(&r, &v, &h);
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_int_equal(r.leak, VERDICT_LEAK_YES);
    assert_true(r.confidence <= 0.65);
    assert_false(r.alarm);
    verdict_evidence_text(text, sizeof text, &r.evidence[0]);
    assert_non_null(strstr(text, "what the program holds grew evenly to the end"));
    assert_non_null(strstr(text, "76.3 MiB in all; resident memory by 95.4 MiB"));
    assert_true(said(VERDICT_SAID_OVER));
}

static void what_was_called_a_level_is_none_then(void **state)
{
    struct verdict_held h = held(45 * MB);

    (void)state;
    reside(25, 20 * MB);
    assert_int_equal(r.word, VERDICT_PLATEAUED);
    verdict_apply_held(&r, &v, &h);
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_false(r.growth_ended.known);
    assert_false(said(VERDICT_SAID_ENDED));
    assert_true(r.rate_bytes_per_min.value > 60 * MB); /* that of what is held */
}

static void memory_that_does_not_become_resident_leaves_it_open(void **state)
{
    struct verdict_held h = held(80 * MB);
    char text[VERDICT_TEXT_MAX];

    (void)state;
    reside(SECONDS, 0);
    assert_int_equal(r.leak, VERDICT_LEAK_NO);
    verdict_apply_held(&r, &v, &h);
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_int_equal(r.leak, VERDICT_LEAK_UNKNOWN);
    assert_false(r.growth_ended.known);
    verdict_evidence_text(text, sizeof text, &r.evidence[0]);
    assert_non_null(strstr(text, "or memory that was never touched"));
}

/* Hears H of what resides so; whether that changed anything. */
static bool is_heard(struct verdict_held h)
{
    enum verdict_word before = r.word;
    uint32_t n = r.n_evidence;

    verdict_apply_held(&r, &v, &h);
    return r.word != before || r.n_evidence != n;
}

static void what_chance_may_be_or_is_little_is_not_heard(void **state)
{
    struct verdict_held h = held(80 * MB);

    (void)state;
    reside(10, 25 * MB);
    h.chance_bytes = 17 * MB;
    assert_false(is_heard(h));
    assert_false(is_heard(held(20 * MB))); /* 4 % of the floor */
    assert_true(is_heard(held(80 * MB)));
    reside(25, 20 * MB);
    h = held(45 * MB);
    h.chance_bytes = 10 * MB;
    assert_false(is_heard(h));
    h.chance_bytes = 6 * MB;
    assert_true(is_heard(h)); /* of what stands more is asked than that: it is open */
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    reside(3, 100 * MB);
    r.word = VERDICT_UNDECIDED;
    r.leak = VERDICT_LEAK_UNKNOWN;
    assert_false(is_heard(held(80 * MB))); /* resident memory grew by 1.3 GB */
}

static void what_was_given_back_is_not_heard(void **state)
{
    (void)state;
    assert_int_equal(verdict_init(&v, NULL), 0);
    for (int i = 0; i < SECONDS; i++)
        verdict_update(&v, i * SECOND, (uint64_t)((i < 35 ? 360 + i : 365) * MB));
    verdict_job_over(&v);
    verdict_judge(&v, NULL, &r);
    assert_int_equal(r.leak, VERDICT_LEAK_NO);
    assert_false(is_heard(held(60 * MB)));
    assert_true(is_heard(held(90 * MB)));
}

static bool is_heard_after(int steps, int steps_per_epoch)
{
    reside(10, 25 * MB);
    v.has_step = true;
    v.last_step = steps;
    v.steps_per_epoch = (uint64_t)steps_per_epoch;
    return is_heard(held(80 * MB));
}

static void what_may_be_the_first_pass_is_not_heard(void **state)
{
    (void)state;
    assert_true(is_heard_after(100, 50));
    assert_false(is_heard_after(100, 80));
    assert_true(is_heard_after(100, 0)); /* no pass is known */
    reside(10, 25 * MB);
    v.has_step = v.has_first_epoch = true;
    v.last_step = 100;
    v.first_epoch_step = 80;
    assert_false(is_heard(held(80 * MB)));
}

static void while_the_job_may_go_on_it_is_not_heard(void **state)
{
    (void)state;
    reside(10, 25 * MB);
    v.is_over = false;
    assert_false(is_heard(held(80 * MB)));
}

static void a_leak_stays_as_it_was_told(void **state)
{
    (void)state;
    reside(1, 4 * MB);
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_false(is_heard(held(160 * MB)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_in_uneven_jumps_is_a_leak_if_what_is_held_grew_evenly),
        cmocka_unit_test(what_was_called_a_level_is_none_then),
        cmocka_unit_test(memory_that_does_not_become_resident_leaves_it_open),
        cmocka_unit_test(what_chance_may_be_or_is_little_is_not_heard),
        cmocka_unit_test(what_was_given_back_is_not_heard),
        cmocka_unit_test(what_may_be_the_first_pass_is_not_heard),
        cmocka_unit_test(while_the_job_may_go_on_it_is_not_heard),
        cmocka_unit_test(a_leak_stays_as_it_was_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
