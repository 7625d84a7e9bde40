/* Measures how late the samples of one job's live stream arrive at many viewers. DEAF of the
 * viewers never read.
 *
 *     viewers PORT TOKEN JOB VIEWERS DEAF SECONDS T0
 *
 * T0 is the start of the job in seconds since 1970; the times t_s of samples are relative to T0.
 * Prints one JSON object: delays in ms of all samples at all viewers that read (p50, p99, max),
 * the number of samples, and the number of viewers that were disconnected. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 64 << 10, DELAYS_MAX = 4 << 20, WARM_S = 3 };

struct viewer {
    int fd;
    bool is_deaf, is_open, is_lost;
    size_t len;
    uint64_t samples;
    char *in;
};

static float *delays;
static size_t delay_count;
static double job_start_s, measure_from_s;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what)
{
    fprintf(stderr, "viewers: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- one viewer ---- */

static void greet(struct viewer *v, unsigned port, const char *token)
{
    char text[512];
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    v->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    v->in = malloc(ROOM);
    if (v->fd < 0 || !v->in || connect(v->fd, (struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
    int n =
        snprintf(text, sizeof text,
                 "GET /api/v1/live HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nUpgrade: websocket\r\n"
                 "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer %s\r\n\r\n",
                 port, token);
    if (write(v->fd, text, (size_t)n) != n)
        die("write");
}

/* Sends a masked text frame of less than 126 bytes; the mask is zero. */
static void ask(struct viewer *v, long job)
{
    char text[64];
    unsigned char frame[80] = {0x81};
    int n = snprintf(text, sizeof text, "{\"job\": %ld}", job);
    frame[1] = (unsigned char)(0x80 | n);
    memcpy(frame + 6, text, (size_t)n);
    if (write(v->fd, frame, (size_t)n + 6) != n + 6)
        die("write");
}

/* The server disconnects viewers that do not answer its pings. A ping has no payload, so the pong
 * has none. */
static void answer_ping(const struct viewer *v)
{
    static const unsigned char pong[6] = {0x8a, 0x80};
    if (write(v->fd, pong, sizeof pong) != (ssize_t)sizeof pong)
        die("write");
}

static void on_message(struct viewer *v, const char *text)
{
    const char *t = strstr(text, "\"type\":\"sample\"") ? strstr(text, "\"t_s\":") : NULL;
    if (!t)
        return;
    double now = now_s();
    v->samples++;
    if (now >= measure_from_s && delay_count < DELAYS_MAX)
        delays[delay_count++] = (float)(1e3 * (now - job_start_s - strtod(t + 6, NULL)));
}

/* Handles all complete frames in V's buffer. Returns false if a frame is invalid. */
static bool frames(struct viewer *v)
{
    size_t at = 0;
    for (;;) {
        const unsigned char *p = (unsigned char *)v->in + at;
        size_t left = v->len - at, head = 2, len;
        if (left < 2)
            break;
        len = p[1] & 0x7f;
        if (len == 126 && left >= 4) {
            head = 4;
            len = (size_t)p[2] << 8 | p[3];
        } else if (len >= 126 && left < 10) {
            break;
        } else if (len == 127) {
            head = 10;
            len = (size_t)p[6] << 24 | (size_t)p[7] << 16 | (size_t)p[8] << 8 | p[9];
        }
        if (head + len >= ROOM)
            return false;
        if (left < head + len)
            break;
        if ((p[0] & 0xf) == 8)
            return false;
        char *text = v->in + at + head;
        char kept = text[len];
        text[len] = '\0';
        if ((p[0] & 0xf) == 1)
            on_message(v, text);
        else if ((p[0] & 0xf) == 9)
            answer_ping(v);
        text[len] = kept;
        at += head + len;
    }
    memmove(v->in, v->in + at, v->len - at);
    v->len -= at;
    return true;
}

static bool take(struct viewer *v, long job)
{
    ssize_t n = read(v->fd, v->in + v->len, ROOM - 1 - v->len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0)
        return false;
    v->len += (size_t)n;
    v->in[v->len] = '\0';
    if (!v->is_open) {
        char *end = strstr(v->in, "\r\n\r\n");
        if (!end)
            return true;
        if (strncmp(v->in, "HTTP/1.1 101", 12) != 0)
            return false;
        v->is_open = true;
        size_t head = (size_t)(end + 4 - v->in);
        memmove(v->in, end + 4, v->len - head);
        v->len -= head;
        ask(v, job);
    }
    return v->is_deaf || frames(v);
}

/* ---- all viewers ---- */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double share(double p)
{
    if (!delay_count)
        return -1;
    size_t at = (size_t)(p * (double)(delay_count - 1));
    return (double)delays[at];
}

static void report(const struct viewer *v, unsigned count)
{
    uint64_t least = UINT64_MAX, most = 0;
    unsigned lost = 0, lost_deaf = 0;
    for (unsigned i = 0; i < count; i++) {
        lost += v[i].is_lost && !v[i].is_deaf;
        lost_deaf += v[i].is_lost && v[i].is_deaf;
        if (v[i].is_deaf)
            continue;
        least = v[i].samples < least ? v[i].samples : least;
        most = v[i].samples > most ? v[i].samples : most;
    }
    qsort(delays, delay_count, sizeof *delays, by_size);
    printf("{\"delays\": %zu, \"p50_ms\": %.2f, \"p99_ms\": %.2f, \"max_ms\": %.2f, "
           "\"least_samples\": %llu, \"most_samples\": %llu, \"lost\": %u, \"lost_deaf\": %u}\n",
           delay_count, share(0.5), share(0.99), share(1), (unsigned long long)least,
           (unsigned long long)most, lost, lost_deaf);
}

/* A deaf viewer sends its subscription and then never reads. */
static void serve_viewer(int ep, struct viewer *v, long job)
{
    bool ok = take(v, job);
    if (!ok || (v->is_deaf && v->is_open))
        epoll_ctl(ep, EPOLL_CTL_DEL, v->fd, NULL);
    v->is_lost = !ok;
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        fprintf(stderr, "usage: viewers PORT TOKEN JOB VIEWERS DEAF SECONDS T0\n");
        return 2;
    }
    unsigned port = (unsigned)atoi(argv[1]), count = (unsigned)atoi(argv[4]),
             deaf = (unsigned)atoi(argv[5]);
    long job = atol(argv[3]);
    double until = now_s() + atof(argv[6]) + WARM_S;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    job_start_s = atof(argv[7]);
    delays = malloc(DELAYS_MAX * sizeof *delays);
    struct viewer *v = calloc(count, sizeof *v);
    int ep = epoll_create1(EPOLL_CLOEXEC);
    if (!delays || !v || ep < 0)
        die("start");
    for (unsigned i = 0; i < count; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
        v[i].is_deaf = i < deaf;
        greet(&v[i], port, argv[2]);
        fcntl(v[i].fd, F_SETFL, O_NONBLOCK);
        epoll_ctl(ep, EPOLL_CTL_ADD, v[i].fd, &e);
    }
    measure_from_s = now_s() + WARM_S;
    while (now_s() < until) {
        struct epoll_event e[64];
        int n = epoll_wait(ep, e, 64, 100);
        for (int i = 0; i < n; i++)
            serve_viewer(ep, &v[e[i].data.u32], job);
    }
    report(v, count);
    return 0;
}
