/* A file that is written by a separate thread, so that a slow, full or missing disk does not block
 * the caller. Used for trace.ebb and log.txt. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sink;

/* Creates a sink that owns FD. FD is closed at the end, or at once if this call fails. The file is
 * not truncated. At most MEMORY_BYTES are queued; further data are refused. Returns 0 or -errno. */
int sink_new(int fd, size_t memory_bytes, struct sink **ret);

/* Queues LEN bytes, which are copied, for the end of the file. If a write fails halfway, the part
 * that was written is removed again. Returns 0, -ENOBUFS if too much is queued, or -ENOMEM. */
int sink_append(struct sink *s, const void *data, size_t len);
/* Like sink_append. In addition, the bytes begin a new tail, which sink_replace_tail can
 * replace. */
int sink_begin_tail(struct sink *s, const void *data, size_t len);
/* Queues the replacement of the tail by these bytes. The replacement is safe against a crash at any
 * moment: append a copy, sync, write in place, sync, truncate. A reader finds the old tail, the new
 * bytes, or both. If the new bytes are longer than the tail, they are only appended. If the disk
 * refuses them, the tail remains. */
int sink_replace_tail(struct sink *s, const void *data, size_t len);
/* Queues a switch to the new file DIRFD/NAME. The current file is closed without syncing, and the
 * file OLD (may be NULL) is removed. If the new file cannot be created, data are lost until the
 * next switch. Sizes in the status are those of the newest file. */
int sink_turn(struct sink *s, int dirfd, const char *name, const char *old);
/* Queues a call of fdatasync. */
int sink_sync(struct sink *s);

struct sink_status {
    int first_error;     /* -errno of the first error, or 0 */
    bool failing;        /* the last operation failed; later operations are tried anyway */
    uint64_t size_bytes; /* size of the file as written so far */
    uint64_t waiting_bytes;
    uint64_t losses; /* number of failures, not counting tails that could not be replaced */
};
void sink_status(const struct sink *s, struct sink_status *ret);
/* Waits until the queue is empty, at most WAIT_NS. Returns 0 or -ETIMEDOUT. */
int sink_wait(struct sink *s, uint64_t wait_ns);
/* Returns an eventfd that becomes readable after the first error, and when the event that
 * sink_wake_below requested occurs. */
int sink_event_fd(const struct sink *s);
/* Makes sink_close skip the sync, so that the kernel writes the data back later. */
void sink_leave_unsynced(struct sink *s);
/* Requests one event as soon as at most BYTES are queued. The event may come at once. */
void sink_wake_below(struct sink *s, uint64_t bytes);
/* Waits at most WAIT_NS for the queue to drain and frees S. If the disk hangs, the thread is
 * abandoned. Returns 0, the first error, or -ETIMEDOUT. S may be NULL. */
int sink_close(struct sink *s, uint64_t wait_ns);
