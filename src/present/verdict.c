/* Renders verdicts: a headline, its evidence, a table of processes. */
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

/* ---- the headline ---- */

static void add_grower(struct buf *out, const struct verdicts *of)
{
    const struct judged *g = &of->grower;
    char digits[24] = "";
    if (g->has_pid)
        snprintf(digits, sizeof digits, "%d", (int)g->pid);
    if (of->growing > 1)
        buf_printf(out, " in %llu processes, fastest in", (unsigned long long)of->growing);
    else
        buf_add_str(out, " in process");
    buf_printf(out, "%s%s", digits[0] ? " " : "", digits);
    if (g->name && strcmp(g->name, digits) != 0)
        buf_printf(out, " %s", g->name);
    if (g->has_role)
        buf_printf(out, " (%s)", process_role_name(g->role));
}

/* Appends a rate such as "+9.0 MiB/step", or per minute if steps are unknown. */
static void add_rate(struct buf *out, const struct verdict_result *r)
{
    char size[TEXT_SIZE_MAX];
    bool by_step = r->rate_bytes_per_step.known;
    const struct verdict_interval *rate =
        by_step ? &r->rate_bytes_per_step : &r->rate_bytes_per_min;
    if (rate->known)
        buf_printf(out, "%s%s/%s", rate->value < 0 ? "-" : "+",
                   text_about_size(size, fabs(rate->value)), by_step ? "step" : "min");
    else
        buf_add_str(out, "keeps growing");
}

static double two_digits(double x)
{
    double unit = x >= 100 ? pow(10, floor(log10(x)) - 1) : 1;
    return round(x / unit) * unit;
}

/* Appends the time until memory runs out, such as "in about 7 min" or "in about 150 steps". The
 * time fits the growth rate in the same text: its lower bound belongs to the upper bound of the
 * rate, so it is scaled to the printed rate. */
static void add_when(struct buf *out, const struct verdict_result *r)
{
    char time[TEXT_TIME_MAX];
    bool by_time = r->oom.has_t;
    double low = by_time ? r->oom.eta_s_low : r->oom.eta_step_low;
    double high = by_time ? r->oom.eta_s_high : r->oom.eta_step_high;
    const struct verdict_interval *rate =
        by_time ? &r->rate_bytes_per_min : &r->rate_bytes_per_step;
    bool has_rate = rate->known && rate->value > 0, is_known = has_rate || isfinite(high);
    double about = has_rate   ? fmin(low * fmax(1, rate->high / rate->value), high)
                   : low <= 0 ? 0
                   : is_known ? 2 / (1 / low + 1 / high)
                              : low;
    buf_add_str(out, is_known ? " in about " : " in ");
    if (by_time)
        buf_add_str(out, text_about_time(time, about));
    else
        buf_printf(out, "%.0f steps", two_digits(about));
    if (!is_known)
        buf_add_str(out, " at the earliest");
}

static bool has_oom(const struct verdict_result *r)
{
    return r->oom.known && (r->oom.has_t || r->oom.has_step);
}

static void add_decided_at(struct buf *out, const struct verdict_result *r)
{
    char time[TEXT_TIME_MAX];
    if (r->forecast.has_step)
        buf_printf(out, "; will be known at step %llu",
                   (unsigned long long)r->forecast.decided_at_step);
    else if (r->forecast.has_t)
        buf_printf(out, "; will be known after %s",
                   text_about_time(time, r->forecast.decided_at_s));
}

static void add_filling(struct buf *out, const struct verdict_result *r)
{
    char size[TEXT_SIZE_MAX];
    if (r->forecast.has_ceiling)
        buf_printf(out, "; %s near %s",
                   r->forecast.is_limited ? "growth ends" : "a cache would level off",
                   text_about_size(size, r->forecast.ceiling_bytes));
    if (r->forecast.is_limited)
        return;
    if (has_oom(r)) {
        buf_printf(out, "%s a leak would run out of memory", r->forecast.has_ceiling ? "," : ";");
        add_when(out, r);
    }
    add_decided_at(out, r);
}

