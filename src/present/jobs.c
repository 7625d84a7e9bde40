/* The table of jobs, and one job as a list of facts. */
#include "present/jobs.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"
#include "present/cells.h"
#include "present/page.h"

enum { WIDE = 10000, NAME_COLUMNS = 24, PROGRESS_MAX = 48, REASON_LEAST = 12 };

/* ---- values ---- */

static const char *text_at(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static bool number_at(const json_t *o, const char *key, double *ret)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v))
        return false;
    *ret = json_number_value(v);
    return true;
}

/* Clocks may be set, and servers may lie. */
static uint64_t span_ns(double from_s, double to_s)
{
    double s = to_s - from_s;
    return s > 0 && s < 1e9 ? (uint64_t)(s * (double)NS_PER_S) : 0;
}

/* How long it runs, ran or waits; "" where that is not known. */
static void life_text(char out[TEXT_TIME_MAX], const json_t *job, double now_s)
{
    double from, to = now_s;
    out[0] = '\0';
    bool has_end = number_at(job, "ended_s", &to);
    if (!number_at(job, "started_s", &from) && (has_end || !number_at(job, "submitted_s", &from)))
        return;
    text_duration(out, span_ns(from, to));
}

static bool is_state(const json_t *job, const char *word)
{
    const char *state = text_at(job, "state");
    return state && strcmp(state, word) == 0;
}

static bool is_ended(const json_t *job)
{
    return is_state(job, "succeeded") || is_state(job, "failed") || is_state(job, "cancelled") ||
           is_state(job, "lost");
}

static enum style state_style(const json_t *job)
{
    if (is_state(job, "succeeded"))
        return STYLE_GOOD;
    if (is_state(job, "failed") || is_state(job, "lost"))
        return STYLE_BAD;
    return is_ended(job) || is_state(job, "queued") ? STYLE_DIM : STYLE_STRONG;
}

static void size_cell(char out[CELL_MAX], const json_t *v)
{
    if (json_is_integer(v) && json_integer_value(v) >= 0)
        cell_size(out, (uint64_t)json_integer_value(v));
    else
        snprintf(out, CELL_MAX, "–");
}

/* "120/1000 12%", "step 120", "epoch 1.5". */
static void progress_text(char out[PROGRESS_MAX], const json_t *job)
{
    const json_t *p = json_object_get(job, "progress");
    double step = 0, max = 0, epoch;
    bool has_step = number_at(p, "step", &step), has_max = number_at(p, "max_steps", &max);
    out[0] = '\0';
    if (has_step && has_max && max > 0 && step >= 0)
        snprintf(out, PROGRESS_MAX, "%.0f/%.0f %.0f%%", step, max,
                 step < max ? 100 * step / max : 100.0);
    else if (has_step)
        snprintf(out, PROGRESS_MAX, "step %.0f", step);
    else if (number_at(p, "epoch", &epoch))
        snprintf(out, PROGRESS_MAX, "epoch %.2f", epoch);
}

/* Why it is as it is, or what will come; raw. */
static void reason_text(struct buf *out, const json_t *job)
{
    double low;
    char left[TEXT_TIME_MAX];
    const json_t *verdict = json_object_get(job, "verdict");
    /* Of what may be a start, a cache or a leak, the end of memory is no news yet. */
    const json_t *oom = json_is_true(json_object_get(verdict, "leak"))
                            ? summary_at(verdict, "oom_eta_s", NULL)
                            : NULL;
    const json_t *reason = json_object_get(job, "reason");
    const json_t *waits = json_object_get(job, "waits_for");
    const json_t *cause = json_object_get(job, "cause");
    const json_t *v = json_is_string(reason)                   ? reason
                      : json_is_string(waits)                  ? waits
                      : is_ended(job) && json_is_string(cause) ? cause
                                                               : NULL;
    if (v)
        buf_add(out, json_string_value(v), json_string_length(v));
    else if (!is_ended(job) && number_at(oom, "low", &low))
        buf_printf(out, "out of memory in %s or more", text_duration(left, span_ns(0, low)));
    else if (!is_ended(job) && number_at(json_object_get(job, "progress"), "eta_s", &low))
        buf_printf(out, "%s left", text_duration(left, span_ns(0, low)));
}

/* ---- the table ---- */

enum column { ID, NAME, STATE, NOW, PEAK, VERDICT, PROGRESS, TIME, COLUMNS };

struct row {
    char cell[COLUMNS][TEXT_MAX];
    enum style style;
    struct buf reason;
};

