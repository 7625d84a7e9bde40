/* Renders a run on several nodes. */
#include "present/cluster.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#include "base/text.h"
#include "judge/cluster.h"
#include "present/cells.h"
#include "present/document.h"
#include "present/summary.h"
#include "present/verdict.h"

enum { RANKS_SHOWN = 16, NODES_NAMED = 4, REASONS_SHOWN = 3, HOST_COLUMNS = 40 };

/* ---- nodes ---- */

static bool is_absent(const struct cluster_node *n)
{
    return n->state == NODE_LOST || n->state == NODE_SILENT;
}

static void put_node_name(struct doc *d, enum doc_tone tone, const struct cluster_node *n)
{
    doc_textf(d, tone, "%u", n->number);
    if (n->host) {
        doc_text(d, tone, " (");
        doc_name(d, tone, n->host, strlen(n->host), HOST_COLUMNS);
        doc_text(d, tone, ")");
    }
}

static void put_last_step(struct doc *d, const struct cluster_node *n)
{
    const struct run *run = n->follow.run;
    if (run && run->has_step)
        doc_textf(d, TONE_PLAIN, " at step %lld", (long long)run->step);
    else if (n->beat.has_step)
        doc_textf(d, TONE_PLAIN, " at step %lld", (long long)n->beat.step);
}

/* Adds a headline for nodes that died or stopped reporting. Returns true if there are any. */
static bool put_absent_nodes(struct doc *d, const struct cluster *c, const char *label)
{
    size_t absent = cluster_count(c, NODE_LOST) + cluster_count(c, NODE_SILENT), named = 0;
    if (!absent)
        return false;
    doc_headline(d, label);
    if (absent > 1)
        doc_textf(d, TONE_BAD, "%zu of %zu nodes stopped reporting", absent, c->n_nodes);
    for (size_t i = 0; i < c->n_nodes; i++) {
        const struct cluster_node *n = &c->nodes[i];
        if (!is_absent(n) || named++ >= NODES_NAMED)
            continue;
        enum doc_tone tone = absent > 1 ? TONE_PLAIN : TONE_BAD;
        doc_text(d, tone, absent == 1 ? "node " : named == 1 ? ": " : ", ");
        put_node_name(d, tone, n);
        if (absent == 1)
            doc_text(d, TONE_BAD,
                     n->state == NODE_LOST ? ": its supervisor was killed" : " stopped reporting");
        put_last_step(d, n);
    }
    if (named > NODES_NAMED)
        doc_textf(d, TONE_PLAIN, " and %zu more", named - NODES_NAMED);
    return true;
}

/* Adds the number of nodes in each state, and the problems of single nodes. */
static void put_nodes(struct doc *d, const struct cluster *c)
{
    size_t named = 0;
    doc_fact(d, "nodes");
    for (int state = 0; state < NODE_STATES; state++) {
        size_t n = cluster_count(c, (enum cluster_state)state);
        enum doc_tone tone = state == NODE_RUNNING || state == NODE_ENDED ? TONE_PLAIN : TONE_BAD;
        if (n)
            doc_itemf(d, tone, "%zu %s", n, cluster_state_name((enum cluster_state)state));
    }
    if (c->trouble.text[0])
        doc_itemf(d, TONE_OPEN, "%s", c->trouble.text);
    for (size_t i = 0; i < c->n_nodes; i++) {
        const struct cluster_node *n = &c->nodes[i];
        if ((!n->is_duplicate && !n->trouble.text[0]) || named++ >= NODES_NAMED)
            continue;
        doc_item(d);
        doc_text(d, TONE_OPEN, "node ");
        put_node_name(d, TONE_OPEN, n);
        doc_textf(d, TONE_OPEN, ": %s",
                  n->is_duplicate ? "several folders have this node number; only the first is read"
                                  : n->trouble.text);
    }
}

/* ---- ranks ---- */

static const struct verdict_interval *rank_rate(const struct cluster *c,
                                                const struct verdict_result *r)
{
    return c->peers.by_step ? &r->rate_bytes_per_step : &r->rate_bytes_per_min;
}

