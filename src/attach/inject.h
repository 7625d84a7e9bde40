/* Makes the Python interpreter of another process run a script in its main thread, at a safe
 * point. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attach/interpreter.h"
#include "attach/target.h"

struct err;

/* A script that was passed to the interpreter and may not have run yet. */
struct inject {
    const struct attach_target *target;
    struct interpreter interpreter;
    uint64_t text_at;  /* address of the statement in the process; 0: not written */
    char text[512];    /* the statement, or the path of the script (PEP 768) */
    size_t text_len;   /* with its NUL */
    uint64_t pause_ns; /* how long the process was stopped */
};

/* Passes the script at PATH to the interpreter. Waits up to two seconds if the interpreter is
 * starting, and up to ten seconds if its queue is in use or its threads do not stop. Returns 0, or
 * -errno with a message; after an error, the process is unchanged. */
int inject_script(const struct attach_target *t, const char *path, struct inject *ret,
                  struct err *err);
/* Call this after the script has run: clears the statement. */
void inject_done(struct inject *i);
/* Withdraws a script that has not run. Returns 0, or -EALREADY if the script has started. */
int inject_withdraw(struct inject *i);
