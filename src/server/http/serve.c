/* The server: opens jobs, HTTP and the live stream in this order, and closes them in reverse. */
#include "server/http/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/quantity.h"
#include "server/http/auth.h"
#include "server/http/children.h"
#include "server/http/http.h"
#include "server/http/listen.h"
#include "server/http/live.h"
#include "server/http/log.h"
#include "server/http/machine.h"
#include "server/http/metrics.h"
#include "server/http/routes.h"
#include "version.h"

enum { IDLE_S = 30, CHILDREN = 2, CHILDREN_QUEUE = 32, FDS_BESIDES = 256 };
static const uint64_t child_limit_ns = 60 * NS_PER_S, gpu_patience_ns = 5 * NS_PER_S;

struct serve {
    const struct serve_options *options;
    /* soft limit on open files before it was raised; 0 if it was not raised */
    uint64_t files_given;
    struct loop *loop;
    struct machine_facts *machine;
    struct jobs *jobs;
    struct auth *auth;
    struct children *children;
    struct live *live; /* the live stream; NULL if libwslay is not installed */
    struct err no_live;
    struct routes *routes;
    struct http *http;
    uint64_t started_wall_ns;
    char socket[PATH_MAX];
    bool has_socket;
    /* name of the TCP address; "" if the server does not listen on TCP */
    char name[LISTEN_NAME_MAX];
};

/* ---- checks ---- */

static bool has_tcp(const struct serve_options *o)
{
    return strcmp(o->listen, "none") != 0;
}

static int socket_path(const struct serve_options *o, char ret[PATH_MAX], struct err *err)
{
    int n = o->socket ? snprintf(ret, PATH_MAX, "%s", o->socket)
                      : snprintf(ret, PATH_MAX, "%s/sock", o->jobs.state_dir);
    return n >= PATH_MAX
               ? err_set(err, -ENAMETOOLONG,
                         "the path of the unix socket is too long; choose another with --socket")
               : 0;
}

static int check_address(const struct serve_options *o, struct listen_address *ret, struct err *err)
{
    *ret = (struct listen_address){0};
    if (!has_tcp(o))
        return 0;
    int r = listen_parse(o->listen, ret, err);
    if (r < 0)
        return err_prefix(err, r, "--listen");
    if (o->no_auth && !ret->is_loopback)
        return err_set(
            err, -EPERM,
            "--no-auth requires a loopback address: anyone who can connect to %s could run "
            "commands",
            o->listen);
    return 0;
}

/* Checks that the state folder can be used. If it does not exist, its nearest existing parent must
 * be writable, because the server will create it. */
static int check_state_dir(const char *path, struct err *err)
{
    char parent[PATH_MAX];
    struct stat st;
    snprintf(parent, sizeof parent, "%s", path);
    while (stat(parent, &st) < 0) {
        char *slash = strrchr(parent, '/');
        if (errno != ENOENT || !slash)
            return err_set(err, -errno, "--state-dir: %s: %s", parent, strerror(errno));
        *(slash == parent ? slash + 1 : slash) = '\0';
    }
    if (!S_ISDIR(st.st_mode))
        return err_set(err, -ENOTDIR, "--state-dir: %s is not a folder", parent);
    if (access(parent, W_OK | X_OK) < 0)
        return err_set(err, -errno, "--state-dir: cannot write to %s: %s", parent, strerror(errno));
    return strcmp(parent, path) == 0 ? auth_check(path, err) : 0;
}

int serve_check(const struct serve_options *o, struct err *err)
{
    struct listen_address address;
    char path[PATH_MAX];
    int r = check_address(o, &address, err);
    if (r == 0)
        r = check_state_dir(o->jobs.state_dir, err);
    if (r == 0)
        r = socket_path(o, path, err);
    if (r == 0)
        r = listen_unix_check(path, err);
    if (r == 0 && o->import && access(o->import, R_OK) < 0)
        r = err_set(err, -errno, "--import: cannot read %s: %s", o->import, strerror(errno));
    return r;
}

/* ---- callbacks ---- */

static json_t *machine_json(void *user)
{
    struct serve *s = user;
    struct http_counts counts = {0};
    struct live_counts viewers = {0};
    json_t *doc = machine_facts_json(s->machine, clock_mono_ns());
    if (s->http)
        http_counts(s->http, &counts);
    if (s->live)
        live_counts(s->live, &viewers);
    json_object_set_new(doc, "version", json_string(EBB_VERSION));
    json_object_set_new(doc, "now_s", json_seconds(clock_wall_ns()));
    json_object_set_new(doc, "room", jobs_room_json(s->jobs));
    json_object_set_new(doc, "server",
                        json_pack("{s:i, s:o, s:o, s:i, s:i}", "pid", (int)getpid(), "started_s",
                                  json_seconds(s->started_wall_ns), "rss_bytes",
                                  json_u64(metrics_own_bytes()), "connections",
                                  (int)counts.connections, "viewers", (int)viewers.viewers));
    return doc;
}

