/* Escapes text of other programs for an HTML page. */
#include "present/html.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

static const char *entity_of(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void html_text(struct buf *out, const char *s, size_t len)
{
    struct buf harmless = {0};
    text_escape(&harmless, s, len);
    for (size_t i = 0; i < harmless.len; i++) {
        const char *entity = entity_of(harmless.data[i]);
        if (entity)
            buf_add_str(out, entity);
        else
            buf_add(out, harmless.data + i, 1);
    }
    out->failed = out->failed || harmless.failed;
    buf_fini(&harmless);
}

void html_text0(struct buf *out, const char *s)
{
    if (s)
        html_text(out, s, strlen(s));
}

int html_json(struct buf *out, const json_t *doc)
{
    AUTO_FREE char *text = json_dumps(doc, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
    if (!text)
        return -ENOMEM;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "<>&");
        buf_add(out, at, n);
        at += n;
        if (*at)
            buf_printf(out, "\\u%04x", (unsigned)*at++);
    }
    return out->failed ? -ENOMEM : 0;
}
