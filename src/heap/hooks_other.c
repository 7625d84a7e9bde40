/* Calls that allocate nothing, but after which the library has to behave differently. */
#include "heap/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "heap/modules.h"

HOOK int dlclose(void *handle)
{
    if (!hooks_look() || !hooks_real.dlclose)
        return -1;
    int result = hooks_real.dlclose(handle);
    modules_changed();
    hooks_new_unloaded();
    return result;
}

/* A sandbox comes next: a system call that it does not expect may be the end of the job. */
HOOK int prctl(int option, ...)
{
    va_list rest;
    va_start(rest, option);
    unsigned long a[4];
    for (int i = 0; i < 4; i++)
        a[i] = va_arg(rest, unsigned long);
    va_end(rest);
    if (option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP)
        atomic_store_explicit(&heap_process.is_confined, 1, memory_order_relaxed);
    if (!hooks_look() || !hooks_real.prctl)
        return (int)syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]);
    return hooks_real.prctl(option, a[0], a[1], a[2], a[3]);
}
