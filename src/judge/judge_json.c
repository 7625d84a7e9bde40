/* Verdicts as JSON: absent is null, an end that is not in sight is null. */
#include "judge/judge_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"

enum { LISTED_MAX = 64 };

/* Nine digits are more than is known of any of them, and survive every way of printing. */
static json_t *number_json(double v)
{
    char text[32];
    if (!isfinite(v))
        return json_null();
    snprintf(text, sizeof text, "%.9g", v);
    return json_real(strtod(text, NULL));
}

static json_t *bytes_json(double v)
{
    return isfinite(v) ? json_integer((json_int_t)llround(v)) : json_null();
}

static json_t *interval_json(const struct verdict_interval *i)
{
    if (!i->known)
        return json_null();
    return json_pack("{s:o,s:o,s:o}", "value", number_json(i->value), "low", number_json(i->low),
                     "high", number_json(i->high));
}

static json_t *leak_json(enum verdict_leak leak)
{
    return leak == VERDICT_LEAK_UNKNOWN ? json_null() : json_boolean(leak == VERDICT_LEAK_YES);
}

static json_t *ended_json(const struct verdict_result *r, double offset_s)
{
    if (!r->growth_ended.known)
        return json_null();
    json_t *t = r->growth_ended.has_t ? number_json(r->growth_ended.t_s + offset_s) : json_null();
    json_t *step = r->growth_ended.has_step ? json_u64(r->growth_ended.step) : json_null();
    enum verdict_boundary at = r->growth_ended.at;
    bool is_known = at != VERDICT_AT_NONE && at != VERDICT_AT_STEP;
    return json_pack("{s:o,s:o,s:s}", "t_s", t, "step", step, "at",
                     is_known                ? verdict_boundary_name(at)
                     : at == VERDICT_AT_STEP ? "step"
                                             : "none");
}

static json_t *forecast_json(const struct verdict_result *r, double offset_s)
{
    if (!r->forecast.known)
        return json_null();
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o}", "ceiling_bytes",
        r->forecast.has_ceiling ? bytes_json(r->forecast.ceiling_bytes) : json_null(),
        "decided_at_step",
        r->forecast.has_step ? json_u64(r->forecast.decided_at_step) : json_null(), "decided_at_s",
        r->forecast.has_t ? number_json(r->forecast.decided_at_s + offset_s) : json_null(), "fits",
        r->forecast.has_fits ? json_boolean(r->forecast.fits) : json_null(), "bytes_per_example",
        r->forecast.bytes_per_example > 0 ? number_json(r->forecast.bytes_per_example)
                                          : json_null());
}

static json_t *range_json(bool known, double low, double high)
{
    if (!known)
        return json_null();
    return json_pack("{s:o,s:o}", "low", number_json(low), "high", number_json(high));
}

static json_t *oom_json(const struct verdict_result *r)
{
    if (!r->oom.known)
        return json_null();
    return json_pack("{s:o,s:o,s:o}", "limit_bytes", bytes_json(r->oom.limit_bytes), "eta_s",
                     range_json(r->oom.has_t, r->oom.eta_s_low, r->oom.eta_s_high), "eta_steps",
                     range_json(r->oom.has_step, r->oom.eta_step_low, r->oom.eta_step_high));
}

static json_t *evidence_json(const struct verdict_result *r)
{
    json_t *list = json_array();
    char text[VERDICT_TEXT_MAX];
    for (uint32_t i = 0; i < r->n_evidence && i < VERDICT_EVIDENCE; i++) {
        verdict_evidence_text(text, sizeof text, &r->evidence[i]);
        if (text[0])
            json_array_append_new(list, json_text0(text));
    }
    return list;
}

json_t *judge_result_json(const struct verdict_result *r, double offset_s)
{
    bool has_any = r->samples > 0;
    json_t *o = json_pack("{s:s,s:o,s:o,s:b}", "verdict", verdict_word_name(r->word), "leak",
                          leak_json(r->leak), "confidence", number_json(r->confidence), "alarm",
                          (int)r->alarm);
    if (!o)
        return NULL;
    json_object_set_new(o, "rate_bytes_per_min", interval_json(&r->rate_bytes_per_min));
    json_object_set_new(o, "rate_bytes_per_step", interval_json(&r->rate_bytes_per_step));
    json_object_set_new(o, "floor_bytes",
                        json_pack("{s:o,s:o}", "first",
                                  r->has_floor ? bytes_json(r->floor_first_bytes) : json_null(),
                                  "last",
                                  r->has_floor ? bytes_json(r->floor_last_bytes) : json_null()));
    json_object_set_new(o, "peak_bytes", has_any ? bytes_json(r->peak_bytes) : json_null());
    json_object_set_new(o, "mean_bytes", has_any ? bytes_json(r->mean_bytes) : json_null());
    json_object_set_new(o, "growth_ended", ended_json(r, offset_s));
    json_object_set_new(o, "event",
                        r->word == VERDICT_STEPPING ? json_string(verdict_mark_name(r->event))
                                                    : json_null());
    json_object_set_new(o, "forecast", forecast_json(r, offset_s));
    json_object_set_new(o, "oom", oom_json(r));
    json_object_set_new(o, "samples", json_u64(r->samples));
    json_object_set_new(o, "evidence", evidence_json(r));
    return o;
}

