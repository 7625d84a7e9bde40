/* The `ebb attach` that the key A of `ebb watch` starts. It runs as a process of its own, so that
 * the view continues, and ends with the view. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

struct loop;
struct loop_source;

typedef void watch_attach_fn(void *user, const char *line);

/* A zeroed struct is valid: nothing was started. */
struct watch_attach {
    struct loop *loop;
    pid_t pid; /* of ebb attach; 0: not started */
    int fd;    /* its output, or -1 once that has ended */
    struct loop_source *source;
    struct buf text; /* its output so far */
    bool is_ending;
    watch_attach_fn *fn;
    void *user;
};

/* Starts ebb attach PID. FN receives its first line: that it is attached, or why not. Does nothing
 * while another one runs. Returns 0 or -errno. */
int watch_attach_start(struct watch_attach *a, struct loop *loop, int32_t pid, watch_attach_fn *fn,
                       void *user);
/* Detaches, waits for the end, and prints the output of ebb attach. */
void watch_attach_end(struct watch_attach *a);
/* Interrupts the wait of watch_attach_end, as Ctrl-C does in ebb attach. */
void watch_attach_interrupt(const struct watch_attach *a);
