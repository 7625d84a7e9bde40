/* The ticking heart: looks at the job, each kind of look at its own pace, and passes on. */
#include "engine/private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"

enum {
    LIMIT_PERIOD_S = 30,
    PSS_PERIOD_S = 60,
    VERDICT_PERIOD_S = 10,
    PSI_AFTER_S = 3,
    YOUNG_S = 120,         /* a job is young for that long */
    YOUNG_COST_PART = 200, /* looks that cost more than this part of one CPU are dear */
    YOUNG_VERDICT_S = 2,
    HURRY_MS = 100, /* between two ticks while somebody waits for unique memory */
};
static const uint64_t YOUNG_INTERVAL_NS = NS_PER_S / 5;

void engine_say(struct engine *e, const char *fmt, ...)
{
    char sentence[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    if (e->callbacks.say)
        e->callbacks.say(e->callbacks.user, sentence);
}

/* A recording's times never go back: what came out of order is told to the judge as it is written
 * down, or the verdict could not be had again. */
static uint64_t in_order(struct engine *e, uint64_t t_ns)
{
    if (t_ns > e->told_ns)
        e->told_ns = t_ns;
    return e->told_ns;
}

static void on_process(void *user, const struct proc_event *ev)
{
    struct engine *e = user;
    uint64_t t_ns = in_order(e, ev->t_ns);
    struct proc_node *node = ev->node;
    struct history *h = history_of(node);
    if (ev->kind == PROCESS_BORN) {
        h = calloc(1, sizeof *h);
        node->user = h;
        e->processes_seen++;
        e->had_any = true;
        e->told_empty = false;
        if (h)
            *h = (struct history){.slot = node->slot,
                                  .born_ns = ev->t_ns,
                                  .info = node->info,
                                  .unmeasured_from = e->peak.ticks};
    }
    if (e->writer)
        trace_writer_process(e->writer, t_ns, ev->kind, node->slot, &node->info);
    run_process(e->run, t_ns, ev->kind, node->slot, &node->info);
    if ((ev->kind == PROCESS_EXECED || ev->kind == PROCESS_DIED) && e->unique)
        proc_unique_forget(e->unique, node);
    if (e->callbacks.process)
        e->callbacks.process(e->callbacks.user, ev);
    if (ev->kind == PROCESS_DIED)
        figures_forget(&e->figures, node->info.id.pid);
    if (ev->kind == PROCESS_DIED && h) {
        h->info = node->info;
        h->died_ns = ev->t_ns;
        history_bury(&e->gone, h);
        peak_died(&e->peak, h->unmeasured_from, h->unmeasured_bytes);
        free(h);
        node->user = NULL;
    }
}

/* ---- passing on ---- */

static void name_figures(struct engine *e, uint64_t now_ns)
{
    for (size_t i = 0; i < e->figures.count; i++) {
        struct figure *f = &e->figures.at[i];
        if (!f->is_named)
            trace_writer_entity(e->writer, now_ns, ENTITY_SERIES, f->id, f->name);
        f->is_named = true;
    }
}

static struct sample figure_sample(const struct figure *f)
{
    struct sample s = {0};
    if (f->is_fresh)
        sample_put(&s, 0, f->value);
    return s;
}

static void write_tick(struct engine *e, uint64_t now_ns)
{
    if (!e->writer)
        return;
    name_figures(e, now_ns);
    trace_writer_tick_begin(e->writer, now_ns);
    trace_writer_sample(e->writer, ENTITY_MACHINE, 0, &e->machine_sample);
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        const struct proc_node *node = proc_tree_at(e->tree, i);
        trace_writer_sample(e->writer, ENTITY_PROCESS, node->slot, &node->sample);
    }
    for (size_t i = 0; i < e->gpu_now.devices && i < GPU_MAX; i++)
        trace_writer_sample(e->writer, ENTITY_GPU, (uint32_t)i, &e->gpu_sample[i]);
    for (size_t i = 0; i < e->figures.count; i++) {
        struct sample s = figure_sample(&e->figures.at[i]);
        trace_writer_sample(e->writer, ENTITY_SERIES, e->figures.at[i].id, &s);
    }
    trace_writer_tick_end(e->writer);
    trace_writer_flush(e->writer, now_ns, false);
}

