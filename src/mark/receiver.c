/* The datagram socket of a job: marks in, requests out to the processes that said hello. */
#include "mark/receiver.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
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
#include "mark/row.h"

/* Marks taken in one turn of the loop: a flood must not starve the sampling. */
enum { DRAIN_MAX = 256 };

/* Names of sockets in the folder may be this long with their slash and NUL. */
enum { NAME_ROOM = sizeof("/control") };

struct mark_receiver {
    int fd;
    uid_t uid;
    bool in_callback;
    mark_fn *fn;
    void *user;
    struct loop_source *source;
    struct mark_receiver_stats stats;
    struct mark_peer *peers;
    size_t peer_count, peer_cap;
    struct sockaddr_un address;
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    char text[MARK_TEXT_MAX], one[MARK_TEXT_MAX];
};

static size_t find_peer(const struct mark_receiver *r, int32_t pid, const char *reply)
{
    size_t i;

    for (i = 0; i < r->peer_count; i++) {
        if (pid != 0 && r->peers[i].pid == pid)
            break;
        if (pid == 0 && r->peers[i].pid == 0 && strcmp(r->peers[i].reply, reply) == 0)
            break;
    }
    return i;
}

/* A place for one more: false when there is none to be had. */
static bool grow_peers(struct mark_receiver *r)
{
    size_t cap = r->peer_cap > 0 ? r->peer_cap * 2 : 8;
    struct mark_peer *peers;

    if (r->peer_count < r->peer_cap)
        return true;
    if (r->peer_count >= MARK_PEERS_MAX)
        return false;
    peers = realloc(r->peers, cap * sizeof(*peers));
    if (!peers)
        return false;
    r->peers = peers;
    r->peer_cap = cap;
    return true;
}

static void take_hello(struct mark_receiver *r, const struct mark *m)
{
    size_t reply_len = 0, role_len = 0, at;
    const char *reply = mark_get(m, "REPLY", &reply_len);
    const char *role = mark_get(m, "ROLE", &role_len);
    struct mark_peer peer = {.pid = m->pid, .rank = m->has & MARK_HAS_RANK ? m->rank : -1};

    if (!reply || reply_len >= sizeof(peer.reply) || reply_len == 0 || reply[0] != '/')
        return;
    memcpy(peer.reply, reply, reply_len);
    if (strcmp(peer.reply, r->address.sun_path) == 0)
        return;
    peer.is_worker = role && role_len == strlen("worker") && memcmp(role, "worker", role_len) == 0;
    at = find_peer(r, peer.pid, peer.reply);
    if (at == r->peer_count) {
        if (!grow_peers(r))
            return;
        r->peer_count++;
    }
    r->peers[at] = peer;
}

/* Room for the credentials and not one descriptor more: those that a sender attaches do not
 * reach us (the kernel drops what has no room). */
union control {
    char bytes[CMSG_SPACE(sizeof(struct ucred))];
    struct cmsghdr align;
};

static bool sender_of(struct msghdr *msg, struct ucred *ret)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS ||
            c->cmsg_len < CMSG_LEN(sizeof(*ret)))
            continue;
        memcpy(ret, CMSG_DATA(c), sizeof(*ret));
        return true;
    }
    return false;
}

/* The folder's rights are the gate; this one holds should someone open it up. */
static bool may_send(const struct mark_receiver *r, const struct ucred *sender)
{
    return r->uid == 0 || sender->uid == 0 || sender->uid == r->uid;
}

static void hand_on(struct mark_receiver *r, const struct mark *m, size_t count)
{
    struct mark one = *m;

    r->in_callback = true;
    for (size_t i = 0; i < count; i++) {
        if (count > 1)
            mark_row_at(m, count, i, r->one, &one);
        r->fn(r->user, &one);
    }
    r->in_callback = false;
}

/* Returns how many marks it was. */
static size_t take_datagram(struct mark_receiver *r, struct msghdr *msg, size_t len)
{
    struct ucred sender;
    size_t count;
    struct mark m;

    if (msg->msg_flags & MSG_TRUNC || !sender_of(msg, &sender) || !may_send(r, &sender) ||
        mark_parse(r->text, len, &m) < 0) {
        r->stats.bad++;
        return 1;
    }
    m.t_ns = clock_mono_ns();
    m.pid = sender.pid;
    if (r->stats.received++ == 0)
        r->stats.first_ns = m.t_ns;
    r->stats.last_ns = m.t_ns;
    if (m.kind == MARK_HELLO)
        take_hello(r, &m);
    count = mark_row_length(&m);
    hand_on(r, &m, count);
    return count;
}

static void on_readable(void *user, int fd, uint32_t events)
{
    struct mark_receiver *r = user;

    (void)events;
    for (size_t taken = 0; taken < DRAIN_MAX;) {
        struct iovec iov = {r->text, sizeof(r->text)};
        union control control;
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
        ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        if (n < 0) /* EAGAIN: drained; anything else: the next turn tries again */
            return;
        taken += take_datagram(r, &msg, (size_t)n);
    }
}

void mark_folder_remove(const char *folder)
{
    DIR *dir = folder[0] ? opendir(folder) : NULL;
    struct stat st;
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            (S_ISSOCK(st.st_mode) || S_ISLNK(st.st_mode)))
            unlinkat(dirfd(dir), e->d_name, 0);
    if (!dir)
        return;
    closedir(dir);
    rmdir(folder);
}

