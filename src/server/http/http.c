/* Runs one MHD daemon per listener; each daemon's epoll descriptor is a source of our event loop.
 * Enforces connection deadlines, and implements MHD's callbacks for requests. */
#include "server/http/http.h"
#include "server/http/http_answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "server/http/http_private.h"

/* Maximum number of MHD_run calls in a row before the loop serves its other sources. */
enum { ROUNDS_MAX = 4 };

/* ---- limits by rank: strangers and readers cannot use up the resources that the owner needs
 * ---- */

bool http_share_has_room(const struct http_share *s, enum http_rank rank, size_t n, size_t max)
{
    return s->held + n <= max && (rank == HTTP_OWNER || s->guests + n <= (max + 1) / 2);
}

bool http_share_take(struct http_share *s, enum http_rank rank, size_t n, size_t max)
{
    if (!http_share_has_room(s, rank, n, max))
        return false;
    s->held += n;
    s->guests += rank != HTTP_OWNER ? n : 0;
    return true;
}

void http_share_return(struct http_share *s, enum http_rank rank, size_t n)
{
    s->held -= n;
    s->guests -= rank != HTTP_OWNER ? n : 0;
}

/* Cuts a connection: shuts the socket down, so that MHD reads the end of the stream and closes the
 * socket. */
void http_connection_cut(struct http_connection *c)
{
    if (c->state == CONNECTION_CUT)
        return;
    shutdown(c->fd, SHUT_RDWR);
    c->state = CONNECTION_CUT;
    c->deadline_ns = 0;
    c->daemon->held[c->rank]--;
}

/* Adds a new connection. On TCP, it belongs to a stranger until a request with a token arrives. If
 * more than a quarter of the connections belong to strangers, closes the connection of the
 * stranger who has sent no complete request for the longest time. Clients with a token are not
 * affected, because they send a request soon after they connect. */
static void connection_enter(struct http_connection *c)
{
    struct http_daemon *d = c->daemon;
    struct http_connection *oldest = NULL, *other;
    c->since_ns = clock_mono_ns();
    c->rank = d->is_unix ? HTTP_OWNER : HTTP_STRANGER;
    d->connections++;
    d->held[c->rank]++;
    if (d->held[HTTP_STRANGER] <= d->http->options.connections_max / 4)
        return;
    LIST_FOREACH(other, &d->http->connections, link)
    {
        if (other != c && other->daemon == d && other->rank == HTTP_STRANGER &&
            other->state != CONNECTION_CUT && (!oldest || other->since_ns < oldest->since_ns))
            oldest = other;
    }
    if (!oldest)
        return;
    d->http->counts.refused++;
    http_connection_cut(oldest);
}

bool http_set_rank(struct http_request *r, enum http_rank rank)
{
    struct http_connection *c = r->connection;
    struct http_daemon *d = c->daemon;
    if (r->is_ranked)
        return true;
    r->is_ranked = true;
    r->rank = rank;
    if (rank <= c->rank || c->state == CONNECTION_CUT)
        return true;
    if (rank == HTTP_READER && d->held[HTTP_READER] >= d->http->options.connections_max / 2) {
        http_answer_error(r, 503, "too many connections with the read-only token; try again");
        return false;
    }
    d->held[c->rank]--;
    d->held[rank]++;
    c->rank = rank;
    return true;
}

enum http_rank http_rank(const struct http_request *r)
{
    return r->rank;
}

/* ---- the daemons ---- */

static void run_daemon(struct http_daemon *d)
{
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    for (int i = 0; i < ROUNDS_MAX; i++) {
        MHD_run(d->mhd);
        if (MHD_get_timeout(d->mhd, &wait_ms) != MHD_YES || wait_ms > 0)
            return;
    }
    loop_set_timer(d->http->soon, 0, 0);
}

static void on_epoll(void *user, int fd, uint32_t events)
{
    (void)fd, (void)events;
    run_daemon(user);
}

static void on_soon(void *user, uint64_t now_ns)
{
    (void)now_ns;
    struct http *h = user;
    for (size_t i = 0; i < h->daemon_count; i++)
        run_daemon(&h->daemons[i]);
}

/* True if the client has closed the connection. MHD misses an end of stream that arrives with the
 * client's last bytes, because its epoll is edge-triggered. Without this check, the connection
 * stays open until its deadline. */