static void put_rank(struct doc *d, const struct cluster *c, const struct cluster_rank *r)
{
    const struct cluster_node *n = &c->nodes[r->node];
    const struct verdict_result *v = &r->judged.result;
    const struct verdict_interval *rate = rank_rate(c, v);
    char cell[CELL_MAX];
    doc_row(d);
    if (r->has_number)
        doc_cellf(d, r->place.differs ? TONE_STRONG : TONE_PLAIN, "%lld", (long long)r->number);
    else
        doc_cell(d, TONE_PLAIN, "–");
    doc_cellf(d, TONE_PLAIN, "%u", n->number);
    if (r->has_judged)
        doc_cell(d, verdict_tone(v), verdict_word_name(v->word));
    else
        doc_cell(d, TONE_DIM, "not judged");
    double least = c->peers.by_step ? v->detectable_per_step : v->detectable_per_min;
    doc_cell(
        d, TONE_PLAIN,
        cell_rate(cell, r->has_judged && rate->known, fabs(rate->value) < least ? 0 : rate->value));
    doc_cell(
        d, TONE_PLAIN,
        cell_known(cell, r->has_judged && v->has_floor, (uint64_t)fmax(0, v->floor_last_bytes)));
    doc_cell(d, TONE_PLAIN, cell_known(cell, r->peak_bytes, r->peak_bytes));
    doc_cell(d, TONE_PLAIN, cell_known(cell, r->gpu_peak_bytes, r->gpu_peak_bytes));
    if (r->place.is_compared)
        doc_cellf(d, TONE_PLAIN, r->place.score < 100 ? "%.1f" : "%.0f",
                  fabs(r->place.score) < 0.05 ? 0 : r->place.score);
    else
        doc_cell(d, TONE_PLAIN, "–");
    doc_cell(d, TONE_PLAIN, "");
    if (is_absent(n) || n->state == NODE_UNREADABLE)
        doc_textf(d, TONE_BAD, "node %s", cluster_state_name(n->state));
    else if (r->has_status && r->status != 0)
        doc_textf(d, TONE_BAD, "exited with status %lld", (long long)r->status);
    else if (r->place.differs)
        doc_text(d, TONE_STRONG, "outlier");
}

static void put_median(struct doc *d, const struct cluster *c)
{
    char cell[CELL_MAX];
    doc_row(d);
    doc_cell(d, TONE_DIM, "median");
    doc_cell(d, TONE_PLAIN, "");
    doc_cell(d, TONE_PLAIN, "");
    doc_cell(d, TONE_DIM, cell_rate(cell, c->peers.count, c->peers.median));
    doc_cell(d, TONE_DIM, cell_known(cell, true, (uint64_t)fmax(0, c->median_floor_bytes)));
    doc_cell(d, TONE_DIM, cell_known(cell, true, (uint64_t)fmax(0, c->median_peak_bytes)));
    doc_cell(d, TONE_PLAIN, "");
    doc_cell(d, TONE_PLAIN, "");
    doc_cell(d, TONE_PLAIN, "");
    doc_textf(d, TONE_DIM, "spread %s", cell_rate(cell, c->peers.count, c->peers.spread));
}

void cluster_tables(struct doc *d, const struct cluster *c, size_t most)
{
    const struct doc_column columns[] = {
        {.title = "RANK", .is_number = true},
        {.title = "NODE", .is_number = true, .priority = 2},
        {.title = "VERDICT"},
        {.title = c->peers.by_step ? "RATE/step" : "RATE/min", .is_number = true, .priority = 1},
        {.title = "BASE", .is_number = true, .priority = 4},
        {.title = "PEAK", .is_number = true, .priority = 3},
        {.title = "GPU", .is_number = true, .priority = 5},
        {.title = "Z", .is_number = true, .priority = 6},
        {.title = "", .least = 12},
    };
    size_t shown = c->n_ranks < most ? c->n_ranks : most;
    if (c->n_ranks) {
        doc_table(d, NULL, "table of ranks", columns, sizeof columns / sizeof *columns);
        for (size_t i = 0; i < shown; i++)
            put_rank(d, c, &c->ranks[i]);
        if (c->peers.count > 1)
            put_median(d, c);
        if (c->n_ranks > shown) {
            doc_para(d, TONE_DIM);
            doc_textf(d, TONE_DIM, "and %zu more ranks", c->n_ranks - shown);
        }
    }
    put_nodes(d, c);
}

static void put_rate(struct doc *d, double rate, const char *unit)
{
    char size[TEXT_SIZE_MAX];
    doc_textf(d, TONE_PLAIN, " %s%s/%s", rate < 0 ? "-" : "+", text_about_size(size, fabs(rate)),
              unit);
}

