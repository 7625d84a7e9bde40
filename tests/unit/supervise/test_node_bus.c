/* Tests the node bus while access to the shared folder hangs. Opening a FIFO for writing blocks as
 * long as the FIFO has no reader, just like access to a hanging file server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "supervise/node_bus.h"

enum { PATIENCE_S = 60, CALLS = 1000 };

static char folder[64];

static int make_node(void **state)
{
    char path[80];
    (void)state;
    strcpy(folder, "/tmp/ebb-bus.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/node-00", folder);
    return mkdir(path, 0777);
}

static int remove_node(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void path_of(const char *name, char ret[128])
{
    snprintf(ret, 128, "%s/node-00/%s", folder, name);
}

/* Opens the FIFO at PATH for reading, which unblocks its writer. Waits until the writer has closed
 * the FIFO, and removes it. Returns the read end: as long as it is open, no writer blocks. */
static int end_hang(const char *path)
{
    struct pollfd p = {.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    assert_true(p.fd >= 0);
    assert_int_equal(poll(&p, 1, PATIENCE_S * 1000), 1);
    assert_true(p.revents & POLLHUP);
    assert_int_equal(unlink(path), 0);
    return p.fd;
}

/* Waits for the file `request`, which the thread writes just before the heartbeat. */
static void wait_for_request(void)
{
    char path[128];
    path_of("../request", path);
    while (access(path, F_OK) < 0)
        usleep(1000);
}

static void node_bus_functions_return_even_if_the_shared_folder_hangs(void **state)
{
    const struct node_beat beat = {.ranks = 2, .verdict = "stable"};
    const struct node_beat last = {.ranks = 2, .has_ended = true};
    const struct node_request request = {.id = "00-1", .phase = NODE_READY, .why = "a test"};
    struct node_request ret_request;
    struct node_answers ret_answers;
    struct node_bus *bus = NULL;
    char path[128], text[600] = "";
    (void)state;
    path_of("", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    path_of("heartbeat", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    const struct node_bus_options options = {.node_fd = fd, .nodes = 2, .host = "n1"};
    assert_int_equal(node_bus_new(&options, &bus), 0);
    alarm(PATIENCE_S); /* The alarm ends the test if a call blocks. */
    node_bus_request(bus, &request);
    node_bus_beat(bus, &beat);
    wait_for_request();
    for (int i = 0; i < CALLS; i++) {
        node_bus_beat(bus, &beat);
        node_bus_answer(bus, "01-1", NODE_ASKED);
        node_bus_request(bus, &request);
        node_bus_follow(bus, "00-1");
        node_bus_read(bus, &ret_request, &ret_answers);
    }
    int fifo = end_hang(path);
    node_bus_beat(bus, &last);
    node_bus_free(bus, PATIENCE_S * NS_PER_S);
    alarm(0);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(read(file, text, sizeof text - 1) > 0);
    assert_non_null(strstr(text, "\"state\":\"ended\""));
    close(file);
    close(fifo);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(node_bus_functions_return_even_if_the_shared_folder_hangs,
                                        make_node, remove_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
