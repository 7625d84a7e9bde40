/* Request handlers that read a run folder: the recording, which child processes read, and
 * run.json. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "server/http/children.h"
#include "server/http/routes_private.h"
#include "server/jobs/jobs.h"

enum { RUN_JSON_MAX = 2 << 20, RUN_JSON_VALUES = 200000 };
/* Minimum time between two reads of the recording of a running job. The recording changes with
 * every sample, so without this limit every request would read it. */
static const uint64_t live_every_ns = 5 * NS_PER_S;

/* The report has inline styles and scripts. The sandbox lets the scripts run, but without the
 * rights of our origin. */
static const char report_policy[] =
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; font-src data:; frame-ancestors 'none'";

/* A request that waits for a child process. */
struct child_call {
    struct route_call *call;
    uint64_t stamp; /* version of the recording */
    struct child_waiter *waiter;
};

static void on_gone(void *user)
{
    struct child_call *a = user;
    if (a->waiter)
        child_waiter_cancel(a->waiter);
    free(a);
}

static void answer_child_error(struct http_request *r, int status, const char *error)
{
    if (status == -ETIMEDOUT)
        http_answer_error(r, 503, "reading the recording took more than a minute");
    else if (status == -EFBIG)
        http_answer_error(r, 503,
                          "the answer is too large; request a shorter range or fewer points");
    else if (status < 0 || status > 3)
        http_answer_error(r, 503, "cannot read the recording: %s",
                          status < 0 ? strerror(-status)
                                     : "the process that reads the recording crashed");
    else
        http_answer_error(r, 404, "%.500s", error);
}

static void answer_output(struct route_call *c, const char *output, size_t len)
{
    bool is_page = c->route->fn == route_job_report;
    if (is_page)
        http_add_header(c->r, "Content-Security-Policy", report_policy);
    http_answer_text(c->r, 200, is_page ? "text/html; charset=utf-8" : "application/json", output,
                     len);
}

/* Answers with the output of a child. `ebb verdict` exits with 0, 1 or 3 if there is a verdict; 2
 * means an error. */
static void on_child_done(void *user, int status, const char *output, size_t len)
{
    struct child_call *a = user;
    bool is_well = status == 0 || status == 1 || status == 3;
    if (!is_well || len == 0) {
        answer_child_error(a->call->r, status, output);
    } else {
        answer_output(a->call, output, len);
        route_cache_add(a->call, a->stamp, UINT64_MAX, output, len);
    }
    free(a);
}

/* Refuses a request, because the job has no run folder. */
static void answer_no_folder(struct route_call *c)
{
    enum job_state state = jobs_state(c->routes->options.jobs, c->id);
    http_answer_error(c->r, 404,
                      state == JOB_STATES         ? "no such job: %lld"
                      : job_state_is_final(state) ? "the run folder of job %lld was removed"
                                                  : "job %lld has not been started yet",
                      (long long)c->id);
}

/* ---- the recording ---- */

struct recording_reading {
    struct route_reading base;
    char command[128]; /* arguments of ebb, separated by spaces, without the run folder */
    bool has_folder;
    uint64_t stamp; /* version of the recording */
};

static void read_stamp(struct jobs_reading *base, int folder)
{
    struct recording_reading *r = (struct recording_reading *)base;
    struct stat st = {0};
    r->has_folder = folder >= 0;
    if (r->has_folder)
        fstatat(folder, "trace.ebb", &st, 0);
    r->stamp = ((uint64_t)st.st_size ^ (uint64_t)st.st_mtim.tv_sec * NS_PER_S ^
                (uint64_t)st.st_mtim.tv_nsec)
               << 1;
}

static void ask_child(struct route_reading *base)
{
    struct recording_reading *r = (struct recording_reading *)base;
    struct route_call *c = base->call;
    struct jobs *jobs = c->routes->options.jobs;
    const char *argv[16] = {NULL};
    char path[PATH_MAX], key[sizeof r->command + 48], *rest = r->command;
    struct err err = {""};
    if (!r->has_folder) {
        answer_no_folder(c);
        return;
    }
    if (!job_state_is_final(jobs_state(jobs, c->id)))
        r->stamp = clock_mono_ns() / live_every_ns * 2 + 1;
    const struct route_cached *cached = route_cache_find(c, r->stamp);
    if (cached) {
        answer_output(c, cached->text, cached->len);
        return;
    }
    struct child_call *a = calloc(1, sizeof *a);
    if (!a) {
        http_answer_error(c->r, 503, "out of memory");
        return;
    }
    snprintf(key, sizeof key, "%lld %llu %s", (long long)c->id, (unsigned long long)r->stamp,
             r->command);
    snprintf(path, sizeof path, "%s/%s", jobs_runs_path(jobs), base->base.folder.name);
    argv[0] = strsep(&rest, " ");
    argv[1] = path;
    for (size_t n = 2; rest; n++)
        argv[n] = strsep(&rest, " ");
    struct child_waiter *waiter = NULL;
    *a = (struct child_call){.call = c, .stamp = r->stamp};
    http_park(c->r, on_gone, NULL, a);
    int result = children_ask(c->routes->options.children, argv, key, http_rank(c->r) != HTTP_OWNER,
                              on_child_done, a, &waiter);
    if (result < 0) {
        free(a);
        err_set(&err, result,
                result == -EAGAIN ? "too many recordings are being read; try again later" : "%s",
                strerror(-result));
        route_fail(c->r, result, &err);
    } else if (waiter) { /* if WAITER is NULL, on_child_done has already freed A */
        a->waiter = waiter;
    }
}

