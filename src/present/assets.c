/* The files of build/web, gzipped and embedded in the program by cmake/web.cmake. */
#include "present/assets.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#define ZLIB_CONST
#include <zlib.h>

#include "base/buf.h"

/* X(symbol, file name, value of the Content-Type header or NULL if the server does not send the
 * file) */
#define ASSETS(X)                                                                                  \
    X(report_css, "report.css", NULL)                                                              \
    X(report_js, "report.js", NULL)                                                                \
    X(serve_html, "serve.html", "text/html; charset=utf-8")                                        \
    X(serve_css, "serve.css", "text/css; charset=utf-8")                                           \
    X(serve_js, "serve.js", "text/javascript; charset=utf-8")                                      \
    X(icon_svg, "icon.svg", "image/svg+xml")

#define X(symbol, file, type)                                                                      \
    __asm__(".pushsection .rodata\nasset_" #symbol ":\n.incbin \"" EBB_WEB_DIR "/" file            \
            ".gz\"\nasset_" #symbol "_end:\n.byte 0\n.popsection\n");
ASSETS(X)
#undef X

/* hidden symbols need no relocation */
#pragma GCC visibility push(hidden)
#define X(symbol, file, type) extern const unsigned char asset_##symbol[], asset_##symbol##_end[];
ASSETS(X)
#undef X
#pragma GCC visibility pop

#define X(symbol, file, type) {file, type, asset_##symbol, asset_##symbol##_end},
static const struct asset_entry {
    const char *name, *type;
    const unsigned char *from, *end;
} assets[] = {ASSETS(X)};
#undef X

static const struct asset_entry *find_asset(const char *name)
{
    for (size_t i = 0; i < sizeof assets / sizeof *assets; i++)
        if (strcmp(assets[i].name, name) == 0)
            return &assets[i];
    return NULL;
}

enum { CHUNK = 64 << 10, GZIP_WINDOW = 15 + 16 };

int asset_gunzip(const void *gz, size_t len, struct buf *out)
{
    z_stream z = {.next_in = gz, .avail_in = (unsigned)len};
    int r = inflateInit2(&z, GZIP_WINDOW);
    if (r != Z_OK)
        return -EIO;
    while (r == Z_OK && buf_reserve(out, CHUNK) == 0) {
        z.next_out = (unsigned char *)out->data + out->len;
        z.avail_out = CHUNK;
        r = inflate(&z, Z_NO_FLUSH);
        out->len += CHUNK - z.avail_out;
    }
    inflateEnd(&z);
    return out->failed ? -ENOMEM : r == Z_STREAM_END ? 0 : -EIO;
}

int asset_unpack(const char *name, struct buf *out)
{
    const struct asset_entry *a = find_asset(name);
    return a ? asset_gunzip(a->from, (size_t)(a->end - a->from), out) : -EIO;
}

int asset_find(const char *name, struct asset_file *ret)
{
    const struct asset_entry *a = find_asset(name);
    uint32_t tail[2];
    if (!a || !a->type)
        return -ENOENT;
    *ret = (struct asset_file){.type = a->type, .gzip = a->from, .len = (size_t)(a->end - a->from)};
    /* a gzip file ends with the checksum and the length of the content */
    memcpy(tail, a->end - sizeof tail, sizeof tail);
    snprintf(ret->etag, sizeof ret->etag, "\"%08x-%x\"", tail[0], tail[1]);
    return 0;
}