static void print_metrics(void *user, struct buf *out)
{
    const struct serve *s = user;
    struct live_counts viewers = {0};
    struct jobs_metrics jobs;
    jobs_metrics(s->jobs, &jobs);
    if (s->live)
        live_counts(s->live, &viewers);
    metrics_print(out, &jobs, &viewers, s->started_wall_ns);
    jobs_metrics_fini(&jobs);
}

static void upgrade_live(void *user, struct http_request *r)
{
    struct serve *s = user;
    live_upgrade(s->live, r);
}

static void log_news(void *user, const struct jobs_news *news)
{
    (void)user;
    if (news->kind == JOBS_NEWS_REMOVED)
        log_line(LOG_INFO, "job_removed", news->id, "removed by --keep");
    if (news->kind != JOBS_NEWS_JOB || !news->is_change)
        return;
    log_line(LOG_INFO, "job_state", news->id, "%s%s%s", job_state_word(news->state),
             news->reason[0] ? ": " : "", news->reason);
}

static void on_end(void *user, const struct signalfd_siginfo *info)
{
    struct serve *s = user;
    log_line(LOG_INFO, "ending", 0, "received %s; jobs continue to run",
             info->ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT");
    loop_stop(s->loop);
}

static void on_hangup(void *user, const struct signalfd_siginfo *info)
{
    (void)user, (void)info;
    log_line(LOG_INFO, "hangup", 0,
             "SIGHUP is ignored; restart the server to reload its configuration");
}

/* ---- start ---- */

/* Raises the limit on open files, because every connection needs a file descriptor. Jobs are
 * started with the original limit. */
static void raise_files(struct serve *s)
{
    const struct serve_options *o = s->options;
    struct rlimit limit;
    rlim_t wanted = 2 * (rlim_t)o->connections_max + o->viewers_max + FDS_BESIDES;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= wanted)
        return;
    s->files_given = limit.rlim_cur;
    limit.rlim_cur =
        limit.rlim_max == RLIM_INFINITY || limit.rlim_max > wanted ? wanted : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < wanted)
        log_line(LOG_WARN, "few_files", 0,
                 "the limit on open files is %llu, so fewer clients can connect than configured",
                 (unsigned long long)limit.rlim_cur);
}

static void log_trouble(const struct serve *s)
{
    json_t *list = jobs_trouble(s->jobs), *sentence;
    size_t i;
    json_array_foreach(list, i, sentence)
    {
        log_line(LOG_WARN, "trouble", 0, "%s", json_string_value(sentence));
    }
    json_decref(list);
}

static int open_jobs(struct serve *s, struct err *err)
{
    struct jobs_options jobs = s->options->jobs;
    jobs.files_max = s->files_given;
    if (s->options->gpus_auto)
        jobs.gpus = machine_facts_gpus(s->machine, gpu_patience_ns);
    if (s->options->memory_auto) {
        struct quantity_size share = {.is_percent = true,
                                      .permyriad = s->options->memory_permyriad};
        jobs.memory_bytes = quantity_bytes(&share, machine_facts_limit_bytes(s->machine));
    }
    int r = jobs_open(s->loop, &jobs, &s->jobs, err);
    if (r < 0)
        return r;
    jobs_listen(s->jobs, log_news, s);
    log_line(LOG_INFO, "room", 0, "%u slots, %llu MiB of memory, %u GPUs", jobs.slots,
             (unsigned long long)(jobs.memory_bytes >> 20), jobs.gpus);
    log_trouble(s);
    return 0;
}

static int open_parts(struct serve *s, struct err *err)
{
    struct children_options children = {.program = s->options->jobs.program,
                                        .at_once = CHILDREN,
                                        .queue_max = CHILDREN_QUEUE,
                                        .limit_ns = child_limit_ns,
                                        .output_max = 16 << 20};
    int r = auth_open(s->options->jobs.state_dir, s->options->hosts, &s->auth, err);
    if (r < 0)
        return r;
    r = children_new(s->loop, &children, &s->children);
    if (r < 0)
        return err_set(err, r, "out of memory");
    if (live_new(s->loop, s->jobs, machine_json, s, s->options->viewers_max, &s->live,
                 &s->no_live) < 0)
        log_line(LOG_WARN, "no_live", 0, "the live stream is not available: %s", s->no_live.text);
    struct routes_options routes = {.loop = s->loop,
                                    .jobs = s->jobs,
                                    .auth = s->auth,
                                    .children = s->children,
                                    .no_auth = s->options->no_auth,
                                    .machine = machine_json,
                                    .live = s->live ? upgrade_live : NULL,
                                    .no_live = s->no_live.text,
                                    .metrics = print_metrics,
                                    .user = s};
    return routes_new(&routes, &s->routes, err);
}

