/* From a module and an address to functions, files and lines: DWARF (inlined frames too), else the
 * symbol table, else nothing; C++ names made readable. Offline: no network unless asked for. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbols;

/* One function at an address; inlined ones come first, innermost first. Texts live as long as the
 * symbols. */
struct symbol {
    const char *function; /* NULL: not known */
    const char *file;     /* NULL: not known */
    uint32_t line;        /* 0: not known */
    bool is_inlined;
};
enum { SYMBOL_INLINE_MAX = 16 };

struct symbols_options {
    bool debuginfod;     /* may fetch debug information over the network */
    const char *sysroot; /* looked in first, for a recording made elsewhere; NULL: none */
};
int symbols_new(const struct symbols_options *options, struct symbols **ret);
void symbols_free(struct symbols *s); /* NULL is fine */

/* PATH (not NUL-terminated) and build-id of a module, OFFSET from its base. A file whose build-id
 * is another is not believed. How many were written to RET; 0: nothing is known. */
size_t symbols_find(struct symbols *s, const char *path, size_t path_len, const uint8_t *build_id,
                    size_t build_id_len, uint64_t offset, struct symbol ret[SYMBOL_INLINE_MAX]);
