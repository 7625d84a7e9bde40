/* Parked requests, and connections that were upgraded from HTTP. */
#include "server/http/http.h"
#include "server/http/http_answer.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/loop.h"
#include "server/http/http_private.h"

struct http_upgraded {
    LIST_ENTRY(http_upgraded) link;
    struct http *http;
    struct MHD_UpgradeResponseHandle *handle;
    enum http_rank rank;
};

void http_park(struct http_request *r, http_parked_fn *gone, http_parked_fn *late, void *user)
{
    assert(r->state >= REQUEST_BODY && r->state <= REQUEST_WAITING);
    if (r->state == REQUEST_BODY)
        r->state = REQUEST_PARKED;
    r->gone = gone;
    r->late = late;
    r->late_ns = clock_mono_ns() + HTTP_LATE_S * NS_PER_S;
    r->parked_user = user;
}

static void on_client(void *user, int fd, uint32_t events)
{
    (void)fd, (void)events;
    http_request_leave(user);
}

/* MHD does not watch the socket of a suspended connection, so the loop watches it for a
 * disconnect. */
void http_request_wait(struct http_request *r)
{
    struct http *h = r->http;
    r->state = REQUEST_WAITING;
    LIST_INSERT_HEAD(&h->parked, r, link);
    h->counts.parked++;
    MHD_suspend_connection(r->connection->mhd);
    loop_add_fd(h->loop, r->connection->fd, EPOLLRDHUP, on_client, r, &r->watch);
}

void http_request_resume(struct http_request *r)
{
    struct http *h = r->http;
    if (r->state != REQUEST_WAITING)
        return;
    LIST_REMOVE(r, link);
    h->counts.parked--;
    loop_remove(r->watch);
    r->watch = NULL;
    MHD_resume_connection(r->connection->mhd);
    loop_set_timer(h->soon, 0, 0); /* MHD's epoll does not report resumed connections */
}

void http_request_leave(struct http_request *r)
{
    http_request_resume(r);
    r->state = REQUEST_GONE;
    if (r->gone)
        r->gone(r->parked_user);
}

void http_upgraded_fn(void *cls, struct MHD_Connection *mhd, void *con_cls, const char *extra,
                      size_t extra_len, MHD_socket fd, struct MHD_UpgradeResponseHandle *urh)
{
    (void)cls, (void)mhd;
    struct http_request *r = con_cls;
    struct http *h = r->http;
    struct http_upgraded *u = calloc(1, sizeof *u);
    r->connection->deadline_ns = 0;
    if (!u) {
        MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
        return;
    }
    *u = (struct http_upgraded){.http = h, .handle = urh, .rank = r->rank};
    LIST_INSERT_HEAD(&h->upgraded, u, link);
    h->counts.upgraded++;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    r->upgrade(r->upgrade_user, u, fd, extra, extra_len);
}

enum http_rank http_upgraded_rank(const struct http_upgraded *u)
{
    return u->rank;
}

void http_upgraded_close(struct http_upgraded *u)
{
    struct http *h = u->http;
    LIST_REMOVE(u, link);
    h->counts.upgraded--;
    MHD_upgrade_action(u->handle, MHD_UPGRADE_ACTION_CLOSE);
    free(u);
}

void http_upgraded_close_all(struct http *h)
{
    while (!LIST_EMPTY(&h->upgraded))
        http_upgraded_close(LIST_FIRST(&h->upgraded));
}
