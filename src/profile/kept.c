/* Collects growing containers from KIND=kept marks. */
#include "profile/kept.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "mark/mark.h"
#include "run/run.h"

/* The smallest growth of a container that is reported: in bytes, and as a fraction of the growth of
 * its process. python/ebb/_containers.py has the same limits. */
static const double KEPT_BYTES = 1 << 20, KEPT_SHARE = 0.1;

static int64_t step_of(const struct mark *m, const char *key)
{
    double v = mark_get_number(m, key);
    return v >= 0 && v < 0x1p62 ? (int64_t)v : -1; /* -1 also for NAN */
}

static void copy_text(char *out, size_t max, const struct mark *m, const char *key)
{
    size_t len = 0;
    const char *text = mark_get(m, key, &len);
    snprintf(out, max, "%.*s",
             (int)(text && len < max ? len
                   : text            ? max - 1
                                     : 0),
             text ? text : "");
}

static struct kept_list *list_of(struct kept_lists *l, int32_t pid)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->at[i].pid == pid)
            return &l->at[i];
    if (l->count == KEPT_PROCESSES)
        return NULL;
    l->at[l->count] = (struct kept_list){.pid = pid, .since_step = -1, .step = -1};
    return &l->at[l->count++];
}

/* Adds one mark to the report of its process. A process sends its report as one mark per container,
 * all with the same steps. An empty report is one mark without a name. */
void kept_take(struct kept_lists *l, const struct mark *mark)
{
    bool is_kept = mark->kind == MARK_OTHER && mark_is(mark, "KIND", "kept");
    struct kept_list *list = is_kept ? list_of(l, mark->pid) : NULL;
    if (!list)
        return;
    int64_t step = step_of(mark, "STEP"), since = step_of(mark, "SINCE");
    if (step != list->step || since != list->since_step)
        *list = (struct kept_list){.pid = mark->pid, .since_step = since, .step = step};
    struct kept one = {.added = mark_get_number(mark, "ADDED"),
                       .bytes = mark_get_number(mark, "BYTES"),
                       .limit = fmax(0, mark_get_number(mark, "LIMIT")),
                       .is_library = mark_is(mark, "LIBRARY", "1"),
                       .is_graph = mark_is(mark, "GRAPH", "1")};
    copy_text(one.name, sizeof one.name, mark, "NAME");
    copy_text(one.type, sizeof one.type, mark, "TYPE");
    if (list->count < KEPT_MAX && one.name[0] && one.added > 0 && one.bytes > 0)
        list->at[list->count++] = one;
}

/* Returns the largest decrease from any value of S to a later one. */
static double largest_fall(const struct series *s)
{
    uint64_t highest = 0, fall = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct series_bucket *b = &s->buckets[i];
        bool is_rising = b->min.t_ns < b->max.t_ns;
        const uint64_t v[] = {is_rising ? b->min.v : b->max.v, is_rising ? b->max.v : b->min.v,
                              b->last.v};
        for (size_t k = 0; k < sizeof v / sizeof *v; k++) {
            highest = v[k] > highest ? v[k] : highest;
            fall = highest - v[k] > fall ? highest - v[k] : fall;
        }
    }
    return (double)fall;
}

/* Returns the increase of FIGURE since its first reading, and stores the time of that reading in
 * *RET_FROM. Returns 0 if FIGURE ever dropped by at least as much as this increase: for example, a
 * log that is cleared again and again keeps nothing alive for long. */
static double figure_gained(const struct run_entity *figure, uint64_t *ret_from)
{
    const struct series *s = figure->signal[0];
    struct series_point last;
    if (!series_last(s, &last))
        return 0;
    *ret_from = s->first.t_ns;
    double gained = (double)last.v - (double)s->first.v;
    return gained > largest_fall(s) ? gained : 0;
}

/* Returns the growth of process PID from FROM_NS to its peak. The last reading is not used as the
 * end, because the process may have been exiting by then. */
static double process_growth(const struct run *run, int32_t pid, uint64_t from_ns)
{
    const struct run_entity *p = run_find_pid(run, pid);
    const struct series *rss = p ? p->signal[SAMPLE_RSS] : NULL;
    struct series_point from, peak;
    return series_after(rss, from_ns, &from) && series_max(rss, from_ns, UINT64_MAX, &peak)
               ? (double)peak.v - (double)from.v
               : 0;
}

