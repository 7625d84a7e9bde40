/* Hooks for the functions in PyTorch's libc10.so to which its caching allocators report every GPU
 * block and every failed request, whether or not a profiler is active. libc10_cuda.so calls these
 * functions through the dynamic linker, so its calls reach the hooks first. Each hook calls the
 * real function afterwards. A version of torch that uses other names never calls the hooks. */
#include "heap/hooks.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "heap/gpu.h"
#include "heap/module_names.h"
#include "heap/modules.h"

/* c10::Device: two bytes, passed in a register. */
struct c10_device {
    int8_t type, index;
};
enum { C10_CUDA = 1, C10_HIP = 6 };

#define REPORT_BLOCK "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define REPORT_FAILURE "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"

typedef void report_block_fn(void *p, int64_t size, size_t allocated, size_t reserved,
                             struct c10_device device);
typedef void report_failure_fn(int64_t size, size_t allocated, size_t reserved,
                               struct c10_device device);

/* ---- the real functions ----
 *
 * The hooks call the function that the dynamic linker would have chosen. Among the libraries
 * loaded at program start, this is the first definition after this library's own. If these
 * libraries contain no such definition, it is the one in a library that the caller was linked
 * with, because each copy of torch has its own definition.
 *
 * dlsym is not used, because it could deadlock: the caller holds the lock of a GPU's allocator.
 * Another thread may hold the dynamic linker's lock while it loads a library whose constructor
 * waits for that allocator. From glibc 2.35 on, searching the libraries that the caller was linked
 * with takes no lock. The last resort is dl_iterate_phdr. It takes a different lock, which the
 * dynamic linker does not hold while it runs constructors. */

struct real {
    report_block_fn *block; /* NULL if not found */
    report_failure_fn *failure;
};

enum { BEFORE_MAX = 16 };
/* The real functions found at program start; set only by the constructor. */
static struct real at_start;
/* Load addresses of the libraries that precede this library. */
static uintptr_t bases_before[BEFORE_MAX];
static _Atomic(uint32_t) before_count, has_started;

HOOK void hook_block(void *p, int64_t size, size_t allocated, size_t reserved,
                     struct c10_device device) __asm__(REPORT_BLOCK);
HOOK void hook_failure(int64_t size, size_t allocated, size_t reserved,
                       struct c10_device device) __asm__(REPORT_FAILURE);

/* Hidden aliases. The exported names would resolve to another library if a preceding library
 * defines them. */
extern report_block_fn own_block __attribute__((alias(REPORT_BLOCK))) HEAP_HIDDEN;
extern report_failure_fn own_failure __attribute__((alias(REPORT_FAILURE))) HEAP_HIDDEN;

/* Returns true for a library that precedes this library. If such a library defines the functions,
 * its definitions are hooks too, and they call this library's hooks. Calling them from here would
 * recurse without end. */
static bool is_before_us(uintptr_t base)
{
    uint32_t n = HEAP_LOAD_ACQUIRE(before_count);
    for (uint32_t i = 0; i < n; i++)
        if (bases_before[i] == base)
            return true;
    return false;
}

/* Returns true if the module defines the functions and is not this library. */
static bool find_in(uintptr_t base, const void *headers, size_t count, struct real *ret)
{
    struct module_names names;
    if (!headers || is_before_us(base) || !module_names_of(base, headers, count, &names))
        return false;
    report_block_fn *block =
        HOOKS_FUNCTION(report_block_fn *, module_names_address(&names, REPORT_BLOCK));
    if (!block || block == own_block)
        return false;
    ret->block = block;
    ret->failure =
        HOOKS_FUNCTION(report_failure_fn *, module_names_address(&names, REPORT_FAILURE));
    return true;
}

