/* The datagram socket of a job: receives marks, and sends requests to the processes that sent a
 * hello. */
#include "mark/receiver.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/loop.h"
#include "mark/row.h"

/* Maximum number of marks received per round of the loop, so that a flood of marks does not delay
 * sampling. */
enum { DRAIN_MAX = 256 };

/* Maximum length of a socket's name in the folder, including the slash and the NUL. */
enum { NAME_ROOM = sizeof("/control") };

enum { BOOT_ID_SIZE = 48 }; /* size of a UUID and its terminator */

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
    size_t i = 0;
    while (i < r->peer_count &&
           (r->peers[i].pid != pid || (pid == 0 && strcmp(r->peers[i].reply, reply) != 0)))
        i++;
    return i;
}

static void take_hello(struct mark_receiver *r, const struct mark *m)
{
    size_t reply_len = 0, at;
    const char *reply = mark_get(m, "REPLY", &reply_len);
    struct mark_peer peer = {.pid = m->pid,
                             .rank = m->has & MARK_HAS_RANK ? m->rank : -1,
                             .is_worker = mark_is(m, "ROLE", "worker")};
    if (!reply || reply_len >= sizeof peer.reply || reply_len == 0 || reply[0] != '/')
        return;
    memcpy(peer.reply, reply, reply_len);
    if (strcmp(peer.reply, r->address.sun_path) == 0)
        return;
    at = find_peer(r, peer.pid, peer.reply);
    if (at == r->peer_count) {
        if (r->peer_count >= MARK_PEERS_MAX || !ARRAY_ROOM(r->peers, r->peer_count, r->peer_cap))
            return;
        r->peer_count++;
    }
    r->peers[at] = peer;
}

/* A control buffer that only has room for the sender's credentials. The kernel then drops
 * descriptors that the sender attaches. */
union control {
    char bytes[CMSG_SPACE(sizeof(struct ucred))];
    struct cmsghdr align;
};

static bool sender_of(struct msghdr *msg, struct ucred *ret)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS ||
            c->cmsg_len < CMSG_LEN(sizeof *ret))
            continue;
        memcpy(ret, CMSG_DATA(c), sizeof *ret);
        return true;
    }
    return false;
}

/* True if this sender may send marks. The folder's permissions already keep other users out; this
 * check holds even if someone changes the permissions. */
static bool may_send(const struct mark_receiver *r, const struct ucred *sender)
{
    return r->uid == 0 || sender->uid == 0 || sender->uid == r->uid;
}

static void deliver_steps(struct mark_receiver *r, const struct mark *m, size_t count)
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

/* Handles one datagram. Returns the number of marks in it. */
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
    r->stats.received++;
    if (m.kind == MARK_HELLO)
        take_hello(r, &m);
    count = mark_row_length(&m);
    deliver_steps(r, &m, count);
    return count;
}

static void on_readable(void *user, int fd, uint32_t events)
{
    struct mark_receiver *r = user;
    (void)events;
    for (size_t taken = 0; taken < DRAIN_MAX;) {
        struct iovec iov = {r->text, sizeof r->text};
        union control control;
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
        ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        /* EAGAIN means that the queue is empty; after other errors the next round tries again */
        if (n < 0)
            return;
        taken += take_datagram(r, &msg, (size_t)n);
    }
}

/* ---- the folder ----
 *
 * A symbolic link in the folder shows that ebb created the folder. The link's target is the boot
 * id, because several machines may share the file system: only the same machine in the same boot
 * can find out whether a process still has the socket open. */

static const char folder_pattern[] = "ebb-XXXXXX";
static const char boot_link[] = "boot";

/* Limits on the number and nesting of files that are removed from the folder of a job. */
enum { DEPTH_MAX = 16, ENTRIES_MAX = 1 << 16 };

struct removal {
    dev_t device;
    unsigned entries;
    /* true: everything in the folder is removed; false: only sockets and symbolic links are */
    bool is_ours;
};

static bool read_boot_id(char ret[BOOT_ID_SIZE])
{
    ssize_t len = io_read_small(AT_FDCWD, "/proc/sys/kernel/random/boot_id", ret, BOOT_ID_SIZE);
    if (len <= 0)
        return false;
    ret[strcspn(ret, "\n")] = '\0';
    return true;
}