static void sort_in(struct kept_list *list, const struct kept *one)
{
    size_t i = list->count < KEPT_MAX ? list->count++ : KEPT_MAX;
    for (; i > 0 && list->at[i - 1].bytes < one->bytes; i--)
        if (i < KEPT_MAX)
            list->at[i] = list->at[i - 1];
    if (i < KEPT_MAX)
        list->at[i] = *one;
}

void kept_take_figures(struct kept_lists *l, const struct run *run)
{
    static const char BYTES[] = "container_bytes:";
    struct kept_lists found = {0};
    AUTO_FREE struct run_entity **figures = NULL;
    size_t n = run_list(run, RUN_FIGURE, &figures);
    for (size_t i = 0; figures && i < n; i++) {
        const char *name = figures[i]->name + sizeof BYTES - 1;
        int32_t pid = figures[i]->info.id.pid;
        struct kept one = {0};
        uint64_t from_ns = 0, ignored;
        if (strncmp(figures[i]->name, BYTES, sizeof BYTES - 1) != 0 || kept_of(l, pid))
            continue;
        one.bytes = figure_gained(figures[i], &from_ns);
        if (one.bytes < KEPT_BYTES || one.bytes < KEPT_SHARE * process_growth(run, pid, from_ns))
            continue;
        const struct run_entity *entries = run_figure_beside(run, figures[i], "container");
        const struct run_entity *limit = run_figure_beside(run, figures[i], "container_limit");
        one.added = entries ? figure_gained(entries, &ignored) : 0;
        one.limit = limit ? (double)limit->last.v[0] : 0;
        snprintf(one.name, sizeof one.name, "%s", name);
        struct kept_list *list = one.added > 0 ? list_of(&found, pid) : NULL;
        if (list)
            sort_in(list, &one);
    }
    for (size_t i = 0; i < found.count; i++) {
        struct kept_list *list = list_of(l, found.at[i].pid);
        if (list)
            *list = found.at[i];
    }
}

const struct kept_list *kept_of(const struct kept_lists *l, int32_t pid)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->at[i].pid == pid && l->at[i].count)
            return &l->at[i];
    return NULL;
}

bool kept_is_value(const struct kept *k)
{
    return k->added >= k->bytes;
}

const char *kept_text(char out[KEPT_TEXT_MAX], const struct kept_list *l, size_t i)
{
    const struct kept *k = &l->at[i];
    char size[TEXT_SIZE_MAX], steps[80] = "", limit[48] = "";
    if (l->step >= 0 && l->since_step >= 0)
        snprintf(steps, sizeof steps, " from step %" PRId64 " to step %" PRId64, l->since_step,
                 l->step);
    if (k->limit > 0)
        snprintf(limit, sizeof limit, "; it is limited to %.0f entries", k->limit);
    bool is_tensor = k->is_graph && strcmp(k->type, "Tensor") == 0;
    text_size(size, number_to_u64(k->bytes));
    if (kept_is_value(k) && k->limit > 0)
        snprintf(out, KEPT_TEXT_MAX, "%s: an array of %s, of which %s was newly written", k->name,
                 text_size(steps, number_to_u64(k->limit)), size);
    else if (kept_is_value(k))
        snprintf(out, KEPT_TEXT_MAX, "%s: an array or text that grew by %s", k->name, size);
    else
        snprintf(out, KEPT_TEXT_MAX, "%s%s%s%s: %.0f %s added%s%s, at most %s%s", k->name,
                 k->type[0] ? " (" : "", k->type, k->type[0] ? ")" : "", k->added,
                 is_tensor ? "autograd nodes" : "entries", steps,
                 k->is_graph && !is_tensor ? ", with their autograd graphs" : "", size, limit);
    return out;
}

static json_t *step_json(int64_t step)
{
    return step >= 0 ? json_integer(step) : json_null();
}

json_t *kept_json(const struct kept_list *l)
{
    json_t *list = json_array();
    char text[KEPT_TEXT_MAX];
    for (size_t i = 0; l && i < l->count; i++)
        json_array_append_new(
            list, json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "name", json_text0(l->at[i].name),
                            "type", json_text0(l->at[i].type), "added", json_count(l->at[i].added),
                            "bytes", json_count(l->at[i].bytes), "limit",
                            l->at[i].limit > 0 ? json_count(l->at[i].limit) : json_null(),
                            "since_step", step_json(l->since_step), "step", step_json(l->step),
                            "text", json_text0(kept_text(text, l, i))));
    return list;
}
