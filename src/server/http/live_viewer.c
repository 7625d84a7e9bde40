/* The connection of one viewer. wslay reads its frames and writes control frames; messages, which
 * all viewers share, are written here between control frames. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/loop.h"
#include "server/http/http.h"
#include "server/http/http_answer.h"
#include "server/http/live_private.h"
#include "version.h"

enum {
    MESSAGE_MAX = 64 << 10, /* maximum size of a message from a viewer */
    /* maximum number of bytes read from one viewer before the next viewer is served */
    TURN_BYTES = 4 << 10,
    PIECES = 16, /* number of iovecs per sendmsg */
    /* maximum number of queued pongs; above it, nothing is read from the viewer until the pongs are
     * sent */
    PONGS_MAX = 32,
    /* maximum number of frames received from a viewer between two checks, which are 2 s apart */
    FRAMES_PER_CHECK = 100,
    FRAGMENTS_MAX = 64, /* maximum number of fragments of one message */
    /* maximum number of jobs in `late` for which messages are built in one round */
    REFILL_MAX = 32,
    SEND_BUFFER = 64 << 10, /* SO_SNDBUF, which the kernel doubles */
    CLOSE_TRY_AGAIN = 1013, /* close code "try again later", which was registered after RFC 6455 */
};

/* ---- closing ---- */

static void viewer_kill(struct live_viewer *v)
{
    v->state = VIEWER_DEAD;
    v->live->has_dead = true;
}

static void viewer_begin_closing(struct live_viewer *v, enum viewer_state state)
{
    v->state = state;
    v->closing_ns = clock_mono_ns();
}

void live_viewer_free(struct live_viewer *v)
{
    struct live *l = v->live;
    live_tail_leave(l, v->tail);
    loop_remove(v->source);
    if (v->ws)
        l->wslay.free(v->ws);
    live_queue_fini(&v->queue);
    http_upgraded_close(v->connection);
    LIST_REMOVE(v, link);
    l->counts.viewers--;
    http_share_return(&l->places, v->rank, 1);
    free(v);
}

void live_viewer_close(struct live_viewer *v, unsigned code, const char *why)
{
    if (v->state != VIEWER_OPEN)
        return;
    viewer_begin_closing(v, VIEWER_CLOSING);
    live_queue_clear(&v->queue);
    if (v->live->wslay.queue_close(v->ws, (uint16_t)code, (const uint8_t *)why, strlen(why)) != 0)
        viewer_kill(v);
}

/* ---- writing ---- */

/* Queues reports of skipped messages, and messages with the states of the jobs in `late`. Returns
 * false if nothing is left to send. */
static bool refill(struct live_viewer *v, unsigned *may_make)
{
    static const enum live_kind kinds[] = {LIVE_SAMPLE, LIVE_MARK, LIVE_EVENT, LIVE_LOG};
    struct live_queue *q = &v->queue;
    struct live_message *m;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!(q->skipped & 1u << kinds[i]))
            continue;
        q->skipped &= ~(1u << kinds[i]);
        if ((m = live_message_skipped(v->job, kinds[i])))
            live_queue_add(q, m);
        live_message_drop(m);
    }
    while (*may_make > 0 && q->count < PIECES) {
        int64_t id = live_queue_take_late(q);
        if (id == 0)
            break;
        --*may_make;
        if ((m = live_message_of_job(v->live, id)))
            live_queue_add(q, m);
        live_message_drop(m);
    }
    return q->count > 0;
}

/* Writes queued messages. Returns 1 after a write, 0 if the socket's buffer is full, or -1 on an
 * error. */
