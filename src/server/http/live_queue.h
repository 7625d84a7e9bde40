/* What waits for one viewer: shared messages, of which older ones give way where a newer one stands
 * for them, so that the queue is short whatever happens. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum live_kind {
    LIVE_HELLO,
    LIVE_ERROR,
    LIVE_MACHINE,
    LIVE_JOB,
    LIVE_REMOVED,
    LIVE_VERDICT,
    LIVE_SAMPLE,
    LIVE_MARK,
    LIVE_EVENT,
    LIVE_LOG,
    LIVE_SKIPPED,
};

/* A whole WebSocket frame. Counted by whoever holds it; one thread. */
struct live_message {
    unsigned holders;
    enum live_kind kind;
    int64_t id; /* of the job; 0 */
    size_t len;
    uint8_t bytes[];
};
/* The frame of LEN bytes of TEXT, held once. NULL: out of memory. */
struct live_message *live_message_new(enum live_kind kind, int64_t id, const char *text,
                                      size_t len);
struct live_message *live_message_hold(struct live_message *m);
void live_message_drop(struct live_message *m); /* NULL is fine */

enum {
    LIVE_QUEUE_ITEMS = 64,
    LIVE_QUEUE_BYTES = 64 << 10,
    LIVE_LATE_MAX = 8192, /* jobs; 64 KiB */
};

struct live_queue {
    struct live_message *items[LIVE_QUEUE_ITEMS];
    unsigned first, count;
    size_t bytes; /* of all that is queued */
    size_t sent;  /* of the first */
    /* jobs for whose newest state there was no room: it is asked for when there is */
    int64_t *late;
    size_t late_count, late_size;
    unsigned skipped; /* bits, 1 << LIVE_SAMPLE…: some were left out and it was not said yet */
};

void live_queue_fini(struct live_queue *q); /* accepts a zeroed one */
/* Borrows M. 1 where something was left out, 0, or -ENOBUFS: more jobs are late than can be
 * remembered. */
int live_queue_add(struct live_queue *q, struct live_message *m);
/* All but what is half written. */
void live_queue_clear(struct live_queue *q);
/* What is of a job that is looked at no more. */
void live_queue_leave(struct live_queue *q, int64_t id);
/* The next pieces to write: how many of RET are filled in. */
int live_queue_next(const struct live_queue *q, struct iovec *ret, int max);
void live_queue_written(struct live_queue *q, size_t bytes);
bool live_queue_is_between(const struct live_queue *q); /* not within a frame */
/* One that is late, no longer: its id, or 0. */
int64_t live_queue_take_late(struct live_queue *q);
