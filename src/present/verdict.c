/* Verdicts in words: a headline, its evidence, a table of processes. */
#include "present/verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "judge/verdicts.h"
#include "present/cells.h"

enum { SUMMARY_REASONS = 2, NAME_COLUMNS = 40, LABEL_MOST = 48 };
enum { ROWS_MAX = 16, WHO_COLUMNS = 20, WHO_NAME_COLUMNS = 20 };

enum doc_tone verdict_tone(const struct verdict_result *r)
{
    static const enum doc_tone tones[] = {[VERDICT_LEAK_UNKNOWN] = TONE_OPEN,
                                          [VERDICT_LEAK_NO] = TONE_GOOD,
                                          [VERDICT_LEAK_YES] = TONE_BAD};
    return tones[r->leak];
}

static char *signed_size(char out[TEXT_SIZE_MAX], double bytes)
{
    return text_size_signed(out, fabs(bytes) < 9e18 ? number_to_i64(bytes) : 0);
}

static char *whole_size(char out[TEXT_SIZE_MAX], double bytes)
{
    return text_size(out, number_to_u64(bytes + 0.5));
}

/* ---- the headline ---- */

static void add_grower(struct buf *out, const struct judged *g, bool is_one)
{
    char digits[24] = "";
    if (g->has_pid)
        snprintf(digits, sizeof digits, "%d", (int)g->pid);
    buf_printf(out, "%s%s%s", is_one ? "process" : "", is_one && g->has_pid ? " " : "", digits);
    if (g->name && strcmp(g->name, digits) != 0)
        buf_printf(out, "%s%s", is_one || g->has_pid ? " " : "", g->name);
    if (g->has_role)
        buf_printf(out, " (%s)", process_role_name(g->role));
}

/* "process 606 python (main)" for the one that grows, "2 processes, first of them 606 python
 * (main)," where rates are of them all, else "memory"; a figure of the job's own has been named
 * before. Returns whether they are many. */
static bool add_subject(struct buf *out, const struct judged *one, const struct verdicts *of)
{
    bool is_many = of && of->has_grower && of->growing > 1;
    if (!of || !of->has_grower) {
        buf_add_str(out, one->label ? "it" : "memory");
        return false;
    }
    if (is_many)
        buf_printf(out, "%llu processes, first of them ", (unsigned long long)of->growing);
    add_grower(out, &of->grower, !is_many);
    if (is_many)
        buf_add_byte(out, ',');
    return is_many;
}

