/* Fuzzes the parser of call frame information. The input is an address to look up, followed by an
 * arbitrary segment that starts with .eh_frame_hdr. The resulting rule must be usable, and nothing
 * may be read beyond the segment. */
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
