/* Prints the summary at the end of a run, and the output of `ebb show`. */
#include "cli/run_end.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/report_read.h"
#include "present/cluster.h"
#include "present/document.h"
#include "present/junit.h"
#include "present/report.h"
#include "present/verdict.h"
#include "supervise/job_termination.h"

/* Returns true if memory is not flat. Its growth must then be explained from the recording. */
static bool is_to_explain(const struct verdicts *v)
{
    const struct judged *worst = verdict_worst(v);
    return worst && worst->result.word != VERDICT_STABLE && worst->result.word != VERDICT_SPIKING;
}

/* Returns true if the job used GPUs. The recording must then be read, because failed GPU requests
 * and fragmentation are not part of the verdict. */
static bool has_used_gpus(const json_t *doc)
{
    const json_t *list = json_object_get(json_object_get(doc, "heap"), "processes");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_object_get(json_array_get(list, i), "gpus"))
            return true;
    return false;
}

static void run_end_write(int fd, const char *option, const struct buf *text)
{
    int r = text->failed ? -ENOMEM : io_write_all(fd, text->data, text->len);
    if (close(fd) < 0 && r == 0)
        r = -errno;
    if (r < 0)
        cli_failf(0, "run: %s: cannot write the file: %s", option, strerror(-r));
}

/* Writes the summary into the termination log. Errors are ignored: there is nowhere to report them.
 */
static void run_end_write_termination(const struct summary *s, int fd)
{
    enum { WIDTH = 100 };
    struct buf text = {0};
    struct doc d = {0};
    summary_brief(&d, s);
    doc_terminal(&text, &d, false, WIDTH);
    if (!text.failed)
        (void)job_termination_write(fd, text.data, text.len);
    doc_fini(&d);
    buf_fini(&text);
    close(fd);
}

static void run_end_write_files(const struct summary *s, const struct run_end_output *to)
{
    struct buf text = {0};
    struct doc d = {0};
    if (to->junit_fd >= 0) {
        junit_write(&text, s);
        run_end_write(to->junit_fd, "--junit", &text);
        buf_fini(&text);
    }
    if (to->markdown_fd >= 0) {
        text = (struct buf){0};
        summary_brief(&d, s);
        doc_markdown(&text, &d, s->outcome->about.cwd);
        buf_add_byte(&text, '\n');
        run_end_write(to->markdown_fd, "--markdown", &text);
        doc_fini(&d);
        buf_fini(&text);
    }
    if (to->termination_fd >= 0)
        run_end_write_termination(s, to->termination_fd);
}

/* Adds the parts of the summary that run.json lacks: the growing call sites and the diagnosis. */
static void add_explanation(json_t *doc, const struct summary *s, const struct report *r)
{
    if (r->has_heap || r->has_gpu)
        json_object_set_new(json_object_get(doc, "heap"), "growing",
                            profile_rows_json(report_worst_heap(r), s->n_growing));
    if (s->diagnosis)
        json_object_set_new(doc, "diagnosis", diagnosis_brief_json(s->diagnosis));
}

static void print_ended(json_t *doc, const struct outcome *o, const struct run_end_output *to)
{
    const struct csv_options no_csv = {0};
    struct verdicts verdicts = {0};
    struct summary s = {.outcome = o, .verdicts = &verdicts};
    struct report r = {0};
    verdicts_read(json_object_get(doc, "verdict"), &verdicts);
    if (o->about.run_dir && (is_to_explain(&verdicts) || has_used_gpus(doc)) &&
        report_read(o->about.run_dir, &no_csv, true, &r, NULL) == 0) {
        s = report_summary(&r);
        s.planned_steps = run_planned_steps(r.recorded.run);
        s.outcome = o;
        s.verdicts = &verdicts;
    }
    if (!to->is_quiet && to->as_json) {
        add_explanation(doc, &s, &r);
        json_write(STDERR_FILENO, doc, 0);
    } else if (!to->is_quiet) {
        struct doc d = {0};
        summary_brief(&d, &s);
        (void)cli_write_doc(STDERR_FILENO, &d);
    }
    run_end_write_files(&s, to);
    report_fini(&r);
    verdicts_fini(&verdicts);
}

void run_end_print(json_t *doc, const struct run_end_output *to)
{
    struct outcome o = {0};
    if (outcome_read(doc, &o) < 0)
        return;
    const char *command = o.about.command_count ? o.about.command[0] : "";
    if (o.end.error && o.end.status == 125)
        cli_failf(0, "%s", o.end.error);
    else if (o.end.error)
        cli_failf(0, "\"%s\" cannot be executed: %s", command, o.end.error);
    struct run_end_output files = *to;
    files.is_quiet = to->is_quiet || o.end.error;
    if (!files.is_quiet || to->junit_fd >= 0 || to->markdown_fd >= 0 || to->termination_fd >= 0)
        print_ended(doc, &o, &files);
    outcome_fini(&o);
}