/* "+98.0 MiB a step (+96.1 MiB to +99.9 MiB)"; an interval that is one figure tells nothing. */
static void add_rate(struct buf *out, const char *before, const struct verdict_interval *rate,
                     const char *unit)
{
    char value[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    if (!rate->known)
        return;
    buf_printf(out, "%s%s a %s", before, signed_size(value, rate->value), unit);
    signed_size(low, rate->low);
    signed_size(high, rate->high);
    if (isfinite(rate->low) && isfinite(rate->high) &&
        (strcmp(low, value) != 0 || strcmp(high, value) != 0))
        buf_printf(out, " (%s to %s)", low, high);
}

static void add_rates(struct buf *out, const struct verdict_result *r)
{
    add_rate(out, ", by ", &r->rate_bytes_per_step, "step");
    add_rate(out, r->rate_bytes_per_step.known ? ", " : ", by ", &r->rate_bytes_per_min, "minute");
}

/* "in 12 min 04 s to 15 min 10 s", "in 110 steps to 130 steps"; one where both read the same, and
 * the far end may be out of sight. */
static void add_when(struct buf *out, double low, double high, bool by_step)
{
    char a[TEXT_TIME_MAX], b[TEXT_TIME_MAX];
    if (by_step) {
        snprintf(a, sizeof a, "%.0f steps", low);
        snprintf(b, sizeof b, "%.0f steps", high);
    } else {
        text_seconds(a, low);
        text_seconds(b, high);
    }
    buf_printf(out, " in %s", a);
    if (!isfinite(high))
        buf_add_str(out, " at the earliest");
    else if (strcmp(a, b) != 0)
        buf_printf(out, " to %s", b);
}

static void add_oom(struct buf *out, const struct verdict_result *r, const char *before)
{
    char size[TEXT_SIZE_MAX];
    if (!r->oom.known || (!r->oom.has_t && !r->oom.has_step))
        return;
    buf_printf(out, "%s the limit of %s is reached", before, whole_size(size, r->oom.limit_bytes));
    if (r->oom.has_t)
        add_when(out, r->oom.eta_s_low, r->oom.eta_s_high, false);
    else
        add_when(out, r->oom.eta_step_low, r->oom.eta_step_high, true);
}

static void add_ended(struct buf *out, const struct verdict_result *r)
{
    char time[TEXT_TIME_MAX];
    enum verdict_boundary at = r->growth_ended.at;
    buf_add_str(out, " and stopped");
    if (r->growth_ended.has_step)
        buf_printf(out, " at step %llu", (unsigned long long)r->growth_ended.step);
    else if (r->growth_ended.has_t)
        buf_printf(out, " after %s", text_seconds(time, r->growth_ended.t_s));
    if (at != VERDICT_AT_NONE && at != VERDICT_AT_STEP)
        buf_printf(out, ", %s", verdict_boundary_name(at));
}

static void add_forecast(struct buf *out, const struct verdict_result *r)
{
    char size[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    if (r->forecast.has_ceiling)
        buf_printf(out, "; if it is a cache it ends near %s",
                   whole_size(size, r->forecast.ceiling_bytes));
    if (r->forecast.has_step)
        buf_printf(out, "; it will be known at step %llu",
                   (unsigned long long)r->forecast.decided_at_step);
    else if (r->forecast.has_t)
        buf_printf(out, "; it will be known after %s",
                   text_seconds(time, r->forecast.decided_at_s));
}

static const char *event_name(enum verdict_mark_kind event)
{
    return event == VERDICT_MARK_EVAL   ? "evaluation"
           : event == VERDICT_MARK_SAVE ? "checkpoint"
                                        : verdict_mark_name(event);
}

void verdict_headline(struct buf *out, const struct judged *one, const struct verdicts *of)
{
    char first[TEXT_SIZE_MAX], last[TEXT_SIZE_MAX], peak[TEXT_SIZE_MAX];
    const struct verdict_result *r = &one->result;
    if (r->word == VERDICT_UNDECIDED) {
        buf_printf(out, "not enough to say%s%s", one->n_reasons ? ": " : "",
                   one->n_reasons ? one->reasons[0] : "");
        add_forecast(out, r);
        return;
    }
    bool is_many = add_subject(out, one, of);
    whole_size(first, r->floor_first_bytes);
    whole_size(last, r->floor_last_bytes);
    switch (r->word) {
    case VERDICT_STABLE:
        buf_printf(out, " is flat at%s%s", r->has_floor ? " " : "", r->has_floor ? last : "");
        break;
    case VERDICT_SPIKING:
        buf_printf(out, " peaks at %s and comes back to%s%s",
                   r->samples ? whole_size(peak, r->peak_bytes) : "times", r->has_floor ? " " : "",
                   r->has_floor ? last : "");
        break;
    case VERDICT_PLATEAUED:
        buf_add_str(out, " grew");
        /* a process can have grown by what the whole job does not show */
        if (r->has_floor && strcmp(first, last) != 0)
            buf_printf(out, " from %s to %s", first, last);
        add_ended(out, r);
        break;
    case VERDICT_FILLING:
        buf_printf(out, " grow%s within the first pass over the data", is_many ? "" : "s");
        add_rates(out, r);
        add_forecast(out, r);
        add_oom(out, r, "; if it is a leak,");
        break;
    case VERDICT_STEPPING:
        buf_printf(out, is_many ? " rise at each %s and stay" : " rises at each %s and stays",
                   event_name(r->event));
        add_rates(out, r);
        add_oom(out, r, ";");
        break;
    default:
        buf_printf(out, " keep%s growing", is_many ? "" : "s");
        add_rates(out, r);
        add_oom(out, r, ";");
    }
    if (r->confidence > 0)
        buf_printf(out, " (confidence %.0f %%)", 100 * r->confidence);
}

void verdict_brief(struct buf *out, const struct verdicts *v)
{
    char rate[CELL_MAX];
    const struct verdict_result *r = &v->job.result;
    buf_add_str(out, verdict_word_name(r->word));
    if (!v->has_grower)
        return;
    if (r->rate_bytes_per_min.known)
        buf_printf(out, " %s", cell_rate_text(rate, r->rate_bytes_per_min.value));
    if (v->grower.has_pid)
        buf_printf(out, ", %d ", (int)v->grower.pid);
    buf_add_str(out, v->grower.name ? v->grower.name : "");
    if (r->oom.has_t) {
        buf_add_str(out, ", limit reached");
        add_when(out, r->oom.eta_s_low, r->oom.eta_s_high, false);
    }
}

/* ---- laying out ---- */

/* An undecided one has said its first reason in the headline. */
static void verdict_put_reasons(struct doc *d, const struct judged *one, size_t max)
{
    size_t skip = one->result.word == VERDICT_UNDECIDED;
    for (size_t i = skip; i < one->n_reasons && i < skip + max; i++) {
        doc_point(d, POINT_PLAIN);
        doc_text(d, TONE_PLAIN, one->reasons[i]);
    }
}

static void verdict_put_headline(struct doc *d, const char *label, const struct judged *one,
                                 const struct verdicts *of, size_t reasons)
{
    struct buf text = {0};
    verdict_headline(&text, one, of);
    doc_fact(d, label);
    if (one->label) { /* a figure of the job's own */
        doc_name(d, TONE_PLAIN, one->label, strlen(one->label), LABEL_MOST);
        if (one->has_pid)
            doc_textf(d, TONE_PLAIN, " of process %d", (int)one->pid);
        doc_text(d, TONE_PLAIN, ": ");
    }
    doc_text(d, verdict_tone(&one->result), verdict_word_name(one->result.word));
    doc_textf(d, TONE_PLAIN, ": %s", buf_str(&text));
    buf_fini(&text);
    verdict_put_reasons(d, one, reasons);
}

/* "of segment 2 alone; segment 0 was leaking, by +4.00 MiB a step": a job that was started again is
 * judged anew. */
static void verdict_put_segment(struct doc *d, const struct verdicts *v)
{
    struct buf text = {0};
    if (!v->segment)
        return;
    if (v->has_earlier_leak) {
        buf_printf(&text, "; segment %u was %s", v->earlier_segment,
                   verdict_word_name(v->earlier_leak.word));
        add_rates(&text, &v->earlier_leak);
    }
    doc_point(d, POINT_PLAIN);
    doc_textf(d, TONE_PLAIN, "of segment %u alone%s", v->segment, buf_str(&text));
    buf_fini(&text);
}

/* "20 compile workers are flat: 9.10 GiB resident in all, 1.20 GiB of it shared with nobody" */
static void verdict_put_costs(struct doc *d, const struct verdicts *v)
{
    char size[TEXT_SIZE_MAX];
    bool is_first = true;
    for (size_t i = 0; i < v->n_flat; i++) {
        const struct verdict_cost *c = &v->flat[i];
        bool is_one = c->count == 1, is_other = c->role == ROLE_OTHER;
        if (c->role == ROLE_MAIN || !c->count) /* the job itself is no overhead */
            continue;
        doc_fact(d, is_first ? "overhead" : "");
        doc_textf(d, TONE_PLAIN, "%zu %s%s %s flat: %s resident%s", c->count,
                  is_other ? "process" : process_role_name((enum process_role)c->role),
                  is_one     ? ""
                  : is_other ? "es"
                             : "s",
                  is_one ? "is" : "are", whole_size(size, c->rss_bytes), is_one ? "" : " in all");
        if (c->unique_known)
            doc_textf(d, TONE_PLAIN, ", %s of it shared with nobody",
                      whole_size(size, c->unique_bytes));
        is_first = false;
    }
}

/* ---- the table of processes ---- */

/* "606 python (data worker) gone"; of a job that is over all are GONE. */
static void verdict_put_who(struct doc *d, const struct judged *p, bool shows_gone)
{
    const char *name = p->name ? p->name : "";
    doc_cell(d, TONE_PLAIN, "");
    if (p->has_pid && strtol(name, NULL, 10) != p->pid)
        doc_textf(d, TONE_PLAIN, "%d ", (int)p->pid);
    doc_name(d, TONE_PLAIN, name, strlen(name), WHO_NAME_COLUMNS);
    if (p->has_role && p->role != ROLE_OTHER)
        doc_textf(d, TONE_PLAIN, " (%s)", process_role_name(p->role));
    if (shows_gone && !p->alive)
        doc_text(d, TONE_PLAIN, " gone");
}

static void verdict_put_process(struct doc *d, const struct judged *p, bool shows_gone)
{
    char first[CELL_MAX], last[CELL_MAX];
    const struct verdict_result *r = &p->result;
    bool by_min = r->rate_bytes_per_min.known;
    const struct verdict_interval *rate = by_min ? &r->rate_bytes_per_min : &r->rate_bytes_per_step;
    doc_row(d);
    doc_cell(d, verdict_tone(r), verdict_word_name(r->word));
    doc_cellf(d, TONE_PLAIN, r->confidence > 0 ? "%.0f %%" : "–", 100 * r->confidence);
    doc_cellf(d, TONE_PLAIN, "%s%s", cell_rate(first, rate->known, rate->value),
              !rate->known ? ""
              : by_min     ? "/min"
                           : "/step");
    doc_cellf(d, TONE_PLAIN, "%s → %s",
              cell_known(first, r->has_floor, number_to_u64(r->floor_first_bytes)),
              cell_known(last, r->has_floor, number_to_u64(r->floor_last_bytes)));
    doc_cell(d, TONE_PLAIN, cell_known(first, r->samples, number_to_u64(r->peak_bytes)));
    verdict_put_who(d, p, shows_gone);
}

static void verdict_put_processes(struct doc *d, const struct verdicts *v)
{
    static const struct doc_column columns[] = {
        {.title = "VERDICT", .priority = 1}, {.title = "SURE", .priority = 5},
        {.title = "RATE", .priority = 2},    {.title = "FLOOR", .priority = 3},
        {.title = "PEAK", .priority = 4},    {.title = "WHO", .least = WHO_COLUMNS},
    };
    const struct judged_list *list = &v->processes;
    bool shows_gone = false;
    if (list->count > 1) {
        doc_space(d);
        doc_table(d, NULL, "processes", columns, sizeof columns / sizeof *columns);
        for (size_t i = 0; i < list->count; i++)
            shows_gone |= list->at[i].alive;
        for (size_t i = 0; i < list->count && i < ROWS_MAX; i++)
            verdict_put_process(d, &list->at[i], shows_gone);
    }
    if (list->count > ROWS_MAX) {
        doc_para(d, TONE_DIM);
        doc_textf(d, TONE_DIM, "and %zu smaller", list->count - ROWS_MAX);
    }
    if (v->not_judged) {
        doc_para(d, TONE_DIM);
        doc_textf(d, TONE_DIM, "%llu more %s too short or too small to list",
                  (unsigned long long)v->not_judged, v->not_judged == 1 ? "was" : "were");
    }
}

void verdict_doc(struct doc *d, const struct verdicts *v)
{
    char label[24];
    if (v->has_job || v->is_series) {
        struct buf text = {0};
        verdict_headline(&text, &v->job, v->is_series ? NULL : v);
        doc_toned_fact(d, verdict_tone(&v->job.result), verdict_word_name(v->job.result.word));
        doc_text(d, TONE_PLAIN, buf_str(&text));
        buf_fini(&text);
        verdict_put_reasons(d, &v->job, SIZE_MAX / 2);
        verdict_put_segment(d, v);
    } else if (!v->processes.count) {
        doc_fact(d, "undecided");
        doc_text(d, TONE_PLAIN, "there are no readings");
    }
    verdict_put_costs(d, v);
    for (size_t i = 0; i < v->gpus.count; i++) {
        snprintf(label, sizeof label, "gpu %u", v->gpus.at[i].gpu);
        verdict_put_headline(d, label, &v->gpus.at[i], NULL, SUMMARY_REASONS);
    }
    for (size_t i = 0; i < v->figures.count; i++)
        verdict_put_headline(d, "series", &v->figures.at[i], NULL, SUMMARY_REASONS);
    verdict_put_processes(d, v);
}

void verdict_summary(struct doc *d, const struct verdicts *v)
{
    if (!v->has_job)
        return;
    verdict_put_headline(d, "verdict", &v->job, v, SUMMARY_REASONS);
    verdict_put_segment(d, v);
    for (size_t i = 0; i < v->gpus.count; i++) {
        const struct verdict_result *r = &v->gpus.at[i].result;
        if (r->leak != VERDICT_LEAK_NO && r->word != VERDICT_UNDECIDED)
            verdict_put_headline(d, "gpu memory", &v->gpus.at[i], NULL, 0);
    }
    for (size_t i = 0; i < v->figures.count; i++)
        if (v->figures.at[i].result.leak == VERDICT_LEAK_YES)
            verdict_put_headline(d, "series", &v->figures.at[i], NULL, 0);
}
