/* Why the job ended, what the guard did, the segments side by side, and what the machine got back.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/number.h"
#include "present/cells.h"
#include "present/page.h"

enum { EVENTS_SHOWN = 6, LEFT_SHOWN = 4, NAME_COLUMNS = 44, TIME_COLUMNS = 13 };

static bool is_text(const json_t *v, const char *text)
{
    return json_is_string(v) && strcmp(json_string_value(v), text) == 0;
}

/* A long text of our own or of another program, broken over as many lines as it needs. */
static void put_sentence(struct page *p, const char *label, enum style style, const json_t *text)
{
    struct buf harmless = {0};
    const char *s = json_string_value(text);
    text_escape(&harmless, s, strlen(s));
    page_put(p, STYLE_DIM, label);
    page_pad(p, LABEL_COLUMNS);
    page_words(p, style, buf_str(&harmless));
    page_line(p);
    buf_fini(&harmless);
}

/* A status says most of it already: a cause that only repeats it is left out. */
void summary_cause(struct page *p, const json_t *doc)
{
    const json_t *cause = summary_at(doc, "end", "cause");
    const json_t *kind = summary_at(doc, "end", "cause_kind");
    if (!json_is_string(cause) || is_text(kind, "finished") || is_text(kind, "exit status"))
        return;
    put_sentence(p, "cause", STYLE_STRONG, cause);
}

/* ---- the guard ---- */

/* How often it did WHAT. */
static size_t count_acts(const json_t *events, const char *what)
{
    size_t i, n = 0;
    const json_t *event;
    json_array_foreach(events, i, event)
    {
        n += is_text(json_object_get(event, "act"), what);
    }
    return n;
}

