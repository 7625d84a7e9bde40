/* Python stacks of a running process, read from its memory. The process is neither stopped nor
 * changed, so a stack may change while it is read; it is then cut at its first inconsistent
 * frame. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct attach_target;
struct err;
struct interpreter;

enum { STACK_TEXT_MAX = 512 };

struct stack_thread {
    int32_t tid; /* 0: unknown (before Python 3.11) */
    bool is_main;
    char name[64]; /* escaped; "": unknown */
};

struct stack_frame {
    char function[STACK_TEXT_MAX], file[STACK_TEXT_MAX]; /* escaped UTF-8 */
    uint32_t line;
};

/* Called once for each thread, the main thread first, and then for each of its frames, innermost
 * first. */
typedef void stack_thread_fn(void *user, const struct stack_thread *thread);
typedef void stack_frame_fn(void *user, const struct stack_frame *frame);

/* Returns 0, or -errno with a message. */
int stack_read(const struct attach_target *t, const struct interpreter *i,
               stack_thread_fn *on_thread, stack_frame_fn *on_frame, void *user, struct err *err);
