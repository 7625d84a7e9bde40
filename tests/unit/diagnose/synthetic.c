/* Creates synthetic facts. */
#include "diagnose/synthetic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void synthetic_begin(struct synthetic *s)
{
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        s->t_s[i] = (double)i;
    s->f.processes = s->processes;
    s->f.marks = s->marks;
    s->f.figures = s->figures;
    s->f.start_s = 10;
    s->f.now_s = SYNTHETIC_POINTS - 1;
    s->f.limit_bytes = (double)NAN;
    snprintf(s->f.heap.why_not, sizeof s->f.heap.why_not, "the heap profiler was off");
    s->f.main = synthetic_process(s, ROLE_MAIN);
}

void synthetic_end(struct synthetic *s)
{
    json_decref(s->f.census.first);
    json_decref(s->f.census.last);
}

struct facts_process *synthetic_process(struct synthetic *s, enum process_role role)
{
    size_t at = s->f.n_processes++;
    struct facts_process *p = &s->processes[at];
    *p = (struct facts_process){.id = {.pid = 100 + (int32_t)at},
                                .role = role,
                                .name = "python",
                                .died_s = (double)INFINITY,
                                .peak_bytes = MIB(100)};
    return p;
}

void synthetic_field(struct synthetic *s, size_t p, enum sample_process_field field, double from,
                     double to, double until_s)
{
    double *v = s->v[p][field];
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++) {
        double part = (s->t_s[i] - s->f.start_s) / (until_s - s->f.start_s);
        v[i] = from + (to - from) * fmin(1, fmax(0, part));
    }
    s->processes[p].field[field] = (struct facts_series){s->t_s, v, SYNTHETIC_POINTS};
    if (field == SAMPLE_RSS)
        s->processes[p].peak_bytes = fmax(from, to);
}

void synthetic_remove_nan(struct synthetic *s, enum sample_process_field field)
{
    double *v = s->v[0][field];
    size_t count = 0;
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++) {
        if (isnan(v[i]))
            continue;
        s->rare_t_s[count] = s->t_s[i];
        v[count++] = v[i];
    }
    s->processes[0].field[field] = (struct facts_series){s->rare_t_s, v, count};
}

void synthetic_memory(struct synthetic *s, double from, double to, double until_s)
{
    synthetic_field(s, 0, SAMPLE_RSS, from, to, until_s);
    synthetic_field(s, 0, SAMPLE_ANON, from, to, until_s);
    synthetic_field(s, 0, SAMPLE_FILE, 0, 0, until_s);
    synthetic_field(s, 0, SAMPLE_SHMEM, 0, 0, until_s);
    synthetic_field(s, 0, SAMPLE_SWAP, 0, 0, until_s);
}

void synthetic_spike(struct synthetic *s, double t_s, double height)
{
    s->v[0][SAMPLE_RSS][(size_t)t_s] += height;
}

void synthetic_figure(struct synthetic *s, const char *name, double from, double to)
{
    size_t at = s->f.n_figures++;
    for (size_t i = 0; i < SYNTHETIC_POINTS; i++)
        s->figure_v[at][i] =
            from + (to - from) * fmax(0, s->t_s[i] - s->f.start_s) / (s->f.now_s - s->f.start_s);
    snprintf(s->figures[at].name, sizeof s->figures[at].name, "%s", name);
    s->figures[at].pid = s->processes[0].id.pid;
    s->figures[at].series = (struct facts_series){s->t_s, s->figure_v[at], SYNTHETIC_POINTS};
}

void synthetic_verdict(struct synthetic *s, size_t p, enum verdict_word word)
{
    s->processes[p].verdict = (struct facts_verdict){.is_known = true,
                                                     .word = word,
                                                     .leak = verdict_word_leak(word),
                                                     .per_step = MIB(1),
                                                     .per_min = (double)NAN,
                                                     .ended_step = -1};
}

void synthetic_mark(struct synthetic *s, enum verdict_mark_kind kind, double t_s)
{
    size_t at = s->f.n_marks++;
    for (; at > 0 && s->marks[at - 1].t_s > t_s; at--)
        s->marks[at] = s->marks[at - 1];
    s->marks[at] = (struct facts_mark){kind, t_s, (int64_t)(t_s - s->f.start_s)};
}

void synthetic_steps(struct synthetic *s, uint64_t per_epoch)
{
    for (double t_s = s->f.start_s; t_s <= s->f.now_s; t_s++)
        synthetic_mark(s, VERDICT_MARK_STEP, t_s + 0.25);
    s->f.has_steps = true;
    s->f.last_step = (int64_t)(s->f.now_s - s->f.start_s);
    s->f.steps_per_epoch = per_epoch;
}

void synthetic_row(struct synthetic *s, const char *file, double start, double now,
                   enum verdict_word word)
{
    size_t at = s->f.heap.growth.count++;
    s->names[at] = (struct name){.kind = NAME_PYTHON, .function = "make", .file = file, .line = 7};
    s->rows[at] = (struct growth_row){.name = &s->names[at],
                                      .live_bytes = now,
                                      .live_low = now,
                                      .live_high = now,
                                      .verdict = {.word = word, .leak = verdict_word_leak(word)}};
    s->sites[at] = (struct facts_site){
        .start_bytes = start, .floor_bytes = word == VERDICT_STABLE ? fmin(start, now) : now};
    s->f.heap.sites = s->sites;
    s->profile.n_sites = 1;
    s->profile.site_node = &s->site_node;
    s->f.heap.profile = &s->profile;
    s->f.heap.growth.rows = s->rows;
    s->f.heap.start.live += start;
    s->f.heap.now.live += now;
    s->f.heap.start.malloc += start;
    s->f.heap.now.malloc += now;
    s->f.heap.most = fmax(s->f.heap.most, s->f.heap.now.live);
}

static json_t *census(int step, double objects, double tensors, bool is_graph, int nodes)
{
    return json_pack("{s:i,s:i,s:b,s:b,s:f,s:i,s:[{s:s,s:b,s:b,s:i,s:f,s:b}],s:[{s:s,s:i}],s:[]}",
                     "format", 1, "step", step, "has_torch", 1, "is_sampled", 0, "object_bytes",
                     objects, "object_count", 1000, "tensors", "device", "cpu", "requires_grad",
                     (int)is_graph, "is_grad", 0, "count", step, "bytes", tensors, "is_leaf",
                     (int)!is_graph, "objects", "type", "AddmmBackward0", "count",
                     is_graph ? nodes : 0, "largest");
}

void synthetic_census(struct synthetic *s, double objects_growth, double tensors_growth,
                      bool is_graph)
{
    s->f.census.first = census(20, MIB(50), MIB(10), is_graph, 20);
    s->f.census.last =
        census(180, MIB(50) + objects_growth, MIB(10) + tensors_growth, is_graph, 180);
}

const struct hypothesis *synthetic_test(struct synthetic *s, enum hypothesis_id id)
{
    ledger_make(&s->f, &s->ledger);
    question_make(&s->f, &s->ledger, &s->question);
    hypotheses_test(&s->question, s->ranked);
    for (size_t i = 0; i < HYPOTHESIS_COUNT; i++)
        if (s->ranked[i].id == id)
            return &s->ranked[i];
    return NULL;
}

bool has_evidence(const struct hypothesis *h, enum evidence_side side, const char *text)
{
    for (size_t i = 0; i < h->n_evidence; i++)
        if (h->evidence[i].side == side && (!text || strstr(h->evidence[i].text, text)))
            return true;
    return false;
}
