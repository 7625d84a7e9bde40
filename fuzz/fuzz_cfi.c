/* Fuzzes call frame information. The input is the address to look up, and a segment of any bytes
 * with .eh_frame_hdr at its start. The result must be a usable rule, and no read may pass the end
 * of the bytes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "heap/cfi.h"
#include "target.h"

enum { ADDRESS = 0x100000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cfi_rule rule = {.cfa = CFI_CFA_NONE};
    int64_t ip;

    if (size < sizeof(ip))
        return 0;
    memcpy(&ip, data, sizeof(ip));
    struct cfi_section s = {.bytes = data + sizeof(ip),
                            .len = size - sizeof(ip),
                            .address = ADDRESS,
                            .header = ADDRESS};
    int r = cfi_find(&s, (uint64_t)ip + ADDRESS, &rule);
    if ((r == 0) != (rule.cfa != CFI_CFA_NONE))
        abort();
    if (rule.cfa > CFI_CFA_SIGNAL || rule.fp > CFI_FP_LOST)
        abort();
    return 0;
}
