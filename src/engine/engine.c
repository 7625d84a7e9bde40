/* The engine's ticks: they sample the job's processes, its memory and its GPUs, each at its own
 * interval, and pass the samples to the recording, the run and the judge. */
#include "engine/private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/loop.h"
#include "profile/collect.h"

enum {
    LIMIT_PERIOD_S = 30,
    PSS_PERIOD_S = 60,
    VERDICT_PERIOD_S = 10,
    YOUNG_S = 120, /* age in seconds up to which a job is treated as young */
    /* if sampling uses more than 1/200 of a CPU, even a young job is sampled at the normal
     * interval */
    YOUNG_COST_PART = 200,
    YOUNG_VERDICT_S = 2,
    /* interval between ticks while the guard waits until unique memory has been measured */
    HURRY_MS = 100,
};
static const uint64_t YOUNG_INTERVAL_NS = NS_PER_S / 5;

void engine_report(struct engine *e, const char *fmt, ...)
{
    char sentence[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    if (e->callbacks.report)
        e->callbacks.report(e->callbacks.user, sentence);
}

/* Returns T_NS or the latest recorded time, whichever is later. Times in a recording never
 * decrease, and the run must use the same times, so that a replay produces the same verdict. */
static uint64_t in_order(struct engine *e, uint64_t t_ns)
{
    if (t_ns > e->newest_ns)
        e->newest_ns = t_ns;
    return e->newest_ns;
}

static void process_born(struct engine *e, struct proc_node *node)
{
    struct engine_process *p = calloc(1, sizeof *p);
    node->user = p;
    e->had_any = true;
    e->is_empty_reported = false;
    if (p)
        *p = (struct engine_process){.unmeasured_from = e->peaks.peak.ticks};
}

static void process_died(struct engine *e, struct proc_node *node)
{
    struct engine_process *p = engine_process_of(node);
    figures_forget(&e->figures, node->info.id.pid);
    if (p)
        peak_died(&e->peaks.peak, p->unmeasured_from, p->unmeasured_bytes);
    free(p);
    node->user = NULL;
}

static void on_process(void *user, const struct proc_event *ev)
{
    struct engine *e = user;
    uint64_t t_ns = in_order(e, ev->t_ns);
    struct proc_node *node = ev->node;
    struct run_entity *entity = run_process(e->run, t_ns, ev->kind, node->slot, &node->info);
    if (ev->kind == PROCESS_BORN)
        process_born(e, node);
    if (e->writer)
        trace_writer_process(e->writer, t_ns, ev->kind, node->slot, &node->info);
    if ((ev->kind == PROCESS_EXECED || ev->kind == PROCESS_DIED) && e->unique)
        proc_unique_forget(e->unique, node);
    /* ENTITY is NULL after an exit, because the run may free the entity of an exited process */
    if (engine_process_of(node))
        engine_process_of(node)->entity = entity;
    if (e->callbacks.process)
        e->callbacks.process(e->callbacks.user, ev);
    if (ev->kind == PROCESS_DIED)
        process_died(e, node);
}

/* ---- passing samples to the recording, the run and the judge ---- */

static void pass_on_sample(struct engine *e, enum sample_entity_kind kind, uint32_t id,
                           const char *name, const struct sample *s)
{
    if (e->writer)
        trace_writer_sample(e->writer, kind, id, s);
    run_sample(e->run, kind, id, name, s);
}

static void pass_on_figure(struct engine *e, struct figure *f)
{
    struct sample s = {0};
    if (f->is_fresh)
        sample_put(&s, 0, f->value);
    f->is_fresh = false;
    pass_on_sample(e, ENTITY_SERIES, f->id, f->name, &s);
}

static void name_figures(struct engine *e, uint64_t now_ns)
{
    for (size_t i = 0; e->writer && i < e->figures.count; i++) {
        struct figure *f = &e->figures.at[i];
        if (!f->is_named)
            trace_writer_entity(e->writer, now_ns, ENTITY_SERIES, f->id, f->name);
        f->is_named = true;
    }
}

static void pass_on_tick(struct engine *e, uint64_t now_ns)
{
    name_figures(e, now_ns);
    if (e->writer)
        trace_writer_tick_begin(e->writer, now_ns);
    run_tick_begin(e->run, now_ns);
    pass_on_sample(e, ENTITY_MACHINE, 0, NULL, &e->now.machine);
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        const struct proc_node *node = proc_tree_at(e->tree, i);
        pass_on_sample(e, ENTITY_PROCESS, node->slot, NULL, &node->sample);
    }
    for (size_t i = 0; i < GPU_MAX; i++)
        if (i < e->now.gpus.devices || e->now.gpu[i].known)
            pass_on_sample(e, ENTITY_GPU, (uint32_t)i, engine_gpu_name(e, i), &e->now.gpu[i]);
    for (size_t i = 0; i < e->figures.count; i++)
        pass_on_figure(e, &e->figures.at[i]);
    run_tick_end(e->run);
    e->is_judged = false;
    if (e->writer) {
        trace_writer_tick_end(e->writer);
        trace_writer_flush(e->writer, now_ns, false);
    }
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
    e->run->peak_bytes = e->watching_all ? 0 : engine_peak(e);
    judge_update(e->judge);
    e->is_judged = true;
    pace_done(&e->paces.verdict, now_ns, clock_thread_cpu_ns() - begun);
    judge_changes(e->judge, note_change, e);
}