static bool connection_has_ended(const struct http_connection *c)
{
    char byte;
    return c->state == CONNECTION_READING && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Enforces deadlines. MHD's own timeout restarts with every byte; our deadline applies to the whole
 * request. */
static void on_http_tick(void *user, uint64_t now_ns)
{
    struct http *h = user;
    struct http_connection *c;
    LIST_FOREACH(c, &h->connections, link)
    {
        bool is_gone = connection_has_ended(c);
        bool is_late = !is_gone && c->deadline_ns && now_ns > c->deadline_ns;
        h->counts.refused += is_late;
        if (is_late || is_gone)
            http_connection_cut(c);
    }
    for (struct http_request *r = LIST_FIRST(&h->parked), *next; r; r = next) {
        next = LIST_NEXT(r, link);
        if (r->late && now_ns > r->late_ns)
            r->late(r->parked_user);
    }
    on_soon(h, now_ns);
    if (LIST_EMPTY(&h->connections)) {
        loop_disarm_timer(h->tick);
        h->is_ticking = false;
    }
}

static void connection_deadline(struct http_connection *c, unsigned seconds)
{
    c->deadline_ns = clock_mono_ns() + seconds * NS_PER_S;
}

static void *connection_new(struct http_daemon *d, struct MHD_Connection *mhd)
{
    struct http *h = d->http;
    struct http_connection *c = calloc(1, sizeof *c);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!c || !info) {
        free(c);
        return NULL;
    }
    *c = (struct http_connection){.daemon = d, .mhd = mhd, .fd = info->connect_fd};
    connection_deadline(c, h->options.idle_s);
    LIST_INSERT_HEAD(&h->connections, c, link);
    h->counts.connections++;
    connection_enter(c);
    if (!h->is_ticking)
        h->is_ticking = loop_set_timer(h->tick, clock_mono_ns() + NS_PER_S, NS_PER_S) == 0;
    return c;
}

static void connection_free(struct http_connection *c)
{
    struct http_daemon *d = c->daemon;
    struct http *h = d->http;
    if (c->state != CONNECTION_CUT)
        d->held[c->rank]--;
    /* MHD stops listening at its connection limit, and only MHD_run makes it listen again */
    if (d->connections-- >= h->options.connections_max)
        loop_set_timer(h->soon, 0, 0);
    LIST_REMOVE(c, link);
    h->counts.connections--;
    free(c);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = connection_new(cls, mhd);
    } else if (*context) {
        connection_free(*context);
        *context = NULL;
    }
}

/* MHD's first callback for a request. URI is the request target before decoding. */
static void *on_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct http_daemon *d = cls;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (!info || !info->socket_context)
        return NULL;
    struct http_request *r = http_request_new(d->http, uri);
    if (r) {
        r->connection = info->socket_context;
        r->connection->request = r;
        r->rank = d->is_unix ? HTTP_OWNER : HTTP_STRANGER;
    }
    return r;
}

static enum http_method method_of(const char *s)
{
    static const char *const names[] = {
        [HTTP_GET] = "GET", [HTTP_HEAD] = "HEAD", [HTTP_POST] = "POST", [HTTP_DELETE] = "DELETE"};
    for (unsigned i = 0; i < HTTP_OTHER; i++) {
        if (strcmp(s, names[i]) == 0)
            return (enum http_method)i;
    }
    return HTTP_OTHER;
}

/* Checks the headers. Admits or refuses a request that has a body; handle_request does this for all
 * other requests. The body of a refused request is read and discarded before the answer is sent.
 * Only a client that sent Expect is answered at once, because it waits before it sends the body. */
static void read_headers(struct http_request *r, const char *method, const char *version)
{
    struct http *h = r->http;
    const char *why = NULL;
    h->counts.requests++;
    connection_deadline(r->connection, h->options.idle_s);
    unsigned status = http_head_check(r, method, version, &why);
    if (status)
        http_answer_error(r, status, "%s", why);
    else if (h->options.admit && r->has_body)
        h->options.admit(h->options.user, r);
    if (!status && http_is_answered(r) && !http_header(r, MHD_HTTP_HEADER_EXPECT))
        r->state = REQUEST_DRAINING;
}

/* Handles a part of the body. MHD accepts no answer before the end of the body, so the rest of an
 * oversized body is read and discarded, up to four times HTTP_BODY_MAX. */
static enum MHD_Result read_body(struct http_request *r, const char *data, size_t *len)
{
    struct http *h = r->http;
    r->body_seen += *len;
    if (r->body_seen > 4 * (size_t)HTTP_BODY_MAX)
        return MHD_NO;
    if (r->state == REQUEST_DRAINING) {
        *len = 0;
        return MHD_YES;
    }
    if (r->body_seen <= HTTP_BODY_MAX && !r->body.failed &&
        http_share_take(&h->bodies, r->rank, *len, HTTP_BODIES_MAX)) {
        buf_add(&r->body, data, *len);
        r->body_held += *len;
    } else {
        http_share_return(&h->bodies, r->rank, r->body_held);
        r->body_held = 0;
        buf_fini(&r->body);
        r->body.failed = true;
    }
    *len = 0;
    return MHD_YES;
}

