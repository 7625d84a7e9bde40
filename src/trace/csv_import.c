/* A table and its marks made into a recording. */
#include "trace/csv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "base/texts.h"
#include "trace/export_text.h"
#include "trace/writer.h"

static const uint64_t close_wait_ns = 600 * NS_PER_S;
static const double span_max_s = 1e10; /* 317 years; 2^64 ns are 584 */

struct import_row {
    double t_s, epoch;
    uint64_t value_bytes;
    int64_t step;
    uint32_t slot, phase;
    bool has_step, has_epoch;
    bool is_last; /* of its group */
};

struct import_mark {
    double t_s;
    int32_t pid;
    size_t offset, len; /* of its text */
};

/* What is known of a group while its rows go by. */
struct import_group {
    bool is_born, has_step, has_epoch;
    int64_t step;
    double epoch;
    uint32_t phase;
    uint64_t tick; /* the last with a row of it, from 1 */
};

struct import {
    const char *path;
    bool by_step;    /* no time column */
    bool is_derived; /* marks come from the columns, not from a file */
    struct texts groups, phases;
    struct import_row *rows;
    size_t row_count, row_cap;
    struct import_mark *marks;
    size_t mark_count, mark_cap;
    struct buf mark_text;
    double t_first;
    /* while writing */
    struct trace_writer *w;
    struct import_group *group;
    uint32_t phase;
    uint64_t tick;
    size_t next_mark;
};

/* The array with room for one more; NULL leaves the old one. */
static void *grow(void *array, size_t count, size_t *cap, size_t size)
{
    size_t more = *cap > 0 ? *cap * 2 : 256;
    void *p;

    if (count < *cap)
        return array;
    p = reallocarray(array, more, size);
    if (p)
        *cap = more;
    return p;
}

static int take_row(void *user, const struct csv_row *row)
{
    struct import *im = user;
    struct import_row *rows = grow(im->rows, im->row_count, &im->row_cap, sizeof(*rows));
    struct import_row *r;

    if (!rows)
        return -ENOMEM;
    im->rows = rows;
    im->by_step = !row->has_t;
    r = &rows[im->row_count];
    *r = (struct import_row){
        .t_s = row->has_t ? row->t_s : (double)row->step,
        .epoch = row->epoch,
        .value_bytes = row->value_bytes,
        .step = row->step,
        .has_step = row->has_step,
        .has_epoch = row->has_epoch,
    };
    if (texts_add(&im->groups, row->group, row->group_len, &r->slot) < 0 ||
        texts_add(&im->phases, row->phase, row->phase_len, &r->phase) < 0)
        return -ENOMEM;
    im->row_count++;
    return 0;
}

static int take_mark(void *user, double t_s, const struct mark *m)
{
    struct import *im = user;
    struct import_mark *marks = grow(im->marks, im->mark_count, &im->mark_cap, sizeof(*marks));

    if (!marks)
        return -ENOMEM;
    im->marks = marks;
    marks[im->mark_count++] = (struct import_mark){t_s, m->pid, im->mark_text.len, m->len};
    buf_add(&im->mark_text, m->text, m->len);
    return im->mark_text.failed ? -ENOMEM : 0;
}

static int compare_times(double a, double b)
{
    return a < b ? -1 : a > b;
}

/* By time, and in order of the file where that is equal. */
static int compare_marks(const void *a, const void *b)
{
    const struct import_mark *x = a, *y = b;
    int by_time = compare_times(x->t_s, y->t_s);

    return by_time != 0 ? by_time : (x->offset > y->offset) - (x->offset < y->offset);
}

/* How many rows are earlier than the one before them of the same group. */
static int count_backwards(const struct import *im, uint64_t *ret)
{
    double *last = calloc(im->groups.count + 1, sizeof(*last));
    bool *seen = calloc(im->groups.count + 1, sizeof(*seen));
    uint64_t n = 0;
    int r = last && seen ? 0 : -ENOMEM;

    for (size_t i = 0; r == 0 && i < im->row_count; i++) {
        const struct import_row *row = &im->rows[i];

        n += seen[row->slot] && row->t_s < last[row->slot];
        seen[row->slot] = true;
        last[row->slot] = row->t_s;
    }
    free(last);
    free(seen);
    *ret = n;
    return r;
}

