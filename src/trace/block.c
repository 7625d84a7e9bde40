/* Writes and parses file and block headers, searches for block headers in a damaged file, and
 * compresses payloads. */
#include "trace/block.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/buf.h"

static const uint8_t block_magic[4] = {0xEB, 0xB1, 'b', 'k'};

enum { CRC_AT = BLOCK_HEAD_BYTES - 4 };

void block_add_file_head(struct buf *out, const char *magic, uint16_t major, uint16_t minor)
{
    buf_add(out, magic, 8);
    buf_add_u16le(out, major);
    buf_add_u16le(out, minor);
    buf_add_u32le(out, 0);
}

void block_add(struct buf *out, const struct block_head *head, const void *payload, size_t len)
{
    assert(len <= BLOCK_PAYLOAD_MAX);
    size_t at = out->len;
    buf_add(out, block_magic, sizeof block_magic);
    buf_add_u16le(out, head->type);
    buf_add_u16le(out, head->flags);
    buf_add_u64le(out, head->seq);
    buf_add_u32le(out, head->part);
    buf_add_u32le(out, (uint32_t)len);
    buf_add_u32le(out, head->raw_len);
    buf_add_u32le(out, 0);
    buf_add(out, payload, len);
    if (out->failed)
        return;
    uint32_t crc = crc32c(0, out->data + at, BLOCK_HEAD_BYTES + len);
    for (unsigned i = 0; i < 4; i++)
        out->data[at + CRC_AT + i] = (char)(uint8_t)(crc >> (8 * i));
}

int block_head_parse(const uint8_t bytes[BLOCK_HEAD_BYTES], struct block_head *ret)
{
    struct cur c = cur_of(bytes, BLOCK_HEAD_BYTES);
    if (memcmp(bytes, block_magic, sizeof block_magic) != 0)
        return -EBADMSG;
    cur_u32le(&c);
    struct block_head head;
    head.type = cur_u16le(&c);
    head.flags = cur_u16le(&c);
    head.seq = cur_u64le(&c);
    head.part = cur_u32le(&c);
    head.stored_len = cur_u32le(&c);
    head.raw_len = cur_u32le(&c);
    head.crc = cur_u32le(&c);
    if (c.bad || head.stored_len > BLOCK_PAYLOAD_MAX || head.raw_len > BLOCK_PAYLOAD_MAX)
        return -EBADMSG;
    *ret = head;
    return 0;
}

uint32_t block_head_crc(const uint8_t bytes[BLOCK_HEAD_BYTES])
{
    static const uint8_t zero[4];
    return crc32c(crc32c(0, bytes, CRC_AT), zero, sizeof zero);
}

size_t block_find(const uint8_t *bytes, size_t len)
{
    size_t at = 0;
    while (at < len) {
        const uint8_t *hit = memchr(bytes + at, block_magic[0], len - at);
        if (!hit)
            return len;
        at = (size_t)(hit - bytes);
        size_t n = len - at < sizeof block_magic ? len - at : sizeof block_magic;
        if (memcmp(hit, block_magic, n) == 0)
            return at;
        at++;
    }
    return len;
}

const char *block_guess_kind(const uint8_t *bytes, size_t len)
{
    static const struct {
        const char *magic, *kind;
    } known[] = {
        {"\x1f\x8b", "gzip data"},
        {"\x28\xb5\x2f\xfd", "zstd data"},
        {"\xfd\x37zXZ", "xz data"},
        {"BZh", "bzip2 data"},
        {"PK\x03\x04", "a zip archive"},
        {"\x7f\x45LF", "a program"},
        {"SQLite format 3", "an SQLite database"},
        {BLOCK_FILE_MAGIC, "an ebb recording"},
        {"EBBHEAP", "an ebb heap table"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].magic);
        if (len >= n && memcmp(bytes, known[i].magic, n) == 0)
            return known[i].kind;
    }
    return NULL;
}

int pack_add(struct buf *out, const void *plain, size_t len, const struct pack_effort *effort)
{
    ZSTD_CCtx *ctx = ZSTD_createCCtx();
    size_t bound = ZSTD_compressBound(len);
    if (!ctx || buf_reserve(out, bound) < 0) {
        ZSTD_freeCCtx(ctx);
        return -ENOMEM;
    }
    ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, effort->level);
    ZSTD_CCtx_setParameter(ctx, ZSTD_c_windowLog, effort->window_log);
    ZSTD_CCtx_setParameter(ctx, ZSTD_c_hashLog, effort->table_log);
    ZSTD_CCtx_setParameter(ctx, ZSTD_c_chainLog, effort->table_log);
    size_t n = ZSTD_compress2(ctx, out->data + out->len, bound, plain, len);
    ZSTD_freeCCtx(ctx);
    if (ZSTD_isError(n))
        return -ENOMEM;
    out->len += n;
    return 0;
}

int pack_open(const void *stored, size_t stored_len, size_t raw_len, char **ret)
{
    if (raw_len == 0 || ZSTD_getFrameContentSize(stored, stored_len) != raw_len)
        return -EBADMSG;
    char *plain = malloc(raw_len);
    if (!plain)
        return -ENOMEM;
    if (ZSTD_decompress(plain, raw_len, stored, stored_len) != raw_len) {
        free(plain);
        return -EBADMSG;
    }
    *ret = plain;
    return 0;
}