static const char *act_words(const json_t *act)
{
    static const char *const words[][2] = {{"warn", "warned"},
                                           {"ask", "asked for a checkpoint"},
                                           {"checkpoint", "the checkpoint was there"},
                                           {"checkpoint failed", "the checkpoint failed"},
                                           {"term", "sent SIGTERM"},
                                           {"kill", "killed everything"},
                                           {"stand down", "stood down"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_text(act, words[i][0]))
            return words[i][1];
    return "acted";
}

/* One a line: they are read as a story. */
static void put_event(struct page *p, const json_t *event)
{
    char time[TEXT_TIME_MAX], trigger[TEXT_MAX];
    double t = json_number_value(json_object_get(event, "t_s"));
    const json_t *by = json_object_get(event, "trigger");
    bool has_trigger = json_is_string(by) && !is_text(by, "nothing") &&
                       !is_text(json_object_get(event, "act"), "checkpoint");
    page_pad(p, LABEL_COLUMNS);
    page_put(p, STYLE_PLAIN, text_duration(time, number_to_u64(t * (double)NS_PER_S)));
    page_pad(p, LABEL_COLUMNS + TIME_COLUMNS);
    page_put(p, STYLE_PLAIN, act_words(json_object_get(event, "act")));
    if (has_trigger) {
        page_put(p, STYLE_DIM, " (");
        page_put(p, STYLE_DIM, summary_fit(trigger, 12, by));
        page_put(p, STYLE_DIM, ")");
    }
    page_line(p);
}

static void put_times(struct page *p, const char *what, size_t count)
{
    if (count == 1)
        page_addf(p, "%s once", what);
    else if (count > 1)
        page_addf(p, "%s %zu times", what, count);
}

static void put_counts(struct page *p, const json_t *events)
{
    size_t asked = count_acts(events, "ask");
    if (asked)
        page_addf(p, "%zu checkpoint%s asked for", asked, asked == 1 ? "" : "s");
    if (asked)
        page_addf(p, "%zu made", count_acts(events, "checkpoint"));
    put_times(p, "stopped it", count_acts(events, "term"));
    put_times(p, "killed it", count_acts(events, "kill"));
}

/* The newest, without warnings that a request followed at once. */
static void put_events(struct page *p, const json_t *events)
{
    size_t count = json_array_size(events);
    for (size_t i = count > EVENTS_SHOWN ? count - EVENTS_SHOWN : 0; i < count; i++) {
        const json_t *event = json_array_get(events, i), *next = json_array_get(events, i + 1);
        bool says_nothing = is_text(json_object_get(event, "act"), "warn") &&
                            is_text(json_object_get(next, "act"), "ask");
        if (!says_nothing)
            put_event(p, event);
    }
}

static void put_limit(struct page *p, const json_t *guard)
{
    char size[TEXT_SIZE_MAX];
    if (json_is_true(json_object_get(guard, "limit_is_given")) &&
        summary_size(size, json_object_get(guard, "limit_bytes")))
        page_addf(p, "limit %s%s", size,
                  json_is_true(json_object_get(guard, "kernel_limit")) ? " (also the kernel's)"
                                                                       : "");
}

/* Nothing, where it had nothing to do and no limit was asked for. */
static void put_guard(struct page *p, const json_t *guard)
{
    const json_t *events = json_object_get(guard, "events");
    size_t count = json_array_size(events);
    if (count == 0 && !json_is_true(json_object_get(guard, "limit_is_given")))
        return;
    page_fact(p, "guard");
    put_limit(p, guard);
    if (json_is_true(json_object_get(guard, "dry_run")))
        page_addf(p, "dry run: it only said what it would do");
    if (count == 0)
        page_addf(p, "nothing to do");
    put_counts(p, events);
    if (count > EVENTS_SHOWN)
        page_addf(p, "the last acts (all: run.json)");
    page_fact_end(p);
    put_events(p, events);
    const json_t *why = json_object_get(guard, "not_restarted");
    if (json_is_string(why))
        put_sentence(p, "no restart", STYLE_BAD, why);
}

/* ---- segments ---- */

enum { SEGMENTS_SHOWN = 12, SEGMENTS_FIRST = 3, BY_COLUMNS = 15 };

enum segment_column {
    COLUMN_NUMBER,
    COLUMN_TIME,
    COLUMN_FROM,
    COLUMN_TO,
    COLUMN_SAVED,
    COLUMN_PEAK,
    COLUMN_VERDICT,
    SEGMENT_COLUMNS
};

static const struct {
    const char *title;
    size_t width;
} columns[SEGMENT_COLUMNS] = {{"#", 3},     {"time", 12}, {"from", 7},    {"to", 7},
                              {"saved", 7}, {"peak", 7},  {"verdict", 11}};

/* Bits of the columns for which there is room. */
static unsigned columns_for(size_t width)
{
    static const enum segment_column least_first[] = {COLUMN_FROM, COLUMN_VERDICT, COLUMN_SAVED,
                                                      COLUMN_PEAK, COLUMN_TIME};
    unsigned shown = (1u << SEGMENT_COLUMNS) - 1;
    size_t needed = LABEL_COLUMNS + BY_COLUMNS;
    for (size_t i = 0; i < SEGMENT_COLUMNS; i++)
        needed += columns[i].width;
    for (size_t i = 0; i < sizeof least_first / sizeof *least_first && needed > width; i++) {
        shown &= ~(1u << least_first[i]);
        needed -= columns[least_first[i]].width;
    }
    return shown;
}

static void cell_step(char out[TEXT_MAX], const json_t *step)
{
    if (json_is_integer(step))
        snprintf(out, TEXT_MAX, "%lld", (long long)json_integer_value(step));
    else
        snprintf(out, TEXT_MAX, "–");
}

static void cell_of(char out[TEXT_MAX], const json_t *s, enum segment_column column)
{
    static const char *const steps[SEGMENT_COLUMNS] = {[COLUMN_NUMBER] = "segment",
                                                       [COLUMN_FROM] = "first_step",
                                                       [COLUMN_TO] = "last_step",
                                                       [COLUMN_SAVED] = "checkpoint_step"};
    char size[CELL_MAX];
    double t = json_number_value(json_object_get(s, "duration_s"));
    if (column == COLUMN_TIME)
        text_duration(out, number_to_u64(t * (double)NS_PER_S));
    else if (column == COLUMN_PEAK)
        snprintf(out, TEXT_MAX, "%s",
                 cell_size(size, (uint64_t)json_integer_value(json_object_get(s, "peak_bytes"))));
    else if (column == COLUMN_VERDICT)
        summary_fit(out, columns[column].width - 1, json_object_get(s, "verdict"));
    else
        cell_step(out, json_object_get(s, steps[column]));
}

/* "a planned restart", "the guard": the column has no room for articles. */
static const char *without_article(const char *text)
{
    if (strncmp(text, "the ", 4) == 0)
        return text + 4;
    return strncmp(text, "a ", 2) == 0 ? text + 2 : text;
}

static void put_segment(struct page *p, const json_t *s, unsigned shown)
{
    char text[TEXT_MAX];
    size_t at = LABEL_COLUMNS;
    page_pad(p, at);
    for (unsigned i = 0; i < SEGMENT_COLUMNS; i++) {
        if (!(shown & 1u << i))
            continue;
        cell_of(text, s, (enum segment_column)i);
        page_put(p, STYLE_PLAIN, text);
        at += columns[i].width;
        page_pad(p, at > p->column ? at : p->column + 1); /* a number may be longer */
    }
    const char *by = json_string_value(summary_at(s, "end", "by"));
    if (!by)
        by = json_string_value(summary_at(s, "end", "cause_kind"));
    by = by ? without_article(by) : "";
    text_fit(text, sizeof text, p->width > p->column ? p->width - p->column : 1, by, strlen(by));
    page_put(p, STYLE_PLAIN, text);
    page_line(p);
}

static void put_segment_titles(struct page *p, unsigned shown)
{
    size_t at = LABEL_COLUMNS;
    page_put(p, STYLE_DIM, "segments");
    page_pad(p, at);
    for (unsigned i = 0; i < SEGMENT_COLUMNS; i++) {
        if (!(shown & 1u << i))
            continue;
        page_put(p, STYLE_DIM, columns[i].title);
        at += columns[i].width;
        page_pad(p, at);
    }
    page_put(p, STYLE_DIM, "ended by");
    page_line(p);
}

static void put_segments(struct page *p, const json_t *segments)
{
    size_t i, count = json_array_size(segments);
    const json_t *s;
    char text[TEXT_MAX];
    if (count < 2)
        return;
    unsigned shown = columns_for(p->width);
    size_t left_out = count > SEGMENTS_SHOWN ? count - SEGMENTS_SHOWN : 0;
    put_segment_titles(p, shown);
    json_array_foreach(segments, i, s)
    {
        if (left_out == 0 || i < SEGMENTS_FIRST || i >= SEGMENTS_FIRST + left_out) {
            put_segment(p, s, shown);
        } else if (i == SEGMENTS_FIRST) {
            snprintf(text, sizeof text, "… %zu more in run.json", left_out);
            page_pad(p, LABEL_COLUMNS);
            page_put(p, STYLE_DIM, text);
            page_line(p);
        }
    }
}

/* ---- what is left, and what came back ---- */

enum { MOVED_LEAST = 1 << 20 }; /* what moved less is not the job's doing */

static void put_figure(struct page *p, const char *what, const json_t *f)
{
    json_int_t rise = json_integer_value(json_object_get(f, "peak_bytes")) -
                      json_integer_value(json_object_get(f, "before_bytes"));
    if (rise < MOVED_LEAST)
        return;
    char before[TEXT_SIZE_MAX], peak[TEXT_SIZE_MAX], after[TEXT_SIZE_MAX], freed[TEXT_SIZE_MAX];
    if (!summary_size(before, json_object_get(f, "before_bytes")) ||
        !summary_size(peak, json_object_get(f, "peak_bytes")) ||
        !summary_size(after, json_object_get(f, "after_bytes")) ||
        !summary_size(freed, json_object_get(f, "freed_bytes")))
        return;
    page_addf(p, "%s %s before, %s peak, %s after, %s freed", what, before, peak, after, freed);
}

static void put_given_back(struct page *p, const json_t *back)
{
    char label[32];
    size_t i;
    const json_t *gpu;
    page_fact(p, "given back");
    put_figure(p, "host", json_object_get(back, "host"));
    put_figure(p, "shm", json_object_get(back, "shm"));
    json_array_foreach(json_object_get(back, "gpus"), i, gpu)
    {
        snprintf(label, sizeof label, "gpu %zu", i);
        put_figure(p, label, gpu);
    }
    page_fact_end(p);
}

static void put_file(struct page *p, const json_t *file)
{
    char name[TEXT_MAX], size[TEXT_SIZE_MAX];
    const char *bytes = summary_size(size, json_object_get(file, "bytes"));
    const char *fate = json_is_true(json_object_get(file, "removed")) ? ", removed"
                       : json_is_true(json_object_get(file, "in_use"))
                           ? ", in use by another process"
                           : "";
    page_addf(p, "/dev/shm/%s (%s%s)",
              summary_fit(name, NAME_COLUMNS, json_object_get(file, "name")), bytes ? bytes : "0 B",
              fate);
}

static void put_left(struct page *p, const json_t *left)
{
    char address[TEXT_MAX], name[TEXT_MAX];
    const json_t *files = json_object_get(left, "shm"), *file;
    const json_t *sockets = json_object_get(left, "sockets");
    size_t at, n = 0;
    page_fact(p, "left over");
    json_array_foreach(files, at, file)
    {
        /* earlier versions also listed files of others */
        if (!json_is_false(json_object_get(file, "is_jobs")) && n++ < LEFT_SHOWN)
            put_file(p, file);
    }
    if (n > LEFT_SHOWN)
        page_addf(p, "%zu more files in /dev/shm", n - LEFT_SHOWN);
    for (size_t i = 0; i < json_array_size(sockets) && i < LEFT_SHOWN; i++) {
        const json_t *s = json_array_get(sockets, i);
        page_addf(p, "%s listened on %s", summary_fit(name, 24, json_object_get(s, "name")),
                  summary_fit(address, NAME_COLUMNS, json_object_get(s, "address")));
    }
    page_fact_end(p);
}

void summary_guard(struct page *p, const json_t *doc)
{
    put_segments(p, json_object_get(doc, "segments"));
    put_guard(p, json_object_get(doc, "guard"));
    put_left(p, json_object_get(doc, "left"));
    put_given_back(p, json_object_get(doc, "given_back"));
}
