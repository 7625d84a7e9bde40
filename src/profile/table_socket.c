/* The socket on which profiled processes connect and send their heap table. Each connection is one
 * short exchange. */
#include "profile/table_socket.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "base/number.h"
#include "heap/table.h"

enum {
    BACKLOG = 256,
    WAITING_MAX = 64, /* maximum number of connections that have not sent their table yet */
    /* Maximum number of connections accepted per iteration of the loop, so that a flood does not
     * starve the sampling. */
    ACCEPT_MAX = 64,
    /* Number of extra descriptors that a sender may attach; the kernel closes any beyond these. */
    SURPLUS_FDS = 4,
};
#define TIMEOUT_NS (5 * NS_PER_S)

struct connection {
    struct table_socket *socket;
    int fd;
    int32_t pid;
    uint64_t since_ns;
    struct loop_source *source;
};

struct table_socket {
    struct loop *loop;
    int fd;
    uid_t uid;
    table_socket_fn *fn;
    void *user;
    struct loop_source *source;
    struct connection *waiting[WAITING_MAX];
    size_t count;
    uint64_t refused;
    struct sockaddr_un address;
};

static void connection_free(struct connection *c)
{
    struct table_socket *a = c->socket;
    for (size_t i = 0; i < a->count; i++)
        if (a->waiting[i] == c) {
            a->waiting[i] = a->waiting[--a->count];
            break;
        }
    loop_remove(c->source);
    close(c->fd);
    free(c);
}

/* Returns the first descriptor attached to MSG, or -1; closes the others. */
static int take_fd(struct msghdr *msg)
{
    int kept = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (kept < 0)
                kept = fd;
            else
                close(fd);
        }
    }
    return kept;
}

/* Returns 1 and a descriptor, 0 if nothing has arrived yet, or -EBADMSG if the message is not a
 * table. */
static int receive_table(int socket_fd, int *ret_fd)
{
    union {
        char bytes[CMSG_SPACE(SURPLUS_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct heap_hello hello = {0};
    struct iovec iov = {&hello, sizeof hello};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(socket_fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -EBADMSG;
    int fd = take_fd(&msg);
    /* A newer library may send a longer hello. Its table's version shows whether this ebb can read
     * the table. */
    if (n < (ssize_t)sizeof hello || fd < 0 ||
        memcmp(hello.magic, HEAP_TABLE_MAGIC, sizeof hello.magic) != 0) {
        if (fd >= 0)
            close(fd);
        return -EBADMSG;
    }
    *ret_fd = fd;
    return 1;
}

static void on_connection(void *user, int fd, uint32_t events)
{
    struct connection *c = user;
    struct table_socket *a = c->socket;
    int table;
    (void)events;
    int r = receive_table(fd, &table);
    if (r == 0)
        return;
    int32_t pid = c->pid;
    connection_free(c);
    if (r < 0) {
        a->refused++;
        return;
    }
    a->fn(a->user, pid, table);
    close(table);
}

static struct connection *oldest_connection(const struct table_socket *a)
{
    struct connection *oldest = a->waiting[0];
    for (size_t i = 1; i < a->count; i++)
        if (a->waiting[i]->since_ns < oldest->since_ns)
            oldest = a->waiting[i];
    return oldest;
}

/* Returns true if the user of the sender may send tables. The folder's permissions already keep
 * other users out; this check holds even if someone changes the permissions. */
static bool is_permitted(const struct table_socket *a, int fd, int32_t *ret_pid)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 0)
        return false;
    *ret_pid = peer.pid;
    return a->uid == 0 || peer.uid == 0 || peer.uid == a->uid;
}

static int add_connection(struct table_socket *a, int fd, int32_t pid)
{
    struct connection *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    *c = (struct connection){.socket = a, .fd = fd, .pid = pid, .since_ns = clock_mono_ns()};
    int r = loop_add_fd(a->loop, fd, EPOLLIN, on_connection, c, &c->source);
    if (r < 0) {
        free(c);
        return r;
    }
    if (a->count == WAITING_MAX) {
        connection_free(oldest_connection(a));
        a->refused++;
    }
    a->waiting[a->count++] = c;
    /* Reads the socket at once, because most processes have sent their table by now. */
    on_connection(c, fd, EPOLLIN);
    return 0;
}

static void on_listener(void *user, int listener, uint32_t events)
{
    struct table_socket *a = user;
    (void)events;
    for (int i = 0; i < ACCEPT_MAX; i++) {
        int32_t pid;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            /* Stops listening until the next tick. The connection stays in the queue, so otherwise
             * the loop would wake up again and again. */
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
                loop_change_fd(a->source, 0);
            return;
        }
        if (!is_permitted(a, fd, &pid) || add_connection(a, fd, pid) < 0) {
            a->refused++;
            close(fd);
        }
    }
}

static int listen_at(struct table_socket *a, const char *path)
{
    size_t len = strlen(path);
    a->address.sun_family = AF_UNIX;
    if (len >= sizeof a->address.sun_path)
        return -ENAMETOOLONG;
    a->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->fd < 0)
        return -errno;
    memcpy(a->address.sun_path, path, len + 1);
    if (bind(a->fd, (const struct sockaddr *)&a->address, sizeof a->address) < 0) {
        int r = -errno;
        /* another process has the socket, so table_socket_free must not remove it */
        a->address.sun_path[0] = '\0';
        return r;
    }
    if (chmod(path, 0600) < 0 || listen(a->fd, BACKLOG) < 0)
        return -errno;
    return loop_add_fd(a->loop, a->fd, EPOLLIN, on_listener, a, &a->source);
}

int table_socket_new(struct loop *loop, const char *path, table_socket_fn *fn, void *user,
                     struct table_socket **ret, struct err *err)
{
    struct table_socket *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(err, -ENOMEM, "out of memory: the heap is not profiled");
    *a = (struct table_socket){.loop = loop, .fd = -1, .uid = geteuid(), .fn = fn, .user = user};
    int r = listen_at(a, path);
    if (r < 0) {
        table_socket_free(a);
        return err_set(err, r,
                       "cannot create the heap profiler's socket %s: %s; the heap is not profiled",
                       path, strerror(-r));
    }
    *ret = a;
    return 0;
}

void table_socket_free(struct table_socket *a)
{
    if (!a)
        return;
    while (a->count > 0)
        connection_free(a->waiting[a->count - 1]);
    loop_remove(a->source);
    if (a->fd >= 0)
        close(a->fd);
    if (a->address.sun_path[0])
        unlink(a->address.sun_path);
    free(a);
}

void table_socket_tick(struct table_socket *a, uint64_t now_ns)
{
    loop_change_fd(a->source, EPOLLIN);
    for (size_t i = a->count; i-- > 0;)
        if (u64_minus(now_ns, a->waiting[i]->since_ns) > TIMEOUT_NS) {
            connection_free(a->waiting[i]);
            a->refused++;
        }
}

uint64_t table_socket_refused(const struct table_socket *a)
{
    return a->refused;
}
