/* Sections of a report: what explains the memory, and which call sites hold it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "present/report_private.h"

/* ---- places in a program ---- */

/* "collate, train.py:6" */
static void add_frame(struct buf *out, const struct profile_frame *f)
{
    buf_add_str(out, f->function && f->function[0] ? f->function : "not known");
    if (f->file)
        buf_printf(out, ", %s", f->file);
    if (f->file && f->has_line)
        buf_printf(out, ":%u", (unsigned)f->line);
    else if (!f->file && f->lib)
        buf_printf(out, ", %s", f->lib);
}

/* With the program's own function where another allocates for it: "savefig, pyplot.py:9 ← plot,
 * train.py:41". OWN: NULL where none is known; PLACES: lines, where it is several. */
static void add_site(struct doc *d, const struct profile_frame *frame,
                     const struct profile_frame *own, uint64_t places)
{
    struct buf text = {0};
    bool is_merged = own && places > 1;
    add_frame(&text, is_merged ? own : frame);
    if (is_merged)
        buf_printf(&text, ", through %" PRIu64 " lines", places);
    if (!is_merged && own && !frame->is_own) {
        buf_add_str(&text, " ← ");
        add_frame(&text, own);
    }
    doc_code(d, buf_str(&text));
    buf_fini(&text);
}

void report_add_row_site(struct doc *d, const struct profile_row *row)
{
    add_site(d, &row->where, row->has_in_program ? &row->in_program : NULL, row->place_count);
}

static struct profile_frame frame_of(const struct diagnosis_frame *f, bool is_own)
{
    return (struct profile_frame){.function = f->function,
                                  .file = f->file,
                                  .lib = f->lib,
                                  .has_line = f->has_line,
                                  .line = (uint32_t)f->line,
                                  .is_own = is_own};
}

/* ---- the ledger ---- */

enum { KIND_COLOURS = 10, SITE_COLOURS = 6 };

/* The class of part AT: call sites are shades of one colour, every other kind has its own. */
static void colour_of(const struct diagnosis_ledger *l, size_t at, char ret[4])
{
    unsigned sites = 0;
    for (size_t i = 0; i < at; i++)
        sites += l->parts[i].has_site;
    if (l->parts[at].has_site)
        snprintf(ret, 4, "s%u", sites % SITE_COLOURS);
    else
        snprintf(ret, 4, "l%u", (unsigned)(at - sites) % KIND_COLOURS);
}

static void add_bar(struct doc *d, const struct diagnosis_ledger *l, bool is_now)
{
    struct doc_part *parts = calloc(l->n_parts + 1, sizeof *parts);
    int64_t whole = l->rss_now_bytes > l->rss_start_bytes ? l->rss_now_bytes : l->rss_start_bytes;
    for (size_t i = 0; parts && i < l->n_parts; i++) {
        int64_t bytes = is_now ? l->parts[i].now_bytes : l->parts[i].start_bytes;
        parts[i].share = bytes > 0 && whole > 0 ? (double)bytes / (double)whole : 0;
        colour_of(l, i, parts[i].colour);
    }
    if (parts)
        doc_bar(d, is_now ? "now" : "start", parts, l->n_parts);
    free(parts);
}

