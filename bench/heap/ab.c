/* Removes libebb-heap.so's hooks from a running process and restores them. To remove them, every
 * GOT slot that points to a hook is set to the function that the hook calls; to restore them, the
 * slot is set to the hook again.
 *
 * A Python program loads this library (bench/heap/ab.py). Slots must be bound already
 * (LD_BIND_NOW), because slots that the dynamic linker fills later are not found. Supports x86-64
 * and aarch64. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "heap/table.h"

#define EXPORTED __attribute__((visibility("default")))

enum { SLOTS_MAX = 16384, DOMAIN_MEM = 1, DOMAIN_OBJ = 2 };

struct slot {
    uintptr_t *at;
    uintptr_t hook, real;
};
static struct slot slots[SLOTS_MAX];
static int n_slots;
static uintptr_t hooks_start, hooks_end;

EXPORTED int ab_find(void);
EXPORTED int ab_find_small(void);
EXPORTED void ab_set(int hooks, int small);
EXPORTED void ab_cost(const struct heap_header *h, uint64_t ret[3]);

/* ---- slots ---- */

static int find_hooks(struct dl_phdr_info *info, size_t len, void *unused)
{
    (void)len;
    (void)unused;
    if (!strstr(info->dlpi_name, "/libebb-heap.so"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t end = info->dlpi_addr + p->p_vaddr + p->p_memsz;
        if (p->p_type == PT_LOAD && end > hooks_end)
            hooks_end = end;
    }
    hooks_start = info->dlpi_addr;
    return 1;
}

/* Hooks that only notify the library stay in place, because they do not sample. */
static bool is_switched(const char *name)
{
    return strcmp(name, "dlclose") != 0 && strcmp(name, "prctl") != 0;
}

static uintptr_t behind(const char *name)
{
    static const char *const libraries[] = {"libc.so.6", "libstdc++.so.6"};
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        void *found = library ? dlsym(library, name) : NULL;
        if (library)
            dlclose(library);
        if (found)
            return (uintptr_t)found;
    }
    return 0;
}

/* Most slots are read-only after relocation, so their page is made writable first. */
static bool make_writable(const uintptr_t *at)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)at & ~(page - 1);
    return mprotect((void *)start, page, PROT_READ | PROT_WRITE) == 0;
}

static void note_slot(uintptr_t *at, const char *name)
{
    uintptr_t hook = *at, real;
    if (hook < hooks_start || hook >= hooks_end || n_slots == SLOTS_MAX || !is_switched(name))
        return;
    real = behind(name);
    if (real && make_writable(at))
        slots[n_slots++] = (struct slot){at, hook, real};
}

struct dynamic {
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * tables[2];
    size_t bytes[2];
};

/* The dynamic linker relocates these entries in place, unless they are in read-only memory. */
static uintptr_t address_of(uintptr_t base, uintptr_t value)
{
    return value < base ? base + value : value;
}

static void read_dynamic(uintptr_t base, const ElfW(Dyn) * d, struct dynamic *ret)
{
    for (; d->d_tag != DT_NULL; d++) {
        uintptr_t at = address_of(base, d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB)
            ret->symbols = (const void *)at;
        else if (d->d_tag == DT_STRTAB)
            ret->names = (const void *)at;
        else if (d->d_tag == DT_RELA || d->d_tag == DT_JMPREL)
            ret->tables[d->d_tag == DT_JMPREL] = (const void *)at;
        else if (d->d_tag == DT_RELASZ || d->d_tag == DT_PLTRELSZ)
            ret->bytes[d->d_tag == DT_PLTRELSZ] = d->d_un.d_val;
    }
}

static int find_slots(struct dl_phdr_info *info, size_t len, void *unused)
{
    (void)len;
    (void)unused;
    struct dynamic d = {0};
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            read_dynamic(info->dlpi_addr,
                         (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), &d);
    bool is_hooks = info->dlpi_addr == hooks_start, is_vdso = strstr(info->dlpi_name, "vdso");
    if (!d.symbols || !d.names || is_hooks || is_vdso)
        return 0;
    for (int table = 0; table < 2; table++)
        for (size_t i = 0; d.tables[table] && i < d.bytes[table] / sizeof(ElfW(Rela)); i++) {
            const ElfW(Rela) *r = &d.tables[table][i];
            size_t symbol = ELF64_R_SYM(r->r_info);
            if (symbol != 0 && r->r_addend == 0)
                note_slot((uintptr_t *)(info->dlpi_addr + r->r_offset),
                          d.names + d.symbols[symbol].st_name);
        }
    return 0;
}

int ab_find(void)
{
    n_slots = 0;
    if (dl_iterate_phdr(find_hooks, NULL) != 0)
        dl_iterate_phdr(find_slots, NULL);
    return n_slots;
}

/* ---- Python's small objects ---- */

struct allocator {
    void *functions[5];
};
static void (*allocator_get)(int domain, struct allocator *ret);
static void (*allocator_set)(int domain, const struct allocator *a);
static struct allocator hooked[2], original[2];

#define FIND(name) dlsym(RTLD_DEFAULT, name)

int ab_find_small(void)
{
    int (*set_default)(int, struct allocator *);
    void *get = FIND("PyMem_GetAllocator"), *set = FIND("PyMem_SetAllocator");
    void *standard = FIND("_PyMem_SetDefaultAllocator");
    if (!get || !set || !standard)
        return 0;
    memcpy(&allocator_get, &get, sizeof(get));
    memcpy(&allocator_set, &set, sizeof(set));
    memcpy(&set_default, &standard, sizeof(standard));
    for (int i = 0; i < 2; i++) {
        set_default(DOMAIN_MEM + i, &hooked[i]);
        allocator_get(DOMAIN_MEM + i, &original[i]);
        allocator_set(DOMAIN_MEM + i, &hooked[i]);
    }
    return memcmp(hooked, original, sizeof(hooked)) != 0;
}

void ab_set(int hooks, int small)
{
    for (int i = 0; i < n_slots; i++)
        __atomic_store_n(slots[i].at, hooks ? slots[i].hook : slots[i].real, __ATOMIC_RELAXED);
    for (int i = 0; allocator_set && i < 2; i++)
        allocator_set(DOMAIN_MEM + i, small ? &hooked[i] : &original[i]);
}

/* Returns the number of samples taken, the number of samples that ended, and the nanoseconds spent
 * on both. */
void ab_cost(const struct heap_header *h, uint64_t ret[3])
{
    ret[0] = atomic_load(&h->samples);
    ret[1] = atomic_load(&h->ends);
    ret[2] = atomic_load(&h->hook_ns);
}