static void handle_request(struct http_request *r)
{
    const struct http_options *o = &r->http->options;
    if (r->connection->state == CONNECTION_READING)
        r->connection->state = CONNECTION_BUSY;
    r->connection->deadline_ns = 0;
    if (r->body_seen > HTTP_BODY_MAX)
        http_answer_error(r, 413, "the body is larger than 1 MiB");
    else if (r->body.failed)
        http_answer_error(r, 503, "too many large requests at the same time; try again");
    else if (o->admit && !r->has_body)
        o->admit(o->user, r);
    if (r->state == REQUEST_BODY)
        o->handle(o->user, r);
    if (r->state == REQUEST_BODY)
        http_answer_error(r, 500, "internal error: the request was not answered");
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **context)
{
    (void)cls, (void)mhd, (void)url;
    struct http_request *r = *context;
    if (!r || r->state == REQUEST_GONE)
        return MHD_NO;
    if (r->state == REQUEST_ADDRESS) {
        r->state = REQUEST_BODY;
        r->method = method_of(method);
        read_headers(r, method, version);
    } else if (*len > 0 && r->state != REQUEST_ANSWERED) {
        return read_body(r, data, len);
    } else if (r->state == REQUEST_DRAINING) {
        r->state = REQUEST_ANSWERED;
    } else if (r->state == REQUEST_BODY) {
        handle_request(r);
    }
    if (r->state == REQUEST_ANSWERED)
        return http_request_queue(r);
    if (r->state == REQUEST_PARKED)
        http_request_wait(r);
    return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **context,
                         enum MHD_RequestTerminationCode code)
{
    (void)cls, (void)mhd, (void)code;
    struct http_request *r = *context;
    *context = NULL;
    if (!r)
        return;
    r->connection->request = NULL;
    r->connection->since_ns = clock_mono_ns();
    if (r->connection->state != CONNECTION_CUT) {
        connection_deadline(r->connection, r->http->options.idle_s);
        r->connection->state = CONNECTION_READING;
    }
    http_request_free(r);
}

static int start_daemon(struct http *h, const struct http_listener *l, struct err *err)
{
    struct http_daemon *d = &h->daemons[h->daemon_count];
    const struct http_options *o = &h->options;
    d->http = h;
    d->is_unix = l->is_unix;
    d->mhd = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE | MHD_USE_ERROR_LOG, 0, NULL,
        NULL, on_request, d, MHD_OPTION_EXTERNAL_LOGGER, http_head_error, d,
        MHD_OPTION_LISTEN_SOCKET, l->fd, MHD_OPTION_CONNECTION_LIMIT, o->connections_max,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, l->is_unix ? 0 : o->connections_per_ip_max,
        MHD_OPTION_CONNECTION_TIMEOUT, o->idle_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HTTP_CONNECTION_BYTES, MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)2048,
        MHD_OPTION_STRICT_FOR_CLIENT, !http_head_is_lenient(), MHD_OPTION_URI_LOG_CALLBACK, on_uri,
        d, MHD_OPTION_NOTIFY_COMPLETED, on_completed, d, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, d, MHD_OPTION_END);
    if (!d->mhd)
        return err_set(err, -EIO, "cannot start the HTTP server on fd %d: %s", l->fd,
                       strerror(errno));
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(d->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    int r = info ? loop_add_fd(h->loop, info->epoll_fd, EPOLLIN, on_epoll, d, &d->source) : -EIO;
    h->daemon_count++;
    return r < 0 ? err_set(err, r, "cannot add the HTTP server to the event loop: %s", strerror(-r))
                 : 0;
}

int http_start(struct loop *loop, const struct http_options *options, struct http **ret,
               struct err *err)
{
    struct http *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(err, -ENOMEM, "out of memory");
    h->loop = loop;
    h->options = *options;
    int r = loop_add_timer(loop, 0, 0, on_http_tick, h, &h->tick);
    if (r == 0)
        r = loop_add_timer(loop, 0, 0, on_soon, h, &h->soon);
    if (r < 0)
        err_set(err, r, "cannot create a timer: %s", strerror(-r));
    for (size_t i = 0; r == 0 && i < options->listener_count; i++)
        r = start_daemon(h, &options->listeners[i], err);
    if (r < 0) {
        http_stop(h);
        return r;
    }
    *ret = h;
    return 0;
}

void http_stop(struct http *h)
{
    if (!h)
        return;
    http_upgraded_close_all(h);
    while (!LIST_EMPTY(&h->parked))
        http_request_leave(LIST_FIRST(&h->parked));
    for (size_t i = 0; i < h->daemon_count; i++) {
        loop_remove(h->daemons[i].source);
        MHD_stop_daemon(h->daemons[i].mhd);
    }
    loop_remove(h->tick);
    loop_remove(h->soon);
    free(h);
}

void http_counts(const struct http *h, struct http_counts *ret)
{
    *ret = h->counts;
}
