/* Compares two runs, before and after a change, by the confidence intervals of their verdicts. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/number.h"
#include "present/cells.h"
#include "present/heap.h"
#include "present/report_private.h"
#include "present/verdict.h"
#include "verdict/verdict_json.h"

enum { SITES = 12 };

/* Smallest relative difference between two growth rates that is treated as an effect of the change.
 * Confidence intervals alone are not enough: because of the machine and its other load, the rates
 * of two runs of the same program differ by more than their intervals allow. */
static const double least_change = 0.05;

static const char *const answers[] = {"unknown", "fixed", "less", "same", "worse"};

/* ---- the test ---- */

/* One of the two runs, with its verdict and its rate. The rates of both runs have the same unit. */
struct side {
    const struct report *report;
    const struct verdict_result *v; /* NULL if the run has no verdict */
    struct verdict_interval rate;
    bool is_leak, is_known; /* IS_KNOWN is true if the verdict says whether the run leaks */
};

static struct side side_of(const struct report *r)
{
    const struct judged *job = report_verdict(r);
    struct side s = {.report = r, .v = job ? &job->result : NULL};
    s.is_known = s.v && s.v->leak != VERDICT_LEAK_UNKNOWN;
    s.is_leak = s.v && s.v->leak == VERDICT_LEAK_YES;
    return s;
}

static bool has_rate(const struct side *s)
{
    return s->rate.known && isfinite(s->rate.value) && isfinite(s->rate.low);
}

static bool has_any_rate(const struct side *s)
{
    return s->v && (s->v->rate_bytes_per_step.known || s->v->rate_bytes_per_min.known);
}

static bool is_apart(const struct side *a, const struct side *b)
{
    return b->rate.high < a->rate.low || b->rate.low > a->rate.high;
}

static bool is_change(const struct side *a, const struct side *b)
{
    double before = a->rate.value, after = b->rate.value;
    return fabs(after - before) >= least_change * fmax(fabs(before), fabs(after));
}

/* Returns true if the second run is too short to show the growth of the first. */
static bool is_too_short(const struct side *a, const struct side *b)
{
    return a->is_leak && b->is_known && !b->is_leak && a->report->has_early &&
           !a->report->is_early_leak;
}

static enum report_answer decide(const struct side *a, const struct side *b)
{
    if (!has_rate(a) || !has_rate(b) || !a->is_known || !b->is_known || is_too_short(a, b))
        return ANSWER_UNKNOWN;
    /* two runs without a leak are equally good */
    if ((!a->is_leak && !b->is_leak) || !is_apart(a, b) || !is_change(a, b))
        return ANSWER_SAME;
    if (b->rate.value > a->rate.value)
        return b->is_leak ? ANSWER_WORSE : ANSWER_SAME;
    return b->is_leak ? ANSWER_LESS : ANSWER_FIXED;
}

static const char *word_of(const struct side *s)
{
    return verdict_word_name(s->v ? s->v->word : VERDICT_UNDECIDED);
}

static void write_unknown(struct comparison *c, const struct side *a, const struct side *b)
{
    size_t size = sizeof c->sentence;
    if (!has_any_rate(a) || !has_any_rate(b))
        snprintf(c->sentence, size, "Cannot compare: the %s run has no growth rate.",
                 has_any_rate(a) ? "second" : "first");
    else if (!has_rate(a) || !has_rate(b))
        snprintf(c->sentence, size,
                 "Cannot compare: the growth rate of one run is per step, that of the other per "
                 "minute.");
    else if (is_too_short(a, b))
        snprintf(c->sentence, size,
                 "Too early to decide: the second run is only %s long, and at that point the first "
                 "run was not known to leak either (%s).",
                 a->report->early_length, verdict_word_name(a->report->early_word));
    else
        snprintf(c->sentence, size,
                 "Too early to decide: the %s run is %s, so it may or may not leak.",
                 b->is_known ? "first" : "second", word_of(b->is_known ? a : b));
}

