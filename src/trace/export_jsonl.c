/* A recording as JSON lines: everything in it, in order. */
#include "trace/export.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
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
    const char *type; /* of its lines */
    const struct field *fields;
} entities[ENTITY_KINDS] = {
    [ENTITY_MACHINE] = {"machine", machine_fields},
    [ENTITY_PROCESS] = {"sample", process_fields},
    [ENTITY_GPU] = {"gpu", gpu_fields},
    [ENTITY_SERIES] = {"series", series_fields},
};

static void add_escaped(struct buf *out, uint32_t c)
{
    if (c == '"' || c == '\\') {
        buf_add_byte(out, '\\');
        buf_add_byte(out, (uint8_t)c);
    } else {
        buf_printf(out, "\\u%04x", (unsigned)c);
    }
}

/* Any bytes as a JSON string: what is not UTF-8 becomes U+FFFD, as json_text does it. */
static void add_string(struct buf *out, const char *s, size_t len)
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
        if (n > 0)
            add_escaped(out, c);
        else
            buf_add_str(out, "\xEF\xBF\xBD");
        i += n > 0 ? n : 1;
        from = i;
    }
    buf_add(out, s + from, i - from);
    buf_add_byte(out, '"');
}

static void add_string0(struct buf *out, const char *s)
{
    add_string(out, s, strlen(s));
}

static void add_key(struct buf *out, const char *key)
{
    buf_add_byte(out, ',');
    buf_add_byte(out, '"');
    buf_add_str(out, key);
    buf_add_str(out, "\":");
}

static void begin_line(struct export *e, const char *type, uint64_t t_ns)
{
    buf_add_str(&e->buf, "{\"type\":\"");
    buf_add_str(&e->buf, type);
    buf_add_str(&e->buf, "\",\"t\":");
    export_add_seconds(&e->buf, t_ns, e->start_ns);
}

static void end_line(struct export *e)
{
    buf_add_str(&e->buf, "}\n");
}

static void add_process(struct export *e, const struct trace_item *item)
{
    const struct process_info *p = item->process.info;
    struct buf *b = &e->buf;
    size_t from = 0;

    begin_line(e, "process", item->t_ns);
    add_key(b, "event");
    add_string0(b, process_event_name(item->process.event));
    add_key(b, "slot");
    export_add_u64(b, item->process.slot);
    add_key(b, "pid");
    export_add_i64(b, p->id.pid);
    add_key(b, "start_ticks");
    export_add_u64(b, p->id.start_ticks);
    add_key(b, "ppid");
    export_add_i64(b, p->ppid);
    add_key(b, "uid");
    export_add_u64(b, p->uid);
    add_key(b, "role");
    add_string0(b, process_role_name(p->role));
    add_key(b, "comm");
    add_string(b, p->comm, p->comm_len);
    add_key(b, "cmdline");
    buf_add_byte(b, '[');
    while (from < p->cmdline_len) { /* NUL between the arguments, and mostly one at the end */
        size_t len = strnlen(p->cmdline + from, (size_t)p->cmdline_len - from);

        if (from > 0)
            buf_add_byte(b, ',');
        add_string(b, p->cmdline + from, len);
        from += len + 1;
    }
    buf_add_byte(b, ']');
    end_line(e);
}

static void add_field_name(struct buf *out, const struct field *f, unsigned number)
{
    if (f->name)
        buf_add_str(out, f->name);
    else
        buf_printf(out, "field_%u", number); /* of a newer version */
}

static void add_readings(struct buf *out, const struct field *fields, const struct sample *s)
{
    for (unsigned i = 0; i < SAMPLE_FIELDS_MAX; i++) {
        if (!(s->read >> i & 1u))
            continue;
        buf_add_str(out, ",\"");
        add_field_name(out, &fields[i], i);
        if (fields[i].unit && fields[i].unit[0]) {
            buf_add_byte(out, '_');
            buf_add_str(out, strcmp(fields[i].unit, "B") == 0 ? "bytes" : fields[i].unit);
        }
        buf_add_str(out, "\":");
        export_add_u64(out, s->v[i]);
    }
}

