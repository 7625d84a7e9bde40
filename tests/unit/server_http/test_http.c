/* Tests HTTP over a socket: answers, parked requests, refusals, and clients that disconnect, stall
 * or send too much. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#define ZLIB_CONST
#include <zlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "server/http/http_private.h"

enum { PATIENCE_S = 180, HASTY_S = 1 };

struct server {
    struct loop *loop;
    struct http *http;
    int port;
    struct http_request *parked;
    unsigned gone, handled, freed, pauses;
    bool is_paused;
    struct http_upgraded *upgraded;
    int upgraded_fd;
    char extra[64];
    unsigned char gz[256];
    size_t gz_len;
    char large[5 << 20];
};

static void on_gone(void *user)
{
    struct server *s = user;
    s->gone++;
    s->parked = NULL;
}

static void on_upgrade(void *user, struct http_upgraded *u, int fd, const void *extra, size_t len)
{
    struct server *s = user;
    s->upgraded = u;
    s->upgraded_fd = fd;
    assert_true(len < sizeof(s->extra));
    if (len > 0) /* if LEN is 0, EXTRA may be NULL */
        memcpy(s->extra, extra, len);
}

static void admit(void *user, struct http_request *r)
{
    (void)user;
    if (strncmp(http_path(r), "/stranger", 9) != 0)
        http_set_rank(r, strncmp(http_path(r), "/reader", 7) == 0 ? HTTP_READER : HTTP_OWNER);
    if (!http_is_answered(r) && strcmp(http_path(r), "/forbidden") == 0)
        http_answer_error(r, 403, "not %s", "you");
}

/* The stream pauses before each byte. */
static ssize_t read_slowly(void *user, uint64_t pos, char *buf, size_t max)
{
    struct server *s = user;
    s->is_paused = !s->is_paused;
    s->pauses += s->is_paused;
    if (s->is_paused)
        return -EAGAIN;
    assert_true(max > 0);
    *buf = (char)('0' + pos);
    return 1;
}

static void free_slow_stream(void *user)
{
    struct server *s = user;
    s->freed++;
}

static void handle(void *user, struct http_request *r)
{
    struct server *s = user;
    const char *path = http_path(r);
    s->handled++;
    if (strcmp(path, "/wait") == 0) {
        s->parked = r;
        http_park(r, on_gone, NULL, s);
    } else if (strcmp(path, "/both") == 0) {
        http_park(r, on_gone, NULL, s);
        http_answer_text(r, 200, "text/plain", "at once", 7);
    } else if (strcmp(path, "/slow") == 0) {
        s->parked = r;
        http_answer_stream(r, 200, "text/plain", 5, read_slowly, s, free_slow_stream);
    } else if (strcmp(path, "/gz") == 0) {
        http_answer_gzip(r, "text/plain", "\"v1\"", s->gz, s->gz_len);
    } else if (strcmp(path, "/up") == 0) {
        http_add_header(r, "Upgrade", "echo");
        http_upgrade(r, on_upgrade, s);
    } else if (strcmp(path, "/large") == 0) {
        http_answer_text(r, 200, "text/plain", s->large, sizeof(s->large));
    } else if (strcmp(path, "/nothing") == 0) {
        return;
    } else {
        size_t len;
        const char *body = http_body(r, &len);
        const char *q = http_query(r, "q");
        json_t *doc = json_pack("{s:i, s:s, s:s, s:i}", "method", (int)http_method(r), "path", path,
                                "q", q ? q : "", "body", (int)len);
        (void)body;
        http_answer_json(r, 200, doc);
    }
}

static int listen_socket(int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

static int start_with(void **state, unsigned idle_s)
{
    struct server *s = calloc(1, sizeof(*s));
    struct err err = {""};
    z_stream z = {.next_in = (const unsigned char *)"unpacked", .avail_in = 8};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, 0), Z_OK);
    z.next_out = s->gz;
    z.avail_out = sizeof(s->gz);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    s->gz_len = sizeof(s->gz) - z.avail_out;
    deflateEnd(&z);
    s->upgraded_fd = -1;
    assert_int_equal(loop_new(&s->loop), 0);
    struct http_options options = {.listeners = {{.fd = listen_socket(&s->port)}},
                                   .listener_count = 1,
                                   .connections_max = 32,
                                   .connections_per_ip_max = 32,
                                   .idle_s = idle_s,
                                   .admit = admit,
                                   .handle = handle,
                                   .user = s};
    assert_int_equal(http_start(s->loop, &options, &s->http, &err), 0);
    *state = s;
    return 0;
}

