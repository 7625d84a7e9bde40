/* Compresses data with zstd, using tables of a given size. */
#include "trace/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <zstd.h>

#include "base/buf.h"

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
