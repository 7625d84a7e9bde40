/* Finds, signals and kills the processes of a job: descendants of a subreaper, and stray
 * processes. */
#include "guard/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "proc/read.h"

enum {
    /* Maximum number of scans in a row that only send SIGSTOP. Processes that fork and exit in a
     * chain add a new process at every scan, and would otherwise put off SIGKILL for ever. */
    STOPS_MAX = 16,
    /* the wait before the next scan is 1/8 of the time since the set of processes last changed */
    WAIT_SHARE = 8,
    WAIT_MAX_MS = 1000,
    REST_PER_WORK = 20, /* scans use at most 1/20 of a CPU */
    STUCK_S = 5,
};

/* ---- scanning all processes of the machine ---- */

struct found {
    int32_t pid, ppid;
    uint64_t start_ticks;
    bool below; /* the process is to be signalled */
    bool zombie;
    bool stopped; /* the process is in the stopped state, for example after SIGSTOP */
};

struct scan {
    struct found *v;
    size_t count;
};

/* Sets `below` for each process of the scan that is to be signalled. */
typedef void mark_fn(const struct proc_root *root, struct scan *s, const void *user);

/* Signals the process PID if it is alive, its start time is *START_TICKS (unless START_TICKS is
 * NULL), and its process group is PGRP (unless PGRP is 0 or less). The pidfd is opened before these
 * checks, so that the signal reaches the process that was checked. Returns 0, -ESRCH or -errno. */
static int scan_signal(const struct proc_root *root, int32_t pid, const uint64_t *start_ticks,
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

/* Lists all processes of the machine. The caller frees S->v, even after a failure. The files
 * /proc/PID/task/TID/children are not used, because they would miss a process whose parent changes
 * during the scan. */
static int scan_machine(const struct proc_root *root, struct scan *s)
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

static int compare_found_pids(const void *a, const void *b)
{
    int32_t x = ((const struct found *)a)->pid;
    int32_t y = ((const struct found *)b)->pid;
    return (x > y) - (x < y);
}

/* Marks the descendants of PARENT and of marked processes, and sorts the list by pid. Each round
 * marks at least one generation. */
static void mark_below(struct scan *s, int32_t parent)
{
    if (s->count == 0)
        return;
    qsort(s->v, s->count, sizeof *s->v, compare_found_pids);
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < s->count; i++) {
            struct found *f = &s->v[i];
            if (f->below)
                continue;
            struct found key = {.pid = f->ppid};
            const struct found *p = bsearch(&key, s->v, s->count, sizeof *s->v, compare_found_pids);
            if (f->ppid == parent || (p && p->below)) {
                f->below = true;
                changed = true;
            }
        }
    }
}

/* ---- killing processes that may fork as fast as they can ----
 * SIGSTOP is sent until a scan finds no new process: a stopped process does not fork, uses no CPU
 * time, and keeps its slot in a process limit. Then SIGKILL ends all of them. */

static const struct found *kill_seen(const struct guard_kill *k, int32_t pid)
{
    const struct found key = {.pid = pid};
    return k->count ? bsearch(&key, k->seen, k->count, sizeof key, compare_found_pids) : NULL;
}

/* Removes from the scan all processes that are not marked. Returns the number of marked
 * processes. */
static size_t keep_marked(struct scan *s, size_t *ret_living)
{
    size_t kept = 0;
    *ret_living = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (!s->v[i].below)
            continue;
        *ret_living += !s->v[i].zombie;
        s->v[kept++] = s->v[i];
    }
    return kept;
}

static void signal_marked(const struct proc_root *root, const struct scan *s, int signo)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct found *f = &s->v[i];
        if (!f->zombie && !(signo == SIGSTOP && f->stopped))
            scan_signal(root, f->pid, &f->start_ticks, 0, signo);
    }
}

static uint64_t wait_after(const struct guard_kill *k, uint64_t now_ns, uint64_t took_ns)
{
    uint64_t wait_ns = (now_ns - k->changed_ns) / WAIT_SHARE;
    if (wait_ns < NS_PER_MS)
        wait_ns = NS_PER_MS;
    if (wait_ns > WAIT_MAX_MS * NS_PER_MS)
        wait_ns = WAIT_MAX_MS * NS_PER_MS;
    return wait_ns > took_ns * REST_PER_WORK ? wait_ns : took_ns * REST_PER_WORK;
}

