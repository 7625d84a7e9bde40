/* Measures how many requests per second a server answers: keep-alive connections over loopback,
 * with one request at a time on each.
 *
 *     rest PORT TOKEN PATH [CONNECTIONS [SECONDS]]
 *
 * Prints one line of JSON: requests, errors, requests per second, and the times of single requests.
 */
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

enum { CONNECTIONS_MAX = 1024, ANSWER_MAX = 1 << 20, TIMES_MAX = 1 << 22 };

struct connection {
    int fd;
    uint64_t sent_ns;
    /* wanted is the length of the whole response, or 0 until all headers have been read. */
    size_t len, wanted;
    bool is_good;
    char *answer;
};

static struct connection connections[CONNECTIONS_MAX];
static char request[4096];
static size_t request_len;
static uint32_t *times_us;
static uint64_t answered, failed;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "rest: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void ask(struct connection *c)
{
    c->len = c->wanted = 0;
    c->sent_ns = now_ns();
    if (send(c->fd, request, request_len, MSG_NOSIGNAL) != (ssize_t)request_len)
        die("send");
}

static void begin(struct connection *c, int port, int epoll_fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)port)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->answer = malloc(ANSWER_MAX + 1);
    if (c->fd < 0 || !c->answer ||
        connect(c->fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event) < 0)
        die("connect");
    ask(c);
}

/* Returns true once the whole response has been read. */
static bool is_whole(struct connection *c)
{
    if (!c->wanted) {
        c->answer[c->len] = '\0';
        const char *end = strstr(c->answer, "\r\n\r\n");
        const char *length = strcasestr(c->answer, "\r\nContent-Length:");
        if (!end)
            return false;
        c->is_good = strncmp(c->answer, "HTTP/1.1 200", 12) == 0;
        c->wanted = (size_t)(end - c->answer) + 4 +
                    (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
    }
    return c->len >= c->wanted;
}

static void hear(struct connection *c)
{
    ssize_t n = recv(c->fd, c->answer + c->len, ANSWER_MAX - c->len, 0);
    if (n <= 0)
        die("the server closed a connection");
    c->len += (size_t)n;
    if (!is_whole(c))
        return;
    uint64_t took_us = (now_ns() - c->sent_ns) / 1000;
    if (answered < TIMES_MAX)
        times_us[answered] = took_us > UINT32_MAX ? UINT32_MAX : (uint32_t)took_us;
    answered++;
    failed += !c->is_good;
    ask(c);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double quantile_ms(double q)
{
    size_t count = answered < TIMES_MAX ? answered : TIMES_MAX;
    return count ? times_us[(size_t)(q * (double)(count - 1))] / 1e3 : 0;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "rest PORT TOKEN PATH [CONNECTIONS [SECONDS]]\n");
        return 2;
    }
    int count = argc > 4 ? atoi(argv[4]) : 8;
    double seconds = argc > 5 ? atof(argv[5]) : 5;
    request_len = (size_t)snprintf(request, sizeof(request),
                                   "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                                   "%s\r\n\r\n",
                                   argv[3], argv[2]);
    times_us = malloc(TIMES_MAX * sizeof(*times_us));
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!times_us || epoll_fd < 0 || count < 1 || count > CONNECTIONS_MAX)
        die("start");
    for (int i = 0; i < count; i++)
        begin(&connections[i], atoi(argv[1]), epoll_fd);
    uint64_t start_ns = now_ns(), until_ns = start_ns + (uint64_t)(seconds * 1e9);
    while (now_ns() < until_ns) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll_fd, events, 64, 1000);
        for (int i = 0; i < n; i++)
            hear(events[i].data.ptr);
    }
    double took_s = (double)(now_ns() - start_ns) / 1e9;
    qsort(times_us, answered < TIMES_MAX ? answered : TIMES_MAX, sizeof(*times_us), by_value);
    printf("{\"requests\": %llu, \"errors\": %llu, \"per_s\": %.0f, \"median_ms\": %.3f, "
           "\"p99_ms\": %.3f}\n",
           (unsigned long long)answered, (unsigned long long)failed, (double)answered / took_s,
           quantile_ms(0.5), quantile_ms(0.99));
    return failed > 0;
}
