/* How the job ended: if it did so by itself, no more evidence will come, and the verdicts that
 * waited for some are given without. */
#include "judge/judge_private.h"

#include <signal.h>
#include <string.h>

#include "base/json.h"

/* A series of a dead process is judged once, at its death; now more is known. */
static void series_over(struct judge_series *s, bool is_dead)
{
    if (!s)
        return;
    verdict_job_over(&s->series);
    if (is_dead && s->is_judged)
        judge_series_judge(s, &s->limit);
}

/* Did it begin in the first half of the job? What a helper did for a while says nothing about how
 * the job would have gone on. */
static bool came_early(const struct judge *j, uint64_t first_ns)
{
    return first_ns <= j->begun_ns + (j->run->tick_ns - j->begun_ns) / 2;
}

/* The series of the whole job may rest, a GPU may be released. */
static bool was_read_to_the_end(const struct judge *j, const struct judge_series *s)
{
    return s && s->has_first && came_early(j, s->first_ns) && judge_is_just_now(j, s->last_ns);
}

static void job_is_over(struct judge *j)
{
    struct run_entity *e;
    j->is_over = true;
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));)
        if (came_early(j, e->execed_ns) && (!e->is_dead || judge_is_just_now(j, e->died_ns)))
            series_over(judge_known(e)->series, e->is_dead);
    for (size_t at = 0; (e = judge_next(j, RUN_GPU, &at));)
        if (was_read_to_the_end(j, judge_known(e)->series))
            series_over(judge_known(e)->series, false);
    for (size_t at = 0; (e = judge_next(j, RUN_FIGURE, &at));) {
        /* read more rarely: what counts is that its process was there until the end */
        const struct judge_series *s = judge_series_of(e);
        if (s && came_early(j, s->first_ns) &&
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

/* Signals that ask a job to end; one that was sent it did not end by itself. */
static bool is_end_signal(const json_t *signal)
{
    json_int_t n = json_integer_value(json_object_get(signal, "signal"));
    return n == SIGTERM || n == SIGINT || n == SIGQUIT || n == SIGHUP || n == SIGKILL;
}

static bool is_by_itself(const json_t *end)
{
    return end_has_text(end, "kind", "exited") && end_has_text(end, "cause_kind", "finished") &&
           !json_object_get(end, "by");
}

void judge_end(struct judge *j, const json_t *end)
{
    j->has_ended = end_has_text(end, "kind", "exited") || end_has_text(end, "kind", "signalled");
    if (j->run && !j->was_signalled && is_by_itself(end))
        job_is_over(j);
}

static void forget_in(struct verdict_result *r)
{
    r->forecast.has_step = r->forecast.has_t = false;
    r->forecast.known = r->forecast.known && r->forecast.has_ceiling;
}

void judge_forget_when(struct judge *j)
{
    struct run_entity *e;
    if (!j->has_ended)
        return;
    forget_in(&j->tree.result);
    for (enum run_kind kind = RUN_PROCESS; kind <= RUN_FIGURE; kind++)
        for (size_t at = 0; (e = judge_next(j, kind, &at));)
            if (judge_known(e)->series)
                forget_in(&judge_known(e)->series->result);
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