static void fill_row(struct row *r, const json_t *job, double now_s)
{
    const json_t *id = json_object_get(job, "id");
    char life[TEXT_TIME_MAX], size[CELL_MAX], progress[PROGRESS_MAX];
    *r = (struct row){.style = state_style(job)};
    snprintf(r->cell[ID], TEXT_MAX, "%lld", (long long)json_integer_value(id));
    summary_fit(r->cell[NAME], NAME_COLUMNS, json_object_get(job, "name"));
    summary_fit(r->cell[STATE], 16, json_object_get(job, "state"));
    size_cell(size, summary_at(job, "memory", "job_bytes"));
    snprintf(r->cell[NOW], TEXT_MAX, "%s", is_ended(job) ? "–" : size);
    size_cell(size, summary_at(job, "memory", "peak_bytes"));
    snprintf(r->cell[PEAK], TEXT_MAX, "%s", size);
    summary_fit(r->cell[VERDICT], 16, summary_at(job, "verdict", "verdict"));
    progress_text(progress, job);
    snprintf(r->cell[PROGRESS], TEXT_MAX, "%s", progress);
    life_text(life, job, now_s);
    snprintf(r->cell[TIME], TEXT_MAX, "%s", life);
    reason_text(&r->reason, job);
}

static bool is_number(enum column c)
{
    return c == ID || c == NOW || c == PEAK;
}

static void put_cell(struct page *p, const struct cell_column *c, enum column which,
                     enum style style, const char *text, size_t from)
{
    size_t width = (size_t)c->width - 2, columns = cell_columns(text);
    if (is_number(which) && columns < width)
        page_pad(p, from + width - columns);
    page_put(p, style, text);
    page_pad(p, from + width + 2);
}

static void put_row(struct page *p, const struct cell_column c[COLUMNS], const struct row *r)
{
    size_t from = 0;
    char reason[8 * TEXT_MAX];
    for (unsigned i = 0; i < COLUMNS; i++) {
        if (!c[i].is_shown)
            continue;
        enum style style = i == STATE ? r->style : i == ID ? STYLE_STRONG : STYLE_PLAIN;
        put_cell(p, &c[i], i, style, r->cell[i], from);
        from += (size_t)c[i].width;
    }
    size_t room = p->width > from ? p->width - from : 0;
    if (r->reason.len && room >= REASON_LEAST)
        page_put(p, STYLE_PLAIN,
                 text_fit(reason, sizeof reason, room, r->reason.data, r->reason.len));
    while (p->out->len && p->out->data[p->out->len - 1] == ' ')
        p->out->len--;
    page_line(p);
}

static void widen(struct cell_column c[COLUMNS], const struct row *r)
{
    for (unsigned i = 0; i < COLUMNS; i++) {
        int width = (int)cell_columns(r->cell[i]) + 2;
        if (r->cell[i][0] && width > c[i].width)
            c[i].width = width;
        if (r->cell[i][0] && strcmp(r->cell[i], "–") != 0)
            c[i].is_shown = true; /* there is something to show */
    }
}

void jobs_text(struct buf *out, const json_t *jobs, double now_s, bool colour, size_t width)
{
    struct cell_column c[COLUMNS] = {
        [ID] = {"ID", 4, 1, true},
        [NAME] = {"NAME", 6, 2, true},
        [STATE] = {"STATE", 7, 3, true},
        [NOW] = {"MEMORY", 8, 5, false},
        [PEAK] = {"PEAK", 6, 6, false},
        [VERDICT] = {"VERDICT", 9, 8, false},
        [PROGRESS] = {"PROGRESS", 10, 7, false},
        [TIME] = {"TIME", 6, 4, false},
    };
    struct page p = {.out = out, .is_coloured = colour, .width = width ? width : WIDE};
    struct row r;
    size_t i;
    json_t *job;
    json_array_foreach((json_t *)(uintptr_t)jobs, i, job)
    {
        fill_row(&r, job, now_s);
        widen(c, &r);
        buf_fini(&r.reason);
    }
    for (unsigned k = 0; k < COLUMNS; k++)
        c[k].priority = c[k].is_shown ? c[k].priority : 0;
    cell_columns_fit(c, COLUMNS, (int)p.width, 0);
    size_t from = 0;
    for (unsigned k = 0; k < COLUMNS; k++)
        if (c[k].is_shown) {
            put_cell(&p, &c[k], k, STYLE_DIM, c[k].title, from);
            from += (size_t)c[k].width;
        }
    page_put(&p, STYLE_DIM, p.width > from + REASON_LEAST ? "WHY" : "");
    page_line(&p);
    json_array_foreach((json_t *)(uintptr_t)jobs, i, job)
    {
        fill_row(&r, job, now_s);
        put_row(&p, c, &r);
        buf_fini(&r.reason);
    }
}