/* The deadlines are long enough for a busy machine. */
static int start(void **state)
{
    return start_with(state, 2 * PATIENCE_S);
}

static int start_hasty(void **state)
{
    return start_with(state, HASTY_S);
}

static int stop(void **state)
{
    struct server *s = *state;
    http_stop(s->http);
    loop_free(s->loop);
    free(s);
    return 0;
}

/* ---- the client ---- */

static int dial(const struct server *s)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)s->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void turn(struct server *s)
{
    assert_int_equal(loop_once(s->loop, 20), 0);
}

static void say(struct server *s, int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return; /* The server has closed the connection, but its answer can still be read. */
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        turn(s);
    }
}

/* Receives until RET contains WANTED or the server closes the connection. Returns true if the
 * connection was closed. */
static bool receive_until(struct server *s, int fd, const char *wanted, struct buf *ret)
{
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    char piece[4096];
    while (clock_mono_ns() < until) {
        ssize_t n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return true;
        if (n > 0)
            buf_add(ret, piece, (size_t)n);
        if (wanted && strstr(buf_str(ret), wanted))
            return false;
        turn(s);
    }
    fail_msg("timed out waiting for %s; received: %s", wanted ? wanted : "the end", buf_str(ret));
    return false;
}

static void ask(struct server *s, const char *request, const char *wanted)
{
    int fd = dial(s);
    struct buf answer = {0};
    say(s, fd, request, strlen(request));
    bool is_over = receive_until(s, fd, wanted, &answer);
    if (wanted && is_over)
        fail_msg("%s is missing in the answer: %s", wanted, buf_str(&answer));
    buf_fini(&answer);
    close(fd);
}

#define HOST "Host: localhost\r\n"

/* ---- answers ---- */

static void request_path_and_query_are_decoded(void **state)
{
    ask(*state, "GET /a%20b?x=1&q=c%2Bd+e HTTP/1.1\r\n" HOST "\r\n",
        "{\"method\":0,\"path\":\"/a b\",\"q\":\"c+d e\",\"body\":0}");
}

static void every_http_answer_has_the_security_headers(void **state)
{
    ask(*state, "GET / HTTP/1.1\r\n" HOST "\r\n", "X-Content-Type-Options: nosniff\r\n");
    ask(*state, "GET / HTTP/1.1\r\n" HOST "\r\n", "Cache-Control: no-store\r\n");
    ask(*state, "GET /x HTTP/1.1\r\n" HOST "\r\n", "Content-Security-Policy: default-src 'none'");
}

static void request_handler_receives_body_in_any_transfer_encoding(void **state)
{
    ask(*state, "POST /b HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", "\"body\":5");
    ask(*state,
        "POST /b HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\nyou\r\n"
        "0\r\n\r\n",
        "\"body\":8");
    ask(*state, "POST /b HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "\"body\":0");
}

static void client_that_expects_100_continue_receives_it(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    struct buf answer = {0};
    const char *head = "POST /b HTTP/1.1\r\n" HOST "Expect: 100-continue\r\n"
                       "Content-Length: 2\r\n\r\n";
    say(s, fd, head, strlen(head));
    assert_false(receive_until(s, fd, "100 Continue", &answer));
    say(s, fd, "{}", 2);
    assert_false(receive_until(s, fd, "\"body\":2", &answer));
    buf_fini(&answer);
    close(fd);
}

static void one_connection_serves_many_pipelined_requests(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    struct buf answer = {0};
    const char *two = "GET /1 HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\n" HOST "\r\n";
    say(s, fd, two, strlen(two));
    assert_false(receive_until(s, fd, "\"path\":\"/2\"", &answer));
    assert_non_null(strstr(buf_str(&answer), "\"path\":\"/1\""));
    buf_clear(&answer);
    say(s, fd, two, strlen(two));
    assert_false(receive_until(s, fd, "\"path\":\"/2\"", &answer));
    buf_fini(&answer);
    close(fd);
}

