/* `ebb compare`: fails if the second run grows faster or peaks higher than the first. */
#include <errno.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/csv_options.h"
#include "cli/report_read.h"
#include "present/document.h"
#include "present/report.h"

/* exit statuses, as in `ebb verdict` */
enum { NOT_WORSE = 0, WORSE = 1, NOT_KNOWN = 3 };

struct compare_options {
    struct csv_options csv;
    struct quantity_size peak;
    bool json, markdown;
};

struct gate {
    struct report base, head;
    struct comparison compared;
    bool has_worse_growth, has_worse_peak;
    char peak[200]; /* the peaks of both runs, as text */
    int status;
};

static enum verdict_leak leak_of(const struct report *r)
{
    const struct judged *job = report_verdict(r);
    return job ? job->result.leak : VERDICT_LEAK_UNKNOWN;
}

static void judge_peak(struct gate *g, const struct quantity_size *allowed)
{
    char a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX], more[TEXT_SIZE_MAX];
    uint64_t base = report_peak(&g->base), head = report_peak(&g->head);
    uint64_t room = quantity_bytes(allowed, base);
    if (!base || !head) {
        snprintf(g->peak, sizeof g->peak, "the peak of the %s run is unknown",
                 base ? "second" : "first");
        return;
    }
    g->has_worse_peak = head > base && head - base > room;
    int len = snprintf(g->peak, sizeof g->peak, "peak before: %s, after: %s", text_size(a, base),
                       text_size(b, head));
    if (g->has_worse_peak)
        snprintf(g->peak + len, sizeof g->peak - (size_t)len, "; allowed increase: %s",
                 text_size(more, room));
}

/* HEAD is also worse if it leaks and BASE does not, even if the confidence intervals of their
 * growth rates overlap. */
static void gate_decide(struct gate *g, const struct quantity_size *peak)
{
    enum verdict_leak base = leak_of(&g->base), head = leak_of(&g->head);
    report_compare(&g->base, &g->head, &g->compared);
    g->has_worse_growth =
        g->compared.answer == ANSWER_WORSE || (base == VERDICT_LEAK_NO && head == VERDICT_LEAK_YES);
    judge_peak(g, peak);
    bool is_open =
        g->compared.answer == ANSWER_UNKNOWN || !report_peak(&g->base) || !report_peak(&g->head);
    g->status = g->has_worse_growth || g->has_worse_peak ? WORSE : is_open ? NOT_KNOWN : NOT_WORSE;
}

/* ---- output ---- */

static const char *gate_word(const struct gate *g)
{
    return g->status == WORSE ? "worse" : g->status == NOT_KNOWN ? "undecided" : "not worse";
}

static json_t *gate_json(const struct gate *g)
{
    json_t *doc = report_compare_json(&g->compared, &g->base, &g->head);
    json_t *gate =
        json_pack("{s:s, s:b, s:b, s:s}", "result", gate_word(g), "growth_is_worse",
                  g->has_worse_growth, "peak_is_worse", g->has_worse_peak, "peak", g->peak);
    if (!doc || json_object_set_new(doc, "gate", gate) < 0) {
        json_decref(doc);
        return NULL;
    }
    return doc;
}

static void gate_document(struct doc *d, const struct gate *g)
{
    doc_headline(d, NULL);
    doc_textf(d,
              g->status == WORSE       ? TONE_BAD
              : g->status == NOT_KNOWN ? TONE_OPEN
                                       : TONE_GOOD,
              "%s", gate_word(g));
    doc_textf(d, TONE_PLAIN, ": %s",
              g->has_worse_peak && !g->has_worse_growth ? "The peak is higher."
                                                        : g->compared.sentence);
    for (size_t i = 0; i < g->compared.reason_count; i++) {
        doc_point(d, POINT_PLAIN);
        doc_text(d, TONE_PLAIN, g->compared.reasons[i]);
    }
    doc_point(d, POINT_PLAIN);
    doc_text(d, TONE_PLAIN, g->peak);
}

static int gate_print(const struct gate *g, const struct compare_options *o)
{
    struct doc d = {0};
    struct buf out = {0};
    if (o->json)
        return cli_print_json(gate_json(g));
    gate_document(&d, g);
    if (!o->markdown)
        return cli_print_doc(&d);
    report_compare_document(&d, &g->compared, &g->base, &g->head);
    doc_markdown(&out, &d, report_cwd(&g->head));
    buf_add_byte(&out, '\n');
    doc_fini(&d);
    return cli_print(&out);
}

static int compare_exec(const struct cli_call *call, struct err *err)
{
    const struct compare_options *o = call->options;
    struct gate g = {0};
    if (o->json && o->markdown)
        return err_set(err, -EINVAL, "several formats given; use --json or --markdown");
    int r = report_read_pair(call->argv, &o->csv, &g.base, &g.head, err);
    if (r == 0) {
        gate_decide(&g, &o->peak);
        r = gate_print(&g, o);
    }
    report_fini(&g.base);
    report_fini(&g.head);
    return r ? r : g.status;
}

#define AT(member) offsetof(struct compare_options, member)
static const struct option_desc options_table[] = {
    OPTION_ROW(0, "peak", SIZE, "SIZE|N%", AT(peak), .fallback = "10%",
               .help = "allowed increase of the peak; N% is a percentage of BASE's peak"),
    OPTION_ROW(0, "json", FLAG, NULL, AT(json), .help = "print the comparison as JSON"),
    OPTION_ROW(0, "markdown", FLAG, NULL, AT(markdown),
               .help = "print both runs side by side as Markdown"),
    CSV_OPTION_ROWS(struct compare_options, csv),
    {0},
};

const struct cli_command cmd_compare = {
    .name = "compare",
    .operands = "BASE HEAD",
    .summary = "fail if a run grows faster or peaks higher than a base run",
    .description =
        "BASE and HEAD are run folders, recordings or CSV tables of the same program before and "
        "after a change. HEAD is worse if it leaks and BASE does not, if it grows faster and the "
        "confidence intervals of both growth rates do not overlap, or if its peak is higher by "
        "more than --peak. `ebb report --compare` shows both runs on a page.\n"
        "\n"
        "The exit status is 0 if HEAD is not worse, 1 if it is worse, 3 if that is undecided, "
        "and 2 if a run cannot be read.",
    .examples = "ebb compare ebb-runs/main ebb-runs/branch\n"
                "ebb compare --peak 500M --markdown main.ebb branch.ebb\n",
    .options = options_table,
    .options_size = sizeof(struct compare_options),
    .exec = compare_exec,
};
