/* Looks at every process of the machine, and signals one that is still the same. */
#include "guard/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

int scan_stat(const struct proc_root *root, int32_t pid, struct proc_stat *ret)
{
    char path[32];
    char text[1024];
    snprintf(path, sizeof path, "%d/stat", pid);
    ssize_t len = io_read_small(root->proc_fd, path, text, sizeof text);
    return len < 0 ? (int)len : proc_stat_parse(text, (size_t)len, ret);
}

/* The pidfd comes first: what is checked after it is true of the process it holds. */
int scan_signal(const struct proc_root *root, int32_t pid, const uint64_t *start_ticks,
                int32_t pgrp, int signo)
{
    AUTO_CLOSE int fd = io_pidfd_open(pid);
    if (fd < 0)
        return fd;
    struct proc_stat stat;
    int r = scan_stat(root, pid, &stat);
    if (r < 0)
        return r == -ENOENT ? -ESRCH : r;
    if (stat.state == 'Z' || stat.state == 'X' ||
        (start_ticks && stat.start_ticks != *start_ticks) || (pgrp > 0 && stat.pgrp != pgrp))
        return -ESRCH;
    return syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0) < 0 ? -errno : 0;
}

static int scan_add(struct scan *s, const struct found *f)
{
    if (s->count == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 256;
        struct found *v = realloc(s->v, cap * sizeof *v);
        if (!v)
            return -ENOMEM;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->count++] = *f;
    return 0;
}

/* A full scan rather than children files: it also
 * sees what is re-parented while we look, and this is the end of a job, not its every second. */
int scan_all(const struct proc_root *root, struct scan *s)
{
    AUTO_CLOSE int fd = openat(root->proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    _Alignas(8) char entries[32768];
    for (;;) {
        long n = syscall(SYS_getdents64, fd, entries, sizeof entries);
        if (n <= 0)
            return n < 0 ? -errno : 0;
        for (long at = 0; at < n;) {
            /* struct linux_dirent64: u64 ino, u64 off, u16 reclen, u8 type, name */
            const char *e = entries + at;
            const char *name = e + 19;
            at += (long)((unsigned char)e[16] | (unsigned char)e[17] << 8);
            char *end = NULL;
            long pid = name[0] >= '0' && name[0] <= '9' ? strtol(name, &end, 10) : 0;
            struct proc_stat stat;
            if (pid <= 0 || *end || scan_stat(root, (int32_t)pid, &stat) < 0)
                continue;
            struct found f = {.pid = (int32_t)pid,
                              .ppid = stat.ppid,
                              .start_ticks = stat.start_ticks,
                              .zombie = stat.state == 'Z' || stat.state == 'X',
                              .stopped = stat.state == 'T'};
            int r = scan_add(s, &f);
            if (r < 0)
                return r;
        }
    }
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