bool run_end_fails(const json_t *doc, const char *what)
{
    struct verdicts verdicts = {0};
    verdicts_read(json_object_get(doc, "verdict"), &verdicts);
    const struct judged *worst = verdict_worst(&verdicts);
    bool is_leak = worst && worst->result.leak == VERDICT_LEAK_YES;
    bool is_open = !worst || worst->result.leak == VERDICT_LEAK_UNKNOWN;
    verdicts_fini(&verdicts);
    return is_leak || (is_open && strcmp(what, "undecided") == 0);
}

/* ---- a run on several nodes ---- */

int cluster_read_all(const char *path, const struct run_settings *settings,
                     const struct judge_options *options, bool is_brief, struct cluster_read *ret,
                     struct err *err)
{
    const struct csv_options no_csv = {0};
    *ret = (struct cluster_read){0};
    int r = cluster_read(path, settings, options, &ret->cluster, err);
    if (r < 0)
        return r;
    const struct cluster *c = ret->cluster;
    const struct judged *worst = verdict_worst(&c->verdicts);
    /* flat memory needs no details */
    bool is_flat =
        worst && (worst->result.word == VERDICT_STABLE || worst->result.word == VERDICT_SPIKING);
    if (worst && worst->result.leak == VERDICT_LEAK_NO)
        earlier_read(path, &ret->earlier);
    ret->summary.earlier = &ret->earlier;
    if (c->worst_node >= c->n_nodes || (is_flat && is_brief))
        return 0;
    const struct cluster_node *n = &c->nodes[c->worst_node];
    ret->has_report = n->path && report_read(n->path, &no_csv, is_brief, &ret->report, NULL) == 0;
    if (ret->has_report) {
        ret->summary = report_summary(&ret->report);
        ret->summary.earlier = &ret->earlier;
        ret->summary.planned_steps = run_planned_steps(n->follow.run);
    }
    return 0;
}

void cluster_read_fini(struct cluster_read *r)
{
    report_fini(&r->report);
    cluster_free(r->cluster);
    *r = (struct cluster_read){0};
}

int cluster_print_end(int fd, const char *path, bool as_json)
{
    struct cluster_read read;
    struct err err = {""};
    struct doc d = {0};
    int r = cluster_read_all(path, NULL, NULL, true, &read, &err);
    if (r < 0) {
        cli_say("%s", err.text);
        return r;
    }
    if (as_json) {
        json_t *doc = cluster_json(read.cluster);
        r = doc ? json_write(fd, doc, 0) : -ENOMEM;
        json_decref(doc);
    } else {
        cluster_brief(&d, read.cluster, &read.summary);
        r = cli_write_doc(fd, &d);
    }
    cluster_read_fini(&read);
    return r;
}

int cluster_print(const char *path, const struct run_settings *settings,
                  const struct judge_options *options, bool as_json, enum verdict_leak *ret_leak,
                  struct err *err)
{
    struct cluster_read read;
    struct doc d = {0};
    int r = cluster_read_all(path, settings, options, !as_json, &read, err);
    if (r < 0)
        return r;
    if (!as_json)
        cluster_full(&d, read.cluster, &read.summary);
    r = as_json ? cli_print_json(cluster_json(read.cluster)) : cli_print_doc(&d);
    const struct judged *worst = verdict_worst(&read.cluster->verdicts);
    *ret_leak = worst ? worst->result.leak : VERDICT_LEAK_UNKNOWN;
    cluster_read_fini(&read);
    return r;
}

/* ---- ebb show ---- */

int run_end_show(const char *path, bool as_json, struct err *err)
{
    const struct csv_options no_csv = {0};
    enum verdict_leak leak;
    struct report report = {0};
    struct doc d = {0};
    if (cluster_is_folder(path))
        return cluster_print(path, NULL, NULL, as_json, &leak, err);
    int r = report_read(path, &no_csv, true, &report, err);
    struct summary s = report_summary(&report);
    json_t *doc = report.recorded.run_json;
    if (r == 0 && as_json && !doc) {
        r = err_set(err, -ENOENT, "%s has no run.json", path);
    } else if (r == 0 && as_json) {
        add_explanation(doc, &s, &report);
        r = cli_print_json(json_incref(doc));
    } else if (r == 0) {
        struct earlier earlier;
        earlier_read(path, &earlier);
        s.earlier = &earlier;
        s.planned_steps = run_planned_steps(report.recorded.run);
        summary_full(&d, &s);
        r = cli_print_doc(&d);
    }
    report_fini(&report);
    return r;
}
