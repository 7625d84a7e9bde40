/* Stops a process with PTRACE_SEIZE and PTRACE_INTERRUPT, which do not change the process. Unlike
 * SIGSTOP, they are invisible to the parent of the process, and the kernel lets the process
 * continue if the tracer dies. */
#include "attach/freeze.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { THREADS_MAX = 8192 };

struct frozen {
    struct frozen_thread {
        pid_t tid;
        bool is_stopped;
        int signal; /* signal to deliver when the thread continues, or 0 */
    } threads[THREADS_MAX];
    size_t count;
    int task_fd;
    uint64_t begun_ns;
};

static struct frozen_thread *frozen_find(struct frozen *f, pid_t tid)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->threads[i].tid == tid)
            return &f->threads[i];
    return NULL;
}

static int seize_thread(struct frozen *f, pid_t tid)
{
    if (frozen_find(f, tid))
        return 0;
    if (f->count == THREADS_MAX)
        return -EMFILE;
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0)
        return errno == ESRCH ? 0 : -errno; /* the thread has exited */
    f->threads[f->count++] = (struct frozen_thread){.tid = tid};
    return 1;
}

/* Seizes the threads that are not seized yet. Returns the number of threads that this call seized,
 * or -errno. */
static int seize_all(struct frozen *f)
{
    char space[4096] __attribute__((aligned(8)));
    int found = 0;
    ssize_t n;
    lseek(f->task_fd, 0, SEEK_SET);
    while ((n = getdents64(f->task_fd, space, sizeof space)) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *d = (const void *)(space + at);
            at += d->d_reclen;
            int r = d->d_name[0] == '.' ? 0 : seize_thread(f, (pid_t)atoi(d->d_name));
            if (r < 0)
                return r;
            found += r;
        }
    }
    return n < 0 ? -ESRCH : found;
}

/* Updates T if its thread has stopped or exited. A thread that is about to receive a signal may
 * stop for that signal before it stops for ebb's PTRACE_INTERRUPT. The signal is stored in T, so
 * that let_go can deliver it. */
static void take_stop(struct frozen_thread *t)
{
    int status;
    pid_t tid = waitpid(t->tid, &status, __WALL | WNOHANG);
    if (tid == 0)
        return;
    t->is_stopped = true;
    if (tid < 0 || !WIFSTOPPED(status)) {
        t->tid = 0; /* the thread has exited */
        return;
    }
    t->signal = status >> 16 ? 0 : WSTOPSIG(status);
}

/* Sleeps until a thread has stopped. Returns false if no thread has stopped by UNTIL_NS. */
static bool wait_for_stop(uint64_t until_ns)
{
    sigset_t chld;
    uint64_t now_ns = clock_mono_ns();
    if (now_ns >= until_ns)
        return false;
    const struct timespec left = {.tv_nsec = (long)((until_ns - now_ns) % NS_PER_S)};
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    (void)sigtimedwait(&chld, NULL, &left);
    return true;
}

/* Stops all threads from index FIRST on. Returns -ETIMEDOUT if one of them has not stopped by
 * UNTIL_NS. */
static int stop_threads(struct frozen *f, size_t first, uint64_t until_ns)
{
    for (size_t i = first; i < f->count; i++)
        ptrace(PTRACE_INTERRUPT, f->threads[i].tid, NULL, NULL);
    for (size_t i = first; i < f->count;) {
        take_stop(&f->threads[i]);
        if (f->threads[i].is_stopped) {
            i++;
            continue;
        }
        if (!wait_for_stop(until_ns))
            return -ETIMEDOUT;
    }
    return 0;
}

static void let_go(struct frozen *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->threads[i].tid)
            ptrace(PTRACE_DETACH, f->threads[i].tid, NULL, (void *)(intptr_t)f->threads[i].signal);
}

/* Seizes and stops all threads. A thread that still runs may start new threads meanwhile, so rounds
 * are repeated until a round finds no new thread. */
static int freeze(struct frozen *f, uint64_t most_ns)
{
    size_t first = 0;
    int r = seize_all(f);
    if (r > 0)
        r = seize_all(f); /* in most processes, the second round finds no new threads */
    f->begun_ns = clock_mono_ns();
    while (r >= 0 && first < f->count) {
        r = stop_threads(f, first, f->begun_ns + most_ns);
        first = f->count;
        if (r == 0)
            r = seize_all(f);
    }
    return r < 0 ? r : f->count ? 0 : -ESRCH;
}

static _Noreturn void freeze_child(int result_fd, int task_fd, uint64_t most_ns,
                                   int (*fn)(void *user), void *user)
{
    static struct frozen f;
    sigset_t chld;
    f.task_fd = task_fd;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    signal(SIGCHLD, SIG_DFL);
    /* With real-time priority the pause is short even on a busy machine. If ebb lacks the privilege
     * to change its priority, the call fails and the priority stays normal. */
    (void)sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
    struct freeze_result result = {.r = freeze(&f, most_ns)};
    if (result.r == 0)
        result.r = fn(user);
    let_go(&f);
    result.pause_ns = f.begun_ns ? clock_mono_ns() - f.begun_ns : 0;
    (void)!write(result_fd, &result, sizeof result);
    _exit(0); /* when this process exits, the kernel detaches the threads that are still traced */
}

struct freeze_result freeze_call(int proc_fd, int32_t pid, uint64_t most_ns, int (*fn)(void *user),
                                 void *user)
{
    struct freeze_result result = {.r = -EIO};
    char path[32];
    int pair[2];
    snprintf(path, sizeof path, "%d/task", (int)pid);
    int task_fd = openat(proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (task_fd < 0)
        return (struct freeze_result){.r = -ESRCH};
    if (pipe2(pair, O_CLOEXEC) < 0) {
        close(task_fd);
        return (struct freeze_result){.r = -errno};
    }
    pid_t child = fork();
    if (child == 0)
        freeze_child(pair[1], task_fd, most_ns, fn, user);
    close(pair[1]);
    close(task_fd);
    if (child < 0 || read(pair[0], &result, sizeof result) != (ssize_t)sizeof result)
        result.r = -EIO;
    close(pair[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return result;
}
