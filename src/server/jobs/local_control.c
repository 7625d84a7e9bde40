/* The server's side of the supervisor's control socket: reconnects while the job runs, and limits
 * and checks everything that it receives. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/loop.h"
#include "server/jobs/local_private.h"
#include "supervise/message.h"
#include "supervise/rank.h"

enum {
    WAIT_FIRST_MS = 20,
    WAIT_MAX_MS = 2000,
    ANSWER_MS = 1000,  /* time between a cancel and the first SIGCONT */
    FRAMES_MAX = 1000, /* maximum number of frames per second; further frames wait in the socket */
    BYTES_MAX = 2 << 20,   /* maximum number of bytes per second */
    FACTS_MAX = 512 << 10, /* maximum size of run.json while the job runs */
    UNSENT_MAX = 64 << 10,
};

void local_control_drop(struct local_run *run)
{
    loop_remove(run->channel_source);
    run->channel_source = NULL;
    channel_fini(&run->channel);
    run->base.cancel.is_sent = false;
}

static void drop_and_retry(struct local_run *run)
{
    uint64_t now_ns = clock_mono_ns();
    local_control_drop(run);
    if (run->wait_ns == 0)
        run->wait_ns = WAIT_FIRST_MS * NS_PER_MS;
    run->retry_ns = now_ns + run->wait_ns;
    run->wait_ns =
        run->wait_ns * 2 < WAIT_MAX_MS * NS_PER_MS ? run->wait_ns * 2 : WAIT_MAX_MS * NS_PER_MS;
    local_check_at(run, run->retry_ns);
}

/* ---- sending ---- */

static bool is_paused(const struct local_run *run)
{
    return run->frames >= FRAMES_MAX || run->bytes >= BYTES_MAX;
}

static void flush(struct local_run *run)
{
    const uint32_t events = (is_paused(run) ? 0u : (uint32_t)EPOLLIN) |
                            (run->channel.out.len ? (uint32_t)EPOLLOUT : 0u);
    if (channel_flush(&run->channel) < 0 || run->channel.out.len > UNSENT_MAX)
        drop_and_retry(run);
    else
        loop_change_fd(run->channel_source, events);
}

static int send_request(struct local_run *run, const struct job_request *request)
{
    struct buf text = {0};
    if (run->channel.fd < 0)
        return -ENOTCONN;
    json_t *doc = job_request_json(request);
    int r = doc ? json_print(&text, doc, 0) : -ENOMEM;
    if (r == 0) {
        channel_queue(&run->channel, CHANNEL_REQUEST, text.data, text.len);
        flush(run);
        r = run->channel.fd < 0 ? -ENOTCONN : 0;
    }
    buf_fini(&text);
    json_decref(doc);
    return r;
}

static int send_cancel(struct local_run *run)
{
    struct executor_cancel *c = &run->base.cancel;
    if (!c->is_wanted || c->is_sent)
        return 0;
    const struct job_request request = executor_cancel_request(c);
    int r = send_request(run, &request);
    c->is_sent = r == 0;
    return r;
}

int local_cancel(struct executor_run *base)
{
    struct local_run *run = (struct local_run *)base;
    base->cancel.retry_ns = base->cancel.asked_ns + ANSWER_MS * NS_PER_MS;
    local_check_at(run, base->cancel.retry_ns);
    return send_cancel(run);
}

int local_checkpoint(struct executor_run *base)
{
    struct local_run *run = (struct local_run *)base;
    return send_request(run, &(struct job_request){.action = "checkpoint"});
}

/* ---- receiving ---- */

void local_cancel_again(struct executor_run *base)
{
    local_check_at((struct local_run *)base, clock_mono_ns() + WAIT_MAX_MS * NS_PER_MS);
}

static void on_frame(struct local_run *run, const char *data, size_t len)
{
    json_t *message = json_parse(data, len, NULL);
    if (json_is_object(message))
        jobs_run_news(run->base.x->jobs, run->base.id, message);
    json_decref(message);
}

/* Handles complete frames, up to the limit for this second. Returns false if the connection must be
 * dropped. */
static bool take_frames(struct local_run *run)
{
    enum channel_type type;
    const char *data;
    size_t len;
    int r = 0;
    while (run->channel.fd >= 0 && !is_paused(run) &&
           (r = channel_next(&run->channel, &type, &data, &len)) == 1) {
        run->frames++;
        run->bytes += len;
        if (len > EXECUTOR_FRAME_MAX)
            return false;
        if (type == CHANNEL_MESSAGE && run->is_start_reported)
            on_frame(run, data, len);
    }
    return r >= 0 && run->channel.in.len - run->channel.in_at <= 2 * EXECUTOR_FRAME_MAX;
}

static void receive(struct local_run *run, bool fill)
{
    const uint64_t now_ns = clock_mono_ns();
    if (now_ns - run->second_ns >= NS_PER_S) {
        run->second_ns = now_ns;
        run->frames = 0;
        run->bytes = 0;
    }
    int r = fill ? channel_fill(&run->channel) : 0;
    bool is_good = take_frames(run);
    if (run->channel.fd < 0)
        return;
    if (r < 0 || !is_good) {
        drop_and_retry(run);
        return;
    }
    run->wait_ns = 0;
    if (is_paused(run))
        local_check_at(run, run->second_ns + NS_PER_S);
    flush(run);
}

static void on_channel(void *user, int fd, uint32_t events)
{
    (void)fd;
    receive(user, (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0);
}

/* ---- connecting ---- */

/* Reads run.json: the path of the control socket, and whether the job was started. */
static void read_facts(struct local_run *run)
{
    json_t *doc = NULL;
    struct outcome o;
    if (executor_read_run(run->base.x, &run->base.folder, FACTS_MAX, &doc, &o) < 0)
        return;
    const char *path = o.about.control;
    if (o.about.pid > 0)
        run->is_started = true;
    if (path && path[0] == '/' && strlen(path) < sizeof run->control && !executor_is_ended(&o))
        memcpy(run->control, path, strlen(path) + 1);
    outcome_fini(&o);
    json_decref(doc);
}

static void connect_now(struct local_run *run)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _Static_assert(sizeof address.sun_path == EXECUTOR_PATH_MAX,
                   "sun_path has room for every path");
    if (!run->control[0])
        read_facts(run);
    if (!run->control[0]) {
        drop_and_retry(run);
        return;
    }
    memcpy(address.sun_path, run->control, sizeof address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        int32_t pid;
        channel_init(&run->channel, fd);
        /* processes of other users must not report on jobs */
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
            rank_link_is_ours(fd, &pid) &&
            loop_add_fd(run->base.x->loop, fd, EPOLLIN, on_channel, run, &run->channel_source) ==
                0) {
            local_note_supervisor(run, pid);
            return;
        }
    }
    drop_and_retry(run);
}

void local_control_check(struct local_run *run, uint64_t now_ns)
{
    if (run->channel.fd < 0 && now_ns < run->retry_ns) {
        local_check_at(run, run->retry_ns);
        return;
    }
    if (run->channel.fd < 0)
        connect_now(run);
    else if (is_paused(run))
        receive(run, false); /* handles frames that had to wait because of the limit per second */
    if (run->channel.fd >= 0)
        send_cancel(run);
}
