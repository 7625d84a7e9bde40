/* Tests the server's child processes: answers, limits, and one child for several equal requests. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "server/http/children.h"

enum { PATIENCE_S = 180 };

struct bench {
    struct loop *loop;
    struct children *children;
    char file[64]; /* File to which each run of the child appends one byte. */
    unsigned answered;
    int status;
    char output[256];
    size_t len;
};

static int start_with(void **state, uint64_t limit_ns)
{
    struct bench *b = calloc(1, sizeof(*b));
    struct children_options options = {.program = "/bin/sh",
                                       .at_once = 1,
                                       .queue_max = 2,
                                       .limit_ns = limit_ns,
                                       .output_max = 1000};
    snprintf(b->file, sizeof(b->file), "/tmp/ebb-children-XXXXXX");
    int fd = mkstemp(b->file);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(loop_new(&b->loop), 0);
    assert_int_equal(children_new(b->loop, &options, &b->children), 0);
    *state = b;
    return 0;
}

static int start(void **state)
{
    return start_with(state, PATIENCE_S * NS_PER_S);
}

/* Sets a time limit that the child always exceeds. */
static int start_hasty(void **state)
{
    return start_with(state, NS_PER_S / 5);
}

static int stop(void **state)
{
    struct bench *b = *state;
    children_free(b->children);
    loop_free(b->loop);
    unlink(b->file);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    free(b);
    return 0;
}

static void on_child_done(void *user, int status, const char *output, size_t len)
{
    struct bench *b = user;
    b->answered++;
    b->status = status;
    b->len = len;
    snprintf(b->output, sizeof(b->output), "%.*s", (int)(len < 200 ? len : 200), output);
}

static int ask_as(struct bench *b, bool is_guest, const char *key, const char *script,
                  struct child_waiter **ret)
{
    char whole[512];
    struct child_waiter *waiter;
    snprintf(whole, sizeof(whole), "printf x >>%s; %s", b->file, script);
    const char *argv[] = {"-c", whole, NULL};
    return children_ask(b->children, argv, key, is_guest, on_child_done, b, ret ? ret : &waiter);
}

static int ask(struct bench *b, const char *key, const char *script, struct child_waiter **ret)
{
    return ask_as(b, false, key, script, ret);
}

static void wait_answers(struct bench *b, unsigned count)
{
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    while (b->answered < count && clock_mono_ns() < until)
        assert_int_equal(loop_once(b->loop, 50), 0);
    assert_int_equal(b->answered, count);
}

static long runs(const struct bench *b)
{
    struct stat st;
    assert_int_equal(stat(b->file, &st), 0);
    return (long)st.st_size;
}

static void answer_is_the_stdout_of_the_child_process_unless_it_is_empty(void **state)
{
    struct bench *b = *state;
    assert_int_equal(ask(b, "k", "echo out; echo err >&2; exit 3", NULL), 0);
    wait_answers(b, 1);
    assert_int_equal(b->status, 3);
    assert_string_equal(b->output, "out\n");
}

static void answer_is_the_stderr_of_the_child_process_if_stdout_is_empty(void **state)
{
    struct bench *b = *state;
    assert_int_equal(ask(b, "k", "echo 'ebb: verdict: why' >&2; exit 2", NULL), 0);
    wait_answers(b, 1);
    assert_int_equal(b->status, 2);
    assert_string_equal(b->output, "why");
}

static void requests_with_equal_keys_share_one_child_process(void **state)
{
    struct bench *b = *state;
    for (int i = 0; i < 5; i++)
        assert_int_equal(ask(b, "k", "sleep 0.1; echo 1", NULL), 0);
    wait_answers(b, 5);
    assert_int_equal(runs(b), 1);
}

