/* The end of a run in words: how it ended, its memory, what to ask for next time. */
#include "present/summary.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "present/cells.h"
#include "present/diagnose.h"
#include "present/heap.h"
#include "present/page.h"
#include "present/verdict.h"

enum { WIDTH_MIN = 40, WIDTH_MAX = 100, WIDTH_DEFAULT = 80, GPUS_SHOWN = 2 };

static bool has_size(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) > 0;
}

static uint64_t seconds_to_ns(double s)
{
    return s > 0 && s < 1e9 ? (uint64_t)(s * (double)NS_PER_S) : 0;
}

/* ---- how it ended ---- */

static enum style describe_end(const json_t *end, char out[TEXT_MAX])
{
    char word[TEXT_MAX];
    const char *kind = json_string_value(json_object_get(end, "kind"));
    const json_t *status = json_object_get(end, "status");
    const json_t *signal = json_object_get(end, "signal");
    if (kind && strcmp(kind, "exited") == 0 && json_is_integer(status)) {
        snprintf(out, TEXT_MAX, "exited with status %lld", (long long)json_integer_value(status));
        return json_integer_value(status) == 0 ? STYLE_GOOD : STYLE_BAD;
    }
    if (kind && strcmp(kind, "signalled") == 0) {
        summary_fit(word, 40, signal);
        snprintf(out, TEXT_MAX, "killed by %s%.40s", strncmp(word, "SIG", 3) == 0 ? "" : "SIG",
                 word[0] ? word : "NAL");
        return STYLE_BAD;
    }
    if (kind && strcmp(kind, "not_started") == 0) {
        snprintf(out, TEXT_MAX, "could not be started");
        return STYLE_BAD;
    }
    if (kind && strcmp(kind, "gone") == 0)
        snprintf(out, TEXT_MAX, "the job ended");
    else if (kind && strcmp(kind, "watch_ended") == 0)
        snprintf(out, TEXT_MAX, "the job runs on");
    else
        snprintf(out, TEXT_MAX, "ended");
    return STYLE_STRONG;
}

/* " after 3 min 05 s"; of a job that was only watched, for how long it was. */
static void put_duration(struct page *p, const json_t *doc, enum style style, char text[TEXT_MAX])
{
    char time[TEXT_TIME_MAX];
    const json_t *duration = json_object_get(doc, "duration_s");
    const json_t *by = summary_at(doc, "end", "by");
    const char *kind = json_string_value(summary_at(doc, "end", "kind"));
    bool is_watch = kind && (strcmp(kind, "gone") == 0 || strcmp(kind, "watch_ended") == 0);
    bool is_machine = is_watch && !json_object_get(doc, "tree");
    if (is_machine)
        snprintf(text, TEXT_MAX, "the machine");
    size_t len = strlen(text);
    if (json_is_number(duration)) {
        text_duration(time, seconds_to_ns(json_number_value(duration)));
        snprintf(text + len, TEXT_MAX - len, is_watch ? ", watched for %s" : " after %s", time);
    }
    page_add(p, style, text);
    if (json_is_string(by))
        page_addf(p, "ended by %s", summary_fit(text, 40, by));
}

static void put_end(struct page *p, const json_t *doc)
{
    char text[TEXT_MAX];
    const json_t *end = json_object_get(doc, "end");
    const json_t *left = json_object_get(end, "left_behind");
    const json_t *step = summary_at(doc, "marks", "last_step");
    page_fact(p, "ebb");
    enum style style = describe_end(end, text);
    put_duration(p, doc, style, text);
    if (has_size(left))
        page_addf(p, "%lld process%s left behind and ended", (long long)json_integer_value(left),
                  json_integer_value(left) == 1 ? "" : "es");
    if (json_is_integer(step))
        page_addf(p, "last step %lld", (long long)json_integer_value(step));
    page_fact_end(p);
}

/* ---- memory ---- */

static void add_size(struct page *p, const char *word, const json_t *v)
{
    char size[TEXT_SIZE_MAX];
    if (summary_size(size, v))
        page_addf(p, "%s %s", word, size);
}

static void put_memory(struct page *p, const json_t *tree)
{
    char size[TEXT_SIZE_MAX], text[TEXT_MAX];
    page_fact(p, "memory");
    add_size(p, "start", json_object_get(tree, "start_bytes"));
    add_size(p, "mean", json_object_get(tree, "mean_bytes"));
    if (summary_size(size, json_object_get(tree, "peak_bytes"))) {
        snprintf(text, sizeof text, "peak %s", size);
        page_add(p, STYLE_STRONG, text);
    }
    add_size(p, "end", json_object_get(tree, "end_bytes"));
    page_fact_end(p);
}

