/* Keeps a series for each process from birth to exit, and passes marks to it. */
#include "judge/judge_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* After the exit of a process that held most of the job's memory, the job's series pauses for this
 * many seconds. */
enum { HOLD_S = 60 };

/* ---- one series ---- */

static bool series_begin(const struct judge *j, struct judge_series *s, uint64_t step)
{
    *s = (struct judge_series){.has_ended = false};
    if (verdict_init(&s->series, &j->options.verdict) < 0)
        return false;
    if (j->clock.has_begun || j->clock.has_step) {
        const struct verdict_mark begin = {.kind = VERDICT_MARK_BEGIN,
                                           .has_step = j->clock.has_step,
                                           .step = step,
                                           .steps_per_epoch = j->clock.steps_per_epoch,
                                           .examples = j->clock.examples,
                                           .batch = j->clock.batch,
                                           .max_steps = j->clock.max_steps};
        verdict_mark(&s->series, (int64_t)j->run->tick_ns, &begin);
    }
    return true;
}

static struct judge_series *series_new(const struct judge *j, uint64_t step)
{
    struct judge_series *s = malloc(sizeof *s);
    if (s && !series_begin(j, s, step)) {
        free(s);
        s = NULL;
    }
    return s;
}

bool judge_series_restart(const struct judge *j, struct judge_series *s)
{
    return series_begin(j, s, j->clock.step);
}

struct judge_series *judge_series_new(const struct judge *j)
{
    return series_new(j, j->clock.step);
}

struct judge_series *judge_series_new_figure(const struct judge *j)
{
    const struct mark_clock *c = &j->clock;
    uint64_t begin = c->has_seen[VERDICT_MARK_BEGIN] ? c->seen_step[VERDICT_MARK_BEGIN] : c->step;
    bool is_first_pass = c->step >= begin && c->step - begin < c->steps_per_epoch;
    return series_new(j, is_first_pass ? begin : c->step);
}

void judge_series_feed(const struct judge *j, struct judge_series *s, uint64_t bytes)
{
    if (bytes == 0) /* a process with no memory has exited or has not started yet */
        return;
    if (!s->has_first) {
        s->has_first = true;
        s->first_ns = j->run->tick_ns;
    }
    s->last_ns = j->run->tick_ns;
    s->last_bytes = bytes;
    s->tail.is_table = j->run->table.is_imported;
    if (j->run->table.is_by_step)
        verdict_update_step(&s->series, j->clock.step, bytes);
    else
        tail_update(&s->tail, &s->series, (int64_t)j->run->tick_ns, bytes);
}

void judge_series_exit(struct judge_series *s)
{
    if (s)
        tail_drop(&s->tail, &s->series);
}

/* Passes a mark to a series. If training restarts in the same process, the series starts again from
 * the beginning. */
static void series_mark(const struct judge *j, struct judge_series *s, uint64_t t_ns,
                        const struct verdict_mark *mark)
{
    if (!s)
        return;
    if (mark->kind == VERDICT_MARK_BEGIN && s->has_ended) {
        *s = (struct judge_series){.has_ended = false};
        (void)verdict_init(&s->series, &j->options.verdict);
    }
    tail_release(&s->tail, &s->series);
    verdict_mark(&s->series, (int64_t)t_ns, mark);
    s->has_ended = s->has_ended || mark->kind == VERDICT_MARK_END;
}

void judge_series_judge(struct judge_series *s, const struct verdict_limit *limit)
{
    s->limit = *limit;
    verdict_judge(&s->series, limit, &s->result);
    s->is_judged = true;
}

/* ---- entities ---- */

struct judge_entity *judge_entity(struct run_entity *e)
{
    if (!e->observed)
        e->observed = calloc(1, sizeof(struct judge_entity));
    return e->observed;
}

struct judge_series *judge_series_of(const struct run_entity *e)
{
    const struct judge_entity *a = judge_known(e);
    return a && a->series && a->series->has_first ? a->series : NULL;
}

const struct verdict_result *judge_result(const struct run_entity *e)
{
    const struct judge_entity *a = judge_known(e);
    return a && a->series && a->series->is_judged ? &a->series->result : NULL;
}

size_t judge_living(const struct judge *j, struct run_entity *const **ret)
{
    return run_living(j->run, RUN_PROCESS, ret);
}

