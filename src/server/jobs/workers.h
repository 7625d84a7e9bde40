/* Threads for tasks in run folders. A run folder may be on a shared file system, where any call can
 * block for minutes, and the event loop must not block. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct task; /* a task that was started and has not been freed */
struct workers;

/* The functions of one kind of task. USER belongs to the task from workers_start until the call of
 * `free`. */
struct task_kind {
    /* Called in a thread. Must use nothing but USER. */
    void (*run)(void *user);
    void (*done)(void *user); /* called from the event loop after `run` */
    /* Called from the event loop when no thread uses USER any more. */
    void (*free)(void *user);
};

int workers_new(struct loop *loop, struct workers **ret);
/* Frees W, which may be NULL. If a thread is still blocked after a short wait, returns false; that
 * thread, its task and W then stay until the process exits. */
bool workers_free(struct workers *w);
/* Starts a task. KEY is the id of the job whose folder is used, or 0. A task waits while too many
 * others run, or while one with the same KEY runs; so a hanging folder occupies only one thread.
 * Returns 0, or -errno after freeing USER. */
int workers_start(struct workers *w, const struct task_kind *kind, int64_t key, void *user,
                  struct task **ret);
/* Cancels a task: `done` is not called any more, but `free` is. TASK may be NULL. */
void task_cancel(struct task *task);
