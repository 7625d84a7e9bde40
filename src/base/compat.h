/* Replacements for functions that glibc added in versions 2.25 to 2.32 or that musl lacks. If the C
 * library lacks any of them, the build includes this header before every source file
 * (cmake/compat.cmake), and macros redirect the calls. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct dirent;

void *compat_reallocarray(void *array, size_t count, size_t size);
ssize_t compat_getrandom(void *bytes, size_t len, unsigned flags);
int compat_memfd_create(const char *name, unsigned flags);
ssize_t compat_getdents64(int fd, void *ret, size_t len);
pid_t compat_gettid(void);
void compat_explicit_bzero(void *bytes, size_t len);
/* The name of a signal without SIG: "TERM" for SIGTERM. NULL for real-time signals and invalid
 * numbers. */
const char *compat_sigabbrev_np(int signo);
/* Does nothing: musl cannot return free memory to the system. */
int compat_malloc_trim(size_t pad);
int compat_scandirat(int folder, const char *path, struct dirent ***ret,
                     int (*is_wanted)(const struct dirent *),
                     int (*compare)(const struct dirent **, const struct dirent **));

#ifdef EBB_NO_REALLOCARRAY
#define reallocarray compat_reallocarray
#endif
#ifdef EBB_NO_GETRANDOM
#define getrandom compat_getrandom
#ifndef GRND_NONBLOCK
#define GRND_NONBLOCK 0x0001
#endif
#endif
#ifdef EBB_NO_MEMFD_CREATE
#define memfd_create compat_memfd_create
#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 0x0001U
#define MFD_ALLOW_SEALING 0x0002U
#endif
#endif
#ifdef EBB_NO_GETDENTS64
#define getdents64 compat_getdents64
#ifndef __GLIBC__
#define dirent64 dirent
#endif
#endif
#ifdef EBB_NO_GETTID
#define gettid compat_gettid
#endif
#ifdef EBB_NO_EXPLICIT_BZERO
/* string.h is included before the macro is defined, because string.h may define the function
 * inline */
#include <string.h>
#define explicit_bzero compat_explicit_bzero
#endif
#ifdef EBB_NO_SIGABBREV_NP
#define sigabbrev_np compat_sigabbrev_np
#endif
#ifdef EBB_NO_MALLOC_TRIM
#define malloc_trim compat_malloc_trim
#endif
#ifdef EBB_NO_SCANDIRAT
#define scandirat compat_scandirat
#endif