/* Scans the machine once and sends the signals. Sets K->wait_ns to 0 if there are new processes,
 * else to a wait that grows to at most a second. Returns the number of living processes found, or
 * -errno. */
static int kill_scan(struct guard_kill *k, const struct proc_root *root, mark_fn *mark,
                     const void *user)
{
    const uint64_t began_ns = clock_mono_ns();
    struct scan s = {0};
    size_t fresh = 0, living;
    int r = scan_machine(root, &s);
    mark(root, &s, user);
    s.count = keep_marked(&s, &living);
    for (size_t i = 0; i < s.count; i++) {
        const struct found *before = kill_seen(k, s.v[i].pid);
        fresh += !s.v[i].zombie && (!before || before->start_ticks != s.v[i].start_ticks);
    }
    const bool stops = fresh > 0 && k->stops < STOPS_MAX;
    signal_marked(root, &s, stops ? SIGSTOP : SIGKILL);
    k->stops = stops ? k->stops + 1 : 0;
    const uint64_t now_ns = clock_mono_ns();
    if (fresh > 0 || s.count != k->count || k->changed_ns == 0)
        k->changed_ns = now_ns;
    free(k->seen);
    k->seen = s.v;
    k->count = s.count;
    k->wait_ns = fresh > 0 ? 0 : wait_after(k, now_ns, now_ns - began_ns);
    return r < 0 ? r : (int)living;
}

bool guard_kill_stuck(const struct guard_kill *k, const struct proc_root *root, uint64_t now_ns,
                      struct proc_stat *ret, int32_t *ret_pid)
{
    if (k->count == 0 || now_ns < k->changed_ns + STUCK_S * NS_PER_S)
        return false;
    /* Choose a process that is not a zombie, if there is one. If there are only zombies, each of
     * them is the leader of a thread group that has living threads. */
    const struct found *f = k->seen;
    for (size_t i = 0; i < k->count && f->zombie; i++)
        if (!k->seen[i].zombie)
            f = &k->seen[i];
    *ret_pid = f->pid;
    return proc_read_stat(root, f->pid, ret) == 0 && ret->start_ticks == f->start_ticks;
}

void guard_kill_fini(struct guard_kill *k)
{
    free(k->seen);
    *k = (struct guard_kill){0};
}

/* ---- signals ---- */

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

/* Signals the marked processes. Returns their number, or -errno. */
static int signal_scan(const struct proc_root *root, mark_fn *mark, const void *user, int32_t pgrp,
                       int signo)
{
    struct scan s = {0};
    int count = 0;
    if (proc_root_is_foreign(root))
        return -EXDEV;
    int r = scan_machine(root, &s);
    mark(root, &s, user);
    for (size_t i = 0; i < s.count; i++)
        if (s.v[i].below && !s.v[i].zombie &&
            scan_signal(root, s.v[i].pid, &s.v[i].start_ticks, pgrp, signo) == 0)
            count++;
    free(s.v);
    return r < 0 && count == 0 ? r : count;
}

static void mark_below_parent(const struct proc_root *root, struct scan *s, const void *parent)
{
    (void)root;
    mark_below(s, *(const int32_t *)parent);
}

int guard_signal_below(const struct proc_root *root, int32_t parent, int32_t pgrp, int signo)
{
    return signal_scan(root, mark_below_parent, &parent, pgrp, signo);
}

/* Reaps children. Returns false once no child is left. No other descendant is left then either,
 * because a subreaper becomes the parent of orphans. */
static bool reap_all(void *user)
{
    (void)user;
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid <= 0)
            return !(pid < 0 && errno == ECHILD);
    }
}

/* Sends SIGKILL to those of our own children that the last scan did not find, such as the newest
 * process of a chain of processes that fork and exit. There is no need to check the start time,
 * because the pid of a child is not reused before it is reaped. Returns the number of signalled
 * children. */
