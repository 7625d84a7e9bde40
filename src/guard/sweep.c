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
#include "guard/rounds.h"
#include "guard/scan.h"

int guard_signal(const struct proc_root *root, const struct process_id *id, int signo)
{
    if (proc_root_is_foreign(root))
        return -EXDEV;
    return scan_signal(root, id->pid, &id->start_ticks, 0, signo);
}

int guard_signal_group(int leader_fd, int signo)
{
    enum { PROCESS_GROUP = 1 << 2 }; /* PIDFD_SIGNAL_PROCESS_GROUP of Linux 6.9 */
    return syscall(SYS_pidfd_send_signal, leader_fd, signo, NULL, PROCESS_GROUP) < 0 ? -errno : 0;
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
            scan_signal(root, s.v[i].pid, &s.v[i].start_ticks, pgrp, signo) == 0)
            count++;
    free(s.v);
    return r < 0 && count == 0 ? r : count;
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

static void mark_below_self(const struct proc_root *root, struct scan *s, const void *user)
{
    (void)root;
    (void)user;
    scan_mark_below(s, (int32_t)getpid());
}

/* SIGKILLs children of our own that the last scan did not find, as fast as it goes: a chain of
 * processes that each fork and exit is always here with its newest link. Until we reap one its pid
 * is not given to another, so no check is needed. Returns how many were signalled. */
static int kill_new_children(const struct guard_kill *k, int children_fd)
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
        int fd = guard_kill_knows(k, pids[i]) ? -1 : io_pidfd_open(pids[i]);
        if (fd < 0)
            continue;
        count += syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0;
        close(fd);
    }
    return count;
}

int guard_kill_below(struct guard_kill *k, const struct proc_root *root, uint64_t until_ns,
                     guard_reap_fn *reap, void *user)
{
    enum { FAST_ROUNDS = 64 };
    if (proc_root_is_foreign(root)) {
        reap(user);
        return -EXDEV;
    }
    char path[64];
    int32_t self = (int32_t)getpid();
    snprintf(path, sizeof path, "%d/task/%d/children", self, self);
    AUTO_CLOSE int fd = openat(root->proc_fd, path, O_RDONLY | O_CLOEXEC);
    k->wait_ns = 0;
    while (reap(user) && k->wait_ns == 0 && clock_mono_ns() < until_ns) {
        guard_kill_scan(k, root, mark_below_self, NULL);
        for (int i = 0; i < FAST_ROUNDS && fd >= 0 && kill_new_children(k, fd) > 0; i++)
            if (!reap(user))
                return 0;
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
    struct guard_kill k = {0};
    while (reap_all(NULL)) {
        guard_kill_below(&k, root, UINT64_MAX, reap_all, NULL);
        poll(NULL, 0, (int)(k.wait_ns / NS_PER_MS));
    }
    guard_kill_fini(&k);
    return ended < 0 ? 0 : ended;
}
