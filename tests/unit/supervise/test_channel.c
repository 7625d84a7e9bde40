/* Tests the frames between supervisor and client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "supervise/channel.h"

struct two {
    struct channel a, b;
};

static int set_up(void **state)
{
    struct two *two = calloc(1, sizeof *two);
    int fds[2];
    if (!two || channel_pair(fds) < 0)
        return -1;
    channel_init(&two->a, fds[0]);
    channel_init(&two->b, fds[1]);
    *state = two;
    return 0;
}

static int tear_down(void **state)
{
    struct two *two = *state;
    channel_fini(&two->a);
    channel_fini(&two->b);
    free(two);
    return 0;
}

static void client_channel_delivers_frames_complete_and_in_order(void **state)
{
    struct two *two = *state;
    enum channel_type type;
    const char *data;
    size_t len;
    channel_queue(&two->a, CHANNEL_OUT, "one", 3);
    channel_queue(&two->a, CHANNEL_STOPPED, "", 0);
    assert_int_equal(channel_flush(&two->a), 0);
    assert_int_equal(channel_fill(&two->b), 1);
    assert_int_equal(channel_next(&two->b, &type, &data, &len), 1);
    assert_int_equal(type, CHANNEL_OUT);
    assert_memory_equal(data, "one", 3);
    assert_int_equal(channel_next(&two->b, &type, &data, &len), 1);
    assert_int_equal(type, CHANNEL_STOPPED);
    assert_int_equal(len, 0);
    assert_int_equal(channel_next(&two->b, &type, &data, &len), 0);
    assert_int_equal(channel_fill(&two->b), 0);
}

static void client_channel_queues_frames_that_exceed_the_socket_buffer(void **state)
{
    struct two *two = *state;
    enum { COUNT = 64, SIZE = 50000 };
    enum channel_type type;
    const char *data;
    size_t len, got = 0;
    const int room =
        64
        << 10; /* The size is set here, so that it does not depend on the default of the machine. */
    char *block = malloc(SIZE);
    assert_non_null(block);
    assert_int_equal(setsockopt(two->a.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    for (int i = 0; i < COUNT; i++) {
        memset(block, i, SIZE);
        channel_queue(&two->a, CHANNEL_OUT, block, SIZE);
    }
    assert_int_equal(channel_flush(&two->a), 1);
    while (got < COUNT) {
        assert_true(channel_flush(&two->a) >= 0);
        assert_true(channel_fill(&two->b) >= 0);
        while (channel_next(&two->b, &type, &data, &len) == 1) {
            assert_int_equal(len, SIZE);
            assert_int_equal(data[0], (char)got);
            assert_int_equal(data[SIZE - 1], (char)got);
            got++;
        }
    }
    free(block);
}

static void client_channel_rejects_an_oversized_frame(void **state)
{
    struct two *two = *state;
    enum channel_type type;
    const char *data;
    size_t len;
    assert_int_equal(write(two->a.fd, "o\xff\xff\xff\xff", 5), 5);
    assert_int_equal(channel_fill(&two->b), 1);
    assert_int_equal(channel_next(&two->b, &type, &data, &len), -EBADMSG);
}

static void client_channel_returns_epipe_if_the_other_end_is_closed(void **state)
{
    struct two *two = *state;
    channel_fini(&two->b);
    channel_queue(&two->a, CHANNEL_OUT, "x", 1);
    assert_int_equal(channel_flush(&two->a), -EPIPE);
    assert_int_equal(channel_fill(&two->a), -EPIPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(client_channel_delivers_frames_complete_and_in_order,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(client_channel_queues_frames_that_exceed_the_socket_buffer,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(client_channel_rejects_an_oversized_frame, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(client_channel_returns_epipe_if_the_other_end_is_closed,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