static void write_sentence(struct comparison *c, const struct side *a, const struct side *b)
{
    size_t size = sizeof c->sentence;
    switch (c->answer) {
    case ANSWER_FIXED:
        snprintf(c->sentence, size, "The fix worked: the first run was %s, the second is %s.",
                 word_of(a), word_of(b));
        break;
    case ANSWER_LESS:
        snprintf(c->sentence, size,
                 "The change helped, but not enough: growth fell by %.0f %%, and the second run is "
                 "still %s.",
                 a->rate.value > 0 ? (1 - b->rate.value / a->rate.value) * 100 : 0, word_of(b));
        break;
    case ANSWER_SAME:
        snprintf(c->sentence, size, "%s: the first run was %s, the second is %s.",
                 a->is_leak || b->is_leak ? "No measurable difference" : "Neither run leaks",
                 word_of(a), word_of(b));
        break;
    case ANSWER_WORSE:
        snprintf(c->sentence, size,
                 "The change made it worse: the second run grows faster (%s before, %s after).",
                 word_of(a), word_of(b));
        break;
    case ANSWER_UNKNOWN:
        write_unknown(c, a, b);
        break;
    }
}

static void write_rate(char out[COMPARISON_REASON], const char *when, const struct side *s,
                       const char *unit)
{
    char value[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    snprintf(out, COMPARISON_REASON, "growth %s: %s/%s (%s to %s)", when,
             text_size_signed(value, number_to_i64(s->rate.value)), unit,
             text_size_signed(low, number_to_i64(s->rate.low)),
             isfinite(s->rate.high) ? text_size_signed(high, number_to_i64(s->rate.high))
                                    : "unlimited");
}

void report_compare(const struct report *before, const struct report *after, struct comparison *ret)
{
    struct side a = side_of(before), b = side_of(after);
    *ret = (struct comparison){.by = "step"};
    if (a.v && b.v) {
        a.rate = a.v->rate_bytes_per_step;
        b.rate = b.v->rate_bytes_per_step;
    }
    if (a.v && b.v && (!has_rate(&a) || !has_rate(&b))) {
        a.rate = a.v->rate_bytes_per_min;
        b.rate = b.v->rate_bytes_per_min;
        ret->by = "minute";
    }
    ret->answer = decide(&a, &b);
    write_sentence(ret, &a, &b);
    if (!has_rate(&a) || !has_rate(&b)) {
        ret->by = NULL;
        return;
    }
    const char *unit = strcmp(ret->by, "minute") == 0 ? "min" : "step";
    write_rate(ret->reasons[0], "before", &a, unit);
    write_rate(ret->reasons[1], "after", &b, unit);
    snprintf(ret->reasons[2], COMPARISON_REASON, "%s",
             !is_apart(&a, &b)   ? "the two intervals overlap"
             : is_change(&a, &b) ? "the two intervals do not overlap"
                                 : "the two rates differ by less than 5 %, which is normal for two "
                                   "runs of the same program");
    ret->reason_count = 3;
}

/* ---- call sites ---- */

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_same_function(const struct profile_frame *a, const struct profile_frame *b)
{
    return is_same_text(a->function, b->function) && is_same_text(a->file, b->file);
}

/* Returns the row of AFTER for the same call site as ROW, or NULL. A fix may move lines, so
 * functions are compared: the user's function and, unless IS_MERGED, the allocating function. */
static const struct profile_row *same_place(const struct profile_view *after,
                                            const struct profile_row *row, bool is_merged)
{
    for (size_t i = 0; i < after->n_rows; i++) {
        const struct profile_row *one = &after->rows[i];
        bool is_same_own = one->has_in_program == row->has_in_program &&
                           is_same_function(&one->in_program, &row->in_program);
        if (is_merged == one->has_place_count && is_same_own &&
            (is_merged || is_same_function(&one->where, &row->where)))
            return one;
    }
    return NULL;
}

/* Pairs each row of BEFORE with the row of AFTER for the same call site, or with NULL if there is
 * no such row. */
static size_t pair_sites(const struct report *before, const struct report *after,
                         const struct profile_row *ret[SITES][2])
{
    size_t n = 0;
    if (!before->has_heap || !after->has_heap)
        return 0;
    for (; n < before->heap.n_rows && n < SITES; n++) {
        const struct profile_row *row = &before->heap.rows[n], *same = NULL;
        if (row->has_place_count)
            same = same_place(&after->heap, row, true);
        ret[n][0] = row;
        ret[n][1] = same ? same : same_place(&after->heap, row, false);
    }
    return n;
}

/* ---- JSON ---- */

static json_t *side_json(const struct report *r)
{
    const struct judged *job = report_verdict(r);
    json_t *o = verdict_result_json(job ? &job->result : &(struct verdict_result){0});
    json_object_set_new(o, "peak_bytes", report_peak(r) ? json_u64(report_peak(r)) : json_null());
    json_object_set_new(o, "title", json_text0(report_title(r)));
    if (r->recorded.run) {
        json_object_set_new(o, "steps_seen", json_u64(r->recorded.run->steps_seen));
        json_object_set_new(o, "span_s", json_real(report_span_s(r)));
    }
    return o;
}

static json_t *reasons_json(const struct comparison *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->reason_count; i++)
        json_array_append_new(list, json_string(c->reasons[i]));
    return list;
}