/* ---- one job ---- */

static void add_text(struct page *p, const char *label, const json_t *v)
{
    struct buf text = {0};
    if (!json_is_string(v) || !json_string_length(v))
        return;
    text_escape(&text, json_string_value(v), json_string_length(v));
    page_fact(p, label);
    page_add(p, STYLE_PLAIN, buf_str(&text));
    page_fact_end(p);
    buf_fini(&text);
}

static void add_command(struct page *p, const json_t *job)
{
    struct buf args = {0}, text = {0};
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(job, "command"), i, v)
    {
        buf_add(&args, json_string_value(v), json_string_length(v));
        buf_add_byte(&args, '\0');
    }
    text_command(&text, args.data, args.len);
    page_fact(p, "command");
    page_add(p, STYLE_PLAIN, buf_str(&text));
    page_fact_end(p);
    buf_fini(&args);
    buf_fini(&text);
}

static void time_text(char out[TEXT_MAX], double s)
{
    time_t seconds = number_to_i64(s);
    struct tm tm;
    out[0] = '\0';
    if (s > 0 && s < 1e11 && localtime_r(&seconds, &tm))
        strftime(out, TEXT_MAX, "%Y-%m-%d %H:%M:%S", &tm);
}

static void add_times(struct page *p, const json_t *job, double now_s)
{
    static const char *const keys[][2] = {
        {"submitted_s", "submitted"}, {"started_s", "started"}, {"ended_s", "ended"}};
    char text[TEXT_MAX], life[TEXT_TIME_MAX];
    double s;
    page_fact(p, "times");
    for (size_t i = 0; i < 3; i++)
        if (number_at(job, keys[i][0], &s)) {
            time_text(text, s);
            page_addf(p, "%s %s", keys[i][1], text);
        }
    life_text(life, job, now_s);
    if (life[0])
        page_addf(p, "%s%s", is_state(job, "queued") ? "waits for " : "", life);
    page_fact_end(p);
}

static void add_size(struct page *p, const json_t *v, const char *what)
{
    char size[TEXT_SIZE_MAX];
    if (summary_size(size, v))
        page_addf(p, "%s%s%s", what, *what ? " " : "", size);
}

static void add_memory(struct page *p, const json_t *job)
{
    const json_t *m = json_object_get(job, "memory");
    char from[TEXT_MAX];
    page_fact(p, "memory");
    if (!is_ended(job))
        add_size(p, json_object_get(m, "job_bytes"), "now");
    add_size(p, json_object_get(m, "peak_bytes"), "peak");
    add_size(p, json_object_get(m, "unique_bytes"), "unique");
    add_size(p, json_object_get(m, "limit_bytes"), "limit");
    if (!is_ended(job))
        add_size(p, json_object_get(m, "headroom_bytes"), "head-room");
    add_size(p, json_object_get(m, "gpu_bytes"), "GPU");
    page_fact_end(p);
    page_fact(p, "set aside");
    add_size(p, json_object_get(job, "memory_bytes"), "");
    if (json_is_string(json_object_get(job, "memory_from")))
        page_add(p, STYLE_PLAIN, summary_fit(from, 20, json_object_get(job, "memory_from")));
    page_fact_end(p);
}

static void add_progress(struct page *p, const json_t *job)
{
    const json_t *o = json_object_get(job, "progress");
    char text[PROGRESS_MAX], left[TEXT_TIME_MAX];
    double v;
    progress_text(text, job);
    page_fact(p, "progress");
    if (text[0])
        page_add(p, STYLE_PLAIN, text);
    if (number_at(o, "epoch", &v) && strncmp(text, "epoch", 5) != 0)
        page_addf(p, "epoch %.2f", v);
    if (number_at(o, "steps_per_s", &v))
        page_addf(p, "%.3g steps a second", v);
    if (!is_ended(job) && number_at(o, "eta_s", &v))
        page_addf(p, "%s left", text_duration(left, span_ns(0, v)));
    page_fact_end(p);
}

