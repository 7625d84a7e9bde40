/* Functions shared by the parts of the symboliser: opening files safely, symbol tables, and
 * DWARF. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <elfutils/libdw.h>
#include <gelf.h>

#include "profile/symbols.h"
#include "base/texts.h"

struct build_id {
    const uint8_t *bytes;
    size_t len;
};

/* An ELF file, of which only the needed parts are read. */
struct elf_file {
    int fd; /* -1: none */
    Elf *elf;
};

/* Opens PATH if it is a regular ELF file, and never blocks on a FIFO, device or lease. Returns 0
 * or -errno. */
int elf_file_open(const char *path, struct elf_file *ret);
void elf_file_close(struct elf_file *f); /* accepts {-1, NULL} */
/* Maps an open file into memory, because DWARF may be gigabytes, of which little is read. RET has
 * no descriptor of its own. Returns 0 or -errno. */
int elf_file_map(const struct elf_file *f, struct elf_file *ret);
bool elf_file_has_id(const struct elf_file *f, const struct build_id *id);
/* Returns true if the file has a section NAME with contents. */
bool elf_file_has(const struct elf_file *f, const char *name);

/* Opens the module's file PATH if it has the build-id ID. Returns 0 or -errno. */
int symbols_open_module(const struct symbols_options *options, const char *path,
                        const struct build_id *id, struct elf_file *ret);
/* Opens the module's separate debug file; MODULE may be empty. Tries installed files, then
 * .gnu_debuglink, then the network if allowed. Returns 0 or -errno. */
int symbols_open_debug(const struct symbols_options *options, const char *path,
                       const struct build_id *id, const struct elf_file *module,
                       struct elf_file *ret);
/* Opens the installed debug file of a build-id. Returns 0 or -errno. */
int symbols_open_by_id(const char *sysroot, const struct build_id *id, struct elf_file *ret);

/* Functions by address, from .symtab, otherwise .dynsym. Names stay in the file until they are
 * needed, because a large library has 80 MB of them. */
struct elf_functions {
    struct elf_function {
        uint64_t start;
        uint32_t size; /* 0: unknown */
        uint32_t name; /* offset of the name in the string table */
    } * items;
    size_t count;
    int fd;
    uint64_t strings_at, strings_len;
};
int elf_functions_read(const struct elf_file *f, struct elf_functions *ret);
void elf_functions_fini(struct elf_functions *t);
enum { ELF_NAME_MAX = 4096 };
/* Finds the name of the function that contains ADDRESS; returns false if there is none. */
bool elf_functions_find(const struct elf_functions *t, uint64_t address, char ret[ELF_NAME_MAX]);

/* The DWARF debug information of one module. */
struct dwarf_index;
int dwarf_index_new(const char *sysroot, const struct elf_file *f, struct dwarf_index **ret);
void dwarf_index_free(struct dwarf_index *d); /* NULL is fine */
/* Resolves ADDRESS like symbols_find; texts are stored in TEXTS. */
size_t dwarf_index_find(struct dwarf_index *d, uint64_t address, struct texts *texts,
                        struct symbol ret[SYMBOL_INLINE_MAX]);
/* Returns the demangled NAME, stored in TEXTS, or NULL if out of memory. */
const char *symbols_readable(struct texts *texts, const char *name);
