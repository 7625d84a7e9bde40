/* The control socket, which has at most PEERS_MAX connections with one bounded queue each. Also
 * answers queries that arrive as marks. The supervisor never waits for a reader. */
#include "supervise/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/number.h"
#include "judge/verdicts.h"
#include "mark/receiver.h"
#include "trace/logs.h"

enum {
    PEERS_MAX = 8,
    /* number of unread bytes at which a reader no longer receives samples and marks */
    BACKLOG = 256 << 10,
    /* number of unread bytes at which a reader's connection is closed */
    BACKLOG_MAX = 1 << 20,
    REQUEST_MAX = 64 << 10, /* maximum size of one request */
    LOG_MS = 200,           /* minimum interval between messages about the length of the log */
    /* minimum interval between two state messages that differ only in progress */
    STATE_MS = 1000,
    STEP_MS = 50,      /* minimum interval between two messages about step marks */
    MARKS_PER_S = 100, /* maximum rate of messages about other marks */
    GRACE_DEFAULT_S = 10,
    GRACE_MAX_S = 24 * 3600,
};

struct peer {
    struct job *j;
    struct channel channel;
    struct loop_source *source;
    uint64_t since_ns;
};

struct job_control {
    int fd;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    struct loop_source *source, *log_timer;
    struct peer peer[PEERS_MAX];
    size_t peers;
    bool is_log_due;
    /* Content of the last state and verdict that were sent. */
    struct published {
        const char *state;
        char reason[LADDER_WHY_MAX];
        pid_t pid;
        unsigned segment;
        bool has_step;
        int64_t step;
        uint64_t t_ns, verdicts;
    } published;
    uint64_t last_step_ns, marks_from_ns;
    unsigned marks; /* number of marks sent since marks_from_ns */
};

/* ---- one reader ---- */

static void peer_close(struct peer *p)
{
    struct job_control *c = p->j->control;
    loop_remove(p->source);
    channel_fini(&p->channel);
    p->source = NULL;
    c->peers--;
}

static void peer_flush(struct peer *p)
{
    if (channel_flush(&p->channel) < 0) {
        peer_close(p);
        return;
    }
    uint32_t in = p->channel.out.len > BACKLOG ? 0u : EPOLLIN;
    loop_change_fd(p->source, in | (p->channel.out.len ? EPOLLOUT : 0u));
}

/* Queues a message. Takes ownership of DOC. */
static void queue_message(struct channel *channel, json_t *doc)
{
    AUTO_BUF struct buf text = {0};
    if (doc && json_print(&text, doc, 0) == 0)
        channel_queue(channel, CHANNEL_MESSAGE, text.data, text.len);
    json_decref(doc);
}

static bool peer_has_room(const struct peer *p)
{
    return p->channel.out.len <= BACKLOG;
}

/* Sends DOC to all readers and takes ownership of it. A slow reader still receives every state and
 * verdict, but may miss samples and marks. */
static void send_all(struct job *j, json_t *doc, bool may_drop)
{
    AUTO_BUF struct buf text = {0};
    int r = doc ? json_print(&text, doc, 0) : -ENOMEM;
    for (size_t i = 0; r == 0 && i < PEERS_MAX; i++) {
        struct peer *p = &j->control->peer[i];
        if (!p->source)
            continue;
        if (peer_has_room(p) || !may_drop)
            channel_queue(&p->channel, CHANNEL_MESSAGE, text.data, text.len);
        if (p->channel.out.len > BACKLOG_MAX)
            /* nothing is lost: when the reader connects again, it receives the current state */
            peer_close(p);
        else
            peer_flush(p);
    }
    json_decref(doc);
}

/* ---- requests ---- */

static int do_cancel(struct job *j, const struct job_request *request)
{
    double grace_s = request->has_grace_s ? request->grace_s : GRACE_DEFAULT_S;
    grace_s = grace_s < 0 ? 0 : grace_s > GRACE_MAX_S ? GRACE_MAX_S : grace_s;
    if (j->waits_for_disk) {
        j->waits_for_disk = false;
        return 0;
    }
    if (j->now.ending == ENDED || j->now.pid <= 0)
        return -EALREADY;
    job_cancel(j, request->reason, strlen(request->reason), (uint64_t)(grace_s * (double)NS_PER_S));
    return 0;
}