static int find_behind_us(struct dl_phdr_info *info, size_t size, void *user)
{
    struct module_names names;
    bool *is_behind = user;
    uint32_t n = HEAP_LOAD(before_count);
    (void)size;
    if (*is_behind)
        return find_in(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, &at_start);
    *is_behind = module_names_of(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, &names) &&
                 module_names_address(&names, REPORT_BLOCK) == (void *)(uintptr_t)own_block;
    if (!*is_behind && n < BEFORE_MAX) {
        bases_before[n] = info->dlpi_addr;
        HEAP_STORE_RELEASE(before_count, n + 1);
    }
    return 0;
}

static __attribute__((constructor)) void find_reports_at_start(void)
{
    bool is_behind = false;
    /* If this library was loaded late, calls from other libraries do not reach its hooks. */
    if (!modules_is_late())
        dl_iterate_phdr(find_behind_us, &is_behind);
    HEAP_STORE_RELEASE(has_started, 1);
}

/* Maximum number of relocations to follow. It is small, because before glibc 2.35 finding the
 * library of one address takes a search of all libraries. The first few relocations lead to most
 * libraries that the caller was linked with. */
enum { LOOKS_MAX = 64 };

/* Finds the functions in the libraries that MAP's library calls. MAP's library stays loaded
 * meanwhile, because this thread is running its code; therefore the libraries that it calls stay
 * loaded too. */
static bool find_in_bound(const struct module_map *map, struct real *ret)
{
    struct module_relocations r;
    struct module_map last = {0};
    module_names_relocations(map->base, map->headers, map->header_count, &r);
    for (size_t i = 0, looks = 0; i < r.plt_count && looks < LOOKS_MAX; i++) {
        uintptr_t slot = map->base + r.plt[i].r_offset, to;
        if (slot - map->start > map->end - map->start - sizeof to || slot % sizeof to != 0)
            return false;
        to = __atomic_load_n((const uintptr_t *)slot, __ATOMIC_RELAXED);
        if (to - map->start < map->end - map->start || to - last.start < last.end - last.start)
            continue; /* the symbol is not bound yet, or the library was already searched */
        looks++;
        if (modules_map(to, &last) && find_in(last.base, last.headers, last.header_count, ret))
            return true;
    }
    return false;
}

static bool is_needed(const struct module_map *by, const char *path)
{
    struct module_names names;
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    if (!by->headers || !module_names_of(by->base, by->headers, by->header_count, &names))
        return false;
    for (const ElfW(Dyn) *d = module_names_dynamic(by->base, by->headers, by->header_count);
         d && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_NEEDED && strcmp(&names.names[d->d_un.d_val], file) == 0)
            return true;
    return false;
}

struct search {
    const struct module_map *caller;
    struct real *ret;
};

static int find_in_all(struct dl_phdr_info *info, size_t size, void *user)
{
    struct search *s = user;
    struct real real;
    (void)size;
    if (!find_in(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, &real))
        return 0;
    bool is_last = is_needed(s->caller, info->dlpi_name);
    if (is_last || !s->ret->block)
        *s->ret = real;
    return is_last;
}

/* Finds the real functions for CALLER. After a tail call, CALLER is not the library that made the
 * call, and may have nothing to do with torch. In that case, the first library that defines the
 * functions is used. */
static void find_real(const struct module_map *caller, struct real *ret)
{
    struct search search = {caller, ret};
    if (find_in(caller->base, caller->headers, caller->header_count, ret) ||
        find_in_bound(caller, ret))
        return;
    dl_iterate_phdr(find_in_all, &search);
}

/* ---- cache of the results, by calling library ----
 *
 * All entries become invalid when a library is closed, because another library may then be
 * loaded at the same address. A child of fork keeps its parent's entries. */

enum { CALLERS = 16 };

/* A sequence lock: a copy is valid if TURN was even when copying began and has not changed
 * since. */
struct caller {
    _Atomic(uint32_t) turn; /* odd while the entry is being written, 0 if it is empty */
    _Atomic(uint32_t) closed;
    _Atomic(uintptr_t) start, end, block, failure;
};
static struct caller callers[CALLERS];
static _Atomic(uint32_t) closed_count;