/* The same entities in the same order as write_tick: a recording must tell the same. */
static void feed_run(struct engine *e, uint64_t now_ns)
{
    run_tick_begin(e->run, now_ns);
    run_sample(e->run, ENTITY_MACHINE, 0, NULL, &e->machine_sample);
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        const struct proc_node *node = proc_tree_at(e->tree, i);
        run_sample(e->run, ENTITY_PROCESS, node->slot, NULL, &node->sample);
    }
    for (size_t i = 0; i < e->gpu_now.devices && i < GPU_MAX; i++)
        run_sample(e->run, ENTITY_GPU, (uint32_t)i, e->gpu_now.device[i].name, &e->gpu_sample[i]);
    for (size_t i = 0; i < e->figures.count; i++) {
        struct figure *f = &e->figures.at[i];
        struct sample s = figure_sample(f);
        run_sample(e->run, ENTITY_SERIES, f->id, f->name, &s);
        f->is_fresh = false;
    }
    run_tick_end(e->run);
    e->is_judged = false;
}

static void note_change(void *user, const struct run_entity *p, enum verdict_word from,
                        const struct verdict_result *now)
{
    struct engine *e = user;
    char text[192], pid[16] = "null";
    if (p)
        snprintf(pid, sizeof pid, "%d", (int)p->info.id.pid);
    snprintf(text, sizeof text,
             "{\"pid\":%s,\"from\":\"%s\",\"to\":\"%s\",\"t\":%.3f,\"confidence\":%.2f}", pid,
             verdict_word_name(from), verdict_word_name(now->word),
             (double)(e->last_tick_ns - e->started_ns) / (double)NS_PER_S, now->confidence);
    engine_note(e, "verdict", text);
}

void engine_judge_now(struct engine *e, uint64_t now_ns)
{
    uint64_t begun = clock_thread_cpu_ns();
    judge_update(e->judge);
    e->is_judged = true;
    pace_done(&e->verdict, now_ns, clock_thread_cpu_ns() - begun);
    judge_changes(e->judge, note_change, e);
}

static void take_in(struct engine *e, uint64_t now_ns)
{
    e->unmeasured_bytes = 0;
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        struct proc_node *node = proc_tree_at(e->tree, i);
        struct history *h = history_of(node);
        if (!h)
            continue;
        history_update(h, node, now_ns);
        if (e->watching_all)
            continue;
        uint64_t unmeasured = proc_node_unmeasured(e->tree, node);
        e->unmeasured_bytes += unmeasured;
        history_unmeasured(h, &node->sample, unmeasured, e->peak.ticks - 1);
        peak_process(&e->peak, h->rss.peak_bytes);
    }
}

static void clear_read(struct engine *e)
{
    proc_tree_clear_read(e->tree);
    e->machine_sample.read = 0;
    for (size_t i = 0; i < GPU_MAX; i++)
        e->gpu_sample[i].read = 0;
}

static void walk(struct engine *e, uint64_t now_ns)
{
    uint64_t begun = clock_thread_cpu_ns();
    proc_tree_walk(e->tree, now_ns);
    pace_done(&e->walk, now_ns, clock_thread_cpu_ns() - begun);
}