/* ---- the tree ---- */

static json_t *costs_json(const struct verdict_tree_result *t)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->n_flat; i++) {
        const struct verdict_cost *c = &t->flat[i];
        json_array_append_new(
            list,
            json_pack("{s:s,s:o,s:o,s:o}", "role", process_role_name((enum process_role)c->role),
                      "count", json_u64(c->count), "rss_bytes", bytes_json(c->rss_bytes),
                      "unique_bytes", c->unique_known ? bytes_json(c->unique_bytes) : json_null()));
    }
    return list;
}

void judge_tree_json_add(json_t *o, const struct verdict_tree_result *tree, json_t *grower)
{
    json_object_set_new(o, "grower", grower ? grower : json_null());
    json_object_set_new(o, "growing", json_u64(tree->growers));
    json_object_set_new(o, "flat", costs_json(tree));
}

static double offset_of(const struct judge *j, uint64_t first_ns)
{
    return ((double)first_ns - (double)judge_start_ns(j)) / (double)NS_PER_S;
}

json_t *judge_tree_json(const struct judge *j)
{
    const struct judge_tree *t = judge_tree(j);
    if (!t)
        return json_null();
    json_t *o = judge_result_json(&t->result, offset_of(j, t->first_ns));
    const struct judge_process *g = t->grower;
    if (o)
        judge_tree_json_add(o, &t->of,
                            g ? json_pack("{s:i,s:o,s:s}", "pid", (int)g->id.pid, "name",
                                          json_text(g->name, g->name_len), "role",
                                          process_role_name(g->role))
                              : NULL);
    return o;
}

static json_t *process_json(const struct judge *j, const struct judge_process *p)
{
    json_t *o = json_pack("{s:i,s:o,s:o,s:s,s:b,s:o,s:o}", "pid", (int)p->id.pid, "start_ticks",
                          json_u64(p->id.start_ticks), "name", json_text(p->name, p->name_len),
                          "role", process_role_name(p->role), "alive", (int)(p->died_ns == 0),
                          "rss_bytes", p->has_rss ? json_u64(p->rss_bytes) : json_null(),
                          "unique_bytes", p->has_unique ? json_u64(p->unique_bytes) : json_null());
    json_t *result = judge_result_json(&p->seat->result, offset_of(j, p->seat->first_ns));
    if (o && result)
        json_object_update(o, result);
    json_decref(result);
    return o;
}

static json_t *gpu_json(const struct judge *j, const struct judge_gpu *g)
{
    json_t *o = json_pack("{s:i,s:o}", "gpu", (int)g->id, "name", json_text0(g->name));
    json_t *result = judge_result_json(&g->seat->result, offset_of(j, g->seat->first_ns));
    if (o && result)
        json_object_update(o, result);
    json_decref(result);
    return o;
}

static json_t *series_json(const struct judge *j, const struct judge_figure *s)
{
    json_t *o =
        json_pack("{s:o,s:o,s:o,s:b}", "name", json_text0(s->name), "label",
                  json_text0(judge_figure_label(s)), "pid",
                  s->pid > 0 ? json_integer(s->pid) : json_null(), "alive", (int)!s->is_gone);
    json_t *result = judge_result_json(&s->seat->result, offset_of(j, s->seat->first_ns));
    if (o && result)
        json_object_update(o, result);
    json_decref(result);
    return o;
}

static void add_segment(const struct judge *j, json_t *o)
{
    const struct judge_earlier *leak = judge_earlier_leak(j);
    json_object_set_new(o, "segment", json_integer(judge_segment_now(j)));
    json_object_set_new(
        o, "earlier_leak",
        leak ? json_pack("{s:i,s:s,s:o,s:o,s:o}", "segment", (int)leak->segment, "verdict",
                         verdict_word_name(leak->result.word), "confidence",
                         number_json(leak->result.confidence), "rate_bytes_per_step",
                         interval_json(&leak->result.rate_bytes_per_step), "rate_bytes_per_min",
                         interval_json(&leak->result.rate_bytes_per_min))
             : json_null());
}

json_t *judge_json(const struct judge *j)
{
    json_t *processes = json_array(), *gpus = json_array(), *series = json_array();
    const struct judge_gpu *g;
    const struct judge_figure *s;
    size_t n = judge_process_count(j), at = 0, next = 0;
    size_t listed = n < LISTED_MAX ? n : LISTED_MAX;
    for (size_t i = 0; i < listed; i++)
        json_array_append_new(processes, process_json(j, judge_process_at(j, i)));
    while ((g = judge_gpu_next(j, &at)))
        json_array_append_new(gpus, gpu_json(j, g));
    while ((s = judge_figure_next(j, &next)))
        json_array_append_new(series, series_json(j, s));
    json_t *o = json_pack("{s:o,s:o,s:o,s:o,s:o}", "tree", judge_tree_json(j), "processes",
                          processes, "gpus", gpus, "series", series, "not_judged",
                          json_u64(judge_left_out(j) + n - listed));
    if (judge_segment_now(j))
        add_segment(j, o);
    return o;
}
