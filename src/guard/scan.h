/* All processes of the machine at one moment, with their parents. For the guard alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/procfs.h"

struct found {
    int32_t pid;
    int32_t ppid;
    uint64_t start_ticks;
    bool below; /* one of those that are looked for */
    bool zombie;
    bool stopped; /* by SIGSTOP and the like */
};

struct scan {
    struct found *v;
    size_t count;
};

/* Every process of the machine with its parent. V is the caller's to free, also after a failure.
 */
int scan_all(const struct proc_root *root, struct scan *s);
/* Marks the descendants of PARENT and of processes that are marked already. Sorts by pid. */
void scan_mark_below(struct scan *s, int32_t parent);
int scan_compare_pids(const void *a, const void *b); /* for qsort and bsearch of `struct found` */
/* Signals PID if it lives, and has START_TICKS where that is not NULL, and PGRP where that is above
 * 0: 0, -ESRCH, -errno. */
int scan_signal(const struct proc_root *root, int32_t pid, const uint64_t *start_ticks,
                int32_t pgrp, int signo);
