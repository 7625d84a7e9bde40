/* Tests the writing thread: order of writes, a full disk, a hanging disk, and tail replacement. */
#include "trace/sink.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "trace/fake_job.h"

enum { MEMORY = 1 << 20 };
#define LONG_NS (120 * NS_PER_S)

static struct sink *new_sink(const char *path, size_t memory)
{
    struct sink *s;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(sink_new(fd, memory, &s), 0);
    return s;
}

static void check_content(const char *path, const char *expected)
{
    struct buf b = {0};
    fake_job_read_bytes(path, &b);
    assert_string_equal(buf_str(&b), expected);
    buf_fini(&b);
}

static void sink_writes_bytes_to_the_file_in_order(void **state)
{
    (void)state;
    char path[256], word[16];
    struct buf expected = {0};
    struct sink *s = new_sink(fake_job_path(path, "order"), MEMORY);
    for (int i = 0; i < 1000; i++) {
        int n = snprintf(word, sizeof word, "%d ", i);
        buf_add_str(&expected, word);
        assert_int_equal(sink_append(s, word, (size_t)n), 0);
        if (i % 100 == 0)
            assert_int_equal(sink_sync(s), 0);
    }
    assert_int_equal(sink_close(s, LONG_NS), 0);
    check_content(path, buf_str(&expected));
    buf_fini(&expected);
}

static void sink_keeps_existing_content_of_the_file(void **state)
{
    (void)state;
    char path[256];
    struct sink *s;
    fake_job_write_file(fake_job_path(path, "stays"), "head ", 5);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(sink_new(fd, MEMORY, &s), 0);
    sink_append(s, "more", 4);
    assert_int_equal(sink_close(s, LONG_NS), 0);
    check_content(path, "head more");
}

static void sink_replaces_the_file_tail_by_a_shorter_one(void **state)
{
    (void)state;
    char path[256];
    struct sink *s = new_sink(fake_job_path(path, "tail"), MEMORY);
    sink_append(s, "head ", 5);
    sink_begin_tail(s, "one ", 4);
    sink_append(s, "two ", 4);
    sink_replace_tail(s, "1+2 ", 4);
    sink_append(s, "not tail ", 9);
    sink_begin_tail(s, "three ", 6);
    sink_replace_tail(s, "3 ", 2);
    assert_int_equal(sink_close(s, LONG_NS), 0);
    check_content(path, "head 1+2 not tail 3 ");
}

static void sink_appends_a_replacement_longer_than_the_tail(void **state)
{
    (void)state;
    char path[256];
    struct sink *s = new_sink(fake_job_path(path, "longer"), MEMORY);
    sink_begin_tail(s, "one", 3);
    sink_replace_tail(s, "something", 9);
    /* After an append, the file ends in data that are not a tail, so there is nothing to replace.
     * */
    sink_replace_tail(s, " again", 6);
    assert_int_equal(sink_close(s, LONG_NS), 0);
    check_content(path, "onesomething again");
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void sink_signals_one_event_and_counts_losses_on_a_full_disk(void **state)
{
    (void)state;
    struct sink *s;
    struct sink_status st;
    uint64_t count;
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(sink_new(fd, MEMORY, &s), 0);
    assert_false(is_readable(sink_event_fd(s)));
    sink_append(s, "12345", 5);
    sink_append(s, "678", 3);
    assert_int_equal(sink_wait(s, LONG_NS), 0);
    sink_status(s, &st);
    assert_int_equal(st.first_error, -ENOSPC);
    assert_true(st.failing);
    assert_int_equal(st.losses, 2);
    assert_int_equal(st.waiting_bytes, 0);
    assert_int_equal(read(sink_event_fd(s), &count, sizeof count), sizeof count);
    assert_int_equal(count, 1);
    assert_int_equal(sink_close(s, LONG_NS), -ENOSPC);
}

static bool is_readable_soon(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, (int)(LONG_NS / NS_PER_MS)) == 1;
}

/* A pipe simulates a slow disk: the write completes only after the pipe has been read. */
static void sink_signals_when_the_queue_has_room_again(void **state)
{
    (void)state;
    struct sink *s;
    int pair[2];
    uint64_t count;
    static char block[1 << 20];
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    assert_int_equal(sink_new(pair[1], 2 * sizeof block, &s), 0);
    sink_wake_below(s, 0); /* The queue is empty, so the event comes at once. */
    assert_int_equal(read(sink_event_fd(s), &count, sizeof count), sizeof count);
    assert_int_equal(sink_append(s, block, sizeof block), 0);
    sink_wake_below(s, 100);
    assert_false(is_readable(sink_event_fd(s)));
    for (size_t left = sizeof block; left;) {
        ssize_t n = read(pair[0], block, left);
        assert_true(n > 0);
        left -= (size_t)n;
    }
    assert_true(is_readable_soon(sink_event_fd(s)));
    close(pair[0]);
    assert_int_equal(sink_close(s, LONG_NS), 0);
}

