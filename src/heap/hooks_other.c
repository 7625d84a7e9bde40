/* Hooks for calls that do not allocate but after which the library must behave differently. */
#include "heap/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "heap/life.h"
#include "heap/modules.h"

HOOK int dlclose(void *handle)
{
    if (!hooks_resolve() || !hooks_real.dlclose)
        return -1;
    int result = hooks_real.dlclose(handle);
    modules_changed();
    hooks_new_unloaded();
    hooks_gpu_unloaded();
    return result;
}

/* Called when the job is about to enter a sandbox, which may kill the job for any system call that
 * the library makes. */
static void note_sandbox(void)
{
    HEAP_STORE(heap_process.is_confined, 1);
}

static bool is_sandbox(unsigned long option)
{
    return option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP;
}

HOOK int prctl(int option, ...)
{
    va_list rest;
    va_start(rest, option);
    unsigned long a[4];
    for (int i = 0; i < 4; i++)
        a[i] = va_arg(rest, unsigned long);
    va_end(rest);
    if (is_sandbox((unsigned)option))
        note_sandbox();
    if (!hooks_resolve() || !hooks_real.prctl)
        return (int)syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]);
    return hooks_real.prctl(option, a[0], a[1], a[2], a[3]);
}

/* ---- syscall(), with which libseccomp and others set up a sandbox ---- */

#if defined(__x86_64__) || defined(__aarch64__)

/* Makes a system call directly, for calls before the real syscall function is known. */
static long call_kernel(long number, const long a[6])
{
#if defined(__x86_64__)
    register long r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4], r9 __asm__("r9") = a[5];
    long r = number;
    __asm__ volatile("syscall"
                     : "+a"(r)
                     : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#else
    register long x8 __asm__("x8") = number, x1 __asm__("x1") = a[1], x2 __asm__("x2") = a[2],
                     x3 __asm__("x3") = a[3], x4 __asm__("x4") = a[4], x5 __asm__("x5") = a[5];
    register long r __asm__("x0") = a[0];
    __asm__ volatile("svc #0"
                     : "+r"(r)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
#endif
    if ((unsigned long)r < -4095UL)
        return r;
    errno = (int)-r;
    return -1;
}

/* Hooks syscall. Like the real function, it always reads six arguments, even if the caller passes
 * fewer. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): libc's name is reserved */
HOOK long syscall(long number, ...)
{
    va_list rest;
    long a[6];
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_seccomp || (number == SYS_prctl && is_sandbox((unsigned long)a[0])))
        note_sandbox();
    if (!hooks_real.syscall)
        return call_kernel(number, a);
    return hooks_real.syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#endif

/* ---- a sanitizer's runtime in the job ----
 *
 * When a sanitizer's runtime starts, it calls these functions to get its settings. Defining them
 * is how this library detects the sanitizer before the first sample. The runtime tracks every
 * block itself and reports invalid calls, so from then on the hooks only forward calls. */

/* Stops the hooks from calling malloc_usable_size, where the runtime would report an invalid
 * pointer as an error of the job. */
#define SANITIZER(name, settings)                                                                  \
    HOOK const char *name(void);                                                                   \
    HOOK const char *name(void)                                                                    \
    {                                                                                              \
        hooks_real.malloc_usable_size = NULL;                                                      \
        life_give_up();                                                                            \
        return settings;                                                                           \
    }

/* By default, AddressSanitizer aborts the job if another library, such as this one, precedes its
 * runtime. */
SANITIZER(__asan_default_options, "verify_asan_link_order=0")
SANITIZER(__hwasan_default_options, "")
SANITIZER(__lsan_default_options, "")
SANITIZER(__tsan_default_options, "")