static void add_ledger(struct doc *d, const struct diagnosis_ledger *l)
{
    static const struct doc_column columns[] = {{"start", true, 1, CUT_END, 0, 0},
                                                {"now", true, 0, CUT_END, 0, 0},
                                                {"within", true, 2, CUT_END, 0, 0},
                                                {"growth", true, 0, CUT_END, 0, 0},
                                                {"what", false, 0, CUT_WRAP, 30, 0}};
    if (!l->n_parts)
        return;
    doc_heading(d, "Where its memory is");
    add_bar(d, l, false);
    add_bar(d, l, true);
    doc_table(d, NULL, "table of the ledger", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < l->n_parts; i++) {
        const struct diagnosis_part *p = &l->parts[i];
        char size[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX], colour[4];
        doc_row(d);
        doc_cell(d, TONE_PLAIN, report_size(size, p->has_start_bytes, (double)p->start_bytes));
        doc_cell(d, TONE_PLAIN, report_size(size, p->has_now_bytes, (double)p->now_bytes));
        if (p->has_low_bytes && p->has_high_bytes && p->low_bytes < p->high_bytes)
            doc_cellf(d, TONE_PLAIN, "%s – %s", report_size(low, true, (double)p->low_bytes),
                      report_size(high, true, (double)p->high_bytes));
        else
            doc_cell(d, TONE_PLAIN, "–");
        doc_cell(d, TONE_PLAIN, report_change(size, p->has_growth_bytes, (double)p->growth_bytes));
        doc_cell(d, TONE_PLAIN, NULL);
        colour_of(l, i, colour);
        doc_swatch(d, colour);
        doc_text(d, TONE_PLAIN, p->kind);
        if (p->has_site) {
            doc_text(d, TONE_PLAIN, ": ");
            const struct profile_frame frame = frame_of(&p->site.frame, p->site.is_own);
            const struct profile_frame own = frame_of(&p->site.in_program, true);
            add_site(d, &frame, p->site.has_in_program ? &own : NULL, p->site.place_count);
        }
    }
    if (l->has_named_growth_share) {
        doc_para(d, TONE_DIM);
        doc_textf(d, TONE_PLAIN, "%.0f %% of the growth has a name.", l->named_growth_share * 100);
    }
}

/* ---- hypotheses ---- */

static void add_points(struct doc *d, enum doc_point kind, char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        doc_point(d, kind);
        doc_text(d, TONE_PLAIN, list[i]);
    }
}

static void add_hypothesis(struct doc *d, const struct diagnosis_hypothesis *h, enum doc_fold fold)
{
    doc_fold(d, fold);
    doc_textf(d, TONE_DIM, "%s:", hypothesis_words[h->word]);
    doc_textf(d, TONE_PLAIN, " %s", h->title ? h->title : "");
    add_points(d, POINT_FOR, h->pro, h->n_pro);
    add_points(d, POINT_AGAINST, h->contra, h->n_contra);
    add_points(d, POINT_ABSENT, h->absent, h->n_absent);
    if (h->decide && h->decide[0])
        add_points(d, POINT_DECIDE, &h->decide, 1);
    doc_fold_end(d);
}

/* Those of one word, folded up in a page; elsewhere each with the first reason against it: nobody
 * need ask for it again. */
static void add_group(struct doc *d, const struct diagnosis *diagnosis, enum hypothesis_word word)
{
    size_t count = 0;
    for (size_t i = 0; i < diagnosis->n_hypotheses; i++)
        count += diagnosis->hypotheses[i].word == word;
    if (!count)
        return;
    doc_fold(d, FOLD_GROUP);
    doc_textf(d, TONE_PLAIN, "%zu %s", count, hypothesis_words[word]);
    for (size_t i = 0; i < diagnosis->n_hypotheses; i++)
        if (diagnosis->hypotheses[i].word == word)
            add_hypothesis(d, &diagnosis->hypotheses[i], FOLD_CLOSED);
    doc_fold_end(d);
    doc_hide(d, DOC_HTML);
    for (size_t i = 0; i < diagnosis->n_hypotheses; i++) {
        const struct diagnosis_hypothesis *h = &diagnosis->hypotheses[i];
        if (h->word != word)
            continue;
        doc_point(d, POINT_PLAIN);
        doc_text(d, TONE_PLAIN, h->title);
        if (h->n_contra)
            doc_textf(d, TONE_DIM, ": %s", h->contra[0]);
    }
    doc_hide(d, 0);
}

void report_add_diagnosis(struct doc *d, const struct diagnosis *diagnosis)
{
    doc_section(d, "diagnosis", TONE_PLAIN, "Diagnosis");
    if (diagnosis->n_advice)
        doc_heading(d, "What to do");
    for (size_t i = 0; i < diagnosis->n_advice; i++) {
        const struct diagnosis_advice *a = &diagnosis->advice[i];
        doc_point(d, POINT_NUMBER);
        doc_text(d, TONE_PLAIN, a->what);
        if (a->effect && a->effect[0])
            doc_textf(d, TONE_GOOD, " – %s", a->effect);
    }
    if (diagnosis->has_ledger)
        add_ledger(d, &diagnosis->ledger);
    doc_heading(d, "Every explanation, tested");
    for (size_t i = 0; i < diagnosis->n_hypotheses; i++) {
        const struct diagnosis_hypothesis *h = &diagnosis->hypotheses[i];
        if (h->word != CANNOT_TEST && h->word != RULED_OUT)
            add_hypothesis(d, h, i == 0 ? FOLD_OPEN : FOLD_CLOSED);
    }
    add_group(d, diagnosis, CANNOT_TEST);
    add_group(d, diagnosis, RULED_OUT);
}