/* Answers with the output of an `ebb` command, whose arguments are formatted by FMT. */
static void ask_recording(struct route_call *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void ask_recording(struct route_call *c, const char *fmt, ...)
{
    struct recording_reading *r = calloc(1, sizeof *r);
    if (r) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(r->command, sizeof r->command, fmt, ap);
        va_end(ap);
        r->base = (struct route_reading){.base = {.read = read_stamp}, .answer = ask_child};
    }
    route_read(c, r ? &r->base : NULL);
}

void route_job_samples(struct route_call *c)
{
    double from_s, to_s, points;
    if (!route_number(c->r, "from_s", 0, 1e9, 0, &from_s) ||
        !route_number(c->r, "to_s", 0, 1e9, 1e9, &to_s) ||
        !route_number(c->r, "points", 16, 4000, 600, &points))
        return;
    if (to_s <= from_s)
        http_answer_error(c->r, 400, "to_s must be greater than from_s");
    else if (to_s >= 1e9)
        ask_recording(c, "series --id %lld --from %.3f --points %d", (long long)c->id, from_s,
                      (int)points);
    else
        ask_recording(c, "series --id %lld --from %.3f --points %d --to %.3f", (long long)c->id,
                      from_s, (int)points, to_s);
}

void route_job_verdict(struct route_call *c)
{
    ask_recording(c, "verdict --json");
}

void route_job_diagnosis(struct route_call *c)
{
    ask_recording(c, "diagnose --json");
}

void route_job_report(struct route_call *c)
{
    ask_recording(c, "report --output -");
}

/* ---- run.json ---- */

struct run_json_reading {
    struct route_reading base;
    bool has_folder, has_file;
    struct buf text;
};

static void read_run_json(struct jobs_reading *base, int folder)
{
    struct run_json_reading *r = (struct run_json_reading *)base;
    r->has_folder = folder >= 0;
    r->has_file = folder >= 0 && io_read_plain(folder, "run.json", RUN_JSON_MAX, &r->text) == 0;
}

static void fini_run_json(struct route_reading *base)
{
    buf_fini(&((struct run_json_reading *)base)->text);
}

static void ask_run_json(struct route_call *c, void (*answer)(struct route_reading *r))
{
    struct run_json_reading *r = calloc(1, sizeof *r);
    if (r)
        r->base = (struct route_reading){
            .base = {.read = read_run_json}, .answer = answer, .fini = fini_run_json};
    route_read(c, r ? &r->base : NULL);
}

static void answer_run_json(struct route_reading *base)
{
    const struct run_json_reading *r = (struct run_json_reading *)base;
    struct route_call *c = base->call;
    if (!r->has_folder)
        answer_no_folder(c);
    else if (!r->has_file)
        http_answer_error(c->r, 404, "run.json of job %lld does not exist yet", (long long)c->id);
    else
        http_answer_text(c->r, 200, "application/json", r->text.data ? r->text.data : "",
                         r->text.len);
}

void route_job_run(struct route_call *c)
{
    ask_run_json(c, answer_run_json);
}

/* ---- events ---- */

/* Appends each object of LIST to EVENTS, with KIND as its member "kind". */
static void add_events(json_t *events, const json_t *list, const char *kind)
{
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        json_t *event = json_copy((json_t *)(uintptr_t)item);
        if (!json_is_object(event)) {
            json_decref(event);
            continue;
        }
        json_object_set_new(event, "kind", json_string(kind));
        json_array_append_new(events, event);
    }
}

static void answer_events(struct route_reading *base)
{
    const struct run_json_reading *r = (struct run_json_reading *)base;
    struct route_call *c = base->call;
    struct err err = {""};
    json_t *job = NULL, *run = NULL, *events = json_array();
    int result = jobs_get(c->routes->options.jobs, c->id, true, &job, &err);
    if (result < 0) {
        json_decref(events);
        route_fail(c->r, result, &err);
        return;
    }
    if (r->has_file && !json_is_crowded(r->text.data, r->text.len, RUN_JSON_VALUES))
        run = json_parse(r->text.data, r->text.len, NULL);
    add_events(events, json_object_get(json_object_get(run, "guard"), "events"), "guard");
    add_events(events, json_object_get(run, "segments"), "segment");
    add_events(events, json_object_get(job, "changes"), "state");
    json_decref(run);
    json_decref(job);
    route_answer_and_cache(c, 0, json_pack("{s:o}", "events", events), NULL);
}

/* Lists the events of a job. A job without a run folder still has state changes. */
void route_job_events(struct route_call *c)
{
    if (!route_answer_cached(c))
        ask_run_json(c, answer_events);
}
