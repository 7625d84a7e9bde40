/* How the job ended: if it did so by itself, no more evidence will come, and the verdicts that
 * waited for some are given without. */
#include "judge/judge_private.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"

/* A series of somebody who has gone is judged once, then; now there is more to say. */
static void seat_over(struct judge_series *s, bool is_gone)
{
    if (!s)
        return;
    verdict_job_over(&s->series);
    if (is_gone && s->is_judged)
        judge_series_judge(s, &s->limit);
}

/* Was what began at FIRST_NS there for most of the job? What a helper did for a while says nothing
 * about how the job would have gone on. */
static bool came_early(const struct judge *j, uint64_t first_ns)
{
    return first_ns <= j->begun_ns + (j->tick_ns - j->begun_ns) / 2;
}

/* And to its end? */
static bool saw_it_all(const struct judge *j, const struct judge_process *p)
{
    return came_early(j, p->born_ns) && judge_just_went(j, p);
}

/* The same of a series of the whole job, which may rest, or of a GPU, which may be let go. */
static bool was_read_to_the_end(const struct judge *j, const struct judge_series *s)
{
    return s && s->has_first && came_early(j, s->first_ns) && judge_is_just_now(j, s->last_ns);
}

/* A figure is read more rarely: there until the end is who sends it. */
static bool was_told_to_the_end(const struct judge *j, const struct judge_figure *s)
{
    return s->seat && s->seat->has_first && came_early(j, s->seat->first_ns) &&
           (!s->is_gone || judge_is_just_now(j, s->gone_ns));
}

static void job_is_over(struct judge *j)
{
    j->is_over = true;
    for (size_t i = 0; i < j->count; i++)
        if (saw_it_all(j, j->living[i]))
            seat_over(j->living[i]->seat, false);
    for (size_t i = 0; i < j->gone_count; i++)
        if (saw_it_all(j, j->gone[i]))
            seat_over(j->gone[i]->seat, true);
    for (size_t i = 0; i < JUDGE_GPUS; i++)
        if (was_read_to_the_end(j, j->gpu[i].seat))
            seat_over(j->gpu[i].seat, false);
    for (size_t i = 0; i < JUDGE_FIGURES; i++)
        if (was_told_to_the_end(j, &j->series[i]))
            seat_over(j->series[i].seat, j->series[i].is_gone);
    if (was_read_to_the_end(j, j->whole))
        seat_over(j->whole, false);
    if (was_read_to_the_end(j, j->apart))
        seat_over(j->apart, false);
}

static bool says(const json_t *o, const char *key, const char *value)
{
    const char *said = json_string_value(json_object_get(o, key));
    return said && strcmp(said, value) == 0;
}

/* Signals that ask a job to end; one that was sent it did not end by itself. */
static bool is_end_signal(const json_t *signal)
{
    json_int_t n = json_integer_value(json_object_get(signal, "signal"));
    return n == SIGTERM || n == SIGINT || n == SIGQUIT || n == SIGHUP || n == SIGKILL;
}

static bool is_by_itself(const json_t *end)
{
    return says(end, "kind", "exited") && says(end, "cause_kind", "finished") &&
           !json_object_get(end, "by");
}

void judge_end(struct judge *j, const json_t *end)
{
    j->has_ended = says(end, "kind", "exited") || says(end, "kind", "signalled");
    if (!j->was_signalled && is_by_itself(end))
        job_is_over(j);
}

static void forget_in(struct verdict_result *r)
{
    r->forecast.has_step = r->forecast.has_t = false;
    r->forecast.known = r->forecast.known && r->forecast.has_ceiling;
}

void judge_forget_when(struct judge *j)
{
    if (!j->has_ended)
        return;
    forget_in(&j->tree.result);
    for (size_t i = 0; i < j->listed_count; i++)
        forget_in(&j->listed[i]->seat->result);
    for (size_t i = 0; i < JUDGE_GPUS; i++)
        if (j->gpu[i].seat)
            forget_in(&j->gpu[i].seat->result);
    for (size_t i = 0; i < JUDGE_FIGURES; i++)
        if (j->series[i].seat)
            forget_in(&j->series[i].seat->result);
}

void judge_note(struct judge *j, const char *kind, const char *text, size_t len)
{
    bool is_end = strcmp(kind, "end") == 0;
    if (strcmp(kind, "segment") == 0)
        judge_segment(j);
    if (!is_end && strcmp(kind, "signal") != 0)
        return;
    struct err err = {{0}};
    json_t *doc = json_parse(text, len, &err);
    if (is_end)
        judge_end(j, doc);
    else
        j->was_signalled = j->was_signalled || is_end_signal(doc);
    json_decref(doc);
}
