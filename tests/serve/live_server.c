/* The live stream without the rest of the server, for tests: HTTP on a free loopback port.
 * Commands on standard input, one JSON object per line, change jobs and logs:
 *
 *     {"do": "job", "id": 1, "job": {…}, "change": true}    adds or changes a job and publishes it
 *     {"do": "removed", "id": 1}                            removes a job and publishes its removal
 *     {"do": "live", "id": 1, "message": {…}, "times": 5}   publishes a message that many times
 *     {"do": "log", "id": 1, "text": "…", "repeat": 3}      appends to the log and publishes it
 *     {"do": "counts"}                                      prints {"viewers", "messages", …}
 *     {"do": "tick", "id": 1, "hz": 10}                     publishes samples at this rate
 *
 * Arguments: the durations in struct live_times in ms (check, ping, silent, stuck, closing), and
 * the maximum number of viewers. Prints its port first. Exits at the end of standard input. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/loop.h"
#include "server/http/http.h"
#include "server/http/live_private.h"
#include "server/jobs/workers.h"

static struct {
    struct loop *loop;
    struct live *live;
    struct buf input;
    char folder[32]; /* Path of a folder with one log, which all jobs share. */
    int folder_fd, log_fd;
    json_t *jobs; /* Jobs by id, as JSON objects. */
    int64_t ticking;
    jobs_news_fn *news; /* Callback that notifies the hub of changes. */
} it;

static void fail(const char *what, int rc)
{
    fprintf(stderr, "live_server: %s: %s\n", what, strerror(-rc));
    exit(1);
}

/* ---- callbacks of the hub ---- */

static const char *key_of(int64_t id)
{
    static char key[32];
    snprintf(key, sizeof(key), "%lld", (long long)id);
    return key;
}

int jobs_get(struct jobs *jobs, int64_t id, bool with_changes, json_t **ret, struct err *err)
{
    (void)jobs, (void)with_changes, (void)err;
    json_t *job = json_object_get(it.jobs, key_of(id));
    if (!job)
        return -ENOENT;
    *ret = json_incref(job);
    return 0;
}

int jobs_read(struct jobs *jobs, int64_t id, struct jobs_reading *r, struct task **ret)
{
    (void)jobs, (void)id;
    *ret = NULL;
    r->read(r, it.folder_fd);
    r->done(r);
    r->free(r);
    return 0;
}

void task_cancel(struct task *task)
{
    (void)task; /* this program creates no tasks */
}

void jobs_listen(struct jobs *jobs, jobs_news_fn *fn, void *user)
{
    (void)jobs, (void)user;
    it.news = fn;
}

static json_t *machine_of(void *user)
{
    (void)user;
    return json_pack("{s:s}", "name", "made up");
}

/* ---- commands on standard input ---- */

static void news(enum jobs_news_kind kind, int64_t id, json_t *doc, bool is_change)
{
    it.news(it.live, &(struct jobs_news){
                         .kind = kind, .id = id, .doc = doc, .reason = "", .is_change = is_change});
}

static enum jobs_news_kind kind_of(const json_t *message)
{
    static const char *const words[] = {[JOBS_NEWS_SAMPLE] = "sample",
                                        [JOBS_NEWS_MARK] = "mark",
                                        [JOBS_NEWS_VERDICT] = "verdict",
                                        [JOBS_NEWS_EVENT] = "event",
                                        [JOBS_NEWS_LOG] = "log"};
    const char *type = json_string_value(json_object_get(message, "type"));
    for (unsigned i = JOBS_NEWS_SAMPLE; type && i <= JOBS_NEWS_LOG; i++) {
        if (strcmp(type, words[i]) == 0)
            return (enum jobs_news_kind)i;
    }
    return JOBS_NEWS_ANSWER; /* The hub sends nothing for a message of another type. */
}

static void tell_live(int64_t id, json_t *message, json_int_t times)
{
    json_object_set_new(message, "id", json_integer(id));
    for (json_int_t i = 0; i < times; i++) {
        json_object_set_new(message, "n", json_integer(i));
        news(kind_of(message), id, message, false);
    }
}

static void grow_log(int64_t id, const json_t *command)
{
    const json_t *text = json_object_get(command, "text");
    json_int_t times = json_integer_value(json_object_get(command, "repeat"));
    for (json_int_t i = 0; i < (times ? times : 1); i++)
        if (io_write_all(it.log_fd, json_string_value(text), json_string_length(text)) < 0)
            fail("the log", -EIO);
    json_t *message = json_pack("{s:s, s:I}", "type", "log", "id", (json_int_t)id);
    news(JOBS_NEWS_LOG, id, message, false);
    json_decref(message);
}

static void print_counts(void)
{
    struct live_counts c;
    live_counts(it.live, &c);
    printf("{\"viewers\": %u, \"messages\": %llu, \"skipped\": %llu, \"bytes\": %llu}\n", c.viewers,
           (unsigned long long)c.messages, (unsigned long long)c.skipped,
           (unsigned long long)c.bytes);
    fflush(stdout);
}

