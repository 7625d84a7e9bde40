/* A job that is to end and whose supervisor does not do its part: it was stopped, it hangs, or the
 * job itself answers in its place. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "guard/sweep.h"
#include "server/jobs/executor_private.h"
#include "proc/procfs.h"

enum {
    WAKE_S = 2, /* between two wakes */
};

/* A process of the job can have the supervisor's name, but not its parent while that lives. */
static bool is_child_of_sentinel(const struct executor_run *run, const struct proc_stat *stat)
{
    struct executor_holder holder;
    if (executor_lock_read(run->lock_fd, &holder) < 0)
        return false;
    AUTO_CLOSE int fd = executor_holder_open(&holder);
    return fd < 0 || stat->ppid == (int32_t)holder.pid;
}

void executor_know_supervisor(struct executor_run *run, pid_t pid)
{
    char path[40], text[1024];
    struct proc_stat stat;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof text);
    if (len <= 0 || proc_stat_parse(text, (size_t)len, &stat) < 0 ||
        strcmp(stat.comm, "ebb-supervisor") != 0 || !is_child_of_sentinel(run, &stat))
        return;
    run->supervisor = (struct process_id){.pid = (int32_t)pid, .start_ticks = stat.start_ticks};
}

/* It has never been connected to: it is the sentinel's child. */
static void find_supervisor(struct executor_run *run, const struct executor_holder *holder)
{
    char path[64], text[256];
    int32_t pids[8];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)holder->pid, (int)holder->pid);
    ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof text);
    size_t count = len > 0 ? proc_pids_parse(text, (size_t)len, pids, 8) : 0;
    for (size_t i = 0; i < count && run->supervisor.pid == 0; i++)
        executor_know_supervisor(run, pids[i]);
}

/* The sentinel is woken as well: with the supervisor gone it ends the job. */
static void force(struct executor_run *run, const struct proc_root *root, bool is_over)
{
    struct executor_holder holder;
    if (executor_lock_read(run->lock_fd, &holder) == 0) {
        const struct process_id id = {.pid = (int32_t)holder.pid,
                                      .start_ticks = holder.start_ticks};
        if (guard_signal(root, &id, SIGCONT) == 0 && run->supervisor.pid == 0)
            find_supervisor(run, &holder);
    }
    if (run->supervisor.pid > 0)
        guard_signal(root, &run->supervisor, is_over ? SIGKILL : SIGCONT);
}

void executor_force_look(struct executor_run *run, uint64_t now_ns)
{
    struct executor_cancel *c = &run->cancel;
    struct proc_root root;
    if (!c->wanted)
        return;
    if (now_ns >= c->wake_ns && proc_root_open("/proc", "/sys/fs/cgroup", &root, NULL) == 0) {
        const uint64_t waited_ns = now_ns > c->asked_ns ? now_ns - c->asked_ns : 0;
        bool is_over = waited_ns > c->grace_ns && waited_ns - c->grace_ns >= run->x->force_ns;
        force(run, &root, is_over);
        proc_root_close(&root);
    }
    if (now_ns >= c->wake_ns)
        c->wake_ns = now_ns + WAKE_S * NS_PER_S;
    executor_look_at(run, c->wake_ns);
}
