/* Converts an input to a recording. The first byte decides how the rest is used: as a whole file,
 * the records of a RAW block, the columns of a SEALED block, or the JSON of a header. Checksums and
 * frames, which a fuzzer would never guess, are added here. */
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "target.h"
#include "trace/block.h"
#include "zstd_plain.h"

enum { TRACE_FILE, TRACE_RAW, TRACE_SEALED, TRACE_HEADER, TRACE_INPUTS };

static inline void trace_input_make(const uint8_t *data, size_t size, struct buf *file)
{
    struct block_head head = {.type = BLOCK_RAW, .seq = 1};
    struct buf packed = {0};
    unsigned kind = data[0] % TRACE_INPUTS;
    if (kind == TRACE_FILE) {
        buf_add(file, data + 1, size - 1);
        return;
    }
    block_add_file_head(file, BLOCK_FILE_MAGIC, BLOCK_MAJOR, BLOCK_MINOR);
    if (kind == TRACE_SEALED) {
        head = (struct block_head){.type = BLOCK_SEALED, .seq = 1, .raw_len = (uint32_t)size - 1};
        zstd_plain_add(&packed, data + 1, size - 1);
        block_add(file, &head, packed.data, packed.len);
    } else {
        if (kind == TRACE_HEADER)
            head = (struct block_head){.type = BLOCK_HEADER};
        block_add(file, &head, data + 1, size - 1);
    }
    buf_fini(&packed);
}

/* Returns a descriptor of the recording, for trace_reader_open_fd. SIZE must be at least 1. */
static inline int trace_input_fd(const uint8_t *data, size_t size)
{
    static int fd = -1;
    struct buf file = {0};
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    trace_input_make(data, size, &file);
    if (ftruncate(fd, 0) < 0 || pwrite(fd, file.data, file.len, 0) != (ssize_t)file.len ||
        lseek(fd, 0, SEEK_SET) < 0)
        abort();
    buf_fini(&file);
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}
