/* Embedded files of the web pages: their style sheets and, if npm was installed at build time, the
 * scripts that draw their plots. */
#pragma once

#include <stddef.h>

struct buf;

/* Appends the decompressed content of report.css or report.js. Appends nothing if the file was not
 * built. Returns 0, -EIO or -ENOMEM. */
int asset_unpack(const char *name, struct buf *out);

/* Appends the decompressed content of the LEN bytes of GZ. Returns 0, -EIO or -ENOMEM. */
int asset_gunzip(const void *gz, size_t len, struct buf *out);

/* ---- files of the server's page ---- */

/* The page's Content-Security-Policy. It allows only files from the server itself, and no inline
 * scripts or styles. */
#define ASSET_POLICY                                                                               \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "                    \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

struct asset_file {
    const char *type; /* value of the Content-Type header */
    const void *gzip;
    size_t len;
    char etag[32]; /* HTTP etag in quotes, which changes with the content */
};

/* Finds a file by NAME: the page serve.html, or one of the files that the page loads from /assets
 * (serve.css, serve.js, icon.svg). If ebb was built without npm, serve.html is a page that explains
 * this, and serve.js is empty. Returns 0 or -ENOENT. */
int asset_find(const char *name, struct asset_file *ret);
