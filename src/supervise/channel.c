/* Sends and receives frames over a non-blocking stream socket. */
#include "supervise/channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD = 5 };

int channel_pair(int ret_fd[2])
{
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ret_fd) < 0 ? -errno
                                                                                          : 0;
}

void channel_init(struct channel *c, int fd)
{
    *c = (struct channel){.fd = fd};
}

void channel_fini(struct channel *c)
{
    if (c->fd >= 0)
        close(c->fd);
    buf_fini(&c->in);
    buf_fini(&c->out);
    *c = (struct channel){.fd = -1};
}

void channel_queue(struct channel *c, enum channel_type type, const void *data, size_t len)
{
    if (c->fd < 0)
        return;
    buf_add_byte(&c->out, (uint8_t)type);
    buf_add_u32le(&c->out, (uint32_t)len);
    buf_add(&c->out, data, len);
}

int channel_flush(struct channel *c)
{
    size_t sent = 0;
    int r = 0;
    while (c->fd >= 0 && sent < c->out.len) {
        ssize_t n = send(c->fd, c->out.data + sent, c->out.len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            r = errno == EAGAIN ? 1 : -errno;
            break;
        }
        sent += (size_t)n;
    }
    if (sent) {
        memmove(c->out.data, c->out.data + sent, c->out.len - sent);
        c->out.len -= sent;
    }
    return r;
}

int channel_fill(struct channel *c)
{
    enum { CHUNK = 65536 };
    if (c->fd < 0)
        return -EPIPE;
    if (c->in_at == c->in.len) {
        c->in_at = c->in.len = 0;
    } else if (c->in_at >= CHUNK) {
        /* moves the unread bytes to the front, so that the buffer of a slow reader stays small */
        c->in.len -= c->in_at;
        memmove(c->in.data, c->in.data + c->in_at, c->in.len);
        c->in_at = 0;
    }
    if (buf_reserve(&c->in, CHUNK) < 0)
        return -ENOMEM;
    for (;;) {
        ssize_t n = recv(c->fd, c->in.data + c->in.len, CHUNK, MSG_DONTWAIT);
        if (n > 0) {
            c->in.len += (size_t)n;
            return 1;
        }
        if (n == 0)
            return -EPIPE;
        if (errno == EAGAIN)
            return 0;
        if (errno != EINTR)
            return -EPIPE;
    }
}

int channel_next(struct channel *c, enum channel_type *ret_type, const char **ret_data,
                 size_t *ret_len)
{
    struct cur cur = cur_of(c->in.data + c->in_at, c->in.len - c->in_at);
    if (cur_left(&cur) < HEAD)
        return 0;
    uint8_t type = cur_byte(&cur);
    uint32_t len = cur_u32le(&cur);
    if (len > CHANNEL_FRAME_MAX)
        return -EBADMSG;
    if (cur_left(&cur) < len)
        return 0;
    *ret_type = (enum channel_type)type;
    *ret_data = (const char *)cur.p;
    *ret_len = len;
    c->in_at += HEAD + (size_t)len;
    return 1;
}