/* True if ebb created the folder, for this user, since this machine booted. */
static bool is_own_folder(int dirfd)
{
    char boot_id[BOOT_ID_SIZE], target[BOOT_ID_SIZE];
    struct stat st;
    ssize_t len = readlinkat(dirfd, boot_link, target, sizeof target);
    return len > 0 && fstat(dirfd, &st) == 0 && st.st_uid == geteuid() && read_boot_id(boot_id) &&
           strlen(boot_id) == (size_t)len && memcmp(boot_id, target, (size_t)len) == 0;
}

static void remove_entry(struct removal *r, int dirfd, const char *name, unsigned depth);

/* Removes the content of the folder FD, and closes FD. */
static void remove_content(struct removal *r, int fd, unsigned depth)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return;
    }
    for (const struct dirent *e; r->entries < ENTRIES_MAX && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            remove_entry(r, dirfd(dir), e->d_name, depth);
    closedir(dir);
}

static void remove_entry(struct removal *r, int dirfd, const char *name, unsigned depth)
{
    struct stat st;
    r->entries++;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_dev != r->device)
        return;
    if (!r->is_ours && !S_ISSOCK(st.st_mode) && !S_ISLNK(st.st_mode))
        return;
    if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
        int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd >= 0)
            remove_content(r, fd, depth + 1);
    }
    unlinkat(dirfd, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
}

void mark_folder_remove(const char *folder)
{
    struct removal r = {0};
    struct stat st;
    int fd = folder[0] ? open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    if (fstat(fd, &st) < 0) {
        close(fd);
        return;
    }
    r.device = st.st_dev;
    r.is_ours = is_own_folder(fd);
    remove_content(&r, fd, 0);
    rmdir(folder);
}

/* True if no process has the socket open. This happens if the ebb that created the socket was
 * killed before it could remove the file. */
