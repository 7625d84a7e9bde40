/* A report for a terminal: the verdict, memory as braille, who holds it. */
#include "present/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/number.h"
#include "present/braille.h"
#include "present/diagnose.h"
#include "present/document.h"
#include "present/heap.h"
#include "profile/view.h"
#include "present/page.h"
#include "present/report_html.h"
#include "present/report_terminal.h"
#include "present/verdict.h"
#include "diagnose/diagnosis.h"
#include "judge/verdicts.h"

enum { AXIS = 11, PLOT_ROWS = 10, PLOT_LEAST = 20, HEAP_ROWS = 10 };

/* ---- plots ---- */

/* The points of a series; *RET to be freed. How many. */
static size_t points_of(const json_t *series, struct curve_point **ret)
{
    const json_t *t = json_object_get(series, "t"), *v = json_object_get(series, "v");
    size_t n = json_array_size(t) < json_array_size(v) ? json_array_size(t) : json_array_size(v);
    struct curve_point *points = calloc(n + 1, sizeof *points);
    for (size_t i = 0; points && i < n; i++)
        points[i] = (struct curve_point){json_number_value(json_array_get(t, i)),
                                         json_number_value(json_array_get(v, i))};
    *ret = points;
    return points ? n : 0;
}

/* From a round place below the least; the whole is at least a tenth of the greatest, so that noise
 * does not look like a mountain. */
static struct braille_range range_of(const struct curve_point *p, size_t n, double span_s,
                                     double most)
{
    struct braille_range r = {.t_until = span_s, .v_from = (double)INFINITY, .v_until = most};
    for (size_t i = 0; i < n; i++) {
        r.v_from = fmin(r.v_from, p[i].v);
        r.v_until = fmax(r.v_until, p[i].v);
    }
    if (r.v_until - r.v_from < r.v_until / 10)
        r.v_from = r.v_until * 0.9;
    if (r.v_from < r.v_until / 4)
        r.v_from = 0;
    return r;
}

/* One letter under each event: E epoch, e evaluation, c checkpoint, | segment. */
static void put_events(struct page *p, const json_t *data, size_t columns)
{
    char row[BRAILLE_WIDTH + 1];
    const json_t *e;
    double span = report_number(data, "span_s", 0);
    bool has = false;
    size_t i;
    memset(row, ' ', columns);
    row[columns] = '\0';
    json_array_foreach(json_object_get(data, "events"), i, e)
    {
        const char *kind = report_string(e, "kind");
        char letter = (char)(!kind                             ? 0
                             : strcmp(kind, "epoch") == 0      ? 'E'
                             : strcmp(kind, "evaluation") == 0 ? 'e'
                             : strcmp(kind, "checkpoint") == 0 ? 'c'
                                                               : 0);
        size_t at =
            span > 0 ? number_to_u64(report_number(e, "t", 0) / span * (double)(columns - 1)) : 0;
        if (!letter || at >= columns || row[at] == 'E')
            continue;
        row[at] = letter;
        has = true;
    }
    json_array_foreach(json_object_get(data, "segments"), i, e)
    {
        size_t at =
            span > 0 ? number_to_u64(json_number_value(e) / span * (double)(columns - 1)) : 0;
        if (at < columns) {
            row[at] = '|';
            has = true;
        }
    }
    if (!has)
        return;
    page_pad(p, AXIS);
    page_put(p, STYLE_DIM, row);
    page_line(p);
    page_pad(p, AXIS);
    page_put(p, STYLE_DIM, "E epoch  e evaluation  c checkpoint  | started again");
    page_line(p);
}

static void put_row(struct page *p, const struct braille *b, const struct braille_range *r,
                    size_t row)
{
    char text[BRAILLE_WIDTH * 3 + 1], size[TEXT_SIZE_MAX], label[AXIS + 8];
    double v = row == 0 ? r->v_until : row + 1 == b->rows ? r->v_from : -1;
    snprintf(label, sizeof label, "%*s", AXIS - 1, v >= 0 ? text_size(size, (uint64_t)v) : "");
    page_put(p, STYLE_DIM, label);
    page_pad(p, AXIS);
    page_put(p, STYLE_PLAIN, braille_row(b, row, text));
    page_line(p);
}

double report_most(const json_t *series)
{
    const json_t *v;
    double most = 0;
    size_t i;
    json_array_foreach(json_object_get(series, "v"), i, v) most = fmax(most, json_number_value(v));
    return most;
}

void report_plot_text(struct page *p, const json_t *data, const json_t *series, const char *title,
                      double most)
{
    AUTO_FREE struct curve_point *points = NULL;
    size_t n = points_of(series, &points);
    size_t columns = p->width > AXIS + PLOT_LEAST ? p->width - AXIS : PLOT_LEAST;
    double span = report_number(data, "span_s", 0);
    char time[TEXT_TIME_MAX];
    struct braille b;
    if (n < 2 || !points)
        return;
    struct braille_range range = range_of(points, n, span, most);
    braille_init(&b, columns < BRAILLE_WIDTH ? columns : BRAILLE_WIDTH, PLOT_ROWS);
    braille_draw(&b, &range, points, n);
    page_pad(p, AXIS);
    page_put(p, STYLE_STRONG, title);
    page_line(p);
    for (size_t row = 0; row < b.rows; row++)
        put_row(p, &b, &range, row);
    page_pad(p, AXIS);
    page_put(p, STYLE_DIM, "0");
    report_time(time, span);
    page_pad(p, AXIS + b.columns - (strlen(time) < b.columns ? strlen(time) : b.columns));
    page_put(p, STYLE_DIM, time);
    page_line(p);
    put_events(p, data, b.columns);
    page_line(p);
}

