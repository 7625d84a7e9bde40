/* Text of other programs inside a page: it is shown, and never becomes part of the page. */
#pragma once

#include <jansson.h>
#include <stddef.h>

struct buf;

/* Any bytes as text or as the value of an attribute in double quotes: control characters and what
 * is not UTF-8 are made visible (text_escape), then & < > " ' become entities. */
void html_text(struct buf *out, const char *s, size_t len);
void html_text0(struct buf *out, const char *s); /* NULL is nothing */
/* A document for a <script type="application/json">: ASCII, and without any < > & in it, so that
 * no string in it can end the element. 0 or -ENOMEM. */
int html_json(struct buf *out, const json_t *doc);
