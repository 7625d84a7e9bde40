/* Tests the helper thread, which makes system calls that may block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "proc/helper.h"

static void count(void *arg)
{
    ++*(int *)arg;
}

static void wait_for_byte(void *arg)
{
    char byte;
    (void)!read(*(int *)arg, &byte, 1);
}

static void helper_call_returns_after_the_helper_thread_ran_the_function(void **state)
{
    struct proc_helper *h;
    uint64_t cpu_ns = UINT64_MAX;
    int calls = 0;
    (void)state;
    assert_int_equal(proc_helper_new(&h), 0);
    for (int i = 1; i <= 1000; i++) {
        assert_int_equal(proc_helper_call(h, count, &calls, &cpu_ns), 0);
        assert_int_equal(calls, i);
    }
    assert_true(cpu_ns < UINT64_MAX);
    assert_false(proc_helper_is_busy(h));
    proc_helper_free(h);
}

static void new_helper_calls_are_rejected_while_a_call_is_blocked(void **state)
{
    static int ends[2]; /* The array is static because the helper thread outlives this function. */
    struct proc_helper *h;
    int calls = 0;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(proc_helper_new(&h), 0);
    assert_int_equal(proc_helper_call(h, wait_for_byte, &ends[0], NULL), -EINPROGRESS);
    assert_true(proc_helper_is_busy(h));
    assert_int_equal(proc_helper_call(h, count, &calls, NULL), -EAGAIN);
    assert_int_equal(calls, 0);
    assert_true(proc_helper_keeps(h, malloc(1)));
    proc_helper_free(h);
    assert_int_equal(write(ends[1], "", 1), 1);
}

static void call_without_a_helper_thread_runs_in_the_calling_thread(void **state)
{
    int calls = 0;
    (void)state;
    assert_int_equal(proc_helper_call(NULL, count, &calls, NULL), 0);
    assert_int_equal(calls, 1);
    assert_false(proc_helper_is_busy(NULL));
    assert_false(proc_helper_keeps(NULL, NULL));
    proc_helper_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(helper_call_returns_after_the_helper_thread_ran_the_function),
        cmocka_unit_test(new_helper_calls_are_rejected_while_a_call_is_blocked),
        cmocka_unit_test(call_without_a_helper_thread_runs_in_the_calling_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
