/* The files of build/web, gzipped and embedded in the program by cmake/web.cmake. */
#include "present/assets.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#define ZLIB_CONST
#include <zlib.h>

#include "base/buf.h"

#define BUILT_IN(name, file)                                                                       \
    __asm__(".pushsection .rodata\n" #name ":\n.incbin \"" EBB_WEB_DIR "/" file "\"\n" #name       \
            "_end:\n.byte 0\n.popsection\n")
BUILT_IN(asset_report_css, "report.css.gz");
BUILT_IN(asset_report_js, "report.js.gz");
BUILT_IN(asset_serve_html, "serve.html.gz");
BUILT_IN(asset_serve_css, "serve.css.gz");
BUILT_IN(asset_serve_js, "serve.js.gz");
BUILT_IN(asset_icon_svg, "icon.svg.gz");

/* hidden symbols need no relocation */
#pragma GCC visibility push(hidden)
extern const unsigned char asset_report_css[], asset_report_css_end[];
extern const unsigned char asset_report_js[], asset_report_js_end[];
extern const unsigned char asset_serve_html[], asset_serve_html_end[];
extern const unsigned char asset_serve_css[], asset_serve_css_end[];
extern const unsigned char asset_serve_js[], asset_serve_js_end[];
extern const unsigned char asset_icon_svg[], asset_icon_svg_end[];
#pragma GCC visibility pop

static const struct {
    const unsigned char *from, *end;
} assets[] = {
    [ASSET_REPORT_CSS] = {asset_report_css, asset_report_css_end},
    [ASSET_REPORT_JS] = {asset_report_js, asset_report_js_end},
};

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

int asset_unpack(enum asset asset, struct buf *out)
{
    return asset_gunzip(assets[asset].from, (size_t)(assets[asset].end - assets[asset].from), out);
}

static const struct {
    const char *name, *type;
    const unsigned char *from, *end;
} files[] = {
    {"serve.html", "text/html; charset=utf-8", asset_serve_html, asset_serve_html_end},
    {"serve.css", "text/css; charset=utf-8", asset_serve_css, asset_serve_css_end},
    {"serve.js", "text/javascript; charset=utf-8", asset_serve_js, asset_serve_js_end},
    {"icon.svg", "image/svg+xml", asset_icon_svg, asset_icon_svg_end},
};

/* Makes an etag from the end of a gzip file, which contains the checksum and the length of the
 * content. */
static void etag_of(const unsigned char *end, char *ret, size_t size)
{
    uint32_t tail[2];
    memcpy(tail, end - sizeof tail, sizeof tail);
    snprintf(ret, size, "\"%08x-%x\"", tail[0], tail[1]);
}

int asset_find(const char *name, struct asset_file *ret)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(files[i].name, name) != 0)
            continue;
        *ret = (struct asset_file){.type = files[i].type,
                                   .gzip = files[i].from,
                                   .len = (size_t)(files[i].end - files[i].from)};
        etag_of(files[i].end, ret->etag, sizeof ret->etag);
        return 0;
    }
    return -ENOENT;
}
