/* The table of processes in a summary: the largest few, and what is left. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "present/cells.h"
#include "present/page.h"

enum { PROCESSES_SHOWN = 8, NAME_COLUMNS_MIN = 18, WIDE_COLUMNS = 96 };

enum column_id {
    COL_PID,
    COL_ROLE,
    COL_START,
    COL_FLOOR,
    COL_MEAN,
    COL_PEAK,
    COL_END,
    COL_GROWTH,
    COL_RATE,
    COL_UNIQUE,
    COL_COUNT
};

static size_t role_columns(const json_t *processes, bool is_short)
{
    char role[CELL_MAX];
    size_t most = 4, i;
    const json_t *process;
    json_array_foreach(processes, i, process)
    {
        const char *text = json_string_value(json_object_get(process, "role"));
        size_t len = i < PROCESSES_SHOWN && text ? strlen(cell_role(role, text, is_short)) : 0;
        most = len > most ? len : most;
    }
    return most;
}

static bool has_unique(const json_t *processes)
{
    size_t i;
    const json_t *process;
    json_array_foreach(processes, i, process)
    {
        if (json_is_integer(json_object_get(process, "unique_bytes")))
            return true;
    }
    return false;
}

static void choose_columns(const struct page *p, const json_t *processes,
                           struct cell_column ret[COL_COUNT])
{
    size_t role = role_columns(processes, p->width < WIDE_COLUMNS);
    const struct cell_column all[COL_COUNT] = {
        [COL_PID] = {"PID", 8, 1, false},
        [COL_ROLE] = {"ROLE", (int)role + 1, 3, false},
        [COL_START] = {"START", 7, 9, false},
        [COL_FLOOR] = {"FLOOR", 7, 8, false},
        [COL_MEAN] = {"MEAN", 7, 10, false},
        [COL_PEAK] = {"PEAK", 7, 2, false},
        [COL_END] = {"END", 7, 6, false},
        [COL_GROWTH] = {"GROWTH", 8, 5, false},
        [COL_RATE] = {"RATE/min", 9, 4, false},
        [COL_UNIQUE] = {"UNIQUE", 7, has_unique(processes) ? 7 : 0, false},
    };
    memcpy(ret, all, sizeof all);
    cell_columns_fit(ret, COL_COUNT, (int)p->width, NAME_COLUMNS_MIN);
}

static void put_cell(struct page *p, const struct cell_column *c, bool is_left, enum style style,
                     const char *text)
{
    size_t begin = p->column;
    size_t columns = cell_columns(text), width = (size_t)c->width;
    if (!is_left && columns + 1 < width)
        page_pad(p, begin + width - 1 - columns);
    page_put(p, style, text);
    page_pad(p, begin + width);
}

static char *size_cell(char out[CELL_MAX], const json_t *v)
{
    struct frame_bytes bytes = {.known = json_is_integer(v) && json_integer_value(v) >= 0};
    bytes.bytes = bytes.known ? (uint64_t)json_integer_value(v) : 0;
    return cell_bytes(out, &bytes);
}

static char *process_cell(const json_t *o, enum column_id id, bool is_short, char out[CELL_MAX])
{
    const json_t *pid = json_object_get(o, "pid");
    const json_t *growth = json_object_get(o, "growth_bytes");
    const json_t *rate = json_object_get(o, "rate_bytes_per_min");
    const char *role = json_string_value(json_object_get(o, "role"));
    static const char *const keys[COL_COUNT] = {[COL_START] = "start_bytes",
                                                [COL_MEAN] = "mean_bytes",
                                                [COL_PEAK] = "peak_bytes",
                                                [COL_END] = "end_bytes",
                                                [COL_UNIQUE] = "unique_bytes"};
    if (keys[id])
        return size_cell(out, json_object_get(o, keys[id]));
    if (id == COL_FLOOR)
        return size_cell(out, summary_at(o, "floor_bytes", "last"));
    if (id == COL_GROWTH)
        return cell_rate(out, json_is_number(growth), json_number_value(growth));
    if (id == COL_RATE)
        return cell_rate(out, json_is_number(rate), json_number_value(rate));
    if (id == COL_ROLE)
        return cell_role(out, role ? role : "–", is_short);
    snprintf(out, CELL_MAX, "%lld", (long long)json_integer_value(pid));
    return out;
}

/* One argument without the folders of an absolute path. */
static void add_argument(struct buf *raw, const json_t *arg)
{
    const char *text = json_is_string(arg) ? json_string_value(arg) : "";
    const char *slash = text[0] == '/' ? strrchr(text, '/') : NULL;
    if (raw->len)
        buf_add_byte(raw, ' ');
    buf_add_str(raw, slash && slash[1] ? slash + 1 : text);
}

