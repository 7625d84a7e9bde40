/* operator new and delete of C++, under their mangled names.
 *
 * Most call malloc, which is hooked; an allocator's own may, or may not, or only for some sizes.
 * The countdown tells: what was not taken from it during the call is counted here, so that nothing
 * is counted twice. */
#include "heap/hooks.h"

#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "heap/live.h"
#include "heap/module_names.h"
#include "heap/record.h"

struct next {
    const char *symbol;
    _Atomic(uintptr_t) function; /* 0: not looked up yet */
    struct next *rest;           /* of those that were found after the start */
    _Atomic(uint32_t) is_late;
};

static _Atomic(struct next *) late;
static _Atomic(uint32_t) is_started;

/* ---- finding them ----
 *
 * As the dynamic linker would have without us: among the libraries of the program's start, else
 * those of the caller, for libstdc++ may have come with a library that was loaded later. Not by
 * dlsym: its lock may be held by a thread that loads a library, whose constructor may wait for this
 * thread. The lock of dl_iterate_phdr is never held while code of the job's runs, but for its own
 * calls of that function. */

enum rank { USUAL, OF_CALLER, ANY, NONE };

struct search {
    const char *name;
    uintptr_t caller;
    bool is_behind_us;
    enum rank rank;
    uintptr_t found;
};

static bool is_within(const struct dl_phdr_info *info, uintptr_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type == PT_LOAD && address - (info->dlpi_addr + h->p_vaddr) < h->p_memsz)
            return true;
    }
    return false;
}

static enum rank rank_of(const struct dl_phdr_info *info, uintptr_t caller)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *file = slash ? slash + 1 : info->dlpi_name;
    if (!atomic_load(&is_started))
        return ANY;
    if (strcmp(file, "libstdc++.so.6") == 0 || strcmp(file, "libc++.so.1") == 0)
        return USUAL;
    return is_within(info, caller) ? OF_CALLER : ANY;
}

static int search_in(struct dl_phdr_info *info, size_t size, void *user)
{
    struct search *s = user;
    struct module_names names;
    (void)size;
    if (!s->is_behind_us) {
        s->is_behind_us = is_within(info, (uintptr_t)&late);
        return 0;
    }
    enum rank rank = rank_of(info, s->caller);
    if (rank >= s->rank ||
        !module_names_of(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, &names))
        return 0;
    uintptr_t at = (uintptr_t)module_names_address(&names, s->name);
    if (at) {
        s->found = at;
        s->rank = rank;
    }
    return 0;
}

static uintptr_t search(const char *name, const void *caller)
{
    struct search s = {.name = name, .caller = (uintptr_t)caller, .rank = NONE};
    dl_iterate_phdr(search_in, &s);
    return s.found;
}

/* Its library may be unloaded. */
static void note_late(struct next *n)
{
    if (!atomic_load(&is_started) || atomic_exchange(&n->is_late, 1))
        return;
    n->rest = atomic_load(&late);
    while (!atomic_compare_exchange_weak(&late, &n->rest, n))
        ;
}

static HOOKS_COLD uintptr_t find(struct next *n, uintptr_t otherwise, const void *caller)
{
    int saved = errno;
    uintptr_t found = search(n->symbol, caller);
    if (!found)
        found = otherwise;
    note_late(n);
    atomic_store_explicit(&n->function, found, memory_order_release);
    errno = saved;
    return found;
}

void hooks_new_unloaded(void)
{
    for (struct next *n = atomic_load(&late); n; n = n->rest)
        atomic_store_explicit(&n->function, 0, memory_order_release);
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
    static struct next next_##name = {.symbol = #name};                                            \
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
    static struct next next_##name = {.symbol = #name};                                            \
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

/* ---- at the start: what is found now is there for good ---- */

static struct next *const all[] = {
    &next__Znwm,
    &next__Znam,
    &next__ZnwmRKSt9nothrow_t,
    &next__ZnamRKSt9nothrow_t,
    &next__ZnwmSt11align_val_t,
    &next__ZnamSt11align_val_t,
    &next__ZnwmSt11align_val_tRKSt9nothrow_t,
    &next__ZnamSt11align_val_tRKSt9nothrow_t,
    &next__ZdlPv,
    &next__ZdaPv,
    &next__ZdlPvm,
    &next__ZdaPvm,
    &next__ZdlPvRKSt9nothrow_t,
    &next__ZdaPvRKSt9nothrow_t,
    &next__ZdlPvSt11align_val_t,
    &next__ZdaPvSt11align_val_t,
    &next__ZdlPvmSt11align_val_t,
    &next__ZdaPvmSt11align_val_t,
    &next__ZdlPvSt11align_val_tRKSt9nothrow_t,
    &next__ZdaPvSt11align_val_tRKSt9nothrow_t,
};

static __attribute__((constructor)) void find_at_start(void)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        atomic_store(&all[i]->function, search(all[i]->symbol, NULL));
    atomic_store(&is_started, 1);
}
