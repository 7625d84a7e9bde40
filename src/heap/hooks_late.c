/* Attaches the hooks to a process that started without this library. The dynamic linker has
 * already bound the process's calls, so the hooks are written into the GOT slots of every loaded
 * module. A slot is one aligned word, so a thread that calls through a slot reaches either the
 * old or the new function.
 *
 * The hooked functions are the exported symbols of this library. The real definition of each
 * function is the one in the module that was loaded first. A slot is changed only if it is bound
 * to the real definition or not bound yet, so a module with its own allocator keeps that
 * allocator. */
#include "heap/hooks.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "heap/life.h"
#include "heap/module_names.h"
#include "heap/modules.h"
#include "heap/python.h"

#if defined(__aarch64__)
enum { SLOT_PLT = R_AARCH64_JUMP_SLOT, SLOT_GOT = R_AARCH64_GLOB_DAT, SLOT_DATA = R_AARCH64_ABS64 };
#else
enum { SLOT_PLT = R_X86_64_JUMP_SLOT, SLOT_GOT = R_X86_64_GLOB_DAT, SLOT_DATA = R_X86_64_64 };
#endif

/* ---- the interface for python/ebb/_attach.py ---- */

/* Starts profiling. Returns NULL, or the reason for a failure. */
HOOK const char *ebb_heap_attach(const char *socket, uint64_t interval, uint64_t filters);
/* Hooks Python's small objects. The caller must hold the GIL. Returns 1 if small objects are
 * hooked. */
HOOK int ebb_heap_attach_python(void);
/* Hooks modules that were loaded since the last call. */
HOOK void ebb_heap_refresh(void);
/* ebb_heap_detach_python undoes ebb_heap_attach_python, and ebb_heap_detach undoes ebb_heap_attach.
 * Both return 1 on success. They return 0 if something could not be undone yet; the caller may then
 * try again. */
HOOK int ebb_heap_detach_python(void);
HOOK int ebb_heap_detach(void);
/* Returns the number of slots that the last call of a function above changed. */
HOOK uint32_t ebb_heap_slots(void);

/* ---- the hooks and their real functions ---- */

struct late_hook {
    const char *name;
    uintptr_t hook;
    uintptr_t real; /* 0: not hooked */
    bool is_ambiguous;
};
enum { LATE_HOOKS = 64, FILTER_BITS = 4096 };

static struct late_hook hooks[LATE_HOOKS];
static uint32_t hook_count;
/* A Bloom filter of the real functions' addresses; it rules out most slots at once. */
static uint64_t filter[FILTER_BITS / 64];
static bool first_letters[256];
static struct module_map own;
static struct module_names own_names;
/* number of modules that the process has ever loaded, as of the last scan */
static unsigned long long adds_seen;
static uint32_t slots_changed;
static bool is_hooked;

typedef void *dlopen_fn(const char *file, int mode);
static dlopen_fn hook_dlopen;
static dlopen_fn *real_dlopen; /* set before any slot is changed */

static bool is_in_own(uintptr_t address)
{
    return address - own.start < own.end - own.start;
}

static uint32_t filter_bit(uintptr_t address)
{
    return (uint32_t)(address >> 4) % FILTER_BITS;
}

static void add_hook(const char *name, uintptr_t hook)
{
    if (hook_count < LATE_HOOKS)
        hooks[hook_count++] = (struct late_hook){.name = name, .hook = hook};
}

/* Some exported functions are not hooks: those of this file, and those that sanitizers call. */
static bool is_hook_name(const char *name)
{
    return strncmp(name, "ebb_", 4) != 0 && strncmp(name, "__", 2) != 0;
}

static bool list_hooks(void)
{
    if (hook_count > 0)
        return true;
    if (!modules_map((uintptr_t)hooks, &own) || !own.headers ||
        !module_names_of(own.base, own.headers, own.header_count, &own_names))
        return false;
    uint32_t end = module_names_end(&own_names);
    for (uint32_t i = own_names.hash[1]; i < end; i++) {
        const ElfW(Sym) *s = &own_names.symbols[i];
        const char *name = &own_names.names[s->st_name];
        if (ELF64_ST_TYPE(s->st_info) == STT_FUNC && is_hook_name(name))
            add_hook(name, own.base + s->st_value);
    }
    add_hook("dlopen", (uintptr_t)hook_dlopen);
    return true;
}

static bool is_of_torch(const struct late_hook *h)
{
    return strncmp(h->name, "_ZN3c10", 7) == 0;
}