static void process_unmeasured(struct engine *e, struct engine_process *p, struct proc_node *node)
{
    uint64_t bytes = proc_node_unmeasured(e->tree, node);
    e->now.unmeasured_bytes += bytes;
    if (node->sample.read >> SAMPLE_UNIQUE & 1u) {
        p->unmeasured_from = e->peaks.peak.ticks - 1;
        p->unmeasured_bytes = 0;
    }
    if (bytes > p->unmeasured_bytes)
        p->unmeasured_bytes = bytes;
}

static void raise_peaks(struct engine *e)
{
    e->now.unmeasured_bytes = 0;
    for (size_t i = 0; i < proc_tree_count(e->tree) && !e->watching_all; i++) {
        struct proc_node *node = proc_tree_at(e->tree, i);
        struct engine_process *p = engine_process_of(node);
        if (!p)
            continue;
        process_unmeasured(e, p, node);
        if (p->entity)
            peak_process(&e->peaks.peak, p->entity->peak_bytes);
    }
}

static void tick(struct engine *e, uint64_t now_ns, bool whole)
{
    uint64_t begun = clock_thread_cpu_ns();
    if (whole || pace_due(&e->paces.walk, now_ns)) {
        proc_tree_walk(e->tree, now_ns);
        uint64_t walked = clock_thread_cpu_ns();
        pace_done(&e->paces.walk, now_ns, walked - begun);
        begun = walked;
    }
    proc_tree_tick(e->tree, now_ns);
    engine_sample_status(e, now_ns, whole);
    machine_tick(e->machine, &e->now.machine);
    if (pace_due(&e->paces.limit, now_ns))
        engine_sample_limit(e, now_ns);
    if (e->options.pss && pace_due(&e->paces.pss, now_ns))
        engine_sample_pss(e, now_ns);
    engine_sample_gpus(e, now_ns);
    engine_sample_charge(e);
    engine_sample_tree(e);
    engine_apply_own_limit(e);
    pass_on_tick(e, in_order(e, now_ns));
    raise_peaks(e);
    proc_tree_clear_read(e->tree);
    e->now.machine.read = 0;
    for (size_t i = 0; i < GPU_MAX; i++)
        e->now.gpu[i].read = 0;
    e->last_tick_ns = now_ns;
    if (pace_due(&e->paces.verdict, now_ns))
        engine_judge_now(e, now_ns);
    uint64_t cost = clock_thread_cpu_ns() - begun;
    e->cost.total_ns += cost;
    if (cost > e->cost.longest_ns)
        e->cost.longest_ns = cost;
    e->cost.ticks++;
}

static uint64_t interval_now(const struct engine *e)
{
    return e->paces.is_young ? YOUNG_INTERVAL_NS : e->options.interval_ns;
}

/* Returns the interval between two searches for new processes. */
static uint64_t walk_period(const struct engine *e)
{
    uint64_t interval_ns = interval_now(e);
    if (interval_ns < NS_PER_S / 4)
        return NS_PER_S / 4;
    return interval_ns > NS_PER_S ? NS_PER_S : interval_ns;
}

/* Ends the phase of short intervals once the job is no longer young, or once sampling uses too much
 * CPU time. */
static void grow_up(struct engine *e, uint64_t now_ns)
{
    uint64_t age_ns = now_ns - e->started_ns;
    bool is_expensive = age_ns > 5 * NS_PER_S && e->cost.total_ns > age_ns / YOUNG_COST_PART;
    if (!e->paces.is_young || (age_ns < YOUNG_S * NS_PER_S && !is_expensive))
        return;
    e->paces.is_young = false;
    e->paces.walk.period_ns = walk_period(e);
    e->paces.verdict.period_ns = VERDICT_PERIOD_S * NS_PER_S;
    loop_set_timer(e->sources.tick, now_ns + e->options.interval_ns, e->options.interval_ns);
}

static void note_gap(struct engine *e, uint64_t now_ns)
{
    uint64_t since = now_ns - e->last_tick_ns;
    if (!e->last_tick_ns || since < 5 * NS_PER_S || since < 3 * e->options.interval_ns)
        return;
    char text[64];
    snprintf(text, sizeof text, "{\"seconds\":%.3f}", (double)since / (double)NS_PER_S);
    engine_note(e, "gap", text);
}