struct run_entity *judge_next(const struct judge *j, enum run_kind kind, size_t *at)
{
    struct run_entity *const *living;
    size_t n = run_living(j->run, kind, &living);
    while (*at < n + j->run->dead.count) {
        size_t i = (*at)++;
        struct run_entity *e = i < n ? living[i] : j->run->dead.at[i - n];
        if (e->kind == kind && e->observed)
            return e;
    }
    return NULL;
}

static struct run_entity *judge_find_pid(const struct judge *j, int32_t pid)
{
    struct run_entity *e = run_find_pid(j->run, pid);
    return e && !e->is_dead ? e : NULL;
}

void judge_unlist(struct judge *j, const struct run_entity *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < j->listed_count; i++)
        if (j->listed[i] != p)
            j->listed[kept++] = j->listed[i];
    j->listed_count = kept;
    if (j->tree.grower == p)
        j->tree.grower = NULL;
}

static void entity_forget(struct judge *j, struct run_entity *e)
{
    struct judge_entity *a = judge_known(e);
    if (!a)
        return;
    judge_unlist(j, e);
    free(a->series);
    free(a->rows);
    free(a);
    e->observed = NULL;
}

/* ---- the limit ---- */

/* Returns the memory of the job: the reading for the process tree if there is one, else the sum
 * over its processes. */
static uint64_t job_bytes(const struct judge *j)
{
    struct run_entity *const *living;
    uint64_t sum = 0;
    if (run_was_read(j->run, &j->run->job, JOB_TREE))
        return j->run->job.last.v[JOB_TREE];
    for (size_t i = 0, n = judge_living(j, &living); i < n; i++)
        sum += living[i]->observed ? judge_known(living[i])->rss_bytes : 0;
    return sum;
}

struct verdict_limit judge_limit_for(const struct judge *j, uint64_t own_bytes)
{
    struct verdict_limit l = {.known = j->has_limit, .limit_bytes = j->limit_bytes};
    uint64_t used = j->has_used ? j->used_bytes : job_bytes(j);
    if (j->options.has_limit && !j->options.limit.is_percent) {
        /* the limit applies to the job's own cgroup, which contains no other process */
        l = (struct verdict_limit){.known = true, .limit_bytes = j->options.limit.bytes};
        used = job_bytes(j);
    } else if (j->options.has_limit) {
        l.limit_bytes = quantity_bytes(&j->options.limit, l.limit_bytes);
    }
    l.other_bytes = used > own_bytes ? used - own_bytes : 0;
    return l;
}

/* ---- processes ---- */

/* Limits the number of exited processes with a series by dropping the one with the lowest peak. P
 * has just exited and is not in the list of exited processes yet. */
static void limit_dead(struct judge *j, struct run_entity *p)
{
    struct run_entity *least = p;
    size_t count = 0;
    for (size_t i = 0; i < j->run->dead.count; i++) {
        struct run_entity *e = j->run->dead.at[i];
        if (e->kind != RUN_PROCESS || !e->observed)
            continue;
        count++;
        if (judge_known(e)->peak_bytes < judge_known(least)->peak_bytes)
            least = e;
    }
    if (count >= JUDGE_DEAD)
        entity_forget(j, least);
}

/* Drops the newest readings of the job and of its GPUs, because they were taken while a large
 * process exited. */
static void drop_exit_readings(struct judge *j)
{
    size_t at = 0;
    judge_series_exit(j->whole);
    judge_series_exit(j->summed);
    for (struct run_entity *e; (e = judge_next(j, RUN_GPU, &at));)
        judge_series_exit(judge_known(e)->series);
}

/* Returns true if P, which has exited, held most of the job's memory. Returns false if P's parent
 * is not a launcher and is still alive: P may look as large as its parent only because it shared
 * its parent's pages. */
static bool was_most_of_job(const struct judge *j, const struct run_entity *p)
{
    const struct run_entity *parent = judge_find_pid(j, p->parent);
    const struct run_entity *job = &j->run->job;
    if (parent && parent->info.role != ROLE_LAUNCHER)
        return false;
    return run_was_read(j->run, job, JOB_TREE) &&
           (p->observed ? judge_known(p)->rss_bytes : 0) >= job->last.v[JOB_TREE] / 2;
}

