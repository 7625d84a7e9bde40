/* operator new and delete of C++, under their mangled names.
 *
 * Most call malloc, which is hooked; an allocator's own may, or may not, or only for some sizes.
 * The countdown tells: what was not taken from it during the call is counted here, so that nothing
 * is counted twice. */
#include "heap/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "heap/live.h"
#include "heap/record.h"

struct next {
    const char *name;
    _Atomic(uintptr_t) function; /* 0: not looked up yet */
};

/* As the dynamic linker would have without us: among the libraries of the program's start, else
 * those of the caller, for libstdc++ may have come with a library that was loaded later. A library
 * that is found so is not let go again: its function is kept. */
static void *search(const char *name, const void *caller)
{
    static const char *const usual[] = {"libstdc++.so.6", "libc++.so.1"};
    void *found = dlsym(RTLD_NEXT, name);
    for (size_t i = 0; !found && i < sizeof(usual) / sizeof(usual[0]); i++) {
        void *library = dlopen(usual[i], RTLD_LAZY | RTLD_NOLOAD);
        found = library ? dlsym(library, name) : NULL;
    }
    Dl_info info;
    if (!found && dladdr(caller, &info) && info.dli_fname) {
        void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        found = library ? dlsym(library, name) : NULL;
    }
    return found;
}

static HOOKS_COLD uintptr_t find(struct next *n, uintptr_t otherwise, const void *caller)
{
    int saved = errno;
    uintptr_t found = (uintptr_t)search(n->name, caller);
    if (!found)
        found = otherwise;
    atomic_store_explicit(&n->function, found, memory_order_release);
    errno = saved;
    return found;
}

/* ---- where there is no C++ library at all: nothing could be thrown, or caught ---- */

static void *plain_or_null(size_t size)
{
    return malloc(size ? size : 1);
}

static void *plain(size_t size)
{
    void *p = plain_or_null(size);
    if (!p)
        abort();
    return p;
}

static void *aligned_or_null(size_t size, size_t alignment)
{
    void *p;
    return posix_memalign(&p, alignment, size ? size : 1) == 0 ? p : NULL;
}

static void *aligned(size_t size, size_t alignment)
{
    void *p = aligned_or_null(size, alignment);
    if (!p)
        abort();
    return p;
}

/* ---- the hooks ---- */

static void count_new(void *p, size_t size)
{
    if (p && !hooks_count(size))
        hooks_sample(p, size, size, HEAP_KIND_NEW);
}

/* NOLINTBEGIN(bugprone-macro-parentheses): parameters, their types and arguments come in their own
 */
#define NEW(name, otherwise, parameters, types, arguments)                                         \
    static struct next next_##name = {#name, 0};                                                   \
    HOOK void *name parameters;                                                                    \
    HOOK void *name parameters                                                                     \
    {                                                                                              \
        uintptr_t f = atomic_load_explicit(&next_##name.function, memory_order_acquire);           \
        if (HEAP_UNLIKELY(!f))                                                                     \
            f = find(&next_##name, (uintptr_t)otherwise, __builtin_return_address(0));             \
        int64_t before = heap_thread.countdown;                                                    \
        void *p = HOOKS_FUNCTION(void *(*)types, f) arguments;                                     \
        if (HEAP_UNLIKELY(heap_thread.countdown == before))                                        \
            count_new(p, size);                                                                    \
        return p;                                                                                  \
    }

#define DELETE(name, parameters, types, arguments)                                                 \
    static struct next next_##name = {#name, 0};                                                   \
    HOOK void name parameters;                                                                     \
    HOOK void name parameters                                                                      \
    {                                                                                              \
        uintptr_t f = atomic_load_explicit(&next_##name.function, memory_order_acquire);           \
        if (HEAP_UNLIKELY(!f))                                                                     \
            f = find(&next_##name, (uintptr_t)free, __builtin_return_address(0));                  \
        if (HEAP_UNLIKELY(live_maybe(p)))                                                          \
            record_end(p);                                                                         \
        HOOKS_FUNCTION(void(*) types, f) arguments;                                                \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

NEW(_Znwm, plain, (size_t size), (size_t), (size))
NEW(_Znam, plain, (size_t size), (size_t), (size))
NEW(_ZnwmRKSt9nothrow_t, plain_or_null, (size_t size, const void *no), (size_t, const void *),
    (size, no))
NEW(_ZnamRKSt9nothrow_t, plain_or_null, (size_t size, const void *no), (size_t, const void *),
    (size, no))
NEW(_ZnwmSt11align_val_t, aligned, (size_t size, size_t to), (size_t, size_t), (size, to))
NEW(_ZnamSt11align_val_t, aligned, (size_t size, size_t to), (size_t, size_t), (size, to))
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, aligned_or_null, (size_t size, size_t to, const void *no),
    (size_t, size_t, const void *), (size, to, no))
NEW(_ZnamSt11align_val_tRKSt9nothrow_t, aligned_or_null, (size_t size, size_t to, const void *no),
    (size_t, size_t, const void *), (size, to, no))

DELETE(_ZdlPv, (void *p), (void *), (p))
DELETE(_ZdaPv, (void *p), (void *), (p))
DELETE(_ZdlPvm, (void *p, size_t size), (void *, size_t), (p, size))
DELETE(_ZdaPvm, (void *p, size_t size), (void *, size_t), (p, size))
DELETE(_ZdlPvRKSt9nothrow_t, (void *p, const void *no), (void *, const void *), (p, no))
DELETE(_ZdaPvRKSt9nothrow_t, (void *p, const void *no), (void *, const void *), (p, no))
DELETE(_ZdlPvSt11align_val_t, (void *p, size_t to), (void *, size_t), (p, to))
DELETE(_ZdaPvSt11align_val_t, (void *p, size_t to), (void *, size_t), (p, to))
DELETE(_ZdlPvmSt11align_val_t, (void *p, size_t size, size_t to), (void *, size_t, size_t),
       (p, size, to))
DELETE(_ZdaPvmSt11align_val_t, (void *p, size_t size, size_t to), (void *, size_t, size_t),
       (p, size, to))
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t to, const void *no),
       (void *, size_t, const void *), (p, to, no))
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t to, const void *no),
       (void *, size_t, const void *), (p, to, no))
