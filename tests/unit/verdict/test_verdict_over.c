/* What is said of a job that is over, where no end of a pass over the data was ever told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "verdict/verdict.h"

static const double MB = 1e6;
static const int64_t TICK = 200000000; /* five readings a second */
enum { A_SECOND = 5 };

static struct verdict_series v;
static struct verdict_result r;
static int64_t now_ns;

static int fresh(void **state)
{
    (void)state;
    now_ns = 0;
    assert_int_equal(verdict_init(&v, NULL), 0);
    return 0;
}

static bool said(enum verdict_evidence_code code)
{
    for (uint32_t i = 0; i < r.n_evidence; i++)
        if (r.evidence[i].code == code)
            return true;
    return false;
}

static void read_bytes(double bytes)
{
    verdict_update(&v, now_ns, (uint64_t)bytes);
    now_ns += TICK;
}

/* Eight seconds in which libraries are loaded, at 25 MB a second. */
static void feed_startup(void)
{
    for (int i = 0; i < 8 * A_SECOND; i++)
        read_bytes(5 * MB + i * 5 * MB);
}

/* SECONDS at RATE bytes a second from 205 MB on, with a little noise. */
static void feed_rise(int seconds, double rate)
{
    for (int i = 0; i < seconds * A_SECOND; i++)
        read_bytes(205 * MB + i * rate / A_SECOND +
                   ((unsigned)i * 2654435761u >> 16 & 7) * 0.1 * MB);
}

static enum verdict_word word_when_over(void)
{
    verdict_job_over(&v);
    verdict_judge(&v, NULL, &r);
    return r.word;
}

static void an_even_rise_to_the_end_is_a_leak_with_little_confidence(void **state)
{
    char text[VERDICT_TEXT_MAX];

    (void)state;
    feed_startup();
    feed_rise(45, 8 * MB);
    verdict_judge(&v, NULL, &r);
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_int_equal(word_when_over(), VERDICT_LEAKING);
    assert_true(r.confidence <= 0.65);
    assert_false(r.alarm);
    assert_true(said(VERDICT_SAID_OVER));
    assert_true(r.rate_bytes_per_min.low < 8 * 60 * MB && r.rate_bytes_per_min.high > 8 * 60 * MB);
    verdict_evidence_text(text, sizeof text, &r.evidence[0]);
    assert_non_null(
        strstr(text, "first pass over the data, as long as the job, cannot be excluded"));
    assert_true(strlen(text) + 1 < sizeof text);
}

static void a_regular_staircase_to_the_end_is_one_too(void **state)
{
    (void)state;
    feed_startup();
    for (int i = 0; i < 48 * A_SECOND; i++)
        read_bytes(205 * MB + i / (3 * A_SECOND) * 16 * MB);
    assert_int_equal(word_when_over(), VERDICT_LEAKING);
}

/* Arrays of random size at random times: here the later half gets fewer of them. */
static void random_steps_are_uneven_and_a_leak_all_the_same(void **state)
{
    double held = 205 * MB;
    uint32_t dice = 12;

    (void)state;
    feed_startup();
    for (int i = 0; i < 45 * A_SECOND; i++) {
        dice = dice * 1664525u + 1013904223u;
        if ((dice >> 24) % 10 < 4)
            held += (dice >> 12) % 8 * MB;
        read_bytes(held);
    }
    assert_int_equal(word_when_over(), VERDICT_LEAKING);
}

static void steps_without_an_epoch_are_no_better(void **state)
{
    struct verdict_mark m = {.kind = VERDICT_MARK_BEGIN, .has_step = true};

    (void)state;
    verdict_mark(&v, 0, &m);
    m.kind = VERDICT_MARK_STEP;
    for (uint64_t i = 1; i <= 240; i++) {
        read_bytes(205 * MB + (double)i * 2 * MB);
        m.step = i;
        verdict_mark(&v, now_ns, &m);
    }
    verdict_judge(&v, NULL, &r);
    assert_int_equal(r.word, VERDICT_FILLING);
    assert_int_equal(word_when_over(), VERDICT_LEAKING);
    assert_true(r.confidence <= 0.65);
}

static void inside_a_pass_whose_length_is_known_it_stays_filling(void **state)
{
    struct verdict_mark m = {.kind = VERDICT_MARK_BEGIN, .has_step = true, .steps_per_epoch = 300};

    (void)state;
    verdict_mark(&v, 0, &m);
    m.kind = VERDICT_MARK_STEP;
    for (uint64_t i = 1; i <= 240; i++) {
        read_bytes(205 * MB + (double)i * 2 * MB);
        m.step = i;
        verdict_mark(&v, now_ns, &m);
    }
    assert_int_equal(word_when_over(), VERDICT_FILLING);
}