static int write_pieces(struct live_viewer *v, int max)
{
    struct iovec pieces[PIECES];
    struct msghdr message = {.msg_iov = pieces};
    message.msg_iovlen = (size_t)live_queue_next(&v->queue, pieces, max);
    ssize_t n = sendmsg(v->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    v->stuck_ns = 0;
    v->live->counts.bytes += (uint64_t)n;
    live_queue_written(&v->queue, (size_t)n);
    return 1;
}

/* Completes a partly written message, so that a control frame can follow. */
static int write_rest_of_frame(struct live_viewer *v)
{
    int r = 1;
    while (r == 1 && !live_queue_is_between(&v->queue))
        r = write_pieces(v, 1);
    return r;
}

static int write_messages(struct live_viewer *v)
{
    unsigned may_make = REFILL_MAX;
    int r = 1;
    while (r == 1 && (v->queue.count > 0 || (v->state == VIEWER_OPEN && refill(v, &may_make))))
        r = write_pieces(v, PIECES);
    /* the other jobs in `late` follow in the next round */
    return r == 1 ? v->queue.late_count == 0 : r;
}

static int write_control(struct live_viewer *v)
{
    const struct wslay_table *ws = &v->live->wslay;
    if (!ws->want_write(v->ws))
        return 1;
    if (ws->send(v->ws) != 0)
        return -1;
    return !ws->want_write(v->ws);
}

static void set_events(struct live_viewer *v, bool is_full)
{
    bool may_read = v->live->wslay.queued(v->ws) < PONGS_MAX;
    uint32_t events = (may_read ? (uint32_t)EPOLLIN : 0u) | (is_full ? (uint32_t)EPOLLOUT : 0u);
    if (events != v->events && loop_change_fd(v->source, events) == 0)
        v->events = events;
}

/* Sends close code 1002, because wslay sends none for an invalid frame. */
static int write_refusal(struct live_viewer *v)
{
    static const uint8_t close_1002[] = {0x88, 0x02, 0x03, 0xEA};
    ssize_t n = send(v->fd, close_1002, sizeof close_1002, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n == (ssize_t)sizeof close_1002 ? 1 : -1;
}

/* Ends the output, and keeps the socket open. Closing a socket with unread input makes the kernel
 * send a reset, and the client could lose the last messages. */
static void viewer_shut(struct live_viewer *v)
{
    if (v->state == VIEWER_LEFT || shutdown(v->fd, SHUT_WR) < 0) {
        viewer_kill(v);
        return;
    }
    if (v->state == VIEWER_OPEN)
        v->closing_ns = clock_mono_ns();
    v->state = VIEWER_SHUT;
    set_events(v, false);
}

void live_viewer_flush(struct live_viewer *v)
{
    const struct wslay_table *ws = &v->live->wslay;
    bool is_refused = v->state == VIEWER_REFUSED;
    if (v->state >= VIEWER_SHUT)
        return;
    int r = write_rest_of_frame(v);
    if (r == 1)
        r = is_refused ? write_refusal(v) : write_control(v);
    if (r == 1 && !is_refused)
        r = write_messages(v);
    if (r < 0)
        viewer_kill(v);
    else if (r == 1 && (is_refused || (!ws->want_read(v->ws) && !ws->want_write(v->ws))))
        viewer_shut(v);
    if (v->state >= VIEWER_SHUT)
        return;
    if (r == 0 && !v->stuck_ns)
        v->stuck_ns = clock_mono_ns();
    set_events(v, r == 0);
}

void live_viewer_send(struct live_viewer *v, struct live_message *m)
{
    if (v->state != VIEWER_OPEN)
        return;
    int r = live_queue_add(&v->queue, m);
    v->live->counts.messages++;
    if (r > 0)
        v->live->counts.skipped++;
    if (r < 0)
        live_viewer_close(v, CLOSE_TRY_AGAIN, "the client is too far behind");
    /* EPOLLOUT makes the loop flush the queue once the socket is writable */
    if (!(v->events & EPOLLOUT))
        live_viewer_flush(v);
}

void live_viewer_send_new(struct live_viewer *v, struct live_message *m)
{
    if (m)
        live_viewer_send(v, m);
    live_message_drop(m);
}

static ssize_t on_send(wslay_event_context_ptr ws, const uint8_t *data, size_t len, int flags,
                       void *user)
{
    struct live_viewer *v = user;
    (void)flags;
    ssize_t n = send(v->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
        v->stuck_ns = 0;
        return n;
    }
    v->live->wslay.set_error(ws, errno == EAGAIN || errno == EINTR ? WSLAY_ERR_WOULDBLOCK
                                                                   : WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

/* ---- reading ---- */

static ssize_t on_recv(wslay_event_context_ptr ws, uint8_t *buf, size_t len, int flags, void *user)
{
    struct live_viewer *v = user;
    (void)flags;
    if (v->early_len > 0) {
        size_t n = v->early_len < len ? v->early_len : len;
        memcpy(buf, v->early, n);
        v->early += n;
        v->early_len -= n;
        return (ssize_t)n;
    }
    ssize_t n = -1;
    errno = EAGAIN;
    if (v->may_read > 0)
        n = recv(v->fd, buf, v->may_read < len ? v->may_read : len, MSG_DONTWAIT);
    if (n > 0) {
        v->may_read -= (size_t)n;
        return n;
    }
    bool is_lost = n == 0 || (errno != EAGAIN && errno != EINTR);
    if (is_lost)
        viewer_kill(v);
    v->live->wslay.set_error(ws, is_lost ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static void on_frame(wslay_event_context_ptr ws,
                     const struct wslay_event_on_frame_recv_start_arg *f, void *user)
{
    struct live_viewer *v = user;
    (void)ws;
    if (f->opcode == WSLAY_CONTINUATION_FRAME)
        v->fragments++;
    else if (!wslay_is_ctrl_frame(f->opcode))
        v->fragments = 0;
    if (f->payload_length > MESSAGE_MAX)
        live_viewer_close(v, WSLAY_CODE_MESSAGE_TOO_BIG, "message larger than 64 KiB");
    else if (v->fragments > FRAGMENTS_MAX)
        live_viewer_close(v, WSLAY_CODE_POLICY_VIOLATION, "message has too many fragments");
    else if (v->frames_left == 0)
        live_viewer_close(v, WSLAY_CODE_POLICY_VIOLATION, "too many messages");
    else
        v->frames_left--;
}

static void on_message(wslay_event_context_ptr ws, const struct wslay_event_on_msg_recv_arg *m,
                       void *user)
{
    struct live_viewer *v = user;
    (void)ws;
    if (v->state == VIEWER_OPEN && m->opcode == WSLAY_TEXT_FRAME)
        live_viewer_subscribe(v, (const char *)m->msg, m->msg_length);
    else if (m->opcode == WSLAY_BINARY_FRAME)
        live_viewer_close(v, WSLAY_CODE_UNSUPPORTED_DATA, "only text messages are supported");
    else if (v->state == VIEWER_OPEN && m->opcode == WSLAY_CONNECTION_CLOSE)
        viewer_begin_closing(v, VIEWER_LEFT); /* wslay answers the viewer's close frame */
    else if (v->state == VIEWER_CLOSING && m->opcode == WSLAY_CONNECTION_CLOSE)
        v->state = VIEWER_LEFT;
}

/* Reads and discards input after the last frame. */
static void discard_input(struct live_viewer *v)
{
    char piece[TURN_BYTES];
    ssize_t n = recv(v->fd, piece, sizeof piece, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        viewer_kill(v);
}

static void viewer_read(struct live_viewer *v)
{
    if (v->state >= VIEWER_REFUSED) {
        discard_input(v);
        return;
    }
    v->may_read = TURN_BYTES;
    v->received_ns = clock_mono_ns();
    if (v->live->wslay.recv(v->ws) == 0 || v->state == VIEWER_DEAD)
        return;
    viewer_begin_closing(v, VIEWER_REFUSED);
    live_queue_clear(&v->queue);
}

static void on_ready(void *user, int fd, uint32_t events)
{
    struct live_viewer *v = user;
    struct live *l = v->live;
    (void)fd;
    l->busy++;
    if (v->state != VIEWER_DEAD && events & EPOLLIN)
        viewer_read(v);
    else if (events & (EPOLLHUP | EPOLLERR))
        viewer_kill(v);
    live_viewer_flush(v);
    l->busy--;
    live_sweep(l);
}

/* ---- timeouts ---- */

void live_viewer_check(struct live_viewer *v, uint64_t now_ns)
{
    const struct live_times *t = &v->live->times;
    const struct wslay_event_msg ping = {.opcode = WSLAY_PING, .msg = NULL, .msg_length = 0};
    if (v->state == VIEWER_DEAD)
        return;
    v->frames_left = FRAMES_PER_CHECK;
    if (v->state != VIEWER_OPEN) {
        if (now_ns - v->closing_ns >= t->closing_ns)
            viewer_kill(v);
        return;
    }
    if (v->stuck_ns && now_ns > v->stuck_ns && now_ns - v->stuck_ns >= t->stuck_ns) {
        live_viewer_close(v, CLOSE_TRY_AGAIN, "the client has stopped reading messages");
    } else if (now_ns > v->received_ns && now_ns - v->received_ns >= t->silent_ns) {
        live_viewer_close(v, CLOSE_TRY_AGAIN, "the client does not answer pings");
    } else if (now_ns - v->pinged_ns >= t->ping_ns) {
        v->pinged_ns = now_ns;
        if (v->live->wslay.queued(v->ws) < PONGS_MAX)
            v->live->wslay.queue_msg(v->ws, &ping);
    } else {
        return;
    }
    live_viewer_flush(v);
}

/* ---- opening ---- */

static int set_up(struct live_viewer *v)
{
    static const struct wslay_event_callbacks callbacks = {
        .recv_callback = on_recv,
        .send_callback = on_send,
        .on_frame_recv_start_callback = on_frame,
        .on_msg_recv_callback = on_message,
    };
    struct live *l = v->live;
    int buffer = SEND_BUFFER, one = 1;
    setsockopt(v->fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    setsockopt(v->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (l->wslay.server_init(&v->ws, &callbacks, v) != 0) {
        v->ws = NULL;
        return -ENOMEM;
    }
    l->wslay.set_max_length(v->ws, MESSAGE_MAX);
    v->events = EPOLLIN;
    return loop_add_fd(l->loop, v->fd, v->events, on_ready, v, &v->source);
}

static void greet(struct live_viewer *v)
{
    struct live *l = v->live;
    double now_s = (double)clock_wall_ns() / 1e9;
    json_t *doc = json_pack("{s:s, s:s, s:f, s:s}", "type", "hello", "version", EBB_VERSION,
                            "now_s", now_s, "boot", l->boot);
    live_viewer_send_new(v, live_message_of(LIVE_HELLO, 0, doc));
}

void live_viewer_new(void *user, struct http_upgraded *u, int fd, const void *extra,
                     size_t extra_len)
{
    struct live *l = user;
    enum http_rank rank = http_upgraded_rank(u);
    bool has_place = http_share_take(&l->places, rank, 1, l->viewers_max);
    struct live_viewer *v = has_place ? calloc(1, sizeof *v) : NULL;
    if (!v) {
        if (has_place)
            http_share_return(&l->places, rank, 1);
        http_upgraded_close(u);
        return;
    }
    *v = (struct live_viewer){.live = l, .connection = u, .rank = rank, .fd = fd};
    LIST_INSERT_HEAD(&l->viewers, v, link);
    l->counts.viewers++;
    v->received_ns = v->pinged_ns = clock_mono_ns();
    v->frames_left = FRAMES_PER_CHECK;
    if (set_up(v) < 0) {
        live_viewer_free(v);
        return;
    }
    l->busy++;
    greet(v);
    v->early = extra;
    v->early_len = extra_len;
    if (extra_len > 0)
        viewer_read(v);
    v->early_len = 0; /* the caller frees the early bytes after this call */
    live_viewer_flush(v);
    l->busy--;
    live_sweep(l);
}
