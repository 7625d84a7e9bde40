/* Python's line tables: from an instruction to its line, for every version's form. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The line of the instruction at OFFSET bytes; VERSION is PY_VERSION_HEX. TABLE may be hostile. 0,
 * or -ENODATA: it has none (the first line is what can be said), -EBADMSG, -ENOTSUP for the
 * version. */
int pylines_find(const void *table, size_t len, uint32_t version, uint32_t first_line,
                 uint32_t offset, uint32_t *ret_line);
