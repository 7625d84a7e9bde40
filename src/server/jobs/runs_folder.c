/* Opens the folder that contains all run folders, in a thread because the call may hang. */
#include "server/jobs/runs_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/thread.h"
#include "server/jobs/store_private.h"

enum { OPENER_STACK_BYTES = 256 << 10 };

struct runs_folder {
    char *path;
    int (*prepare)(int fd);
    atomic_int fd; /* -1: not open */
    atomic_bool is_remote;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    bool is_opener_running;
    int result; /* result of the last opener thread */
};

static int open_folder(struct runs_folder *f)
{
    struct statfs fs;
    int r = io_mkdir_parents(f->path);
    if (r < 0)
        return r;
    int fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = fchmod(fd, 0700) < 0 ? -errno : 0;
    if (r == 0 && f->prepare)
        r = f->prepare(fd);
    if (r < 0) {
        close(fd);
        return r;
    }
    atomic_store(&f->is_remote, fstatfs(fd, &fs) == 0 && !store_is_local((long)fs.f_type));
    return fd;
}

int runs_folder_fd(struct runs_folder *f)
{
    int fd = atomic_load(&f->fd);
    return fd < 0 ? -EIO : fd;
}

bool runs_folder_is_open(struct runs_folder *f)
{
    return atomic_load(&f->fd) >= 0;
}

bool runs_folder_is_remote(struct runs_folder *f)
{
    return atomic_load(&f->is_remote);
}

static void *be_opener(void *user)
{
    struct runs_folder *f = user;
    int fd = open_folder(f);
    pthread_mutex_lock(&f->lock);
    if (fd >= 0)
        atomic_store(&f->fd, fd);
    f->result = fd < 0 ? fd : 0;
    f->is_opener_running = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

int runs_folder_open(struct runs_folder *f, uint64_t wait_ns)
{
    const struct timespec until = thread_deadline(wait_ns);
    if (runs_folder_is_open(f))
        return 0;
    pthread_mutex_lock(&f->lock);
    int r = 0;
    if (!f->is_opener_running) {
        pthread_t thread;
        r = thread_start(OPENER_STACK_BYTES, be_opener, f, &thread);
        f->is_opener_running = r == 0;
        f->result = -ETIMEDOUT;
        if (r == 0)
            pthread_detach(thread);
    }
    while (r == 0 && f->is_opener_running)
        r = -pthread_cond_timedwait(&f->changed, &f->lock, &until);
    if (r == 0)
        r = f->result;
    pthread_mutex_unlock(&f->lock);
    return r;
}

int runs_folder_new(const char *path, int (*prepare)(int fd), struct runs_folder **ret)
{
    struct runs_folder *f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    f->path = strdup(path);
    f->prepare = prepare;
    atomic_init(&f->fd, -1);
    pthread_mutex_init(&f->lock, NULL);
    thread_cond_init(&f->changed);
    *ret = f;
    if (f->path)
        return 0;
    runs_folder_free(f);
    return -ENOMEM;
}

void runs_folder_free(struct runs_folder *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    bool is_used = f->is_opener_running;
    pthread_mutex_unlock(&f->lock);
    if (is_used)
        return;
    int fd = atomic_load(&f->fd);
    close_fd(&fd);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    free(f->path);
    free(f);
}
