/* Sections of the page: processes, the guard, the machine. */
#include "present/report_html.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "present/html.h"

/* ---- processes ---- */

/* The verdict on the process of ROW; NULL: it was not judged. */
static const json_t *judged(const json_t *doc, const json_t *row)
{
    const json_t *list = json_object_get(json_object_get(doc, "verdict"), "processes"), *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        if (json_equal(json_object_get(one, "pid"), json_object_get(row, "pid")) &&
            json_equal(json_object_get(one, "start_ticks"), json_object_get(row, "start_ticks")))
            return one;
    }
    return NULL;
}

static void put_word(struct buf *out, const json_t *one)
{
    const char *word = report_string(one, "verdict");
    buf_printf(out, "<td class=\"%s\">", word ? report_tone(one) : "open");
    html_text0(out, word ? word : "–");
}

static void put_process(struct buf *out, const json_t *doc, const json_t *row)
{
    static const char *const sizes[] = {"peak_bytes", "rss_bytes",  "unique_bytes",
                                        "anon_bytes", "file_bytes", "shmem_bytes"};
    const json_t *verdict = judged(doc, row);
    const json_t *rate = json_object_get(json_object_get(verdict, "rate_bytes_per_min"), "value");
    char text[64], size[TEXT_SIZE_MAX];
    snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(row, "pid")));
    buf_add_str(out, "<tr>");
    html_cell(out, true, text);
    html_cell_json(out, json_object_get(row, "name"));
    html_cell_json(out, json_object_get(row, "role"));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const json_t *bytes = json_object_get(row, sizes[i]);
        if (!bytes && strcmp(sizes[i], "rss_bytes") == 0)
            bytes = json_object_get(row, "end_bytes"); /* as run.json calls it */
        html_cell(out, true, report_size(size, bytes));
    }
    html_cell(out, true, json_is_number(rate) ? report_signed(size, rate) : "–");
    put_word(out, verdict);
    buf_add_str(out, "<td class=wide>");
    html_command(out, json_object_get(row, "command"));
    buf_add_str(out, "\n");
}

/* The first are what one looks for; the rest can be opened, and is open on paper. */
enum { PROCESSES_SHOWN = 12, ACTS_SHOWN = 20 };

static void put_process_table(struct buf *out, const json_t *doc, const json_t *list, size_t from,
                              size_t until)
{
    buf_add_str(out,
                "<div class=scroll role=region aria-label=\"table of processes\" tabindex=0>\n"
                "<table>\n<thead><tr><th class=n>pid<th>name<th>role<th class=n>peak"
                "<th class=n>last<th class=n>of it unique<th class=n>anonymous<th class=n>files"
                "<th class=n>shared<th class=n>growth a minute<th>verdict<th>command\n"
                "</thead><tbody>\n");
    for (size_t i = from; i < until; i++)
        put_process(out, doc, json_array_get(list, i));
    buf_add_str(out, "</tbody></table></div>\n");
}

void html_processes(struct buf *out, const json_t *doc)
{
    const json_t *data = json_object_get(doc, "data"), *run = json_object_get(doc, "run");
    const json_t *from = json_is_object(data) ? data : run;
    const json_t *list = json_object_get(from, "processes");
    json_int_t seen = json_integer_value(json_object_get(from, "processes_seen"));
    size_t count = json_array_size(list), shown = count < PROCESSES_SHOWN ? count : PROCESSES_SHOWN;
    if (!count)
        return;
    buf_add_str(out, "<section id=processes>\n<h2>Processes</h2>\n");
    put_process_table(out, doc, list, 0, shown);
    if (count > shown) {
        buf_printf(out, "<details class=group><summary>%zu smaller ones</summary>\n",
                   count - shown);
        put_process_table(out, doc, list, shown, count);
        buf_add_str(out, "</details>\n");
    }
    if (seen > (json_int_t)count)
        buf_printf(out,
                   "<p class=quiet>%" JSON_INTEGER_FORMAT " in all; these are the largest.</p>\n",
                   seen);
    buf_add_str(out, "</section>\n");
}

