/* Getting the kernel ready to move a process into a v1 group. */
#include "guard/cgroup.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "guard/cgroup_place.h"

enum { STACK_BYTES = 64 << 10 };

static void *move_to_itself(void *user)
{
    int fd = (int)(intptr_t)user;
    (void)!write(fd, "0", 1);
    close(fd);
    return NULL;
}

/* A signal that came to this thread would find none of the handlers of the others. */
static int start(int fd)
{
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t attr;
    int r = -pthread_attr_init(&attr);
    if (r < 0)
        return r;
    sigfillset(&all);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = -pthread_create(&thread, &attr, move_to_itself, (void *)(intptr_t)fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return r;
}

void guard_cgroup_warm(const struct proc_root *root)
{
    struct guard_place own;
    char path[LIMIT_PATH_MAX + 64];
    if (root->cgroup_fd < 0 || guard_place_own(root, false, &own) < 0)
        return;
    snprintf(path, sizeof path, "%s/cgroup.procs", own.group.dir);
    int fd = openat(root->cgroup_fd, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0 && start(fd) < 0)
        close(fd);
}