static void tick(struct engine *e, uint64_t now_ns, bool whole)
{
    if (whole || pace_due(&e->walk, now_ns))
        walk(e, now_ns);
    uint64_t begun = clock_thread_cpu_ns();
    proc_tree_tick(e->tree, now_ns);
    engine_look_at_status(e, now_ns, whole);
    machine_tick(e->machine, &e->machine_sample);
    if (pace_due(&e->limit, now_ns))
        engine_look_at_limit(e, now_ns);
    if (e->options.pss && pace_due(&e->pss, now_ns))
        engine_look_at_pss(e, now_ns);
    engine_look_at_gpu(e, now_ns);
    engine_look_at_charge(e);
    engine_look_at_whole(e, now_ns);
    engine_look_at_own_limit(e);
    take_in(e, now_ns);
    uint64_t told_ns = in_order(e, now_ns);
    write_tick(e, told_ns);
    feed_run(e, told_ns);
    clear_read(e);
    e->last_tick_ns = now_ns;
    if (pace_due(&e->verdict, now_ns))
        engine_judge_now(e, now_ns);
    uint64_t cost = clock_thread_cpu_ns() - begun;
    e->tick_cost_ns_total += cost;
    if (cost > e->tick_cost_ns_longest)
        e->tick_cost_ns_longest = cost;
    e->ticks++;
}

static uint64_t interval_now(const struct engine *e)
{
    return e->is_young ? YOUNG_INTERVAL_NS : e->options.interval_ns;
}

/* How often to look for new processes. */
static uint64_t walk_period(const struct engine *e)
{
    uint64_t interval_ns = interval_now(e);
    if (interval_ns < NS_PER_S / 4)
        return NS_PER_S / 4;
    return interval_ns > NS_PER_S ? NS_PER_S : interval_ns;
}

/* A young job that is dear to look at, or that is young no longer, is looked at every interval. */
static void grow_up(struct engine *e, uint64_t now_ns)
{
    uint64_t age_ns = now_ns - e->started_ns;
    bool is_dear = age_ns > 5 * NS_PER_S && e->tick_cost_ns_total > age_ns / YOUNG_COST_PART;
    if (!e->is_young || (age_ns < YOUNG_S * NS_PER_S && !is_dear))
        return;
    e->is_young = false;
    e->walk.period_ns = walk_period(e);
    e->verdict.period_ns = VERDICT_PERIOD_S * NS_PER_S;
    loop_set_timer(e->tick_timer, now_ns + e->options.interval_ns, e->options.interval_ns);
}

static void note_gap(struct engine *e, uint64_t now_ns)
{
    uint64_t since = now_ns - e->last_tick_ns;
    if (!e->last_tick_ns || since < 5 * NS_PER_S || since < 3 * e->options.interval_ns)
        return;
    char text[64];
    snprintf(text, sizeof text, "{\"seconds\":%.3f}", (double)since / (double)NS_PER_S);
    e->gaps++;
    engine_note(e, "gap", text);
}

static void on_pressure(void *user, int fd, uint32_t events)
{
    struct engine *e = user;
    uint64_t now_ns = clock_mono_ns();
    char text[64];
    (void)fd;
    if (events & (EPOLLERR | EPOLLHUP)) {
        loop_remove(e->psi_source);
        e->psi_source = NULL;
        return;
    }
    if (now_ns - e->last_psi_ns < NS_PER_S)
        return;
    e->last_psi_ns = now_ns;
    snprintf(text, sizeof text, "{\"stall_ms\":%d,\"window_ms\":%d}", MACHINE_STALL_MS,
             MACHINE_WINDOW_MS);
    engine_note(e, "pressure", text);
    tick(e, now_ns, false);
}

static void watch_pressure(struct engine *e)
{
    e->psi_tried = true;
    e->psi_fd =
        machine_psi_trigger(e->options.root, MACHINE_STALL_MS * 1000, MACHINE_WINDOW_MS * 1000);
    if (e->psi_fd >= 0 &&
        loop_add_fd(e->loop, e->psi_fd, EPOLLPRI, on_pressure, e, &e->psi_source) < 0)
        e->psi_source = NULL;
}

/* Among hundreds of busy processes we may get so little CPU time that one tick takes seconds, and
 * the next would be due when it is done. Half of the time is left for everything else: the job may
 * have to be ended. */
