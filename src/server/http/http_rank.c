/* Limits by rank: strangers and readers cannot use up the resources that the owner needs. */
#include <sys/socket.h>

#include "base/clock.h"
#include "base/loop.h"
#include "server/http/http_private.h"

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

/* ---- connections ---- */

/* Cuts a connection. MHD closes a socket that was shut down when it reads the end of the stream. */
void http_connection_cut(struct http_connection *c)
{
    if (c->state == CONNECTION_CUT)
        return;
    shutdown(c->fd, SHUT_RDWR);
    c->state = CONNECTION_CUT;
    c->deadline_ns = 0;
    c->daemon->held[c->rank]--;
}

/* Adds a new connection, which counts as a stranger's at first. If strangers have more than a
 * quarter of the connections, one of theirs is closed: the connection that has been without a
 * complete request for longest. Clients with a token are not affected, because they send a request
 * soon after they connect. */
void http_connection_enter(struct http_connection *c)
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

/* Removes a connection, and lets a timer call MHD_run at once. MHD stops listening at its
 * connection limit, and only MHD_run makes it listen again. */
void http_connection_leave(struct http_connection *c)
{
    struct http_daemon *d = c->daemon;
    if (c->state != CONNECTION_CUT)
        d->held[c->rank]--;
    if (d->connections-- >= d->http->options.connections_max)
        loop_set_timer(d->http->soon, 0, 0);
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