static void process_died(struct judge *j, struct run_entity *p)
{
    struct run_entity *const *living;
    struct judge_series *s = p->observed ? judge_known(p)->series : NULL;
    bool was_most = was_most_of_job(j, p);
    /* A process that exited shortly after its start is dropped, even if it was judged while it
     * lived. A recording does not contain the times at which verdicts were updated, so a replay
     * could not reproduce such a verdict. */
    bool has_lived = p->died_ns - p->execed_ns >= JUDGE_AGE_S * NS_PER_S;
    if (j->has_leader && j->leader == p->id)
        j->has_leader = false;
    if (was_most)
        j->hold_until_ns = p->died_ns + HOLD_S * NS_PER_S;
    if (was_most || judge_living(j, &living) == 0)
        drop_exit_readings(j);
    judge_series_exit(s);
    if (s) {
        j->series_count--;
        if (has_lived && s->has_first) {
            struct verdict_limit limit = judge_limit_for(j, s->last_bytes);
            judge_series_judge(s, &limit);
        }
    }
    judge_figures_exit(j, p->info.id.pid);
    if (s && s->is_judged && has_lived)
        limit_dead(j, p);
    else
        entity_forget(j, p);
}

static void process_execed(struct judge *j, struct run_entity *p)
{
    struct judge_entity *a = judge_known(p);
    if (!a)
        return;
    a->has_status = false;
    if (a->series && !judge_series_restart(j, a->series)) {
        free(a->series);
        a->series = NULL;
        j->series_count--;
    }
}

/* ---- marks ---- */

static bool sends_steps(const struct run_entity *p)
{
    return p && p->observed && judge_known(p)->sends_steps;
}

/* Passes MARK to the figures that its sender reports. Unless IS_SENDERS_ALONE is set, also passes
 * MARK to the figures of processes that report no steps themselves. */
static void mark_figures(struct judge *j, uint64_t t_ns, const struct run_entity *sender,
                         const struct verdict_mark *mark, bool is_senders_alone)
{
    struct run_entity *const *figures;
    for (size_t i = 0, n = run_living(j->run, RUN_FIGURE, &figures); i < n; i++) {
        const struct judge_entity *a = judge_known(figures[i]);
        if (!a || !a->series)
            continue;
        const struct run_entity *owner = judge_find_pid(j, figures[i]->info.id.pid);
        if (owner == sender || (!is_senders_alone && !sends_steps(owner)))
            series_mark(j, a->series, t_ns, mark);
    }
}

static void mark_all(struct judge *j, uint64_t t_ns, const struct run_entity *sender,
                     const struct verdict_mark *mark)
{
    struct run_entity *const *list;
    for (size_t i = 0, n = judge_living(j, &list); i < n; i++)
        if (list[i]->observed && (!sends_steps(list[i]) || list[i] == sender))
            series_mark(j, judge_known(list[i])->series, t_ns, mark);
    series_mark(j, j->whole, t_ns, mark);
    series_mark(j, j->summed, t_ns, mark);
    for (size_t i = 0, n = run_living(j->run, RUN_GPU, &list); i < n; i++)
        if (list[i]->observed)
            series_mark(j, judge_known(list[i])->series, t_ns, mark);
    mark_figures(j, t_ns, sender, mark, false);
}

/* The steps of one rank, the leader, are used for the whole job. Marks of another rank apply only
 * to that rank. */
static void judge_mark(struct judge *j, const struct mark *mark)
{
    struct verdict_mark marks[MARK_CLOCK_MARKS];
    struct run_entity *sender = judge_find_pid(j, mark->pid);
    struct judge_entity *a = sender ? judge_entity(sender) : NULL;
    if (a && j->has_leader && j->leader != sender->id) {
        a->sends_steps = a->sends_steps || mark->kind == MARK_STEP;
        if (mark_clock_map(mark, marks)) {
            series_mark(j, a->series, mark->t_ns, marks);
            mark_figures(j, mark->t_ns, sender, marks, true);
        }
        return;
    }
    if (a && mark->kind == MARK_STEP) {
        j->has_leader = true;
        j->leader = sender->id;
        a->sends_steps = true;
    }
    size_t count = mark_clock_add(&j->clock, mark, marks);
    for (size_t i = 0; i < count; i++)
        mark_all(j, mark->t_ns, sender, &marks[i]);
}

/* ---- segments ---- */

/* Judges the segment that ends when the job is restarted. If it were judged later, the result would
 * depend on the times at which verdicts were updated, which a recording does not contain. */
