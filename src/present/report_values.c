/* Values of a report's document that may be missing, and how they read. */
#include "present/report_html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "judge/verdicts.h"
#include "present/verdict.h"

const char *report_string(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

double report_number(const json_t *o, const char *key, double absent)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : absent;
}

const char *report_size(char out[TEXT_SIZE_MAX], const json_t *bytes)
{
    double v = json_is_number(bytes) ? json_number_value(bytes) : -1;
    return v >= 0 && v < 9e18 ? text_size(out, (uint64_t)v) : "–";
}

const char *report_signed(char out[TEXT_SIZE_MAX], const json_t *bytes)
{
    double v = json_is_number(bytes) ? json_number_value(bytes) : (double)NAN;
    return fabs(v) < 9e18 ? text_size_signed(out, (int64_t)llround(v)) : "–";
}

const char *report_time(char out[TEXT_TIME_MAX], double s)
{
    return s >= 0 && s < 9e9 ? text_duration(out, (uint64_t)(s * 1e9)) : "–";
}

const json_t *report_tree(const json_t *doc)
{
    const json_t *verdict = json_object_get(doc, "verdict");
    const json_t *tree = json_object_get(verdict, "tree");
    if (json_is_object(tree))
        return tree;
    const json_t *first = json_array_get(json_object_get(verdict, "processes"), 0);
    return json_is_object(first) ? first : NULL;
}

const json_t *report_peak(const json_t *doc)
{
    const json_t *run = json_object_get(json_object_get(doc, "run"), "tree");
    const json_t *peak = json_object_get(run, "peak_bytes");
    return json_is_number(peak) ? peak : json_object_get(report_tree(doc), "peak_bytes");
}

const char *report_tone(const json_t *one)
{
    const json_t *leak = json_object_get(one, "leak");
    return json_is_true(leak) ? "bad" : json_is_false(leak) ? "good" : "open";
}

void report_where(struct buf *out, const json_t *frame)
{
    const char *function = report_string(frame, "function"), *file = report_string(frame, "file");
    const char *lib = report_string(frame, "lib");
    const json_t *line = json_object_get(frame, "line");
    buf_add_str(out, function && *function ? function : "not known");
    if (file)
        buf_printf(out, ", %s", file);
    if (file && json_is_integer(line))
        buf_printf(out, ":%lld", (long long)json_integer_value(line));
    else if (!file && lib)
        buf_printf(out, ", %s", lib);
}

void report_site(struct buf *out, const json_t *frame, const json_t *with)
{
    const json_t *own = json_object_get(with, "in_program");
    json_int_t places = json_integer_value(json_object_get(with, "place_count"));
    if (json_is_object(own) && places > 1) {
        report_where(out, own);
        buf_printf(out, ", through %lld lines", (long long)places);
        return;
    }
    report_where(out, frame);
    if (json_is_object(own) && !json_is_true(json_object_get(frame, "own"))) {
        buf_add_str(out, " ← ");
        report_where(out, own);
    }
}

void report_headline(struct buf *out, const json_t *doc)
{
    struct verdicts v = {0};
    if (verdicts_read(json_object_get(doc, "verdict"), &v) == 0)
        verdict_headline(out, &v.job, &v);
    verdicts_fini(&v);
}
