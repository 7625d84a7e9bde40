/* WebSocket frames, and the queue of one viewer. */
#include "server/http/live_queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* ---- messages ---- */

/* Writes the header of an unmasked text frame with FIN set (RFC 6455, section 5.2). Returns its
 * length. */
static size_t frame_head(uint8_t head[10], size_t len)
{
    head[0] = 0x81;
    if (len < 126) {
        head[1] = (uint8_t)len;
        return 2;
    }
    size_t n = len < 65536 ? 2 : 8;
    head[1] = n == 2 ? 126 : 127;
    for (size_t i = 0; i < n; i++)
        head[2 + i] = (uint8_t)((uint64_t)len >> (8 * (n - 1 - i)));
    return 2 + n;
}

struct live_message *live_message_new(enum live_kind kind, int64_t id, const char *text, size_t len)
{
    uint8_t head[10];
    size_t head_len = frame_head(head, len);
    struct live_message *m = malloc(sizeof *m + head_len + len);
    if (!m)
        return NULL;
    *m = (struct live_message){.holders = 1, .kind = kind, .id = id, .len = head_len + len};
    memcpy(m->bytes, head, head_len);
    memcpy(m->bytes + head_len, text, len);
    return m;
}

struct live_message *live_message_hold(struct live_message *m)
{
    m->holders++;
    return m;
}

void live_message_drop(struct live_message *m)
{
    if (m && --m->holders == 0)
        free(m);
}

/* ---- the queue ---- */

static struct live_message **at(const struct live_queue *q, unsigned i)
{
    return (struct live_message **)(uintptr_t)&q->items[(q->first + i) % LIVE_QUEUE_ITEMS];
}

/* Removes the message at index I; later ones move up. */
static void take_out(struct live_queue *q, unsigned i)
{
    q->bytes -= (*at(q, i))->len;
    live_message_drop(*at(q, i));
    if (i == 0) {
        q->first = (q->first + 1) % LIVE_QUEUE_ITEMS;
        q->sent = 0;
    }
    for (; i > 0 && i + 1 < q->count; i++)
        *at(q, i) = *at(q, i + 1);
    q->count--;
}

void live_queue_fini(struct live_queue *q)
{
    while (q->count > 0)
        take_out(q, 0);
    free(q->late);
    *q = (struct live_queue){0};
}

void live_queue_clear(struct live_queue *q)
{
    while (q->count > (q->sent > 0))
        take_out(q, q->count - 1);
    q->late_count = 0;
    q->skipped = 0;
}

/* True if a message of LEN bytes fits. Keeps SPARE slots free, so that messages that must not be
 * skipped always fit. */
static bool has_room(const struct live_queue *q, size_t len, unsigned spare)
{
    return q->count == 0 ||
           (q->count + spare < LIVE_QUEUE_ITEMS && q->bytes + len <= LIVE_QUEUE_BYTES);
}

static void append(struct live_queue *q, struct live_message *m)
{
    assert(q->count < LIVE_QUEUE_ITEMS &&
           "has_room keeps slots free for messages that are always queued");
    *at(q, q->count++) = live_message_hold(m);
    q->bytes += m->len;
}

static void replace(struct live_queue *q, unsigned i, struct live_message *m)
{
    struct live_message *old = *at(q, i);
    q->bytes += m->len - old->len;
    *at(q, i) = live_message_hold(m);
    live_message_drop(old);
}

/* Returns the index of the queued message with KIND and ID, or -1 if there is none. Ignores a
 * message that is partly written. */
static int find(const struct live_queue *q, enum live_kind kind, int64_t id)
{
    for (unsigned i = q->sent > 0; i < q->count; i++) {
        const struct live_message *m = *at(q, i);
        if (m->kind == kind && m->id == id)
            return (int)i;
    }
    return -1;
}

static bool is_late(const struct live_queue *q, int64_t id)
{
    for (size_t i = 0; i < q->late_count; i++) {
        if (q->late[i] == id)
            return true;
    }
    return false;
}

static int add_late(struct live_queue *q, int64_t id)
{
    if (is_late(q, id))
        return 0;
    if (q->late_count == LIVE_LATE_MAX || !ARRAY_ROOM(q->late, q->late_count, q->late_size))
        return -ENOBUFS;
    q->late[q->late_count++] = id;
    return 0;
}

/* Queues a message of a kind that must reach the viewer. It replaces an earlier message about the
 * same subject. */
static int add_newest(struct live_queue *q, struct live_message *m)
{
    int i = find(q, m->kind, m->id);
    if (m->kind == LIVE_REMOVED && i < 0)
        i = find(q, LIVE_JOB, m->id);
    if (i >= 0)
        replace(q, (unsigned)i, m);
    else if (m->id == 0 || (has_room(q, m->len, 4) && !is_late(q, m->id)))
        /* the four spare slots are for messages that are not about a job: at most one of each
         * kind */
        append(q, m);
    else
        return add_late(q, m->id);
    return 0;
}

int live_queue_add(struct live_queue *q, struct live_message *m)
{
    int i;
    switch (m->kind) {
    case LIVE_HELLO:
    case LIVE_ERROR:
    case LIVE_MACHINE:
    case LIVE_JOB:
    case LIVE_REMOVED:
    case LIVE_VERDICT:
        return add_newest(q, m);
    case LIVE_SAMPLE:
        i = find(q, m->kind, m->id);
        if (i < 0 && has_room(q, m->len, 8)) {
            append(q, m);
            return 0;
        }
        if (i >= 0)
            replace(q, (unsigned)i, m);
        break;
    default:
        /* After the first skipped message of a kind, skips all messages of that kind until the skip
         * is reported to the viewer. */
        if (!(q->skipped & 1u << m->kind) && has_room(q, m->len, 8)) {
            append(q, m);
            return 0;
        }
    }
    q->skipped |= 1u << m->kind;
    return 1;
}

void live_queue_leave(struct live_queue *q, int64_t id)
{
    for (unsigned i = q->count; i-- > (q->sent > 0);) {
        const struct live_message *m = *at(q, i);
        if (m->id == id && m->kind >= LIVE_SAMPLE)
            take_out(q, i);
    }
    q->skipped = 0;
}

int live_queue_next(const struct live_queue *q, struct iovec *ret, int max)
{
    int n = 0;
    for (unsigned i = 0; i < q->count && n < max; i++, n++) {
        struct live_message *m = *at(q, i);
        size_t sent = i == 0 ? q->sent : 0;
        ret[n] = (struct iovec){m->bytes + sent, m->len - sent};
    }
    return n;
}

void live_queue_written(struct live_queue *q, size_t bytes)
{
    while (bytes > 0 && q->count > 0) {
        size_t left = (*at(q, 0))->len - q->sent;
        if (bytes < left) {
            q->sent += bytes;
            return;
        }
        bytes -= left;
        take_out(q, 0);
    }
}

bool live_queue_is_between(const struct live_queue *q)
{
    return q->sent == 0;
}

int64_t live_queue_take_late(struct live_queue *q)
{
    if (q->late_count == 0)
        return 0;
    int64_t id = q->late[0];
    memmove(q->late, q->late + 1, --q->late_count * sizeof *q->late);
    if (q->late_count == 0) {
        free(q->late);
        q->late = NULL;
        q->late_size = 0;
    }
    return id;
}
