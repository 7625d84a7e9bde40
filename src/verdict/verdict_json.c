/* Writes verdicts as JSON and reads them back. */
#include "verdict/verdict_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

double verdict_rounded(double v)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", v);
    return strtod(text, NULL);
}

static json_t *number_json(double v)
{
    return isfinite(v) ? json_real(verdict_rounded(v)) : json_null();
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

static json_t *ended_json(const struct verdict_result *r)
{
    if (!r->growth_ended.known)
        return json_null();
    json_t *t = r->growth_ended.has_t ? number_json(r->growth_ended.t_s) : json_null();
    json_t *step = r->growth_ended.has_step ? json_u64(r->growth_ended.step) : json_null();
    enum verdict_boundary at = r->growth_ended.at;
    bool is_known = at != VERDICT_AT_NONE && at != VERDICT_AT_STEP;
    return json_pack("{s:o,s:o,s:s}", "t_s", t, "step", step, "at",
                     is_known                ? verdict_boundary_name(at)
                     : at == VERDICT_AT_STEP ? "step"
                                             : "none");
}

static json_t *forecast_json(const struct verdict_result *r)
{
    if (!r->forecast.known)
        return json_null();
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:b}", "ceiling_bytes",
        r->forecast.has_ceiling ? bytes_json(r->forecast.ceiling_bytes) : json_null(),
        "decided_at_step",
        r->forecast.has_step ? json_u64(r->forecast.decided_at_step) : json_null(), "decided_at_s",
        r->forecast.has_t ? number_json(r->forecast.decided_at_s) : json_null(), "fits",
        r->forecast.has_fits ? json_boolean(r->forecast.fits) : json_null(), "bytes_per_example",
        r->forecast.bytes_per_example > 0 ? number_json(r->forecast.bytes_per_example)
                                          : json_null(),
        "limited_container", r->forecast.is_limited);
}

/* Returns each feature's contribution to the log-odds of a leak, without zero contributions. */
static json_t *contributions_json(const struct verdict_result *r)
{
    json_t *o = json_object();
    for (unsigned i = 0; i < MODEL_COUNT; i++)
        if (r->contributions[i] > 0 || r->contributions[i] < 0)
            json_object_set_new(o, model_feature_name((enum model_feature)i),
                                number_json(r->contributions[i]));
    return o;
}

static json_t *detectable_json(const struct verdict_result *r)
{
    double per_min = r->detectable_per_min, per_step = r->detectable_per_step;
    if (r->leak != VERDICT_LEAK_NO || !(per_min > 0 || per_step > 0))
        return json_null();
    return json_pack("{s:o,s:o}", "bytes_per_min", per_min > 0 ? bytes_json(per_min) : json_null(),
                     "bytes_per_step", per_step > 0 ? bytes_json(per_step) : json_null());
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

void verdict_json_add_word(json_t *o, const struct verdict_result *r)
{
    json_object_set_new(o, "verdict", json_string(verdict_word_name(r->word)));
    json_object_set_new(o, "confidence", number_json(r->confidence));
    json_object_set_new(o, "rate_bytes_per_min", interval_json(&r->rate_bytes_per_min));
    json_object_set_new(o, "rate_bytes_per_step", interval_json(&r->rate_bytes_per_step));
}

void verdict_json_add(json_t *o, const struct verdict_result *r)
{
    bool has_any = r->samples > 0;
    verdict_json_add_word(o, r);
    json_object_set_new(
        o, "leak",
        r->leak == VERDICT_LEAK_UNKNOWN ? json_null() : json_boolean(r->leak == VERDICT_LEAK_YES));
    json_object_set_new(o, "probability",
                        r->has_probability ? number_json(r->probability) : json_null());
    json_object_set_new(o, "contributions",
                        r->has_probability ? contributions_json(r) : json_null());
    json_object_set_new(o, "alarm", json_boolean(r->alarm));
    json_object_set_new(o, "floor_bytes",
                        json_pack("{s:o,s:o}", "first",
                                  r->has_floor ? bytes_json(r->floor_first_bytes) : json_null(),
                                  "last",
                                  r->has_floor ? bytes_json(r->floor_last_bytes) : json_null()));
    json_object_set_new(o, "peak_bytes", has_any ? bytes_json(r->peak_bytes) : json_null());
    json_object_set_new(o, "mean_bytes", has_any ? bytes_json(r->mean_bytes) : json_null());
    json_object_set_new(o, "growth_ended", ended_json(r));
    json_object_set_new(o, "detectable", detectable_json(r));
    json_object_set_new(o, "event",
                        r->word == VERDICT_STEPPING ? json_string(verdict_mark_name(r->event))
                                                    : json_null());
    json_object_set_new(o, "forecast", forecast_json(r));
    json_object_set_new(o, "oom", oom_json(r));
    json_object_set_new(o, "samples", json_u64(r->samples));
}

json_t *verdict_result_json(const struct verdict_result *r)
{
    json_t *o = json_object(), *evidence = json_array();
    char text[VERDICT_TEXT_MAX];
    verdict_json_add(o, r);
    for (uint32_t i = 0; i < r->n_evidence && i < VERDICT_EVIDENCE; i++) {
        verdict_evidence_text(text, sizeof text, &r->evidence[i]);
        if (text[0])
            json_array_append_new(evidence, json_text0(text));
    }
    json_object_set_new(o, "evidence", evidence);
    return o;
}

/* ---- reading ---- */

static bool read_number(const json_t *o, const char *key, double *ret)
{
    const json_t *v = json_object_get(o, key);
    if (json_is_number(v))
        *ret = json_number_value(v);
    return json_is_number(v);
}

bool verdict_read_count(const json_t *o, const char *key, uint64_t *ret)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *ret = (uint64_t)json_integer_value(v);
    return true;
}

