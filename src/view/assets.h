/* What the pages bring along: their style and, where npm was there when this was built, their
 * plots. */
#pragma once

struct buf;

enum asset { ASSET_REPORT_CSS, ASSET_REPORT_JS };

/* Appends it unpacked: nothing where it was not built. 0, -EIO, -ENOMEM. */
int asset_unpack(enum asset asset, struct buf *out);
