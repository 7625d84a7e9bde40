/* The files of build/web, gzipped, as they are in the program (cmake/web.cmake makes them). */
#include "view/assets.h"

#include <errno.h>
#include <stddef.h>
#define ZLIB_CONST
#include <zlib.h>

#include "base/buf.h"

__asm__(".pushsection .rodata\n"
        "asset_page_css:\n.incbin \"" EBB_WEB_DIR "/page.css.gz\"\nasset_page_css_end:\n.byte 0\n"
        "asset_page_js:\n.incbin \"" EBB_WEB_DIR "/page.js.gz\"\nasset_page_js_end:\n.byte 0\n"
        ".popsection\n");
/* What the assembler knows under these names lies in the program itself, wherever it is loaded. */
#pragma GCC visibility push(hidden)
extern const unsigned char asset_page_css[], asset_page_css_end[];
extern const unsigned char asset_page_js[], asset_page_js_end[];
#pragma GCC visibility pop

enum { CHUNK = 64 << 10, GZIP_WINDOW = 15 + 16 };

static int unpack(const unsigned char *data, size_t len, struct buf *out)
{
    z_stream z = {.next_in = data, .avail_in = (unsigned)len};
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
    const unsigned char *from = asset == ASSET_CSS ? asset_page_css : asset_page_js;
    const unsigned char *end = asset == ASSET_CSS ? asset_page_css_end : asset_page_js_end;
    return unpack(from, (size_t)(end - from), out);
}
