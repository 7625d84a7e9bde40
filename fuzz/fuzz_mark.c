/* Fuzzes the parser of marks with one arbitrary datagram. A parsed mark must be consistent. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mark/mark.h"
#include "mark/row.h"
#include "target.h"

/* Checks that a mark for several steps can be split into one valid mark per step. */
static void check_row(const struct mark *m)
{
    char text[MARK_TEXT_MAX];
    struct mark one, again;
    size_t length = mark_row_length(m);
    if (length == 1 || m->len > MARK_TEXT_MAX)
        return;
    for (size_t i = 0; i < length; i += length - 1) {
        mark_row_at(m, length, i, text, &one);
        if (mark_parse(one.text, one.len, &again) < 0 || again.step != one.step)
            abort();
    }
}

static void check_figure(const char *s, size_t len)
{
    char full[128], name[32];
    int32_t pid;
    if (len >= sizeof full)
        return;
    memcpy(full, s, len);
    full[len] = '\0';
    if (mark_figure_parse(full, name, sizeof name, &pid) && (!name[0] || pid < 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mark_line line;
    struct mark m;
    size_t at = 0, len, lines = 0;

    check_figure((const char *)data, size);
    if (mark_parse((const char *)data, size, &m) < 0)
        return 0;
    while (mark_next(&m, &at, &line))
        lines++;
    if (lines == 0 || !mark_get(&m, "KIND", &len) || len == 0 || memchr(data, '\0', size))
        abort();
    if ((m.has & MARK_HAS_STEP) && m.step < 0)
        abort();
    check_row(&m);
    return 0;
}