static json_t *answer_request(struct job *j, const struct job_request *request)
{
    char why[CHECKPOINT_TEXT_MAX] = "";
    int r = -ENOTSUP;
    if (strcmp(request->action, "cancel") == 0)
        r = do_cancel(j, request);
    else if (strcmp(request->action, "checkpoint") == 0)
        r = job_guard_checkpoint(j, why);
    if (r == -EALREADY)
        snprintf(why, sizeof why, "the job is ending");
    else if (r == -ENOTSUP)
        snprintf(why, sizeof why, "unknown request");
    else if (r < 0 && !why[0])
        snprintf(why, sizeof why, "no process received the request");
    struct job_message m = {.type = MESSAGE_ANSWER, .answer = {.ok = r == 0, .has_error = r < 0}};
    memcpy(m.answer.request, request->action, sizeof m.answer.request);
    snprintf(m.answer.error, sizeof m.answer.error, "%s", why);
    return job_message_json(&m);
}

json_t *job_control_answer(struct job *j, const json_t *doc)
{
    struct job_request request;
    job_request_read(doc, &request);
    return answer_request(j, &request);
}

static bool take_requests(struct peer *p)
{
    enum channel_type type;
    const char *data;
    size_t len;
    int r = channel_fill(&p->channel);
    int next = 0;
    while (p->source && peer_has_room(p) &&
           (next = channel_next(&p->channel, &type, &data, &len)) == 1)
        if (type == CHANNEL_REQUEST && len <= REQUEST_MAX) {
            json_auto_t *doc = json_parse(data, len, NULL);
            queue_message(&p->channel, job_control_answer(p->j, doc));
        }
    bool is_too_long = next == 0 && p->channel.in.len - p->channel.in_at > REQUEST_MAX;
    return r >= 0 && next >= 0 && !is_too_long;
}

static void on_peer(void *user, int fd, uint32_t events)
{
    struct peer *p = user;
    (void)fd;
    if (events & EPOLLOUT && channel_flush(&p->channel) < 0) {
        peer_close(p);
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !take_requests(p) && p->source) {
        peer_close(p);
        return;
    }
    if (p->source)
        peer_flush(p);
}

/* ---- the socket ---- */

/* True if the peer belongs to our own user or root. The folder's mode already excludes other users,
 * but somebody may have changed the mode. */
static bool may_connect(int fd)
{
    struct ucred who;
    socklen_t len = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
           (who.uid == 0 || who.uid == geteuid());
}

/* Finds an entry for a new connection. If none is free, closes the oldest connection. Otherwise
 * processes of the job could occupy all entries, and a restarted server could not connect and
 * cancel the job. */
static struct peer *free_peer(struct job_control *c)
{
    struct peer *oldest = &c->peer[0];
    for (struct peer *p = c->peer; p < c->peer + PEERS_MAX; p++) {
        if (!p->source)
            return p;
        if (p->since_ns < oldest->since_ns)
            oldest = p;
    }
    peer_close(oldest);
    return oldest;
}

static void on_connect(void *user, int fd, uint32_t events)
{
    struct job *j = user;
    struct job_control *c = j->control;
    (void)events;
    int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0)
        return;
    if (!may_connect(client)) {
        close(client);
        return;
    }
    struct peer *p = free_peer(c);
    *p = (struct peer){.j = j, .since_ns = clock_mono_ns()};
    channel_init(&p->channel, client);
    if (loop_add_fd(j->loop, client, EPOLLIN, on_peer, p, &p->source) < 0) {
        channel_fini(&p->channel);
        p->source = NULL;
        return;
    }
    c->peers++;
    queue_message(&p->channel, job_message_state(j));
    if (engine_run(j->engine)->job.signal[JOB_MEMORY])
        queue_message(&p->channel, job_message_spark(j));
    peer_flush(p);
    job_control_log(j);
}