static void on_tick(void *user, uint64_t now_ns)
{
    (void)user, (void)now_ns;
    json_t *processes = json_array();
    for (int i = 0; i < 16; i++)
        json_array_append_new(processes,
                              json_pack("{s:i, s:s, s:s, s:I, s:I}", "pid", 1000 + i, "name",
                                        "python3", "role", "worker", "rss_bytes",
                                        (json_int_t)1 << 33, "unique_bytes", (json_int_t)1 << 32));
    json_t *m = json_pack("{s:s, s:I, s:f, s:I, s:o}", "type", "sample", "id",
                          (json_int_t)it.ticking, "t_s", (double)clock_mono_ns() / 1e9, "job_bytes",
                          (json_int_t)1 << 34, "processes", processes);
    news(JOBS_NEWS_SAMPLE, it.ticking, m, false);
    json_decref(m);
}

static void tick(int64_t id, json_int_t hz)
{
    it.ticking = id;
    int rc = loop_add_timer(it.loop, clock_mono_ns(), NS_PER_S / (uint64_t)hz, on_tick, NULL, NULL);
    if (rc < 0)
        fail("timer", rc);
}

static void obey(json_t *command)
{
    const char *what = json_string_value(json_object_get(command, "do"));
    int64_t id = json_integer_value(json_object_get(command, "id"));
    json_int_t times = json_integer_value(json_object_get(command, "times"));
    if (!what)
        fail("a line without \"do\"", -EINVAL);
    if (strcmp(what, "job") == 0) {
        json_object_set(it.jobs, key_of(id), json_object_get(command, "job"));
        news(JOBS_NEWS_JOB, id, json_object_get(command, "job"),
             json_is_true(json_object_get(command, "change")));
    } else if (strcmp(what, "removed") == 0) {
        json_object_del(it.jobs, key_of(id));
        news(JOBS_NEWS_REMOVED, id, NULL, true);
    } else if (strcmp(what, "live") == 0) {
        tell_live(id, json_object_get(command, "message"), times ? times : 1);
    } else if (strcmp(what, "log") == 0) {
        grow_log(id, command);
    } else if (strcmp(what, "counts") == 0) {
        print_counts();
    } else if (strcmp(what, "tick") == 0) {
        tick(id, json_integer_value(json_object_get(command, "hz")));
    }
}

static void on_input(void *user, int fd, uint32_t events)
{
    char piece[4096], *end;
    (void)user, (void)events;
    ssize_t n = read(fd, piece, sizeof(piece));
    if (n <= 0) {
        loop_stop(it.loop);
        return;
    }
    buf_add(&it.input, piece, (size_t)n);
    while ((end = memchr(it.input.data, '\n', it.input.len))) {
        struct err err = {""};
        size_t len = (size_t)(end - it.input.data);
        json_t *command = json_parse(it.input.data, len, &err);
        if (!command)
            fail(err.text, -EINVAL);
        memmove(it.input.data, end + 1, it.input.len - len - 1);
        it.input.len -= len + 1;
        obey(command);
        json_decref(command);
    }
}

static void on_request(void *user, struct http_request *r)
{
    (void)user;
    live_upgrade(it.live, r);
}

static int bind_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, 1024) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0)
        fail("socket", -errno);
    printf("%d\n", ntohs(a.sin_port));
    fflush(stdout);
    return fd;
}

static uint64_t argument(int argc, char **argv, int i, uint64_t or)
{
    return argc > i ? strtoull(argv[i], NULL, 10) : or ;
}

int main(int argc, char **argv)
{
    struct err err = {""};
    struct http *http;
    live_times = (struct live_times){
        argument(argc, argv, 1, 2000) * NS_PER_MS, argument(argc, argv, 2, 20000) * NS_PER_MS,
        argument(argc, argv, 3, 60000) * NS_PER_MS, argument(argc, argv, 4, 60000) * NS_PER_MS,
        argument(argc, argv, 5, 10000) * NS_PER_MS};
    unsigned viewers = (unsigned)argument(argc, argv, 6, 600);
    it.jobs = json_object();
    snprintf(it.folder, sizeof it.folder, "/tmp/ebb-live.XXXXXX");
    it.folder_fd = mkdtemp(it.folder) ? open(it.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    it.log_fd = openat(it.folder_fd, "log.txt", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (it.log_fd < 0)
        fail(it.folder, -errno);
    int rc = loop_new(&it.loop);
    if (rc < 0 || live_new(it.loop, NULL, machine_of, NULL, viewers, &it.live, &err) < 0)
        fail(err.text, rc);
    struct http_options options = {
        .listener_count = 1, .connections_max = viewers + 50, .idle_s = 10, .handle = on_request};
    options.listeners[0].fd = bind_port();
    /* All clients are trusted, because these tests use no tokens. */
    options.listeners[0].is_unix = true;
    rc = http_start(it.loop, &options, &http, &err);
    if (rc < 0)
        fail(err.text, rc);
    rc = loop_add_fd(it.loop, STDIN_FILENO, EPOLLIN, on_input, NULL, NULL);
    if (rc < 0)
        fail("standard input", rc);
    loop_run(it.loop);
    live_free(it.live);
    http_stop(http);
    loop_free(it.loop);
    json_decref(it.jobs);
    buf_fini(&it.input);
    unlinkat(it.folder_fd, "log.txt", 0);
    rmdir(it.folder);
    return 0;
}