static void add_stale(struct buf *out, const struct field *fields, const struct sample *s)
{
    const char *before = ",\"stale\":[\"";

    for (unsigned i = 0; i < SAMPLE_FIELDS_MAX; i++) {
        if (!(s->stale >> i & 1u))
            continue;
        buf_add_str(out, before);
        add_field_name(out, &fields[i], i);
        buf_add_byte(out, '"');
        before = ",\"";
    }
    if (before[2] == '\0')
        buf_add_byte(out, ']');
}

static void add_row(struct export *e, uint64_t t_ns, const struct trace_row *row)
{
    if ((unsigned)row->kind >= ENTITY_KINDS)
        return;
    begin_line(e, entities[row->kind].type, t_ns);
    if (row->kind == ENTITY_PROCESS) {
        add_key(&e->buf, "slot");
        export_add_u64(&e->buf, row->id);
        add_key(&e->buf, "pid");
        export_add_i64(&e->buf, row->process->id.pid);
    } else if (row->kind != ENTITY_MACHINE) {
        add_key(&e->buf, "id");
        export_add_u64(&e->buf, row->id);
        add_key(&e->buf, "name");
        add_string0(&e->buf, row->name);
    }
    add_readings(&e->buf, entities[row->kind].fields, &row->sample);
    add_stale(&e->buf, entities[row->kind].fields, &row->sample);
    end_line(e);
}

/* Keys that a line has of its own: the job's go under another name. */
static bool is_taken_key(const struct mark_line *line)
{
    static const char *const taken[] = {"T", "TYPE", "PID"};

    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        if (strlen(taken[i]) == line->key_len && memcmp(taken[i], line->key, line->key_len) == 0)
            return true;
    return false;
}

static void add_mark_key(struct buf *out, const struct mark_line *line)
{
    buf_add_str(out, is_taken_key(line) ? ",\"mark_" : ",\"");
    for (size_t i = 0; i < line->key_len; i++) {
        char c = line->key[i];

        buf_add_byte(out, (uint8_t)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c));
    }
    buf_add_str(out, "\":");
}

/* What was decoded goes out as a number, the rest as the text it is. */
static void add_mark_value(struct buf *out, const struct mark *m, const struct mark_line *line)
{
    const struct {
        const char *key;
        uint32_t has;
        int64_t v;
    } numbers[] = {
        {"STEP", MARK_HAS_STEP, m->step},
        {"STEPS_PER_EPOCH", MARK_HAS_STEPS_PER_EPOCH, m->steps_per_epoch},
        {"MAX_STEPS", MARK_HAS_MAX_STEPS, m->max_steps},
        {"RANK", MARK_HAS_RANK, m->rank},
        {"EXAMPLES", MARK_HAS_EXAMPLES, m->examples},
        {"EFFECTIVE_BATCH", MARK_HAS_EFFECTIVE_BATCH, m->effective_batch},
        {"EPOCH", MARK_HAS_EPOCH, 0},
    };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (!(m->has & numbers[i].has) || strlen(numbers[i].key) != line->key_len ||
            memcmp(numbers[i].key, line->key, line->key_len) != 0)
            continue;
        if (numbers[i].has == MARK_HAS_EPOCH)
            export_add_double(out, m->epoch);
        else
            export_add_i64(out, numbers[i].v);
        return;
    }
    add_string(out, line->value, line->value_len);
}

/* An object has each key once; of a mark's the first wins. */
static bool is_first(const struct mark *m, const struct mark_line *line)
{
    struct mark_line other;
    size_t at = 0;

    while (mark_next(m, &at, &other) && other.key != line->key)
        if (other.key_len == line->key_len && memcmp(other.key, line->key, line->key_len) == 0)
            return false;
    return true;
}

