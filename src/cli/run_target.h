/* The run that a folder or a pid stands for, and a fresh reading of its heap. */
#pragma once

#include <limits.h>
#include <stdint.h>

#include "base/err.h"

struct run_target {
    char folder[PATH_MAX]; /* "" if the run is not recorded */
    char marks[108];       /* the socket of its supervisor; "" if the run has ended */
    int32_t pid;           /* the process that is meant; 0: none in particular */
    char obstacle[128];    /* why the heap of its job was not profiled; "": not known */
};
/* OPERAND is a run folder, or a pid: of a process of a run, or of its launcher. 0, or -errno with a
 * sentence. */
int run_target_find(const char *operand, struct run_target *ret, struct err *err);
/* The same of a run that is recorded. */
int run_target_find_recorded(const char *operand, struct run_target *ret, struct err *err);
/* Makes its supervisor read the heap of PID (0: all) once more; nothing where it has ended. */
int run_target_refresh(const struct run_target *run, int32_t pid, struct err *err);
