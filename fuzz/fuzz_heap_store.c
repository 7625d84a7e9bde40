/* Fuzzes the parser of heap histories. The first byte decides how the rest is used: as a whole
 * file, or as a list of payloads, which this target compresses, frames and checksums. */
#include "base/buf.h"
#include "profile/store.h"
#include "profile/store_pack.h"
#include "target.h"
#include "touch_profile.h"
#include "trace/block.h"
#include "zstd_plain.h"

/* Adds a block to the file. The block's type, numbers and payload are read from the input. */
static void add_block(struct buf *file, struct cur *c)
{
    struct block_head head = {.type = cur_byte(c) % 6, .seq = cur_byte(c), .part = cur_byte(c)};
    struct buf packed = {0};
    size_t len;
    const char *plain = cur_blob(c, &len);
    head.raw_len = (uint32_t)len;
    zstd_plain_add(&packed, plain, len);
    block_add(file, &head, packed.data, packed.len);
    buf_fini(&packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf file = {0};
    struct profile *p;
    struct store_damage damage;
    if (size == 0)
        return 0;
    struct cur c = cur_of(data + 1, size - 1);
    if (data[0] % 2 == 0) {
        buf_add(&file, data + 1, size - 1);
    } else {
        store_pack_file_head(&file);
        while (cur_left(&c) > 0)
            add_block(&file, &c);
    }
    if (store_parse(file.data, file.len, &p, &damage, NULL) == 0) {
        if (touch_profile(p) == 42.5)
            /* Keeps the compiler from removing the reads. */
            damage.bad_bytes = 0;
        profile_free(p);
    }
    buf_fini(&file);
    return 0;
}
