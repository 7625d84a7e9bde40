/* Python stacks of a running process, read from its memory while it runs: the process is neither
 * stopped nor changed. If a stack changes during every attempt to read it, the result ends at the
 * first inconsistent frame. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct attach_target;
struct err;
struct interpreter;

enum { STACK_TEXT_MAX = 512 };

struct stack_frame {
    char function[STACK_TEXT_MAX], file[STACK_TEXT_MAX]; /* escaped UTF-8 */
    uint32_t line;
};

struct stack_thread {
    int32_t tid; /* 0: unknown (before Python 3.11) */
    bool is_main;
    char name[64];                    /* escaped; "": unknown */
    const struct stack_frame *frames; /* innermost first */
    size_t frame_count;
    bool is_cut; /* further frames could not be read */
};

/* Called once for each thread, the main thread first. */
typedef void stack_thread_fn(void *user, const struct stack_thread *thread);

/* Returns 0, or -errno with a message. */
int stack_read(const struct attach_target *t, const struct interpreter *i, stack_thread_fn *fn,
               void *user, struct err *err);