/* Stable, unlike qsort: readings of one moment stay in order of the file. */
static int sort_rows(struct import *im)
{
    struct import_row *from = im->rows, *to;
    size_t n = im->row_count;

    to = n > 0 ? calloc(n, sizeof(*to)) : NULL;
    if (n > 0 && !to)
        return -ENOMEM;
    for (size_t width = 1; width < n; width *= 2) {
        struct import_row *swap = from;

        for (size_t begin = 0; begin < n; begin += 2 * width) {
            size_t a = begin, a_end = begin + width < n ? begin + width : n;
            size_t b = a_end, b_end = begin + 2 * width < n ? begin + 2 * width : n;

            for (size_t at = begin; at < b_end; at++) {
                bool take_b = b < b_end && (a == a_end || from[b].t_s < from[a].t_s);

                to[at] = take_b ? from[b++] : from[a++];
            }
        }
        from = to;
        to = swap;
    }
    im->rows = from;
    im->row_cap = n;
    free(to);
    return 0;
}

static void find_last_rows(struct import *im)
{
    for (size_t i = im->row_count; i-- > 0;) {
        struct import_group *g = &im->group[im->rows[i].slot];

        im->rows[i].is_last = !g->is_born;
        g->is_born = true;
    }
    memset(im->group, 0, im->groups.count * sizeof(*im->group));
}

static int find_span(struct import *im, struct err *err)
{
    double first = HUGE_VAL, last = -HUGE_VAL;

    if (im->row_count > 0) {
        first = im->rows[0].t_s;
        last = im->rows[im->row_count - 1].t_s;
    }
    if (im->mark_count > 0) {
        first = fmin(first, im->marks[0].t_s);
        last = fmax(last, im->marks[im->mark_count - 1].t_s);
    }
    if (last - first > span_max_s)
        return err_set(
            err, -EBADMSG,
            "%s goes from %g to %g seconds, more than 300 years: is its time in seconds?", im->path,
            first, last);
    im->t_first = isfinite(first) ? first : 0;
    return 0;
}

static int gather(struct import *im, const struct csv_options *options, struct err *err)
{
    int r = csv_read(im->path, options, take_row, im, err);

    if (r == 0 && options && options->marks_path) {
        if (im->by_step)
            return err_set(err, -EINVAL,
                           "%s has no time, so the marks of %s have no place in it: name its time "
                           "with --time-column",
                           im->path, options->marks_path);
        r = csv_read_marks(options->marks_path, take_mark, im, err);
    }
    if (r == -ENOMEM)
        err_set(err, r, "no memory to hold the table %s", im->path);
    return r;
}

/* To the microsecond, which is what a double keeps of seconds since 1970. */
static uint64_t import_ns(const struct import *im, double t_s)
{
    return (uint64_t)llround((t_s - im->t_first) * 1e6) * NS_PER_US;
}

static json_t *make_header(const struct import *im, const struct csv_options *options,
                           uint64_t backwards)
{
    bool is_unix = !im->by_step && im->t_first >= 1e8 && im->t_first < 1e11;
    uint64_t wall_us = is_unix ? (uint64_t)llround(im->t_first * 1e6) : 0;
    json_t *from = json_pack("{s:o,s:o,s:s,s:I,s:I}", "path", json_text0(im->path), "column",
                             json_text0(options ? options->column : NULL), "time",
                             im->by_step ? "steps" : "seconds", "rows", (json_int_t)im->row_count,
                             "rows_back_in_time", (json_int_t)backwards);

    return json_pack("{s:o,s:i,s:o}", "imported", from, "start_mono_ns", 0, "start_wall_ns",
                     json_u64(wall_us * NS_PER_US));
}

static void describe_group(const struct import *im, uint32_t slot, struct process_info *ret)
{
    const char *base = strrchr(im->path, '/');
    const char *name = im->groups.items[slot];
    size_t len = strlen(name);
    int64_t pid;

    *ret = (struct process_info){.id = {.start_ticks = slot}};
    if (number_parse_i64(name, len, &pid) == 0 && pid > 0 && pid <= INT32_MAX)
        ret->id = (struct process_id){(int32_t)pid, 0};
    if (len == 0) {
        name = base ? base + 1 : im->path;
        len = strlen(name);
    }
    if (len > sizeof(ret->comm))
        len = sizeof(ret->comm);
    memcpy(ret->comm, name, len);
    ret->comm_len = (uint16_t)len;
}