static void put_floor(struct page *p, const json_t *tree)
{
    char first[TEXT_SIZE_MAX], last[TEXT_SIZE_MAX], growth[TEXT_SIZE_MAX], rate[CELL_MAX];
    const json_t *grown = json_object_get(tree, "growth_bytes");
    const json_t *per_min = json_object_get(tree, "rate_bytes_per_min");
    page_fact(p, "floor");
    if (summary_size(first, summary_at(tree, "floor_bytes", "first")) &&
        summary_size(last, summary_at(tree, "floor_bytes", "last")))
        page_addf(p, "%s → %s", first, last);
    if (json_is_integer(grown))
        page_addf(p, "growth %s", text_size_signed(growth, json_integer_value(grown)));
    if (json_is_number(per_min))
        page_addf(p, "rate %s", cell_rate_text(rate, json_number_value(per_min)));
    else if (json_is_integer(grown))
        page_addf(p, "too short to tell a rate");
    page_fact_end(p);
}

static void put_shared(struct page *p, const json_t *tree)
{
    char size[TEXT_SIZE_MAX];
    const char *text = summary_size(size, json_object_get(tree, "unique_bytes"));
    page_fact(p, "sharing");
    if (text)
        page_addf(p, "%s unique to one process", text);
    text = summary_size(size, json_object_get(tree, "shared_bytes"));
    if (text)
        page_addf(p, "%s shared, counted once", text);
    page_fact_end(p);
}

/* ---- roles, the largest, and the rest ---- */

/* "20 compile workers (up to 398 MiB each, 3.10 GiB unique)" */
static void put_role(struct page *p, const json_t *role)
{
    char name[TEXT_MAX], size[TEXT_SIZE_MAX], figures[TEXT_MAX] = "";
    long long count = json_integer_value(json_object_get(role, "count"));
    const char *text = summary_size(size, json_object_get(role, "largest_bytes"));
    if (text)
        snprintf(figures, sizeof figures, count == 1 ? "%s" : "up to %s each", text);
    text = count == 1 ? NULL : summary_size(size, json_object_get(role, "unique_bytes"));
    size_t len = strlen(figures);
    if (text)
        snprintf(figures + len, sizeof figures - len, "%s%s unique", len ? ", " : "", text);
    summary_fit(name, 24, json_object_get(role, "role"));
    len = strlen(name);
    bool takes_s =
        count != 1 && len > 2 && strcmp(name + len - 2, "er") == 0 && strcmp(name, "other") != 0;
    page_addf(p, "%lld %s%s%s%s%s", count, name, takes_s ? "s" : "", figures[0] ? " (" : "",
              figures, figures[0] ? ")" : "");
}

static void put_roles(struct page *p, const json_t *doc)
{
    const json_t *roles = json_object_get(doc, "roles");
    const json_t *seen = json_object_get(doc, "processes_seen");
    size_t i;
    const json_t *role;
    page_fact(p, "processes");
    if (json_is_integer(seen))
        page_addf(p, "%lld in all", (long long)json_integer_value(seen));
    json_array_foreach(roles, i, role)
    {
        put_role(p, role);
    }
    page_fact_end(p);
}

static void put_largest(struct page *p, const json_t *doc)
{
    const json_t *largest = json_object_get(doc, "largest");
    char name[TEXT_MAX], role[TEXT_MAX], size[TEXT_SIZE_MAX];
    const char *peak = summary_size(size, json_object_get(largest, "peak_bytes"));
    if (!peak)
        return;
    page_fact(p, "largest");
    page_addf(p, "%s in %s %lld (%s)", peak,
              summary_fit(name, 30, json_object_get(largest, "name")),
              (long long)json_integer_value(json_object_get(largest, "pid")),
              summary_fit(role, 24, json_object_get(largest, "role")));
    page_fact_end(p);
}

/* The user's own limit has no place that says more than its name. */
static const char *limit_place(char out[TEXT_MAX], const json_t *doc, const json_t *limit)
{
    const json_t *guard = json_object_get(doc, "guard");
    bool is_own =
        json_is_true(json_object_get(guard, "limit_is_given")) &&
        json_equal(json_object_get(guard, "limit_bytes"), json_object_get(limit, "limit_bytes"));
    return is_own ? "--limit" : summary_fit(out, 40, json_object_get(limit, "where"));
}

static void put_ask(struct page *p, const json_t *doc)
{
    char size[TEXT_SIZE_MAX], limit[TEXT_SIZE_MAX], room[TEXT_SIZE_MAX], where[TEXT_MAX];
    const json_t *l = json_object_get(doc, "limit");
    const char *ask = summary_size(size, json_object_get(doc, "ask_bytes"));
    if (ask) {
        char text[TEXT_MAX];
        page_fact(p, "next time");
        snprintf(text, sizeof text, "ask for %s", ask);
        page_add(p, STYLE_STRONG, text);
    } else {
        page_fact(p, "limit");
    }
    if (summary_size(limit, json_object_get(l, "limit_bytes")))
        page_addf(p, ask ? "the limit is %s (%s)" : "%s (%s)", limit, limit_place(where, doc, l));
    if (summary_size(room, json_object_get(l, "headroom_bytes")))
        page_addf(p, "head-room %s", room);
    page_fact_end(p);
}