static void add_verdict(struct page *p, const json_t *job)
{
    const json_t *v = json_object_get(job, "verdict");
    struct buf text = {0};
    if (!json_is_object(v))
        return;
    const json_t *sentence = json_object_get(v, "sentence");
    char word[TEXT_MAX];
    buf_add_str(&text, summary_fit(word, 20, json_object_get(v, "verdict")));
    if (json_is_string(sentence)) {
        buf_add_str(&text, ": ");
        text_escape(&text, json_string_value(sentence), json_string_length(sentence));
    }
    page_fact(p, "verdict");
    page_add(p, json_is_true(json_object_get(v, "leak")) ? STYLE_BAD : STYLE_PLAIN, buf_str(&text));
    page_fact_end(p);
    buf_fini(&text);
}

static void add_given_back(struct page *p, const json_t *job)
{
    const json_t *g = json_object_get(job, "given_back");
    if (!json_is_object(g))
        return;
    page_fact(p, "given back");
    add_size(p, json_object_get(g, "host_bytes"), "host");
    add_size(p, json_object_get(g, "shm_bytes"), "shared");
    add_size(p, json_object_get(g, "gpu_bytes"), "GPU");
    if (json_is_boolean(json_object_get(g, "clean")))
        page_add(p, STYLE_PLAIN,
                 json_is_true(json_object_get(g, "clean")) ? "all of it" : "not all");
    page_fact_end(p);
}

static void add_changes(struct page *p, const json_t *job)
{
    size_t i;
    json_t *o;
    bool is_first = true;
    json_array_foreach(json_object_get(job, "changes"), i, o)
    {
        struct buf line = {0};
        char text[TEXT_MAX];
        double s = 0;
        number_at(o, "t_s", &s);
        time_text(text, s);
        buf_printf(&line, "%s  ", text);
        buf_add_str(&line, summary_fit(text, 16, json_object_get(o, "state")));
        const json_t *reason = json_object_get(o, "reason");
        if (json_is_string(reason)) {
            buf_add_str(&line, ": ");
            text_escape(&line, json_string_value(reason), json_string_length(reason));
        }
        page_put(p, STYLE_DIM, is_first ? "changes" : "");
        page_pad(p, LABEL_COLUMNS);
        page_put(p, STYLE_PLAIN, buf_str(&line));
        page_line(p);
        is_first = false;
        buf_fini(&line);
    }
}

void job_text(struct buf *out, const json_t *job, double now_s, bool colour, size_t width)
{
    struct page p = {.out = out, .is_coloured = colour, .width = width ? width : 80};
    struct buf why = {0}, harmless = {0};
    char name[TEXT_MAX], state[TEXT_MAX];
    reason_text(&why, job);
    snprintf(name, sizeof name, "job %lld  ",
             (long long)json_integer_value(json_object_get(job, "id")));
    page_put(&p, STYLE_STRONG, name);
    page_put(&p, STYLE_STRONG, summary_fit(name, 60, json_object_get(job, "name")));
    page_put(&p, STYLE_PLAIN, "  ");
    page_put(&p, state_style(job), summary_fit(state, 16, json_object_get(job, "state")));
    if (why.len) {
        text_escape(&harmless, why.data, why.len);
        page_put(&p, STYLE_PLAIN, ": ");
        page_put(&p, STYLE_PLAIN, buf_str(&harmless));
    }
    page_line(&p);
    buf_fini(&why);
    buf_fini(&harmless);
    add_command(&p, job);
    add_text(&p, "folder", json_object_get(job, "cwd"));
    add_text(&p, "recording", json_object_get(job, "run_dir"));
    add_times(&p, job, now_s);
    add_memory(&p, job);
    add_progress(&p, job);
    add_verdict(&p, job);
    add_given_back(&p, job);
    add_changes(&p, job);
}

void job_end_text(struct buf *out, const json_t *job)
{
    char life[TEXT_TIME_MAX], state[TEXT_MAX];
    const json_t *reason = json_object_get(job, "reason");
    const json_t *v = json_is_string(reason) ? reason : json_object_get(job, "cause");
    buf_add_str(out, summary_fit(state, 16, json_object_get(job, "state")));
    life_text(life, job, 0);
    if (life[0] && json_is_number(json_object_get(job, "started_s")))
        buf_printf(out, " after %s", life);
    if (json_is_string(v) && !is_state(job, "succeeded")) {
        buf_add_str(out, ": ");
        text_escape(out, json_string_value(v), json_string_length(v));
    }
}
