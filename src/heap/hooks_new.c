/* Hooks for operator new and delete of C++, under their mangled names. Most implementations call
 * malloc, which is hooked. The operators of some allocators never call malloc, or call it only for
 * some sizes. The countdown shows whether malloc was called, because a hooked malloc subtracts the
 * bytes from the countdown. Bytes that were not subtracted are counted here, so that nothing is
 * counted twice. */
#include "heap/hooks.h"

#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "heap/live.h"
#include "heap/module_names.h"
#include "heap/modules.h"
#include "heap/record.h"

#define OPERATORS(X)                                                                               \
    X(_Znwm)                                                                                       \
    X(_Znam)                                                                                       \
    X(_ZnwmRKSt9nothrow_t)                                                                         \
    X(_ZnamRKSt9nothrow_t)                                                                         \
    X(_ZnwmSt11align_val_t)                                                                        \
    X(_ZnamSt11align_val_t)                                                                        \
    X(_ZnwmSt11align_val_tRKSt9nothrow_t)                                                          \
    X(_ZnamSt11align_val_tRKSt9nothrow_t)                                                          \
    X(_ZdlPv)                                                                                      \
    X(_ZdaPv)                                                                                      \
    X(_ZdlPvm)                                                                                     \
    X(_ZdaPvm)                                                                                     \
    X(_ZdlPvRKSt9nothrow_t)                                                                        \
    X(_ZdaPvRKSt9nothrow_t)                                                                        \
    X(_ZdlPvSt11align_val_t)                                                                       \
    X(_ZdaPvSt11align_val_t)                                                                       \
    X(_ZdlPvmSt11align_val_t)                                                                      \
    X(_ZdaPvmSt11align_val_t)                                                                      \
    X(_ZdlPvSt11align_val_tRKSt9nothrow_t)                                                         \
    X(_ZdaPvSt11align_val_tRKSt9nothrow_t)

#define NUMBER(name) NEXT_##name,
#define SYMBOL(name) #name,
enum { OPERATORS(NUMBER) NEXT_COUNT };
static const char *const symbols[NEXT_COUNT] = {OPERATORS(SYMBOL)};
/* Addresses of the wrapped operators; 0 for an operator that was not found yet. */
static _Atomic(uintptr_t) next[NEXT_COUNT];

/* ---- look-up ----
 *
 * The look-up follows the order of the dynamic linker: first the libraries loaded at program
 * start, then the caller's libraries. The second step is needed because libstdc++ may have been
 * loaded later, together with another library.
 *
 * dlsym is not used, because it could deadlock: another thread may hold the linker's lock while
 * it loads a library whose constructor waits for this thread. dl_iterate_phdr takes a different
 * lock, and code of the job runs under that lock only in callbacks that the job passes to
 * dl_iterate_phdr. In a child of fork that lock may stay held for ever, so the first look-up is
 * early and finds all symbols. */

enum rank { AT_START, USUAL, OF_CALLER, ANY, NONE };

struct search {
    uintptr_t caller;
    bool is_behind_us;
    uint32_t modules; /* number of modules visited before this one */
    enum rank rank[NEXT_COUNT];
    uintptr_t found[NEXT_COUNT];
};

/* Number of modules at program start; 0 while the program is starting. */
static _Atomic(uint32_t) modules_at_start;
/* True if some operators were found in libraries that were loaded after the start. */
static _Atomic(uint32_t) has_late;

static enum rank rank_of(const struct dl_phdr_info *info, const struct search *s)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *file = slash ? slash + 1 : info->dlpi_name;
    uint32_t at_start = atomic_load(&modules_at_start);
    if (!at_start || s->modules <= at_start)
        return AT_START;
    if (strcmp(file, "libstdc++.so.6") == 0 || strcmp(file, "libc++.so.1") == 0)
        return USUAL;
    return modules_contain(info, s->caller) ? OF_CALLER : ANY;
}

static int search_in(struct dl_phdr_info *info, size_t size, void *user)
{
    struct search *s = user;
    struct module_names names;
    (void)size;
    s->modules++;
    bool is_us = modules_contain(info, (uintptr_t)next);
    if (!s->is_behind_us || is_us) {
        s->is_behind_us = s->is_behind_us || is_us;
        return 0;
    }
    /* A module that defines any of the operators also defines symbols[0]. */
    if (!module_names_of(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, &names) ||
        !module_names_find(&names, symbols[0]))
        return 0;
    enum rank rank = rank_of(info, s);
    for (int i = 0; i < NEXT_COUNT; i++) {
        uintptr_t at = rank < s->rank[i] ? (uintptr_t)module_names_address(&names, symbols[i]) : 0;
        if (at) {
            s->found[i] = at;
            s->rank[i] = rank;
        }
    }
    return 0;
}

static void search(const void *caller, struct search *ret)
{
    *ret = (struct search){.caller = (uintptr_t)caller, .is_behind_us = modules_is_late()};
    for (int i = 0; i < NEXT_COUNT; i++)
        ret->rank[i] = NONE;
    dl_iterate_phdr(search_in, ret);
    for (int i = 0; i < NEXT_COUNT; i++)
        HEAP_STORE_RELEASE(next[i], ret->found[i]);
}

static HOOKS_COLD uintptr_t find_operator(int number, uintptr_t otherwise, const void *caller)
{
    int saved = errno;
    struct search s;
    search(caller, &s);
    if (s.rank[number] != AT_START)
        atomic_store(&has_late, 1);
    if (!s.found[number])
        HEAP_STORE_RELEASE(next[number], otherwise);
    errno = saved;
    return s.found[number] ? s.found[number] : otherwise;
}

static __attribute__((constructor)) void find_at_start(void)
{
    struct search s;
    search(NULL, &s);
    atomic_store(&modules_at_start, s.modules);
}

void hooks_new_unloaded(void)
{
    struct search s;
    if (atomic_load(&has_late))
        search(NULL, &s);
}

/* ---- fallbacks for a process without a C++ library, which can neither throw nor catch ---- */

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

/* NOLINTBEGIN(bugprone-macro-parentheses): the macro's arguments are in parentheses already */
#define NEW(name, otherwise, parameters, types, arguments)                                         \
    HOOK void *name parameters;                                                                    \
    HOOK void *name parameters                                                                     \
    {                                                                                              \
        uintptr_t f = HEAP_LOAD_ACQUIRE(next[NEXT_##name]);                                        \
        if (HEAP_UNLIKELY(!f))                                                                     \
            f = find_operator(NEXT_##name, (uintptr_t)otherwise, __builtin_return_address(0));     \
        int64_t before = heap_thread.countdown;                                                    \
        void *p = HOOKS_FUNCTION(void *(*)types, f) arguments;                                     \
        if (HEAP_UNLIKELY(heap_thread.countdown == before))                                        \
            count_new(p, size);                                                                    \
        return p;                                                                                  \
    }

#define DELETE(name, parameters, types, arguments)                                                 \
    HOOK void name parameters;                                                                     \
    HOOK void name parameters                                                                      \
    {                                                                                              \
        uintptr_t f = HEAP_LOAD_ACQUIRE(next[NEXT_##name]);                                        \
        if (HEAP_UNLIKELY(!f))                                                                     \
            f = find_operator(NEXT_##name, (uintptr_t)free, __builtin_return_address(0));          \
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