/* Adds the worst rank and the median in one line. */
static void put_ranks_brief(struct doc *d, const struct cluster *c)
{
    char size[TEXT_SIZE_MAX];
    const char *unit = c->peers.by_step ? "step" : "min";
    doc_fact(d, "ranks");
    if (c->has_worst && c->ranks[0].has_number) {
        const struct cluster_rank *w = &c->ranks[0];
        const struct verdict_result *v = &w->judged.result;
        const struct verdict_interval *rate = rank_rate(c, v);
        doc_itemf(d, TONE_PLAIN, "%lld on node %u", (long long)w->number, c->nodes[w->node].number);
        if (rate->known)
            put_rate(d, rate->value, unit);
        if (v->has_floor)
            doc_textf(d, TONE_PLAIN, " at %s", text_about_size(size, v->floor_last_bytes));
        if (w->place.differs)
            doc_text(d, TONE_STRONG, ", an outlier");
    }
    const struct cluster_rank *first;
    size_t failed = cluster_failed_ranks(c, &first);
    if (failed) {
        doc_itemf(d, TONE_BAD, "rank %lld exited with status %lld", (long long)first->number,
                  (long long)first->status);
        if (failed > 1)
            doc_textf(d, TONE_BAD, ", the first of %zu failed ranks", failed);
    }
    if (c->peers.count > 1) {
        doc_itemf(d, TONE_PLAIN, "median");
        put_rate(d, c->peers.median, unit);
        doc_textf(d, TONE_PLAIN, " at %s", text_about_size(size, c->median_floor_bytes));
    }
}

/* ---- the lead ---- */

/* True if SIGTERM or SIGKILL ended the job on this node. The signal may be a consequence of a
 * failure elsewhere, because launchers end all nodes when one has failed. */
static bool is_ended_from_outside(const struct outcome_end *end)
{
    return end->cause_kind && strcmp(end->cause_kind, "signal") == 0 && end->has_signal_number &&
           (end->signal_number == SIGTERM || end->signal_number == SIGKILL);
}

/* Returns the outcome that is reported for the whole job. It is the outcome of the first node that
 * failed by itself, else of the first node that failed, else of the first node with an outcome. */
static const struct outcome *outcome_of_job(const struct cluster *c)
{
    const struct outcome *failed = NULL;
    for (size_t i = 0; i < c->n_nodes; i++) {
        const struct outcome *o = &c->nodes[i].outcome;
        if (!c->nodes[i].has_outcome || is_absent(&c->nodes[i]))
            continue;
        if (summary_has_failed(o) && !is_ended_from_outside(&o->end))
            return o;
        failed = !failed && summary_has_failed(o) ? o : failed;
    }
    if (failed)
        return failed;
    for (size_t i = 0; i < c->n_nodes; i++)
        if (c->nodes[i].has_outcome && !is_absent(&c->nodes[i]))
            return &c->nodes[i].outcome;
    return NULL;
}

static struct summary summary_of_job(const struct cluster *c, const struct summary *worst)
{
    struct summary s = worst ? *worst : (struct summary){0};
    s.outcome = outcome_of_job(c);
    s.verdicts = &c->verdicts;
    return s;
}

void cluster_lead(struct doc *d, const struct cluster *c, const struct summary *worst,
                  const char *label)
{
    const struct summary s = summary_of_job(c, worst);
    if (put_absent_nodes(d, c, label))
        label = label ? "" : NULL;
    if (!c->n_nodes || cluster_count(c, NODE_MISSING) == c->n_nodes) {
        doc_headline(d, label);
        doc_text(d, TONE_OPEN, "undecided");
        doc_text(d, TONE_PLAIN, ": no node has written anything yet");
        return;
    }
    summary_lead(d, &s, label);
}

/* ---- the request ---- */

