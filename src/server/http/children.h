/* Child processes of the server. Reading a whole recording takes too long and too much memory for
 * the server itself, so it runs `ebb verdict`, `ebb diagnose` and the like as children: a few at a
 * time, with limits on their run time and output size. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct child_waiter; /* a request that waits for a child's answer */
struct children;
struct loop;

struct children_options {
    const char *program; /* path of ebb; the string must outlive the children */
    unsigned at_once, queue_max;
    uint64_t limit_ns;
    size_t output_max;
};
int children_new(struct loop *loop, const struct children_options *options, struct children **ret);
void children_free(struct children *all); /* kills the children without calling their waiters */

/* Receives the answer of a child. STATUS is the exit status, 128 + N for signal N, -ETIMEDOUT,
 * -EFBIG, or the -errno of a failed start. OUTPUT is the child's standard output or, if that is
 * empty, the last line of its standard error without program names in front. Called from the event
 * loop, possibly before children_ask returns. */
typedef void child_done_fn(void *user, int status, const char *output, size_t len);
/* Runs `ebb ARGV` and calls FN with the answer. If a child with the same KEY runs or is queued, FN
 * receives the answer of that child. *RET is the waiter, or NULL if FN was already called. Requests
 * from guests (clients other than the owner) wait behind all others and fill at most half of the
 * queue. Returns -EAGAIN if the queue is full. */
int children_ask(struct children *all, const char *const *argv, const char *key, bool is_guest,
                 child_done_fn *fn, void *user, struct child_waiter **ret);
void child_waiter_cancel(struct child_waiter *waiter);
