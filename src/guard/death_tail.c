/* The end of a job's output: a ring, and its text without colours. */
#include <string.h>

#include "guard/death_private.h"

void death_tail_add(struct death_tail *t, const char *data, size_t len)
{
    if (len > DEATH_TAIL) { /* only the last would stay */
        t->written += len - DEATH_TAIL;
        data += len - DEATH_TAIL;
        len = DEATH_TAIL;
    }
    size_t at = (size_t)(t->written % DEATH_TAIL);
    size_t first = len < DEATH_TAIL - at ? len : DEATH_TAIL - at;
    if (len == 0)
        return;
    memcpy(t->text + at, data, first);
    memcpy(t->text, data + first, len - first);
    t->written += len;
}

/* The end of the escape sequence whose ESC is just before P. */
static const char *escape_end(const char *p, const char *end)
{
    if (p == end)
        return p;
    char kind = *p++;
    if (kind == '[') {
        while (p < end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x40)
            p++;
        return p < end ? p + 1 : p;
    }
    if (kind == ']') { /* a title or a link, up to BEL or ESC \ on the same line */
        while (p < end && *p != '\a' && *p != '\n' && *p != 0x1B)
            p++;
        return p < end && *p == '\a' ? p + 1 : p;
    }
    if (strchr("()*+#%", kind) && p < end)
        p++;
    return p;
}

/* Takes colours and the like out, in place. Returns the new length. */
static size_t without_escapes(char *text, size_t len)
{
    const char *p = text, *end = text + len;
    char *out = text;
    while (p < end) {
        if (*p == 0x1B)
            p = escape_end(p + 1, end);
        else
            *out++ = *p++;
    }
    return (size_t)(out - text);
}

static size_t flatten(const struct death_tail *t, char flat[DEATH_TAIL])
{
    if (t->written <= DEATH_TAIL) {
        memcpy(flat, t->text, (size_t)t->written);
        return (size_t)t->written;
    }
    size_t start = (size_t)(t->written % DEATH_TAIL);
    memcpy(flat, t->text + start, DEATH_TAIL - start);
    memcpy(flat + DEATH_TAIL - start, t->text, start);
    return DEATH_TAIL;
}

size_t death_tail_text(const struct death_tail *t, char text[DEATH_TAIL])
{
    return without_escapes(text, flatten(t, text));
}
