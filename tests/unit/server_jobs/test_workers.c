/* Tests the threads for tasks that may block. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "server/jobs/workers.h"

static struct loop *loop;
static struct workers *workers;
/* The workers that could not be freed. Without volatile, the compiler drops this pointer, and the
 * leak sanitizer reports the workers. */
static struct workers *volatile left;
static int blocked[2]; /* a pipe; tasks that read from it block */
static unsigned done, freed;

struct chore {
    bool is_blocked;
};

static void chore_run(void *user)
{
    char byte;
    struct chore *chore = user;
    if (chore->is_blocked)
        assert_int_equal(read(blocked[0], &byte, 1), 1);
}

static void chore_done(void *user)
{
    (void)user;
    done++;
}

static void chore_free(void *user)
{
    freed++;
    free(user);
}

static struct task *start(bool is_blocked, int64_t key)
{
    static const struct task_kind kind = {chore_run, chore_done, chore_free};
    struct chore *chore = malloc(sizeof *chore);
    struct task *task = NULL;
    assert_non_null(chore);
    chore->is_blocked = is_blocked;
    assert_int_equal(workers_start(workers, &kind, key, chore, &task), 0);
    return task;
}

static void unblock(unsigned count)
{
    while (count--)
        assert_int_equal(write(blocked[1], "x", 1), 1);
}

static void run_until(const unsigned *number, unsigned value)
{
    while (*number < value)
        assert_int_equal(loop_once(loop, -1), 0);
}

static void run_for_a_while(void)
{
    for (uint64_t until_ns = clock_mono_ns() + 50 * NS_PER_MS; clock_mono_ns() < until_ns;)
        assert_int_equal(loop_once(loop, 10), 0);
}

static int setup(void **state)
{
    (void)state;
    done = freed = 0;
    assert_int_equal(pipe(blocked), 0);
    assert_int_equal(loop_new(&loop), 0);
    assert_int_equal(workers_new(loop, &workers), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_true(workers_free(workers));
    loop_free(loop);
    close(blocked[0]);
    close(blocked[1]);
    return 0;
}

static void seven_blocked_tasks_do_not_delay_other_tasks(void **state)
{
    (void)state;
    for (int i = 0; i < 7; i++)
        start(true, i + 1);
    for (int i = 0; i < 100; i++)
        start(false, 100 + i);
    run_until(&done, 100);
    unblock(7);
    run_until(&freed, 107);
}

static void task_waits_for_a_running_task_with_the_same_key(void **state)
{
    (void)state;
    start(true, 1);
    for (int i = 0; i < 20; i++)
        start(true, 1); /* tasks with different keys would occupy all threads */
    start(false, 2);
    run_until(&done, 1);
    run_for_a_while();
    assert_int_equal(done, 1);
    unblock(21);
    run_until(&freed, 22);
}

static void done_callback_is_not_called_for_a_cancelled_task(void **state)
{
    (void)state;
    struct task *runs = start(true, 1), *waits = start(true, 1);
    run_for_a_while();
    task_cancel(waits);
    assert_int_equal(freed, 1);
    task_cancel(runs);
    unblock(1);
    run_until(&freed, 2);
    assert_int_equal(done, 0);
}

static void freeing_a_worker_pool_does_not_wait_for_a_blocked_thread(void **state)
{
    (void)state;
    start(true, 1);
    start(true, 1);
    run_for_a_while();
    uint64_t begun_ns = clock_mono_ns();
    assert_false(workers_free(workers));
    assert_true(clock_mono_ns() - begun_ns < 60 * NS_PER_S);
    assert_int_equal(freed, 1);
    left = workers;
    unblock(1);
    assert_int_equal(workers_new(loop, &workers), 0); /* teardown frees this pool */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(seven_blocked_tasks_do_not_delay_other_tasks),
        TEST(task_waits_for_a_running_task_with_the_same_key),
        TEST(done_callback_is_not_called_for_a_cancelled_task),
        TEST(freeing_a_worker_pool_does_not_wait_for_a_blocked_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