/* Returns the index of the name at KEY among COUNT names, or 0 if it is missing or unknown. */
static int read_name(const json_t *o, const char *key, int count, const char *name_of(int i))
{
    const char *text = json_string_value(json_object_get(o, key));
    for (int i = 0; text && i < count; i++)
        if (strcmp(text, name_of(i)) == 0)
            return i;
    return 0;
}

static const char *word_at(int i)
{
    return verdict_word_name((enum verdict_word)i);
}

static const char *boundary_at(int i)
{
    return i == VERDICT_AT_STEP ? "step" : verdict_boundary_name((enum verdict_boundary)i);
}

static const char *event_at(int i)
{
    return verdict_mark_name((enum verdict_mark_kind)i);
}

static struct verdict_interval read_interval(const json_t *o, const char *key)
{
    const json_t *of = json_object_get(o, key);
    struct verdict_interval i = {.low = -(double)INFINITY, .high = (double)INFINITY};
    i.known = read_number(of, "value", &i.value);
    read_number(of, "low", &i.low);
    read_number(of, "high", &i.high);
    return i;
}

/* Reads {"low", "high"} at KEY; a missing upper end is infinite. */
static bool read_range(const json_t *o, const char *key, double *low, double *high)
{
    const json_t *of = json_object_get(o, key);
    *high = (double)INFINITY;
    read_number(of, "high", high);
    return read_number(of, "low", low);
}

void verdict_read_word(const json_t *o, struct verdict_result *r)
{
    r->word = (enum verdict_word)read_name(o, "verdict", VERDICT_WORDS, word_at);
    const json_t *leak = json_object_get(o, "leak");
    r->leak = json_is_boolean(leak) ? (json_is_true(leak) ? VERDICT_LEAK_YES : VERDICT_LEAK_NO)
                                    : verdict_word_leak(r->word);
    read_number(o, "confidence", &r->confidence);
    r->rate_bytes_per_min = read_interval(o, "rate_bytes_per_min");
    r->rate_bytes_per_step = read_interval(o, "rate_bytes_per_step");
}

void verdict_read(const json_t *o, struct verdict_result *r)
{
    verdict_read_word(o, r);
    r->has_probability = read_number(o, "probability", &r->probability);
    const json_t *contributions = json_object_get(o, "contributions");
    for (unsigned i = 0; i < MODEL_COUNT; i++)
        read_number(contributions, model_feature_name((enum model_feature)i), &r->contributions[i]);
    r->alarm = json_is_true(json_object_get(o, "alarm"));
    const json_t *floor = json_object_get(o, "floor_bytes");
    r->has_floor = read_number(floor, "first", &r->floor_first_bytes) &&
                   read_number(floor, "last", &r->floor_last_bytes);
    if (read_number(o, "peak_bytes", &r->peak_bytes) &&
        !verdict_read_count(o, "samples", &r->samples))
        r->samples = 1;
    read_number(o, "mean_bytes", &r->mean_bytes);
    const json_t *ended = json_object_get(o, "growth_ended");
    r->growth_ended.known = json_is_object(ended);
    r->growth_ended.has_t = read_number(ended, "t_s", &r->growth_ended.t_s);
    r->growth_ended.has_step = verdict_read_count(ended, "step", &r->growth_ended.step);
    r->growth_ended.at =
        (enum verdict_boundary)read_name(ended, "at", VERDICT_BOUNDARIES, boundary_at);
    r->event = (enum verdict_mark_kind)read_name(o, "event", VERDICT_MARK_KINDS, event_at);
    const json_t *forecast = json_object_get(o, "forecast"), *fits;
    r->forecast.known = json_is_object(forecast);
    r->forecast.has_ceiling = read_number(forecast, "ceiling_bytes", &r->forecast.ceiling_bytes);
    r->forecast.has_step =
        verdict_read_count(forecast, "decided_at_step", &r->forecast.decided_at_step);
    r->forecast.has_t = read_number(forecast, "decided_at_s", &r->forecast.decided_at_s);
    fits = json_object_get(forecast, "fits");
    r->forecast.has_fits = json_is_boolean(fits);
    r->forecast.fits = json_is_true(fits);
    read_number(forecast, "bytes_per_example", &r->forecast.bytes_per_example);
    r->forecast.is_limited = json_is_true(json_object_get(forecast, "limited_container"));
    const json_t *detectable = json_object_get(o, "detectable");
    read_number(detectable, "bytes_per_min", &r->detectable_per_min);
    read_number(detectable, "bytes_per_step", &r->detectable_per_step);
    const json_t *oom = json_object_get(o, "oom");
    r->oom.known = read_number(oom, "limit_bytes", &r->oom.limit_bytes);
    r->oom.has_t = read_range(oom, "eta_s", &r->oom.eta_s_low, &r->oom.eta_s_high);
    r->oom.has_step = read_range(oom, "eta_steps", &r->oom.eta_step_low, &r->oom.eta_step_high);
}