/* A worker that was forked has its parent's command line; a name of its own tells it apart. The
 * kernel keeps 15 bytes of a name. */
static bool has_own_name(const json_t *o, const char *first)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *slash = strrchr(first, '/');
    const char *base = slash && slash[1] ? slash + 1 : first;
    return name && name[0] && strncmp(base, name, strlen(name)) != 0 &&
           strncmp(name, base, strlen(base)) != 0;
}

/* The command, or the name where there is none, or both where they differ. */
static void put_name(struct page *p, const json_t *o)
{
    char text[TEXT_MAX];
    size_t room = p->width > p->column ? p->width - p->column : 1;
    const json_t *command = json_object_get(o, "command");
    struct buf raw = {0};
    const char *first = json_string_value(json_array_get(command, 0));
    if (first && has_own_name(o, first))
        buf_printf(&raw, "%s:", json_string_value(json_object_get(o, "name")));
    for (size_t i = 0; i < json_array_size(command); i++)
        add_argument(&raw, json_array_get(command, i));
    if (raw.len)
        page_put(p, STYLE_PLAIN, text_fit(text, sizeof text, room, buf_str(&raw), raw.len));
    else
        page_put(p, STYLE_PLAIN, summary_fit(text, room, json_object_get(o, "name")));
    buf_fini(&raw);
}

static void put_titles(struct page *p, const struct cell_column *columns)
{
    for (int id = 0; id < COL_COUNT; id++)
        if (columns[id].is_shown)
            put_cell(p, &columns[id], id == COL_ROLE, STYLE_DIM, columns[id].title);
    page_put(p, STYLE_DIM, "COMMAND");
    page_line(p);
}

static void put_more(struct page *p, const json_t *doc, const json_t *processes)
{
    char size[TEXT_SIZE_MAX], text[TEXT_MAX];
    const json_t *seen = json_object_get(doc, "processes_seen");
    json_int_t listed = (json_int_t)json_array_size(processes);
    json_int_t shown = listed < PROCESSES_SHOWN ? listed : PROCESSES_SHOWN;
    json_int_t more = (json_is_integer(seen) ? json_integer_value(seen) : listed) - shown;
    if (more <= 0)
        return;
    const json_t *next = json_array_get(processes, (size_t)shown);
    const char *largest = summary_size(size, json_object_get(next, "peak_bytes"));
    snprintf(text, sizeof text, "    and %lld more%s%s", (long long)more,
             largest ? ", the largest " : "", largest ? largest : "");
    page_put(p, STYLE_DIM, text);
    page_line(p);
}

void summary_processes(struct page *p, const json_t *doc)
{
    const json_t *processes = json_object_get(doc, "processes");
    struct cell_column columns[COL_COUNT];
    char text[CELL_MAX];
    size_t i;
    const json_t *process;
    if (json_array_size(processes) == 0)
        return;
    page_line(p);
    choose_columns(p, processes, columns);
    put_titles(p, columns);
    json_array_foreach(processes, i, process)
    {
        if (i == PROCESSES_SHOWN)
            break;
        for (enum column_id id = 0; id < COL_COUNT; id++)
            if (columns[id].is_shown)
                put_cell(p, &columns[id], id == COL_ROLE,
                         id == COL_PEAK ? STYLE_STRONG : STYLE_PLAIN,
                         process_cell(process, id, p->width < WIDE_COLUMNS, text));
        put_name(p, process);
        page_line(p);
    }
    put_more(p, doc, processes);
    page_line(p);
}
