/* The sockets that the server listens on: a TCP address, and a unix socket for the server's own
 * user. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct err;

struct listen_address {
    struct sockaddr_storage address;
    socklen_t len;
    bool is_loopback;
};

enum { LISTEN_NAME_MAX = 80 };

/* Parses "127.0.0.1:7433", "[::1]:0" or "localhost:80": only literal addresses and the name
 * localhost are accepted. Returns 0 or -EINVAL. */
int listen_parse(const char *text, struct listen_address *ret, struct err *err);
/* Creates a non-blocking listening socket. ret_name is its address, such as "127.0.0.1:40123". */
int listen_tcp(const struct listen_address *a, char ret_name[LISTEN_NAME_MAX], int *ret_fd,
               struct err *err);
/* Creates a unix socket with mode 0600. Replaces an existing socket if no server listens on it. */
int listen_unix(const char *path, int *ret_fd, struct err *err);
/* Checks whether listen_unix can succeed. Returns 0; -EADDRINUSE if a server listens on PATH;
 * -ENAMETOOLONG; -EEXIST if PATH is not a socket; or another -errno. */
int listen_unix_check(const char *path, struct err *err);
