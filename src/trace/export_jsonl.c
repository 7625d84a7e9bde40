/* Exports a whole recording, in order, as JSON lines. */
#include "trace/export.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "trace/export_text.h"
#include "trace/reader.h"

struct field {
    const char *name, *unit;
};

#define X(sym, num, name, unit) [num] = {name, unit},
static const struct field process_fields[SAMPLE_FIELDS_MAX] = {SAMPLE_PROCESS_FIELDS(X)};
static const struct field machine_fields[SAMPLE_FIELDS_MAX] = {SAMPLE_MACHINE_FIELDS(X)};
static const struct field gpu_fields[SAMPLE_FIELDS_MAX] = {SAMPLE_GPU_FIELDS(X)};
#undef X
static const struct field series_fields[SAMPLE_FIELDS_MAX] = {{"value", ""}};

static const struct {
    const char *type; /* values of "type" in the exported lines */
    const struct field *fields;
} entities[ENTITY_KINDS] = {
    [ENTITY_MACHINE] = {"machine", machine_fields},
    [ENTITY_PROCESS] = {"sample", process_fields},
    [ENTITY_GPU] = {"gpu", gpu_fields},
    [ENTITY_SERIES] = {"series", series_fields},
};

/* Appends arbitrary bytes as a JSON string. Invalid UTF-8 becomes U+FFFD, as in json_text. */
static void jsonl_add_string(struct buf *out, const char *s, size_t len)
{
    size_t from = 0, i = 0;
    buf_add_byte(out, '"');
    while (i < len) {
        uint32_t c = 0;
        size_t n = text_utf8(s + i, len - i, &c);
        if (n > 0 && c >= 0x20 && c != 0x7f && c != '"' && c != '\\') {
            i += n;
            continue;
        }
        buf_add(out, s + from, i - from);
        if (n == 0)
            buf_add_str(out, "\xEF\xBF\xBD");
        else
            buf_printf(out, c == '"' || c == '\\' ? "\\%c" : "\\u%04x", (int)c);
        i += n > 0 ? n : 1;
        from = i;
    }
    buf_add(out, s + from, i - from);
    buf_add_byte(out, '"');
}

static void jsonl_add_key(struct buf *out, const char *key, const char *s)
{
    buf_printf(out, ",\"%s\":", key);
    jsonl_add_string(out, s, strlen(s));
}

static void jsonl_begin_line(struct export *e, const char *type, uint64_t t_ns)
{
    buf_printf(&e->buf, "{\"type\":\"%s\",\"t\":", type);
    export_add_seconds(&e->buf, t_ns, e->start_ns);
}

static void jsonl_end_line(struct export *e)
{
    buf_add_str(&e->buf, "}\n");
}

static void jsonl_add_process(struct export *e, const struct trace_item *item)
{
    const struct process_info *p = item->process.info;
    struct buf *b = &e->buf;
    jsonl_begin_line(e, "process", item->t_ns);
    buf_printf(b,
               ",\"event\":\"%s\",\"slot\":%" PRIu32 ",\"pid\":%" PRId32 ",\"start_ticks\":%" PRIu64
               ",\"ppid\":%" PRId32 ",\"uid\":%" PRIu32 ",\"role\":\"%s\",\"comm\":",
               process_event_name(item->process.event), item->process.slot, p->id.pid,
               p->id.start_ticks, p->ppid, p->uid, process_role_name(p->role));
    jsonl_add_string(b, p->comm, p->comm_len);
    buf_add_str(b, ",\"cmdline\":[");
    /* the arguments in cmdline are separated by NUL */
    for (size_t from = 0; from < p->cmdline_len;) {
        size_t len = strnlen(p->cmdline + from, (size_t)p->cmdline_len - from);
        buf_add_str(b, from > 0 ? "," : "");
        jsonl_add_string(b, p->cmdline + from, len);
        from += len + 1;
    }
    buf_add_byte(b, ']');
    jsonl_end_line(e);
}

