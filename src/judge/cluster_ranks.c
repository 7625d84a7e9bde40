/* Judges the ranks of a job, and the job from its ranks. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "judge/cluster_private.h"
#include "judge/judge_private.h"

enum { GENERATIONS_MAX = 64, RANKS_MAX = 1 << 20 };

static const double CONFIDENCE_MOST = 0.99;
/* Highest confidence of a verdict that rests only on the comparison with peers. It is limited,
 * because a rank may fill a cache that the other ranks do not have. */
static const double PEERS_CONFIDENCE = 0.9;

/* The verdict on a rank, for the comparison with its peers, and the process that decided that
 * verdict. */
struct decider {
    struct judge_series *series; /* NULL if not judged */
    struct verdict_result result;
    int32_t pid;
    double rss_bytes;
};

void cluster_drop_ranks(struct cluster *c)
{
    for (size_t i = 0; i < c->n_ranks; i++)
        judged_fini(&c->ranks[i].judged);
    free(c->ranks);
    free(c->gpu_node);
    c->ranks = NULL;
    c->gpu_node = NULL;
    c->n_ranks = 0;
    verdicts_fini(&c->verdicts);
}

static struct cluster_rank *add_rank(struct cluster *c, size_t node)
{
    struct cluster_rank *ranks =
        c->n_ranks < RANKS_MAX ? reallocarray(c->ranks, c->n_ranks + 1, sizeof *ranks) : NULL;
    if (!ranks)
        return NULL;
    c->ranks = ranks;
    ranks[c->n_ranks] = (struct cluster_rank){.node = node};
    return &ranks[c->n_ranks++];
}

/* ---- the ranks of a node ---- */

/* Adds the ranks that run.json lists. */
static void ranks_of_run_json(struct cluster *c, size_t node)
{
    const json_t *list = json_object_get(c->nodes[node].run_json, "ranks"), *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        const json_t *number = json_object_get(one, "rank"), *pid = json_object_get(one, "pid");
        const json_t *status = json_object_get(one, "status");
        const char *state = json_string_value(json_object_get(one, "state"));
        struct cluster_rank *r =
            json_is_integer(number) && json_is_integer(pid) ? add_rank(c, node) : NULL;
        if (!r)
            continue;
        r->has_number = true;
        r->number = json_integer_value(number);
        r->pid = (int32_t)json_integer_value(pid);
        r->start_ticks = (uint64_t)json_integer_value(json_object_get(one, "start_ticks"));
        r->is_ended = state && strcmp(state, "ended") == 0;
        r->has_status = json_is_integer(status);
        r->status = json_integer_value(status);
        r->ended_s = json_number_value(json_object_get(one, "ended_t_s"));
    }
}

/* Adds the ranks that reported steps. */
static void ranks_of_marks(struct cluster *c, size_t node, size_t first)
{
    const struct run *run = c->nodes[node].follow.run;
    const struct run_marks *steps = &run->marks[MARK_STEP];
    for (size_t i = 0; i < steps->count; i++) {
        const struct run_mark *m = &steps->at[i];
        bool is_known = !(m->has & MARK_HAS_RANK) || !m->pid;
        for (size_t k = first; !is_known && k < c->n_ranks; k++)
            is_known = c->ranks[k].number == m->rank;
        struct cluster_rank *r = is_known ? NULL : add_rank(c, node);
        if (!r)
            continue;
        r->has_number = true;
        r->number = m->rank;
        r->pid = m->pid;
    }
}

static void find_ranks(struct cluster *c, size_t node)
{
    const struct cluster_node *n = &c->nodes[node];
    size_t first = c->n_ranks;
    ranks_of_run_json(c, node);
    if (c->n_ranks == first && n->follow.run)
        ranks_of_marks(c, node, first);
    if (c->n_ranks == first && n->path && n->state != NODE_UNREADABLE)
        (void)add_rank(c, node); /* this entry stands for the whole node */
}

/* ---- the verdict on a rank ---- */

/* Returns the index of the rank whose first process is E or an ancestor of E; END if there is
 * none. */