static void put_gpus(struct page *p, const json_t *doc)
{
    const json_t *gpus = json_object_get(doc, "gpus");
    char label[TEXT_MAX], name[TEXT_MAX], a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX];
    size_t i;
    const json_t *gpu;
    json_array_foreach(gpus, i, gpu)
    {
        if (i == GPUS_SHOWN)
            break;
        const json_t *job = json_object_get(gpu, "job_peak_bytes");
        snprintf(label, sizeof label, "gpu %zu", i);
        page_fact(p, label);
        if (summary_fit(name, 40, json_object_get(gpu, "name"))[0])
            page_add(p, STYLE_PLAIN, name);
        add_size(p, "this job at most", job ? job : json_object_get(gpu, "job_bytes"));
        if (summary_size(a, json_object_get(gpu, "used_bytes")) &&
            summary_size(b, json_object_get(gpu, "total_bytes")))
            page_addf(p, "%s of %s used at the end", a, b);
        if (i + 1 == GPUS_SHOWN && json_array_size(gpus) > GPUS_SHOWN)
            page_addf(p, "and %zu more GPUs", json_array_size(gpus) - GPUS_SHOWN);
        page_fact_end(p);
    }
}

/* As one would type it from here. */
static const char *relative_path(const char *path)
{
    char cwd[PATH_MAX];
    size_t len = getcwd(cwd, sizeof cwd) ? strlen(cwd) : 0;
    if (len > 1 && strncmp(path, cwd, len) == 0 && path[len] == '/' && path[len + 1])
        return path + len + 1;
    return path;
}

static void put_recording(struct page *p, const json_t *doc)
{
    char size[TEXT_SIZE_MAX], text[TEXT_MAX];
    const char *dir = json_string_value(json_object_get(doc, "run_dir"));
    const json_t *error = summary_at(doc, "recording", "error");
    const json_t *lost = summary_at(doc, "recording", "blocks_lost");
    if (!dir)
        return;
    page_fact(p, "recording");
    struct buf path = {0};
    const char *shown = relative_path(dir);
    text_escape(&path, shown, strlen(shown));
    const char *bytes = summary_size(size, summary_at(doc, "recording", "bytes"));
    page_addf(p, bytes ? "%s (%s)" : "%s", buf_str(&path), bytes);
    buf_fini(&path);
    if (json_is_string(error)) {
        char sentence[TEXT_MAX + 32];
        snprintf(sentence, sizeof sentence, "not complete: %s", summary_fit(text, 60, error));
        page_add(p, STYLE_BAD, sentence);
    }
    if (has_size(lost))
        page_addf(p, "%lld blocks lost", (long long)json_integer_value(lost));
    page_fact_end(p);
}

static void put_cost(struct page *p, const json_t *doc)
{
    char size[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    const json_t *cost = json_object_get(doc, "cost");
    const json_t *cpu = json_object_get(cost, "cpu_s");
    const json_t *share = json_object_get(cost, "cpu_permyriad");
    const json_t *longest = json_object_get(cost, "longest_unique_call_ms");
    if (!json_is_number(cpu))
        return;
    page_fact(p, "ebb cost");
    text_duration(time, seconds_to_ns(json_number_value(cpu)));
    if (json_is_number(share))
        page_addf(p, "%s CPU (%.2f %%)", time, json_number_value(share) / 100.0);
    else
        page_addf(p, "%s CPU", time);
    if (summary_size(size, json_object_get(cost, "rss_bytes")))
        page_addf(p, "%s", size);
    if (json_is_number(longest) && json_number_value(longest) > 0)
        page_addf(p, "longest look at its pages %s",
                  text_duration(time, seconds_to_ns(json_number_value(longest) / 1000)));
    page_fact_end(p);
}

void summary_text(struct buf *out, const json_t *doc, bool colour, int width)
{
    int columns = width <= 0 ? WIDTH_DEFAULT : width;
    columns = columns < WIDTH_MIN ? WIDTH_MIN : columns > WIDTH_MAX ? WIDTH_MAX : columns;
    struct page p = {.out = out, .is_coloured = colour, .width = (size_t)columns};
    const json_t *tree = json_object_get(doc, "tree");
    put_end(&p, doc);
    summary_cause(&p, doc);
    verdict_summary(&p, doc);
    heap_summary(&p, doc);
    if (json_is_integer(json_object_get(tree, "peak_bytes"))) {
        put_memory(&p, tree);
        put_floor(&p, tree);
        put_shared(&p, tree);
    }
    if (json_array_size(json_object_get(doc, "roles")) > 0)
        put_roles(&p, doc);
    put_largest(&p, doc);
    summary_processes(&p, doc);
    put_ask(&p, doc);
    put_gpus(&p, doc);
    summary_guard(&p, doc);
    put_recording(&p, doc);
    put_cost(&p, doc);
    diagnose_summary(&p, doc);
}