static void request_is_refused_if_the_child_process_queue_is_full(void **state)
{
    struct bench *b = *state;
    assert_int_equal(ask(b, "1", "sleep 0.1", NULL), 0);
    assert_int_equal(ask(b, "2", "true", NULL), 0);
    assert_int_equal(ask(b, "3", "true", NULL), 0);
    assert_int_equal(ask(b, "4", "true", NULL), -EAGAIN);
    wait_answers(b, 3);
    assert_int_equal(runs(b), 3);
}

static void guest_requests_run_last_and_fill_at_most_half_of_the_queue(void **state)
{
    struct bench *b = *state;
    assert_int_equal(ask(b, "1", "sleep 0.1; echo first", NULL), 0);
    assert_int_equal(ask_as(b, true, "2", "echo guest", NULL), 0);
    assert_int_equal(ask_as(b, true, "3", "echo guest", NULL), -EAGAIN);
    assert_int_equal(ask(b, "4", "echo owner", NULL), 0);
    wait_answers(b, 2);
    assert_string_equal(b->output, "owner\n");
    wait_answers(b, 3);
    assert_string_equal(b->output, "guest\n");
}

static void child_process_group_is_killed_at_the_time_limit(void **state)
{
    struct bench *b = *state;
    assert_int_equal(ask(b, "k", "sleep 600 & sleep 600", NULL), 0);
    wait_answers(b, 1);
    assert_int_equal(b->status, -ETIMEDOUT);
}

static void child_process_with_too_much_output_is_killed(void **state)
{
    struct bench *b = *state;
    assert_int_equal(ask(b, "k", "while :; do echo 0123456789; done", NULL), 0);
    wait_answers(b, 1);
    assert_int_equal(b->status, -EFBIG);
    assert_int_equal(b->len, 1000);
}

static void cancelled_request_is_not_answered_when_the_child_exits(void **state)
{
    struct bench *b = *state;
    struct child_waiter *running, *waiting;
    assert_int_equal(ask(b, "1", "echo 1", &running), 0);
    assert_int_equal(ask(b, "2", "echo 2", &waiting), 0);
    child_waiter_cancel(running);
    child_waiter_cancel(waiting);
    assert_int_equal(ask(b, "3", "echo 3", NULL), 0);
    wait_answers(b, 1);
    assert_string_equal(b->output, "3\n");
    assert_int_equal(runs(b), 2);
}

static void child_process_fails_at_once_if_the_program_is_missing(void **state)
{
    struct bench *b = *state;
    struct children *other;
    struct child_waiter *waiter;
    struct children_options options = {
        .program = "/nonexistent/ebb", .at_once = 1, .limit_ns = NS_PER_S};
    const char *argv[] = {"verdict", NULL};
    assert_int_equal(children_new(b->loop, &options, &other), 0);
    assert_int_equal(children_ask(other, argv, "k", false, on_child_done, b, &waiter), 0);
    assert_null(waiter);
    assert_int_equal(b->answered, 1);
    assert_int_equal(b->status, -ENOENT);
    children_free(other);
}

static void stopping_the_server_kills_its_child_processes(void **state)
{
    struct bench *b = *state;
    assert_int_equal(ask(b, "1", "sleep 600", NULL), 0);
    assert_int_equal(ask(b, "2", "sleep 600", NULL), 0);
    children_free(b->children);
    b->children = NULL;
    assert_int_equal(b->answered, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(answer_is_the_stdout_of_the_child_process_unless_it_is_empty),
        TEST(answer_is_the_stderr_of_the_child_process_if_stdout_is_empty),
        TEST(requests_with_equal_keys_share_one_child_process),
        TEST(request_is_refused_if_the_child_process_queue_is_full),
        TEST(guest_requests_run_last_and_fill_at_most_half_of_the_queue),
        cmocka_unit_test_setup_teardown(child_process_group_is_killed_at_the_time_limit,
                                        start_hasty, stop),
        TEST(child_process_with_too_much_output_is_killed),
        TEST(cancelled_request_is_not_answered_when_the_child_exits),
        TEST(child_process_fails_at_once_if_the_program_is_missing),
        TEST(stopping_the_server_kills_its_child_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