static void write_process(struct import *im, uint64_t t_ns, enum process_event_kind event,
                          uint32_t slot)
{
    struct process_info info;

    describe_group(im, slot, &info);
    trace_writer_process(im->w, t_ns, event, slot, &info);
}

static void write_text(struct import *im, uint64_t t_ns, int32_t pid, const char *s, size_t len)
{
    struct mark m;

    if (mark_parse(s, len, &m) < 0)
        return;
    m.t_ns = t_ns;
    m.pid = pid;
    trace_writer_mark(im->w, &m);
}

static void write_marks_until(struct import *im, double t_s)
{
    for (; im->next_mark < im->mark_count; im->next_mark++) {
        const struct import_mark *m = &im->marks[im->next_mark];

        if (m->t_s > t_s)
            break;
        write_text(im, import_ns(im, m->t_s), m->pid, im->mark_text.data + m->offset, m->len);
    }
}

static void write_phase(struct import *im, uint64_t t_ns, uint32_t phase, const char *state)
{
    struct buf b = {0};
    const char *s = im->phases.items[phase];
    size_t len = strlen(s);

    if (len == 0)
        return;
    buf_add_str(&b, "KIND=phase\nNAME=");
    for (size_t i = 0, n; i < len && i < 256; i += n) {
        uint32_t c;

        n = text_utf8(s + i, len - i, &c);
        if (n > 0 && c != '\n')
            buf_add(&b, s + i, n);
        else
            buf_add_byte(&b, '?'); /* a mark could not hold it */
        n = n > 0 ? n : 1;
    }
    buf_printf(&b, "\nSTATE=%s\n", state);
    if (!b.failed)
        write_text(im, t_ns, 0, b.data, b.len);
    buf_fini(&b);
}

static void write_step(struct import *im, uint64_t t_ns, const struct import_row *row)
{
    struct buf b = {0};

    buf_add_str(&b, row->has_step ? "KIND=step\nSTEP=" : "KIND=epoch");
    if (row->has_step)
        buf_printf(&b, "%" PRId64, (int64_t)row->step);
    if (row->has_epoch) {
        buf_add_str(&b, "\nEPOCH=");
        export_add_double(&b, row->epoch);
    }
    buf_add_byte(&b, '\n');
    if (!b.failed)
        write_text(im, t_ns, 0, b.data, b.len);
    buf_fini(&b);
}

/* What the columns say has changed. Every process of a job repeats its step: said once a tick. */
static void derive_marks(struct import *im, uint64_t t_ns, size_t begin, size_t end)
{
    const struct import_row *said = NULL;

    for (size_t i = begin; i < end; i++) {
        const struct import_row *row = &im->rows[i];
        struct import_group *g = &im->group[row->slot];
        bool is_new_step = row->has_step && (!g->has_step || g->step != row->step);
        bool is_new_epoch = !row->has_step && row->has_epoch &&
                            (!g->has_epoch || g->epoch < row->epoch || g->epoch > row->epoch);

        if ((is_new_step && !(said && said->has_step && said->step == row->step)) ||
            (is_new_epoch && !said)) {
            write_step(im, t_ns, row);
            said = row;
        }
        if (row->phase != g->phase && row->phase != im->phase) {
            write_phase(im, t_ns, im->phase, "end");
            write_phase(im, t_ns, row->phase, "begin");
            im->phase = row->phase;
        }
        g->has_step |= row->has_step;
        g->has_epoch |= row->has_epoch;
        g->step = row->has_step ? row->step : g->step;
        g->epoch = row->has_epoch ? row->epoch : g->epoch;
        g->phase = row->phase;
    }
}

static void begin_tick(struct import *im, uint64_t t_ns)
{
    im->tick++;
    trace_writer_tick_begin(im->w, t_ns);
}

static void end_tick(struct import *im, uint64_t t_ns)
{
    trace_writer_tick_end(im->w);
    trace_writer_flush(im->w, t_ns, false);
}