void hooks_gpu_unloaded(void)
{
    HEAP_ADD(closed_count, 1);
}

/* Returns true if the entry is valid and belongs to the library that contains IP. */
static bool read_caller(const struct caller *c, uintptr_t ip, uint32_t *ret_closed,
                        struct real *ret)
{
    uint32_t turn = HEAP_LOAD_ACQUIRE(c->turn);
    uintptr_t start = HEAP_LOAD(c->start), end = HEAP_LOAD(c->end);
    *ret_closed = HEAP_LOAD(c->closed);
    *ret = (struct real){HOOKS_FUNCTION(report_block_fn *, HEAP_LOAD(c->block)),
                         HOOKS_FUNCTION(report_failure_fn *, HEAP_LOAD(c->failure))};
    atomic_thread_fence(memory_order_acquire);
    return turn != 0 && turn % 2 == 0 && HEAP_LOAD(c->turn) == turn && ip - start < end - start;
}

/* Writes an entry. If another thread is writing the entry, writes nothing; the next call then
 * repeats the search. */
static void write_caller(struct caller *c, const struct module_map *map, uint32_t closed,
                         const struct real *real)
{
    uint32_t turn = HEAP_LOAD(c->turn);
    if (turn % 2 != 0 || !atomic_compare_exchange_strong(&c->turn, &turn, turn + 1))
        return;
    atomic_thread_fence(memory_order_release);
    HEAP_STORE(c->closed, closed);
    HEAP_STORE(c->start, map->start);
    HEAP_STORE(c->end, map->end);
    HEAP_STORE(c->block, (uintptr_t)real->block);
    HEAP_STORE(c->failure, (uintptr_t)real->failure);
    HEAP_STORE_RELEASE(c->turn, turn + 2);
}

static HOOKS_COLD struct real find_and_keep(uintptr_t ip, struct caller *place, uint32_t closed)
{
    struct real real = {0};
    struct module_map map;
    int saved = errno;
    if (modules_map(ip, &map)) {
        find_real(&map, &real);
        write_caller(place, &map, closed, &real);
    }
    errno = saved;
    return real;
}

/* Returns the functions that the library containing IP would call if this library were not
 * loaded. */
static struct real real_of(uintptr_t ip)
{
    if (HEAP_LOAD_ACQUIRE(has_started) && at_start.block)
        return at_start;
    uint32_t now = HEAP_LOAD(closed_count), closed;
    struct caller *place = &callers[(ip >> 24) % CALLERS];
    for (size_t i = 0; i < CALLERS; i++) {
        struct real real;
        if (read_caller(&callers[i], ip, &closed, &real)) {
            if (closed == now)
                return real;
            place = &callers[i];
            break;
        }
        if (HEAP_LOAD(callers[i].turn) == 0) {
            place = &callers[i];
            break;
        }
    }
    return find_and_keep(ip, place, now);
}

/* ---- the hooks ---- */

static bool is_gpu(struct c10_device device)
{
    return device.type == C10_CUDA || device.type == C10_HIP;
}

HOOK void hook_block(void *p, int64_t size, size_t allocated, size_t reserved,
                     struct c10_device device)
{
    if (is_gpu(device))
        gpu_block(p, size, allocated, reserved, device.index);
    struct real real = real_of((uintptr_t)__builtin_return_address(0));
    if (real.block)
        real.block(p, size, allocated, reserved, device);
}

HOOK void hook_failure(int64_t size, size_t allocated, size_t reserved, struct c10_device device)
{
    if (is_gpu(device))
        gpu_out_of_memory(size, allocated, reserved, device.index);
    struct real real = real_of((uintptr_t)__builtin_return_address(0));
    if (real.failure && real.failure != own_failure)
        real.failure(size, allocated, reserved, device);
}
