/* Fuzzes the reader of recordings. The first byte says what the rest is: a whole file, the records
 * of a RAW block, or the columns of a SEALED one; the latter two get their checksums and frames
 * here, which no fuzzer would guess. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <zstd.h>

#include "base/buf.h"
#include "base/io.h"
#include "trace/block.h"
#include "trace/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_FILE, FUZZ_RAW, FUZZ_SEALED, FUZZ_KINDS };

static void add_sealed(struct buf *file, const uint8_t *plain, size_t len)
{
    struct block_head head = {.type = BLOCK_SEALED, .seq = 1, .raw_len = (uint32_t)len};
    struct buf packed = {0};
    size_t bound = ZSTD_compressBound(len);
    if (buf_reserve(&packed, bound) == 0) {
        size_t n = ZSTD_compress(packed.data, bound, plain, len, 1);
        if (!ZSTD_isError(n))
            block_add(file, &head, packed.data, n);
    }
    buf_fini(&packed);
}

static void make_file(const uint8_t *data, size_t size, struct buf *file)
{
    struct block_head raw = {.type = BLOCK_RAW, .seq = 1};
    unsigned kind = data[0] % FUZZ_KINDS;
    if (kind == FUZZ_FILE) {
        buf_add(file, data + 1, size - 1);
        return;
    }
    block_add_file_head(file, BLOCK_FILE_MAGIC, BLOCK_MAJOR, BLOCK_MINOR);
    if (kind == FUZZ_RAW)
        block_add(file, &raw, data + 1, size - 1);
    else
        add_sealed(file, data + 1, size - 1);
}

/* Touches all that an item points at. */
static uint64_t touch(const struct trace_item *item)
{
    uint64_t sum = item->t_ns;
    if (item->kind == TRACE_PROCESS)
        sum += item->process.info->comm_len + (uint64_t)item->process.info->role;
    for (size_t i = 0; item->kind == TRACE_TICK && i < item->tick.count; i++)
        sum += item->tick.rows[i].sample.v[0] + (uint64_t)item->tick.rows[i].name[0];
    for (size_t i = 0; item->kind == TRACE_MARK && i < item->mark.len; i++)
        sum += (uint64_t)item->mark.text[i];
    if (item->kind == TRACE_NOTE)
        sum += (uint64_t)item->note.kind[0] + (uint64_t)item->note.text[item->note.len];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_reader *r;
    struct trace_item item;
    struct trace_reader_damage damage = {0};
    struct buf file = {0};
    if (size == 0)
        return 0;
    make_file(data, size, &file);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || io_write_all(fd, file.data, file.len) < 0)
        abort();
    buf_fini(&file);
    if (trace_reader_open_fd(fd, &r, NULL) < 0)
        return 0;
    while (trace_reader_next(r, &item) > 0)
        if (touch(&item) == 42)
            damage.bad_bytes = 0; /* keeps the reads from being optimised away */
    trace_reader_damage(r, &damage);
    trace_reader_free(r);
    return 0;
}
