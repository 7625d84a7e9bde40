/* Tests which marks of hooks are skipped because the process sends its own marks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "supervise/step_sources.h"

static bool skips(struct step_sources *s, int32_t pid, const char *text)
{
    struct mark m;
    assert_int_equal(mark_parse(text, strlen(text), &m), 0);
    m.pid = pid;
    return step_sources_skip(s, &m);
}

static void hook_marks_are_accepted_if_the_process_sends_no_marks(void **state)
{
    struct step_sources s = {0};
    (void)state;
    assert_false(skips(&s, 7, "KIND=begin\nSTEP=0\nBY=hook"));
    assert_false(skips(&s, 7, "KIND=step\nSTEP=1\nBY=hook"));
    assert_false(skips(&s, 7, "KIND=epoch\nSTEP=1\nBY=hook"));
    assert_int_equal(s.left_out, 0);
}

static void hook_marks_are_skipped_if_the_process_sends_its_own_steps(void **state)
{
    struct step_sources s = {0};
    (void)state;
    assert_false(skips(&s, 7, "KIND=begin\nSTEP=0\nSTEPS_PER_EPOCH=10"));
    assert_false(skips(&s, 7, "KIND=step\nSTEP=1"));
    assert_true(skips(&s, 7, "KIND=begin\nSTEP=0\nBY=hook"));
    assert_true(skips(&s, 7, "KIND=step\nSTEP=1\nBY=hook"));
    assert_true(skips(&s, 7, "KIND=step\nSTEP=1\nSTEPS_PER_EPOCH=10\nBY=hook"));
    assert_false(skips(&s, 8, "KIND=step\nSTEP=1\nBY=hook")); /* another process */
    assert_false(skips(&s, 7, "KIND=series\nNAME=a_bytes\nVALUE=1\nBY=hook"));
    assert_int_equal(s.left_out, 3);
}

static void hook_epochs_are_accepted_if_the_process_sends_only_steps(void **state)
{
    struct step_sources s = {0};
    (void)state;
    assert_false(skips(&s, 7, "KIND=step\nSTEP=10"));
    assert_false(skips(&s, 7, "KIND=epoch\nSTEP=10\nBY=hook"));
    assert_false(skips(&s, 7, "KIND=step\nSTEP=10\nSTEPS_PER_EPOCH=10\nBY=hook"));
    assert_true(skips(&s, 7,
                      /* The hook counts batches, and the process counts steps. */
                      "KIND=epoch\nSTEP=40\nBY=hook"));
    assert_false(skips(&s, 7, "KIND=epoch\nSTEP=20"));
    assert_false(skips(&s, 7, "KIND=step\nSTEP=20"));
    /* Once the process sends its own epochs, epochs from its hook are skipped. */
    assert_true(skips(&s, 7, "KIND=epoch\nSTEP=20\nBY=hook"));
}

static void hook_marks_are_accepted_again_after_an_end_mark(void **state)
{
    struct step_sources s = {0};
    (void)state;
    assert_false(skips(&s, 7, "KIND=step\nSTEP=6"));
    assert_false(skips(&s, 7, "KIND=end\nSTEP=6"));
    assert_false(skips(&s, 7, "KIND=save\nSTEP=6"));
    /* Late marks of the hook that belong to the first training run are skipped. */
    assert_true(skips(&s, 7, "KIND=step\nSTEP=6\nBY=hook"));
    assert_true(skips(&s, 7, "KIND=end\nSTEP=6\nBY=hook"));
    assert_false(skips(&s, 7, "KIND=begin\nSTEP=6\nBY=hook"));
    assert_false(skips(&s, 7, "KIND=step\nSTEP=7\nBY=hook"));
    assert_false(skips(&s, 7, "KIND=end\nSTEP=7\nBY=hook"));
}

static void oldest_step_source_is_dropped_when_the_list_is_full(void **state)
{
    struct step_sources s = {0};
    (void)state;
    for (int32_t pid = 1; pid <= 3 * STEP_SOURCES_MAX; pid++)
        assert_false(skips(&s, pid, "KIND=step\nSTEP=1"));
    assert_true(skips(&s, 3 * STEP_SOURCES_MAX, "KIND=step\nSTEP=1\nBY=hook"));
    assert_false(skips(&s, 1, "KIND=step\nSTEP=1\nBY=hook")); /* forgotten */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hook_marks_are_accepted_if_the_process_sends_no_marks),
        cmocka_unit_test(hook_marks_are_skipped_if_the_process_sends_its_own_steps),
        cmocka_unit_test(hook_epochs_are_accepted_if_the_process_sends_only_steps),
        cmocka_unit_test(hook_marks_are_accepted_again_after_an_end_mark),
        cmocka_unit_test(oldest_step_source_is_dropped_when_the_list_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
