/* Reads small files of /proc in one read, and large ones in small pieces. */
#include "proc/read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

enum { PATH_BYTES = 64 };

static const char *proc_path(char path[PATH_BYTES], int32_t pid, const char *name)
{
    if (pid == 0)
        snprintf(path, PATH_BYTES, "self/%s", name);
    else
        snprintf(path, PATH_BYTES, "%d/%s", pid, name);
    return path;
}

int proc_open(const struct proc_root *root, int32_t pid, const char *name, int flags)
{
    char path[PATH_BYTES];
    return openat(root->proc_fd, proc_path(path, pid, name), flags | O_CLOEXEC | O_NOCTTY);
}

ssize_t proc_read(const struct proc_root *root, int32_t pid, const char *name, char *buf,
                  size_t size)
{
    char path[PATH_BYTES];
    return io_read_small(root->proc_fd, proc_path(path, pid, name), buf, size);
}

int proc_read_stat(const struct proc_root *root, int32_t pid, struct proc_stat *ret)
{
    char text[1024];
    ssize_t len = proc_read(root, pid, "stat", text, sizeof text);
    return len < 0 ? (int)len : proc_stat_parse(text, (size_t)len, ret);
}

int proc_read_statm(const struct proc_root *root, int32_t pid, struct proc_statm *ret)
{
    char text[256];
    ssize_t len = proc_read(root, pid, "statm", text, sizeof text);
    return len < 0 ? (int)len : proc_statm_parse(text, (size_t)len, ret);
}

int proc_read_meminfo(const struct proc_root *root, struct proc_meminfo *ret)
{
    char text[8192];
    ssize_t len = io_read_small(root->proc_fd, "meminfo", text, sizeof text);
    return len < 0 ? (int)len : proc_meminfo_parse(text, (size_t)len, ret);
}

int cgroup_open(const struct proc_root *root, const char *dir, const char *name, int flags)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return -ENAMETOOLONG;
    int fd = openat(root->cgroup_fd, path, flags | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

ssize_t cgroup_read(const struct proc_root *root, const char *dir, const char *name, char *buf,
                    size_t size)
{
    AUTO_CLOSE int fd = cgroup_open(root, dir, name, O_RDONLY);
    return fd < 0 ? fd : io_pread_small(fd, buf, size);
}

int cgroup_write(const struct proc_root *root, const char *dir, const char *name, const char *text)
{
    AUTO_CLOSE int fd = cgroup_open(root, dir, name, O_WRONLY);
    return fd < 0 ? fd : io_write_all(fd, text, strlen(text));
}

bool cgroup_read_number(const struct proc_root *root, const char *dir, const char *name,
                        uint64_t *ret)
{
    char text[64];
    bool unlimited;
    ssize_t len = cgroup_read(root, dir, name, text, sizeof text);
    return len >= 0 && proc_cgroup_number_parse(text, (size_t)len, &unlimited, ret) == 0 &&
           !unlimited;
}

int pid_dir_open(struct pid_dir *d, int dirfd, const char *path)
{
    d->fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d->len = d->at = 0;
    if (d->fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    return 0;
}

void pid_dir_close(struct pid_dir *d)
{
    close(d->fd);
    d->fd = -1;
}

bool pid_dir_next(struct pid_dir *d, int32_t *ret)
{
    for (;;) {
        if (d->at == d->len) {
            ssize_t n = getdents64(d->fd, d->buf, sizeof d->buf);
            if (n <= 0)
                return false;
            d->len = (size_t)n;
            d->at = 0;
        }
        const struct dirent64 *e = (const void *)(d->buf + d->at);
        d->at += e->d_reclen;
        /* reject a name that begins with digits but is not a pid */
        size_t len = strnlen(e->d_name, 11);
        if (strspn(e->d_name, "0123456789") == len && proc_pids_parse(e->d_name, len, ret, 1) == 1)
            return true;
    }
}

void proc_read_maps(int fd, size_t max_bytes, proc_map_fn *fn, void *user)
{
    char text[8192];
    size_t len = 0, total = 0;
    for (ssize_t n; total < max_bytes && (n = read(fd, text + len, sizeof text - len)) > 0;) {
        len += (size_t)n;
        total += (size_t)n;
        const char *p = text, *last = memrchr(text, '\n', len);
        const char *end = last ? last + 1 : text;
        for (struct proc_map map; proc_maps_next(&p, end, &map) == 1;)
            fn(user, &map);
        len -= (size_t)(end - text);
        /* a full buffer without a newline ends the loop, because no line of maps is that long */
        memmove(text, end, len);
    }
}
