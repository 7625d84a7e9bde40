/* Fuzzes the server with arbitrary bytes on a connection. libmicrohttpd passes them to the handlers
 * of the API, the sessions and the live stream. The first byte selects the socket: that of the
 * server's own user, or one that requires a token. Jobs are accepted but never started; job 1 has
 * ended and has a log in two pieces. */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/io.h"
#include "base/loop.h"
#include "server/jobs/jobs.h"
#include "server/jobs/store.h"
#include "server/http/auth.h"
#include "server/http/http.h"
#include "server/http/live.h"
#include "server/http/routes.h"
#include "server/http/children.h"
#include "target.h"

enum { CONNECTIONS = 400, SOCKETS = 2, NEWS_MAX = 2000 };

static struct {
    struct loop *loop;
    struct jobs *jobs;
    struct auth *auth;
    struct children *children;
    struct live *live;
    struct routes *routes;
    struct http *http;
    unsigned news; /* Number of notifications about jobs since the program started. */
    char dir[64];
} s;

/* ---- callbacks of the routes ---- */

static json_t *machine(void *user)
{
    (void)user;
    return json_object();
}

static void metrics(void *user, struct buf *out)
{
    (void)user;
    buf_add_str(out, "# none\n");
}

static void upgrade_live(void *user, struct http_request *r)
{
    (void)user;
    live_upgrade(s.live, r);
}

static void on_news(void *user, const struct jobs_news *news)
{
    (void)user, (void)news;
    s.news++;
}

/* ---- start and end of the program ---- */

static void must(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "fuzz_http: %s\n", what);
    abort();
}

static socklen_t address_of(int which, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(ret->sun_path, sizeof ret->sun_path, "%s/socket%d", s.dir, which);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int listen_at(int which)
{
    struct sockaddr_un address;
    socklen_t len = address_of(which, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, 64) == 0, "no socket");
    return fd;
}

/* The seeds contain these tokens. */
static void write_tokens(void)
{
    static const char *const tokens[][2] = {
        {"token", "0123456789abcdef0123456789abcdef"},
        {"token.read-only", "fedcba9876543210fedcba9876543210"}};
    char path[128];
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", s.dir, tokens[i][0]);
        FILE *file = fopen(path, "w");
        must(file && fprintf(file, "%s\n", tokens[i][1]) > 0 && fclose(file) == 0 &&
                 chmod(path, 0600) == 0,
             "no token");
    }
}

static void write_file(int folder, const char *name, const char *text)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "no file");
    close(fd);
}

/* Creates a job with a log: 18 bytes from offset 0, and 13 from offset 40. */
static void write_job(void)
{
    static const struct store_job job = {.state = JOB_FAILED,
                                         .request = "{\"command\":[\"true\"]}",
                                         .name = "old",
                                         .run_dir = "1-old",
                                         .submitted_ns = 1,
                                         .ended_ns = 1};
    char path[128];
    struct err err = {""};
    struct store *store;
    int64_t id;
    snprintf(path, sizeof path, "%s/jobs.db", s.dir);
    must(store_open(path, &store, &err) == 0 && store_add(store, &job, &id, &err) == 0 && id == 1,
         err.text);
    store_close(store);
    snprintf(path, sizeof path, "%s/runs", s.dir);
    must(mkdir(path, 0700) == 0, "no folder of runs");
    snprintf(path, sizeof path, "%s/runs/%s", s.dir, job.run_dir);
    must(mkdir(path, 0700) == 0, "no run folder");
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    write_file(folder, "log.txt", "epoch 1\nloss 0.5 \n");
    write_file(folder, "log.40.txt", "out of memory");
    close(folder);
}

static void start(void)
{
    const char *parent = getenv("TMPDIR");
    /* Why the live stream is not available. Static, because the routes keep a pointer to this
     * text. */
    static struct err err;
    snprintf(s.dir, sizeof s.dir, "%.40s/ebb-fuzz-XXXXXX", parent ? parent : "/tmp");
    must(mkdtemp(s.dir), "no folder");
    write_tokens();
    write_job();
    const struct jobs_options jobs = {.state_dir = s.dir, .slots = 1, .program = "/bin/false"};
    const struct children_options children = {
        .program = "/bin/false", .at_once = 1, .queue_max = 1, .output_max = 1000};
    must(loop_new(&s.loop) == 0 && auth_open(s.dir, NULL, &s.auth, &err) == 0 &&
             jobs_open(s.loop, &jobs, &s.jobs, &err) == 0 &&
             children_new(s.loop, &children, &s.children) == 0,
         err.text);
    jobs_listen(s.jobs, on_news, &s);
    if (live_new(s.loop, s.jobs, machine, NULL, CONNECTIONS, &s.live, &err) < 0)
        s.live = NULL; /* without libwslay, there is no live stream */
    const struct routes_options routes = {.loop = s.loop,
                                          .jobs = s.jobs,
                                          .auth = s.auth,
                                          .children = s.children,
                                          .machine = machine,
                                          .live = s.live ? upgrade_live : NULL,
                                          .no_live = err.text,
                                          .metrics = metrics};
    must(routes_new(&routes, &s.routes, &err) == 0, err.text);
    struct http_options http = {.listener_count = SOCKETS,
                                .connections_max = CONNECTIONS,
                                .idle_s = 10,
                                .admit = routes_admit,
                                .handle = routes_handle,
                                .user = s.routes};
    for (int i = 0; i < SOCKETS; i++)
        http.listeners[i] = (struct http_listener){.fd = listen_at(i), .is_unix = i == 0};
    must(http_start(s.loop, &http, &s.http, &err) == 0, err.text);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void stop(void)
{
    if (!s.loop)
        return;
    live_free(s.live);
    http_stop(s.http);
    routes_free(s.routes);
    children_free(s.children);
    jobs_close(s.jobs);
    auth_free(s.auth);
    loop_free(s.loop);
    nftw(s.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    memset(&s, 0, sizeof s);
}

/* Waits until connections are free: the server closes an upgraded connection only at its next tick,
 * within a second, so some may still be open. */
static void wait_for_room(void)
{
    enum { ROUNDS = 200, ROUND_MS = 50 };
    struct http_counts counts;
    http_counts(s.http, &counts);
    for (int i = 0; counts.connections + counts.upgraded > CONNECTIONS / 2; i++) {
        must(i < ROUNDS, "connections outlived their clients by ten seconds");
        loop_once(s.loop, ROUND_MS);
        http_counts(s.http, &counts);
    }
}

static void talk(int which, const uint8_t *data, size_t size)
{
    enum { IDLE_ROUNDS = 3 };
    struct sockaddr_un address;
    socklen_t len = address_of(which, &address);
    char answer[4096];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(fd >= 0 && connect(fd, (struct sockaddr *)&address, len) == 0, "nobody listens");
    (void)!send(fd, data, size, MSG_NOSIGNAL);
    for (int idle = 0; idle < IDLE_ROUNDS; idle++) {
        loop_once(s.loop, 0);
        ssize_t n;
        while ((n = recv(fd, answer, sizeof answer, 0)) > 0)
            idle = 0; /* More data of the response may follow. */
        if (n == 0)
            break;
    }
    close(fd);
    loop_once(s.loop, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_known;
    if (!is_known)
        is_known = atexit(stop) == 0;
    if (s.news > NEWS_MAX)
        stop(); /* The server has accepted too many jobs and is restarted. */
    if (!s.loop)
        start();
    if (size > 0)
        talk(data[0] % SOCKETS, data + 1, size - 1);
    wait_for_room();
    return 0;
}
