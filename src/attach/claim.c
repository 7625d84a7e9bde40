/* The socket that other commands use to find the ebb attached to a process. */
#include "attach/claim.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "attach/target.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"

enum { WAITING_MAX = 16, REQUEST_WAIT_MS = 200 };

struct claim {
    struct loop *loop;
    int fd;
    struct loop_source *source;
    claim_detach_fn *fn;
    void *user;
    int waiting[WAITING_MAX]; /* connections of commands that wait until this ebb has detached */
    size_t count;
    char info[CLAIM_TEXT_MAX];
};

static socklen_t claim_address(int32_t pid, uint64_t start_ticks, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    int len = snprintf(ret->sun_path + 1, sizeof ret->sun_path - 1, "ebb-attach.%d.%" PRIu64,
                       (int)pid, start_ticks);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

static bool is_same_user(int fd, int32_t *ret_pid)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return false;
    *ret_pid = peer.pid;
    return peer.uid == 0 || peer.uid == geteuid();
}

static void serve_visitor(struct claim *c, int fd)
{
    char request = 0;
    int32_t pid;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (!is_same_user(fd, &pid) || poll(&p, 1, REQUEST_WAIT_MS) <= 0 ||
        recv(fd, &request, 1, MSG_DONTWAIT) != 1) {
        close(fd);
        return;
    }
    if (request == 'd' && c->count < WAITING_MAX) {
        c->waiting[c->count++] = fd;
        c->fn(c->user);
        return;
    }
    (void)!send(fd, c->info, strlen(c->info), MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void on_claim(void *user, int fd, uint32_t events)
{
    struct claim *c = user;
    (void)events;
    int visitor = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    if (visitor >= 0)
        serve_visitor(c, visitor);
}

int claim_new(struct loop *loop, const struct attach_target *t, const char *info,
              claim_detach_fn *fn, void *user, struct claim **ret, struct err *err)
{
    struct sockaddr_un address;
    socklen_t len = claim_address(t->pid, t->start_ticks, &address);
    struct claim *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->loop = loop;
    c->fn = fn;
    c->user = user;
    snprintf(c->info, sizeof c->info, "%s", info);
    c->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = c->fd < 0 ? -errno : 0;
    if (r == 0 && bind(c->fd, (const struct sockaddr *)&address, len) < 0)
        r = -errno;
    if (r == 0 && listen(c->fd, WAITING_MAX) < 0)
        r = -errno;
    if (r == 0)
        r = loop_add_fd(loop, c->fd, EPOLLIN, on_claim, c, &c->source);
    if (r < 0) {
        claim_free(c);
        if (r == -EADDRINUSE)
            return err_set(err, -EEXIST,
                           "ebb is already attached to process %d (%s); see ebb heap %d, or run "
                           "ebb detach %d",
                           (int)t->pid, t->name, (int)t->pid, (int)t->pid);
        return err_set(err, r, "cannot create a socket: %s", strerror(-r));
    }
    *ret = c;
    return 0;
}

void claim_free(struct claim *c)
{
    if (!c)
        return;
    loop_remove(c->source);
    if (c->fd >= 0)
        close(c->fd);
    for (size_t i = 0; i < c->count; i++) {
        (void)!send(c->waiting[i], "ok", 2, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(c->waiting[i]);
    }
    free(c);
}

int claim_ask(int32_t pid, uint64_t start_ticks, enum claim_request request, uint64_t wait_ns,
              char ret[CLAIM_TEXT_MAX])
{
    struct sockaddr_un address;
    socklen_t len = claim_address(pid, start_ticks, &address);
    int32_t other;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int r = fd < 0 ? -errno : 0;
    if (r == 0 && connect(fd, (const struct sockaddr *)&address, len) < 0)
        r = errno == ECONNREFUSED ? -ENOENT : -errno;
    if (r == 0 && !is_same_user(fd, &other) && geteuid() != 0)
        r = -EPERM;
    if (r == 0 && send(fd, request == CLAIM_DETACH ? "d" : "i", 1, MSG_NOSIGNAL) != 1)
        r = -ENOENT;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (r == 0 && poll(&p, 1, (int)(wait_ns / NS_PER_MS)) == 0)
        r = -ETIMEDOUT;
    ssize_t n = r == 0 ? recv(fd, ret, CLAIM_TEXT_MAX - 1, MSG_DONTWAIT) : 0;
    if (r == 0 && n <= 0)
        r = -EPERM; /* the other ebb closed the connection without an answer */
    if (r == 0)
        ret[n] = '\0';
    if (fd >= 0)
        close(fd);
    return r;
}
