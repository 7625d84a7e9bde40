/* A preloaded library that simulates a file server that does not respond: calls that access a given
 * folder block. $HANG_FILE is the path of a file with one line, "PATH" or "WHO PATH"; WHO is a
 * comma-separated list of pids and process names. While that file exists, calls that access PATH or
 * anything below it block, in all processes or only in WHO. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Returns true if this process is in the list WHO, which ends with a space. */
static bool is_one_of(char *who)
{
    char pid[16], name[16] = "";
    bool is_found = false;
    snprintf(pid, sizeof pid, "%d", getpid());
    prctl(PR_GET_NAME, name);
    who[strcspn(who, " ")] = '\0';
    for (char *rest = who, *word; (word = strsep(&rest, ","));)
        is_found = is_found || strcmp(word, pid) == 0 || strcmp(word, name) == 0;
    return is_found;
}

/* Returns PATH from $HANG_FILE, or NULL if this process is not affected. */
static const char *hanging_path(char text[PATH_MAX])
{
    const char *file = getenv("HANG_FILE");
    long fd = file ? syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (fd < 0)
        return NULL;
    long len = syscall(SYS_read, fd, text, PATH_MAX - 1);
    syscall(SYS_close, fd);
    text[len > 0 ? len : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    char *path = strchr(text, '/');
    return path && (path == text || is_one_of(text)) ? path : NULL;
}

static bool is_below(int dirfd, const char *name, const char *path)
{
    char link[40], full[2 * PATH_MAX];
    long len = 0;
    if (!name || *name != '/') {
        snprintf(link, sizeof link, dirfd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d",
                 dirfd);
        len = syscall(SYS_readlinkat, AT_FDCWD, link, full, PATH_MAX - 1);
        if (len < 0)
            return false;
    }
    snprintf(full + len, sizeof full - (size_t)len, "%s%s", len && name ? "/" : "",
             name ? name : "");
    size_t n = strlen(path);
    return strncmp(full, path, n) == 0 && (!full[n] || full[n] == '/');
}

static void wait_for_folder(int dirfd, const char *name)
{
    char text[PATH_MAX];
    const char *path;
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    while ((path = hanging_path(text)) && is_below(dirfd, name, path))
        nanosleep(&pause, NULL);
}

/* Defines a replacement for the libc function SYMBOL under another C name, because the headers
 * declare SYMBOL with other types or attributes. */
#define REPLACE(SYMBOL, RESULT, NAME, ...)                                                         \
    __attribute__((visibility("default"))) RESULT NAME(__VA_ARGS__) __asm__(SYMBOL);               \
    RESULT NAME(__VA_ARGS__)

#define REPLACE_OPENAT(SYMBOL, NAME)                                                               \
    REPLACE(SYMBOL, int, NAME, int dirfd, const char *path, int flags, mode_t mode)                \
    {                                                                                              \
        wait_for_folder(dirfd, path);                                                              \
        return (int)syscall(SYS_openat, dirfd, path, flags, mode);                                 \
    }
REPLACE_OPENAT("openat", hang_openat)
REPLACE_OPENAT("openat64", hang_openat64)

#define REPLACE_OPEN(SYMBOL, NAME)                                                                 \
    REPLACE(SYMBOL, int, NAME, const char *path, int flags, mode_t mode)                           \
    {                                                                                              \
        return hang_openat(AT_FDCWD, path, flags, mode);                                           \
    }
REPLACE_OPEN("open", hang_open)
REPLACE_OPEN("open64", hang_open64)

REPLACE("__openat_2", int, hang_openat_2, int dirfd, const char *path, int flags)
{
    return hang_openat(dirfd, path, flags, 0);
}

REPLACE("stat", int, hang_stat, const char *path, struct stat *st)
{
    wait_for_folder(AT_FDCWD, path);
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, 0);
}

REPLACE("access", int, hang_access, const char *path, int mode)
{
    wait_for_folder(AT_FDCWD, path);
    return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

REPLACE("mkdir", int, hang_mkdir, const char *path, mode_t mode)
{
    wait_for_folder(AT_FDCWD, path);
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

REPLACE("fstatat", int, hang_fstatat, int dirfd, const char *path, struct stat *st, int flags)
{
    wait_for_folder(dirfd, path);
    return (int)syscall(SYS_newfstatat, dirfd, path, st, flags);
}

REPLACE("fstatvfs", int, hang_fstatvfs, int fd, void *ret)
{
    static int (*next)(int, void *);
    wait_for_folder(fd, NULL);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fstatvfs");
    return next(fd, ret);
}

REPLACE("read", ssize_t, hang_read, int fd, void *buf, size_t len)
{
    wait_for_folder(fd, NULL);
    return syscall(SYS_read, fd, buf, len);
}

REPLACE("pread", ssize_t, hang_pread, int fd, void *buf, size_t len, off_t at)
{
    wait_for_folder(fd, NULL);
    return syscall(SYS_pread64, fd, buf, len, at);
}

REPLACE("pread64", ssize_t, hang_pread64, int fd, void *buf, size_t len, off_t at)
{
    return hang_pread(fd, buf, len, at);
}

REPLACE("sendfile64", ssize_t, hang_sendfile64, int out, int in, off_t *at, size_t len)
{
    wait_for_folder(in, NULL);
    return syscall(SYS_sendfile, out, in, at, len);
}

REPLACE("unlinkat", int, hang_unlinkat, int dirfd, const char *path, int flags)
{
    wait_for_folder(dirfd, path);
    return (int)syscall(SYS_unlinkat, dirfd, path, flags);
}

REPLACE("unlink", int, hang_unlink, const char *path)
{
    return hang_unlinkat(AT_FDCWD, path, 0);
}

REPLACE("renameat", int, hang_renameat, int from_fd, const char *from, int to_fd, const char *to)
{
    wait_for_folder(from_fd, from);
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}

REPLACE("faccessat", int, hang_faccessat, int dirfd, const char *path, int mode, int flags)
{
    (void)flags;
    wait_for_folder(dirfd, path);
    return (int)syscall(SYS_faccessat, dirfd, path, mode);
}