static void answer_to_a_head_request_has_a_length_and_no_body(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    struct buf answer = {0};
    const char *head = "HEAD /x HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n";
    say(s, fd, head, strlen(head));
    assert_true(receive_until(s, fd, NULL, &answer));
    assert_non_null(strstr(buf_str(&answer), "Content-Length: 4"));
    assert_string_equal(strstr(buf_str(&answer), "\r\n\r\n"), "\r\n\r\n");
    buf_fini(&answer);
    close(fd);
}

static void http_1_0_requests_are_supported(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    struct buf answer = {0};
    say(s, fd, "GET /old HTTP/1.0\r\n\r\n", 21);
    assert_true(receive_until(s, fd, NULL, &answer));
    assert_non_null(strstr(buf_str(&answer), "\"path\":\"/old\""));
    buf_fini(&answer);
    close(fd);
}

static void paused_http_stream_continues_when_resumed(void **state)
{
    struct server *s = *state;
    static const char request[] = "GET /slow HTTP/1.1\r\n" HOST "\r\n";
    int fd = dial(s);
    struct buf answer = {0};
    say(s, fd, request, sizeof request - 1);
    for (unsigned i = 1; i <= 5; i++) {
        while (s->pauses < i)
            assert_int_equal(loop_once(s->loop, 1000), 0);
        http_stream_go_on(s->parked);
    }
    assert_false(receive_until(s, fd, "\r\n\r\n01234", &answer));
    buf_fini(&answer);
    close(fd);
}

static void paused_http_stream_is_freed_if_the_client_disconnects(void **state)
{
    struct server *s = *state;
    static const char request[] = "GET /slow HTTP/1.1\r\n" HOST "\r\n";
    int fd = dial(s);
    say(s, fd, request, sizeof request - 1);
    while (!s->is_paused)
        assert_int_equal(loop_once(s->loop, 1000), 0);
    close(fd);
    while (!s->freed)
        assert_int_equal(loop_once(s->loop, 1000), 0);
}

static void server_can_be_stopped_while_an_http_stream_is_paused(void **state)
{
    struct server *s = *state;
    static const char request[] = "GET /slow HTTP/1.1\r\n" HOST "\r\n";
    int fd = dial(s);
    say(s, fd, request, sizeof request - 1);
    while (!s->is_paused)
        assert_int_equal(loop_once(s->loop, 1000), 0);
    http_stop(s->http);
    s->http = NULL;
    assert_int_equal(s->freed, 1);
    close(fd);
}

static void asset_is_decompressed_if_the_client_does_not_accept_gzip(void **state)
{
    ask(*state, "GET /gz HTTP/1.1\r\n" HOST "\r\n", "\r\n\r\nunpacked");
    ask(*state, "GET /gz HTTP/1.1\r\n" HOST "Accept-Encoding: gzip;q=0\r\n\r\n",
        "\r\n\r\nunpacked");
    ask(*state, "GET /gz HTTP/1.1\r\n" HOST "Accept-Encoding: br, gzip\r\n\r\n",
        "Content-Encoding: gzip\r\n");
    ask(*state, "GET /gz HTTP/1.1\r\n" HOST "If-None-Match: \"v1\"\r\n\r\n", "HTTP/1.1 304 ");
}

static void request_left_unanswered_by_the_handler_gets_status_500(void **state)
{
    ask(*state, "GET /nothing HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 500 ");
}

/* ---- refused requests ---- */

static void ambiguous_http_headers_are_refused(void **state)
{
    struct server *s = *state;
    static const char *const requests[] = {
        "POST /b HTTP/1.1\r\n" HOST "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        "POST /b HTTP/1.1\r\n" HOST "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        "GET /b HTTP/1.1\r\n" HOST HOST "\r\n",
        "POST /b HTTP/1.1\r\n" HOST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        "\r\n",
        "POST /b HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\nabc",
        "GET /b HTTP/1.1\r\n" HOST "Authorization: a\r\nAuthorization: b\r\n\r\n",
        "POST /b HTTP/1.1\r\n" HOST "Content-Length : 2\r\n\r\nab",
        "GET /b HTTP/1.1\r\n" HOST "A(b): 2\r\n\r\n",
        "GET /b?q=1&q=2 HTTP/1.1\r\n" HOST "\r\n",
    };
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        ask(s, requests[i], "HTTP/1.1 400 ");
    assert_int_equal(s->handled, 0);
}

