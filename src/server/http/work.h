/* Reading a whole recording is not for the loop, nor for the server's memory: `ebb verdict`,
 * `ebb diagnose` and the like are run as children, a few at a time, with a limit on time and
 * output, and their answers kept while the recording has not changed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct work;
struct work_wish; /* one that is waited for */

struct work_options {
    const char *program; /* must live as long */
    unsigned at_once, queue_max;
    uint64_t limit_ns;
    size_t output_max, cache_bytes;
};
int work_new(struct loop *loop, const struct work_options *options, struct work **ret);
void work_free(struct work *w); /* ends children; wishes are not answered any more */

/* STATUS: the exit status, with what it wrote on standard output, or on standard error where that
 * was nothing; 128 + N for signal N; or -ETIMEDOUT, -EFBIG, or why it could not be started. On the
 * loop, perhaps before work_ask returns. */
typedef void work_done_fn(void *user, int status, const char *output, size_t len);
/* ARGV without the program; KEY names the answer (job, kind, range), STAMP what it is of (size and
 * time of the recording): the same of both is answered from memory, or waits for the one under way.
 * *RET is NULL where FN has been called already. -EAGAIN: too many. Those of guests wait behind the
 * others, and are at most half of those that wait. */
int work_ask(struct work *w, const char *const *argv, const char *key, uint64_t stamp,
             bool is_guest, work_done_fn *fn, void *user, struct work_wish **ret);
void work_forget(struct work_wish *wish); /* the caller is gone */