/* ---- the guard ---- */

static void put_act(struct buf *out, const json_t *e)
{
    char time[TEXT_TIME_MAX];
    buf_add_str(out, "<tr>");
    html_cell(out, true, report_time(time, report_number(e, "t_s", -1)));
    html_cell_json(out, json_object_get(e, "act"));
    html_cell_json(out, json_object_get(e, "trigger"));
    html_cell_json(out, json_object_get(e, "why"));
    buf_add_byte(out, '\n');
}

static void put_number(struct buf *out, const json_t *v)
{
    char text[32] = "–";
    if (json_is_integer(v))
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    html_cell(out, true, text);
}

static void put_segment(struct buf *out, const json_t *s)
{
    char time[TEXT_TIME_MAX], size[TEXT_SIZE_MAX];
    buf_add_str(out, "<tr>");
    put_number(out, json_object_get(s, "segment"));
    html_cell(out, true, report_time(time, report_number(s, "duration_s", -1)));
    put_number(out, json_object_get(s, "first_step"));
    put_number(out, json_object_get(s, "last_step"));
    put_number(out, json_object_get(s, "checkpoint_step"));
    html_cell(out, true, report_size(size, json_object_get(s, "peak_bytes")));
    html_cell_json(out, json_object_get(s, "verdict"));
    html_cell_json(out, json_object_get(json_object_get(s, "end"), "cause"));
    buf_add_byte(out, '\n');
}

static void put_segments(struct buf *out, const json_t *list)
{
    const json_t *s;
    size_t i;
    if (json_array_size(list) < 2)
        return;
    buf_add_str(out, "<div class=scroll role=region aria-label=\"table of segments\" tabindex=0>\n"
                     "<table>\n<caption>The job was started again: its segments</caption>\n"
                     "<thead><tr><th class=n>segment<th class=n>time<th class=n>first step"
                     "<th class=n>last step<th class=n>saved at<th "
                     "class=n>peak<th>verdict<th>ended\n</thead><tbody>\n");
    json_array_foreach(list, i, s) put_segment(out, s);
    buf_add_str(out, "</tbody></table></div>\n");
}

static void put_act_table(struct buf *out, const json_t *events, size_t from, size_t until)
{
    buf_add_str(out, "<div class=scroll role=region aria-label=\"table of the guard's acts\" "
                     "tabindex=0>\n<table>\n"
                     "<thead><tr><th class=n>at<th>act<th>trigger<th>why\n</thead><tbody>\n");
    for (size_t i = from; i < until; i++)
        put_act(out, json_array_get(events, i));
    buf_add_str(out, "</tbody></table></div>\n");
}

static void put_acts(struct buf *out, const json_t *events, json_int_t seen)
{
    size_t count = json_array_size(events), from = count > ACTS_SHOWN ? count - ACTS_SHOWN : 0;
    if (!count)
        return;
    buf_add_str(out, "<h3>What it did</h3>\n");
    if (from) {
        buf_printf(out, "<details class=group><summary>%zu earlier acts</summary>\n", from);
        put_act_table(out, events, 0, from);
        buf_add_str(out, "</details>\n");
    }
    put_act_table(out, events, from, count);
    if (seen > (json_int_t)count)
        buf_printf(out,
                   "<p class=quiet>%" JSON_INTEGER_FORMAT " in all; these are the newest.</p>\n",
                   seen);
}

void html_guard(struct buf *out, const json_t *doc)
{
    const json_t *run = json_object_get(doc, "run"), *guard = json_object_get(run, "guard");
    const json_t *data = json_object_get(doc, "data"), *events = json_object_get(data, "guard");
    const json_t *segments = json_object_get(run, "segments");
    char size[TEXT_SIZE_MAX];
    if (!json_array_size(events))
        events = json_object_get(guard, "events");
    if (!json_array_size(events) && json_array_size(segments) < 2)
        return;
    buf_add_str(out, "<section id=guard>\n<h2>The guard</h2>\n");
    if (json_is_number(json_object_get(guard, "limit_bytes")))
        buf_printf(out, "<p>It defended %s%s.</p>\n",
                   report_size(size, json_object_get(guard, "limit_bytes")),
                   json_is_true(json_object_get(guard, "dry_run"))
                       ? ", and only said what it would do"
                       : "");
    put_segments(out, segments);
    put_acts(out, events, json_integer_value(json_object_get(data, "guard_seen")));
    buf_add_str(out, "</section>\n");
}

