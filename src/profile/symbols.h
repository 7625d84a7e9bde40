/* Resolves an address in a module to functions, files and lines: from DWARF (including inlined
 * frames), otherwise from the symbol table. Demangles C++ names. Downloads only on request. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbols;

/* One function at an address. Functions that are inlined there come first. Texts live as long as
 * the struct symbols. */
struct symbol {
    const char *function; /* NULL: unknown */
    const char *file;     /* NULL: unknown */
    uint32_t line;        /* 0: unknown */
    bool is_inlined;
};
enum { SYMBOL_INLINE_MAX = 16 };

struct symbols_options {
    bool debuginfod;     /* debug information may be downloaded */
    const char *sysroot; /* folder searched first, for a recording from another machine, or NULL */
};
int symbols_new(const struct symbols_options *options, struct symbols **ret);
void symbols_free(struct symbols *s); /* NULL is fine */

/* Resolves OFFSET, which is relative to the base of a module, to functions and lines. The module is
 * given by its PATH, which is not terminated by NUL, and by its build-id; a file at PATH with
 * another build-id is ignored. Returns the number of symbols in RET, or 0 if the function is
 * unknown. */
size_t symbols_find(struct symbols *s, const char *path, size_t path_len, const uint8_t *build_id,
                    size_t build_id_len, uint64_t offset, struct symbol ret[SYMBOL_INLINE_MAX]);
