/* Creates the sockets that the server listens on. */
#include "server/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/number.h"

enum { BACKLOG = 512 };

static bool parse_host(const char *host, uint16_t port, struct listen_address *ret)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    size_t len = strlen(host);
    char inner[64];
    *ret = (struct listen_address){0};
    if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &in.sin_addr) ==
        1) {
        memcpy(&ret->address, &in, sizeof in);
        ret->len = sizeof in;
        ret->is_loopback = ntohl(in.sin_addr.s_addr) >> 24 == 127;
        return true;
    }
    if (len < 3 || len >= sizeof inner || host[0] != '[' || host[len - 1] != ']')
        return false;
    snprintf(inner, sizeof inner, "%.*s", (int)len - 2, host + 1);
    if (inet_pton(AF_INET6, inner, &in6.sin6_addr) != 1)
        return false;
    memcpy(&ret->address, &in6, sizeof in6);
    ret->len = sizeof in6;
    ret->is_loopback = IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr) ||
                       (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr) && in6.sin6_addr.s6_addr[12] == 127);
    return true;
}

int listen_parse(const char *text, struct listen_address *ret, struct err *err)
{
    const char *colon = strrchr(text, ':');
    char host[64];
    int64_t port = -1;
    struct listen_address a;
    if (colon && number_parse_i64(colon + 1, strlen(colon + 1), &port) == 0 && colon[1] != '-' &&
        port <= 65535 && (size_t)(colon - text) < sizeof host) {
        snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
        if (parse_host(host, (uint16_t)port, &a)) {
            *ret = a;
            return 0;
        }
    }
    return err_set(err, -EINVAL,
                   "invalid address \"%.100s\"; use one like 127.0.0.1:7433 or [::1]:0, or "
                   "\"none\" for the unix socket alone",
                   text);
}

static void socket_name(int fd, char ret[LISTEN_NAME_MAX])
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address;
    char host[INET6_ADDRSTRLEN] = "?";
    getsockname(fd, (struct sockaddr *)&address, &len);
    if (address.ss_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, &address, sizeof in6);
        inet_ntop(AF_INET6, &in6.sin6_addr, host, sizeof host);
        snprintf(ret, LISTEN_NAME_MAX, "[%s]:%u", host, ntohs(in6.sin6_port));
    } else {
        struct sockaddr_in in;
        memcpy(&in, &address, sizeof in);
        inet_ntop(AF_INET, &in.sin_addr, host, sizeof host);
        snprintf(ret, LISTEN_NAME_MAX, "%s:%u", host, ntohs(in.sin_port));
    }
}

int listen_tcp(const struct listen_address *a, char ret_name[LISTEN_NAME_MAX], int *ret_fd,
               struct err *err)
{
    int one = 1;
    int fd = socket(a->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, -errno, "cannot create a socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->address.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&a->address, a->len) < 0 || listen(fd, BACKLOG) < 0) {
        int r = -errno;
        close(fd);
        return err_set(err, r, "cannot listen: %s; choose another address", strerror(-r));
    }
    socket_name(fd, ret_name);
    *ret_fd = fd;
    return 0;
}

static int unix_address(const char *path, struct sockaddr_un *ret, struct err *err)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof ret->sun_path)
        return err_set(err, -ENAMETOOLONG,
                       "path %.200s is too long for a unix socket (maximum %zu bytes); choose "
                       "another with --socket",
                       path, sizeof ret->sun_path - 1);
    memcpy(ret->sun_path, path, strlen(path) + 1);
    return 0;
}

int listen_unix_check(const char *path, struct err *err)
{
    struct sockaddr_un address;
    struct stat st;
    int r = unix_address(path, &address, err);
    if (r < 0)
        return r;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, -EEXIST,
                       "%s exists and is not a socket; choose another path with --socket", path);
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, -errno, "cannot create a socket: %s", strerror(errno));
    /* EAGAIN: a server listens there, and its backlog is full */
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN)
        return err_set(err, -EADDRINUSE, "another server is running on %s", path);
    if (errno != ECONNREFUSED)
        return err_set(err, -errno, "cannot connect to %s: %s", path, strerror(errno));
    return 0;
}

int listen_unix(const char *path, int *ret_fd, struct err *err)
{
    struct sockaddr_un address;
    int r = listen_unix_check(path, err);
    if (r == 0)
        r = unix_address(path, &address, err);
    if (r < 0)
        return r;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, -errno, "cannot create a socket: %s", strerror(errno));
    unlink(path);
    mode_t mask = umask(0177);
    r = bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 ? -errno : 0;
    umask(mask);
    if (r == 0 && listen(fd, BACKLOG) < 0)
        r = -errno;
    if (r < 0) {
        close(fd);
        return err_set(err, r, "cannot listen on %s: %s", path, strerror(-r));
    }
    *ret_fd = fd;
    return 0;
}
