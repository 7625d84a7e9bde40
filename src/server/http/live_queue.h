/* The queue of messages to one viewer. A message that is in several queues is stored only once. A
 * newer message about the same subject replaces an older one, so that the queue stays short. */
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

/* A complete WebSocket frame with a reference count, used by one thread only. */
struct live_message {
    unsigned holders;
    enum live_kind kind;
    int64_t id; /* id of the job, or 0 if the message is not about a job */
    size_t len;
    uint8_t bytes[];
};
/* Makes a frame from LEN bytes of TEXT, with one reference. Returns NULL if out of memory. */
struct live_message *live_message_new(enum live_kind kind, int64_t id, const char *text,
                                      size_t len);
struct live_message *live_message_hold(struct live_message *m);
void live_message_drop(struct live_message *m); /* accepts NULL */

enum {
    LIVE_QUEUE_ITEMS = 64,
    LIVE_QUEUE_BYTES = 64 << 10,
    LIVE_LATE_MAX = 8192, /* maximum number of entries in `late`, which then occupies 64 KiB */
};

struct live_queue {
    struct live_message *items[LIVE_QUEUE_ITEMS];
    unsigned first, count;
    size_t bytes; /* size of all queued messages */
    size_t sent;  /* number of bytes of the first message that are already written */
    /* Ids of jobs whose latest state did not fit into the queue. Their messages are built once
     * there is space. */
    int64_t *late;
    size_t late_count, late_size;
    /* bit 1 << KIND is set if messages of this kind were skipped; cleared when the skip is reported
     * to the viewer */
    unsigned skipped;
};

void live_queue_fini(struct live_queue *q); /* drops all messages; accepts a zeroed struct */
/* Adds M to the queue, which takes its own reference. Returns 0; 1 if a message was skipped;
 * -ENOBUFS if the list of late jobs is full. */
int live_queue_add(struct live_queue *q, struct live_message *m);
/* Drops all messages except one that is partly written. */
void live_queue_clear(struct live_queue *q);
/* Drops samples, marks, events and log output of a job to which the viewer is no longer
 * subscribed. */
void live_queue_leave(struct live_queue *q, int64_t id);
/* Fills RET with the next bytes to write, one entry per message. Returns the number of entries, at
 * most MAX. */
int live_queue_next(const struct live_queue *q, struct iovec *ret, int max);
void live_queue_written(struct live_queue *q, size_t bytes);
bool live_queue_is_between(const struct live_queue *q); /* true if no frame is partly written */
/* Removes a job from the list of late jobs and returns its id; 0 if the list is empty. */
int64_t live_queue_take_late(struct live_queue *q);
