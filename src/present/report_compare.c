/* Two runs, before and after a change: whether it helped, by the intervals of their verdicts. */
#include "present/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "present/report_html.h"

enum { SITES = 12 };

/* ---- the two sides ---- */

struct side {
    const json_t *tree;
    bool has_rate, is_leak, is_known; /* known: leak or not was decided */
    const json_t *early;              /* of the first run where the second is shorter */
    double value, low, high;
};

static void take_rate(struct side *s, const char *key)
{
    const json_t *rate = json_object_get(s->tree, key);
    s->value = report_number(rate, "value", (double)NAN);
    s->low = report_number(rate, "low", (double)NAN);
    s->high = report_number(rate, "high", (double)INFINITY);
    s->has_rate = isfinite(s->value) && isfinite(s->low);
}

static struct side side_of(const json_t *doc)
{
    struct side s = {.tree = report_tree(doc), .early = json_object_get(doc, "early")};
    const json_t *leak = json_object_get(s.tree, "leak");
    s.is_known = json_is_boolean(leak);
    s.is_leak = json_is_true(leak);
    return s;
}

static json_t *side_json(const struct side *s, const json_t *doc)
{
    static const char *const kept[] = {"verdict",           "leak",        "confidence",
                                       "mean_bytes",        "floor_bytes", "rate_bytes_per_step",
                                       "rate_bytes_per_min"};
    json_t *o = json_object();
    const json_t *data = json_object_get(doc, "data");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        json_t *v = json_object_get(s->tree, kept[i]);
        json_object_set_new(o, kept[i], v ? json_incref(v) : json_null());
    }
    const json_t *peak = report_peak(doc);
    json_object_set_new(o, "peak_bytes",
                        json_is_integer(peak) ? json_integer(json_integer_value(peak))
                                              : json_null());
    json_object_set(o, "title", json_object_get(doc, "title"));
    json_object_set(o, "steps_seen", json_object_get(data, "steps_seen"));
    json_object_set(o, "span_s", json_object_get(data, "span_s"));
    return o;
}

/* ---- the test ---- */

/* Two runs of one program differ by more than the interval within each of them: by the machine, by
 * what else it did. Less than this is no effect of a change. */
static const double least_change = 0.05;

enum answer { ANSWER_UNKNOWN, ANSWER_FIXED, ANSWER_LESS, ANSWER_SAME, ANSWER_WORSE };
static const char *const answers[] = {"unknown", "fixed", "less", "same", "worse"};

static bool is_apart(const struct side *a, const struct side *b)
{
    return b->high < a->low || b->low > a->high;
}

static bool is_change(const struct side *a, const struct side *b)
{
    return fabs(b->value - a->value) >= least_change * fmax(fabs(a->value), fabs(b->value));
}

/* The second run has not gone on for long enough to show what the first one did. */
static bool is_too_short(const struct side *a, const struct side *b)
{
    return a->is_leak && b->is_known && !b->is_leak && a->early &&
           !json_is_true(json_object_get(report_tree(a->early), "leak"));
}

static enum answer decide(const struct side *a, const struct side *b)
{
    if (!a->has_rate || !b->has_rate || !a->is_known || !b->is_known || is_too_short(a, b))
        return ANSWER_UNKNOWN;
    /* Of two flat ones neither is better. */
    if ((!a->is_leak && !b->is_leak) || !is_apart(a, b) || !is_change(a, b))
        return ANSWER_SAME;
    if (b->value > a->value)
        return b->is_leak ? ANSWER_WORSE : ANSWER_SAME;
    return b->is_leak ? ANSWER_LESS : ANSWER_FIXED;
}