static void partly_written_data_is_removed_before_the_next_append(void **state)
{
    (void)state;
    char path[256];
    struct sink *s = new_sink(fake_job_path(path, "torn"), MEMORY);
    struct sink_status st;
    sink_append(s, "good ", 5);
    assert_int_equal(sink_wait(s, LONG_NS), 0);
    fake_job_file_limit(8); /* The next append can write only its first three bytes. */
    sink_append(s, "refused", 7);
    sink_sync(s);
    assert_int_equal(sink_wait(s, LONG_NS), 0);
    check_content(path, "good ");
    sink_status(s, &st);
    assert_int_equal(st.first_error, -EFBIG);
    assert_true(st.failing);
    fake_job_file_limit(RLIM_INFINITY);
    sink_append(s, "again", 5);
    assert_int_equal(sink_wait(s, LONG_NS), 0);
    sink_status(s, &st);
    assert_false(st.failing);
    assert_int_equal(st.losses, 1);
    assert_int_equal(st.size_bytes, 10);
    assert_int_equal(sink_close(s, LONG_NS), -EFBIG);
    check_content(path, "good again");
}

static void old_file_tail_is_kept_if_the_replacement_fails(void **state)
{
    (void)state;
    char path[256];
    struct sink *s = new_sink(fake_job_path(path, "kept"), MEMORY);
    struct sink_status st;
    sink_begin_tail(s, "one two ", 8);
    assert_int_equal(sink_wait(s, LONG_NS), 0);
    fake_job_file_limit(10);
    sink_replace_tail(s, "1+2 ", 4);
    assert_int_equal(sink_wait(s, LONG_NS), 0);
    fake_job_file_limit(RLIM_INFINITY);
    sink_status(s, &st);
    assert_true(st.failing);
    assert_int_equal(st.losses, 0);
    sink_append(s, "three", 5);
    assert_int_equal(sink_close(s, LONG_NS), -EFBIG);
    check_content(path, "one two three");
}

static unsigned count_threads(void)
{
    char line[256];
    unsigned n = 0;
    FILE *f = fopen("/proc/self/status", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "Threads: %u", &n) == 1)
            break;
    fclose(f);
    return n;
}

static void hanging_disk_does_not_block_closing_the_sink(void **state)
{
    (void)state;
    static char big[128 * 1024]; /* more than a pipe can buffer */
    struct sink *s;
    struct sink_status st;
    int pipes[2];
    unsigned threads = count_threads();
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(sink_new(pipes[1], 300 * 1024, &s), 0);
    assert_int_equal(sink_append(s, big, sizeof big), 0);
    assert_int_equal(sink_append(s, big, sizeof big), 0);
    assert_int_equal(sink_append(s, big, sizeof big), -ENOBUFS);
    sink_status(s, &st);
    assert_true(st.waiting_bytes >= 2 * sizeof big);
    assert_int_equal(sink_wait(s, NS_PER_MS), -ETIMEDOUT);
    assert_int_equal(sink_close(s, 20 * NS_PER_MS), -ETIMEDOUT);
    close(pipes[0]); /* makes the write fail, so that the thread exits */
    while (count_threads() > threads)
        usleep(1000);
}

static void closing_a_null_sink_does_nothing(void **state)
{
    (void)state;
    assert_int_equal(sink_close(NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sink_writes_bytes_to_the_file_in_order),
        cmocka_unit_test(sink_keeps_existing_content_of_the_file),
        cmocka_unit_test(sink_replaces_the_file_tail_by_a_shorter_one),
        cmocka_unit_test(sink_appends_a_replacement_longer_than_the_tail),
        cmocka_unit_test(sink_signals_one_event_and_counts_losses_on_a_full_disk),
        cmocka_unit_test(sink_signals_when_the_queue_has_room_again),
        cmocka_unit_test(partly_written_data_is_removed_before_the_next_append),
        cmocka_unit_test(old_file_tail_is_kept_if_the_replacement_fails),
        cmocka_unit_test(hanging_disk_does_not_block_closing_the_sink),
        cmocka_unit_test(closing_a_null_sink_does_nothing),
    };
    fake_job_folder();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
