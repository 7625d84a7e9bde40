/* Sends requests to a process that has opted in with EBB_ATTACH=1. */
#include "attach/optin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "attach/script.h"
#include "attach/target.h"
#include "base/buf.h"
#include "base/err.h"
#include "proc/procfs.h"

/* Connects to the socket at PATH if T listens there. Returns -errno otherwise. Does not wait for
 * a process that is too busy to accept connections. */
static int optin_connect(const struct attach_target *t, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer = {0};
    socklen_t len = sizeof peer;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = fd < 0 ? -errno : 0;
    if (r == 0 && (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
                   getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0))
        r = -errno;
    /* The listener may be another process: if pid namespaces share this folder, a process in
     * another namespace may have the same pid. */
    if (r == 0 && (peer.pid != t->pid || peer.uid != t->uid || !attach_target_lives(t)))
        r = -ESRCH;
    if (r < 0 && fd >= 0)
        close(fd);
    return r < 0 ? r : fd;
}

static bool optin_try(const struct attach_target *t, const char *folder, char ret[OPTIN_PATH_MAX])
{
    char path[OPTIN_PATH_MAX];
    struct stat st;
    if (lstat(folder, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != t->uid || st.st_mode & 077)
        return false;
    if (snprintf(path, sizeof path, "%s/attach.%d", folder, (int)t->pid) >= OPTIN_PATH_MAX)
        return false;
    int fd = optin_connect(t, path);
    if (fd < 0)
        return false;
    close(fd);
    memcpy(ret, path, sizeof path);
    return true;
}

bool optin_find(const struct attach_target *t, char ret[OPTIN_PATH_MAX])
{
    struct buf text = {0};
    size_t len = 0;
    char folder[OPTIN_PATH_MAX];
    const char *base = attach_target_file(t, "environ", ATTACH_ENVIRON_MAX, &text) < 0
                           ? NULL
                           : proc_environ_find(buf_str(&text), text.len, "XDG_RUNTIME_DIR", &len);
    /* ebb's own XDG_RUNTIME_DIR is used if the environment of T is unreadable or does not contain
     * the variable. */
    const char *own = getenv("XDG_RUNTIME_DIR");
    if (!base && own && *own) {
        base = own;
        len = strlen(own);
    }
    bool found = base &&
                 snprintf(folder, sizeof folder, "%.*s/ebb", (int)len, base) < OPTIN_PATH_MAX &&
                 optin_try(t, folder, ret);
    snprintf(folder, sizeof folder, "/tmp/ebb-%u", (unsigned)t->uid);
    found = found || optin_try(t, folder, ret);
    buf_fini(&text);
    return found;
}

static int optin_send(const struct attach_target *t, const char *text, size_t len, struct err *err)
{
    int fd = optin_connect(t, t->optin);
    if (fd >= 0 && send(fd, text, len, MSG_NOSIGNAL) == (ssize_t)len)
        return fd;
    int r = fd < 0 ? fd : -errno;
    if (fd >= 0)
        close(fd);
    if (!attach_target_lives(t))
        return attach_target_gone(t, err);
    return err_set(err, r, "process %d (%s) does not accept requests at %s: %s", (int)t->pid,
                   t->name, t->optin, strerror(-r));
}

static void optin_add(struct buf *out, const char *key, const char *value)
{
    if (value)
        buf_printf(out, "\n%s=%s", key, value);
}

int optin_request_start(const struct attach_target *t, const struct script *s, struct err *err)
{
    const char *const paths[] = {s->socket, s->run_dir, s->library};
    struct buf text = {0};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i] && strchr(paths[i], '\n'))
            return err_set(err, -EINVAL, "the run folder's path contains a line break");
    buf_add_str(&text, "REQUEST=start");
    optin_add(&text, "SOCKET", s->socket);
    optin_add(&text, "RUN_DIR", s->run_dir);
    optin_add(&text, "LIBRARY", s->library);
    buf_printf(&text, "\nINTERVAL=%" PRIu64, s->heap_interval_bytes);
    int r = text.failed ? err_set(err, -ENOMEM, "out of memory")
                        : optin_send(t, text.data, text.len, err);
    buf_fini(&text);
    return r;
}

int optin_request_stop(const struct attach_target *t, struct err *err)
{
    static const char request[] = "REQUEST=stop";
    return optin_send(t, request, sizeof request - 1, err);
}

ssize_t optin_answer(int fd, char ret[OPTIN_ANSWER_MAX])
{
    ssize_t n = recv(fd, ret, OPTIN_ANSWER_MAX, MSG_DONTWAIT);
    return n >= 0 ? n : errno == EAGAIN || errno == EINTR ? -EAGAIN : 0;
}