/* Returns true for operator new and delete of a C++ library. These operators need no hooks, because
 * they call malloc and free, whose slots are hooked. */
static bool is_counted_by_malloc(const struct late_hook *h)
{
    return strncmp(h->name, "_Z", 2) == 0 && !is_of_torch(h) &&
           !hooks_is_allocator((const void *)h->real);
}

static int find_definitions(struct dl_phdr_info *info, size_t size, void *unused)
{
    struct module_names names;
    (void)size;
    (void)unused;
    if (info->dlpi_addr == own.base ||
        !module_names_of(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, &names))
        return 0;
    for (uint32_t i = 0; i < hook_count; i++) {
        struct late_hook *h = &hooks[i];
        if (h->real && !is_of_torch(h))
            continue;
        const ElfW(Sym) *s = module_names_find(&names, h->name);
        if (!s || ELF64_ST_TYPE(s->st_info) != STT_FUNC)
            continue;
        /* If the process has two copies of torch, a slot may be bound to either copy. */
        h->is_ambiguous = h->real != 0;
        h->real = info->dlpi_addr + s->st_value;
    }
    return 0;
}

static void *find_real(const char *name)
{
    for (uint32_t i = 0; i < hook_count; i++)
        if (strcmp(hooks[i].name, name) == 0)
            return (void *)hooks[i].real;
    struct module_map libc;
    struct module_names names;
    /* malloc_usable_size has no hook. */
    return modules_map((uintptr_t)find_real("malloc"), &libc) && libc.headers &&
                   module_names_of(libc.base, libc.headers, libc.header_count, &names)
               ? module_names_address(&names, name)
               : NULL;
}

static bool find_reals(void)
{
    for (uint32_t i = 0; i < hook_count; i++) {
        hooks[i].real = 0;
        hooks[i].is_ambiguous = false;
    }
    dl_iterate_phdr(find_definitions, NULL);
    if (!find_real("malloc") || !find_real("free") || !hooks_resolve_by(find_real))
        return false;
    if (!real_dlopen)
        real_dlopen = HOOKS_FUNCTION(dlopen_fn *, find_real("dlopen"));
    memset(filter, 0, sizeof filter);
    memset(first_letters, 0, sizeof first_letters);
    for (uint32_t i = 0; i < hook_count; i++) {
        struct late_hook *h = &hooks[i];
        if (h->is_ambiguous || is_counted_by_malloc(h))
            h->real = 0;
        if (!h->real)
            continue;
        filter[filter_bit(h->real) / 64] |= UINT64_C(1) << filter_bit(h->real) % 64;
        first_letters[(uint8_t)h->name[0]] = true;
    }
    return true;
}

static uintptr_t hook_of_address(uintptr_t address)
{
    if (!(filter[filter_bit(address) / 64] >> filter_bit(address) % 64 & 1))
        return 0;
    for (uint32_t i = 0; i < hook_count; i++)
        if (hooks[i].real == address)
            return hooks[i].hook;
    return 0;
}

static uintptr_t hook_of_name(const char *name)
{
    if (!first_letters[(uint8_t)name[0]])
        return 0;
    for (uint32_t i = 0; i < hook_count; i++)
        if (hooks[i].real && strcmp(hooks[i].name, name) == 0)
            return hooks[i].hook;
    return 0;
}

static uintptr_t real_of_hook(uintptr_t hook)
{
    for (uint32_t i = 0; i < hook_count; i++)
        if (hooks[i].hook == hook)
            return hooks[i].real;
    return 0;
}

/* ---- the slots of one module ---- */

struct late_module {
    const struct dl_phdr_info *info;
    struct module_names names;
    struct module_relocations relocations;
    uintptr_t start, end;
    /* Pages that the dynamic linker has made read-only after relocation. */
    uintptr_t relro, relro_end;
    bool is_writable; /* true while the pages from relro to relro_end are writable */
    bool wants_hooks;
};

/* The end of the read-only range is rounded down to a page, as the linker does, so the rest of the
 * last page stays writable. */
static void find_extent(struct late_module *m)
{
    uintptr_t page = (uintptr_t)getauxval(AT_PAGESZ);
    m->start = UINTPTR_MAX;
    for (size_t i = 0; i < m->info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &m->info->dlpi_phdr[i];
        uintptr_t at = m->info->dlpi_addr + h->p_vaddr, end = at + h->p_memsz;
        if (h->p_type == PT_LOAD) {
            m->start = at < m->start ? at : m->start;
            m->end = end > m->end ? end : m->end;
        } else if (h->p_type == PT_GNU_RELRO) {
            m->relro = at & ~(page - 1);
            m->relro_end = end & ~(page - 1);
        }
    }
}

