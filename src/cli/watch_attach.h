/* The `ebb attach` that the key A of `ebb watch` starts. It runs in a separate process, so that the
 * view is still updated. The end of the view also ends ebb attach. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

struct loop;
struct loop_source;

typedef void watch_attach_fn(void *user, const char *line);

/* An `ebb attach` and its output. A zeroed struct is valid: no ebb attach was started. */
struct watch_attach {
    struct loop *loop;
    pid_t pid; /* pid of ebb attach; 0 if it was not started */
    int fd;    /* pipe with the output of ebb attach; -1 after the end of the output */
    struct loop_source *source;
    struct buf text; /* output of ebb attach so far */
    bool is_ending;
    watch_attach_fn *fn;
    void *user;
};

/* Starts ebb attach PID. Later calls FN with the first line of its output, which reports success or
 * the error. Does nothing while another ebb attach runs. Returns 0 or -errno. */
int watch_attach_start(struct watch_attach *a, struct loop *loop, int32_t pid, watch_attach_fn *fn,
                       void *user);
/* Makes ebb attach detach, waits until it has exited, and prints its output. */
void watch_attach_end(struct watch_attach *a);
/* Interrupts the wait of watch_attach_end, as Ctrl-C does in ebb attach. */
void watch_attach_interrupt(const struct watch_attach *a);