static void judge_segment(struct judge *j)
{
    struct run_entity *e;
    judge_update(j);
    if (j->has_tree && j->own_result.leak == VERDICT_LEAK_YES)
        j->earlier_leak = (struct judge_earlier){true, j->segment, j->own_result};
    if (j->has_tree && (!j->longest.is_known || j->own_result.samples > j->longest.result.samples))
        j->longest = (struct judge_earlier){true, j->segment, j->own_result};
    j->segment++;
    for (enum run_kind kind = RUN_PROCESS; kind <= RUN_FIGURE; kind++)
        for (size_t at = 0; (e = judge_next(j, kind, &at));)
            if (e->is_dead || kind != RUN_PROCESS)
                entity_forget(j, e);
    free(j->whole);
    free(j->summed);
    j->whole = j->summed = NULL;
    j->listed_count = 0;
    j->tree = (struct judge_tree){.grower = NULL};
    j->clock = (struct mark_clock){.has_step = false};
    j->has_tree = j->has_leader = j->has_begun = j->was_signalled = false;
    j->has_ended = j->is_over = false;
    judge_set_held(j, NULL, 0);
    j->noted = VERDICT_UNDECIDED;
    j->tree_peak_bytes = j->hold_until_ns = 0;
}

/* ---- the run ---- */

static void observe(struct judge *j, struct run *run)
{
    if (j->run)
        return;
    j->run = run;
    const json_t *limit = json_object_get(json_object_get(run->header, "limit"), "limit_bytes");
    j->has_limit = json_integer_value(limit) > 0;
    j->limit_bytes = j->has_limit ? (uint64_t)json_integer_value(limit) : 0;
}

static void observe_process(void *user, struct run *run, struct run_entity *e,
                            enum process_event_kind event)
{
    struct judge *j = user;
    observe(j, run);
    if (run->table.is_rows)
        judge_group(j, e);
    else if (event == PROCESS_DIED)
        process_died(j, e);
    else if (event == PROCESS_EXECED)
        process_execed(j, e);
}

static void observe_tick(void *user, struct run *run)
{
    observe(user, run);
    judge_tick(user);
}

static void observe_mark(void *user, struct run *run, const struct mark *mark)
{
    struct judge *j = user;
    observe(j, run);
    if (!j->options.no_marks && !run->table.is_rows)
        judge_mark(j, mark);
}

static void observe_note(void *user, struct run *run, const char *kind, const char *text,
                         size_t len)
{
    struct judge *j = user;
    observe(j, run);
    if (strcmp(kind, "segment") == 0)
        judge_segment(j);
    else
        judge_note(j, kind, text, len);
}

static void observe_row(void *user, struct run *run, struct run_entity *e, int64_t t_ns,
                        const struct csv_row *row)
{
    observe(user, run);
    judge_row(user, e, t_ns, row);
}

static void observe_row_mark(void *user, struct run *run, struct run_entity *e, int64_t t_ns,
                             const struct mark *mark)
{
    observe(user, run);
    judge_row_mark(user, e, t_ns, mark);
}

static void observe_forget(void *user, struct run *run, struct run_entity *e)
{
    struct judge *j = user;
    entity_forget(j, e);
    if (e == &run->machine) /* the machine is freed last, just before the run itself */
        j->run = NULL;
}

struct run_observer *judge_observer(struct judge *j)
{
    return &j->observer;
}

int judge_new(const struct judge_options *options, struct judge **ret)
{
    struct verdict_series *probe = malloc(sizeof *probe);
    struct judge *j = calloc(1, sizeof *j);
    int r = probe && j ? verdict_init(probe, &options->verdict) : -ENOMEM;
    free(probe);
    if (r < 0) {
        free(j);
        return r;
    }
    j->options = *options;
    j->observer = (struct run_observer){.user = j,
                                        .process = observe_process,
                                        .tick = observe_tick,
                                        .mark = observe_mark,
                                        .note = observe_note,
                                        .row = observe_row,
                                        .row_mark = observe_row_mark,
                                        .forget = observe_forget};
    *ret = j;
    return 0;
}

void judge_free(struct judge *j)
{
    if (!j)
        return;
    free(j->held);
    free((void *)(uintptr_t)j->listed);
    free(j->whole);
    free(j->summed);
    free(j);
}