static void add_mark(struct export *e, const struct trace_item *item)
{
    const struct mark *m = &item->mark;
    size_t kind_len = 0, at = 0;
    const char *kind = mark_get(m, "KIND", &kind_len);
    struct mark_line line;

    begin_line(e, "mark", item->t_ns);
    add_key(&e->buf, "kind");
    if (kind)
        add_string(&e->buf, kind, kind_len);
    else
        add_string0(&e->buf, mark_kind_name(m->kind));
    if (m->pid != 0) {
        add_key(&e->buf, "pid");
        export_add_i64(&e->buf, m->pid);
    }
    while (mark_next(m, &at, &line)) {
        if ((line.key_len == 4 && memcmp(line.key, "KIND", 4) == 0) || !is_first(m, &line))
            continue;
        add_mark_key(&e->buf, &line);
        add_mark_value(&e->buf, m, &line);
    }
    end_line(e);
}

static int add_json(struct export *e, const json_t *doc)
{
    int r = json_print(&e->buf, doc, 0);

    if (r == 0)
        e->buf.len--; /* its newline */
    return r;
}

/* Notes are ours and JSON; one that is not was damaged or made to harm, and goes out as text. */
static int add_note(struct export *e, const struct trace_item *item)
{
    json_t *data = json_parse(item->note.text, item->note.len, NULL);
    int r = 0;

    begin_line(e, "note", item->t_ns);
    add_key(&e->buf, "kind");
    add_string0(&e->buf, item->note.kind);
    add_key(&e->buf, data ? "data" : "text");
    if (data)
        r = add_json(e, data);
    else
        add_string(&e->buf, item->note.text, item->note.len);
    end_line(e);
    json_decref(data);
    return r;
}

static void add_entity(struct export *e, const struct trace_item *item)
{
    if ((unsigned)item->entity.kind >= ENTITY_KINDS)
        return;
    begin_line(e, "entity", item->t_ns);
    add_key(&e->buf, "kind");
    add_string0(&e->buf, entities[item->entity.kind].type);
    add_key(&e->buf, "id");
    export_add_u64(&e->buf, item->entity.id);
    add_key(&e->buf, "name");
    add_string0(&e->buf, item->entity.name);
    end_line(e);
}

static int add_header(struct export *e)
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

/* Only where there was any: who reads the export should know what it lacks. */
static void add_damage(struct export *e)
{
    struct trace_reader_damage d;

    trace_reader_damage(e->reader, &d);
    if (d.bad_bytes == 0 && d.cut_bytes == 0 && d.unknown_blocks == 0 && d.lost_blocks == 0)
        return;
    buf_add_str(&e->buf, "{\"type\":\"damage\"");
    add_key(&e->buf, "bad_bytes");
    export_add_u64(&e->buf, d.bad_bytes);
    add_key(&e->buf, "cut_bytes");
    export_add_u64(&e->buf, d.cut_bytes);
    add_key(&e->buf, "unknown_blocks");
    export_add_u64(&e->buf, d.unknown_blocks);
    add_key(&e->buf, "lost_blocks");
    export_add_u64(&e->buf, d.lost_blocks);
    end_line(e);
}

static int add_item(struct export *e, const struct trace_item *item)
{
    switch (item->kind) {
    case TRACE_TICK:
        for (size_t i = 0; i < item->tick.count; i++)
            add_row(e, item->t_ns, &item->tick.rows[i]);
        return 0;
    case TRACE_PROCESS:
        add_process(e, item);
        return 0;
    case TRACE_MARK:
        add_mark(e, item);
        return 0;
    case TRACE_NOTE:
        return add_note(e, item);
    case TRACE_ENTITY:
        add_entity(e, item);
        return 0;
    }
    return 0;
}

int export_jsonl(struct trace_reader *r, FILE *out, struct err *err)
{
    struct export e = {.reader = r, .out = out, .start_ns = trace_reader_start_mono_ns(r)};
    struct trace_item item;
    int code = add_header(&e), more = 0;

    while (code == 0 && (more = trace_reader_next(r, &item)) > 0) {
        code = add_item(&e, &item);
        if (code == 0)
            code = export_write(&e, false);
    }
    if (code == 0)
        code = more;
    if (code == 0)
        add_damage(&e);
    return export_finish(&e, code, err);
}
