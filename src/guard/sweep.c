/* Finds and signals the processes below a subreaper. */
#include "guard/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"

static int pidfd_open_of(int32_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -errno : fd;
}

static int stat_read(const struct proc_root *root, int32_t pid, struct proc_stat *ret)
{
    char path[32];
    char text[1024];
    snprintf(path, sizeof path, "%d/stat", pid);
    ssize_t len = io_read_small(root->proc_fd, path, text, sizeof text);
    return len < 0 ? (int)len : proc_stat_parse(text, (size_t)len, ret);
}

/* The pidfd comes first: what is checked after it is true of the process it holds. */
static int signal_checked(const struct proc_root *root, int32_t pid, const uint64_t *start_ticks,
                          int32_t pgrp, int signo)
{
    AUTO_CLOSE int fd = pidfd_open_of(pid);
    if (fd < 0)
        return fd;
    struct proc_stat stat;
    int r = stat_read(root, pid, &stat);
    if (r < 0)
        return r == -ENOENT ? -ESRCH : r;
    if (stat.state == 'Z' || stat.state == 'X' ||
        (start_ticks && stat.start_ticks != *start_ticks) || (pgrp > 0 && stat.pgrp != pgrp))
        return -ESRCH;
    return syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0) < 0 ? -errno : 0;
}

int guard_signal(const struct proc_root *root, const struct process_id *id, int signo)
{
    if (proc_root_is_foreign(root))
        return -EXDEV;
    return signal_checked(root, id->pid, &id->start_ticks, 0, signo);
}

struct found {
    int32_t pid;
    int32_t ppid;
    uint64_t start_ticks;
    bool below;
    bool zombie;
};

struct scan {
    struct found *v;
    size_t count, cap;
};

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

/* Every process of the machine with its parent. A full scan rather than children files: it also
 * sees what is re-parented while we look, and this is the end of a job, not its every second. */
static int scan_all(const struct proc_root *root, struct scan *s)
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
            if (pid <= 0 || *end || stat_read(root, (int32_t)pid, &stat) < 0)
                continue;
            struct found f = {.pid = (int32_t)pid,
                              .ppid = stat.ppid,
                              .start_ticks = stat.start_ticks,
                              .zombie = stat.state == 'Z' || stat.state == 'X'};
            int r = scan_add(s, &f);
            if (r < 0)
                return r;
        }
    }
}

static int found_by_pid(const void *a, const void *b)
{
    int32_t x = ((const struct found *)a)->pid;
    int32_t y = ((const struct found *)b)->pid;
    return (x > y) - (x < y);
}

/* Marks what descends from PARENT. Each round settles one generation at least. */
static void scan_mark_below(struct scan *s, int32_t parent)
{
    if (s->count == 0)
        return;
    qsort(s->v, s->count, sizeof *s->v, found_by_pid);
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < s->count; i++) {
            struct found *f = &s->v[i];
            if (f->below)
                continue;
            struct found key = {.pid = f->ppid};
            const struct found *p = bsearch(&key, s->v, s->count, sizeof *s->v, found_by_pid);
            if (f->ppid == parent || (p && p->below)) {
                f->below = true;
                changed = true;
            }
        }
    }
}

static int scan_below(const struct proc_root *root, int32_t parent, struct scan *s)
{
    if (proc_root_is_foreign(root))
        return -EXDEV;
    int r = scan_all(root, s);
    scan_mark_below(s, parent);
    return r;
}

int guard_signal_below(const struct proc_root *root, int32_t parent, int32_t pgrp, int signo)
{
    struct scan s = {0};
    int r = scan_below(root, parent, &s);
    int count = 0;
    for (size_t i = 0; i < s.count; i++)
        if (s.v[i].below && !s.v[i].zombie &&
            signal_checked(root, s.v[i].pid, &s.v[i].start_ticks, pgrp, signo) == 0)
            count++;
    free(s.v);
    return r < 0 && count == 0 ? r : count;
}

int guard_count_below(const struct proc_root *root, int32_t parent)
{
    struct scan s = {0};
    int r = scan_below(root, parent, &s);
    int count = 0;
    for (size_t i = 0; i < s.count; i++)
        count += s.v[i].below && !s.v[i].zombie;
    free(s.v);
    return r < 0 ? r : count;
}

/* Reaps what is dead; false once there is no child left at all. As every descendant of a subreaper
 * hangs below one of its children, that means that nothing is left. */
static bool reap_all(void *user)
{
    (void)user;
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid <= 0)
            return !(pid < 0 && errno == ECHILD);
    }
}

/* Our own children, as fast as it goes: a chain of processes that each fork and exit is always
 * here with its newest link. Until we reap one its pid is not given to another, so no check is
 * needed. Returns how many were signalled. */
static int kill_children(int children_fd)
{
    char text[16384];
    int32_t pids[2048];
    int count = 0;
    ssize_t len = io_pread_small(children_fd, text, sizeof text);
    /* with pages of 64 KiB the kernel cuts the text in the middle of a number, and what is left of
     * it is somebody else's */
    while (len > 0 && text[len - 1] != ' ')
        len--;
    size_t found = len > 0 ? proc_pids_parse(text, (size_t)len, pids, 2048) : 0;
    for (size_t i = 0; i < found; i++) {
        int fd = pidfd_open_of(pids[i]);
        if (fd < 0)
            continue;
        count += syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0;
        close(fd);
    }
    return count;
}

/* Rounds of fast kills with a full look now and then for those deeper down. */
int guard_kill_below(const struct proc_root *root, uint64_t until_ns, guard_reap_fn *reap,
                     void *user)
{
    if (proc_root_is_foreign(root)) {
        reap(user);
        return -EXDEV;
    }
    char path[64];
    int32_t self = (int32_t)getpid();
    snprintf(path, sizeof path, "%d/task/%d/children", self, self);
    AUTO_CLOSE int fd = openat(root->proc_fd, path, O_RDONLY | O_CLOEXEC);
    for (unsigned round = 0; reap(user) && clock_mono_ns() < until_ns; round++) {
        if (round % 64 == 0)
            guard_signal_below(root, self, 0, SIGKILL);
        if ((fd < 0 || kill_children(fd) == 0) && round > 64)
            poll(NULL, 0, 1);
    }
    return 0;
}

int guard_end_all(const struct proc_root *root, uint64_t grace_ns)
{
    int32_t self = (int32_t)getpid();
    int ended = guard_signal_below(root, self, 0, SIGTERM);
    if (ended == -EXDEV) {
        reap_all(NULL);
        return ended;
    }
    guard_signal_below(root, self, 0, SIGCONT); /* a stopped process cannot act on SIGTERM */
    uint64_t until = clock_mono_ns() + grace_ns;
    while (reap_all(NULL) && clock_mono_ns() < until)
        poll(NULL, 0, 10);
    guard_kill_below(root, UINT64_MAX, reap_all, NULL);
    return ended < 0 ? 0 : ended;
}