static void rest(struct engine *e, uint64_t begun_ns)
{
    const uint64_t now_ns = clock_mono_ns();
    if (now_ns - begun_ns > interval_now(e))
        e->rest_ns = now_ns + (now_ns - begun_ns);
}

static void on_tick(void *user, uint64_t now_ns, uint64_t missed)
{
    struct engine *e = user;
    (void)missed;
    const uint64_t begun_ns = clock_mono_ns();
    if (begun_ns < e->rest_ns)
        return;
    note_gap(e, now_ns);
    tick(e, now_ns, false);
    grow_up(e, now_ns);
    /* Not at once: closing a trigger takes the kernel 10 ms, which a short job would wait for. */
    if (!e->psi_tried && now_ns - e->started_ns > PSI_AFTER_S * NS_PER_S)
        watch_pressure(e);
    if (e->callbacks.tick)
        e->callbacks.tick(e->callbacks.user, e, now_ns);
    if (e->had_any && !e->watching_all && !e->told_empty && proc_tree_count(e->tree) == 0) {
        e->told_empty = true;
        if (e->callbacks.empty)
            e->callbacks.empty(e->callbacks.user, e, now_ns);
    }
    rest(e, begun_ns);
}

/* Marks come between ticks; with a long interval they must not wait for the next one. */
static void on_flush(void *user, uint64_t now_ns, uint64_t missed)
{
    struct engine *e = user;
    (void)missed;
    if (e->writer)
        trace_writer_flush(e->writer, now_ns, false);
}

/* With what was measured since the last tick, unless that was just now. */
static void tick_early(struct engine *e, uint64_t now_ns)
{
    struct proc_unique_cost cost;
    uint64_t due_ns = e->last_tick_ns + HURRY_MS * NS_PER_MS;
    proc_unique_cost(e->unique, &cost);
    if (cost.scans_done == e->hurried_scans || interval_now(e) <= HURRY_MS * NS_PER_MS)
        return;
    e->hurried_scans = cost.scans_done;
    loop_set_timer(e->tick_timer, due_ns > now_ns ? due_ns : now_ns, interval_now(e));
}

static void on_unique(void *user, uint64_t now_ns, uint64_t missed)
{
    struct engine *e = user;
    uint64_t next_ns = now_ns + NS_PER_S;
    (void)missed;
    proc_unique_slice(e->unique, now_ns, &next_ns);
    loop_set_timer(e->unique_timer, next_ns, 0);
    if (e->is_hurried)
        tick_early(e, now_ns);
}

void engine_hurry(struct engine *e, bool is_hurried)
{
    if (!e->unique_timer || (!is_hurried && !e->is_hurried))
        return;
    e->is_hurried = is_hurried;
    proc_unique_hurry(e->unique, is_hurried);
    if (is_hurried)
        loop_set_timer(e->unique_timer, clock_mono_ns(), 0);
}

/* ---- life ---- */

static int engine_build(struct engine *e)
{
    int r = run_new(&run_settings_live, e->started_ns, &e->run);
    if (r == 0)
        r = judge_new(&(struct judge_options){.no_marks = false}, &e->judge);
    if (r == 0)
        run_observe(e->run, judge_observer(e->judge));
    if (r == 0)
        r = proc_tree_new(e->options.root, on_process, e, &e->tree);
    if (r == 0 && !e->options.no_unique)
        r = proc_unique_new(e->tree,
                            &(struct proc_unique_options){.is_launched = e->options.is_launched},
                            &e->unique);
    if (r == 0)
        r = machine_new(e->options.root, 0, &e->machine);
    if (r == 0 && !e->options.no_gpu && gpu_new(&gpu_vendor_nvml, NS_PER_S, &e->gpu) < 0)
        e->gpu = NULL;
    return r;
}