/* Returns the memory request of the node that needs the most memory. */
static struct request request_of_job(const struct cluster *c, const struct summary *worst)
{
    struct request most = {0};
    for (size_t i = 0; i < c->n_nodes; i++) {
        const struct cluster_node *n = &c->nodes[i];
        const struct verdicts *v = &n->verdicts;
        const struct summary s = {.outcome = &n->outcome,
                                  .verdicts = v->has_job ? v : NULL,
                                  .earlier = worst ? worst->earlier : NULL,
                                  .planned_steps = worst ? worst->planned_steps : 0};
        struct request r = n->has_outcome ? summary_request(&s) : (struct request){0};
        if (r.bytes > most.bytes || (r.is_leak && !most.is_leak))
            most = r;
    }
    if (c->job.launcher && strcmp(c->job.launcher, "slurm") == 0)
        most.words = REQUEST_SLURM;
    most.is_per_node = true;
    return most;
}

/* ---- the summaries ---- */

static void add_job_end(struct buf *out, const struct cluster *c)
{
    const struct outcome *longest = outcome_of_job(c);
    for (size_t i = 0; i < c->n_nodes; i++) {
        const struct outcome *o = &c->nodes[i].outcome;
        if (longest && c->nodes[i].has_outcome && !is_absent(&c->nodes[i]) &&
            o->measured.duration_s > longest->measured.duration_s)
            longest = o;
    }
    if (longest && longest->has_end)
        summary_add_end(out, longest);
}

static void put_job_run(struct doc *d, const struct cluster *c)
{
    struct buf text = {0};
    add_job_end(&text, c);
    doc_fact(d, "recording");
    doc_itemf(d, TONE_PLAIN, "%s", summary_path(c->path));
    if (text.len)
        doc_itemf(d, TONE_PLAIN, "%s", buf_str(&text));
    buf_fini(&text);
}

static void put_job_next(struct doc *d, const struct cluster *c, const struct summary *worst)
{
    const struct summary s = summary_of_job(c, worst);
    const char *code = summary_code(&s);
    struct buf operand = {0};
    summary_add_operand(&operand, c->path);
    doc_fact(d, "next");
    doc_textf(d, TONE_STRONG, "ebb report%s", buf_str(&operand));
    if (c->has_worst && c->ranks[0].has_number && c->ranks[0].judged.result.leak != VERDICT_LEAK_NO)
        doc_textf(d, TONE_PLAIN, " · ebb heap%s --rank %lld", buf_str(&operand),
                  (long long)c->ranks[0].number);
    if (code)
        doc_textf(d, TONE_PLAIN, " · ebb explain %s", code);
    buf_fini(&operand);
}

/* True if the job is healthy and complete, so that a summary of two lines is enough. */
static bool is_fine(const struct cluster *c)
{
    const struct judged *worst = verdict_worst(&c->verdicts);
    const struct outcome *o = outcome_of_job(c);
    return worst && worst->result.leak == VERDICT_LEAK_NO && o && !summary_has_failed(o) &&
           cluster_count(c, NODE_ENDED) == c->n_nodes && !c->trouble.text[0];
}

void cluster_brief(struct doc *d, const struct cluster *c, const struct summary *worst)
{
    struct buf text = {0};
    const struct judged *bad = verdict_worst(&c->verdicts);
    cluster_lead(d, c, worst, "ebb");
    if (is_fine(c)) {
        doc_headline(d, "");
        buf_printf(&text, "%zu nodes, ", c->n_nodes);
        add_job_end(&text, c);
        buf_add_str(&text, " · ");
        summary_add_show(&text, c->path, true);
        doc_text(d, TONE_PLAIN, buf_str(&text));
        buf_fini(&text);
        return;
    }
    put_ranks_brief(d, c);
    put_nodes(d, c);
    if (bad && bad->result.leak == VERDICT_LEAK_YES) {
        const struct request request = request_of_job(c, worst);
        request_put(d, &request);
    }
    put_job_run(d, c);
    put_job_next(d, c, worst);
}

void cluster_full(struct doc *d, const struct cluster *c, const struct summary *worst)
{
    const struct judged *bad = verdict_worst(&c->verdicts);
    cluster_lead(d, c, worst, NULL);
    size_t skip = bad && bad->result.word == VERDICT_UNDECIDED;
    for (size_t i = skip; bad && i < bad->n_reasons && i < skip + REASONS_SHOWN; i++) {
        doc_point(d, POINT_PLAIN);
        doc_text(d, TONE_PLAIN, bad->reasons[i]);
    }
    doc_space(d);
    cluster_tables(d, c, RANKS_SHOWN);
    const struct request request = request_of_job(c, worst);
    request_put(d, &request);
    put_job_run(d, c);
    put_job_next(d, c, worst);
}
