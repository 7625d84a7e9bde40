/* Messages between the supervisor of a node and the ranks on it. */
#include "supervise/rank_link.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"

enum { MESSAGE_MAX = 64 << 10, BACKLOG = 1024 };

int rank_link_lead(const struct rank_place *p)
{
    struct sockaddr_un address;
    socklen_t len = rank_place_address(p, geteuid(), &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)&address, len) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int r = -errno;
    close(fd);
    return r;
}

int rank_link_join(const struct rank_place *p)
{
    struct sockaddr_un address;
    socklen_t len = rank_place_address(p, geteuid(), &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int r = connect(fd, (const struct sockaddr *)&address, len) < 0 ? -errno : 0;
    if (r == 0 && !rank_link_is_ours(fd, NULL))
        r = -EACCES;
    if (r == 0)
        return fd;
    close(fd);
    return r;
}

bool rank_link_is_ours(int fd, int32_t *ret_pid)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != geteuid())
        return false;
    if (ret_pid)
        *ret_pid = (int32_t)peer.pid;
    return true;
}

int rank_link_send(int fd, json_t *doc)
{
    AUTO_BUF struct buf text = {0};
    int r = json_print(&text, doc, 0);
    if (r == 0 && send(fd, text.data, text.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        r = -errno;
    json_decref(doc);
    return r;
}

int rank_link_receive(int fd, int timeout_ms, json_t **ret)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n = timeout_ms ? poll(&p, 1, timeout_ms) : 1;
    if (n <= 0)
        return n < 0 && errno != EINTR ? -errno : 0;
    AUTO_FREE char *text = malloc(MESSAGE_MAX);
    ssize_t len = text ? recv(fd, text, MESSAGE_MAX, MSG_DONTWAIT) : -1;
    if (len == 0)
        return -EPIPE;
    if (len < 0)
        return !text ? -ENOMEM : errno == EAGAIN || errno == EINTR ? 0 : -errno;
    json_t *doc = json_parse(text, (size_t)len, NULL);
    if (!json_is_object(doc)) {
        json_decref(doc);
        return -EBADMSG;
    }
    *ret = doc;
    return 1;
}
