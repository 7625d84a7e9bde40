/* Renders the guard's actions, the segments side by side, and memory that was not freed. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "present/cells.h"
#include "present/document.h"
#include "present/summary.h"
#include "run/outcome.h"

enum { EVENTS_SHOWN = 6, LEFT_SHOWN = 4, FILE_COLUMNS = 44, TRIGGER_COLUMNS = 12 };
enum { SEGMENTS_SHOWN = 12, SEGMENTS_FIRST = 3, BY_COLUMNS = 15 };

/* ---- the guard ---- */

static size_t count_acts(const struct outcome_guard *g, const char *act)
{
    size_t n = 0;
    for (size_t i = 0; i < g->event_count; i++)
        n += strcmp(g->events[i].act, act) == 0;
    return n;
}

static const char *act_words(const char *act)
{
    static const char *const words[][2] = {{"warn", "warned"},
                                           {"ask", "requested a checkpoint"},
                                           {"checkpoint", "checkpoint written"},
                                           {"checkpoint failed", "checkpoint failed"},
                                           {"term", "sent SIGTERM"},
                                           {"kill", "killed the job"},
                                           {"stand down", "memory fell, no action needed"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(act, words[i][0]) == 0)
            return words[i][1];
    return "acted";
}

static void guard_put_times(struct doc *d, const char *what, size_t count)
{
    if (count == 1)
        doc_itemf(d, TONE_PLAIN, "%s once", what);
    else if (count > 1)
        doc_itemf(d, TONE_PLAIN, "%s %zu times", what, count);
}

/* Adds the newest actions, except warnings that were directly followed by a checkpoint request. */
static void guard_put_events(struct doc *d, const struct outcome_guard *g)
{
    char time[TEXT_TIME_MAX];
    for (size_t i = g->event_count > EVENTS_SHOWN ? g->event_count - EVENTS_SHOWN : 0;
         i < g->event_count; i++) {
        const struct outcome_event *e = &g->events[i];
        bool has_next = i + 1 < g->event_count;
        if (strcmp(e->act, "warn") == 0 && has_next && strcmp(e[1].act, "ask") == 0)
            continue;
        doc_point(d, POINT_PLAIN);
        doc_textf(d, TONE_PLAIN, "%s: %s", text_seconds(time, e->t_s), act_words(e->act));
        if (e->trigger[0] && strcmp(e->trigger, "nothing") != 0 &&
            strcmp(e->act, "checkpoint") != 0)
            doc_textf(d, TONE_DIM, e->has_gpu ? " (%.*s, gpu %u)" : " (%.*s)", TRIGGER_COLUMNS,
                      e->trigger, e->gpu);
    }
}

/* Adds the guard's limit and its actions if the user set a limit or the guard acted. */
static void guard_put_guard(struct doc *d, const struct outcome_guard *g)
{
    char size[TEXT_SIZE_MAX];
    size_t asked = count_acts(g, "ask");
    if (!g->event_count && !g->limit_is_given)
        return;
    doc_fact(d, "guard");
    if (g->limit_is_given && g->has_limit_bytes)
        doc_itemf(d, TONE_PLAIN, "limit %s%s", text_size(size, g->limit_bytes),
                  g->kernel_limit ? " (enforced by the kernel)" : "");
    if (g->dry_run)
        doc_itemf(d, TONE_PLAIN, "dry run: the guard only reported what it would have done");
    if (!g->event_count)
        doc_itemf(d, TONE_PLAIN, "no action was needed");
    if (asked) {
        doc_itemf(d, TONE_PLAIN, "%zu checkpoint%s requested", asked, asked == 1 ? "" : "s");
        doc_itemf(d, TONE_PLAIN, "%zu written", count_acts(g, "checkpoint"));
    }
    guard_put_times(d, "stopped the job", count_acts(g, "term"));
    guard_put_times(d, "killed it", count_acts(g, "kill"));
    if (g->event_count > EVENTS_SHOWN)
        doc_itemf(d, TONE_PLAIN, "the last actions (all in run.json)");
    guard_put_events(d, g);
    doc_fact(d, "no restart");
    doc_text(d, TONE_BAD, g->not_restarted);
}

/* ---- segments ---- */

static void guard_put_step(struct doc *d, bool has, int64_t step)
{
    if (has)
        doc_cellf(d, TONE_PLAIN, "%lld", (long long)step);
    else
        doc_cell(d, TONE_PLAIN, "–");
}

static void guard_put_segment(struct doc *d, const struct outcome_segment *s, bool is_brief)
{
    char text[TEXT_TIME_MAX], cell[CELL_MAX];
    const char *by = s->end.by ? s->end.by : s->end.cause_kind ? s->end.cause_kind : "";
    /* the column is narrow, so "a planned restart" and "the guard" lose their article */
    by += strncmp(by, "the ", 4) == 0 ? 4 : strncmp(by, "a ", 2) == 0 ? 2 : 0;
    doc_row(d);
    doc_cellf(d, TONE_PLAIN, "%u", s->segment);
    doc_cell(d, TONE_PLAIN, text_seconds(text, s->duration_s));
    guard_put_step(d, s->has_first_step, s->first_step);
    guard_put_step(d, s->has_last_step, s->last_step);
    guard_put_step(d, s->has_checkpoint_step, s->checkpoint_step);
    doc_cell(d, TONE_PLAIN, cell_size(cell, s->peak_bytes));
    doc_cell(d, TONE_PLAIN, s->verdict);
    doc_cell(d, TONE_PLAIN, is_brief ? by : s->end.cause);
}

void summary_segments(struct doc *d, const struct outcome *o, bool is_brief)
{
    const struct doc_column columns[] = {
        {.title = "#"},
        {.title = "time", .priority = 1},
        {.title = "from", .priority = 5},
        {.title = "to"},
        {.title = "saved", .priority = 3},
        {.title = "peak", .priority = 2},
        {.title = "verdict", .priority = 4},
        {.title = "ended by", .least = BY_COLUMNS, .cut = is_brief ? CUT_END : CUT_WRAP},
    };
    enum { COLUMNS = sizeof columns / sizeof *columns };
    size_t count = o->segment_count;
    size_t left_out = is_brief && count > SEGMENTS_SHOWN ? count - SEGMENTS_SHOWN : 0;
    if (count < 2)
        return;
    doc_table(d, "segments", "segments", columns, COLUMNS);
    for (size_t i = 0; i < count; i++) {
        if (!left_out || i < SEGMENTS_FIRST || i >= SEGMENTS_FIRST + left_out) {
            guard_put_segment(d, &o->segments[i], is_brief);
        } else if (i == SEGMENTS_FIRST) {
            doc_row(d);
            for (size_t k = 0; k + 1 < COLUMNS; k++)
                doc_cell(d, TONE_DIM, k ? "" : "…");
            doc_cellf(d, TONE_DIM, "%zu more in run.json", left_out);
        }
    }
}

/* ---- leftovers ---- */

void summary_guard_brief(struct doc *d, const struct outcome *o)
{
    const struct outcome_guard *g = &o->guard;
    const struct outcome_segment *last =
        o->segment_count ? &o->segments[o->segment_count - 1] : NULL;
    char size[TEXT_SIZE_MAX];
    if (!g->event_count && o->segment_count < 2)
        return;
    doc_fact(d, "guard");
    guard_put_times(d, "stopped the job", count_acts(g, "term"));
    guard_put_times(d, "killed it", count_acts(g, "kill"));
    if (o->segment_count > 1)
        doc_itemf(d, TONE_PLAIN, "restarted %zu time%s", o->segment_count - 1,
                  o->segment_count == 2 ? "" : "s");
    if (count_acts(g, "ask"))
        doc_itemf(d, TONE_PLAIN, "%zu of %zu checkpoints written", count_acts(g, "checkpoint"),
                  count_acts(g, "ask"));
    if (last && last->has_checkpoint_step)
        doc_itemf(d, TONE_PLAIN, "the last at step %lld", (long long)last->checkpoint_step);
    if (g->limit_is_given && g->has_limit_bytes)
        doc_itemf(d, TONE_PLAIN, "limit %s", text_size(size, g->limit_bytes));
    doc_fact(d, "no restart");
    doc_text(d, TONE_BAD, g->not_restarted);
}

static void guard_put_left(struct doc *d, const struct outcome_left_list *left)
{
    char size[TEXT_SIZE_MAX];
    size_t n = 0;
    doc_fact(d, "left over");
    for (size_t i = 0; i < left->shm_count; i++) {
        const struct outcome_left *f = &left->shm[i];
        if ((f->has_is_jobs && !f->is_jobs) || n++ >= LEFT_SHOWN)
            continue;
        doc_itemf(d, TONE_PLAIN, "/dev/shm/");
        doc_name(d, TONE_PLAIN, f->name ? f->name : "", f->name ? strlen(f->name) : 0,
                 FILE_COLUMNS);
        doc_textf(d, TONE_PLAIN, " (%s%s)", text_size(size, f->bytes),
                  f->removed  ? ", removed"
                  : f->in_use ? ", in use by another process"
                              : "");
    }
    if (n > LEFT_SHOWN)
        doc_itemf(d, TONE_PLAIN, "%zu more files in /dev/shm", n - LEFT_SHOWN);
}

static void guard_put_returned(struct doc *d, const char *what, const struct outcome_returned *r)
{
    char before[TEXT_SIZE_MAX], peak[TEXT_SIZE_MAX], after[TEXT_SIZE_MAX], freed[TEXT_SIZE_MAX];
    if (!outcome_is_returned(r))
        doc_itemf(d, TONE_PLAIN, "%s %s before, %s peak, %s after, %s freed", what,
                  text_size(before, r->before_bytes), text_size(peak, r->peak_bytes),
                  text_size(after, r->after_bytes), text_size(freed, r->freed_bytes));
}

void summary_leftovers(struct doc *d, const struct outcome *o, bool is_brief)
{
    char label[32];
    guard_put_left(d, &o->left);
    doc_fact(d, "not freed");
    if (!is_brief) {
        guard_put_returned(d, "host", &o->given_back.host);
        guard_put_returned(d, "shm", &o->given_back.shm);
    }
    for (size_t i = 0; i < o->given_back.gpu_count; i++) {
        snprintf(label, sizeof label, "gpu %zu", i);
        guard_put_returned(d, label, &o->given_back.gpus[i]);
    }
}

void summary_guard(struct doc *d, const struct outcome *o)
{
    summary_segments(d, o, true);
    guard_put_guard(d, &o->guard);
    summary_leftovers(d, o, false);
}
