/* How many GETs a second a server answers on loopback.
 *
 *     reads PORT TOKEN PATH CONNECTIONS SECONDS
 *
 * Each connection is kept open and has one request under way. Prints one JSON object. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 1 << 20, CONNECTIONS_MAX = 64 };

struct connection {
    int fd;
    size_t len;
    char *in;
};

static void die(const char *what)
{
    fprintf(stderr, "reads: %s: %s\n", what, errno ? strerror(errno) : "not as expected");
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void open_connection(struct connection *c, unsigned port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->in = malloc(ROOM + 1);
    if (c->fd < 0 || !c->in || connect(c->fd, (struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
}

/* True: the answer is whole, with status 200, and gone from the buffer. */
static bool answered(struct connection *c)
{
    ssize_t n = read(c->fd, c->in + c->len, ROOM - c->len);
    if (n <= 0)
        die("read");
    c->len += (size_t)n;
    c->in[c->len] = '\0';
    char *end = strstr(c->in, "\r\n\r\n");
    if (!end)
        return false;
    char *length = strcasestr(c->in, "\r\nContent-Length:");
    errno = 0;
    if (strncmp(c->in, "HTTP/1.1 200", 12) != 0 || !length || length > end)
        die("answer");
    size_t whole = (size_t)(end + 4 - c->in) + strtoul(length + 17, NULL, 10);
    if (whole > ROOM)
        die("answer");
    if (c->len < whole)
        return false;
    c->len = 0; /* one request at a time: nothing is behind it */
    return true;
}

int main(int argc, char **argv)
{
    static struct connection c[CONNECTIONS_MAX];
    char request[1024];
    if (argc != 6 || atoi(argv[4]) < 1 || atoi(argv[4]) > CONNECTIONS_MAX) {
        fprintf(stderr, "usage: reads PORT TOKEN PATH CONNECTIONS SECONDS\n");
        return 2;
    }
    unsigned port = (unsigned)atoi(argv[1]), count = (unsigned)atoi(argv[4]);
    int len = snprintf(request, sizeof request,
                       "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nAuthorization: Bearer %s\r\n\r\n",
                       argv[3], port, argv[2]);
    int ep = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < count; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
        open_connection(&c[i], port);
        epoll_ctl(ep, EPOLL_CTL_ADD, c[i].fd, &e);
        if (write(c[i].fd, request, (size_t)len) != len)
            die("write");
    }
    uint64_t answers = 0;
    double began = now_s(), until = began + atof(argv[5]);
    while (now_s() < until) {
        struct epoll_event e[CONNECTIONS_MAX];
        int n = epoll_wait(ep, e, CONNECTIONS_MAX, 1000);
        for (int i = 0; i < n; i++) {
            struct connection *one = &c[e[i].data.u32];
            if (!answered(one))
                continue;
            answers++;
            if (write(one->fd, request, (size_t)len) != len)
                die("write");
        }
    }
    double took = now_s() - began;
    printf("{\"answers\": %llu, \"per_s\": %.1f}\n", (unsigned long long)answers,
           (double)answers / took);
    return 0;
}
