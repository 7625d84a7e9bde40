/* Verdicts in words: a headline, its evidence, a table of processes. */
#include "present/verdict.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"
#include "present/cells.h"
#include "present/page.h"
#include "present/verdict_private.h"

enum { WIDTH_MIN = 40, WIDTH_MAX = 100, WIDTH_DEFAULT = 80, SUMMARY_REASONS = 2 };

const char *verdict_word_of(const json_t *one)
{
    const char *word = json_string_value(json_object_get(one, "verdict"));
    return word ? word : "undecided";
}

static bool is_word(const json_t *one, const char *word)
{
    return strcmp(verdict_word_of(one), word) == 0;
}

enum style verdict_style_of(const json_t *one)
{
    const json_t *leak = json_object_get(one, "leak");
    return json_is_true(leak) ? STYLE_BAD : json_is_false(leak) ? STYLE_GOOD : STYLE_STRONG;
}

static char *signed_size(char out[TEXT_SIZE_MAX], double bytes)
{
    if (!(fabs(bytes) < 9e18))
        bytes = 0;
    return text_size_signed(out, number_to_i64(bytes));
}

static char *span(char out[TEXT_TIME_MAX], double s)
{
    return text_duration(out, s > 0 && s < 1e9 ? (uint64_t)(s * 1e9) : 0);
}

/* ---- the headline ---- */

static void add_name(struct buf *out, const json_t *name)
{
    char text[TEXT_MAX];
    buf_add_str(out, summary_fit(text, 40, name));
}

static void add_grower(struct buf *out, const json_t *grower, bool is_one)
{
    const json_t *pid = json_object_get(grower, "pid");
    const json_t *role = json_object_get(grower, "role");
    const char *name = json_string_value(json_object_get(grower, "name"));
    char digits[24] = "";
    if (json_is_integer(pid))
        snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(pid));
    buf_printf(out, "%s%s%s", is_one ? "process" : "", is_one && digits[0] ? " " : "", digits);
    if (name && strcmp(name, digits) != 0) {
        if (is_one || digits[0])
            buf_add_byte(out, ' ');
        add_name(out, json_object_get(grower, "name"));
    }
    if (json_is_string(role))
        buf_printf(out, " (%s)", json_string_value(role));
}

/* "process 606 python (main)" for the one that grows, "2 processes, first of them 606 python
 * (main)," where rates are of them all, else "memory"; a figure of the job's own has been named
 * before. Returns whether they are many. */
static bool add_subject(struct buf *out, const json_t *one)
{
    const json_t *grower = json_object_get(one, "grower");
    json_int_t growing = json_integer_value(json_object_get(one, "growing"));
    if (!json_is_object(grower)) {
        buf_add_str(out, json_object_get(one, "label") ? "it" : "memory");
        return false;
    }
    if (growing > 1)
        buf_printf(out, "%lld processes, first of them ", (long long)growing);
    add_grower(out, grower, growing <= 1);
    if (growing > 1)
        buf_add_byte(out, ',');
    return growing > 1;
}

