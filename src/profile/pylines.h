/* Maps an instruction to its source line with Python's line tables, in every version's format. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Finds the source line of the instruction at byte OFFSET. VERSION is PY_VERSION_HEX. TABLE is
 * untrusted. Returns 0; -ENODATA if the instruction has no line, so that the function's first line
 * should be used; -EBADMSG; or -ENOTSUP for an unknown version. */
int pylines_find(const void *table, size_t len, uint32_t version, uint32_t first_line,
                 uint32_t offset, uint32_t *ret_line);