static char *rate_text(char out[96], const struct side *s, const char *unit)
{
    char value[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    text_size_signed(value, llround(s->value));
    text_size_signed(low, llround(s->low));
    if (isfinite(s->high))
        text_size_signed(high, llround(s->high));
    else
        snprintf(high, sizeof high, "no end");
    snprintf(out, 96, "%s a %s (%s to %s)", value, unit, low, high);
    return out;
}

static const char *word_of(const struct side *s)
{
    const char *word = report_string(s->tree, "verdict");
    return word ? word : "undecided";
}

static const char *early_word(const struct side *s)
{
    const char *word = report_string(report_tree(s->early), "verdict");
    return word ? word : "undecided";
}

static bool has_any_rate(const struct side *s)
{
    return json_is_object(json_object_get(s->tree, "rate_bytes_per_step")) ||
           json_is_object(json_object_get(s->tree, "rate_bytes_per_min"));
}

static void add_unknown(struct buf *out, const struct side *a, const struct side *b)
{
    if (!has_any_rate(a) || !has_any_rate(b))
        buf_printf(out, "It cannot be tested: there is no rate of growth in the %s run.",
                   has_any_rate(a) ? "second" : "first");
    else if (!a->has_rate || !b->has_rate)
        buf_add_str(out, "It cannot be tested: one run has its growth by the step, the other by "
                         "the minute.");
    else if (is_too_short(a, b))
        buf_printf(out,
                   "It cannot be known yet: the second run is only %s long, and that far the first "
                   "was not known to leak either (%s).",
                   report_string(a->early, "length"), early_word(a));
    else
        buf_printf(out,
                   "It cannot be known yet: the %s run is %s, which leaves open whether it "
                   "leaks.",
                   b->is_known ? "first" : "second", word_of(b->is_known ? a : b));
}

static void add_sentence(struct buf *out, enum answer answer, const struct side *a,
                         const struct side *b)
{
    switch (answer) {
    case ANSWER_FIXED:
        buf_printf(out, "The fix worked: the first run was %s, the second is %s.", word_of(a),
                   word_of(b));
        break;
    case ANSWER_LESS:
        buf_printf(out,
                   "It helped, and is not enough: growth fell by %.0f %%, and the second "
                   "run is still %s.",
                   a->value > 0 ? (1 - b->value / a->value) * 100 : 0, word_of(b));
        break;
    case ANSWER_SAME:
        buf_printf(out, "%s: the first run was %s, the second is %s.",
                   a->is_leak || b->is_leak ? "No difference can be shown" : "Neither run leaks",
                   word_of(a), word_of(b));
        break;
    case ANSWER_WORSE:
        buf_printf(out, "It became worse: the second run grows faster (%s before, %s after).",
                   word_of(a), word_of(b));
        break;
    case ANSWER_UNKNOWN:
        add_unknown(out, a, b);
        break;
    }
}

static json_t *reasons_json(const struct side *a, const struct side *b, const char *unit)
{
    json_t *list = json_array();
    char before[96], after[96];
    if (!a->has_rate || !b->has_rate)
        return list;
    json_array_append_new(list, json_sprintf("growth before: %s", rate_text(before, a, unit)));
    json_array_append_new(list, json_sprintf("growth after: %s", rate_text(after, b, unit)));
    json_array_append_new(list, json_string(!is_apart(a, b) ? "the two intervals overlap"
                                            : is_change(a, b)
                                                ? "the two intervals do not overlap"
                                                : "the two differ by less than 5 %, as two runs of "
                                                  "one program may"));
    return list;
}

/* ---- call sites ---- */

static bool same_function(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "function"), json_object_get(b, "function")) &&
           json_equal(json_object_get(a, "file"), json_object_get(b, "file"));
}

static bool is_merged(const json_t *row)
{
    return json_is_integer(json_object_get(row, "place_count"));
}

/* The row of LIST for the same place as ROW, by their KEY; a fix may have moved its line. */
static const json_t *same_place(const json_t *list, const json_t *row, const char *key)
{
    const json_t *one;
    size_t i;
    bool is_own = strcmp(key, "in_program") == 0;
    json_array_foreach(list, i, one)
    {
        bool is_same_own =
            same_function(json_object_get(one, "in_program"), json_object_get(row, "in_program"));
        if (is_own == is_merged(one) && is_same_own &&
            same_function(json_object_get(one, key), json_object_get(row, key)))
            return one;
    }
    return NULL;
}

static json_t *site_json(const json_t *before, const json_t *after)
{
    const json_t *a = json_object_get(json_object_get(before, "verdict"), "rate_bytes_per_step");
    const json_t *b = json_object_get(json_object_get(after, "verdict"), "rate_bytes_per_step");
    return json_pack("{s:O?,s:O?,s:O?,s:O?,s:O?,s:O?,s:O?}", "where",
                     json_object_get(before, "where"), "in_program",
                     json_object_get(before, "in_program"), "place_count",
                     json_object_get(before, "place_count"), "before_growth_bytes",
                     json_object_get(before, "growth_bytes"), "after_growth_bytes",
                     json_object_get(after, "growth_bytes"), "before_rate_bytes_per_step", a,
                     "after_rate_bytes_per_step", b);
}

static json_t *sites_json(const json_t *before, const json_t *after)
{
    const json_t *a = json_object_get(json_object_get(before, "heap"), "rows"), *row;
    const json_t *b = json_object_get(json_object_get(after, "heap"), "rows");
    json_t *list = json_array();
    size_t i;
    if (!a || !b)
        return list;
    json_array_foreach(a, i, row)
    {
        const json_t *same = is_merged(row) ? same_place(b, row, "in_program") : NULL;
        if (!same)
            same = same_place(b, row, "where");
        if (json_array_size(list) < SITES && json_is_object(json_object_get(row, "where")))
            json_array_append_new(list, site_json(row, same));
    }
    return list;
}

json_t *report_compare(const json_t *before, const json_t *after)
{
    struct side a = side_of(before), b = side_of(after);
    struct buf sentence = {0};
    const char *by = "step";
    take_rate(&a, "rate_bytes_per_step");
    take_rate(&b, "rate_bytes_per_step");
    if (!a.has_rate || !b.has_rate) {
        by = "minute";
        take_rate(&a, "rate_bytes_per_min");
        take_rate(&b, "rate_bytes_per_min");
    }
    enum answer answer = decide(&a, &b);
    add_sentence(&sentence, answer, &a, &b);
    json_t *o = json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:o}", "answer", answers[answer], "sentence",
                          buf_str(&sentence), "reasons", reasons_json(&a, &b, by), "by",
                          a.has_rate && b.has_rate ? json_string(by) : json_null(), "before",
                          side_json(&a, before), "after", side_json(&b, after), "sites",
                          sites_json(before, after));
    buf_fini(&sentence);
    return o;
}