static void paths_with_dot_segments_or_bad_escapes_are_refused(void **state)
{
    struct server *s = *state;
    static const char *const paths[] = {"/../x",  "/a/../x",  "/%2e%2e/x",   "/a/%2E%2e",
                                        "/a%2fb", "/a%5cb",   "/a%00b",      "/a%0ab",
                                        "/%zz",   "/a//b",    "/./a",        "http://x/a",
                                        "/a%ff",  "/a?b=%00", "/a?b=%e2%28", "*"};
    char request[256];
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\n" HOST "\r\n", paths[i]);
        ask(s, request, "HTTP/1.1 400 ");
    }
    assert_int_equal(s->handled, 0);
}

static void request_with_expect_header_is_refused_before_body_is_sent(void **state)
{
    struct server *s = *state;
    ask(s, "POST /b HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 1048577\r\n\r\n",
        "HTTP/1.1 413 ");
    ask(s, "POST /forbidden HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
        "HTTP/1.1 403 ");
    ask(s, "GET /forbidden HTTP/1.1\r\n" HOST "\r\n", "\"message\":\"not you\"");
    assert_int_equal(s->handled, 0);
}

static void small_body_of_a_refused_request_is_read_before_the_answer(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    struct buf answer = {0};
    char body[1000] = {0};
    const char *head = "POST /forbidden HTTP/1.1\r\n" HOST "Content-Length: 1000\r\n\r\n";
    say(s, fd, head, strlen(head));
    for (int i = 0; i < 5; i++)
        turn(s);
    assert_int_equal(s->http->bodies.held, 0);
    say(s, fd, body, sizeof(body));
    assert_false(receive_until(s, fd, "not you", &answer));
    buf_clear(&answer);
    say(s, fd, "GET /next HTTP/1.1\r\n" HOST "\r\n", strlen("GET /next HTTP/1.1\r\n" HOST "\r\n"));
    assert_false(receive_until(s, fd, "/next", &answer));
    buf_fini(&answer);
    close(fd);
}

static void connection_closed_in_mid_request_is_freed_before_deadline(void **state)
{
    struct server *s = *state;
    struct http_counts counts;
    int fd = dial(s);
    assert_int_equal(send(fd, "GET / HT", 8, MSG_NOSIGNAL), 8);
    close(fd);
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S, a_while = clock_mono_ns() + NS_PER_S;
    do {
        turn(s);
        http_counts(s->http, &counts);
    } while ((counts.connections > 0 || clock_mono_ns() < a_while) && clock_mono_ns() < until);
    assert_int_equal(counts.connections, 0);
    /* A connection that is closed at the deadline counts as refused. */
    assert_int_equal(counts.refused, 0);
}

static void chunked_body_over_the_limit_is_read_but_not_stored(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    struct buf answer = {0};
    char chunk[0x4000 + 8];
    memset(chunk, 'x', sizeof(chunk));
    memcpy(chunk, "4000\r\n", 6);
    memcpy(chunk + 6 + 0x4000, "\r\n", 2);
    const char *head = "POST /b HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n";
    say(s, fd, head, strlen(head));
    for (int i = 0; i < 70; i++)
        say(s, fd, chunk, sizeof(chunk));
    assert_int_equal(s->http->bodies.held, 0);
    say(s, fd, "0\r\n\r\n", 5);
    assert_false(receive_until(s, fd, "HTTP/1.1 413 ", &answer));
    assert_int_equal(s->handled, 0);
    buf_fini(&answer);
    close(fd);
}

static void endless_request_headers_are_refused(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    struct buf answer = {0};
    char line[1024];
    memset(line, 'x', sizeof(line));
    memcpy(line, "A: ", 3);
    memcpy(line + sizeof(line) - 2, "\r\n", 2);
    say(s, fd, "GET / HTTP/1.1\r\n" HOST, strlen("GET / HTTP/1.1\r\n" HOST));
    for (int i = 0; i < 20; i++)
        say(s, fd, line, sizeof(line));
    receive_until(s, fd, "HTTP/1.1 431 ", &answer);
    assert_non_null(strstr(buf_str(&answer), "HTTP/1.1 431 "));
    buf_fini(&answer);
    close(fd);
}

/* ---- parked requests ---- */

