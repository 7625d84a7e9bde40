/* Looks up symbols in the symbol table of a loaded module. dlsym cannot be used, because it takes
 * the dynamic linker's lock. A thread inside malloc would then wait for another thread's dlopen,
 * which may in turn wait for the first thread. */
#pragma once

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct module_names {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t *hash;
};

/* Returns the dynamic section of the module loaded at BASE, with its program headers (ElfW(Phdr)),
 * or NULL. */
const ElfW(Dyn) * module_names_dynamic(uintptr_t base, const void *headers, size_t count);
/* Finds the tables of the module loaded at BASE, with its program headers (ElfW(Phdr)). Returns
 * false if the module has no symbol table or no hash table. */
bool module_names_of(uintptr_t base, const void *headers, size_t count, struct module_names *ret);
/* Returns the module's own definition of NAME, or NULL. */
const ElfW(Sym) * module_names_find(const struct module_names *n, const char *name);
void *module_names_address(const struct module_names *n, const char *name);
/* Returns the index after the last symbol that the hash table covers; hash[1] is the index of the
 * first one. */
uint32_t module_names_end(const struct module_names *n);

/* The relocations of a module. One table is for its data and GOT. The other is for its PLT, and has
 * one relocation for each function that the module calls in other libraries. */
struct module_relocations {
    const ElfW(Rela) * data;
    const ElfW(Rela) * plt;
    size_t data_count, plt_count;
};
/* Finds the relocations; the counts are 0 if the module has no relocations of the usual format. */
void module_names_relocations(uintptr_t base, const void *headers, size_t count,
                              struct module_relocations *ret);