static int listen_at(struct job_control *c, const char *folder)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path, sizeof a.sun_path, "%s/control", folder);
    if (n < 0 || (size_t)n >= sizeof a.sun_path)
        return -ENAMETOOLONG;
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0 || bind(c->fd, (const struct sockaddr *)&a, sizeof a) < 0 ||
        chmod(a.sun_path, 0600) < 0 || listen(c->fd, PEERS_MAX) < 0)
        return -errno;
    memcpy(c->path, a.sun_path, sizeof c->path);
    return 0;
}

static void on_log(void *user, uint64_t now_ns);

void job_control_start(struct job *j)
{
    struct job_control *c = j->marks ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return;
    j->control = c;
    c->fd = -1;
    if (listen_at(c, mark_receiver_folder(j->marks)) < 0 ||
        loop_add_timer(j->loop, UINT64_MAX / 2, 0, on_log, j, &c->log_timer) < 0 ||
        loop_add_fd(j->loop, c->fd, EPOLLIN, on_connect, j, &c->source) < 0)
        job_control_free(j);
}

void job_control_free(struct job *j)
{
    struct job_control *c = j->control;
    if (!c)
        return;
    for (size_t i = 0; i < PEERS_MAX; i++)
        if (c->peer[i].source)
            peer_close(&c->peer[i]);
    loop_remove(c->source);
    loop_remove(c->log_timer);
    if (c->path[0])
        unlink(c->path);
    if (c->fd >= 0)
        close(c->fd);
    free(c);
    j->control = NULL;
}

const char *job_control_path(const struct job_control *c)
{
    return c ? c->path : NULL;
}

static bool is_followed(const struct job *j)
{
    return j->control && j->control->peers > 0;
}

/* ---- messages ---- */

/* Publishes the state if it has changed. If only the progress has changed, publishes the state only
 * if IS_DUE is set. */
static void publish_state(struct job *j, bool is_due)
{
    struct published *p = &j->control->published;
    const char *state = job_state_name(j), *reason = job_state_reason(j);
    reason = reason ? reason : "";
    bool is_same = p->state && strcmp(p->state, state) == 0 &&
                   strncmp(p->reason, reason, sizeof p->reason - 1) == 0 && p->pid == j->now.pid &&
                   p->segment == j->now.number;
    if (!is_due && is_same)
        return;
    p->state = state;
    snprintf(p->reason, sizeof p->reason, "%s", reason);
    p->pid = j->now.pid;
    p->segment = j->now.number;
    p->has_step = j->now.progress.has_step;
    p->step = j->now.progress.last_step;
    p->t_ns = clock_mono_ns();
    send_all(j, job_message_state(j), false);
}

void job_control_state(struct job *j)
{
    if (is_followed(j))
        publish_state(j, false);
}

void job_control_tick(struct job *j, uint64_t now_ns)
{
    if (!is_followed(j))
        return;
    struct published *p = &j->control->published;
    send_all(j, job_message_sample(j, now_ns), true);
    if (engine_verdict_count(j->engine) != p->verdicts) {
        p->verdicts = engine_verdict_count(j->engine);
        send_all(j, job_message_verdict(j, now_ns), false);
    }
    const struct segment_progress *now = &j->now.progress;
    bool has_moved = p->has_step != now->has_step || p->step != now->last_step;
    publish_state(j, has_moved && now_ns - p->t_ns >= STATE_MS * NS_PER_MS);
}

/* Decides whether to publish a mark. A job may send any number of marks per second, so the rate is
 * limited. */
static bool is_published(struct job_control *c, const struct mark *mark)
{
    if (mark->kind == MARK_SERIES || mark->kind == MARK_HELLO || mark->kind == MARK_ACK)
        return false;
    if (mark->kind == MARK_STEP || mark->kind == MARK_SUBSTEP) {
        if (c->last_step_ns && mark->t_ns - c->last_step_ns < STEP_MS * NS_PER_MS)
            return false;
        c->last_step_ns = mark->t_ns;
        return true;
    }
    if (mark->t_ns - c->marks_from_ns >= NS_PER_S) {
        c->marks_from_ns = mark->t_ns;
        c->marks = 0;
    }
    return c->marks++ < MARKS_PER_S;
}

