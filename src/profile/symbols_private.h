/* What the parts of the symboliser share: files that are opened with care, the functions of a
 * symbol table, and DWARF. */
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

/* An ELF file, of which only what is asked for is read. */
struct elf_file {
    int fd; /* -1: none */
    Elf *elf;
};

/* Opens PATH if it is a regular ELF file, without waiting for anything (a FIFO, a device, a lease):
 * 0 or -errno. */
int elf_file_open(const char *path, struct elf_file *ret);
void elf_file_close(struct elf_file *f); /* accepts {-1, NULL} */
/* The same file, mapped: DWARF may be gigabytes, and is read here and there. Has no descriptor of
 * its own. 0 or -errno. */
int elf_file_map(const struct elf_file *f, struct elf_file *ret);
bool elf_file_has_id(const struct elf_file *f, const struct build_id *id);
/* Has it a section NAME with bytes in the file? */
bool elf_file_has(const struct elf_file *f, const char *name);

/* The module's file at PATH, if it is the one that ID was read from: 0 or -errno. */
int symbols_open_module(const struct symbols_options *options, const char *path,
                        const struct build_id *id, struct elf_file *ret);
/* Its debug information in a file of its own; MODULE may be none. Installed ones first, those
 * behind .gnu_debuglink, and over the network where that is allowed. 0 or -errno. */
int symbols_open_debug(const struct symbols_options *options, const char *path,
                       const struct build_id *id, const struct elf_file *module,
                       struct elf_file *ret);
/* The installed debug file of a build-id: 0 or -errno. */
int symbols_open_by_id(const char *sysroot, const struct build_id *id, struct elf_file *ret);

/* Functions by address, from .symtab, else .dynsym. Names stay in the file until they are asked
 * for: those of a large library are 80 MB. */
struct elf_functions {
    struct elf_function {
        uint64_t start;
        uint32_t size; /* 0: not known */
        uint32_t name; /* in the string table */
    } * items;
    size_t count;
    int fd;
    uint64_t strings_at, strings_len;
};
int elf_functions_read(const struct elf_file *f, struct elf_functions *ret);
void elf_functions_fini(struct elf_functions *t);
enum { ELF_NAME_MAX = 4096 };
/* The function that holds ADDRESS: false if none does. */
bool elf_functions_find(const struct elf_functions *t, uint64_t address, char ret[ELF_NAME_MAX]);

/* DWARF of one module. */
struct dwarf_index;
int dwarf_index_new(const char *sysroot, const struct elf_file *f, struct dwarf_index **ret);
void dwarf_index_free(struct dwarf_index *d); /* NULL is fine */
/* As symbols_find; texts are kept in TEXTS. */
size_t dwarf_index_find(struct dwarf_index *d, uint64_t address, struct texts *texts,
                        struct symbol ret[SYMBOL_INLINE_MAX]);
/* NAME in readable form, kept; NULL: no memory. */
const char *symbols_readable(struct texts *texts, const char *name);
