/* Marks of a process's own, and of hooks in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "supervise/speakers.h"

static bool hear(struct speakers *s, int32_t pid, const char *text)
{
    struct mark m;
    assert_int_equal(mark_parse(text, strlen(text), &m), 0);
    m.pid = pid;
    return speakers_hear(s, &m);
}

static void hooks_alone_are_heard(void **state)
{
    struct speakers s = {0};
    (void)state;
    assert_false(hear(&s, 7, "KIND=begin\nSTEP=0\nBY=hook"));
    assert_false(hear(&s, 7, "KIND=step\nSTEP=1\nBY=hook"));
    assert_false(hear(&s, 7, "KIND=epoch\nSTEP=1\nBY=hook"));
    assert_int_equal(s.left_out, 0);
}

static void a_process_that_tells_its_steps_is_not_told_of_twice(void **state)
{
    struct speakers s = {0};
    (void)state;
    assert_false(hear(&s, 7, "KIND=begin\nSTEP=0\nSTEPS_PER_EPOCH=10"));
    assert_false(hear(&s, 7, "KIND=step\nSTEP=1"));
    assert_true(hear(&s, 7, "KIND=begin\nSTEP=0\nBY=hook"));
    assert_true(hear(&s, 7, "KIND=step\nSTEP=1\nBY=hook"));
    assert_true(hear(&s, 7, "KIND=step\nSTEP=1\nSTEPS_PER_EPOCH=10\nBY=hook"));
    assert_false(hear(&s, 8, "KIND=step\nSTEP=1\nBY=hook")); /* another process */
    assert_false(hear(&s, 7, "KIND=series\nNAME=a_bytes\nVALUE=1\nBY=hook"));
    assert_int_equal(s.left_out, 3);
}

static void what_only_the_hooks_know_is_kept_where_both_count_alike(void **state)
{
    struct speakers s = {0};
    (void)state;
    assert_false(hear(&s, 7, "KIND=step\nSTEP=10"));
    assert_false(hear(&s, 7, "KIND=epoch\nSTEP=10\nBY=hook"));
    assert_false(hear(&s, 7, "KIND=step\nSTEP=10\nSTEPS_PER_EPOCH=10\nBY=hook"));
    assert_true(hear(&s, 7, "KIND=epoch\nSTEP=40\nBY=hook")); /* it counts batches, we steps */
    assert_false(hear(&s, 7, "KIND=epoch\nSTEP=20"));
    assert_false(hear(&s, 7, "KIND=step\nSTEP=20"));
    assert_true(hear(&s, 7, "KIND=epoch\nSTEP=20\nBY=hook")); /* told by itself now */
}

static void a_training_after_the_end_of_the_first_is_the_hooks_again(void **state)
{
    struct speakers s = {0};
    (void)state;
    assert_false(hear(&s, 7, "KIND=step\nSTEP=6"));
    assert_false(hear(&s, 7, "KIND=end\nSTEP=6"));
    assert_false(hear(&s, 7, "KIND=save\nSTEP=6"));
    assert_true(hear(&s, 7, "KIND=step\nSTEP=6\nBY=hook")); /* late, of the first */
    assert_true(hear(&s, 7, "KIND=end\nSTEP=6\nBY=hook"));
    assert_false(hear(&s, 7, "KIND=begin\nSTEP=6\nBY=hook"));
    assert_false(hear(&s, 7, "KIND=step\nSTEP=7\nBY=hook"));
    assert_false(hear(&s, 7, "KIND=end\nSTEP=7\nBY=hook"));
}

static void many_processes_come_and_go(void **state)
{
    struct speakers s = {0};
    (void)state;
    for (int32_t pid = 1; pid <= 3 * SPEAKERS_MAX; pid++)
        assert_false(hear(&s, pid, "KIND=step\nSTEP=1"));
    assert_true(hear(&s, 3 * SPEAKERS_MAX, "KIND=step\nSTEP=1\nBY=hook"));
    assert_false(hear(&s, 1, "KIND=step\nSTEP=1\nBY=hook")); /* forgotten */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_alone_are_heard),
        cmocka_unit_test(a_process_that_tells_its_steps_is_not_told_of_twice),
        cmocka_unit_test(what_only_the_hooks_know_is_kept_where_both_count_alike),
        cmocka_unit_test(a_training_after_the_end_of_the_first_is_the_hooks_again),
        cmocka_unit_test(many_processes_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