/* Delays the next tick by the duration of the last one. With hundreds of busy processes a tick may
 * take seconds; the delay leaves half of the time for other work, such as stopping the job. */
static void rest(struct engine *e, uint64_t begun_ns)
{
    const uint64_t now_ns = clock_mono_ns();
    if (now_ns - begun_ns > interval_now(e))
        e->paces.rest_ns = now_ns + (now_ns - begun_ns);
}

static void on_tick(void *user, uint64_t now_ns)
{
    struct engine *e = user;
    const uint64_t begun_ns = clock_mono_ns();
    if (begun_ns < e->paces.rest_ns)
        return;
    note_gap(e, now_ns);
    tick(e, now_ns, false);
    grow_up(e, now_ns);
    if (e->callbacks.tick)
        e->callbacks.tick(e->callbacks.user, now_ns);
    if (e->had_any && !e->watching_all && !e->is_empty_reported && proc_tree_count(e->tree) == 0) {
        e->is_empty_reported = true;
        if (e->callbacks.empty)
            e->callbacks.empty(e->callbacks.user);
    }
    rest(e, begun_ns);
}

/* Flushes the recording between ticks. If the interval between ticks is long, marks would otherwise
 * stay unwritten until the next tick. */
static void on_flush(void *user, uint64_t now_ns)
{
    struct engine *e = user;
    if (e->writer)
        trace_writer_flush(e->writer, now_ns, false);
}

/* Schedules an early tick if unique memory was measured since the last tick. */
static void tick_early(struct engine *e, uint64_t now_ns)
{
    struct proc_unique_cost cost;
    uint64_t due_ns = e->last_tick_ns + HURRY_MS * NS_PER_MS;
    proc_unique_cost(e->unique, &cost);
    if (cost.scans_done == e->now.hurried_scans || interval_now(e) <= HURRY_MS * NS_PER_MS)
        return;
    e->now.hurried_scans = cost.scans_done;
    loop_set_timer(e->sources.tick, due_ns > now_ns ? due_ns : now_ns, interval_now(e));
}

static void on_unique(void *user, uint64_t now_ns)
{
    struct engine *e = user;
    loop_set_timer(e->sources.unique, proc_unique_slice(e->unique, now_ns), 0);
    if (e->now.is_hurried)
        tick_early(e, now_ns);
}

void engine_hurry(struct engine *e, bool is_hurried)
{
    if (!e->sources.unique || (!is_hurried && !e->now.is_hurried))
        return;
    e->now.is_hurried = is_hurried;
    proc_unique_hurry(e->unique, is_hurried);
    if (is_hurried)
        loop_set_timer(e->sources.unique, clock_mono_ns(), 0);
}

/* ---- start and end ---- */

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
    e->record_dir_fd = -1;
    engine_charge(e, &ENGINE_NO_CHARGE);
    e->paces.is_young = !e->options.interval_ns;
    if (e->paces.is_young)
        e->options.interval_ns = NS_PER_S;
    e->paces.walk = pace_of(walk_period(e), 100);
    e->paces.pss = pace_of(PSS_PERIOD_S * NS_PER_S, 100);
    e->paces.limit = pace_of(LIMIT_PERIOD_S * NS_PER_S, 100);
    e->paces.verdict =
        pace_of((e->paces.is_young ? YOUNG_VERDICT_S : VERDICT_PERIOD_S) * NS_PER_S, 50);
    e->started_ns = clock_mono_ns();
    e->started_wall_ns = clock_wall_ns();
    int r = engine_build(e);
    if (r < 0) {
        engine_free(e);
        return err_set(err, r, "cannot watch the job: %s", strerror(-r));
    }
    *ret = e;
    return 0;
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    engine_stop(e, NULL);
    for (size_t i = 0; e->tree && i < proc_tree_count(e->tree); i++)
        free(proc_tree_at(e->tree, i)->user);
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

void engine_segment(struct engine *e, unsigned number)
{
    char text[48];
    snprintf(text, sizeof text, "{\"segment\":%u}", number);
    engine_note(e, "segment", text);
    e->peaks.earlier_bytes = engine_peak(e);
    e->peaks.earlier_request_bytes = engine_request(e);
    peak_restart(&e->peaks.peak);
    /* drop the GPU readings of processes that have exited */
    for (size_t i = 0; i < GPU_MAX; i++)
        e->now.gpu[i].known &= 1u << GPU_TOTAL | 1u << GPU_USED;
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
    int r = loop_add_timer(e->loop, now_ns, interval_now(e), on_tick, e, &e->sources.tick);
    if (r == 0 && e->options.interval_ns > NS_PER_S)
        r = loop_add_timer(e->loop, now_ns, NS_PER_S, on_flush, e, &e->sources.flush);
    if (r == 0 && e->unique)
        r = loop_add_timer(e->loop, now_ns + NS_PER_S / 2, 0, on_unique, e, &e->sources.unique);
    return r;
}

