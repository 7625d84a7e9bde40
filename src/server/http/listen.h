/* Where the server listens: an address of TCP, and a unix socket for its own user. */
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

/* "127.0.0.1:7433", "[::1]:0", "localhost:80": literal addresses, no names but localhost. -EINVAL
 * with a sentence. */
int listen_parse(const char *text, struct listen_address *ret, struct err *err);
/* A socket that listens, not blocking; NAME gets "127.0.0.1:40123". */
int listen_tcp(const struct listen_address *a, char ret_name[LISTEN_NAME_MAX], int *ret_fd,
               struct err *err);
/* Mode 0600. What lies there is replaced where it is a socket on which nobody answers. */
int listen_unix(const char *path, int *ret_fd, struct err *err);
/* Whether it could be: -EADDRINUSE where somebody answers, -ENAMETOOLONG, -EEXIST. */
int listen_unix_check(const char *path, struct err *err);
