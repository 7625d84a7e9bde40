/* Requests that wait for their answer, and connections that are no longer HTTP. */
#include "server/http/http.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/loop.h"
#include "server/http/http_private.h"

struct http_upgraded {
    struct http_upgraded *prev, *next;
    struct http *http;
    struct MHD_UpgradeResponseHandle *handle;
    enum http_rank rank;
};

void http_park(struct http_request *r, http_gone_fn *gone, void *user)
{
    assert(!r->is_answered && !r->is_parked);
    r->is_parked = true;
    r->gone = gone;
    r->gone_user = user;
}

static void on_client(void *user, int fd, uint32_t events)
{
    (void)fd, (void)events;
    http_request_leave(user);
}

/* MHD does not look at the socket of a suspended connection: we do, for its end. */
void http_request_wait(struct http_request *r)
{
    struct http *h = r->http;
    r->is_waiting = true;
    r->next = h->parked;
    r->prev = NULL;
    if (r->next)
        r->next->prev = r;
    h->parked = r;
    h->counts.parked++;
    MHD_suspend_connection(r->connection->mhd);
    loop_add_fd(h->loop, r->connection->fd, EPOLLRDHUP, on_client, r, &r->watch);
}

void http_request_wake(struct http_request *r)
{
    struct http *h = r->http;
    if (!r->is_waiting)
        return;
    r->is_waiting = false;
    if (r->prev)
        r->prev->next = r->next;
    else
        h->parked = r->next;
    if (r->next)
        r->next->prev = r->prev;
    h->counts.parked--;
    loop_remove(r->watch);
    r->watch = NULL;
    MHD_resume_connection(r->connection->mhd);
    loop_set_timer(h->soon, 0, 0); /* its epoll does not tell of one that is resumed */
}

void http_request_leave(struct http_request *r)
{
    r->is_gone = true;
    http_request_wake(r);
    if (r->gone)
        r->gone(r->gone_user);
}

void http_upgraded_fn(void *cls, struct MHD_Connection *mhd, void *con_cls, const char *extra,
                      size_t extra_len, MHD_socket fd, struct MHD_UpgradeResponseHandle *urh)
{
    (void)cls, (void)mhd;
    struct http_request *r = con_cls;
    struct http *h = r->http;
    struct http_upgraded *u = calloc(1, sizeof(*u));
    r->connection->deadline_ns = 0;
    r->connection->is_reading = false;
    if (!u) {
        MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
        return;
    }
    *u = (struct http_upgraded){.http = h, .handle = urh, .rank = r->rank, .next = h->upgraded};
    if (u->next)
        u->next->prev = u;
    h->upgraded = u;
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
    if (u->prev)
        u->prev->next = u->next;
    else
        h->upgraded = u->next;
    if (u->next)
        u->next->prev = u->prev;
    h->counts.upgraded--;
    MHD_upgrade_action(u->handle, MHD_UPGRADE_ACTION_CLOSE);
    free(u);
}

void http_upgraded_close_all(struct http *h)
{
    while (h->upgraded)
        http_upgraded_close(h->upgraded);
}