void job_control_mark(struct job *j, const struct mark *mark)
{
    if (is_followed(j) && is_published(j->control, mark))
        send_all(j, job_message_mark(j, mark), true);
}

void job_control_event(struct job *j, uint64_t now_ns, const char *act, const char *why)
{
    if (!is_followed(j))
        return;
    send_all(j, job_message_event(j, now_ns, act, why), true);
    publish_state(j, false);
}

/* Publishes how many bytes of the log have been written to disk. The timer is set again until the
 * whole log is on disk. */
static void on_log(void *user, uint64_t now_ns)
{
    struct job *j = user;
    struct job_control *c = j->control;
    uint64_t bytes = job_log_readable_bytes(j);
    c->is_log_due = false;
    if (!is_followed(j))
        return;
    const struct job_message m = {.type = MESSAGE_LOG, .log = {.has_bytes = true, .bytes = bytes}};
    send_all(j, job_message_json(&m), true);
    if (bytes < logs_bytes(j->output.log)) {
        c->is_log_due = true;
        loop_set_timer(c->log_timer, now_ns + LOG_MS * NS_PER_MS, 0);
    }
}

void job_control_log(struct job *j)
{
    struct job_control *c = j->control;
    if (!is_followed(j) || c->is_log_due || !j->output.log)
        return;
    c->is_log_due = true;
    loop_set_timer(c->log_timer, clock_mono_ns() + LOG_MS * NS_PER_MS, 0);
}

/* ---- queries about the verdict or the live heap, sent by the job itself or by a command ---- */

/* Gets the path of the socket for the reply. The socket must be in our own folder: otherwise any
 * process could send a mark that makes the supervisor write to some other socket. */
static bool reply_path(const struct job *j, const struct mark *m, char ret[108])
{
    const char *folder = mark_receiver_folder(j->marks);
    size_t len, folder_len = strlen(folder);
    const char *path = mark_get(m, "REPLY", &len);
    if (!path || len >= 108 || len < folder_len + 2 || memcmp(path, folder, folder_len) != 0 ||
        path[folder_len] != '/' || memchr(path + folder_len + 1, '/', len - folder_len - 1))
        return false;
    memcpy(ret, path, len);
    ret[len] = '\0';
    return strcmp(ret, mark_receiver_path(j->marks)) != 0;
}

static int query_reply(const char *path, const json_t *doc)
{
    AUTO_BUF struct buf text = {0};
    int r = json_print(&text, doc, 0);
    if (r == 0)
        r = mark_send(path, text.data, text.len, 0);
    return r;
}

static void answer_verdict(struct job *j, const char *path)
{
    engine_judge(j->engine);
    json_auto_t *doc = judge_tree_json(engine_verdict(j->engine));
    /* a reply that is too long is sent without the evidence, which is its longest part */
    if (doc && query_reply(path, doc) == -EMSGSIZE && json_object_del(doc, "evidence") == 0)
        query_reply(path, doc);
}

/* Writes new heap readings to the run folder. If the query has a field PID, only the heap of that
 * process is read, else the heaps of all processes. The reply contains the number of readings. */
static void answer_heap(struct job *j, const struct mark *m, const char *path)
{
    size_t len;
    int64_t pid = 0;
    const char *text = mark_get(m, "PID", &len);
    if (text && (number_parse_i64(text, len, &pid) < 0 || pid < 0 || pid > INT32_MAX))
        return;
    json_auto_t *doc = json_pack("{s:b,s:I}", "on", j->heap.collect ? 1 : 0, "refreshed",
                                 (json_int_t)job_heap_refresh(j, (int32_t)pid));
    if (doc)
        query_reply(path, doc);
}

bool job_query(struct job *j, const struct mark *m)
{
    char path[108];
    if (m->kind != MARK_OTHER || !mark_is(m, "KIND", "query"))
        return false;
    if (!reply_path(j, m, path))
        return true;
    if (mark_is(m, "NAME", "verdict"))
        answer_verdict(j, path);
    else if (mark_is(m, "NAME", "heap"))
        answer_heap(j, m, path);
    return true;
}