/* Returns a row as in `ebb heap --json`, or NULL if ROW is NULL. */
static json_t *row_json(const struct profile_row *row)
{
    const struct profile_view one = {.rows = (struct profile_row *)(uintptr_t)row, .n_rows = 1};
    json_t *list = row ? profile_rows_json(&one, 1) : NULL;
    json_t *o = json_incref(json_array_get(list, 0));
    json_decref(list);
    return o;
}

static json_t *site_json(const struct profile_row *before, const struct profile_row *after)
{
    json_t *a = row_json(before), *b = row_json(after);
    const json_t *va = json_object_get(a, "verdict"), *vb = json_object_get(b, "verdict");
    json_t *o = json_pack(
        "{s:O?,s:O?,s:O?,s:O?,s:O?,s:O?,s:O?}", "where", json_object_get(a, "where"), "in_program",
        json_object_get(a, "in_program"), "place_count", json_object_get(a, "place_count"),
        "before_growth_bytes", json_object_get(a, "growth_bytes"), "after_growth_bytes",
        json_object_get(b, "growth_bytes"), "before_rate_bytes_per_step",
        json_object_get(va, "rate_bytes_per_step"), "after_rate_bytes_per_step",
        json_object_get(vb, "rate_bytes_per_step"));
    json_decref(a);
    json_decref(b);
    return o;
}

json_t *report_compare_json(const struct comparison *c, const struct report *before,
                            const struct report *after)
{
    const struct profile_row *sites[SITES][2];
    size_t count = pair_sites(before, after, sites);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, site_json(sites[i][0], sites[i][1]));
    return json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:o}", "answer", answers[c->answer], "sentence",
                     c->sentence, "reasons", reasons_json(c), "by", json_text0(c->by), "before",
                     side_json(before), "after", side_json(after), "sites", list);
}

/* ---- the document ---- */

/* Returns the last component of the path, which distinguishes the runs if both have the same
 * title. */
static const char *report_name(const struct report *r)
{
    const char *slash = strrchr(r->path, '/');
    return slash && slash[1] ? slash + 1 : r->path;
}

/* The rows of the table that compares the runs. */
enum row {
    ROW_VERDICT,
    ROW_CONFIDENCE,
    ROW_STEP,
    ROW_MINUTE,
    ROW_FIRST,
    ROW_LAST,
    ROW_PEAK,
    ROW_STEPS,
    ROW_TIME,
    ROWS
};

