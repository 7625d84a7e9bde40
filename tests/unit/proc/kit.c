#include "kit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"

void notebook_write(void *user, const struct proc_event *event)
{
    struct notebook *n = user;
    n->count[event->kind]++;
    n->pid[event->kind] = event->node->info.id.pid;
    n->slot[event->kind] = event->node->slot;
}

static void or_die(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        abort();
    }
}

_Noreturn void sleep_for_ever(void)
{
    for (;;)
        pause();
}

pid_t fork_tied(void)
{
    pid_t parent = getpid(), pid = fork();
    or_die(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* The parent died before prctl took effect. */
            _exit(0);
    }
    return pid;
}

pid_t fork_loose(void)
{
    pid_t pid = fork();
    or_die(pid >= 0, "fork");
    if (pid == 0)
        alarm(300);
    return pid;
}

static pid_t start(kid_fn *fn, void *arg, int ready_fd)
{
    pid_t pid = fork_tied();
    if (pid > 0)
        return pid;
    if (fn != NULL)
        fn(arg);
    if (ready_fd >= 0)
        or_die(write(ready_fd, "", 1) == 1, "write");
    sleep_for_ever();
}

pid_t kid_spawn(kid_fn *fn, void *arg)
{
    return start(fn, arg, -1);
}

pid_t kid_start(kid_fn *fn, void *arg)
{
    int fds[2];
    char byte;
    or_die(pipe2(fds, O_CLOEXEC) == 0, "pipe2");
    pid_t pid = start(fn, arg, fds[1]);
    close(fds[1]);
    or_die(read(fds[0], &byte, 1) == 1, "the child exited too early");
    close(fds[0]);
    return pid;
}

void kid_end(pid_t pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

int in_child(strange_fn *fn, void *arg)
{
    pid_t pid = fork_tied();
    if (pid == 0)
        _exit(fn(arg));
    int status;
    or_die(waitpid(pid, &status, 0) == pid, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

struct strange {
    strange_fn *fn;
    void *arg;
};

static int drop_and_run(void *arg)
{
    const struct strange *s = arg;
    if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
        return 99;
    return s->fn(s->arg);
}

int as_nobody(strange_fn *fn, void *arg)
{
    return in_child(drop_and_run, &(struct strange){fn, arg});
}

static int do_nothing(void *arg)
{
    (void)arg;
    return 0;
}

bool can_be_nobody(void)
{
    return geteuid() != 0 || as_nobody(do_nothing, NULL) == 0;
}

bool has_strangers(void)
{
    struct stat st;
    if (geteuid() == 0)
        return can_be_nobody();
    return stat("/proc/1", &st) == 0 && st.st_uid == 0;
}

void mock_begin(struct mock *m)
{
    strcpy(m->path, "/tmp/ebb-mock-XXXXXX");
    or_die(mkdtemp(m->path) != NULL, "mkdtemp");
    or_die(proc_root_open(m->path, NULL, &m->root, NULL) == 0, m->path);
    m->root.page_bytes = 4096;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

void mock_end(struct mock *m)
{
    proc_root_close(&m->root);
    nftw(m->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void mock_write(const struct mock *m, int32_t pid, const char *name, const void *data, size_t len)
{
    char path[256];
    if (pid > 0)
        snprintf(path, sizeof(path), "%s/%d/%s", m->path, pid, name);
    else
        snprintf(path, sizeof(path), "%s/%s", m->path, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    or_die(io_mkdir_parents(path) == 0, path);
    *slash = '/';
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    or_die(fd >= 0 && io_write_all(fd, data, len) == 0, path);
    close(fd);
}

void mock_put(const struct mock *m, const struct mock_process *p)
{
    char text[512], name[64];
    uint64_t size = p->no_memory ? 0 : p->size_bytes != 0 ? p->size_bytes : 100u << 20;
    const char *comm = p->comm != NULL ? p->comm : "mock";
    int n = snprintf(text, sizeof(text),
                     "%d (%s) %c %d %d %d 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 %d 0 %llu %llu %llu "
                     "18446744073709551615 1 1 %llu 0 0\n",
                     p->pid, comm, p->state != 0 ? p->state : 'S', p->ppid, p->pid, p->pid,
                     p->threads != 0 ? p->threads : 1, (unsigned long long)p->start,
                     (unsigned long long)size, (unsigned long long)p->rss_pages,
                     (unsigned long long)p->start_stack);
    mock_write(m, p->pid, "stat", text, (size_t)n);
    n = snprintf(text, sizeof(text), "%llu %llu 0 1 0 1 0\n", (unsigned long long)size / 4096,
                 (unsigned long long)p->rss_pages);
    mock_write(m, p->pid, "statm", text, (size_t)n);
    n = snprintf(text, sizeof(text), "Name:\tmock\nTgid:\t%d\nUid:\t1000\t1000\t1000\t1000\n",
                 p->pid);
    mock_write(m, p->pid, "status", text, (size_t)n);
    snprintf(name, sizeof(name), "task/%d/stat", p->pid);
    mock_write(m, p->pid, name, "", 0);
    snprintf(name, sizeof(name), "task/%d/children", p->pid);
    if (p->children != NULL)
        mock_write(m, p->pid, name, p->children, strlen(p->children));
}

void mock_remove(const struct mock *m, int32_t pid)
{
    char path[256];
    /* After a process has died, reads of its open /proc files return no data. */
    mock_write(m, pid, "stat", "", 0);
    mock_write(m, pid, "statm", "", 0);
    snprintf(path, sizeof(path), "%s/%d", m->path, pid);
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