static void a_curve_that_ends_is_none(void **state)
{
    (void)state;
    feed_startup();
    for (int i = 0; i < 45 * A_SECOND; i++)
        read_bytes(205 * MB - 360 * MB * expm1(-i / (25.0 * A_SECOND)));
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
}

static void growth_that_ended_before_the_job_did_is_none(void **state)
{
    (void)state;
    feed_startup();
    feed_rise(36, 8 * MB);
    for (int i = 0; i < 9 * A_SECOND; i++)
        read_bytes(493 * MB);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
}

/* What came before a rise has another slope, whichever is the steeper one: the start-up's or its
 * own. */
static void a_start_up_may_be_gentler_than_the_rise(void **state)
{
    (void)state;
    for (int i = 0; i < 18 * A_SECOND; i++)
        read_bytes(25 * MB + i * 2 * MB);
    feed_rise(35, 25 * MB);
    assert_int_equal(word_when_over(), VERDICT_LEAKING);
}

static void growth_after_a_level_must_be_most_of_the_job(void **state)
{
    (void)state;
    feed_startup();
    for (int i = 0; i < 12 * A_SECOND; i++)
        read_bytes(205 * MB);
    feed_rise(34, 8 * MB);
    assert_int_equal(word_when_over(), VERDICT_LEAKING);
    fresh(NULL);
    feed_startup();
    for (int i = 0; i < 22 * A_SECOND; i++)
        read_bytes(205 * MB);
    feed_rise(30, 8 * MB);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
}

/* It gets faster all the time: no place parts it in two. */
static void what_bends_upwards_has_no_start_up(void **state)
{
    (void)state;
    for (int i = 0; i < 50 * A_SECOND; i++)
        read_bytes(205 * MB + (double)i * i * 5e-3 * MB);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
}

static void what_is_read_after_the_work_is_its_exit(void **state)
{
    (void)state;
    feed_startup();
    feed_rise(45, 8 * MB);
    int64_t worked_ns = now_ns;
    for (int i = 0; i < 10 * A_SECOND; i++)
        read_bytes(565 * MB);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
    verdict_work_ended(&v, worked_ns);
    assert_int_equal(word_when_over(), VERDICT_LEAKING);
    assert_true(r.floor_last_bytes < 565 * MB);
    /* it was seen too seldom to tell an exit */
    verdict_work_ended(&v, worked_ns - 20 * A_SECOND * TICK);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
}

static void little_or_short_growth_is_none(void **state)
{
    (void)state;
    feed_startup();
    feed_rise(45, 0.6 * MB);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
    fresh(NULL);
    feed_rise(12, 20 * MB);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
}

static void a_slow_exit_is_no_part_of_it(void **state)
{
    (void)state;
    feed_startup();
    feed_rise(45, 8 * MB);
    for (int i = 0; i < 4 * A_SECOND; i++)
        read_bytes(i < A_SECOND ? 400 * MB : 230 * MB);
    assert_int_equal(word_when_over(), VERDICT_LEAKING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_even_rise_to_the_end_is_a_leak_with_little_confidence, fresh),
        cmocka_unit_test_setup(a_regular_staircase_to_the_end_is_one_too, fresh),
        cmocka_unit_test_setup(random_steps_are_uneven_and_a_leak_all_the_same, fresh),
        cmocka_unit_test_setup(steps_without_an_epoch_are_no_better, fresh),
        cmocka_unit_test_setup(inside_a_pass_whose_length_is_known_it_stays_filling, fresh),
        cmocka_unit_test_setup(a_curve_that_ends_is_none, fresh),
        cmocka_unit_test_setup(growth_that_ended_before_the_job_did_is_none, fresh),
        cmocka_unit_test_setup(a_start_up_may_be_gentler_than_the_rise, fresh),
        cmocka_unit_test_setup(growth_after_a_level_must_be_most_of_the_job, fresh),
        cmocka_unit_test_setup(what_bends_upwards_has_no_start_up, fresh),
        cmocka_unit_test_setup(what_is_read_after_the_work_is_its_exit, fresh),
        cmocka_unit_test_setup(little_or_short_growth_is_none, fresh),
        cmocka_unit_test_setup(a_slow_exit_is_no_part_of_it, fresh),
    };

    return cmocka_run_group_tests_name("verdict_over", tests, NULL, NULL);
}