static void add_flat(struct buf *out, const struct verdict_result *r)
{
    char size[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    enum verdict_boundary at = r->growth_ended.at;
    if (r->has_floor)
        buf_printf(out, " at %s", text_about_size(size, r->floor_last_bytes));

    if (r->word == VERDICT_PLATEAUED && r->growth_ended.has_step)
        buf_printf(out, " since step %llu", (unsigned long long)r->growth_ended.step);
    else if (r->word == VERDICT_PLATEAUED && r->growth_ended.has_t)
        buf_printf(out, " after %s", text_about_time(time, r->growth_ended.t_s));
    if (r->word == VERDICT_PLATEAUED && at != VERDICT_AT_NONE && at != VERDICT_AT_STEP)
        buf_printf(out, " (%s)", verdict_boundary_name(at));
    if (r->samples && r->peak_bytes > 1.05 * r->floor_last_bytes)
        buf_printf(out, ", peak %s", text_about_size(size, r->peak_bytes));
}

/* For a verdict of no leak, appends the detection limit, such as "< 10 KiB/step, ": slower growth
 * cannot be excluded. */
static void add_detectable(struct buf *out, const struct verdict_result *r)
{
    char size[TEXT_SIZE_MAX];
    if (r->detectable_per_step > 0)
        buf_printf(out, "< %s/step, ", text_about_size(size, r->detectable_per_step));
    else if (r->detectable_per_min > 0)
        buf_printf(out, "< %s/min, ", text_about_size(size, r->detectable_per_min));
}

static const char *event_name(enum verdict_mark_kind event)
{
    return event == VERDICT_MARK_EVAL   ? "evaluation"
           : event == VERDICT_MARK_SAVE ? "checkpoint"
                                        : verdict_mark_name(event);
}

bool verdict_is_gpu(const struct judged *one, const struct verdicts *of)
{
    return of && of->gpus.count && one >= of->gpus.at && one < of->gpus.at + of->gpus.count;
}

size_t verdict_headline(struct buf *out, const struct judged *one, const struct verdicts *of,
                        bool forecasts)
{
    const struct verdict_result *r = &one->result;
    size_t from = out->len;
    bool names_grower = of && one == &of->job && of->has_grower && of->processes.count > 1;
    buf_add_str(out, r->leak == VERDICT_LEAK_NO ? "no leak" : verdict_word_name(r->word));
    if (verdict_is_gpu(one, of))
        buf_printf(out, " on gpu %u", one->gpu);
    if (one->where)
        buf_printf(out, " %s %s", verdict_is_gpu(one, of) ? "of" : "in", one->where);
    size_t toned = out->len - from;
    buf_add_str(out, ": ");
    switch (r->word) {
    case VERDICT_UNDECIDED:
        buf_add_str(out, one->n_reasons ? one->reasons[0] : "too few samples");
        add_decided_at(out, r);
        return toned;
    case VERDICT_STABLE:
    case VERDICT_SPIKING:
    case VERDICT_PLATEAUED:
        buf_add_str(out, verdict_word_name(r->word));
        add_flat(out, r);
        break;
    default:
        add_rate(out, r);
        if (r->word == VERDICT_STEPPING)
            buf_printf(out, ", growing at each %s", event_name(r->event));
        if (r->word == VERDICT_FILLING)
            buf_add_str(out, r->forecast.is_limited ? " until a container is full"
                                                    : " in the first epoch");
        if (names_grower)
            add_grower(out, of);
        if (r->word == VERDICT_FILLING) {
            add_filling(out, r);
        } else if (forecasts && has_oom(r)) {
            buf_add_str(out, ", out of memory");
            add_when(out, r);
        }
    }
    if (r->confidence > 0) {
        buf_add_str(out, " (");
        if (r->leak == VERDICT_LEAK_NO && r->has_floor)
            add_detectable(out, r);
        buf_printf(out, "%.0f %% confident)", 100 * r->confidence);
    }
    return toned;
}

void verdict_put_headline(struct doc *d, const struct judged *one, const struct verdicts *of,
                          bool forecasts)
{
    struct buf text = {0};
    size_t toned = verdict_headline(&text, one, of, forecasts);
    if (!text.failed)
        doc_name(d, verdict_tone(&one->result), text.data, toned, 0);
    doc_text(d, TONE_PLAIN, buf_str(&text) + toned);
    buf_fini(&text);
}

/* Returns a larger number for a worse verdict. If two verdicts have the same word, the verdict with
 * a growth rate is worse. */
static unsigned badness(const struct judged *one)
{
    static const unsigned of_word[VERDICT_WORDS] = {
        [VERDICT_STABLE] = 0,    [VERDICT_SPIKING] = 1, [VERDICT_PLATEAUED] = 2,
        [VERDICT_UNDECIDED] = 3, [VERDICT_FILLING] = 4, [VERDICT_STEPPING] = 5,
        [VERDICT_LEAKING] = 5};
    const struct verdict_result *r = &one->result;
    return 2 * of_word[r->word] + (r->rate_bytes_per_step.known || r->rate_bytes_per_min.known);
}

const struct judged *verdict_worst(const struct verdicts *v)
{
    if (!v)
        return NULL;
    const struct judged *worst = v->has_job || v->is_series ? &v->job : NULL;
    for (size_t i = 0; i < v->gpus.count; i++)
        if (!worst || badness(&v->gpus.at[i]) / 2 > badness(worst) / 2 ||
            (badness(worst) >= 8 && badness(&v->gpus.at[i]) > badness(worst)))
            worst = &v->gpus.at[i];
    for (size_t i = 0; !v->has_job && !v->is_series && i < v->processes.count; i++)
        if (!worst || badness(&v->processes.at[i]) / 2 > badness(worst) / 2)
            worst = &v->processes.at[i];
    return worst;
}

void verdict_brief(struct buf *out, const struct verdicts *v)
{
    const struct judged *worst = verdict_worst(v);
    if (!worst)
        return;
    const struct verdict_result *r = &worst->result;
    buf_add_str(out, verdict_word_name(r->word));
    if (verdict_is_gpu(worst, v))
        buf_printf(out, " on gpu %u", worst->gpu);
    if (r->leak == VERDICT_LEAK_NO || r->word == VERDICT_UNDECIDED)
        return;
    buf_add_byte(out, ' ');
    add_rate(out, r);
    if (worst == &v->job && v->has_grower && v->processes.count > 1)
        add_grower(out, v);
    if (has_oom(r)) {
        buf_add_str(out, ", out of memory");
        add_when(out, r);
    }
}

/* ---- rendering ---- */

/* Adds the evidence. The first reason of an undecided verdict is already in its headline. */
static void verdict_put_reasons(struct doc *d, const struct judged *one, size_t max)
{
    size_t skip = one->result.word == VERDICT_UNDECIDED;
    for (size_t i = skip; i < one->n_reasons && i < skip + max; i++) {
        doc_point(d, POINT_PLAIN);
        doc_text(d, TONE_PLAIN, one->reasons[i]);
    }
}

static void verdict_put_fact(struct doc *d, const char *label, const struct judged *one,
                             size_t reasons)
{
    doc_fact(d, label);
    if (one->label) { /* the verdict is on a metric that the job reports */
        doc_name(d, TONE_PLAIN, one->label, strlen(one->label), LABEL_MOST);
        if (one->has_pid)
            doc_textf(d, TONE_PLAIN, " of process %d", (int)one->pid);
        doc_text(d, TONE_PLAIN, ": ");
    }
    verdict_put_headline(d, one, NULL, true);
    verdict_put_reasons(d, one, reasons);
}

/* Adds, for example, "measured in segment 2; segment 0 was leaking, +4.0 MiB/step". Each segment of
 * a restarted job has its own baseline and rates. */
static void verdict_put_segment(struct doc *d, const struct verdicts *v)
{
    struct buf text = {0};
    if (!v->segment)
        return;
    if (v->has_earlier_leak) {
        buf_printf(&text, "; segment %u was %s, ", v->earlier_segment,
                   verdict_word_name(v->earlier_leak.word));
        add_rate(&text, &v->earlier_leak);
    }
    doc_point(d, POINT_PLAIN);
    doc_textf(d, TONE_PLAIN, "measured in segment %u%s", v->segment, buf_str(&text));
    buf_fini(&text);
}

/* Adds, for example, "20 compile workers are flat: 9.10 GiB resident in all, 1.20 GiB of it
 * unshared". */
static void verdict_put_costs(struct doc *d, const struct verdicts *v)
{
    char size[TEXT_SIZE_MAX];
    bool is_first = true;
    for (size_t i = 0; i < v->n_flat; i++) {
        const struct verdict_cost *c = &v->flat[i];
        bool is_one = c->count == 1, is_other = c->role == ROLE_OTHER;
        /* the main process is the job itself and not overhead */
        if (c->role == ROLE_MAIN || !c->count)
            continue;
        doc_fact(d, is_first ? "overhead" : "");
        doc_textf(d, TONE_PLAIN, "%zu %s%s %s flat: %s resident%s", c->count,
                  is_other ? "process" : process_role_name((enum process_role)c->role),
                  is_one     ? ""
                  : is_other ? "es"
                             : "s",
                  is_one ? "is" : "are", text_size(size, number_to_u64(c->rss_bytes)),
                  is_one ? "" : " in all");
        if (c->unique_known)
            doc_textf(d, TONE_PLAIN, ", %s of it unshared",
                      text_size(size, number_to_u64(c->unique_bytes)));
        is_first = false;
    }
}

/* ---- the table of processes ---- */

/* Adds, for example, "606 python (data worker) gone". After the end of a job all processes are
 * gone, so the word "gone" is omitted. */
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
        {.title = "VERDICT", .priority = 1}, {.title = "CONFIDENT", .priority = 5},
        {.title = "RATE", .priority = 2},    {.title = "BASELINE", .priority = 3},
        {.title = "PEAK", .priority = 4},    {.title = "PROCESS", .least = WHO_COLUMNS},
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
        doc_textf(d, TONE_DIM, "not listed: %llu more process%s, too short-lived or too small",
                  (unsigned long long)v->not_judged, v->not_judged == 1 ? "" : "es");
    }
}

void verdict_details(struct doc *d, const struct verdicts *v, bool is_brief)
{
    char label[24];
    const struct judged *worst = verdict_worst(v);
    if (worst) {
        verdict_put_reasons(d, worst, is_brief ? SUMMARY_REASONS : SIZE_MAX / 2);
        verdict_put_segment(d, v);
    }
    if (v->has_job && worst != &v->job)
        verdict_put_fact(d, "memory", &v->job, SUMMARY_REASONS);
    if (!is_brief)
        verdict_put_costs(d, v);
    for (size_t i = 0; i < v->gpus.count; i++) {
        snprintf(label, sizeof label, "gpu %u", v->gpus.at[i].gpu);
        if (worst != &v->gpus.at[i])
            verdict_put_fact(d, label, &v->gpus.at[i], SUMMARY_REASONS);
    }
    for (size_t i = 0; i < v->figures.count; i++)
        if (!is_brief || v->figures.at[i].result.leak == VERDICT_LEAK_YES)
            verdict_put_fact(d, "series", &v->figures.at[i], is_brief ? 0 : SUMMARY_REASONS);
    if (!is_brief)
        verdict_put_processes(d, v);
}
