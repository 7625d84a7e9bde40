/* Fuzzes the server's side of a connection: requests of any bytes through libmicrohttpd to a
 * handler that asks for all there is in one, and the live stream's WebSocket on /live. */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "serve/auth.h"
#include "serve/http.h"
#include "serve/live_private.h"
#include "target.h"

enum { CONNECTIONS = 400 };

static struct loop *loop;
static struct http *http;
static struct live *live;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_len;

/* ---- what the live stream asks for ---- */

static int job_of(void *user, int64_t id, json_t **ret)
{
    (void)user;
    if (id > 9)
        return -2;
    *ret = json_pack("{s:I}", "id", (json_int_t)id);
    return 0;
}

static ssize_t log_of(void *user, int64_t id, uint64_t offset, void *buf, size_t size,
                      uint64_t *ret_at)
{
    (void)user, (void)id, (void)buf, (void)size;
    *ret_at = offset;
    return 0;
}

static uint64_t log_end_of(void *user, int64_t id)
{
    (void)user, (void)id;
    return 0;
}

static json_t *machine_of(void *user)
{
    (void)user;
    return json_object();
}

/* ---- the handler ---- */

static void on_request(void *user, struct http_request *r)
{
    size_t len;
    const char *path = http_path(r), *host = http_header(r, "Host");
    const char *origin = http_header(r, "Origin"), *cookie = http_cookie(r, "ebb");
    (void)user;
    if (strcmp(path, "/live") == 0 && live) {
        live_take(live, r);
        return;
    }
    json_t *doc = json_pack("{s:o, s:o, s:o}", "path", json_text0(path), "query",
                            json_text0(http_query_text(r)), "cookie", json_text0(cookie));
    for (size_t i = 0; http_query_key(r, i); i++)
        json_object_set_new(doc, "value", json_text0(http_query(r, http_query_key(r, i))));
    if (host)
        json_object_set_new(doc, "host", json_boolean(auth_host_ok(NULL, host)));
    if (host && origin)
        json_object_set_new(doc, "origin", json_boolean(auth_origin_is_host(origin, host)));
    const char *body = http_body(r, &len);
    json_t *sent = len ? json_parse(body, len, NULL) : NULL;
    json_object_set_new(doc, "body", sent ? sent : json_null());
    http_answer_json(r, 200, doc);
}

static int listen_anywhere(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int n =
        snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "ebb-fuzz-%d", (int)getpid());
    address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n); /* no file */
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, address_len) < 0 || listen(fd, 16) < 0)
        abort();
    return fd;
}

static void stop(void)
{
    live_free(live);
    http_stop(http);
    loop_free(loop);
}

static void start(void)
{
    struct err err = {""};
    struct live_sources sources = {job_of, log_of, log_end_of, machine_of, NULL};
    struct http_options options = {
        .listener_count = 1, .connections_max = CONNECTIONS, .idle_s = 10, .handle = on_request};
    options.listeners[0].fd = listen_anywhere();
    if (loop_new(&loop) < 0 || http_start(loop, &options, &http, &err) < 0)
        abort();
    if (live_start(loop, &sources, &live_default_times, CONNECTIONS, &live, &err) < 0) {
        fprintf(stderr, "INFO: without the live stream: %s\n", err.text);
        live = NULL;
    }
    atexit(stop);
}

/* A connection that was upgraded ends with the next tick of a second: some may linger. */
static void wait_for_room(void)
{
    enum { ROUNDS = 200, ROUND_MS = 50 };
    struct http_counts counts;
    http_counts(http, &counts);
    for (int i = 0; counts.connections + counts.upgraded > CONNECTIONS / 2; i++) {
        if (i == ROUNDS)
            abort(); /* they outlived their clients by ten seconds */
        loop_once(loop, ROUND_MS);
        http_counts(http, &counts);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { IDLE_ROUNDS = 3 };
    char answer[4096];
    if (!loop)
        start();
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, address_len) < 0)
        abort();
    (void)!send(fd, data, size, MSG_NOSIGNAL);
    for (int idle = 0; idle < IDLE_ROUNDS; idle++) {
        loop_once(loop, 0);
        ssize_t n;
        while ((n = recv(fd, answer, sizeof answer, 0)) > 0)
            idle = 0; /* more may come */
        if (n == 0)
            break;
    }
    close(fd);
    loop_once(loop, 0);
    wait_for_room();
    return 0;
}
