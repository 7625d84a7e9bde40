/* Tests verdicts on a job that is over and never reported an epoch end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "verdict/verdict.h"

static const double MB = 1e6;
static const int64_t TICK = 200000000; /* There are five readings per second. */
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

static bool has_evidence(enum verdict_evidence_code code)
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

/* Libraries are loaded for eight seconds at 25 MB/s. */
static void feed_startup(void)
{
    for (int i = 0; i < 8 * A_SECOND; i++)
        read_bytes(5 * MB + i * 5 * MB);
}

/* Memory grows from 205 MB for SECONDS at RATE bytes/s, with a little noise. */
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

static void steady_growth_to_the_job_end_is_a_leak_with_low_confidence(void **state)
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
    assert_true(has_evidence(VERDICT_SAID_OVER));
    assert_true(r.rate_bytes_per_min.low < 8 * 60 * MB && r.rate_bytes_per_min.high > 8 * 60 * MB);
    verdict_evidence_text(text, sizeof text, &r.evidence[0]);
    assert_non_null(strstr(text, "a first epoch as long as the job cannot be excluded"));
    assert_true(strlen(text) + 1 < sizeof text);
}

static void growth_in_regular_jumps_up_to_the_job_end_is_a_leak(void **state)
{
    (void)state;
    feed_startup();
    for (int i = 0; i < 48 * A_SECOND; i++)
        read_bytes(205 * MB + i / (3 * A_SECOND) * 16 * MB);
    assert_int_equal(word_when_over(), VERDICT_LEAKING);
}

/* Arrays of random size are allocated at random times, fewer in the later half. */
static void growth_in_random_jumps_up_to_the_job_end_is_a_leak(void **state)
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

static void leak_of_a_job_without_epochs_has_low_confidence(void **state)
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

static void job_that_ends_in_the_first_epoch_keeps_the_verdict_filling(void **state)
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

static void growth_that_flattens_towards_the_job_end_is_not_a_leak(void **state)
{
    (void)state;
    feed_startup();
    for (int i = 0; i < 45 * A_SECOND; i++)
        read_bytes(205 * MB - 360 * MB * expm1(-i / (25.0 * A_SECOND)));
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
}

static void growth_that_stopped_before_the_job_end_is_not_a_leak(void **state)
{
    (void)state;
    feed_startup();
    feed_rise(36, 8 * MB);
    for (int i = 0; i < 9 * A_SECOND; i++)
        read_bytes(493 * MB);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
}

/* Start-up grows by 10 MB/s, slower than the 25 MB/s that follow. */
static void leak_that_follows_a_slower_start_up_is_found(void **state)
{
    (void)state;
    for (int i = 0; i < 18 * A_SECOND; i++)
        read_bytes(25 * MB + i * 2 * MB);
    feed_rise(35, 25 * MB);
    assert_int_equal(word_when_over(), VERDICT_LEAKING);
}

static void growth_after_a_flat_phase_is_a_leak_only_if_it_lasts_long(void **state)
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

/* Growth accelerates all the time, so no point separates start-up from growth. */
static void growth_that_accelerates_to_the_job_end_is_not_a_leak(void **state)
{
    (void)state;
    for (int i = 0; i < 50 * A_SECOND; i++)
        read_bytes(205 * MB + (double)i * i * 5e-3 * MB);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
}

static void growth_up_to_the_end_of_work_is_a_leak_despite_a_flat_exit(void **state)
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
    /* 30 of 63 s after the end of work are too long for an exit, so the end of work is ignored */
    verdict_work_ended(&v, worked_ns - 20 * A_SECOND * TICK);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
}

static void little_or_short_growth_up_to_the_job_end_is_not_a_leak(void **state)
{
    (void)state;
    feed_startup();
    feed_rise(45, 0.6 * MB);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
    fresh(NULL);
    feed_rise(12, 20 * MB);
    assert_int_not_equal(word_when_over(), VERDICT_LEAKING);
}

static void growth_up_to_a_slow_exit_at_the_job_end_is_a_leak(void **state)
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
        cmocka_unit_test_setup(steady_growth_to_the_job_end_is_a_leak_with_low_confidence, fresh),
        cmocka_unit_test_setup(growth_in_regular_jumps_up_to_the_job_end_is_a_leak, fresh),
        cmocka_unit_test_setup(growth_in_random_jumps_up_to_the_job_end_is_a_leak, fresh),
        cmocka_unit_test_setup(leak_of_a_job_without_epochs_has_low_confidence, fresh),
        cmocka_unit_test_setup(job_that_ends_in_the_first_epoch_keeps_the_verdict_filling, fresh),
        cmocka_unit_test_setup(growth_that_flattens_towards_the_job_end_is_not_a_leak, fresh),
        cmocka_unit_test_setup(growth_that_stopped_before_the_job_end_is_not_a_leak, fresh),
        cmocka_unit_test_setup(leak_that_follows_a_slower_start_up_is_found, fresh),
        cmocka_unit_test_setup(growth_after_a_flat_phase_is_a_leak_only_if_it_lasts_long, fresh),
        cmocka_unit_test_setup(growth_that_accelerates_to_the_job_end_is_not_a_leak, fresh),
        cmocka_unit_test_setup(growth_up_to_the_end_of_work_is_a_leak_despite_a_flat_exit, fresh),
        cmocka_unit_test_setup(little_or_short_growth_up_to_the_job_end_is_not_a_leak, fresh),
        cmocka_unit_test_setup(growth_up_to_a_slow_exit_at_the_job_end_is_a_leak, fresh),
    };

    return cmocka_run_group_tests_name("verdict_over", tests, NULL, NULL);
}
