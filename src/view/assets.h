/* What the page brings along: its style and, where npm was there when this was built, its plots. */
#pragma once

struct buf;

enum asset { ASSET_CSS, ASSET_JS };

/* Appends it unpacked: nothing where it was not built. 0, -EIO, -ENOMEM. */
int asset_unpack(enum asset asset, struct buf *out);
