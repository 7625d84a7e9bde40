/* Rounds of SIGSTOP, then SIGKILL, with longer and longer waits once there is nothing to do. */
#include "guard/rounds.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "proc/read.h"

enum {
    /* Scans in a row that may only stop: a chain of processes that each fork and exit shows a new
     * one to every scan, and must not keep the others from their end. */
    STOPS_MAX = 16,
    WAIT_SHARE = 8, /* wait for this part of the time in which nothing has changed */
    WAIT_MAX_MS = 1000,
    REST_PER_WORK = 20, /* scans take at most one part in so many of a CPU */
    STUCK_S = 5,
};

static struct found *find_pid(const struct guard_kill *k, int32_t pid)
{
    const struct found key = {.pid = pid};
    return k->count ? bsearch(&key, k->seen, k->count, sizeof key, scan_compare_pids) : NULL;
}

bool guard_kill_knows(const struct guard_kill *k, int32_t pid)
{
    return find_pid(k, pid) != NULL;
}

static bool is_new(const struct guard_kill *k, const struct found *f)
{
    const struct found *before = find_pid(k, f->pid);
    return !before || before->start_ticks != f->start_ticks;
}

/* Keeps those that are to be ended, the living first in line for guard_kill_stuck. */
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

static void send(const struct proc_root *root, const struct scan *s, int signo)
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

int guard_kill_scan(struct guard_kill *k, const struct proc_root *root, guard_mark_fn *mark,
                    const void *user)
{
    const uint64_t began_ns = clock_mono_ns();
    struct scan s = {0};
    size_t fresh = 0, living;
    int r = scan_all(root, &s);
    mark(root, &s, user);
    s.count = keep_marked(&s, &living);
    for (size_t i = 0; i < s.count; i++)
        fresh += !s.v[i].zombie && is_new(k, &s.v[i]);
    const bool stops = fresh > 0 && k->stops < STOPS_MAX;
    send(root, &s, stops ? SIGSTOP : SIGKILL);
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
    const struct found *f = k->seen; /* a dead leader whose threads are not, where none lives */
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