static size_t rank_of_process(const struct cluster *c, size_t first, size_t end,
                              const struct run *run, const struct run_entity *e)
{
    for (int i = 0; e && i < GENERATIONS_MAX; i++) {
        for (size_t k = first; k < end; k++) {
            const struct cluster_rank *r = &c->ranks[k];
            if (r->pid == e->info.id.pid &&
                (!r->start_ticks || r->start_ticks == e->info.id.start_ticks))
                return k;
        }
        e = e->parent > 0 && e->parent != e->info.id.pid ? run_find_pid(run, e->parent) : NULL;
    }
    return end;
}

/* Returns true if P is one of the processes from which its rank R is judged: the first process
 * of the rank, or a process that was not replaced and was alive until now or until the end of
 * the job. */
static bool counts(const struct judge *j, const struct cluster_rank *r, const struct run_entity *p)
{
    return p->info.id.pid == r->pid ||
           ((!p->is_dead || judge_is_just_now(j, p->died_ns)) && !judge_was_replaced(j, p));
}

struct member_list {
    struct verdict_member *members;
    const struct run_entity **process;
    size_t count;
};

static void list_members(const struct cluster *c, const struct judge *j, size_t rank, size_t first,
                         size_t end, struct member_list *ret)
{
    struct run_entity *e;
    ret->count = 0;
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));) {
        struct judge_series *s = judge_series_of(e);
        if (!s || !s->is_judged || rank_of_process(c, first, end, j->run, e) != rank ||
            !counts(j, &c->ranks[rank], e))
            continue;
        const struct judge_entity *a = judge_known(e);
        ret->process[ret->count] = e;
        ret->members[ret->count++] =
            (struct verdict_member){.result = &s->result,
                                    .role = (int)e->info.role,
                                    .rss_bytes = (double)a->rss_bytes,
                                    .has_unique = a->has_unique,
                                    .alive = true,
                                    .is_replacement = judge_is_replacement(j, e),
                                    .unique_bytes = (double)a->unique_bytes};
    }
}

/* Judges one rank from its processes, in the same way as a job. */
static void judge_rank(struct cluster *c, size_t rank, const struct member_list *l,
                       struct decider *ret)
{
    struct cluster_rank *r = &c->ranks[rank];
    struct verdict_tree_result tree;
    if (!l->count)
        return;
    verdict_tree_judge(l->members, l->count, NULL, &tree);
    const struct run_entity *p = l->process[tree.grower < l->count ? tree.grower : 0];
    *ret = (struct decider){.series = judge_known(p)->series,
                            .result = judge_known(p)->series->result,
                            .pid = p->info.id.pid};
    for (size_t i = 0; i < l->count; i++) {
        const struct run_entity *e = l->process[i];
        r->peak_bytes = e->peak_bytes > r->peak_bytes ? e->peak_bytes : r->peak_bytes;
        r->gpu_peak_bytes =
            e->gpu_peak_bytes > r->gpu_peak_bytes ? e->gpu_peak_bytes : r->gpu_peak_bytes;
        ret->rss_bytes +=
            l->members[i].has_unique ? l->members[i].unique_bytes : l->members[i].rss_bytes;
    }
}

/* Judges the entry that stands for a whole node whose ranks are unknown. */
static void judge_whole_node(struct cluster *c, size_t rank, struct decider *ret)
{
    const struct cluster_node *n = &c->nodes[c->ranks[rank].node];
    const struct judge_tree *t = n->judge && n->follow.run ? judge_tree(n->judge) : NULL;
    if (!n->verdicts.has_job)
        return;
    *ret = (struct decider){.series = t ? n->judge->whole : NULL,
                            .result = n->verdicts.job.result,
                            .rss_bytes = n->verdicts.job.result.mean_bytes};
    c->ranks[rank].has_judged = true;
    c->ranks[rank].peak_bytes = (uint64_t)fmax(0, n->verdicts.job.result.peak_bytes);
}