static void wait_parked(struct server *s)
{
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    while (!s->parked && clock_mono_ns() < until)
        turn(s);
    assert_non_null(s->parked);
}

static void parked_http_request_can_be_answered_later(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    struct buf answer = {0};
    const char *request = "GET /wait HTTP/1.1\r\n" HOST "\r\nGET /next HTTP/1.1\r\n" HOST "\r\n";
    say(s, fd, request, strlen(request));
    wait_parked(s);
    for (int i = 0; i < 5; i++)
        turn(s);
    assert_int_equal(s->handled, 1);
    http_answer_text(s->parked, 200, "text/plain", "later", 5);
    assert_false(receive_until(s, fd, "\"path\":\"/next\"", &answer));
    assert_non_null(strstr(buf_str(&answer), "\r\n\r\nlater"));
    assert_int_equal(s->gone, 0);
    buf_fini(&answer);
    close(fd);
}

static void answer_to_parked_http_request_does_not_wait_for_the_tick(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    struct buf answer = {0};
    const char *request = "GET /wait HTTP/1.1\r\n" HOST "\r\n";
    say(s, fd, request, strlen(request));
    wait_parked(s);
    /* The periodic tick would close the connection eventually, so the tick is stopped. */
    loop_disarm_timer(s->http->tick);
    http_answer_text(s->parked, 200, "text/plain", "now", 3);
    assert_false(receive_until(s, fd, "\r\n\r\nnow", &answer));
    buf_fini(&answer);
    close(fd);
}

static void http_request_can_be_answered_right_after_it_is_parked(void **state)
{
    struct server *s = *state;
    ask(s, "GET /both HTTP/1.1\r\n" HOST "\r\n", "\r\n\r\nat once");
    assert_int_equal(s->gone, 0);
}

static void handler_is_notified_if_client_of_parked_request_disconnects(void **state)
{
    struct server *s = *state;
    struct http_counts counts;
    int fd = dial(s);
    const char *request = "GET /wait HTTP/1.1\r\n" HOST "\r\n";
    say(s, fd, request, strlen(request));
    wait_parked(s);
    close(fd);
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    do {
        turn(s);
        http_counts(s->http, &counts);
    } while (counts.connections > 0 && clock_mono_ns() < until);
    assert_int_equal(s->gone, 1);
    assert_int_equal(counts.connections, 0);
    assert_int_equal(counts.parked, 0);
}

static void stopping_the_http_server_drops_parked_requests(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    const char *request = "GET /wait HTTP/1.1\r\n" HOST "\r\n";
    say(s, fd, request, strlen(request));
    wait_parked(s);
    http_stop(s->http);
    s->http = NULL;
    assert_int_equal(s->gone, 1);
    close(fd);
}

/* ---- upgraded connections ---- */

static void upgraded_connection_is_no_longer_handled_as_http(void **state)
{
    struct server *s = *state;
    struct http_counts counts;
    int fd = dial(s);
    struct buf answer = {0};
    const char *request = "GET /up HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"
                          "early";
    say(s, fd, request, strlen(request));
    assert_false(receive_until(s, fd, "HTTP/1.1 101 ", &answer));
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    while (!s->upgraded && clock_mono_ns() < until)
        turn(s);
    assert_non_null(s->upgraded);
    assert_string_equal(s->extra, "early");
    assert_int_equal(send(s->upgraded_fd, "mine", 4, MSG_NOSIGNAL), 4);
    assert_false(receive_until(s, fd, "mine", &answer));
    http_counts(s->http, &counts);
    assert_int_equal(counts.upgraded, 1);
    http_upgraded_close(s->upgraded);
    assert_true(receive_until(s, fd, NULL, &answer));
    http_counts(s->http, &counts);
    assert_int_equal(counts.upgraded + counts.connections, 0);
    buf_fini(&answer);
    close(fd);
}

static void stopping_the_http_server_closes_upgraded_connections(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    struct buf answer = {0};
    const char *request =
        "GET /up HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    say(s, fd, request, strlen(request));
    assert_false(receive_until(s, fd, "HTTP/1.1 101 ", &answer));
    buf_fini(&answer);
    http_stop(s->http);
    s->http = NULL;
    char byte;
    assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
    close(fd);
}

/* ---- slow clients and too many clients ---- */

