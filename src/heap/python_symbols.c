/* Looking up names in a loaded module, by its hash table. */
#include "heap/python_symbols.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#include "heap/modules.h"

struct tables {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t *hash;
};

static bool tables_of(uintptr_t base, const void *dynamic, struct tables *ret)
{
    struct tables t = {.base = base};
    for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++) {
        /* Some libcs leave addresses in it as they are in the file. */
        uintptr_t at = d->d_un.d_ptr < base ? base + d->d_un.d_ptr : d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB)
            t.symbols = (const ElfW(Sym) *)at;
        else if (d->d_tag == DT_STRTAB)
            t.names = (const char *)at;
        else if (d->d_tag == DT_GNU_HASH)
            t.hash = (const uint32_t *)at;
    }
    *ret = t;
    return t.symbols && t.names && t.hash;
}

static uint32_t hash_of(const char *name)
{
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (uint8_t)*name;
    return h;
}

static const ElfW(Sym) * find(const struct tables *t, const char *name)
{
    uint32_t buckets = t->hash[0], first = t->hash[1], bloom_words = t->hash[2];
    const ElfW(Addr) *bloom = (const ElfW(Addr) *)&t->hash[4];
    const uint32_t *bucket = (const uint32_t *)&bloom[bloom_words];
    const uint32_t *chain = &bucket[buckets];
    uint32_t hash = hash_of(name);
    if (!buckets)
        return NULL;
    uint32_t i = bucket[hash % buckets];
    if (i < first)
        return NULL;
    for (;; i++) {
        uint32_t h = chain[i - first];
        const ElfW(Sym) *symbol = &t->symbols[i];
        if ((h | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            strcmp(&t->names[symbol->st_name], name) == 0)
            return symbol;
        if (h & 1)
            return NULL;
    }
}

static void *address_of(const struct tables *t, const char *name)
{
    const ElfW(Sym) *symbol = find(t, name);
    return symbol ? (void *)(t->base + symbol->st_value) : NULL;
}

/* A pointer to a function is not one to an object, says C. */
#define FUNCTION(t, name, ret)                                                                     \
    do {                                                                                           \
        void *at = address_of(t, name);                                                            \
        memcpy(ret, &at, sizeof(at));                                                              \
    } while (0)

static void find_allocators(const struct tables *t, struct python_symbols *ret)
{
    FUNCTION(t, "PyMem_GetAllocator", &ret->allocator_get);
    FUNCTION(t, "PyMem_SetAllocator", &ret->allocator_set);
    FUNCTION(t, "_PyMem_GetCurrentAllocatorName", &ret->allocator_name);
    FUNCTION(t, "PyObject_GetArenaAllocator", &ret->arenas_get);
    FUNCTION(t, "PyMem_RawMalloc", &ret->raw_malloc);
    FUNCTION(t, "PyMem_RawCalloc", &ret->raw_calloc);
}

/* The module loaded at BASE with its dynamic section at DYNAMIC. */
static bool in_tables(uintptr_t base, const void *dynamic, struct python_symbols *ret)
{
    struct tables t;
    if (!tables_of(base, dynamic, &t))
        return false;
    const ElfW(Sym) *eval = find(&t, "_PyEval_EvalFrameDefault");
    if (!eval)
        return false;
    struct python_symbols s = {
        .eval = base + eval->st_value,
        .eval_end = base + eval->st_value + eval->st_size,
        .version = address_of(&t, "Py_Version"),
        .runtime = address_of(&t, "_PyRuntime"),
        .code_type = address_of(&t, "PyCode_Type"),
        .text_type = address_of(&t, "PyUnicode_Type"),
        .bytes_type = address_of(&t, "PyBytes_Type"),
    };
    FUNCTION(&t, "Py_GetVersion", &s.get_version);
    FUNCTION(&t, "Py_IsInitialized", &s.is_initialized);
    FUNCTION(&t, "Py_IsFinalizing", &s.is_finalizing);
    if (!s.is_finalizing) /* before 3.13 */
        FUNCTION(&t, "_Py_IsFinalizing", &s.is_finalizing);
    FUNCTION(&t, "PyGILState_GetThisThreadState", &s.thread_mine);
    FUNCTION(&t, "PyThreadState_GetUnchecked", &s.thread_current);
    if (!s.thread_current) /* before 3.13 */
        FUNCTION(&t, "_PyThreadState_UncheckedGet", &s.thread_current);
    find_allocators(&t, &s);
    if (!s.get_version || !s.is_initialized || !s.is_finalizing || !s.thread_mine || !s.code_type ||
        !s.text_type || !s.bytes_type)
        return false;
    *ret = s;
    return true;
}

static bool in_module(uintptr_t base, const ElfW(Phdr) * headers, size_t count,
                      struct python_symbols *ret)
{
    for (size_t i = 0; i < count; i++)
        if (headers[i].p_type == PT_DYNAMIC)
            return in_tables(base, (const void *)(base + headers[i].p_vaddr), ret);
    return false;
}

static int in_next(struct dl_phdr_info *info, size_t size, void *ret)
{
    (void)size;
    return in_module(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, ret);
}

bool python_symbols_anywhere(struct python_symbols *ret)
{
    return dl_iterate_phdr(in_next, ret) != 0;
}

bool python_symbols_at(uintptr_t address, struct python_symbols *ret)
{
    struct module_map map;
    return modules_map(address, &map) && map.headers &&
           in_module(map.base, map.headers, map.header_count, ret);
}