static void remove_socket(struct mark_receiver *r)
{
    mark_folder_remove(r->folder);
    r->address.sun_path[0] = r->folder[0] = '\0';
}

/* Folder and bound socket below PARENT: 0 or -errno, with nothing left behind. */
static int bind_below(struct mark_receiver *r, const char *parent)
{
    struct sockaddr_un *a = &r->address;
    char folder[sizeof(r->folder)];
    size_t len = strlen(parent);
    int n, err;

    while (len > 1 && parent[len - 1] == '/')
        len--;
    if (len > sizeof(folder))
        return -ENAMETOOLONG;
    n = snprintf(folder, sizeof(folder), "%.*s/ebb-XXXXXX", (int)len, parent);
    if ((size_t)n + NAME_ROOM > sizeof(a->sun_path))
        return -ENAMETOOLONG;
    if (!mkdtemp(folder))
        return -errno;
    memcpy(r->folder, folder, sizeof(folder));
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(a->sun_path, folder, (size_t)n);
    memcpy(a->sun_path + n, "/marks", sizeof("/marks"));
    /* chmod: the umask of whoever started us must not shut out the job. */
    if (chmod(folder, 0700) == 0 && bind(r->fd, (const struct sockaddr *)a, sizeof(*a)) == 0 &&
        chmod(a->sun_path, 0600) == 0)
        return 0;
    err = -errno;
    remove_socket(r);
    return err;
}

static int bind_somewhere(struct mark_receiver *r, struct err *err)
{
    const char *parents[] = {getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
    int code = -ENOENT;

    for (size_t i = 0; i < sizeof(parents) / sizeof(parents[0]); i++) {
        if (!parents[i] || parents[i][0] != '/')
            continue;
        code = bind_below(r, parents[i]);
        if (code == 0)
            return 0;
    }
    return err_set(
        err, code,
        "no place for the socket that marks come in by: /tmp: %s; set TMPDIR to a folder "
        "you can write to, with a path shorter than 88 bytes",
        strerror(-code));
}

/* SO_RCVBUF is left alone: for AF_UNIX datagrams Linux charges the sender, and what may wait is
 * counted in datagrams (net.unix.max_dgram_qlen), which only root could raise, for everybody. */
static int open_socket(struct mark_receiver *r, struct err *err)
{
    const int on = 1;

    r->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (r->fd < 0 || setsockopt(r->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0) {
        int code = -errno;

        return err_set(err, code, "cannot make a socket for marks: %s", strerror(-code));
    }
    return bind_somewhere(r, err);
}

int mark_receiver_new(struct loop *loop, mark_fn *fn, void *user, struct mark_receiver **ret,
                      struct err *err)
{
    struct mark_receiver *r = calloc(1, sizeof(*r));
    int code;

    if (!r)
        return err_set(err, -ENOMEM, "no memory for the receiver of marks");
    r->fd = -1;
    r->uid = geteuid();
    r->fn = fn;
    r->user = user;
    code = open_socket(r, err);
    if (code == 0) {
        code = loop_add_fd(loop, r->fd, EPOLLIN, on_readable, r, &r->source);
        if (code < 0)
            err_set(err, code, "cannot wait for marks: %s", strerror(-code));
    }
    if (code < 0) {
        mark_receiver_free(r);
        return code;
    }
    *ret = r;
    return 0;
}

void mark_receiver_free(struct mark_receiver *r)
{
    if (!r)
        return;
    assert(!r->in_callback && "mark_fn freed the receiver that called it");
    loop_remove(r->source);
    remove_socket(r);
    if (r->fd >= 0)
        close(r->fd);
    free(r->peers);
    free(r);
}

const char *mark_receiver_path(const struct mark_receiver *r)
{
    return r->address.sun_path;
}

const char *mark_receiver_folder(const struct mark_receiver *r)
{
    return r->folder;
}

void mark_receiver_stats(const struct mark_receiver *r, struct mark_receiver_stats *ret)
{
    *ret = r->stats;
}

size_t mark_receiver_peers(const struct mark_receiver *r, const struct mark_peer **ret)
{
    *ret = r->peers;
    return r->peer_count;
}

static void remove_peer(struct mark_receiver *r, size_t at)
{
    r->peer_count--;
    memmove(&r->peers[at], &r->peers[at + 1], (r->peer_count - at) * sizeof(r->peers[0]));
}

/* Linux takes a path of exactly sun_path's size without NUL too; ours always has one. */
static int ask(const struct mark_receiver *r, const struct mark_peer *peer, const char *text,
               size_t len)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, peer->reply, sizeof(address.sun_path));
    if (sendto(r->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address,
               sizeof(address)) < 0)
        return -errno;
    return 0;
}

int mark_receiver_request(struct mark_receiver *r, const char *what, uint64_t id)
{
    char text[64];
    int len = snprintf(text, sizeof(text), "%s=%" PRIu64 "\n", what, id);
    int reached = 0;
    size_t i = 0;

    assert(len > 0 && (size_t)len < sizeof(text) && "a request is one short word");
    while (i < r->peer_count) {
        int code = r->peers[i].is_worker ? 0 : ask(r, &r->peers[i], text, (size_t)len);

        if (code == 0 && !r->peers[i].is_worker)
            reached++;
        if (code == 0 || code == -EAGAIN || code == -ENOBUFS || code == -ENOMEM)
            i++;
        else
            remove_peer(r, i);
    }
    return reached;
}