/* ---- the heap ---- */

enum { ROWS_SHOWN = 10, FRAMES_SHOWN = 24 }; /* where there is no page to scroll */

static void add_heap_row(struct doc *d, const struct profile_row *row)
{
    const struct verdict_interval *rate = &row->verdict.rate_bytes_per_step;
    char size[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    doc_row(d);
    doc_cell(d, TONE_STRONG, report_change(size, true, row->growth_bytes));
    doc_cell(d, TONE_PLAIN, report_change(size, rate->known, rate->value));
    doc_cell(d, TONE_PLAIN, text_size(size, row->live.bytes));
    doc_cellf(d, TONE_PLAIN, "%s – %s", text_size(low, row->live.low),
              text_size(high, row->live.high));
    doc_cell(d, report_tone(&row->verdict), verdict_word_name(row->verdict.word));
    doc_cell(d, TONE_PLAIN, NULL);
    report_add_row_site(d, row);
    unsigned hidden = d->hidden;
    doc_hide(d, DOC_TERMINAL | DOC_MARKDOWN);
    for (size_t i = 0; i < row->n_stack; i++) {
        struct buf text = {0};
        add_frame(&text, &row->stack[i]);
        doc_below(d, row->stack[i].kind == NAME_PYTHON ? TONE_PLAIN : TONE_DIM, buf_str(&text));
        buf_fini(&text);
    }
    doc_hide(d, hidden);
}

/* Of the first row, for those who get no page. */
static void add_heap_stack(struct doc *d, const struct profile_row *row)
{
    doc_hide(d, DOC_TERMINAL | DOC_HTML);
    if (row->n_stack) {
        doc_para(d, TONE_PLAIN);
        doc_text(d, TONE_PLAIN, "The stack of the first, innermost on top:");
    }
    for (size_t i = 0; i < row->n_stack && i <= FRAMES_SHOWN; i++) {
        struct buf text = {0};
        if (i < FRAMES_SHOWN)
            add_frame(&text, &row->stack[i]);
        doc_code_line(d, i < FRAMES_SHOWN ? buf_str(&text) : "…");
        buf_fini(&text);
    }
    doc_hide(d, 0);
}

void report_add_heap(struct doc *d, const struct report *r)
{
    static const struct doc_column columns[] = {
        {"growth", true, 0, CUT_END, 0, 0},   {"per step", true, 1, CUT_END, 0, 0},
        {"live", true, 2, CUT_END, 0, 0},     {"within", true, 4, CUT_END, 0, 0},
        {"verdict", false, 3, CUT_END, 0, 0}, {"where", false, 0, CUT_START, 30, 0}};
    const struct profile_view *heap = &r->heap;
    char size[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    if (!r->has_heap && !r->heap_trouble)
        return;
    doc_section(d, "heap", TONE_PLAIN, "Live allocations by call site");
    doc_para(d, r->has_heap ? TONE_PLAIN : TONE_DIM);
    if (!r->has_heap) {
        doc_text(d, TONE_PLAIN, r->heap_trouble);
        return;
    }
    doc_textf(d, TONE_PLAIN, "Process %d holds %s (%s – %s), by sampled allocations.",
              (int)heap->pid, text_size(size, heap->live.bytes), text_size(low, heap->live.low),
              text_size(high, heap->live.high));
    doc_table(d, NULL, "table of call sites", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < heap->n_rows; i++) {
        doc_hide(d, i < ROWS_SHOWN ? 0 : DOC_TERMINAL | DOC_MARKDOWN);
        add_heap_row(d, &heap->rows[i]);
    }
    doc_hide(d, 0);
    if (heap->row_count > heap->n_rows) {
        doc_para(d, TONE_DIM);
        doc_textf(d, TONE_PLAIN, "%" PRIu64 " more hold less.", heap->row_count - heap->n_rows);
    }
    if (heap->n_rows)
        add_heap_stack(d, &heap->rows[0]);
    if (heap->has_tree)
        doc_canvas(d, "flame");
}
