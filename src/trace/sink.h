/* A file that is written by a thread of its own: a disk that is slow, full or gone must not hold
 * up the caller. Used for trace.ebb and log.txt. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sink;

/* Takes over FD, whose content stays (closes it at the end, also on failure). At most
 * MEMORY_BYTES wait; more is refused. 0 or -errno. */
int sink_new(int fd, size_t memory_bytes, struct sink **ret);

/* Queues LEN bytes (copied) at the end of the file: 0, -ENOBUFS when too much waits already, or
 * -ENOMEM. What the disk takes only in part is cut off again, so that no torn bytes stay. */
int sink_append(struct sink *s, const void *data, size_t len);
/* The same, and the tail of the file begins with these bytes. */
int sink_begin_tail(struct sink *s, const void *data, size_t len);
/* Queues: replace the tail by these bytes, safely against a crash at any moment: append a copy,
 * sync, write in place, sync, cut. A reader meets the tail, the new bytes, or both. Where the
 * new bytes are longer than the tail they come behind it; where the disk refuses them the tail
 * stays. */
int sink_replace_tail(struct sink *s, const void *data, size_t len);
/* Queues: this file is done and left to the kernel, go on with the new file DIRFD/NAME; OLD, if not
 * NULL, is removed first. Where the new one cannot be made, what follows is lost until the next
 * turn. Sizes in the status are of the newest file. */
int sink_turn(struct sink *s, int dirfd, const char *name, const char *old);
/* Queues an fdatasync. */
int sink_sync(struct sink *s);

struct sink_status {
    int first_error;     /* 0 or -errno */
    bool failing;        /* the last thing tried failed; the next is tried all the same */
    uint64_t size_bytes; /* of the file as the disk has taken it */
    uint64_t waiting_bytes;
    uint64_t refused_bytes; /* -ENOBUFS */
    uint64_t lost_bytes;    /* taken, but the disk would not have them */
    uint64_t losses;        /* how often; a tail that was not replaced is none */
};
void sink_status(const struct sink *s, struct sink_status *ret);
/* Waits until nothing waits any more, or WAIT_NS are over: 0 or -ETIMEDOUT. */
int sink_wait(struct sink *s, uint64_t wait_ns);
/* An eventfd: readable once the first error happened, and whenever sink_wake_below is answered. */
int sink_event_fd(const struct sink *s);
/* sink_close leaves the file to the kernel instead of waiting for it to be on disk. */
void sink_leave_unsynced(struct sink *s);
/* Asks for one event as soon as at most BYTES wait, at once where that is so already. */
void sink_wake_below(struct sink *s, uint64_t bytes);
/* Waits at most WAIT_NS for the queue to drain (a hanging disk is left behind with its thread)
 * and frees S. 0, the first error, or -ETIMEDOUT. NULL is fine. */
int sink_close(struct sink *s, uint64_t wait_ns);