static bool is_in_writable_segment(const struct late_module *m, uintptr_t slot)
{
    for (size_t i = 0; i < m->info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &m->info->dlpi_phdr[i];
        uintptr_t at = m->info->dlpi_addr + h->p_vaddr;
        if (h->p_type == PT_LOAD && (h->p_flags & PF_W) && slot - at < h->p_memsz)
            return slot % sizeof(uintptr_t) == 0 && h->p_memsz - (slot - at) >= sizeof(uintptr_t);
    }
    return false;
}

static bool protect(const struct late_module *m, int protection)
{
    return syscall(SYS_mprotect, m->relro, m->relro_end - m->relro, protection) == 0;
}

static void change_slot(struct late_module *m, uintptr_t *slot, uintptr_t from, uintptr_t to)
{
    bool is_protected = (uintptr_t)slot - m->relro < m->relro_end - m->relro;
    if (is_protected && !m->is_writable && !(m->is_writable = protect(m, PROT_READ | PROT_WRITE)))
        return;
    if (__atomic_compare_exchange_n(slot, &from, to, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        slots_changed++;
}

/* Returns the new value of a slot that contains VALUE, or 0 to leave the slot unchanged. A slot of
 * the PLT that points into its own module is not bound yet. */
static uintptr_t wanted_value(const struct late_module *m, const ElfW(Rela) * r, uintptr_t value)
{
    const ElfW(Sym) *s = &m->names.symbols[ELF64_R_SYM(r->r_info)];
    if (!m->wants_hooks)
        return is_in_own(value) ? real_of_hook(value) : 0;
    if (ELF64_R_TYPE(r->r_info) == SLOT_PLT && s->st_shndx == SHN_UNDEF &&
        value - m->start < m->end - m->start)
        return hook_of_name(&m->names.names[s->st_name]);
    return hook_of_address(value);
}

static void change_slots(struct late_module *m, const ElfW(Rela) * r, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t type = (uint32_t)ELF64_R_TYPE(r[i].r_info);
        if ((type != SLOT_PLT && type != SLOT_GOT && type != SLOT_DATA) || r[i].r_addend != 0 ||
            ELF64_R_SYM(r[i].r_info) == 0)
            continue;
        uintptr_t *slot = (uintptr_t *)(m->info->dlpi_addr + r[i].r_offset);
        if (!is_in_writable_segment(m, (uintptr_t)slot))
            continue;
        uintptr_t value = __atomic_load_n(slot, __ATOMIC_RELAXED);
        uintptr_t wanted = wanted_value(m, &r[i], value);
        if (wanted)
            change_slot(m, slot, value, wanted);
    }
}

static int change_module(struct dl_phdr_info *info, size_t size, void *user)
{
    const bool *wants_hooks = user;
    struct late_module m = {.info = info, .wants_hooks = *wants_hooks};
    (void)size;
    if (info->dlpi_addr == own.base ||
        !module_names_of(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, &m.names))
        return 0;
    module_names_relocations(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, &m.relocations);
    find_extent(&m);
    change_slots(&m, m.relocations.data, m.relocations.data_count);
    change_slots(&m, m.relocations.plt, m.relocations.plt_count);
    if (m.is_writable)
        protect(&m, PROT_READ);
    return 0;
}

/* ---- all modules, while none is loaded or unloaded ----
 *
 * A module that another thread is loading must not be touched: its slots are being written, and its
 * pages protected. dl_iterate_phdr lists such a module, too. While dlsym calls the resolver of an
 * indirect function (ifunc), it holds the lock that dlopen and dlclose also take. The slots are
 * therefore changed inside such a resolver, choose_locked. */

enum { TASK_TRIES = 10000 }; /* one second, at 0.1 ms per try */
enum late_task { LATE_NOTHING, LATE_HOOK, LATE_REFRESH, LATE_UNHOOK };
static _Atomic(int) task;
static _Atomic(int32_t) task_owner; /* pid of the process whose thread runs a task, or 0 */
static bool is_task_done;

static int read_adds(struct dl_phdr_info *info, size_t size, void *ret)
{
    (void)size;
    *(unsigned long long *)ret = info->dlpi_adds;
    return 1;
}

static bool do_task(enum late_task what)
{
    unsigned long long adds = 0;
    bool wants_hooks = what != LATE_UNHOOK;
    slots_changed = 0;
    dl_iterate_phdr(read_adds, &adds);
    if (what == LATE_REFRESH && (!is_hooked || adds == adds_seen))
        return true;
    if (wants_hooks && (!list_hooks() || !find_reals()))
        return false;
    dl_iterate_phdr(change_module, &wants_hooks);
    adds_seen = adds;
    is_hooked = wants_hooks;
    return true;
}

typedef void nothing_fn(void);
static void do_nothing(void)
{
}

/* Marked as used, because clang ignores the use by ifunc and would warn about an unused
 * function. */
__attribute__((used)) static nothing_fn *choose_locked(void)
{
    int what = atomic_exchange(&task, LATE_NOTHING);
    if (what != LATE_NOTHING)
        is_task_done = do_task((enum late_task)what);
    return do_nothing;
}

HOOK void ebb_heap_locked(void) __attribute__((ifunc("choose_locked")));

/* Makes this thread the one that runs a task. Returns false if another thread of this process is
 * running a task. In the child of a fork, a task that the parent was running does not count. */
static bool take_task(int32_t pid)
{
    int32_t owner = atomic_load(&task_owner);
    return owner != pid && atomic_compare_exchange_strong(&task_owner, &owner, pid);
}

static bool take_task_patiently(int32_t pid)
{
    for (int tries = 0; !take_task(pid); tries++) {
        if (tries == TASK_TRIES)
            return false;
        life_pause();
    }
    return true;
}

/* Runs a task. Returns false if the task failed, or if another thread is running a task. */
static bool run_locked(enum late_task what)
{
    int32_t pid = (int32_t)syscall(SYS_getpid);
    if (what == LATE_REFRESH ? !take_task(pid) : !take_task_patiently(pid))
        return false;
    int saved = errno;
    Dl_info info;
    is_task_done = false;
    void *library =
        dladdr((const void *)hooks, &info) ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (library) {
        atomic_store(&task, what);
        (void)dlsym(library, "ebb_heap_locked");
        atomic_store(&task, LATE_NOTHING);
        dlclose(library);
    }
    bool is_done = is_task_done;
    errno = saved;
    atomic_store(&task_owner, 0);
    return is_done;
}

/* ---- modules that are loaded later ---- */

static bool has_search_path(const struct module_map *map)
{
    const ElfW(Dyn) *d = module_names_dynamic(map->base, map->headers, map->header_count);
    for (; d && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_RPATH)
            return true;
    return false;
}

/* Returns true if the hook may call dlopen itself. dlopen searches the path of the library that
 * calls it, for names without a slash and for dependencies. If that path matters, the hook makes a
 * tail call instead, so that dlopen sees the original caller. ebb_heap_refresh then finds the new
 * modules later. */
static bool may_call_dlopen(const char *file, const void *caller)
{
    struct module_map map;
    return file && strchr(file, '/') && !strchr(file, '$') &&
           modules_map((uintptr_t)caller, &map) && (map.name[0] == '\0' || !has_search_path(&map));
}

static void *hook_dlopen(const char *file, int mode)
{
    if (!may_call_dlopen(file, __builtin_return_address(0)))
        return real_dlopen(file, mode);
    void *library = real_dlopen(file, mode);
    if (library)
        run_locked(LATE_REFRESH);
    return library;
}

/* ---- the interface ---- */

static int find_sanitizer(struct dl_phdr_info *info, size_t size, void *unused)
{
    struct module_names names;
    (void)size;
    (void)unused;
    return module_names_of(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, &names) &&
           module_names_find(&names, "__sanitizer_report_error_summary");
}

const char *ebb_heap_attach(const char *socket, uint64_t interval, uint64_t filters)
{
    if (dl_iterate_phdr(find_sanitizer, NULL) != 0)
        return "the program was built with a sanitizer";
    const char *refusal = life_attach(socket, interval, filters);
    if (refusal)
        return refusal;
    if (run_locked(LATE_HOOK) && slots_changed > 0)
        return NULL;
    ebb_heap_detach();
    return "no malloc call could be redirected";
}

int ebb_heap_attach_python(void)
{
    return python_attach();
}

void ebb_heap_refresh(void)
{
    run_locked(LATE_REFRESH);
}

int ebb_heap_detach_python(void)
{
    return python_detach();
}

int ebb_heap_detach(void)
{
    bool is_restored = run_locked(LATE_UNHOOK);
    return life_detach() && is_restored;
}

uint32_t ebb_heap_slots(void)
{
    return slots_changed;
}