int engine_new(struct loop *loop, const struct engine_options *options,
               const struct engine_callbacks *callbacks, struct engine **ret, struct err *err)
{
    struct engine *e = calloc(1, sizeof *e);
    if (!e)
        return err_set(err, -ENOMEM, "out of memory");
    e->loop = loop;
    e->options = *options;
    e->callbacks = *callbacks;
    e->psi_fd = e->record_dir_fd = -1;
    engine_charge(e, &ENGINE_NO_CHARGE);
    e->is_young = !e->options.interval_ns;
    if (e->is_young)
        e->options.interval_ns = NS_PER_S;
    e->walk = pace_of(walk_period(e), 100);
    e->status = pace_of(0, 0);
    e->pss = pace_of(PSS_PERIOD_S * NS_PER_S, 100);
    e->limit = pace_of(LIMIT_PERIOD_S * NS_PER_S, 100);
    e->verdict = pace_of((e->is_young ? YOUNG_VERDICT_S : VERDICT_PERIOD_S) * NS_PER_S, 50);
    e->started_ns = clock_mono_ns();
    e->started_wall_ns = clock_wall_ns();
    int r = engine_build(e);
    if (r < 0) {
        engine_free(e);
        return err_set(err, r, "cannot begin to watch: %s", strerror(-r));
    }
    *ret = e;
    return 0;
}

static void free_histories(struct engine *e)
{
    for (size_t i = 0; e->tree && i < proc_tree_count(e->tree); i++) {
        struct proc_node *node = proc_tree_at(e->tree, i);
        free(node->user);
        node->user = NULL;
    }
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    engine_stop(e, NULL);
    free_histories(e);
    proc_unique_free(e->unique);
    proc_tree_free(e->tree);
    run_free(e->run);
    judge_free(e->judge);
    machine_free(e->machine);
    if (e->record_dir_fd >= 0)
        close(e->record_dir_fd);
    if (e->gpu)
        gpu_free(e->gpu);
    free(e);
}

void engine_limits_of(struct engine *e, int32_t pid)
{
    struct machine *m = NULL;
    if (machine_new(e->options.root, pid, &m) < 0)
        return;
    machine_free(e->machine);
    e->machine = m;
}

void engine_charge(struct engine *e, const struct engine_charge *charge)
{
    e->charge = *charge;
    e->kernel_last_bytes = 0;
}

void engine_own_limit(struct engine *e, uint64_t limit_bytes)
{
    e->own_limit_bytes = limit_bytes;
}

void engine_segment(struct engine *e, unsigned number)
{
    char text[48];
    snprintf(text, sizeof text, "{\"segment\":%u}", number);
    engine_note(e, "segment", text);
    e->step_known = false;
    e->earlier_peak_bytes = engine_peak(e);
    e->earlier_request_bytes = engine_request(e);
    peak_restart(&e->peak);
}

int engine_watch_pid(struct engine *e, int32_t pid, struct err *err)
{
    if (!e->had_any)
        engine_limits_of(e, pid);
    return proc_tree_add(e->tree, pid, clock_mono_ns(), err);
}

int engine_watch_below(struct engine *e, int32_t pid, struct err *err)
{
    return proc_tree_add_below(e->tree, pid, clock_mono_ns(), err);
}

int engine_watch_all(struct engine *e, struct err *err)
{
    e->watching_all = true;
    return proc_tree_add_all(e->tree, clock_mono_ns(), err);
}

int engine_start(struct engine *e)
{
    uint64_t now_ns = clock_mono_ns();
    int r = loop_add_timer(e->loop, now_ns, interval_now(e), on_tick, e, &e->tick_timer);
    if (r == 0 && e->options.interval_ns > NS_PER_S)
        r = loop_add_timer(e->loop, now_ns, NS_PER_S, on_flush, e, &e->flush_timer);
    if (r == 0 && e->unique)
        r = loop_add_timer(e->loop, now_ns + NS_PER_S / 2, 0, on_unique, e, &e->unique_timer);
    return r;
}

