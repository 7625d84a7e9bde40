/* The run that is meant by a folder or a pid, and asking it for a fresh reading of the heap. */
#pragma once

#include <limits.h>
#include <stdint.h>

#include "base/err.h"

struct proc_root;

/* The run that an operand means. */
struct heap_run {
    char folder[PATH_MAX]; /* "" if the process that is meant runs under no ebb that records */
    char marks[108];       /* the socket of its supervisor; "" if it has ended */
    int32_t pid;           /* the process that is meant; 0: none in particular */
    char obstacle[128];    /* why the heap of its job was not profiled; "": nothing is said */
};
/* OPERAND is a run folder, or a pid (of a process of a run, or of what leads to one). 0, or -errno
 * with a sentence. */
int heap_run_find(const struct proc_root *root, const char *operand, struct heap_run *ret,
                  struct err *err);
/* Makes its supervisor read the heap of PID (0: all) once more; nothing where it has ended. */
int heap_run_refresh(const struct heap_run *run, int32_t pid, struct err *err);
