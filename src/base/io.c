/* Reads and writes whole files. Interrupted and short system calls are retried. */
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

enum { TEMPORARY_BYTES = 8 };

static ssize_t read_once(int fd, void *data, size_t size)
{
    ssize_t n;
    do
        n = read(fd, data, size);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static int open_for_reading(int dirfd, const char *path)
{
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

ssize_t io_read_small(int dirfd, const char *path, char *buf, size_t size)
{
    if (size == 0)
        return -EINVAL;
    AUTO_CLOSE int fd = open_for_reading(dirfd, path);
    if (fd < 0)
        return fd;
    size_t len = 0;
    while (len < size - 1) {
        ssize_t n = read_once(fd, buf + len, size - 1 - len);
        if (n < 0)
            return n;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    buf[len] = '\0';
    return (ssize_t)len;
}

ssize_t io_pread_small(int fd, char *buf, size_t size)
{
    if (size == 0)
        return -EINVAL;
    ssize_t n;
    do
        n = pread(fd, buf, size - 1, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    buf[n] = '\0';
    return n;
}

static int read_fd_whole(int fd, size_t max, struct buf *ret)
{
    enum { STEP = 64 * 1024 };
    const size_t before = ret->len;
    for (;;) {
        /* reads one byte beyond the maximum, to detect files that are too large */
        size_t allowed = max - (ret->len - before);
        size_t step = allowed < STEP ? allowed + 1 : STEP;
        ssize_t n = buf_reserve(ret, step);
        if (n == 0)
            n = read_once(fd, ret->data + ret->len, step);
        if (n == 0)
            return 0;
        if (n < 0 || (size_t)n > allowed) {
            ret->len = before;
            return n < 0 ? (int)n : -EFBIG;
        }
        ret->len += (size_t)n;
    }
}

int io_read_all(int dirfd, const char *path, size_t max, struct buf *ret)
{
    AUTO_CLOSE int fd = open_for_reading(dirfd, path);
    return fd < 0 ? fd : read_fd_whole(fd, max, ret);
}

int io_read_plain(int dirfd, const char *path, size_t max, struct buf *ret)
{
    struct stat st;
    AUTO_CLOSE int fd =
        openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) ? read_fd_whole(fd, max, ret) : -EBADMSG;
}

DIR *io_open_folder(int dirfd, const char *path)
{
    int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        cleanup_close(&fd);
    return dir;
}

int io_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EIO;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int io_random_hex(size_t bytes, char *ret)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char random[64];
    ssize_t n;
    if (bytes > sizeof random)
        return -EINVAL;
    do
        n = getrandom(random, bytes, 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)bytes)
        return -EIO;
    for (size_t i = 0; i < bytes; i++) {
        ret[2 * i] = digits[random[i] >> 4];
        ret[2 * i + 1] = digits[random[i] & 15];
    }
    ret[2 * bytes] = '\0';
    return 0;
}

/* The temporary file has an unpredictable name, ".BASE.tmp.RANDOM", because other programs,
 * possibly hostile ones, can create files in the same folder. */
int io_create_temporary(int folder, const char *base, char *name, size_t size)
{
    char random[2 * TEMPORARY_BYTES + 1];
    int r = io_random_hex(TEMPORARY_BYTES, random);
    if (r < 0)
        return r;
    int n = snprintf(name, size, ".%s.tmp.%s", base, random);
    if (n < 0 || (size_t)n >= size)
        return -ENAMETOOLONG;
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return fd < 0 ? -errno : fd;
}

static bool is_temporary(const char *name, const char *base)
{
    static const char middle[] = ".tmp.";
    size_t len = strlen(base);
    if (name[0] != '.' || strncmp(name + 1, base, len) != 0 ||
        strncmp(name + 1 + len, middle, sizeof middle - 1) != 0)
        return false;
    const char *random = name + 1 + len + sizeof middle - 1;
    size_t digits = strspn(random, "0123456789abcdef");
    return digits == (size_t)2 * TEMPORARY_BYTES && random[digits] == '\0';
}

void io_remove_temporaries(int folder, const char *base)
{
    DIR *dir = io_open_folder(folder, ".");
    if (!dir)
        return;
    for (const struct dirent *e; (e = readdir(dir));)
        if (is_temporary(e->d_name, base))
            unlinkat(folder, e->d_name, 0);
    closedir(dir);
}

static int fill_durably(int fd, const void *data, size_t len)
{
    int r = io_write_all(fd, data, len);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (close(fd) < 0 && r == 0 && errno != EINTR)
        r = -errno;
    return r;
}

static int replace_in_folder(int folder, const char *base, const void *data, size_t len)
{
    char temporary[512];
    int fd = io_create_temporary(folder, base, temporary, sizeof temporary);
    if (fd < 0)
        return fd;
    int r = fill_durably(fd, data, len);
    if (r == 0 && renameat(folder, temporary, folder, base) < 0)
        r = -errno;
    if (r < 0) {
        unlinkat(folder, temporary, 0);
        return r;
    }
    /* fsync of a folder fails with EINVAL on some file systems; the rename succeeded anyway */
    if (fsync(folder) < 0 && errno != EINVAL)
        return -errno;
    return 0;
}

int io_replace_file(int dirfd, const char *name, const void *data, size_t len)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    if (!*base)
        return -EISDIR;
    AUTO_FREE char *path = !slash          ? strdup(".")
                           : slash == name ? strdup("/")
                                           : strndup(name, (size_t)(slash - name));
    if (!path)
        return -ENOMEM;
    AUTO_CLOSE int folder = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return -errno;
    return replace_in_folder(folder, base, data, len);
}

/* Creates one folder. Returns 0 if PATH is a folder afterwards, even if another process created
 * it. */
static int make_one(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return 0;
    int r = -errno;
    struct stat st;
    if (stat(path, &st) < 0)
        return r;
    /* the folder is checked after every error, because mkdir of an existing folder on a read-only
     * mount may return EROFS */
    if (S_ISDIR(st.st_mode))
        return 0;
    return r == -EEXIST ? -ENOTDIR : r;
}

int io_mkdir_parents(const char *path)
{
    if (!*path)
        return -ENOENT;
    AUTO_FREE char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    for (char *p = copy + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        int r = make_one(copy);
        *p = '/';
        if (r < 0)
            return r;
    }
    return make_one(copy);
}

int io_pidfd_open(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -errno : fd;
}
