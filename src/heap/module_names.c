/* Looks up the names that a loaded module exports, through its hash table. */
#include "heap/module_names.h"

#include <elf.h>
#include <string.h>

static bool in_dynamic(uintptr_t base, const ElfW(Dyn) * d, struct module_names *ret)
{
    struct module_names t = {.base = base};
    for (; d->d_tag != DT_NULL; d++) {
        /* Some libcs leave the file's own addresses in the dynamic section; glibc adds the base. */
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

bool module_names_of(uintptr_t base, const void *headers, size_t count, struct module_names *ret)
{
    const ElfW(Phdr) *h = headers;
    for (size_t i = 0; i < count; i++)
        if (h[i].p_type == PT_DYNAMIC)
            return in_dynamic(base, (const void *)(base + h[i].p_vaddr), ret);
    return false;
}

static uint32_t hash_of(const char *name)
{
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (uint8_t)*name;
    return h;
}

const ElfW(Sym) * module_names_find(const struct module_names *n, const char *name)
{
    uint32_t buckets = n->hash[0], first = n->hash[1], bloom_words = n->hash[2];
    const ElfW(Addr) *bloom = (const ElfW(Addr) *)&n->hash[4];
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