/* ---- the machine ---- */

static void put_limit(struct buf *out, const json_t *limit)
{
    char size[TEXT_SIZE_MAX], text[512];
    const char *where = report_string(limit, "where"), *kind = report_string(limit, "kind");
    if (!json_is_number(json_object_get(limit, "limit_bytes")))
        return;
    snprintf(text, sizeof text, "%s (%s%s%.300s)",
             report_size(size, json_object_get(limit, "limit_bytes")), kind ? kind : "limit",
             where ? ", " : "", where ? where : "");
    html_fact(out, "limit with the least room", text);
}

static void put_cost(struct buf *out, const json_t *cost)
{
    char time[TEXT_TIME_MAX], size[TEXT_SIZE_MAX], text[128];
    if (!json_is_object(cost))
        return;
    snprintf(text, sizeof text, "%s CPU (%.2f %% of one), %s resident",
             report_time(time, report_number(cost, "cpu_s", -1)),
             report_number(cost, "cpu_permyriad", 0) / 100,
             report_size(size, json_object_get(cost, "rss_bytes")));
    html_fact(out, "what ebb cost", text);
}

static void put_gpus(struct buf *out, const json_t *run)
{
    const json_t *gpu;
    size_t i;
    json_array_foreach(json_object_get(run, "gpus"), i, gpu)
    {
        char total[TEXT_SIZE_MAX], peak[TEXT_SIZE_MAX], text[256];
        const char *name = report_string(gpu, "name");
        snprintf(text, sizeof text, "%.96s, %s, by the job at most %s", name ? name : "GPU",
                 report_size(total, json_object_get(gpu, "total_bytes")),
                 report_size(peak, json_object_get(gpu, "job_peak_bytes")));
        html_fact(out, "GPU", text);
    }
}

static void put_versions(struct buf *out, const json_t *doc)
{
    json_t *versions = json_object_get(json_object_get(doc, "data"), "versions"), *v;
    const json_t *python =
        json_object_get(json_object_get(json_object_get(doc, "heap"), "cost"), "python");
    const char *key;
    if (!json_object_get(versions, "python"))
        html_fact(out, "Python", report_string(python, "version"));
    json_object_foreach(versions, key, v)
    {
        buf_add_str(out, "<div><dt>");
        html_text0(out, key);
        buf_add_str(out, "<dd>");
        html_json_text(out, v);
        buf_add_str(out, "</div>\n");
    }
}

void html_machine(struct buf *out, const json_t *doc)
{
    const json_t *run = json_object_get(doc, "run"), *header = json_object_get(doc, "header");
    const json_t *from = json_is_object(run) ? run : header;
    char text[64], size[TEXT_SIZE_MAX];
    buf_add_str(out, "<section id=machine>\n<h2>Machine and recording</h2>\n<dl class=facts>\n");
    html_fact(out, "host", report_string(from, "host"));
    html_fact(out, "kernel", report_string(from, "kernel"));
    html_fact(out, "architecture", report_string(header, "arch"));
    put_limit(out, json_object_get(from, "limit"));
    put_gpus(out, run);
    put_versions(out, doc);
    html_fact(out, "recorded by ebb", report_string(from, "ebb"));
    if (json_is_number(json_object_get(run, "interval_s"))) {
        snprintf(text, sizeof text, "%g s", report_number(run, "interval_s", 0));
        html_fact(out, "interval", text);
    }
    html_fact(out, "recording",
              report_size(size, json_object_get(json_object_get(run, "recording"), "bytes")));
    put_cost(out, json_object_get(run, "cost"));
    html_fact(out, "working directory", report_string(from, "cwd"));
    buf_add_str(out, "</dl>\n</section>\n");
}