/* The name of field I, or its number if this version of ebb does not know it. */
static const char *jsonl_field_name(const struct field *fields, unsigned i, char room[16])
{
    snprintf(room, 16, "field_%u", i);
    return fields[i].name ? fields[i].name : room;
}

static void jsonl_add_sample(struct buf *out, const struct field *fields, const struct sample *s)
{
    const char *before = ",\"stale\":[";
    char room[16];
    for (unsigned i = 0; i < SAMPLE_FIELDS_MAX; i++) {
        const char *unit = fields[i].unit ? fields[i].unit : "";
        if (s->read >> i & 1u)
            buf_printf(out, ",\"%s%s%s\":%" PRIu64, jsonl_field_name(fields, i, room),
                       *unit ? "_" : "", strcmp(unit, "B") == 0 ? "bytes" : unit, s->v[i]);
    }
    for (unsigned i = 0; i < SAMPLE_FIELDS_MAX; i++) {
        if (!(s->stale >> i & 1u))
            continue;
        buf_printf(out, "%s\"%s\"", before, jsonl_field_name(fields, i, room));
        before = ",";
    }
    if (s->stale)
        buf_add_byte(out, ']');
}

static void jsonl_add_row(struct export *e, uint64_t t_ns, const struct trace_row *row)
{
    if ((unsigned)row->kind >= ENTITY_KINDS)
        return;
    jsonl_begin_line(e, entities[row->kind].type, t_ns);
    if (row->kind == ENTITY_PROCESS) {
        buf_printf(&e->buf, ",\"slot\":%" PRIu32 ",\"pid\":%" PRId32, row->id,
                   row->process->id.pid);
    } else if (row->kind != ENTITY_MACHINE) {
        buf_printf(&e->buf, ",\"id\":%" PRIu32, row->id);
        jsonl_add_key(&e->buf, "name", row->name);
    }
    jsonl_add_sample(&e->buf, entities[row->kind].fields, &row->sample);
    jsonl_end_line(e);
}

/* Appends a key of a mark. Keys that every exported line already contains get the prefix mark_. */
static void jsonl_add_mark_key(struct buf *out, const struct mark_line *line)
{
    bool is_taken =
        mark_line_is(line, "T") || mark_line_is(line, "TYPE") || mark_line_is(line, "PID");
    buf_add_str(out, is_taken ? ",\"mark_" : ",\"");
    for (size_t i = 0; i < line->key_len; i++) {
        char c = line->key[i];
        buf_add_byte(out, (uint8_t)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c));
    }
    buf_add_str(out, "\":");
}

/* Appends a value of a mark, as a JSON number if it is one, otherwise as a string. */
static void jsonl_add_mark_value(struct buf *out, const struct mark *m,
                                 const struct mark_line *line)
{
    int64_t number;
    if (mark_line_number(m, line, &number))
        buf_printf(out, "%" PRId64, number);
    else if (m->has & MARK_HAS_EPOCH && mark_line_is(line, "EPOCH"))
        export_add_double(out, m->epoch);
    else
        jsonl_add_string(out, line->value, line->value_len);
}

/* True if no earlier line of the mark has the same key. The keys of a JSON object must be
 * unique. */
static bool jsonl_is_first(const struct mark *m, const struct mark_line *line)
{
    struct mark_line other;
    size_t at = 0;
    while (mark_next(m, &at, &other) && other.key != line->key)
        if (other.key_len == line->key_len && memcmp(other.key, line->key, line->key_len) == 0)
            return false;
    return true;
}

static void jsonl_add_mark(struct export *e, const struct trace_item *item)
{
    const struct mark *m = &item->mark;
    size_t kind_len = 0, at = 0;
    const char *kind = mark_get(m, "KIND", &kind_len);
    struct mark_line line;
    jsonl_begin_line(e, "mark", item->t_ns);
    if (!kind) {
        kind = mark_kind_name(m->kind);
        kind_len = strlen(kind);
    }
    buf_add_str(&e->buf, ",\"kind\":");
    jsonl_add_string(&e->buf, kind, kind_len);
    if (m->pid != 0)
        buf_printf(&e->buf, ",\"pid\":%" PRId32, m->pid);
    while (mark_next(m, &at, &line)) {
        if (mark_line_is(&line, "KIND") || !jsonl_is_first(m, &line))
            continue;
        jsonl_add_mark_key(&e->buf, &line);
        jsonl_add_mark_value(&e->buf, m, &line);
    }
    jsonl_end_line(e);
}

