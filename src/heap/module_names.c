/* Looks up symbols of a loaded module through its GNU hash table. */
#include "heap/module_names.h"

#include <elf.h>
#include <string.h>

/* glibc adds the load bias to the addresses in the dynamic section. Some other libcs leave the
 * addresses as they are in the file. */
static uintptr_t dynamic_address(uintptr_t base, const ElfW(Dyn) * d)
{
    return d->d_un.d_ptr < base ? base + d->d_un.d_ptr : d->d_un.d_ptr;
}

const ElfW(Dyn) * module_names_dynamic(uintptr_t base, const void *headers, size_t count)
{
    const ElfW(Phdr) *h = headers;
    for (size_t i = 0; i < count; i++)
        if (h[i].p_type == PT_DYNAMIC)
            return (const void *)(base + h[i].p_vaddr);
    return NULL;
}

static bool in_dynamic(uintptr_t base, const ElfW(Dyn) * d, struct module_names *ret)
{
    struct module_names t = {.base = base};
    for (; d->d_tag != DT_NULL; d++) {
        uintptr_t at = dynamic_address(base, d);
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

bool module_names_of(uintptr_t base, const void *headers, size_t count, struct module_names *ret)
{
    const ElfW(Dyn) *d = module_names_dynamic(base, headers, count);
    return d && in_dynamic(base, d, ret);
}

void module_names_relocations(uintptr_t base, const void *headers, size_t count,
                              struct module_relocations *ret)
{
    struct module_relocations r = {0};
    bool is_rela = false;
    for (const ElfW(Dyn) *d = module_names_dynamic(base, headers, count); d && d->d_tag != DT_NULL;
         d++) {
        if (d->d_tag == DT_RELA)
            r.data = (const void *)dynamic_address(base, d);
        else if (d->d_tag == DT_RELASZ)
            r.data_count = d->d_un.d_val / sizeof *r.data;
        else if (d->d_tag == DT_JMPREL)
            r.plt = (const void *)dynamic_address(base, d);
        else if (d->d_tag == DT_PLTRELSZ)
            r.plt_count = d->d_un.d_val / sizeof *r.plt;
        else if (d->d_tag == DT_PLTREL)
            is_rela = d->d_un.d_val == DT_RELA;
    }
    if (!r.data)
        r.data_count = 0;
    if (!r.plt || !is_rela)
        r.plt_count = 0;
    *ret = r;
}

static uint32_t hash_of(const char *name)
{
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (uint8_t)*name;
    return h;
}

/* The parts of a GNU hash table. */
struct gnu_hash {
    uint32_t buckets, first;
    const uint32_t *bucket, *chain;
};

static struct gnu_hash gnu_hash_of(const struct module_names *n)
{
    const ElfW(Addr) *bloom = (const ElfW(Addr) *)&n->hash[4];
    struct gnu_hash h = {.buckets = n->hash[0], .first = n->hash[1]};
    h.bucket = (const uint32_t *)&bloom[n->hash[2]];
    h.chain = &h.bucket[h.buckets];
    return h;
}

uint32_t module_names_end(const struct module_names *n)
{
    struct gnu_hash h = gnu_hash_of(n);
    uint32_t last = 0;
    for (uint32_t i = 0; i < h.buckets; i++)
        last = h.bucket[i] > last ? h.bucket[i] : last;
    if (last < h.first)
        return h.first;
    while (!(h.chain[last - h.first] & 1))
        last++;
    return last + 1;
}

const ElfW(Sym) * module_names_find(const struct module_names *n, const char *name)
{
    struct gnu_hash t = gnu_hash_of(n);
    uint32_t hash = hash_of(name);
    if (!t.buckets)
        return NULL;
    uint32_t i = t.bucket[hash % t.buckets];
    if (i < t.first)
        return NULL;
    for (;; i++) {
        uint32_t h = t.chain[i - t.first];
        const ElfW(Sym) *symbol = &n->symbols[i];
        if ((h | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            strcmp(&n->names[symbol->st_name], name) == 0)
            return symbol;
        if (h & 1)
            return NULL;
    }
}

void *module_names_address(const struct module_names *n, const char *name)
{
    const ElfW(Sym) *symbol = module_names_find(n, name);
    return symbol ? (void *)(n->base + symbol->st_value) : NULL;
}
