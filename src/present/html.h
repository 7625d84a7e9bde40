/* Escapes text of other programs for an HTML page, so that it is shown and never becomes markup. */
#pragma once

#include <jansson.h>
#include <stddef.h>

struct buf;

/* Appends any bytes as text, or as the value of an attribute in double quotes. Control
 * characters and invalid UTF-8 are made visible (text_escape), then & < > " ' become entities. */
void html_text(struct buf *out, const char *s, size_t len);
void html_text0(struct buf *out, const char *s); /* NULL adds nothing */
/* Appends a JSON document for a <script type="application/json">. The text is ASCII without < > &,
 * so that no string in it can end the element. Returns 0 or -ENOMEM. */
int html_json(struct buf *out, const json_t *doc);
