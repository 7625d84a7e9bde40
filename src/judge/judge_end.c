/* Handles the end of the job. If the job ended by itself, no more evidence will come, so undecided
 * verdicts are decided. */
#include "judge/judge_model.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#include "base/json.h"

/* Judges a series at the end of the job. A series whose process exited earlier was judged at that
 * time, and is judged again now that the end of the job is known. */
static void series_over(struct judge_series *s, bool is_dead)
{
    if (!s)
        return;
    verdict_job_over(&s->series);
    if (is_dead && s->is_judged)
        judge_series_judge(s, &s->limit);
}

/* Returns true if a series began in the first half of the job. A series that began later may be
 * that of a short-lived helper, which is not evidence about the job. */
static bool began_early(const struct judge *j, uint64_t first_ns)
{
    return first_ns <= j->begun_ns + (j->run->tick_ns - j->begun_ns) / 2;
}

/* Returns true if S began early and lasted until the end of the job. The series of the job did not
 * last if it is paused, nor did the series of a GPU that was released earlier. */
static bool was_read_to_the_end(const struct judge *j, const struct judge_series *s)
{
    return s && s->has_first && began_early(j, s->first_ns) && judge_is_just_now(j, s->last_ns);
}

static void job_is_over(struct judge *j)
{
    struct run_entity *e;
    j->is_over = true;
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));)
        if (began_early(j, e->execed_ns) && (!e->is_dead || judge_is_just_now(j, e->died_ns)))
            series_over(judge_known(e)->series, e->is_dead);
    for (size_t at = 0; (e = judge_next(j, RUN_GPU, &at));)
        if (was_read_to_the_end(j, judge_known(e)->series))
            series_over(judge_known(e)->series, false);
    for (size_t at = 0; (e = judge_next(j, RUN_FIGURE, &at));) {
        /* figures are read rarely, so it is enough that the process lived until the end */
        const struct judge_series *s = judge_series_of(e);
        if (s && began_early(j, s->first_ns) &&
            (!e->is_dead || judge_is_just_now(j, judge_known(e)->exit_ns)))
            series_over(judge_known(e)->series, e->is_dead);
    }
    if (was_read_to_the_end(j, j->whole))
        series_over(j->whole, false);
    if (was_read_to_the_end(j, j->summed))
        series_over(j->summed, false);
}

static bool end_has_text(const json_t *o, const char *key, const char *value)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text && strcmp(text, value) == 0;
}

/* Returns true for a signal that requests termination: a job that received such a signal did not
 * end by itself. */
static bool is_end_signal(const json_t *signal)
{
    json_int_t n = json_integer_value(json_object_get(signal, "signal"));
    return n == SIGTERM || n == SIGINT || n == SIGQUIT || n == SIGHUP || n == SIGKILL;
}

static bool ended_by_itself(const json_t *end)
{
    return end_has_text(end, "kind", "exited") && end_has_text(end, "cause_kind", "finished") &&
           !json_object_get(end, "by");
}

void judge_end(struct judge *j, const json_t *end)
{
    j->has_ended = end_has_text(end, "kind", "exited") || end_has_text(end, "kind", "signalled");
    if (j->run && !j->was_signalled && ended_by_itself(end))
        job_is_over(j);
}

bool judge_is_over(const struct judge *j)
{
    return j->is_over;
}

/* Changes R to the word and confidence of BEFORE, the verdict on an earlier segment. Rates that are
 * unknown in R are copied as well. */
static void adopt_segment(struct verdict_result *r, const struct verdict_result *before,
                          uint32_t segment)
{
    bool by_step = before->rate_bytes_per_step.known;
    const struct verdict_evidence evidence = {
        .code = VERDICT_SAID_SEGMENT,
        .value = {segment, before->word,
                  by_step ? before->rate_bytes_per_step.value : before->rate_bytes_per_min.value,
                  by_step}};
    r->word = before->word;
    r->leak = before->leak;
    r->event = before->event;
    r->confidence = before->confidence;
    r->growth_ended = before->growth_ended;
    r->forecast.known = false;
    if (!r->rate_bytes_per_min.known)
        r->rate_bytes_per_min = before->rate_bytes_per_min;
    if (!r->rate_bytes_per_step.known)
        r->rate_bytes_per_step = before->rate_bytes_per_step;
    verdict_put_evidence_first(r, &evidence);
}

/* A leak in one segment is a leak of the job, unless a segment with more samples shows no leak. Two
 * leaking segments confirm each other. If the last segment is undecided, a longer earlier segment
 * decides. */
void judge_join_segments(struct judge *j)
{
    struct verdict_result *r = &j->tree.result;
    const struct verdict_result *leak = &j->earlier_leak.result, *longest = &j->longest.result;
    if (j->earlier_leak.is_known && r->leak == VERDICT_LEAK_YES)
        r->confidence = fmin(0.99, 1 - (1 - r->confidence) * (1 - leak->confidence));
    else if (j->earlier_leak.is_known &&
             (r->leak == VERDICT_LEAK_UNKNOWN || r->samples < leak->samples))
        adopt_segment(r, leak, j->earlier_leak.segment);
    else if (j->longest.is_known && r->leak == VERDICT_LEAK_UNKNOWN &&
             r->samples < longest->samples)
        adopt_segment(r, longest, j->longest.segment);
    j->tree.of.word = r->word;
    j->tree.of.leak = r->leak;
}

static void drop_forecast(struct verdict_result *r)
{
    r->forecast.has_step = r->forecast.has_t = false;
    r->forecast.known = r->forecast.known && r->forecast.has_ceiling;
}

void judge_drop_forecasts(struct judge *j)
{
    struct run_entity *e;
    if (!j->has_ended)
        return;
    drop_forecast(&j->tree.result);
    for (enum run_kind kind = RUN_PROCESS; kind <= RUN_FIGURE; kind++)
        for (size_t at = 0; (e = judge_next(j, kind, &at));)
            if (judge_known(e)->series)
                drop_forecast(&judge_known(e)->series->result);
}

void judge_note(struct judge *j, const char *kind, const char *text, size_t len)
{
    bool is_end = strcmp(kind, "end") == 0;
    if (!is_end && strcmp(kind, "signal") != 0)
        return;
    json_t *doc = json_parse(text, len, NULL);
    if (is_end)
        judge_end(j, doc);
    else
        j->was_signalled = j->was_signalled || is_end_signal(doc);
    json_decref(doc);
}