static int judge_node_ranks(struct cluster *c, size_t node, size_t first, struct decider *deciders)
{
    struct judge *j = c->nodes[node].judge;
    struct run *run = c->nodes[node].follow.run;
    size_t end = c->n_ranks, most = run ? run->living.count + run->dead.count + 1 : 1;
    AUTO_FREE struct verdict_member *members = calloc(most, sizeof *members);
    const struct run_entity **process = calloc(most, sizeof(struct run_entity *));
    struct member_list list = {.members = members, .process = process};
    for (size_t i = first; i < end && members && process; i++) {
        if (!c->ranks[i].has_number) {
            judge_whole_node(c, i, &deciders[i]);
        } else if (j && run && j->run) {
            list_members(c, j, i, first, end, &list);
            judge_rank(c, i, &list, &deciders[i]);
            c->ranks[i].has_judged = deciders[i].series;
        }
    }
    free((void *)(uintptr_t)process);
    return members && process ? 0 : -ENOMEM;
}

/* ---- comparing each rank with its peers ---- */

/* Revises the verdict on a rank after the comparison with its peers. Rank 0 often has extra work
 * (evaluation, logging), so it is not compared while the job runs. */
static void settle_rank(const struct cluster *c, const struct cluster_rank *rank, struct decider *d)
{
    struct verdict_result *r = &d->result;
    double p = ranks_probability(r, &rank->place, &c->peers), most = CONFIDENCE_MOST;
    bool is_special = rank->number == 0 && !c->is_over;
    enum verdict_leak leak = verdict_leak_of(p, c->is_over);
    if (is_special || leak != VERDICT_LEAK_YES)
        return;
    r->has_probability = true;
    r->probability = p;
    if (r->leak != VERDICT_LEAK_YES && d->series) {
        verdict_settle(r, &d->series->series, &d->series->limit, leak, 0, true);
        most = PEERS_CONFIDENCE;
    }
    if (r->leak != VERDICT_LEAK_YES)
        return;
    r->confidence = fmin(most, fmax(r->confidence, p));
    ranks_add_evidence(r, &rank->place, &c->peers);
}

static int compare_ranks(struct cluster *c, struct decider *deciders)
{
    AUTO_FREE double *scratch = calloc(c->n_ranks + 1, sizeof *scratch);
    AUTO_FREE struct ranks_place *places = calloc(c->n_ranks + 1, sizeof *places);
    const struct verdict_result **list = calloc(c->n_ranks + 1, sizeof(struct verdict_result *));
    size_t n = 0;
    int r = scratch && places && list ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < c->n_ranks; i++)
        if (c->ranks[i].has_judged)
            list[n++] = &deciders[i].result;
    if (r == 0)
        ranks_compare(list, n, scratch, &c->peers, places);
    for (size_t i = 0, k = 0; r == 0 && i < c->n_ranks; i++)
        if (c->ranks[i].has_judged) {
            c->ranks[i].place = places[k++];
            settle_rank(c, &c->ranks[i], &deciders[i]);
        }
    free((void *)(uintptr_t)list);
    return r;
}

static int finish_ranks(struct cluster *c, const struct decider *deciders)
{
    int r = 0;
    for (size_t i = 0; i < c->n_ranks && r == 0; i++) {
        struct judged *a = &c->ranks[i].judged;
        const struct judge_series *s = deciders[i].series;
        if (!c->ranks[i].has_judged)
            continue;
        r = judged_set_result(a, &deciders[i].result,
                              s ? (double)(int64_t)s->first_ns / NS_PER_S : 0);
        a->has_pid = deciders[i].pid > 0;
        a->pid = deciders[i].pid;
        a->has_rss = true;
        a->rss_bytes = (uint64_t)fmax(0, deciders[i].rss_bytes);
    }
    return r;
}

/* ---- the job ---- */

static double rate_of(const struct cluster *c, const struct cluster_rank *r)
{
    const struct verdict_result *v = &r->judged.result;
    const struct verdict_interval *rate =
        c->peers.by_step ? &v->rate_bytes_per_step : &v->rate_bytes_per_min;
    return rate->known ? rate->value : 0;
}

/* Sorts the worst rank first: by word, then ranks that differ from their peers, then by growth
 * rate, then by number. */