static bool is_abandoned(const char *socket_path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t len = strlen(socket_path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is_refused;
    if (fd < 0)
        return false;
    if (len >= sizeof a.sun_path) {
        close(fd);
        return false;
    }
    memcpy(a.sun_path, socket_path, len + 1);
    is_refused = connect(fd, (const struct sockaddr *)&a, sizeof a) < 0 && errno == ECONNREFUSED;
    close(fd);
    return is_refused;
}

void mark_folder_remove_abandoned(const char *folder)
{
    char path[PATH_MAX];
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    snprintf(path, sizeof path, "%s/marks", folder);
    if (is_own_folder(fd) && is_abandoned(path))
        mark_folder_remove(folder);
    close(fd);
}

/* Removes the abandoned folders of other runs in the folder PARENT, which is open as PARENT_FD. */
static void remove_abandoned(int parent_fd, const char *parent)
{
    DIR *dir = fdopendir(parent_fd);
    unsigned entries = 0;
    if (!dir) {
        close(parent_fd);
        return;
    }
    for (const struct dirent *e; entries < ENTRIES_MAX && (e = readdir(dir)); entries++) {
        char folder[PATH_MAX];

        if (strlen(e->d_name) != strlen(folder_pattern) || strncmp(e->d_name, "ebb-", 4) != 0)
            continue;
        snprintf(folder, sizeof folder, "%s/%.*s", parent, (int)strlen(folder_pattern), e->d_name);
        mark_folder_remove_abandoned(folder);
    }
    closedir(dir);
}

static void remove_socket(struct mark_receiver *r)
{
    mark_folder_remove(r->folder);
    r->address.sun_path[0] = r->folder[0] = '\0';
}

static void remove_abandoned_beside(const char *folder)
{
    const char *slash = strrchr(folder, '/');
    char parent[sizeof(((struct mark_receiver *)0)->folder)];
    int fd;
    if (!slash)
        return;
    snprintf(parent, sizeof parent, "%.*s", (int)(slash - folder), folder);
    fd = open(parent[0] ? parent : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        remove_abandoned(fd, parent);
}

/* Creates the folder and binds the socket below PARENT. Returns 0, or -errno with nothing left
 * behind. */
static int bind_below(struct mark_receiver *r, const char *parent)
{
    struct sockaddr_un *a = &r->address;
    char folder[sizeof r->folder];
    size_t len = strlen(parent);
    char boot_id[BOOT_ID_SIZE], link_path[sizeof folder + sizeof boot_link];
    int n, err;
    while (len > 1 && parent[len - 1] == '/')
        len--;
    if (len > sizeof folder)
        return -ENAMETOOLONG;
    n = snprintf(folder, sizeof folder, "%.*s/%s", (int)len, parent, folder_pattern);
    if ((size_t)n + NAME_ROOM > sizeof a->sun_path)
        return -ENAMETOOLONG;
    if (!mkdtemp(folder))
        return -errno;
    memcpy(r->folder, folder, sizeof folder);
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(a->sun_path, folder, (size_t)n);
    memcpy(a->sun_path + n, "/marks", sizeof("/marks"));
    snprintf(link_path, sizeof link_path, "%s/%s", folder, boot_link);
    /* If the boot id cannot be read, there is no link, so the folder can only be removed at the end
     * of this run. */
    if (read_boot_id(boot_id))
        (void)!symlink(boot_id, link_path);
    /* chmod is needed because a restrictive umask of the caller would lock out the job. */
    if (chmod(folder, 0700) == 0 && bind(r->fd, (const struct sockaddr *)a, sizeof *a) == 0 &&
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
    for (size_t i = 0; i < sizeof parents / sizeof parents[0]; i++) {
        if (!parents[i] || parents[i][0] != '/')
            continue;
        code = bind_below(r, parents[i]);
        if (code == 0)
            return 0;
    }
    return err_set(
        err, code,
        "cannot create the socket for marks in /tmp: %s; set TMPDIR to a writable folder with "
        "a path shorter than 88 bytes",
        strerror(-code));
}

/* Opens the datagram socket. SO_RCVBUF is not set, because it has no effect: for AF_UNIX datagrams
 * Linux applies the send buffer's limit (SO_SNDBUF) of the sender. The queue is limited by the
 * number of datagrams (net.unix.max_dgram_qlen). Only root can raise that limit, and only for all
 * sockets. */
static int open_socket(struct mark_receiver *r, struct err *err)
{
    const int on = 1;
    r->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (r->fd < 0 || setsockopt(r->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0) {
        int code = -errno;

        return err_set(err, code, "cannot create a socket for marks: %s", strerror(-code));
    }
    return bind_somewhere(r, err);
}

int mark_receiver_new(struct loop *loop, mark_fn *fn, void *user, struct mark_receiver **ret,
                      struct err *err)
{
    struct mark_receiver *r = calloc(1, sizeof *r);
    int code;
    if (!r)
        return err_set(err, -ENOMEM, "cannot receive marks: out of memory");
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
    remove_abandoned_beside(r->folder);
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
    memmove(&r->peers[at], &r->peers[at + 1], (r->peer_count - at) * sizeof r->peers[0]);
}

void mark_receiver_died(struct mark_receiver *r, int32_t pid)
{
    size_t at = find_peer(r, pid, "");
    if (at < r->peer_count)
        remove_peer(r, at);
}

/* Sends a request. The address always ends in NUL, although Linux would accept a path that fills
 * all of sun_path. */
static int ask_peer(const struct mark_receiver *r, const struct mark_peer *peer, const char *text,
                    size_t len)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, peer->reply, sizeof address.sun_path);
    if (sendto(r->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address,
               sizeof address) < 0)
        return -errno;
    return 0;
}

int mark_receiver_request(struct mark_receiver *r, const char *what, uint64_t id)
{
    char text[64];
    int len = snprintf(text, sizeof text, "%s=%" PRIu64 "\n", what, id);
    int reached = 0;
    size_t i = 0;
    assert(len > 0 && (size_t)len < sizeof text && "the request is longer than its buffer");
    while (i < r->peer_count) {
        int code = r->peers[i].is_worker ? 0 : ask_peer(r, &r->peers[i], text, (size_t)len);

        if (code == 0 && !r->peers[i].is_worker)
            reached++;
        if (code == 0 || code == -EAGAIN || code == -ENOBUFS || code == -ENOMEM)
            i++;
        else
            remove_peer(r, i);
    }
    return reached;
}