static void add_value(struct doc *d, const struct report *r, enum row row)
{
    const struct judged *job = report_verdict(r);
    const struct verdict_result *v = job ? &job->result : &(struct verdict_result){0};
    char size[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    doc_cell(d, TONE_PLAIN, NULL);
    if (row == ROW_VERDICT && job)
        doc_text(d, verdict_tone(v), verdict_word_name(v->word));
    else if (row == ROW_CONFIDENCE && job)
        doc_textf(d, TONE_PLAIN, "%.0f %%", v->confidence * 100);
    else if (row == ROW_STEP)
        report_add_rate(d, &v->rate_bytes_per_step, TONE_PLAIN);
    else if (row == ROW_MINUTE)
        report_add_rate(d, &v->rate_bytes_per_min, TONE_PLAIN);
    else if (row == ROW_FIRST)
        doc_text(d, TONE_PLAIN, known_size(size, v->has_floor, v->floor_first_bytes));
    else if (row == ROW_LAST)
        doc_text(d, TONE_PLAIN, known_size(size, v->has_floor, v->floor_last_bytes));
    else if (row == ROW_PEAK)
        doc_text(d, TONE_PLAIN, known_size(size, report_peak(r), (double)report_peak(r)));
    else if (row == ROW_STEPS && r->recorded.run && r->recorded.run->steps_seen)
        doc_textf(d, TONE_PLAIN, "%" PRIu64, r->recorded.run->steps_seen);
    else if (row == ROW_TIME)
        doc_text(d, TONE_PLAIN, report_time(time, report_span_s(r)));
}

static void add_side_by_side(struct doc *d, const struct report *before, const struct report *after)
{
    static const char *const titles[ROWS] = {"verdict",
                                             "confidence",
                                             "growth per step",
                                             "growth per minute",
                                             "baseline, first",
                                             "baseline, last",
                                             "peak",
                                             "steps",
                                             "time"};
    const struct doc_column columns[] = {
        {.title = "what"}, {.title = "before"}, {.title = "after", .cut = CUT_WRAP}};
    doc_section(d, "both", TONE_PLAIN, "Side by side");
    doc_table(d, NULL, "table of the two runs", columns, 3);
    doc_row(d);
    doc_cell(d, TONE_DIM, "run");
    doc_cell(d, TONE_PLAIN, report_name(before));
    doc_cell(d, TONE_PLAIN, report_name(after));
    for (enum row i = 0; i < ROWS; i++) {
        doc_row(d);
        doc_cell(d, TONE_DIM, titles[i]);
        add_value(d, before, i);
        add_value(d, after, i);
    }
}

static void add_compared_rate(struct doc *d, const struct profile_row *row)
{
    char size[TEXT_SIZE_MAX];
    bool has = row && row->verdict.rate_bytes_per_step.known;
    doc_cell(d, TONE_PLAIN,
             known_change(size, has, has ? row->verdict.rate_bytes_per_step.value : 0));
}

static void add_sites(struct doc *d, const struct report *before, const struct report *after)
{
    static const struct doc_column columns[] = {{"growth before", true, 0, CUT_END, 0, 0},
                                                {"after", true, 0, CUT_END, 0, 0},
                                                {"per step before", true, 1, CUT_END, 0, 0},
                                                {"after", true, 1, CUT_END, 0, 0},
                                                {"where", false, 0, CUT_START, 30, 0}};
    const struct profile_row *sites[SITES][2];
    size_t count = pair_sites(before, after, sites);
    char size[TEXT_SIZE_MAX];
    if (!count)
        return;
    doc_section(d, "sites", TONE_PLAIN, "Call sites of the first run");
    doc_table(d, NULL, "table of call sites", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const struct profile_row *a = sites[i][0], *b = sites[i][1];
        doc_row(d);
        doc_cell(d, TONE_PLAIN, known_change(size, true, a->growth_bytes));
        doc_cell(d, TONE_PLAIN, known_change(size, b, b ? b->growth_bytes : 0));
        add_compared_rate(d, a);
        add_compared_rate(d, b);
        doc_cell(d, TONE_PLAIN, NULL);
        heap_site_doc(d, a);
    }
    doc_para(d, TONE_DIM);
    doc_text(d, TONE_PLAIN, "A dash means that no sampled allocation of the call site is live.");
}

static uint64_t job_peak(const struct report *r)
{
    return r->recorded.run ? r->recorded.run->job.peak_bytes : 0;
}

void report_compare_document(struct doc *d, const struct comparison *c, const struct report *before,
                             const struct report *after)
{
    bool has_steps = before->recorded.run && after->recorded.run &&
                     before->recorded.run->steps_seen > 1 && after->recorded.run->steps_seen > 1;
    uint64_t most = job_peak(before) > job_peak(after) ? job_peak(before) : job_peak(after);
    doc_title(d, "Before and after");
    doc_section(d, "verdict",
                c->answer == ANSWER_FIXED                               ? TONE_GOOD
                : c->answer == ANSWER_WORSE || c->answer == ANSWER_LESS ? TONE_BAD
                                                                        : TONE_OPEN,
                NULL);
    doc_headline(d, NULL);
    doc_text(d, TONE_PLAIN, c->sentence);
    for (size_t i = 0; i < c->reason_count; i++) {
        doc_point(d, POINT_PLAIN);
        doc_text(d, TONE_PLAIN, c->reasons[i]);
    }
    add_side_by_side(d, before, after);
    doc_hide(d, DOC_MARKDOWN);
    doc_section(d, "memory", TONE_PLAIN, "Memory of both jobs");
    doc_canvas(d, has_steps ? "steps" : "plots");
    if (before->recorded.run)
        report_add_plot(d, before->recorded.run, before->recorded.run->job.signal[JOB_TREE],
                        "before", most);
    if (after->recorded.run)
        report_add_plot(d, after->recorded.run, after->recorded.run->job.signal[JOB_TREE], "after",
                        most);
    doc_hide(d, 0);
    add_sites(d, before, after);
}
