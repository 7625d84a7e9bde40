/* libFuzzer: one datagram of any bytes. What parses must hold what it claims. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mark/mark.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mark_line line;
    struct mark m;
    size_t at = 0, len, lines = 0;

    if (mark_parse((const char *)data, size, &m) < 0)
        return 0;
    while (mark_next(&m, &at, &line))
        lines++;
    if (lines == 0 || !mark_get(&m, "KIND", &len) || len == 0 || memchr(data, '\0', size))
        abort();
    if ((m.has & MARK_HAS_STEP) && m.step < 0)
        abort();
    return 0;
}
