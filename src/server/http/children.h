/* Child server processes. Reading a whole recording is not for the loop, nor for the server's
 * memory: `ebb verdict`, `ebb diagnose` and the like are run as children, a few at a time, with a
 * limit on time and output, and their answers are cached while the recording does not change. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct child_waiter; /* one request for an answer that has not come yet */
struct children;
struct loop;

struct children_options {
    const char *program; /* must live as long */
    unsigned at_once, queue_max;
    uint64_t limit_ns;
    size_t output_max, cache_bytes;
};
int children_new(struct loop *loop, const struct children_options *options, struct children **ret);
void children_free(struct children *all); /* kills them; waiters are not answered any more */

/* STATUS: the exit status, with what it wrote on standard output, or on standard error where that
 * was nothing; 128 + N for signal N; or -ETIMEDOUT, -EFBIG, or why it could not be started. On the
 * loop, perhaps before children_ask returns. */
typedef void child_done_fn(void *user, int status, const char *output, size_t len);
/* ARGV without the program; KEY names the answer (job, kind, range), STAMP what it is of (size and
 * time of the recording): the same of both is answered from the cache, or waits for the child that
 * is running. *RET is NULL where FN has been called already. -EAGAIN: too many. Those of guests
 * wait behind the others, and are at most half of those that wait. */
int children_ask(struct children *all, const char *const *argv, const char *key, uint64_t stamp,
                 bool is_guest, child_done_fn *fn, void *user, struct child_waiter **ret);
void child_waiter_cancel(struct child_waiter *waiter); /* the caller is gone */
