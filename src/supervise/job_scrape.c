/* Serves the job's metrics over HTTP, on the event loop. Also writes the metrics to a file, in a
 * separate thread, because access to a disk may hang. */
#include "supervise/job.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/loop.h"
#include "base/thread.h"
#include "run/metrics.h"
#include "supervise/job_scrape.h"

enum {
    READERS = 8, /* maximum number of connections; a new connection replaces the oldest */
    REQUEST_MAX = 4 << 10,
    FILE_S = 5, /* interval between two writes of the file */
    STACK_BYTES = 128 << 10,
    JOIN_S = 2, /* maximum wait for the thread, whose disk access may hang */
};

struct reader {
    struct job *j;
    int fd;
    struct loop_source *source; /* the event source, or NULL if the entry is not in use */
    uint64_t number;            /* sequence number of the connection */
    size_t len;
    char request[REQUEST_MAX];
};

struct job_scrape {
    struct loop_source *source;
    struct reader reader[READERS];
    uint64_t connections;
    uint64_t file_ns; /* time at which the file was last written */
    bool is_reported; /* a failure to write the file was reported */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    struct buf text; /* text to write to the file */
    bool is_stopped;
    int error; /* result of the last write: 0 or -errno */
};

static void put_metrics(struct job *j, struct buf *out)
{
    struct job_facts facts = {0};
    job_facts_now(j, &facts);
    const struct metrics_job job = {
        .label = j->options->name, .started_ns = j->started_wall_ns, .facts = &facts};
    metrics_put_jobs(out, &job, 1);
    /* OpenMetrics requires this line; Prometheus treats it as a comment */
    buf_add_str(out, "# EOF\n");
}

/* ---- HTTP ---- */

static void reader_close(struct reader *r)
{
    loop_remove(r->source);
    close(r->fd);
    r->source = NULL;
}

/* Sends the answer without waiting. If the client does not read its answers, the socket's buffer
 * may be full, and the rest of the answer is dropped. */
static void reader_answer(struct reader *r, const char *status)
{
    struct buf body = {0}, out = {0};
    if (status[0] == '2')
        put_metrics(r->j, &body);
    else
        buf_printf(&body, "%s\n", status);
    buf_printf(&out,
               "HTTP/1.1 %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %zu\r\n"
               "Connection: close\r\n\r\n",
               status,
               status[0] == '2' ? "application/openmetrics-text; version=1.0.0" : "text/plain",
               body.len);
    buf_add(&out, body.data, body.len);
    if (!out.failed && !body.failed)
        (void)send(r->fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    buf_fini(&body);
    buf_fini(&out);
    reader_close(r);
}

static void on_request(void *user, int fd, uint32_t events)
{
    struct reader *r = user;
    (void)events;
    ssize_t n = recv(fd, r->request + r->len, sizeof r->request - r->len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        reader_close(r);
        return;
    }
    r->len += (size_t)n;
    if (!memmem(r->request, r->len, "\r\n\r\n", 4)) {
        if (r->len == sizeof r->request)
            reader_answer(r, "431 Request Header Fields Too Large");
        return;
    }
    static const char get[] = "GET ", wanted[] = "GET /metrics";
    size_t len = sizeof wanted - 1;
    if (strncmp(r->request, get, sizeof get - 1) != 0)
        reader_answer(r, "405 Method Not Allowed");
    else if (strncmp(r->request, wanted, len) == 0 && strchr(" ?", r->request[len]))
        reader_answer(r, "200 OK");
    else
        reader_answer(r, "404 Not Found");
}

static void on_connection(void *user, int fd, uint32_t events)
{
    struct job *j = user;
    struct job_scrape *s = j->scrape;
    (void)events;
    int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0)
        return;
    struct reader *r = s->reader;
    for (size_t i = 0; i < READERS && r->source; i++)
        if (!s->reader[i].source || s->reader[i].number < r->number)
            r = &s->reader[i];
    if (r->source)
        reader_close(r);
    *r = (struct reader){.j = j, .fd = client, .number = s->connections++};
    if (loop_add_fd(j->loop, client, EPOLLIN, on_request, r, &r->source) < 0)
        close(client);
}

/* ---- the file ---- */

static void *write_file(void *user)
{
    const struct job *j = user;
    struct job_scrape *s = j->scrape;
    int folder = j->options->metrics->folder_fd;
    const char *base = j->options->metrics->file;
    pthread_mutex_lock(&s->lock);
    while (!s->is_stopped) {
        struct buf text = s->text;
        s->text = (struct buf){0};
        if (!text.len) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        int r = io_replace_file(folder, base, text.data, text.len);
        buf_fini(&text);
        pthread_mutex_lock(&s->lock);
        s->error = r;
    }
    pthread_mutex_unlock(&s->lock);
    /* The file is removed, because readers would mistake its last values for current ones. */
    unlinkat(folder, base, 0);
    return NULL;
}

static void update_file(struct job *j, struct job_scrape *s)
{
    struct buf text = {0}, old;
    put_metrics(j, &text);
    pthread_mutex_lock(&s->lock);
    int error = s->error;
    old = s->text;
    s->text = text.failed ? (struct buf){0} : text;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    buf_fini(&old);
    if (error && !s->is_reported)
        job_notifyf(j, "--metrics-file: cannot write the file: %s", strerror(-error));
    s->is_reported = error;
}

/* ---- start, ticks and end ---- */

void job_scrape_start(struct job *j)
{
    const struct supervisor_metrics *m = j->options->metrics;
    if (!m || (m->listen_fd < 0 && m->folder_fd < 0))
        return;
    struct job_scrape *s = j->scrape = calloc(1, sizeof *s);
    int r = s ? 0 : -ENOMEM;
    if (s) {
        pthread_mutex_init(&s->lock, NULL);
        thread_cond_init(&s->changed);
    }
    if (r == 0 && m->listen_fd >= 0)
        r = loop_add_fd(j->loop, m->listen_fd, EPOLLIN, on_connection, j, &s->source);
    if (r == 0 && m->folder_fd >= 0) {
        r = thread_start(STACK_BYTES, write_file, j, &s->thread);
        s->has_thread = r == 0;
    }
    if (r < 0)
        job_notifyf(j, "cannot serve metrics: %s", strerror(-r));
}

void job_scrape_tick(struct job *j, uint64_t now_ns)
{
    struct job_scrape *s = j->scrape;
    if (!s || !s->has_thread || (s->file_ns && now_ns - s->file_ns < FILE_S * NS_PER_S))
        return;
    s->file_ns = now_ns;
    update_file(j, s);
}

void job_scrape_free(struct job *j)
{
    struct job_scrape *s = j->scrape;
    if (!s)
        return;
    loop_remove(s->source);
    for (size_t i = 0; i < READERS; i++)
        if (s->reader[i].source)
            reader_close(&s->reader[i]);
    pthread_mutex_lock(&s->lock);
    s->is_stopped = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += JOIN_S;
    if (s->has_thread && pthread_timedjoin_np(s->thread, NULL, &until) != 0)
        return; /* S is not freed, because the thread still uses it; the process is about to exit */
    j->scrape = NULL;
    buf_fini(&s->text);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
