/* Exports a recording as CSV, one row per process and tick. Also contains the functions of
 * export_text.h, which the JSONL export uses too. */
#include "trace/export.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"
#include "trace/export_text.h"
#include "trace/reader.h"

enum { WRITE_BYTES = 64 * 1024 };

void export_add_seconds(struct buf *out, uint64_t t_ns, uint64_t start_ns)
{
    uint64_t ns = t_ns >= start_ns ? t_ns - start_ns : start_ns - t_ns;
    uint64_t us = ns / NS_PER_US + (ns % NS_PER_US >= NS_PER_US / 2);
    buf_printf(out, "%s%" PRIu64 ".%06" PRIu64, t_ns < start_ns && us > 0 ? "-" : "", us / 1000000,
               us % 1000000);
}

void export_add_double(struct buf *out, double v)
{
    char s[40];
    double again = 0;
    if (!isfinite(v))
        v = 0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, v);
        char *point = strpbrk(s, ","); /* some locales have a decimal comma */
        if (point)
            *point = '.';
        if (number_parse_double(s, strlen(s), &again) == 0 && !(again < v) && !(again > v))
            break;
    }
    buf_add_str(out, s);
}

int export_write(struct export *e, bool now)
{
    if (e->buf.failed)
        return -ENOMEM;
    if (e->buf.len < WRITE_BYTES && !now)
        return 0;
    errno = 0;
    if (fwrite(e->buf.data, 1, e->buf.len, e->out) != e->buf.len)
        return errno > 0 ? -errno : -EIO;
    buf_clear(&e->buf);
    return 0;
}

int export_finish(struct export *e, int r, struct err *err)
{
    if (r >= 0)
        r = export_write(e, true);
    errno = 0;
    if (r >= 0 && fflush(e->out) != 0)
        r = errno > 0 ? -errno : -EIO;
    buf_fini(&e->buf);
    if (r == -ENOMEM)
        return err_set(err, r, "out of memory while exporting the recording");
    return r < 0 ? err_set(err, r, "cannot write the export: %s", strerror(-r)) : 0;
}

/* ---- CSV ---- */

#define X(sym, num, name, unit) [num] = {name, name "_bytes"},
static const struct {
    const char *name, *column;
} fields[] = {SAMPLE_PROCESS_FIELDS(X)};
#undef X

/* The latest step, epoch and phase that marks reported. */
struct export_marks {
    bool has_step, has_epoch;
    int64_t step;
    double epoch;
    struct buf phase; /* already quoted for CSV */
};

/* Appends S, quoted only if necessary. S ends at its first NUL: names from the kernel contain none,
 * but names in a hostile recording may. */
static void csv_add_text(struct buf *out, const char *s, size_t len)
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

static void csv_add_header(struct buf *out)
{
    buf_add_str(out, "t,pid,start,role,name");
    for (size_t i = 0; i < SAMPLE_PROCESS_COUNT; i++)
        buf_printf(out, ",%s", fields[i].column);
    buf_add_str(out, ",stale,step,epoch,phase\n");
}

static void csv_take_phase(struct export_marks *marks, const struct mark *m)
{
    size_t name_len = 0, state_len = 0;
    const char *name = mark_get(m, "NAME", &name_len), *state = mark_get(m, "STATE", &state_len);
    buf_clear(&marks->phase);
    if (name && !(state && state_len == 3 && memcmp(state, "end", 3) == 0))
        csv_add_text(&marks->phase, name, name_len);
}

static void csv_take_mark(struct export_marks *marks, const struct mark *m)
{
    if (m->kind == MARK_PHASE)
        csv_take_phase(marks, m);
    if (m->has & MARK_HAS_STEP) {
        marks->has_step = true;
        marks->step = m->step;
    }
    if (m->has & MARK_HAS_EPOCH) {
        marks->has_epoch = true;
        marks->epoch = m->epoch;
    }
}

static void csv_add_sample(struct buf *out, const struct sample *s)
{
    const char *before = "";
    for (unsigned i = 0; i < SAMPLE_PROCESS_COUNT; i++) {
        buf_add_byte(out, ',');
        if (s->read >> i & 1u)
            buf_printf(out, "%" PRIu64, s->v[i]);
    }
    buf_add_byte(out, ',');
    for (unsigned i = 0; i < SAMPLE_PROCESS_COUNT; i++) {
        if (!(s->stale >> i & 1u))
            continue;
        buf_printf(out, "%s%s", before, fields[i].name);
        before = "+";
    }
}

static void csv_add_marks(struct buf *out, const struct export_marks *marks)
{
    buf_add_byte(out, ',');
    if (marks->has_step)
        buf_printf(out, "%" PRId64, marks->step);
    buf_add_byte(out, ',');
    if (marks->has_epoch)
        export_add_double(out, marks->epoch);
    buf_add_byte(out, ',');
    buf_add(out, marks->phase.data, marks->phase.len);
    buf_add_byte(out, '\n');
}

static void csv_add_row(struct export *e, uint64_t t_ns, const struct trace_row *row,
                        const struct export_marks *marks)
{
    const struct process_info *p = row->process;
    export_add_seconds(&e->buf, t_ns, e->start_ns);
    buf_printf(&e->buf, ",%" PRId32 ",%" PRIu64 ",%s,", p->id.pid, p->id.start_ticks,
               process_role_name(p->role));
    csv_add_text(&e->buf, p->comm, p->comm_len);
    csv_add_sample(&e->buf, &row->sample);
    csv_add_marks(&e->buf, marks);
}

static int export_items(struct export *e, struct export_marks *marks)
{
    struct trace_item item;
    int r;
    while ((r = trace_reader_next(e->reader, &item)) > 0) {
        if (item.kind == TRACE_MARK)
            csv_take_mark(marks, &item.mark);
        if (item.kind != TRACE_TICK)
            continue;
        for (size_t i = 0; i < item.tick.count; i++)
            if (item.tick.rows[i].kind == ENTITY_PROCESS)
                csv_add_row(e, item.t_ns, &item.tick.rows[i], marks);
        r = export_write(e, false);
        if (r < 0)
            return r;
    }
    return r;
}

int export_csv(struct trace_reader *reader, FILE *out, struct err *err)
{
    struct export e = {
        .reader = reader, .out = out, .start_ns = trace_reader_start_mono_ns(reader)};
    struct export_marks marks = {0};
    csv_add_header(&e.buf);
    int r = export_items(&e, &marks);
    buf_fini(&marks.phase);
    return export_finish(&e, r, err);
}
