/* Tests the server log: JSON and text lines, levels, and a stalled reader. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/http/log.h"

static char text[1 << 17];

static const char *drain(int fd)
{
    size_t len = 0;
    ssize_t n;
    while (len < sizeof(text) - 1 && (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    return text;
}

static void open_pipe(int fds[2])
{
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
}

static void close_pipe(const int fds[2])
{
    log_start(-1, LOG_DEBUG, 1);
    close(fds[0]);
    close(fds[1]);
}

static void server_log_writes_any_message_as_one_json_object(void **state)
{
    (void)state;
    int fds[2];
    open_pipe(fds);
    log_start(fds[1], LOG_INFO, 1);
    log_line(LOG_WARN, "job_state", 17, "\"%s\"", "a\nb\xff\x1b[31m");
    const char *line = drain(fds[0]);
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    json_t *doc = json_loads(line, 0, NULL);
    assert_non_null(doc);
    assert_string_equal(json_string_value(json_object_get(doc, "level")), "warn");
    assert_string_equal(json_string_value(json_object_get(doc, "event")), "job_state");
    assert_int_equal(json_integer_value(json_object_get(doc, "job")), 17);
    assert_string_equal(json_string_value(json_object_get(doc, "message")),
                        "\"a\nb\xef\xbf\xbd\x1b[31m\"");
    assert_int_equal(strlen(json_string_value(json_object_get(doc, "t"))), 24);
    json_decref(doc);
    close_pipe(fds);
}

static void server_log_text_escapes_control_characters(void **state)
{
    (void)state;
    int fds[2];
    open_pipe(fds);
    log_start(fds[1], LOG_DEBUG, 0);
    log_line(LOG_INFO, "listening", 0, "on %s", "x\x1b[31m\n");
    const char *line = drain(fds[0]);
    assert_non_null(strstr(line, " info  listening: on x\\e[31m\\n\n"));
    close_pipe(fds);
}

static void server_log_lines_below_the_log_level_are_dropped(void **state)
{
    (void)state;
    int fds[2];
    open_pipe(fds);
    log_start(fds[1], LOG_WARN, 1);
    log_line(LOG_INFO, "x", 0, "no");
    assert_string_equal(drain(fds[0]), "");
    log_line(LOG_ERROR, "x", 0, "yes");
    assert_non_null(strstr(drain(fds[0]), "yes"));
    close_pipe(fds);
}

static void server_log_reports_the_number_of_dropped_lines(void **state)
{
    (void)state;
    int fds[2];
    open_pipe(fds);
    log_start(fds[1], LOG_DEBUG, 1);
    for (int i = 0; i < 2000; i++)
        log_line(LOG_INFO, "x", i + 1, "%0500d", i);
    assert_null(strstr(drain(fds[0]), "log lines were dropped"));
    log_line(LOG_INFO, "y", 0, "back");
    const char *line = drain(fds[0]);
    unsigned lost = 0;
    const char *at = strstr(line, "\"message\":\"");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"message\":\"%u log lines were", &lost), 1);
    assert_in_range(lost, 1, 1999);
    assert_non_null(strstr(line, "back"));
    close_pipe(fds);
}

static void long_server_log_message_is_truncated(void **state)
{
    (void)state;
    int fds[2];
    char large[8192];
    open_pipe(fds);
    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    log_start(fds[1], LOG_DEBUG, 1);
    log_line(LOG_INFO, "x", 0, "%s", large);
    assert_in_range(strlen(drain(fds[0])), 1024, 2048);
    close_pipe(fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(server_log_writes_any_message_as_one_json_object),
        cmocka_unit_test(server_log_text_escapes_control_characters),
        cmocka_unit_test(server_log_lines_below_the_log_level_are_dropped),
        cmocka_unit_test(server_log_reports_the_number_of_dropped_lines),
        cmocka_unit_test(long_server_log_message_is_truncated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
