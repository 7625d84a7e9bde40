/* Reads a run on several nodes and prints it. */
#include "cli/cluster_read.h"

#include <errno.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/csv_options.h"
#include "cli/report_read.h"
#include "cli/run_end.h"
#include "present/cluster.h"
#include "present/document.h"
#include "present/verdict.h"

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
    /* the reader needs no details about flat memory */
    bool is_flat =
        worst && (worst->result.word == VERDICT_STABLE || worst->result.word == VERDICT_SPIKING);
    if (worst && worst->result.leak == VERDICT_LEAK_NO)
        run_end_earlier(path, c->job.name, &ret->earlier);
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