static int kill_new_children(const struct guard_kill *k, int children_fd)
{
    char text[16384];
    int32_t pids[2048];
    int count = 0;
    ssize_t len = io_pread_small(children_fd, text, sizeof text);
    /* If pages are 64 KiB, the text may be cut in the middle of a pid. The remaining digits could
     * be the pid of another process, so they are dropped. */
    while (len > 0 && text[len - 1] != ' ')
        len--;
    size_t found = len > 0 ? proc_pids_parse(text, (size_t)len, pids, 2048) : 0;
    for (size_t i = 0; i < found; i++) {
        int fd = kill_seen(k, pids[i]) ? -1 : io_pidfd_open(pids[i]);
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
        kill_scan(k, root, mark_below_parent, &self);
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
    /* stopped processes are continued, so that they can react to SIGTERM */
    guard_signal_below(root, self, 0, SIGCONT);
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

/* ---- stray processes ---- */

enum {
    SCAN_MS = 50,          /* pause between two scans */
    KILL_S = 10,           /* maximum wait for processes to exit */
    ENVIRON_MAX = 4 << 20, /* maximum size of one process's environment */
    SIGN_MAX = 4200,
};

/* Returns true if TEXT contains ENTRY, preceded by the character BEFORE or the start of TEXT, and
 * followed by one of the characters in AFTER, NUL or the end of TEXT. */
static bool has_entry(const struct buf *text, const char *entry, char before, const char *after)
{
    const char *at = text->data, *end = text->data + text->len;
    const size_t len = strlen(entry);
    while (at && (at = memmem(at, (size_t)(end - at), entry, len))) {
        bool begins = at == text->data || at[-1] == before;
        if (begins && (at + len == end || memchr(after, at[len], strlen(after) + 1)))
            return true;
        at++;
    }
    return false;
}

static bool file_has_entry(const struct proc_root *root, int32_t pid, const char *file,
                           const char *entry, char before, const char *after)
{
    char path[48];
    AUTO_BUF struct buf text = {0};
    snprintf(path, sizeof path, "%d/%s", pid, file);
    bool has = io_read_all(root->proc_fd, path, ENVIRON_MAX, &text) == 0 && text.len > 0 &&
               has_entry(&text, entry, before, after);
    return has;
}

static bool has_sign(const struct proc_root *root, const struct stray_signs *signs, int32_t pid)
{
    char variable[SIGN_MAX];
    int n = snprintf(variable, sizeof variable, "EBB_RUN_DIR=%s", signs->run_dir);
    if (signs->cgroup[0] && file_has_entry(root, pid, "cgroup", signs->cgroup, '/', "\n/"))
        return true;
    return signs->run_dir[0] && n < (int)sizeof variable &&
           file_has_entry(root, pid, "environ", variable, '\0', "");
}

static void mark_strays(const struct proc_root *root, struct scan *s, const void *user)
{
    const struct stray_signs *signs = user;
    const int32_t self = (int32_t)getpid();
    for (size_t i = 0; i < s->count; i++)
        s->v[i].below =
            s->v[i].pid != self && !s->v[i].zombie && has_sign(root, signs, s->v[i].pid);
    mark_below(s, -1);
    for (size_t i = 0; i < s->count; i++)
        s->v[i].below = s->v[i].below && s->v[i].pid != self;
}

int guard_signal_strays(const struct proc_root *root, const struct stray_signs *signs, int signo)
{
    return signal_scan(root, mark_strays, signs, 0, signo);
}

int guard_end_strays(const struct proc_root *root, const struct stray_signs *signs,
                     uint64_t grace_ns)
{
    int ended = guard_signal_strays(root, signs, SIGTERM);
    if (ended <= 0)
        return ended;
    /* stopped processes are continued, so that they can react to SIGTERM */
    guard_signal_strays(root, signs, SIGCONT);
    const uint64_t kill_ns = clock_mono_ns() + grace_ns;
    int left = ended;
    while (left > 0 && clock_mono_ns() < kill_ns) {
        poll(NULL, 0, SCAN_MS);
        left = guard_signal_strays(root, signs, 0);
    }
    struct guard_kill k = {0};
    while (left > 0 && clock_mono_ns() < kill_ns + KILL_S * NS_PER_S) {
        left = kill_scan(&k, root, mark_strays, signs);
        poll(NULL, 0, (int)(k.wait_ns / NS_PER_MS));
    }
    guard_kill_fini(&k);
    return ended;
}