static void put_plots(struct page *p, const json_t *data)
{
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(data, "series"), i, one)
    {
        const char *of = report_string(one, "of"), *field = report_string(one, "field");
        char title[64];
        if (of && strcmp(of, "job") == 0)
            report_plot_text(p, data, one, "memory of the job", 0);
        if (of && field && strcmp(of, "gpu") == 0 && strcmp(field, "job") == 0) {
            snprintf(title, sizeof title, "memory of the job on GPU %lld",
                     (long long)json_integer_value(json_object_get(one, "id")));
            report_plot_text(p, data, one, title, 0);
        }
    }
}

/* ---- sentences ---- */

void report_sentence(struct page *p, const char *label, enum style style, const char *raw)
{
    struct buf text = {0};
    text_escape(&text, raw, strlen(raw));
    page_put(p, STYLE_DIM, label);
    page_pad(p, LABEL_COLUMNS);
    page_words(p, style, buf_str(&text));
    page_line(p);
    buf_fini(&text);
}

static void put_head(struct page *p, const json_t *doc)
{
    const json_t *run = json_object_get(doc, "run"), *one;
    const char *title = report_string(doc, "title");
    const char *cause = report_string(json_object_get(run, "end"), "cause");
    char time[TEXT_TIME_MAX], text[128];
    size_t i;
    report_sentence(p, "run", STYLE_STRONG, title ? title : "a run");
    snprintf(text, sizeof text, "%s%s%s", report_time(time, report_number(run, "duration_s", -1)),
             report_string(run, "started") ? ", started " : "",
             report_string(run, "started") ? report_string(run, "started") : "");
    if (json_is_object(run))
        report_sentence(p, "time", STYLE_PLAIN, text);
    if (cause)
        report_sentence(p, "end", STYLE_PLAIN, cause);
    json_array_foreach(json_object_get(doc, "trouble"), i, one)
        report_sentence(p, "trouble", STYLE_BAD, json_string_value(one));
    page_line(p);
}

static void put_guard(struct page *p, const json_t *doc)
{
    const json_t *events = json_object_get(json_object_get(doc, "data"), "guard"), *e;
    size_t i, count = json_array_size(events), from = count > 8 ? count - 8 : 0;
    for (i = from; i < count; i++) {
        char text[512], time[TEXT_TIME_MAX];
        const char *act, *why;
        e = json_array_get(events, i);
        act = report_string(e, "act");
        why = report_string(e, "why");
        snprintf(text, sizeof text, "%s: %s%s%.400s",
                 report_time(time, report_number(e, "t_s", -1)), act ? act : "", why ? ", " : "",
                 why ? why : "");
        report_sentence(p, i == from ? "guard" : "", STYLE_PLAIN, text);
    }
    if (count)
        page_line(p);
}

/* No more rows than a screen has room for, without their stacks. */
static void put_heap(struct page *p, const json_t *doc)
{
    struct profile_view v = {0};
    struct doc d = {0};
    if (profile_rows_read(json_object_get(json_object_get(doc, "heap"), "rows"), &v) == 0) {
        v.row_count = v.n_rows;
        heap_doc(&d, &v, "growth", NULL);
    }
    doc_terminal(p->out, &d, p->is_coloured, p->width);
    doc_fini(&d);
    profile_view_fini(&v);
}

static void put_verdict(struct buf *out, const json_t *verdict, bool colour, size_t width)
{
    struct verdicts v = {0};
    struct doc d = {0};
    if (verdicts_read(verdict, &v) == 0)
        verdict_doc(&d, &v);
    doc_terminal(out, &d, colour, width);
    doc_fini(&d);
    verdicts_fini(&v);
}

static void put_diagnosis(struct page *p, const json_t *doc)
{
    struct diagnosis v = {0};
    struct doc d = {0};
    if (!json_is_object(doc) || diagnosis_read(doc, &v, NULL) < 0)
        return;
    diagnose_doc(&d, &v, false);
    doc_terminal(p->out, &d, p->is_coloured, p->width);
    page_line(p);
    doc_fini(&d);
    diagnosis_fini(&v);
}

void report_text(struct buf *out, const json_t *doc, bool colour, size_t width)
{
    struct page p = {.out = out, .is_coloured = colour, .width = width ? width : 80};
    const json_t *verdict = json_object_get(doc, "verdict"), *heap = json_object_get(doc, "heap");
    const char *trouble = report_string(doc, "heap_trouble");
    put_head(&p, doc);
    if (json_is_object(verdict))
        put_verdict(out, verdict, colour, p.width);
    page_line(&p);
    put_plots(&p, json_object_get(doc, "data"));
    put_diagnosis(&p, json_object_get(doc, "diagnosis"));
    put_guard(&p, doc);
    if (json_is_object(heap))
        put_heap(&p, doc);
    else if (trouble)
        report_sentence(&p, "heap", STYLE_DIM, trouble);
}