/* Appends a note. The text of a note is normally JSON. A damaged or hostile recording may contain
 * other text, which is appended as a string. */
static int jsonl_add_note(struct export *e, const struct trace_item *item)
{
    json_t *data = json_parse(item->note.text, item->note.len, NULL);
    int r = 0;
    jsonl_begin_line(e, "note", item->t_ns);
    jsonl_add_key(&e->buf, "kind", item->note.kind);
    if (data) {
        buf_add_str(&e->buf, ",\"data\":");
        r = json_print(&e->buf, data, 0);
        e->buf.len -= r == 0; /* removes the newline that json_print added */
    } else {
        buf_add_str(&e->buf, ",\"text\":");
        jsonl_add_string(&e->buf, item->note.text, item->note.len);
    }
    jsonl_end_line(e);
    json_decref(data);
    return r;
}

static void jsonl_add_entity(struct export *e, const struct trace_item *item)
{
    if ((unsigned)item->entity.kind >= ENTITY_KINDS)
        return;
    jsonl_begin_line(e, "entity", item->t_ns);
    buf_printf(&e->buf, ",\"kind\":\"%s\",\"id\":%" PRIu32, entities[item->entity.kind].type,
               item->entity.id);
    jsonl_add_key(&e->buf, "name", item->entity.name);
    jsonl_end_line(e);
}

static int jsonl_add_header(struct export *e)
{
    json_t *doc = json_pack("{s:s}", "type", "header");
    json_t *header = json_deep_copy(trace_reader_header(e->reader));
    int r = -ENOMEM;
    if (doc && header && json_object_update_missing(doc, header) == 0)
        r = json_print(&e->buf, doc, 0);
    json_decref(doc);
    json_decref(header);
    return r;
}

/* Appends how much of the recording is damaged, if any, so that readers of the export know that
 * data are missing. */
static void jsonl_add_damage(struct export *e)
{
    struct trace_reader_damage d;
    trace_reader_damage(e->reader, &d);
    if (trace_is_damaged(&d))
        buf_printf(&e->buf,
                   "{\"type\":\"damage\",\"bad_bytes\":%" PRIu64 ",\"cut_bytes\":%" PRIu64
                   ",\"unknown_blocks\":%" PRIu64 ",\"lost_blocks\":%" PRIu64 "}\n",
                   d.bad_bytes, d.cut_bytes, d.unknown_blocks, d.lost_blocks);
}

static int jsonl_add_item(struct export *e, const struct trace_item *item)
{
    switch (item->kind) {
    case TRACE_TICK:
        for (size_t i = 0; i < item->tick.count; i++)
            jsonl_add_row(e, item->t_ns, &item->tick.rows[i]);
        return 0;
    case TRACE_PROCESS:
        jsonl_add_process(e, item);
        return 0;
    case TRACE_MARK:
        jsonl_add_mark(e, item);
        return 0;
    case TRACE_NOTE:
        return jsonl_add_note(e, item);
    case TRACE_ENTITY:
        jsonl_add_entity(e, item);
        return 0;
    }
    return 0;
}

int export_jsonl(struct trace_reader *reader, FILE *out, struct err *err)
{
    struct export e = {
        .reader = reader, .out = out, .start_ns = trace_reader_start_mono_ns(reader)};
    struct trace_item item;
    int r = jsonl_add_header(&e), more = 0;
    while (r == 0 && (more = trace_reader_next(reader, &item)) > 0) {
        r = jsonl_add_item(&e, &item);
        if (r == 0)
            r = export_write(&e, false);
    }
    if (r == 0)
        r = more;
    if (r == 0)
        jsonl_add_damage(&e);
    return export_finish(&e, r, err);
}
