/* Threads for work in run folders. They may be on a shared file system, where any call can block
 * for minutes; the event loop must not wait for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct work; /* one call of `run` */
struct workers;

/* One kind of work. USER belongs to the work from workers_start to `free`. */
struct work_kind {
    /* Called in a thread. It uses nothing but USER. */
    void (*run)(void *user);
    /* Called from the event loop: with 0 after `run`, or with -ETIMEDOUT if the time limit has
     * passed; the thread may still use USER then. NULL: nothing is to be done. */
    void (*done)(void *user, int r);
    /* Called from the event loop when no thread uses USER any more. */
    void (*free)(void *user);
};

int workers_new(struct loop *loop, struct workers **ret);
/* Frees W. Returns false if a thread still blocks after a short wait: the thread, what it uses and
 * W are left until the process exits. W may be NULL. */
bool workers_free(struct workers *w);
/* Starts a work, which waits while too many others run, or one with the same KEY: the id of the job
 * whose folder is used, or 0. So a folder that hangs occupies one thread. LIMIT_NS is the time
 * limit; 0: none. Returns 0, or -errno after freeing USER. */
int workers_start(struct workers *w, const struct work_kind *kind, int64_t key, uint64_t limit_ns,
                  void *user, struct work **ret);
/* From now on `done` is not called, only `free`. WORK may be NULL. */
void work_cancel(struct work *work);