/* "+98.0 MiB a step (+96.1 MiB to +99.9 MiB)"; an interval that is one figure tells nothing. */
static bool add_rate(struct buf *out, const char *before, const json_t *rate, const char *unit)
{
    char value[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    const json_t *l = json_object_get(rate, "low"), *h = json_object_get(rate, "high");
    if (!json_is_object(rate))
        return false;
    signed_size(value, json_number_value(json_object_get(rate, "value")));
    buf_printf(out, "%s%s a %s", before, value, unit);
    if (!json_is_number(l) || !json_is_number(h))
        return true;
    signed_size(low, json_number_value(l));
    signed_size(high, json_number_value(h));
    if (strcmp(low, value) != 0 || strcmp(high, value) != 0)
        buf_printf(out, " (%s to %s)", low, high);
    return true;
}

static void add_rates(struct buf *out, const json_t *one)
{
    bool has = add_rate(out, ", by ", json_object_get(one, "rate_bytes_per_step"), "step");
    add_rate(out, has ? ", " : ", by ", json_object_get(one, "rate_bytes_per_min"), "minute");
}

/* "in 12 min 04 s to 15 min 10 s", "in 110 steps to 130 steps"; one where both read the same, and
 * the far end may be out of sight. */
static void add_when(struct buf *out, const json_t *range, bool by_step)
{
    char a[TEXT_TIME_MAX], b[TEXT_TIME_MAX];
    const json_t *low = json_object_get(range, "low"), *high = json_object_get(range, "high");
    double l = json_number_value(low), h = json_number_value(high);
    if (by_step) {
        snprintf(a, sizeof a, "%.0f steps", l);
        snprintf(b, sizeof b, "%.0f steps", h);
    } else {
        span(a, l);
        span(b, h);
    }
    if (!json_is_number(high))
        buf_printf(out, " in %s at the earliest", a);
    else if (strcmp(a, b) == 0)
        buf_printf(out, " in %s", a);
    else
        buf_printf(out, " in %s to %s", a, b);
}

static void add_oom(struct buf *out, const json_t *one, const char *before)
{
    char size[TEXT_SIZE_MAX];
    const json_t *oom = json_object_get(one, "oom");
    const json_t *by_time = json_object_get(oom, "eta_s");
    const json_t *by_step = json_object_get(oom, "eta_steps");
    const json_t *range = json_is_object(by_time) ? by_time : by_step;
    const char *limit = summary_size(size, json_object_get(oom, "limit_bytes"));
    if (!limit || !json_is_number(json_object_get(range, "low")))
        return;
    buf_printf(out, "%s the limit of %s is reached", before, limit);
    add_when(out, range, range == by_step);
}

static void add_ended(struct buf *out, const json_t *one)
{
    char time[TEXT_TIME_MAX];
    const json_t *ended = json_object_get(one, "growth_ended");
    const json_t *step = json_object_get(ended, "step"), *t = json_object_get(ended, "t_s");
    const char *at = json_string_value(json_object_get(ended, "at"));
    if (json_is_integer(step))
        buf_printf(out, " and stopped at step %lld", (long long)json_integer_value(step));
    else if (json_is_number(t))
        buf_printf(out, " and stopped after %s", span(time, json_number_value(t)));
    else
        buf_add_str(out, " and stopped");
    if (at && strcmp(at, "step") != 0 && strcmp(at, "none") != 0)
        buf_printf(out, ", %s", at);
}

static void add_forecast(struct buf *out, const json_t *one)
{
    char size[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    const json_t *f = json_object_get(one, "forecast");
    const json_t *step = json_object_get(f, "decided_at_step");
    const json_t *t = json_object_get(f, "decided_at_s");
    const char *ceiling = summary_size(size, json_object_get(f, "ceiling_bytes"));
    if (ceiling)
        buf_printf(out, "; if it is a cache it ends near %s", ceiling);
    if (json_is_integer(step))
        buf_printf(out, "; it will be known at step %lld", (long long)json_integer_value(step));
    else if (json_is_number(t))
        buf_printf(out, "; it will be known after %s", span(time, json_number_value(t)));
}

/* A process can have grown by what the whole job does not show: then FROM says nothing. */
static void add_floor(struct buf *out, const json_t *one, bool from)
{
    char first[TEXT_SIZE_MAX], last[TEXT_SIZE_MAX];
    bool has_first = summary_size(first, summary_at(one, "floor_bytes", "first"));
    bool has_last = summary_size(last, summary_at(one, "floor_bytes", "last"));
    if (from && has_first && has_last && strcmp(first, last) != 0)
        buf_printf(out, " from %s to %s", first, last);
    else if (!from && has_last)
        buf_printf(out, " %s", last);
}

static const char *event_name(const json_t *one)
{
    const char *event = json_string_value(json_object_get(one, "event"));
    if (event && strcmp(event, "eval") == 0)
        return "evaluation";
    return event && strcmp(event, "save") == 0 ? "checkpoint" : event ? event : "event";
}

static void add_undecided(struct buf *out, const json_t *one)
{
    const char *why = json_string_value(json_array_get(json_object_get(one, "evidence"), 0));
    buf_printf(out, "not enough to say%s%s", why ? ": " : "", why ? why : "");
    add_forecast(out, one);
}

void verdict_headline(struct buf *out, const json_t *one)
{
    char size[TEXT_SIZE_MAX];
    const json_t *confidence = json_object_get(one, "confidence");
    if (is_word(one, "undecided")) {
        add_undecided(out, one);
        return;
    }
    bool is_many = add_subject(out, one);
    if (is_word(one, "stable")) {
        buf_add_str(out, " is flat at");
        add_floor(out, one, false);
    } else if (is_word(one, "spiking")) {
        buf_printf(out, " peaks at %s and comes back to",
                   summary_size(size, json_object_get(one, "peak_bytes")) ? size : "times");
        add_floor(out, one, false);
    } else if (is_word(one, "plateaued")) {
        buf_add_str(out, " grew");
        add_floor(out, one, true);
        add_ended(out, one);
    } else if (is_word(one, "filling")) {
        buf_printf(out, " grow%s within the first pass over the data", is_many ? "" : "s");
        add_rates(out, one);
        add_forecast(out, one);
        add_oom(out, one, "; if it is a leak,");
    } else if (is_word(one, "stepping")) {
        buf_printf(out, is_many ? " rise at each %s and stay" : " rises at each %s and stays",
                   event_name(one));
        add_rates(out, one);
        add_oom(out, one, ";");
    } else {
        buf_printf(out, " keep%s growing", is_many ? "" : "s");
        add_rates(out, one);
        add_oom(out, one, ";");
    }
    if (json_is_number(confidence))
        buf_printf(out, " (confidence %.0f %%)", 100 * json_number_value(confidence));
}

void verdict_brief(struct buf *out, const json_t *one)
{
    char rate[CELL_MAX];
    const json_t *per_min = json_object_get(one, "rate_bytes_per_min");
    const json_t *grower = json_object_get(one, "grower");
    const json_t *eta = json_object_get(json_object_get(one, "oom"), "eta_s");
    buf_add_str(out, verdict_word_of(one));
    if (!json_is_object(grower))
        return;
    if (json_is_object(per_min))
        buf_printf(out, " %s",
                   cell_rate_text(rate, json_number_value(json_object_get(per_min, "value"))));
    if (json_is_integer(json_object_get(grower, "pid")))
        buf_printf(out, ", %lld ", (long long)json_integer_value(json_object_get(grower, "pid")));
    add_name(out, json_object_get(grower, "name"));
    if (json_is_number(json_object_get(eta, "low"))) {
        buf_add_str(out, ", limit reached");
        add_when(out, eta, false);
    }
}

/* ---- laying out ---- */

static void put_headline(struct page *p, const json_t *one, const char *label)
{
    struct buf text = {0};
    verdict_headline(&text, one);
    if (label) {
        page_put(p, STYLE_DIM, label);
        page_pad(p, LABEL_COLUMNS);
        page_put(p, verdict_style_of(one), verdict_word_of(one));
        page_put(p, STYLE_PLAIN, ": ");
    } else {
        page_put(p, verdict_style_of(one), verdict_word_of(one));
        page_pad(p, LABEL_COLUMNS);
    }
    page_words(p, STYLE_PLAIN, buf_str(&text));
    page_line(p);
    buf_fini(&text);
}

static void put_reason(struct page *p, const char *text)
{
    page_pad(p, LABEL_COLUMNS);
    page_put(p, STYLE_DIM, "· ");
    p->indent = LABEL_COLUMNS + 2;
    page_words(p, STYLE_PLAIN, text);
    p->indent = 0;
    page_line(p);
}

/* An undecided one has said its first reason in the headline. */
static void put_reasons(struct page *p, const json_t *one, size_t max)
{
    const json_t *list = json_object_get(one, "evidence");
    size_t skip = is_word(one, "undecided") ? 1 : 0;
    for (size_t i = skip; i < json_array_size(list) && i < skip + max; i++) {
        struct buf text = {0};
        const json_t *reason = json_array_get(list, i);
        text_escape(&text, json_string_value(reason), json_string_length(reason));
        put_reason(p, buf_str(&text));
        buf_fini(&text);
    }
}

/* "of segment 2 alone; segment 0 was leaking, by +4.00 MiB a step": a job that was started again is
 * judged anew. */
static void put_segment(struct page *p, const json_t *doc)
{
    const json_t *segment = json_object_get(doc, "segment"), *leak;
    struct buf text = {0};
    if (!json_is_integer(segment))
        return;
    buf_printf(&text, "of segment %lld alone", (long long)json_integer_value(segment));
    leak = json_object_get(doc, "earlier_leak");
    if (json_is_object(leak)) {
        buf_printf(&text, "; segment %lld was %s",
                   (long long)json_integer_value(json_object_get(leak, "segment")),
                   verdict_word_of(leak));
        add_rates(&text, leak);
    }
    put_reason(p, buf_str(&text));
    buf_fini(&text);
}

/* "20 compile workers are flat: 9.10 GiB resident in all, 1.20 GiB of it theirs alone" */
static void put_costs(struct page *p, const json_t *tree)
{
    const json_t *list = json_object_get(tree, "flat"), *cost;
    bool is_first = true;
    size_t i;
    json_array_foreach(list, i, cost)
    {
        char rss[TEXT_SIZE_MAX], unique[TEXT_SIZE_MAX], role[TEXT_MAX], text[TEXT_MAX + 128];
        long long count = json_integer_value(json_object_get(cost, "count"));
        if (!summary_size(rss, json_object_get(cost, "rss_bytes")) || count == 0)
            continue;
        summary_fit(role, 24, json_object_get(cost, "role"));
        if (strcmp(role, "main") == 0) /* the job itself is no overhead */
            continue;
        bool is_other = strcmp(role, "other") == 0;
        snprintf(text, sizeof text, "%lld %s%s flat: %s resident%s", count,
                 is_other ? "process" : role,
                 is_other ? (count == 1 ? " is" : "es are") : (count == 1 ? " is" : "s are"), rss,
                 count == 1 ? "" : " in all");
        size_t len = strlen(text);
        if (summary_size(unique, json_object_get(cost, "unique_bytes")))
            snprintf(text + len, sizeof text - len, ", %s of it shared with nobody", unique);
        page_put(p, STYLE_DIM, is_first ? "overhead" : "");
        page_pad(p, LABEL_COLUMNS);
        page_words(p, STYLE_PLAIN, text);
        page_line(p);
        is_first = false;
    }
}

/* ---- the rest of the job ---- */

static void put_gpus(struct page *p, const json_t *doc)
{
    size_t i;
    const json_t *gpu;
    json_array_foreach(json_object_get(doc, "gpus"), i, gpu)
    {
        char label[24];
        snprintf(label, sizeof label, "gpu %lld",
                 (long long)json_integer_value(json_object_get(gpu, "gpu")));
        put_headline(p, gpu, label);
        put_reasons(p, gpu, SUMMARY_REASONS);
    }
}

/* "series     heap (live) of process 606: stable: it is flat at 1.20 GiB (confidence 92 %)" */
static void put_one_series(struct page *p, const json_t *one)
{
    char name[TEXT_MAX], cell[TEXT_MAX + 48];
    const json_t *pid = json_object_get(one, "pid");
    struct buf text = {0};
    summary_fit(name, 48, json_object_get(one, "label"));
    if (json_is_integer(pid))
        snprintf(cell, sizeof cell, "%s of process %lld: ", name,
                 (long long)json_integer_value(pid));
    else
        snprintf(cell, sizeof cell, "%s: ", name);
    verdict_headline(&text, one);
    page_put(p, STYLE_DIM, "series");
    page_pad(p, LABEL_COLUMNS);
    page_put(p, STYLE_PLAIN, cell);
    page_put(p, verdict_style_of(one), verdict_word_of(one));
    page_put(p, STYLE_PLAIN, ": ");
    page_words(p, STYLE_PLAIN, buf_str(&text));
    page_line(p);
    buf_fini(&text);
}

static void put_series(struct page *p, const json_t *doc)
{
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(doc, "series"), i, one)
    {
        put_one_series(p, one);
        put_reasons(p, one, SUMMARY_REASONS);
    }
}

void verdict_text(struct buf *out, const json_t *doc, bool colour, int width)
{
    int columns = width <= 0 ? WIDTH_DEFAULT : width;
    columns = columns < WIDTH_MIN ? WIDTH_MIN : columns > WIDTH_MAX ? WIDTH_MAX : columns;
    struct page p = {.out = out, .is_coloured = colour, .width = (size_t)columns};
    const json_t *tree = json_object_get(doc, "tree");
    const json_t *one = json_object_get(doc, "verdict") ? doc : tree;
    if (json_is_object(one)) {
        put_headline(&p, one, NULL);
        put_reasons(&p, one, SIZE_MAX / 2);
        put_segment(&p, doc);
    } else if (json_array_size(json_object_get(doc, "processes")) == 0) {
        page_put(&p, STYLE_PLAIN, "undecided  there are no readings");
        page_line(&p);
    }
    if (one == doc)
        return;
    put_costs(&p, tree);
    put_gpus(&p, doc);
    put_series(&p, doc);
    verdict_table(&p, doc);
}

void verdict_summary(struct page *p, const json_t *doc)
{
    const json_t *tree = summary_at(doc, "verdict", "tree");
    size_t i;
    const json_t *gpu, *one;
    if (!json_is_object(tree))
        return;
    put_headline(p, tree, "verdict");
    put_reasons(p, tree, SUMMARY_REASONS);
    put_segment(p, json_object_get(doc, "verdict"));
    json_array_foreach(summary_at(doc, "verdict", "gpus"), i, gpu)
    {
        if (!json_is_false(json_object_get(gpu, "leak")) && !is_word(gpu, "undecided"))
            put_headline(p, gpu, "gpu memory");
    }
    json_array_foreach(summary_at(doc, "verdict", "series"), i, one)
    {
        if (json_is_true(json_object_get(one, "leak")))
            put_one_series(p, one);
    }
}
