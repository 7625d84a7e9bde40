/* Tests how a mark for several steps is split into single marks. */
#include "mark/row.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct mark parsed(const char *s)
{
    struct mark m;

    assert_int_equal(mark_parse(s, strlen(s), &m), 0);
    m.t_ns = 10000000000;
    m.pid = 7;
    return m;
}

static size_t length_of(const char *s)
{
    struct mark m = parsed(s);

    return mark_row_length(&m);
}

static void mark_for_several_steps_is_split_into_one_mark_per_step(void **state)
{
    struct mark m = parsed("KIND=step\nSTEP=11\nEPOCH=0.5\nRANK=1\nSTEPS=4\nSECONDS=0.04\nX=y");
    const char *texts[] = {"KIND=step\nSTEP=8\nRANK=1\nX=y", "KIND=step\nSTEP=9\nRANK=1\nX=y",
                           "KIND=step\nSTEP=10\nRANK=1\nX=y",
                           "KIND=step\nSTEP=11\nEPOCH=0.5\nRANK=1\nX=y"};
    char text[MARK_TEXT_MAX];
    struct mark one;

    (void)state;
    assert_int_equal(mark_row_length(&m), 4);
    for (size_t i = 0; i < 4; i++) {
        mark_row_at(&m, 4, i, text, &one);
        assert_int_equal(one.len, strlen(texts[i]));
        assert_memory_equal(one.text, texts[i], one.len);
        assert_int_equal(one.kind, MARK_STEP);
        assert_int_equal(one.step, 8 + i);
        assert_int_equal(one.pid, 7);
        assert_int_equal(one.rank, 1);
        assert_int_equal(one.t_ns, 9970000000 + i * 10000000);
        assert_int_equal(!!(one.has & MARK_HAS_EPOCH), i == 3);
    }
}

static void split_marks_get_equal_times_if_the_duration_is_unknown(void **state)
{
    const char *none[] = {"KIND=step\nSTEP=9\nSTEPS=2", "KIND=step\nSTEP=9\nSTEPS=2\nSECONDS=x",
                          "KIND=step\nSTEP=9\nSTEPS=2\nSECONDS=-1",
                          "KIND=step\nSTEP=9\nSTEPS=2\nSECONDS=1e300"};
    char text[MARK_TEXT_MAX];
    struct mark one;

    (void)state;
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        struct mark m = parsed(none[i]);

        mark_row_at(&m, 2, 0, text, &one);
        assert_int_equal(one.t_ns, m.t_ns);
        assert_int_equal(one.step, 8);
    }
}

static void split_marks_never_start_before_time_zero(void **state)
{
    struct mark m = parsed("KIND=step\nSTEP=9\nSTEPS=2\nSECONDS=30");
    char text[MARK_TEXT_MAX];
    struct mark one;

    (void)state;
    mark_row_at(&m, 2, 0, text, &one);
    assert_int_equal(one.t_ns, m.t_ns / 2);
}

static void mark_with_an_invalid_number_of_steps_is_not_split(void **state)
{
    (void)state;
    assert_int_equal(length_of("KIND=step\nSTEP=9"), 1);
    assert_int_equal(length_of("KIND=step\nSTEPS=4"), 1);
    assert_int_equal(length_of("KIND=step\nSTEP=9\nSTEPS=many"), 1);
    assert_int_equal(length_of("KIND=step\nSTEP=9\nSTEPS=-3"), 1);
    assert_int_equal(length_of("KIND=step\nSTEP=9\nSTEPS=0"), 1);
    assert_int_equal(length_of("KIND=step\nSTEP=9\nSTEPS=10"), 1);
    assert_int_equal(length_of("KIND=step\nSTEP=9\nSTEPS=9"), 9);
    assert_int_equal(length_of("KIND=step\nSTEP=999\nSTEPS=256"), MARK_ROW_MAX);
    assert_int_equal(length_of("KIND=step\nSTEP=999\nSTEPS=257"), 1);
    assert_int_equal(length_of("KIND=epoch\nSTEP=9\nSTEPS=4"), 1);
}

static void splitting_a_mark_drops_repeated_keys(void **state)
{
    char s[MARK_TEXT_MAX + 1], text[MARK_TEXT_MAX];
    struct mark m, one;
    int len = snprintf(s, sizeof(s), "KIND=step\nSTEP=1000000000000000000\nSTEPS=2\n");

    (void)state;
    while ((size_t)len + 7 <= MARK_TEXT_MAX)
        len += snprintf(s + len, sizeof(s) - (size_t)len, "STEP=1\n");
    m = parsed(s);
    mark_row_at(&m, mark_row_length(&m), 0, text, &one);
    assert_int_equal(one.len, strlen("KIND=step\nSTEP=999999999999999999"));
    assert_memory_equal(text, "KIND=step\nSTEP=999999999999999999", one.len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mark_for_several_steps_is_split_into_one_mark_per_step),
        cmocka_unit_test(split_marks_get_equal_times_if_the_duration_is_unknown),
        cmocka_unit_test(split_marks_never_start_before_time_zero),
        cmocka_unit_test(mark_with_an_invalid_number_of_steps_is_not_split),
        cmocka_unit_test(splitting_a_mark_drops_repeated_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
