/* A file that a separate thread writes, so that a slow, full or failed disk does not block the
 * caller. Used for trace.ebb and log.txt. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sink;

/* Creates a sink. It owns FD and closes it at the end; if this call fails, FD is closed too. Data
 * are appended to the file. At most MEMORY_BYTES are queued; further data are refused. Returns 0 or
 * -errno. */
int sink_new(int fd, size_t memory_bytes, struct sink **ret);

/* Queues a copy of the LEN bytes, to be appended to the file. If a write fails halfway, the part
 * already written is removed. Returns 0, -ENOBUFS if too much is queued, or -ENOMEM. */
int sink_append(struct sink *s, const void *data, size_t len);
/* Like sink_append, but these bytes also begin a new tail of the file, which sink_replace_tail can
 * replace. */
int sink_begin_tail(struct sink *s, const void *data, size_t len);
/* Queues the replacement of the tail by these bytes. The replacement is safe against a crash at any
 * moment: it appends a copy, syncs, writes in place, syncs and truncates. A reader finds the old
 * tail, the new bytes, or both. If the new bytes are longer than the tail, they are only appended.
 * If writing them fails, the old tail remains. */
int sink_replace_tail(struct sink *s, const void *data, size_t len);
/* Queues a switch to the new file DIRFD/NAME. The current file is closed without a sync, and the
 * file OLD (may be NULL) is removed. If the new file cannot be created, data are lost until the
 * next switch. After the switch, sizes in the status refer to the new file. */
int sink_turn(struct sink *s, int dirfd, const char *name, const char *old);
/* Queues an fdatasync of the file. */
int sink_sync(struct sink *s);

struct sink_status {
    int first_error;     /* -errno of the first error, or 0 */
    bool failing;        /* the last operation failed; later operations are still attempted */
    uint64_t size_bytes; /* size of the file so far */
    uint64_t waiting_bytes;
    /* number of failed operations, except for tail replacements and file switches */
    uint64_t losses;
};
void sink_status(const struct sink *s, struct sink_status *ret);
/* Waits up to WAIT_NS until the queue is empty. Returns 0 or -ETIMEDOUT. */
int sink_wait(struct sink *s, uint64_t wait_ns);
/* Returns an eventfd that becomes readable after the first error, and when the event requested with
 * sink_wake_below occurs. */
int sink_event_fd(const struct sink *s);
/* Makes sink_close skip the sync, so that the kernel writes the data back later. */
void sink_leave_unsynced(struct sink *s);
/* Requests one event as soon as at most BYTES are queued. If that is already so, the event comes
 * immediately. */
void sink_wake_below(struct sink *s, uint64_t bytes);
/* Waits up to WAIT_NS until the queue is empty, and frees S. If the disk hangs, the thread is left
 * running. Returns 0, the first error, or -ETIMEDOUT. S may be NULL. */
int sink_close(struct sink *s, uint64_t wait_ns);
