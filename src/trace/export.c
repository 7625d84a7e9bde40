/* A recording as CSV: one row for each process at each tick. */
#include "trace/export.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "trace/export_text.h"
#include "trace/reader.h"

#define X(sym, num, name, unit) [num] = {name, name "_bytes"},
static const struct {
    const char *name, *column;
} fields[] = {SAMPLE_PROCESS_FIELDS(X)};
#undef X

/* What the marks have said so far. */
struct said {
    bool has_step, has_epoch;
    int64_t step;
    double epoch;
    struct buf phase; /* quoted */
};

/* Quoted only where it must be. The kernel's names hold no NUL, a hostile file's may: a table
 * cannot, so they end there. */
static void add_text(struct buf *out, const char *s, size_t len)
{
    bool is_plain = true;

    len = strnlen(s, len);
    for (size_t i = 0; i < len && is_plain; i++)
        is_plain = s[i] != ',' && s[i] != '"' && s[i] != '\n' && s[i] != '\r';
    if (len > 0 && (s[0] == ' ' || s[len - 1] == ' '))
        is_plain = false;
    if (is_plain) {
        buf_add(out, s, len);
        return;
    }
    buf_add_byte(out, '"');
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '"')
            buf_add_byte(out, '"');
        buf_add_byte(out, (uint8_t)s[i]);
    }
    buf_add_byte(out, '"');
}

static void add_header(struct buf *out)
{
    buf_add_str(out, "t,pid,start,role,name");
    for (size_t i = 0; i < SAMPLE_PROCESS_COUNT; i++) {
        buf_add_byte(out, ',');
        buf_add_str(out, fields[i].column);
    }
    buf_add_str(out, ",stale,step,epoch,phase\n");
}

static void hear_phase(struct said *said, const struct mark *m)
{
    size_t name_len = 0, state_len = 0;
    const char *name = mark_get(m, "NAME", &name_len), *state = mark_get(m, "STATE", &state_len);

    buf_clear(&said->phase);
    if (name && !(state && state_len == 3 && memcmp(state, "end", 3) == 0))
        add_text(&said->phase, name, name_len);
}

static void hear(struct said *said, const struct mark *m)
{
    if (m->kind == MARK_PHASE)
        hear_phase(said, m);
    if (m->has & MARK_HAS_STEP) {
        said->has_step = true;
        said->step = m->step;
    }
    if (m->has & MARK_HAS_EPOCH) {
        said->has_epoch = true;
        said->epoch = m->epoch;
    }
}

static void add_sample(struct buf *out, const struct sample *s)
{
    bool is_first = true;

    for (unsigned i = 0; i < SAMPLE_PROCESS_COUNT; i++) {
        buf_add_byte(out, ',');
        if (s->read >> i & 1u)
            export_add_u64(out, s->v[i]);
    }
    buf_add_byte(out, ',');
    for (unsigned i = 0; i < SAMPLE_PROCESS_COUNT; i++)
        if (s->stale >> i & 1u) {
            buf_add_str(out, is_first ? "" : "+");
            buf_add_str(out, fields[i].name);
            is_first = false;
        }
}

static void add_said(struct buf *out, const struct said *said)
{
    buf_add_byte(out, ',');
    if (said->has_step)
        export_add_i64(out, said->step);
    buf_add_byte(out, ',');
    if (said->has_epoch)
        export_add_double(out, said->epoch);
    buf_add_byte(out, ',');
    buf_add(out, said->phase.data, said->phase.len);
    buf_add_byte(out, '\n');
}

static void add_row(struct export *e, uint64_t t_ns, const struct trace_row *row,
                    const struct said *said)
{
    const struct process_info *p = row->process;

    export_add_seconds(&e->buf, t_ns, e->start_ns);
    buf_add_byte(&e->buf, ',');
    export_add_i64(&e->buf, p->id.pid);
    buf_add_byte(&e->buf, ',');
    export_add_u64(&e->buf, p->id.start_ticks);
    buf_add_byte(&e->buf, ',');
    buf_add_str(&e->buf, process_role_name(p->role));
    buf_add_byte(&e->buf, ',');
    add_text(&e->buf, p->comm, p->comm_len);
    add_sample(&e->buf, &row->sample);
    add_said(&e->buf, said);
}

static int export_items(struct export *e, struct said *said)
{
    struct trace_item item;
    int r;

    while ((r = trace_reader_next(e->reader, &item)) > 0) {
        if (item.kind == TRACE_MARK)
            hear(said, &item.mark);
        if (item.kind != TRACE_TICK)
            continue;
        for (size_t i = 0; i < item.tick.count; i++)
            if (item.tick.rows[i].kind == ENTITY_PROCESS)
                add_row(e, item.t_ns, &item.tick.rows[i], said);
        r = export_write(e, false);
        if (r < 0)
            return r;
    }
    return r;
}

int export_csv(struct trace_reader *r, FILE *out, struct err *err)
{
    struct export e = {.reader = r, .out = out, .start_ns = trace_reader_start_mono_ns(r)};
    struct said said = {0};
    int code;

    add_header(&e.buf);
    code = export_items(&e, &said);
    buf_fini(&said.phase);
    return export_finish(&e, code, err);
}
