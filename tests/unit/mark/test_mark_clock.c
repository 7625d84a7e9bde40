/* Tests how the step clock converts marks of a job into marks for a verdict. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "mark/mark_clock.h"

static size_t clock_add(struct mark_clock *c, uint64_t t_s, const char *text,
                        struct verdict_mark ret[MARK_CLOCK_MARKS])
{
    struct mark m;
    assert_int_equal(mark_parse(text, strlen(text), &m), 0);
    m.t_ns = t_s * NS_PER_S;
    return mark_clock_add(c, &m, ret);
}

static void evaluation_sent_as_phase_and_as_mark_is_counted_once(void **state)
{
    struct mark_clock c = {0};
    struct verdict_mark m[MARK_CLOCK_MARKS];
    (void)state;
    assert_int_equal(clock_add(&c, 1, "KIND=step\nSTEP=5\n", m), 1);
    assert_int_equal(clock_add(&c, 2, "KIND=phase\nNAME=eval\nSTATE=begin\n", m), 0);
    assert_int_equal(clock_add(&c, 60, "KIND=phase\nNAME=eval\nSTATE=end\n", m), 1);
    assert_int_equal(m[0].kind, VERDICT_MARK_EVAL);
    assert_int_equal(clock_add(&c, 60, "KIND=eval\nSTEP=5\n", m), 0);
    assert_int_equal(clock_add(&c, 99, "KIND=phase\nNAME=upload\nSTATE=end\n", m), 0);
}

static void epoch_length_is_derived_from_fractional_epochs(void **state)
{
    struct mark_clock c = {0};
    struct verdict_mark m[MARK_CLOCK_MARKS];
    (void)state;
    clock_add(&c, 1, "KIND=step\nSTEP=10\nEPOCH=0.12048192771\n", m);
    clock_add(&c, 2, "KIND=step\nSTEP=20\nEPOCH=0.24096385542\n", m);
    assert_int_equal(m[0].steps_per_epoch, 83);
    struct mark_clock coarse = {0}; /* With two decimal digits, the epoch is too imprecise to
                                       compute the number of steps. */
    clock_add(&coarse, 1, "KIND=step\nSTEP=10\nEPOCH=0.12\n", m);
    clock_add(&coarse, 2, "KIND=step\nSTEP=20\nEPOCH=0.24\n", m);
    assert_int_equal(m[0].steps_per_epoch, 0);
}

static void higher_epoch_number_ends_the_previous_epoch(void **state)
{
    struct mark_clock c = {0};
    struct verdict_mark m[MARK_CLOCK_MARKS];
    (void)state;
    assert_int_equal(clock_add(&c, 1, "KIND=step\nSTEP=50\nEPOCH=0\n", m), 1);
    assert_int_equal(clock_add(&c, 2, "KIND=step\nSTEP=51\nEPOCH=1\n", m), 2);
    assert_int_equal(m[0].kind, VERDICT_MARK_EPOCH);
    assert_int_equal(m[0].step, 50);
    assert_int_equal(m[1].kind, VERDICT_MARK_STEP);
}

static void batch_size_sent_once_applies_to_every_later_mark(void **state)
{
    struct mark_clock c = {0};
    struct verdict_mark m[MARK_CLOCK_MARKS];
    (void)state;
    assert_int_equal(clock_add(&c, 1, "KIND=hello\nEXAMPLES=663\nEFFECTIVE_BATCH=8\n", m), 0);
    assert_int_equal(clock_add(&c, 2, "KIND=step\nSTEP=1\n", m), 1);
    assert_int_equal(m[0].examples, 663);
    assert_int_equal(m[0].batch, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluation_sent_as_phase_and_as_mark_is_counted_once),
        cmocka_unit_test(epoch_length_is_derived_from_fractional_epochs),
        cmocka_unit_test(higher_epoch_number_ends_the_previous_epoch),
        cmocka_unit_test(batch_size_sent_once_applies_to_every_later_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