static void answers_that_clients_do_not_read_use_bounded_memory(void **state)
{
    struct server *s = *state;
    struct http_counts counts;
    int fds[16];
    struct buf answer = {0};
    const char *request = "GET /large HTTP/1.1\r\n" HOST "\r\n";
    for (int i = 0; i < 16; i++) {
        fds[i] = dial(s);
        say(s, fds[i], request, strlen(request));
    }
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    while (s->handled < 16 && clock_mono_ns() < until)
        turn(s);
    assert_in_range(s->http->answers.held, 1, HTTP_ANSWERS_MAX);
    assert_false(receive_until(s, fds[15], "HTTP/1.1 503 ", &answer));
    buf_fini(&answer);
    for (int i = 0; i < 16; i++)
        close(fds[i]);
    do {
        turn(s);
        http_counts(s->http, &counts);
    } while (counts.connections > 0 && clock_mono_ns() < until);
    assert_int_equal(s->http->answers.held, 0);
}

static void clients_other_than_the_owner_share_at_most_half_of_a_resource(void **state)
{
    (void)state;
    struct http_share share = {0};
    assert_true(http_share_take(&share, HTTP_READER, 3, 9));
    assert_true(http_share_take(&share, HTTP_STRANGER, 2, 9));
    assert_false(http_share_take(&share, HTTP_READER, 1, 9));
    assert_true(http_share_take(&share, HTTP_OWNER, 4, 9));
    assert_false(http_share_take(&share, HTTP_OWNER, 1, 9));
    http_share_return(&share, HTTP_READER, 3);
    assert_true(http_share_take(&share, HTTP_OWNER, 3, 9));
    http_share_return(&share, HTTP_OWNER, 7);
    http_share_return(&share, HTTP_STRANGER, 2);
    assert_int_equal(share.held, 0);
    assert_int_equal(share.guests, 0);
}

static bool is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

/* The server allows 32 connections, of which unauthenticated clients may use 8. */
static void oldest_unauthenticated_connection_is_closed_at_the_limit(void **state)
{
    struct server *s = *state;
    int fds[100], owner = dial(s);
    struct buf answer = {0};
    const char *request = "GET /mine HTTP/1.1\r\n" HOST "\r\n", *half = "GET /stranger HTTP";
    say(s, owner, request, strlen(request));
    assert_false(receive_until(s, owner, "/mine", &answer));
    for (int i = 0; i < 100; i++) {
        fds[i] = dial(s);
        say(s, fds[i], half, i % 2 ? strlen(half) : 0);
        turn(s);
    }
    ask(s, request, "/mine");
    buf_clear(&answer);
    say(s, owner, request, strlen(request));
    assert_false(receive_until(s, owner, "/mine", &answer));
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    while (!is_closed(fds[0]) && clock_mono_ns() < until)
        turn(s);
    assert_true(is_closed(fds[0]));
    assert_false(is_closed(fds[99]));
    for (int i = 0; i < 100; i++)
        close(fds[i]);
    close(owner);
    buf_fini(&answer);
}

static void readers_can_use_at_most_half_of_the_connections(void **state)
{
    struct server *s = *state;
    int fds[17];
    struct buf answer = {0};
    const char *request = "GET /reader HTTP/1.1\r\n" HOST "\r\n";
    for (int i = 0; i < 17; i++) {
        fds[i] = dial(s);
        buf_clear(&answer);
        say(s, fds[i], request, strlen(request));
        assert_false(receive_until(s, fds[i], i < 16 ? "HTTP/1.1 200 " : "HTTP/1.1 503 ", &answer));
    }
    ask(s, "GET /mine HTTP/1.1\r\n" HOST "\r\n", "/mine");
    close(fds[0]);
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    do {
        buf_clear(&answer);
        say(s, fds[16], request, strlen(request));
        assert_false(receive_until(s, fds[16], "\r\n\r\n", &answer));
    } while (!strstr(buf_str(&answer), " 200 ") && clock_mono_ns() < until);
    assert_non_null(strstr(buf_str(&answer), " 200 "));
    for (int i = 1; i < 17; i++)
        close(fds[i]);
    buf_fini(&answer);
}

