/* Where memory was allocated, and for whom, in a few columns. */
#include "present/heap_where.h"

#include <string.h>

#include "base/buf.h"
#include "base/text.h"

static const char *string(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* The end of a long path: the part that tells it from others. A folder that ".." leaves again is
 * none of it. */
static const char *path_tail(const char *path, size_t width)
{
    size_t len = strlen(path);
    if (len <= width)
        return path;
    const char *tail = path + len - width;
    const char *slash = strchr(tail, '/');
    for (const char *at = tail; (at = strstr(at, "../")); at += 3)
        if (at > path && at[-1] == '/')
            slash = at + 2;
    return slash && slash[1] ? slash + 1 : tail;
}

/* The name of the file; with its folder, where all packages have one of that name. */
static const char *path_base(const char *path)
{
    const char *base = strrchr(path, '/');
    if (!base || base == path)
        return path;
    bool is_common = strncmp(base + 1, "__", 2) == 0;
    while (is_common && base > path && base[-1] != '/')
        base--;
    return is_common ? base : base + 1;
}

/* Adds the name of FRAME's function: "wrap.inner" of "wrap.<locals>.inner". */
static void add_function(struct buf *text, const json_t *frame)
{
    static const char locals[] = ".<locals>";
    const char *at = string(frame, "function"), *found;
    for (; at && (found = strstr(at, locals)); at = found + sizeof locals - 1)
        buf_add(text, at, (size_t)(found - at));
    buf_add_str(text, at ? at : "");
}

void heap_where_add(struct buf *text, const json_t *where, size_t width)
{
    const char *function = string(where, "function"), *file = string(where, "file");
    const char *lib = string(where, "lib");
    const json_t *line = json_object_get(where, "line");
    struct buf name = {0};
    add_function(&name, where);
    if (file) {
        size_t room = width > name.len + 24 ? width - name.len - 8 : 16;
        const char *tail = width ? path_tail(file, room) : path_base(file);
        buf_printf(text, "%s%s", tail == file || tail[-1] == '/' ? "" : "…", tail);
        if (json_is_integer(line))
            buf_printf(text, ":%" JSON_INTEGER_FORMAT, json_integer_value(line));
        buf_add_str(text, " ");
    }
    buf_add_str(text, buf_str(&name));
    if (lib && !file && !(function && strncmp(function, lib, strlen(lib)) == 0))
        buf_printf(text, " (%s)", lib);
    buf_fini(&name);
}

char *heap_where_fit(char out[HEAP_WHERE_SIZE], struct buf *text, size_t width)
{
    text_fit(out, HEAP_WHERE_SIZE, width < HEAP_WHERE_COLUMNS ? width : HEAP_WHERE_COLUMNS,
             buf_str(text), text->len);
    buf_fini(text);
    return out;
}

char *heap_where_text(char out[HEAP_WHERE_SIZE], const json_t *where, size_t width)
{
    struct buf text = {0};
    heap_where_add(&text, where, width);
    return heap_where_fit(out, &text, width);
}

bool heap_row_is_merged(const json_t *row)
{
    return json_integer_value(json_object_get(row, "place_count")) > 1;
}

const json_t *heap_row_head(const json_t *row)
{
    return json_object_get(row, heap_row_is_merged(row) ? "in_program" : "where");
}

void heap_row_add_callers(struct buf *ret, const json_t *row, size_t width)
{
    static const char arrow[] = "← ";
    const json_t *own = json_object_get(row, "in_program"), *caller;
    struct buf text = {0}, name = {0};
    size_t i;
    if (json_is_object(own) && !json_is_true(json_object_get(heap_row_head(row), "own"))) {
        buf_add_str(&text, arrow);
        heap_where_add(&text, own, 0);
    }
    json_array_foreach(json_object_get(row, "callers"), i, caller)
    {
        buf_clear(&name);
        add_function(&name, caller);
        if (text.len && text.len + name.len + 1 > width) /* an arrow's two more bytes each */
            break;
        buf_printf(&text, "%s%s", text.len ? " " : "", arrow);
        if (text.len > sizeof arrow)
            buf_add_str(&text, buf_str(&name));
        else
            heap_where_add(&text, caller, 0);
    }
    buf_add_str(ret, buf_str(&text));
    buf_fini(&name);
    buf_fini(&text);
}

bool heap_where_has_name(const json_t *where)
{
    const char *function = string(where, "function"), *lib = string(where, "lib");
    return json_is_object(where) && function &&
           !(lib && strncmp(function, lib, strlen(lib)) == 0 && function[strlen(lib)] == '+');
}