static int worse_first(const void *a, const void *b, void *user)
{
    const struct cluster *c = user;
    const struct cluster_rank *x = a, *y = b;
    int bad_x = x->has_judged ? verdict_word_severity(x->judged.result.word) : -1;
    int bad_y = y->has_judged ? verdict_word_severity(y->judged.result.word) : -1;
    double rate_x = rate_of(c, x), rate_y = rate_of(c, y);
    if (bad_x != bad_y)
        return bad_x > bad_y ? -1 : 1;
    if (x->place.differs != y->place.differs)
        return x->place.differs ? -1 : 1;
    bool is_grower = bad_x >= verdict_word_severity(VERDICT_FILLING);
    if (is_grower && (rate_x > rate_y || rate_x < rate_y))
        return rate_x > rate_y ? -1 : 1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

static int ascending_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void set_medians(struct cluster *c, double *scratch)
{
    for (int is_peak = 0; is_peak < 2; is_peak++) {
        size_t n = 0;
        for (size_t i = 0; i < c->n_ranks; i++)
            if (c->ranks[i].has_judged)
                scratch[n++] = is_peak ? (double)c->ranks[i].peak_bytes
                                       : c->ranks[i].judged.result.floor_last_bytes;
        qsort(scratch, n, sizeof *scratch, ascending_doubles);
        double median = n ? (scratch[(n - 1) / 2] + scratch[n / 2]) / 2 : 0;
        *(is_peak ? &c->median_peak_bytes : &c->median_floor_bytes) = median;
    }
}

static char *where_text(const struct cluster *c)
{
    const struct cluster_rank *w = &c->ranks[c->worst];
    size_t alike = 0, judged = 0;
    char *text = NULL;
    for (size_t i = 0; i < c->n_ranks; i++) {
        judged += c->ranks[i].has_judged;
        alike += c->ranks[i].has_judged && c->ranks[i].judged.result.leak == w->judged.result.leak;
    }
    int r;
    if (!w->has_number)
        r = asprintf(&text, "node %u", c->nodes[w->node].number);
    else if (alike == judged)
        r = asprintf(&text, "%s%zu rank%s",
                     judged > 1 && w->judged.result.leak != VERDICT_LEAK_NO ? "all " : "", judged,
                     judged == 1 ? "" : "s");
    else if (alike == 1)
        r = asprintf(&text, "rank %lld of %zu", (long long)w->number, judged);
    else
        r = asprintf(&text, "%zu of %zu ranks, fastest in rank %lld", alike, judged,
                     (long long)w->number);
    return r < 0 ? NULL : text;
}

/* Returns the node that leaks although none of its ranks does, or n_nodes. */
static size_t find_leaking_node(const struct cluster *c)
{
    for (size_t i = 0; i < c->n_nodes; i++) {
        const struct verdicts *v = &c->nodes[i].verdicts;
        bool is_leak = v->has_job && v->job.result.leak == VERDICT_LEAK_YES;
        for (size_t k = 0; is_leak && k < c->n_ranks; k++)
            is_leak = c->ranks[k].node != i || !c->ranks[k].has_judged ||
                      c->ranks[k].judged.result.leak != VERDICT_LEAK_YES;
        if (is_leak)
            return i;
    }
    return c->n_nodes;
}

/* Sets the job's time until memory runs out to the shortest time of any leaking node. The times of
 * nodes are used, not those of ranks, because all ranks of a node share its limit. */
static void set_oom_of_nodes(const struct cluster *c, struct verdict_result *job)
{
    for (size_t i = 0; i < c->n_nodes; i++) {
        const struct verdicts *v = &c->nodes[i].verdicts;
        const struct verdict_result *r = &v->job.result;
        if (v->has_job && r->leak == VERDICT_LEAK_YES && r->oom.known && r->oom.has_t &&
            (!job->oom.known || !job->oom.has_t || r->oom.eta_s_low < job->oom.eta_s_low))
            job->oom = r->oom;
    }
}

static int judge_job_by_ranks(struct cluster *c)
{
    struct judged *job = &c->verdicts.job;
    size_t node = find_leaking_node(c);
    int r = 0;
    c->has_worst = c->n_ranks && c->ranks[0].has_judged;
    c->worst = 0;
    c->worst_node = c->has_worst ? c->ranks[0].node : c->n_nodes;
    bool is_node =
        node < c->n_nodes && !(c->has_worst && c->ranks[0].judged.result.leak == VERDICT_LEAK_YES);
    if (is_node) {
        c->worst_node = node;
        c->has_worst = false;
        r = judged_set_result(job, &c->nodes[node].verdicts.job.result, 0);
        if (r == 0 && asprintf(&job->where, "node %u", c->nodes[node].number) < 0)
            r = -ENOMEM;
    } else if (c->has_worst) {
        r = judged_set_result(job, &c->ranks[0].judged.result, 0);
        job->where = where_text(c);
        if (job->result.leak == VERDICT_LEAK_YES)
            set_oom_of_nodes(c, &job->result);
    }
    c->verdicts.has_job = is_node || c->has_worst;
    return r;
}

/* Collects the GPUs of all nodes. */
static int gather_gpus(struct cluster *c)
{
    size_t all = 0;
    for (size_t i = 0; i < c->n_nodes; i++)
        all += c->nodes[i].verdicts.gpus.count;
    c->gpu_node = calloc(all + 1, sizeof *c->gpu_node);
    if (!c->gpu_node)
        return -ENOMEM;
    for (size_t i = 0; i < c->n_nodes; i++)
        for (size_t k = 0; k < c->nodes[i].verdicts.gpus.count; k++) {
            const struct judged *gpu = &c->nodes[i].verdicts.gpus.at[k];
            struct judged *a = judged_list_add(&c->verdicts.gpus);
            if (!a || judged_set_result(a, &gpu->result, 0) < 0 ||
                asprintf(&a->where, "node %u", c->nodes[i].number) < 0)
                return -ENOMEM;
            a->gpu = gpu->gpu;
            c->gpu_node[c->verdicts.gpus.count - 1] = i;
        }
    return 0;
}

int cluster_judge_ranks(struct cluster *c)
{
    struct decider *deciders = NULL;
    int r = 0;
    cluster_drop_ranks(c);
    c->is_over = c->n_nodes > 0;
    for (size_t i = 0; i < c->n_nodes && r == 0; i++) {
        size_t first = c->n_ranks;
        const struct cluster_node *n = &c->nodes[i];
        c->is_over = c->is_over && n->judge && n->follow.run && judge_is_over(n->judge);
        find_ranks(c, i);
        struct decider *more = reallocarray(deciders, c->n_ranks + 1, sizeof *deciders);
        r = more ? 0 : -ENOMEM;
        if (!more)
            break;
        deciders = more;
        memset(deciders + first, 0, (c->n_ranks + 1 - first) * sizeof *deciders);
        r = judge_node_ranks(c, i, first, deciders);
    }
    if (r == 0 && deciders)
        r = compare_ranks(c, deciders);
    if (r == 0 && deciders)
        r = finish_ranks(c, deciders);
    free(deciders);
    AUTO_FREE double *scratch = calloc(c->n_ranks + 1, sizeof *scratch);
    if (r == 0 && scratch)
        set_medians(c, scratch);
    if (r == 0 && c->n_ranks > 1)
        qsort_r(c->ranks, c->n_ranks, sizeof *c->ranks, worse_first, c);
    if (r == 0)
        r = judge_job_by_ranks(c);
    return r == 0 ? gather_gpus(c) : r;
}

const struct cluster_rank *cluster_find_rank(const struct cluster *c, int64_t number)
{
    for (size_t i = 0; i < c->n_ranks; i++)
        if (c->ranks[i].has_number && c->ranks[i].number == number)
            return &c->ranks[i];
    return NULL;
}

size_t cluster_failed_ranks(const struct cluster *c, const struct cluster_rank **ret)
{
    size_t n = 0;
    *ret = NULL;
    for (size_t i = 0; i < c->n_ranks; i++) {
        const struct cluster_rank *r = &c->ranks[i];
        if (!r->has_status || r->status == 0)
            continue;
        n++;
        if (!*ret || r->ended_s < (*ret)->ended_s)
            *ret = r;
    }
    return n;
}