/* Sends single bytes, which reset MHD's own timeout but not our deadline for the whole request. */
static void drip(struct server *s, const char *head)
{
    int fd = dial(s);
    struct buf answer = {0};
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    bool is_over = false;
    say(s, fd, head, strlen(head));
    while (!is_over && clock_mono_ns() < until) {
        ssize_t n = send(fd, "a", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        char piece[1024];
        is_over = (n < 0 && errno != EAGAIN) || recv(fd, piece, sizeof(piece), MSG_DONTWAIT) == 0;
        for (uint64_t next = clock_mono_ns() + 200 * NS_PER_MS; clock_mono_ns() < next;)
            turn(s);
    }
    assert_true(is_over);
    buf_fini(&answer);
    close(fd);
}

static void client_that_sends_headers_slowly_is_disconnected(void **state)
{
    drip(*state, "GET / HTTP/1.1\r\n" HOST "X: ");
    drip(*state, "G");
}

static void client_that_sends_a_body_slowly_is_disconnected(void **state)
{
    drip(*state, "POST /b HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\n");
}

static void silent_http_client_is_disconnected(void **state)
{
    struct server *s = *state;
    int fd = dial(s);
    struct buf answer = {0};
    assert_true(receive_until(s, fd, NULL, &answer));
    assert_int_equal(answer.len, 0);
    buf_fini(&answer);
    close(fd);
}

static void connections_beyond_the_limit_wait_to_be_accepted(void **state)
{
    struct server *s = *state;
    struct http_counts counts;
    int fds[40];
    for (int i = 0; i < 40; i++) {
        fds[i] = dial(s);
        turn(s);
    }
    http_counts(s->http, &counts);
    assert_true(counts.connections > 0 && counts.connections <= 32);
    for (int i = 0; i < 40; i++)
        close(fds[i]);
    ask(s, "GET /again HTTP/1.1\r\n" HOST "\r\n", "/again");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
#define HASTY_TEST(name) cmocka_unit_test_setup_teardown(name, start_hasty, stop)
    const struct CMUnitTest tests[] = {
        TEST(request_path_and_query_are_decoded),
        TEST(every_http_answer_has_the_security_headers),
        TEST(request_handler_receives_body_in_any_transfer_encoding),
        TEST(client_that_expects_100_continue_receives_it),
        TEST(one_connection_serves_many_pipelined_requests),
        TEST(answer_to_a_head_request_has_a_length_and_no_body),
        TEST(http_1_0_requests_are_supported),
        TEST(paused_http_stream_continues_when_resumed),
        TEST(paused_http_stream_is_freed_if_the_client_disconnects),
        TEST(server_can_be_stopped_while_an_http_stream_is_paused),
        TEST(asset_is_decompressed_if_the_client_does_not_accept_gzip),
        TEST(request_left_unanswered_by_the_handler_gets_status_500),
        TEST(ambiguous_http_headers_are_refused),
        TEST(paths_with_dot_segments_or_bad_escapes_are_refused),
        TEST(request_with_expect_header_is_refused_before_body_is_sent),
        TEST(small_body_of_a_refused_request_is_read_before_the_answer),
        TEST(connection_closed_in_mid_request_is_freed_before_deadline),
        TEST(chunked_body_over_the_limit_is_read_but_not_stored),
        TEST(endless_request_headers_are_refused),
        TEST(parked_http_request_can_be_answered_later),
        TEST(answer_to_parked_http_request_does_not_wait_for_the_tick),
        TEST(http_request_can_be_answered_right_after_it_is_parked),
        TEST(handler_is_notified_if_client_of_parked_request_disconnects),
        TEST(stopping_the_http_server_drops_parked_requests),
        TEST(upgraded_connection_is_no_longer_handled_as_http),
        TEST(stopping_the_http_server_closes_upgraded_connections),
        TEST(answers_that_clients_do_not_read_use_bounded_memory),
        cmocka_unit_test(clients_other_than_the_owner_share_at_most_half_of_a_resource),
        TEST(oldest_unauthenticated_connection_is_closed_at_the_limit),
        TEST(readers_can_use_at_most_half_of_the_connections),
        HASTY_TEST(client_that_sends_headers_slowly_is_disconnected),
        HASTY_TEST(client_that_sends_a_body_slowly_is_disconnected),
        HASTY_TEST(silent_http_client_is_disconnected),
        TEST(connections_beyond_the_limit_wait_to_be_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
