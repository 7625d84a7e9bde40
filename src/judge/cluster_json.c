/* Writes the view of a multi-node job as JSON (docs/reference/verdict.md). */
#include <math.h>

#include "base/json.h"
#include "judge/cluster.h"
#include "verdict/verdict_json.h"

static json_t *known_bytes(uint64_t bytes)
{
    return bytes ? json_u64(bytes) : json_null();
}

static json_t *node_json(const struct cluster *c, const struct cluster_node *n)
{
    const struct verdicts *v = &n->verdicts;
    const struct outcome_measured *m = &n->outcome.measured;
    const struct run *run = n->follow.run;
    json_t *o = json_pack("{s:i,s:o,s:s}", "node", (int)n->number, "host", json_text0(n->host),
                          "state", cluster_state_name(n->state));
    size_t ranks = 0;
    for (size_t i = 0; i < c->n_ranks; i++)
        ranks += c->ranks[i].has_number && &c->nodes[c->ranks[i].node] == n;
    json_object_set_new(o, "folder", json_text0(n->path));
    json_object_set_new(o, "ranks", json_u64(ranks));
    json_object_set_new(o, "step",
                        run && run->has_step ? json_integer(run->step)
                        : n->beat.has_step   ? json_integer(n->beat.step)
                                             : json_null());
    json_object_set_new(o, "peak_bytes",
                        known_bytes(m->tree.series.has_peak_bytes ? m->tree.series.peak_bytes
                                    : run                         ? run_peak(run)
                                                                  : 0));
    json_object_set_new(o, "ask_bytes", known_bytes(m->has_ask_bytes ? m->ask_bytes : 0));
    json_object_set_new(o, "verdict",
                        v->has_job ? json_string(verdict_word_name(v->job.result.word))
                                   : json_null());
    json_object_set_new(o, "restarts", json_integer((json_int_t)n->part));
    json_object_set_new(o, "duplicate", json_boolean(n->is_duplicate));
    json_object_set_new(o, "error", n->trouble.text[0] ? json_text0(n->trouble.text) : json_null());
    return o;
}

static json_t *rank_json(const struct cluster *c, const struct cluster_rank *r)
{
    json_t *o = json_object();
    json_object_set_new(o, "rank", r->has_number ? json_integer(r->number) : json_null());
    json_object_set_new(o, "node", json_integer((json_int_t)c->nodes[r->node].number));
    json_object_set_new(o, "pid", r->pid ? json_integer(r->pid) : json_null());
    json_object_set_new(o, "status", r->has_status ? json_integer(r->status) : json_null());
    json_object_set_new(o, "gpu_peak_bytes", known_bytes(r->gpu_peak_bytes));
    json_object_set_new(o, "score",
                        r->place.is_compared ? json_real(verdict_rounded(r->place.score))
                                             : json_null());
    json_object_set_new(o, "differs", json_boolean(r->place.differs));
    if (r->has_judged)
        judged_json_add(o, &r->judged);
    else
        json_object_set_new(o, "verdict", json_null());
    json_object_set_new(o, "peak_bytes", known_bytes(r->peak_bytes));
    return o;
}

static json_t *peers_json(const struct cluster *c)
{
    const struct ranks_peers *p = &c->peers;
    if (!p->count)
        return json_null();
    return json_pack("{s:o,s:o,s:s,s:f,s:f,s:o,s:o}", "ranks", json_u64(p->count), "flat",
                     json_u64(p->flat), "unit", p->by_step ? "step" : "min", "median_bytes",
                     verdict_rounded(p->median), "spread_bytes", verdict_rounded(p->spread),
                     "floor_bytes", json_count(c->median_floor_bytes), "peak_bytes",
                     json_count(c->median_peak_bytes));
}

json_t *cluster_json(const struct cluster *c)
{
    json_t *o = verdicts_json(&c->verdicts), *nodes = json_array(), *ranks = json_array();
    json_t *gpus = json_object_get(o, "gpus");
    for (size_t i = 0; i < c->n_nodes; i++)
        json_array_append_new(nodes, node_json(c, &c->nodes[i]));
    for (size_t i = 0; i < c->n_ranks; i++)
        json_array_append_new(ranks, rank_json(c, &c->ranks[i]));
    for (size_t i = 0; i < json_array_size(gpus); i++)
        json_object_set_new(json_array_get(gpus, i), "node",
                            json_integer((json_int_t)c->nodes[c->gpu_node[i]].number));
    json_object_set_new(o, "job_id", json_text0(c->job.job_id));
    json_object_set_new(o, "step_id", json_text0(c->job.step_id));
    json_object_set_new(o, "name", json_text0(c->job.name));
    json_object_set_new(o, "peers", peers_json(c));
    json_object_set_new(o, "nodes", nodes);
    json_object_set_new(o, "ranks", ranks);
    return o;
}