void engine_sample_now(struct engine *e)
{
    if (!e->stopped)
        tick(e, clock_mono_ns(), true);
}

/* Records a mark. Returns false if the recording's budget for marks is used up. The judge must then
 * ignore the mark as well, because a replay would not contain it. */
static bool record_mark(struct engine *e, const struct mark *mark)
{
    if (!e->writer || trace_writer_mark(e->writer, mark))
        return true;
    if (!e->is_thinning_reported)
        engine_report(e,
                      "the job sends more than %d KiB/s of marks, so some steps are not recorded; "
                      "epochs, evaluations and checkpoints are still recorded",
                      ENGINE_MARK_BYTES_PER_S / 1024);
    e->is_thinning_reported = true;
    return false;
}

/* Stores the source of the steps (torch, tqdm, …), which a hook reports when training begins. Any
 * process could send any text here, so only a lower-case word is accepted. */
static void note_source(struct engine *e, const struct mark *mark)
{
    size_t len;
    if (mark->kind != MARK_BEGIN && !(mark->kind == MARK_STEP && e->step_source[0]))
        return;
    const char *source = mark_get(mark, "SOURCE", &len);
    if (mark->kind == MARK_STEP && mark_is(mark, "BY", "hook"))
        return;
    bool is_word = source && len > 0 && len < sizeof e->step_source;
    for (size_t i = 0; is_word && i < len; i++)
        is_word = source[i] >= 'a' && source[i] <= 'z';
    memcpy(e->step_source, is_word ? source : "", is_word ? len : 0);
    e->step_source[is_word ? len : 0] = '\0';
}

void engine_mark(struct engine *e, const struct mark *mark)
{
    bool is_first_step = mark->kind == MARK_STEP && e->steps_seen == 0;
    e->marks_seen++;
    note_source(e, mark);
    if (mark->kind == MARK_STEP) {
        e->steps_seen++;
        proc_tree_note_step(e->tree, mark->pid);
    }
    if (mark->kind == MARK_SERIES && figures_take(&e->figures, mark))
        return;
    struct mark ordered = *mark;
    ordered.t_ns = in_order(e, mark->t_ns);
    if (record_mark(e, &ordered)) {
        run_add_mark(e->run, &ordered);
        e->is_judged = false;
    } else if (mark->kind == MARK_STEP && mark->has & MARK_HAS_STEP) {
        e->run->step = mark->step;
    }
    if (is_first_step) /* the verdict measures growth only from the first step on */
        engine_sample_now(e);
}

void engine_figure(struct engine *e, int32_t pid, const char *name, uint64_t value)
{
    figures_put(&e->figures, pid, name, value);
}

void engine_gpu(struct engine *e, unsigned gpu, const struct collect_gpu *now)
{
    if (gpu >= GPU_MAX)
        return;
    sample_put(&e->now.gpu[gpu], GPU_ALLOCATED, now->allocated_bytes);
    sample_put(&e->now.gpu[gpu], GPU_RESERVED, now->reserved_bytes);
    sample_put(&e->now.gpu[gpu], GPU_PEAK, now->peak_bytes);
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

void engine_read_held(struct engine *e, const char *path)
{
    judge_read_held(e->judge, path, UINT64_MAX);
    e->is_judged = false;
}

/* Closes the recording. Stores the peak in its footer, because a replay of the recorded samples
 * could not compute the peak. */
static int close_recording(struct engine *e, const json_t *footer)
{
    json_auto_t *end = footer ? json_deep_copy(footer) : NULL;
    if (end && engine_peak(e) && !e->watching_all)
        json_object_set_new(end, "peak_bytes", json_u64(engine_peak(e)));
    trace_writer_status(e->writer, &e->recorded);
    int r = trace_writer_close(e->writer, end, 10 * NS_PER_S);
    e->writer = NULL;
    return r;
}

int engine_stop(struct engine *e, const json_t *footer)
{
    /* records the verdict if it has changed since it was last recorded */
    if (!e->stopped && e->last_tick_ns)
        engine_judge_now(e, e->last_tick_ns);
    e->stopped = true;
    loop_remove(e->sources.tick);
    loop_remove(e->sources.unique);
    loop_remove(e->sources.flush);
    loop_remove(e->sources.trouble);
    e->sources = (struct engine_sources){.tick = NULL};
    return e->writer ? close_recording(e, footer) : 0;
}
