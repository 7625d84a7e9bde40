/* Formats short numbers, and chooses table columns by priority. */
#include "present/cells.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "base/number.h"
#include "base/text.h"

/* Turns "+1.24 GiB" into "+1.24G", "5 B" into "5B" and "0 B" into "0". */
static char *shorten(char out[CELL_MAX], const char *text)
{
    const char *space = strchr(text, ' ');
    int digits = space ? (int)(space - text) : (int)strlen(text);
    bool is_zero = digits == 1 && text[0] == '0';
    snprintf(out, CELL_MAX, "%.*s%.1s", digits, text, space && !is_zero ? space + 1 : "");
    return out;
}

char *cell_size(char out[CELL_MAX], uint64_t bytes)
{
    char text[TEXT_SIZE_MAX];
    return shorten(out, text_size(text, bytes));
}

char *cell_known(char out[CELL_MAX], bool known, uint64_t bytes)
{
    return cell_bytes(out, &(struct frame_bytes){.known = known, .bytes = bytes});
}

char *cell_bytes(char out[CELL_MAX], const struct frame_bytes *v)
{
    char text[TEXT_SIZE_MAX];
    if (!v->known) {
        snprintf(out, CELL_MAX, "–");
        return out;
    }
    shorten(out + v->stale, text_size(text, v->bytes));
    if (v->stale)
        out[0] = '~';
    return out;
}

char *cell_rate(char out[CELL_MAX], bool known, double bytes_per_min)
{
    char text[TEXT_SIZE_MAX];
    if (known)
        return shorten(out, text_size_signed(text, number_to_i64(bytes_per_min)));
    snprintf(out, CELL_MAX, "–");
    return out;
}

char *cell_rate_text(char out[CELL_MAX], double bytes_per_min)
{
    char text[TEXT_SIZE_MAX];
    snprintf(out, CELL_MAX, "%s/min", text_size_signed(text, number_to_i64(bytes_per_min)));
    return out;
}

const char *known_size(char out[TEXT_SIZE_MAX], bool has, double bytes)
{
    return has && bytes >= 0 && bytes < 9e18 ? text_size(out, number_to_u64(bytes)) : "–";
}

const char *known_change(char out[TEXT_SIZE_MAX], bool has, double bytes)
{
    return has && fabs(bytes) < 9e18 ? text_size_signed(out, number_to_i64(bytes)) : "–";
}

char *cell_role(char out[CELL_MAX], const char *role, bool is_short)
{
    size_t len = is_short ? strcspn(role, " ") : strlen(role);
    snprintf(out, CELL_MAX, "%.*s", (int)len, role);
    return out;
}

const char *path_below(const char *path, const char *folder)
{
    size_t len = folder ? strlen(folder) : 0;
    bool is_inside =
        len > 1 && strncmp(path, folder, len) == 0 && path[len] == '/' && path[len + 1];
    return is_inside ? path + len + 1 : path;
}

size_t cell_columns(const char *s)
{
    size_t columns = 0;
    size_t len = strlen(s);
    for (size_t i = 0; i < len;) {
        uint32_t c = 0;
        size_t n = text_utf8(s + i, len - i, &c);
        int w = n ? wcwidth((wchar_t)c) : 1;
        columns += w >= 0 ? (size_t)w : 1;
        i += n ? n : 1;
    }
    return columns;
}

int cell_columns_fit(struct cell_column *columns, size_t count, int width, int rest)
{
    int used = 0;
    for (size_t i = 0; i < count; i++)
        columns[i].is_shown = false;
    for (int last = 0;;) {
        /* The most important column that has not been considered yet. */
        struct cell_column *next = NULL;
        for (size_t i = 0; i < count; i++)
            if (columns[i].priority > last && (!next || columns[i].priority < next->priority))
                next = &columns[i];
        if (!next || used + next->width > width - rest)
            return used;
        next->is_shown = true;
        used += next->width;
        last = next->priority;
    }
}