void engine_look_now(struct engine *e)
{
    if (!e->stopped)
        tick(e, clock_mono_ns(), true);
}

static void track_bound(struct track *t, bool begins, bool ends, uint64_t t_ns)
{
    if (begins)
        t->from_ns = t_ns;
    t->until_ns = ends ? t_ns : 0;
}

/* What was before the training is start-up, what comes after it is given back: neither is growth.
 * A training that goes on, or another one, takes the end back. */
static void bound_floors(struct engine *e, const struct mark *mark, bool is_first_step)
{
    bool begins = mark->kind == MARK_BEGIN || is_first_step, ends = mark->kind == MARK_END;
    if (!begins && !ends && !(mark->kind == MARK_STEP && e->tree_track.until_ns))
        return;
    track_bound(&e->tree_track, begins, ends, mark->t_ns);
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        struct history *h = history_of(proc_tree_at(e->tree, i));
        if (h)
            track_bound(&h->rss, begins, ends, mark->t_ns);
    }
}

/* False: the mark is beyond the recording's budget. The judge must not use it then, so that a
 * verdict recomputed from the recording is the same. */
static bool record_mark(struct engine *e, const struct mark *mark)
{
    if (!e->writer || trace_writer_mark(e->writer, mark))
        return true;
    if (!e->said_thinned)
        engine_say(e,
                   "marks come faster than %d KiB/s: the recording leaves out steps (not epochs, "
                   "evaluations and checkpoints), and notes how many",
                   ENGINE_MARK_BYTES_PER_S / 1024);
    e->said_thinned = true;
    return false;
}

void engine_mark(struct engine *e, const struct mark *mark)
{
    bool is_first_step = mark->kind == MARK_STEP && e->steps_seen == 0;
    e->marks_seen++;
    if (mark->kind == MARK_STEP)
        e->steps_seen++;
    bound_floors(e, mark, is_first_step);
    if (mark->kind == MARK_STEP && (mark->has & MARK_HAS_STEP)) {
        e->step_known = true;
        e->step = mark->step;
    }
    if (mark->kind == MARK_SERIES && figures_hear(&e->figures, mark))
        return;
    struct mark told = *mark;
    told.t_ns = in_order(e, mark->t_ns);
    if (record_mark(e, &told)) {
        run_add_mark(e->run, &told);
        e->is_judged = false;
    }
    if (is_first_step) /* all growth is measured from here */
        engine_look_now(e);
}

void engine_note(struct engine *e, const char *kind, const char *json_text)
{
    uint64_t t_ns = in_order(e, clock_mono_ns());
    if (e->writer)
        trace_writer_note(e->writer, t_ns, kind, json_text);
    run_add_note(e->run, t_ns, kind, json_text, strlen(json_text));
}

void engine_job_ended(struct engine *e, const json_t *end)
{
    judge_end(e->judge, end);
    e->is_judged = false;
}

void engine_set_held(struct engine *e, const struct held *list, size_t count)
{
    judge_set_held(e->judge, list, count);
    e->is_judged = false;
}

int engine_stop(struct engine *e, const json_t *footer)
{
    int r = 0;
    if (!e->stopped && e->last_tick_ns)
        engine_judge_now(e, e->last_tick_ns); /* its last change belongs into the recording */
    e->stopped = true;
    loop_remove(e->tick_timer);
    loop_remove(e->unique_timer);
    loop_remove(e->flush_timer);
    loop_remove(e->psi_source);
    loop_remove(e->trouble_source);
    e->tick_timer = e->unique_timer = e->flush_timer = e->psi_source = e->trouble_source = NULL;
    if (e->psi_fd >= 0)
        close(e->psi_fd);
    e->psi_fd = -1;
    if (e->writer) {
        trace_writer_status(e->writer, &e->recorded);
        r = trace_writer_close(e->writer, footer, 10 * NS_PER_S);
        e->writer = NULL;
    }
    return r;
}
