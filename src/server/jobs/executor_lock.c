/* The lock of a job: held for as long as anything of it lives, and by whom. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/number.h"
#include "server/jobs/executor_private.h"
#include "proc/procfs.h"

static int open_lock(const struct executor *x, int64_t id, int flags)
{
    char name[24];
    struct stat st;
    snprintf(name, sizeof name, "%" PRId64, id);
    int fd = openat(x->locks_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -EBADMSG;
    }
    return fd;
}

int executor_lock_open(const struct executor *x, int64_t id)
{
    return open_lock(x, id, 0);
}

int executor_lock_take(const struct executor *x, int64_t id)
{
    int fd = open_lock(x, id, O_CREAT);
    if (fd < 0)
        return fd;
    int r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
    if (r == 0 && ftruncate(fd, 0) < 0) /* who held it before is of no interest */
        r = -errno;
    if (r < 0) {
        close(fd);
        return r == -EWOULDBLOCK ? -EBUSY : r;
    }
    return fd;
}

int executor_lock_is_held(int lock_fd)
{
    if (flock(lock_fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? 1 : -errno;
    flock(lock_fd, LOCK_UN);
    return 0;
}

int executor_lock_read(int lock_fd, struct executor_holder *ret)
{
    char text[64];
    int64_t pid, ticks;
    ssize_t len = io_pread_small(lock_fd, text, sizeof text);
    if (len < 0)
        return (int)len;
    const char *end = memchr(text, '\n', (size_t)len);
    const char *space = end ? memchr(text, ' ', (size_t)(end - text)) : NULL;
    if (!end)
        return -ENOENT;
    if (!space || number_parse_i64(text, (size_t)(space - text), &pid) < 0 ||
        number_parse_i64(space + 1, (size_t)(end - space - 1), &ticks) < 0 || pid <= 1 ||
        pid > INT32_MAX || ticks < 0)
        return -EBADMSG;
    *ret = (struct executor_holder){.pid = (pid_t)pid, .start_ticks = (uint64_t)ticks};
    return 0;
}

/* The pidfd first: what /proc says afterwards is of the same process, or of none. */
int executor_holder_open(const struct executor_holder *holder)
{
    char path[40], text[1024];
    struct proc_stat stat;
    int fd = io_pidfd_open(holder->pid);
    if (fd < 0)
        return fd;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)holder->pid);
    ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof text);
    if (len > 0 && proc_stat_parse(text, (size_t)len, &stat) == 0 &&
        stat.start_ticks == holder->start_ticks)
        return fd;
    close(fd);
    return -ESRCH;
}
