/* Replacements for system call wrappers and small functions that older C libraries lack. */
#include "base/compat.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void *compat_reallocarray(void *array, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(array, bytes);
}

ssize_t compat_getrandom(void *bytes, size_t len, unsigned flags)
{
    return syscall(SYS_getrandom, bytes, len, flags);
}

int compat_memfd_create(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}

ssize_t compat_getdents64(int fd, void *ret, size_t len)
{
    return syscall(SYS_getdents64, fd, ret, len);
}

pid_t compat_gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

void compat_explicit_bzero(void *bytes, size_t len)
{
    memset(bytes, 0, len);
    __asm__ volatile(""
                     :
                     : "r"(bytes)
                     /* makes the compiler assume that the zeros are read, so that it cannot remove
                      * the memset */
                     : "memory");
}

const char *compat_sigabbrev_np(int signo)
{
    static const char *const names[] = {
        [SIGHUP] = "HUP",   [SIGINT] = "INT",       [SIGQUIT] = "QUIT", [SIGILL] = "ILL",
        [SIGTRAP] = "TRAP", [SIGABRT] = "ABRT",     [SIGBUS] = "BUS",   [SIGFPE] = "FPE",
        [SIGKILL] = "KILL", [SIGUSR1] = "USR1",     [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",
        [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM",     [SIGTERM] = "TERM", [SIGSTKFLT] = "STKFLT",
        [SIGCHLD] = "CHLD", [SIGCONT] = "CONT",     [SIGSTOP] = "STOP", [SIGTSTP] = "TSTP",
        [SIGTTIN] = "TTIN", [SIGTTOU] = "TTOU",     [SIGURG] = "URG",   [SIGXCPU] = "XCPU",
        [SIGXFSZ] = "XFSZ", [SIGVTALRM] = "VTALRM", [SIGPROF] = "PROF", [SIGWINCH] = "WINCH",
        [SIGPOLL] = "POLL", [SIGPWR] = "PWR",       [SIGSYS] = "SYS",
    };

    return signo > 0 && signo < (int)(sizeof names / sizeof names[0]) ? names[signo] : NULL;
}

int compat_malloc_trim(size_t pad)
{
    (void)pad;
    return 0;
}

int compat_scandirat(int folder, const char *path, struct dirent ***ret,
                     int (*is_wanted)(const struct dirent *),
                     int (*compare)(const struct dirent **, const struct dirent **))
{
    char place[PATH_MAX];
    int len = snprintf(place, sizeof place, "/proc/self/fd/%d/%s", folder, path);
    if (len >= (int)sizeof place) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return scandir(place, ret, is_wanted, compare);
}
