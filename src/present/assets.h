/* What the pages bring along: their style and, where npm was there when this was built, their
 * plots. */
#pragma once

#include <stddef.h>

struct buf;

enum asset { ASSET_REPORT_CSS, ASSET_REPORT_JS };

/* Appends it unpacked: nothing where it was not built. 0, -EIO, -ENOMEM. */
int asset_unpack(enum asset asset, struct buf *out);

/* Appends what LEN bytes of GZ unpack to. 0, -EIO, -ENOMEM. */
int asset_gunzip(const void *gz, size_t len, struct buf *out);

/* ---- the files of the server's page, as they are sent ---- */

/* What the page may load, as Content-Security-Policy: its own files, nothing inline. */
#define ASSET_POLICY                                                                               \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "                    \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

struct asset_file {
    const char *type; /* of the content, for Content-Type */
    const void *gzip;
    size_t len;
    char etag[32]; /* with its quotes; another one when the content is another */
};

/* NAME: serve.html, which is the page, and what it asks for under /assets: serve.css, serve.js,
 * icon.svg. Without npm serve.html is a page that says so, and serve.js is empty. 0 or -ENOENT. */
int asset_find(const char *name, struct asset_file *ret);
