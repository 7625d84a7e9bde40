/* Looks at every process of the machine, and signals one that is still the same. */
#include "guard/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "proc/read.h"

/* The pidfd comes first: what is checked after it is true of the process it holds. */
int scan_signal(const struct proc_root *root, int32_t pid, const uint64_t *start_ticks,
                int32_t pgrp, int signo)
{
    AUTO_CLOSE int fd = io_pidfd_open(pid);
    if (fd < 0)
        return fd;
    struct proc_stat stat;
    int r = proc_read_stat(root, pid, &stat);
    if (r < 0)
        return r == -ENOENT ? -ESRCH : r;
    if (proc_stat_is_dead(&stat) || (start_ticks && stat.start_ticks != *start_ticks) ||
        (pgrp > 0 && stat.pgrp != pgrp))
        return -ESRCH;
    return syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0) < 0 ? -errno : 0;
}

/* A full scan rather than children files: it also sees what is re-parented meanwhile, and this is
 * the end of a job, not its every second. */
int scan_all(const struct proc_root *root, struct scan *s)
{
    struct pid_dir pids;
    int32_t pid;
    size_t cap = 0;
    struct proc_stat stat;
    int r = pid_dir_open(&pids, root->proc_fd, ".");
    if (r < 0)
        return r;
    while (r == 0 && pid_dir_next(&pids, &pid)) {
        if (proc_read_stat(root, pid, &stat) < 0)
            continue;
        if (!ARRAY_ROOM(s->v, s->count, cap))
            r = -ENOMEM;
        else
            s->v[s->count++] = (struct found){.pid = pid,
                                              .ppid = stat.ppid,
                                              .start_ticks = stat.start_ticks,
                                              .zombie = proc_stat_is_dead(&stat),
                                              .stopped = stat.state == 'T'};
    }
    pid_dir_close(&pids);
    return r;
}

int scan_compare_pids(const void *a, const void *b)
{
    int32_t x = ((const struct found *)a)->pid;
    int32_t y = ((const struct found *)b)->pid;
    return (x > y) - (x < y);
}

/* Each round settles one generation at least. */
void scan_mark_below(struct scan *s, int32_t parent)
{
    if (s->count == 0)
        return;
    qsort(s->v, s->count, sizeof *s->v, scan_compare_pids);
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < s->count; i++) {
            struct found *f = &s->v[i];
            if (f->below)
                continue;
            struct found key = {.pid = f->ppid};
            const struct found *p = bsearch(&key, s->v, s->count, sizeof *s->v, scan_compare_pids);
            if (f->ppid == parent || (p && p->below)) {
                f->below = true;
                changed = true;
            }
        }
    }
}