/* Starts HTTP. If MHD cannot be started, the process exits, which closes the sockets. */
static int open_http(struct serve *s, struct err *err)
{
    const struct serve_options *o = s->options;
    struct listen_address address;
    struct http_options http = {.connections_max = o->connections_max + o->viewers_max,
                                .idle_s = IDLE_S,
                                .admit = routes_admit,
                                .handle = routes_handle,
                                .user = s->routes};
    int r = check_address(o, &address, err);
    if (r == 0)
        r = listen_unix(s->socket, &http.listeners[0].fd, err);
    if (r < 0)
        return r;
    s->has_socket = true;
    http.listeners[0].is_unix = true;
    http.listener_count = 1;
    if (!address.is_loopback)
        http.connections_per_ip_max = http.connections_max - http.connections_max / 4;
    if (has_tcp(o)) {
        r = listen_tcp(&address, s->name, &http.listeners[1].fd, err);
        if (r < 0)
            return err_prefix(err, r, "--listen %s", o->listen);
        http.listener_count = 2;
    }
    return http_start(s->loop, &http, &s->http, err);
}

static int import_jobs(struct serve *s, struct err *err)
{
    if (!s->options->import)
        return 0;
    int n = jobs_import(s->jobs, s->options->import, err);
    if (n < 0)
        return n;
    log_line(LOG_INFO, "imported", 0, "%d jobs from %s", n, s->options->import);
    return 0;
}

/* Notifies systemd as sd_notify does: sends a datagram to $NOTIFY_SOCKET, if that is set. A failure
 * need not be reported: systemd notices it by its timeout. */
static void notify_systemd(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, len);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
               (const struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}

static int report_ready(const struct serve *s, struct err *err)
{
    char line[PATH_MAX];
    const char *path = s->options->ready_file;
    log_line(LOG_INFO, "listening", 0, "on %s%s%s", s->socket, s->name[0] ? " and http://" : "",
             s->name);
    if (s->name[0] && !s->options->no_auth)
        log_line(LOG_INFO, "token", 0, "the token is in %s/token", s->options->jobs.state_dir);
    notify_systemd("READY=1\n");
    if (!path)
        return 0;
    if (s->name[0])
        snprintf(line, sizeof line, "http://%s\n", s->name);
    else
        snprintf(line, sizeof line, "unix:%.4000s\n", s->socket);
    int r = io_replace_file(AT_FDCWD, path, line, strlen(line));
    return r < 0 ? err_set(err, r, "--ready-file: cannot write %s: %s", path, strerror(-r)) : 0;
}

static int add_signals(struct serve *s)
{
    int r = loop_add_signal(s->loop, SIGTERM, on_end, s);
    if (r == 0)
        r = loop_add_signal(s->loop, SIGINT, on_end, s);
    if (r == 0)
        r = loop_add_signal(s->loop, SIGHUP, on_hangup, s);
    return r;
}

static int serve_start(struct serve *s, struct err *err)
{
    int r = loop_new(&s->loop);
    if (r == 0)
        r = add_signals(s);
    if (r < 0)
        return err_set(err, r, "cannot create the event loop: %s", strerror(-r));
    r = machine_facts_new(&s->machine, err);
    if (r == 0)
        r = open_jobs(s, err);
    if (r == 0)
        r = open_parts(s, err);
    if (r == 0)
        r = import_jobs(s, err);
    if (r == 0)
        r = open_http(s, err);
    if (r == 0)
        r = jobs_start(s->jobs, err);
    return r == 0 ? report_ready(s, err) : r;
}

static void serve_stop(struct serve *s)
{
    notify_systemd("STOPPING=1\n");
    if (s->live)
        live_free(s->live);
    http_stop(s->http);
    if (s->has_socket)
        unlink(s->socket);
    routes_free(s->routes);
    children_free(s->children);
    auth_free(s->auth);
    if (s->jobs)
        jobs_close(s->jobs);
    machine_facts_free(s->machine);
    loop_free(s->loop);
}

int serve_run(const struct serve_options *options, struct err *err)
{
    struct serve s = {.options = options, .started_wall_ns = clock_wall_ns()};
    struct listen_address address;
    int r = check_address(options, &address, err);
    if (r == 0)
        r = socket_path(options, s.socket, err);
    if (r < 0)
        return r;
    signal(SIGPIPE, SIG_IGN);
    raise_files(&s);
    r = serve_start(&s, err);
    if (r == 0) {
        r = loop_run(s.loop);
        if (r < 0)
            err_set(err, r, "the event loop failed: %s", strerror(-r));
    }
    serve_stop(&s);
    return r;
}