/* A group that is in the table twice at one moment gets a second tick, so that nothing is lost. */
static void write_tick(struct import *im, uint64_t t_ns, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (!im->group[im->rows[i].slot].is_born) {
            im->group[im->rows[i].slot].is_born = true;
            write_process(im, t_ns, PROCESS_BORN, im->rows[i].slot);
        }
    if (im->is_derived)
        derive_marks(im, t_ns, begin, end);
    begin_tick(im, t_ns);
    for (size_t i = begin; i < end; i++) {
        const struct import_row *row = &im->rows[i];
        struct sample sample = {0};

        if (im->group[row->slot].tick == im->tick) {
            end_tick(im, t_ns);
            begin_tick(im, t_ns);
        }
        im->group[row->slot].tick = im->tick;
        sample_put(&sample, SAMPLE_RSS, row->value_bytes);
        trace_writer_sample(im->w, ENTITY_PROCESS, row->slot, &sample);
    }
    end_tick(im, t_ns);
}

/* A group with no more rows while the table goes on has ended. */
static void write_deaths(struct import *im, uint64_t t_ns, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (im->rows[i].is_last)
            write_process(im, t_ns, PROCESS_DIED, im->rows[i].slot);
}

static void write_rows(struct import *im)
{
    size_t last_begin = 0, end;

    for (size_t begin = 0; begin < im->row_count; begin = end) {
        uint64_t t_ns = import_ns(im, im->rows[begin].t_s);

        for (end = begin + 1; end < im->row_count; end++)
            if (import_ns(im, im->rows[end].t_s) != t_ns)
                break;
        write_marks_until(im, im->rows[begin].t_s);
        write_deaths(im, t_ns, last_begin, begin);
        write_tick(im, t_ns, begin, end);
        last_begin = begin;
    }
    write_marks_until(im, HUGE_VAL);
}

/* Half of what one block of a recording can name: with a sample each, so many end with it. */
enum { BLOCK_CELLS = 32768 };

static int close_recording(struct import *im, struct err *err, const char *out_path)
{
    struct trace_writer_status status;
    int r;

    trace_writer_status(im->w, &status);
    r = trace_writer_close(im->w, NULL, close_wait_ns);
    if (r == 0 && status.blocks_lost > 0)
        r = -ENOBUFS;
    if (r == 0 && status.cells < im->row_count)
        return err_set(err, -E2BIG,
                       "%s has %zu series, too many at one time for a recording (about 30000): "
                       "choose another --group",
                       im->path, im->groups.count);
    return r < 0 ? err_set(err, r, "cannot write %s: %s", out_path, strerror(-r)) : 0;
}

static int write_recording(struct import *im, json_t *header, const char *out_path, struct err *err)
{
    const struct trace_writer_options options = {.patient = true, .block_cells = BLOCK_CELLS};
    int r = trace_writer_new(AT_FDCWD, out_path, header, &options, &im->w, err);

    if (r < 0)
        return r;
    write_rows(im);
    r = close_recording(im, err, out_path);
    if (r < 0)
        unlink(out_path); /* we made it, and it is not what was asked for */
    return r;
}

static int import(struct import *im, const struct csv_options *options, const char *out_path,
                  struct err *err)
{
    uint64_t backwards = 0;
    json_t *header;
    int r = gather(im, options, err);

    if (r != 0)
        return r;
    im->group = calloc(im->groups.count + 1, sizeof(*im->group));
    if (!im->group || count_backwards(im, &backwards) < 0 || sort_rows(im) < 0)
        return err_set(err, -ENOMEM, "no memory to hold the table %s", im->path);
    if (im->mark_count > 0)
        qsort(im->marks, im->mark_count, sizeof(*im->marks), compare_marks);
    r = find_span(im, err);
    if (r < 0)
        return r;
    find_last_rows(im);
    header = make_header(im, options, backwards);
    if (!header)
        return err_set(err, -ENOMEM, "no memory to hold the table %s", im->path);
    r = write_recording(im, header, out_path, err);
    json_decref(header);
    return r;
}

int csv_import(const char *path, const struct csv_options *options, const char *out_path,
               struct err *err)
{
    struct import im = {.path = path, .is_derived = !options || !options->marks_path};
    uint32_t none;
    int r = texts_add(&im.phases, "", 0, &none); /* number 0 is no phase */

    if (r < 0)
        err_set(err, r, "no memory to hold the table %s", path);
    else
        r = import(&im, options, out_path, err);
    texts_fini(&im.groups);
    texts_fini(&im.phases);
    free(im.rows);
    free(im.marks);
    free(im.group);
    buf_fini(&im.mark_text);
    return r;
}
