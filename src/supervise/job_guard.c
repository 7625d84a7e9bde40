/* The guard of a job: passes readings, marks and acknowledgements to the ladder, which makes the
 * decisions, and carries out the ladder's decisions. */
#include "supervise/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/number.h"
#include "base/loop.h"
#include "base/text.h"
#include "guard/gpu_gauge.h"
#include "judge/judge.h"

enum {
    ALERT_MS = 20, /* interval between decisions while the guard is acting */
    ACTS_AT_ONCE = 6,
};

/* ---- acting ---- */

/* The job's memory at the last sample. */
static uint64_t job_bytes(const struct job *j)
{
    uint64_t bytes = 0;
    (void)engine_memory(j->engine, &bytes);
    return bytes;
}

static void be_alert(struct job *j, uint64_t now_ns);

static uint64_t job_bytes_now(struct job *j)
{
    uint64_t bytes = 0;
    (void)engine_memory_now(j->engine, &bytes);
    return bytes;
}

void job_guard_request_checkpoint(struct job *j, uint64_t now_ns)
{
    char why[CHECKPOINT_TEXT_MAX] = "";
    struct job_guard *g = &j->guard;
    /* if no trigger is active, the request came from the user, from another node or from the time
     * limit */
    g->is_requested = g->ladder.trigger == LADDER_BY_NOTHING;
    if (checkpoint_request(&g->checkpoint, now_ns, j->marks, engine_tree(j->engine), why) <= 0) {
        job_notifyf(j, "guard: cannot request a checkpoint: %s", why);
        return;
    }
    timing_save_begin(&g->timing, now_ns, job_bytes_now(j));
    be_alert(j, now_ns);
}

/* Returns the trigger that caused the checkpoint in progress, as a word. */
static const char *requested_by(const struct job_guard *g)
{
    return g->is_requested ? "request" : ladder_trigger_name(g->ladder.trigger);
}

static void set_guard_cause(struct job *j, const struct ladder_decision *d)
{
    job_set_cause(&j->now, d->trigger == LADDER_BY_PLAN ? CAUSE_PLAN : CAUSE_GUARD, d->why);
}

static const char *act_text(enum ladder_act act)
{
    static const char *const words[] = {
        [LADDER_DO_WARN] = "memory is running out", [LADDER_DO_REQUEST] = "requesting a checkpoint",
        [LADDER_DO_TERM] = "stopping the job",      [LADDER_DO_KILL] = "killing the job",
        [LADDER_DO_STAND_DOWN] = "standing down",
    };
    return words[act];
}

static void act(struct job *j, uint64_t now_ns, const struct ladder_decision *d)
{
    bool dry = j->options->guard.dry_run;
    /* kill before reporting, because reporting allocates memory */
    if (d->act == LADDER_DO_KILL && !dry)
        reflex_kill(j->guard.reflex);
    job_guard_put_event(j, now_ns, ladder_act_name(d->act), ladder_trigger_name(d->trigger),
                        d->has_gpu ? &d->gpu : NULL, d->why);
    /* a planned restart is reported once, by the action that follows the warning */
    if (d->act != LADDER_DO_WARN || d->trigger != LADDER_BY_PLAN)
        job_notifyf(j, "guard: %s%s: %s", dry ? "(dry run) " : "", act_text(d->act), d->why);
    if (dry)
        return;
    if (d->act == LADDER_DO_REQUEST) {
        if (!job_node_request(j, d->why))
            job_guard_request_checkpoint(j, now_ns);
    } else if (d->act == LADDER_DO_TERM) {
        set_guard_cause(j, d);
        if (j->node) {
            job_node_stop(j, d->why);
            return;
        }
        checkpoint_send_stop(&j->guard.checkpoint, j->marks);
        job_term(j);
    } else if (d->act == LADDER_DO_KILL) {
        set_guard_cause(j, d);
        job_node_killed(j, d->why);
        job_begin_ending(j, KILLING);
    }
}

/* ---- deciding ---- */

static void read_forecast(const struct job *j, struct ladder_input *in)
{
    const struct judge_tree *tree = judge_tree(engine_verdict(j->engine));
    if (!tree)
        return;
    const struct verdict_result *r = &tree->result;
    bool will = r->leak == VERDICT_LEAK_YES || r->shape_leaks ||
                (r->word == VERDICT_FILLING && r->forecast.has_fits && !r->forecast.fits);
    in->forecast_known = will && r->oom.known && r->oom.has_t;
    in->forecast_s = in->forecast_known ? r->oom.eta_s_low : 0;
}

static void read_gpus(const struct job *j, struct ladder_input *in)
{
    struct run_entity *const *gpus;
    const struct run *run = engine_run(j->engine);
    size_t n = run_living(run, RUN_GPU, &gpus);
    for (size_t i = 0; i < n; i++)
        /* readings taken before this segment started belong to the previous segment */
        if (gpus[i]->id < LADDER_GPUS &&
            gpus[i]->last_ns > u64_minus(j->now.started_ns, run->start_mono_ns))
            gpu_gauge_read(gpus[i], judge_result(gpus[i]), &j->options->guard.gpu_limit,
                           &in->gauge[LADDER_HOST_GAUGES + gpus[i]->id]);
}

static bool plan_is_due(const struct job *j, uint64_t now_ns)
{
    const struct restart_every *e = &j->options->guard.restart_every;
    const struct job_segment *n = &j->now;
    if (n->number >= j->options->guard.max_restarts)
        return false;
    if (e->unit == RESTART_AFTER_NS)
        return now_ns - n->started_ns >= e->value;
    if (e->unit == RESTART_AFTER_STEPS)
        return n->progress.has_step && n->progress.last_step >= n->progress.first_step &&
               (uint64_t)n->progress.last_step - (uint64_t)n->progress.first_step >= e->value - 1;
    return e->unit == RESTART_AT_BYTES && job_bytes(j) >= e->value;
}

static void read_gauges(struct job *j, struct ladder_input *in)
{
    for (unsigned i = 0; i < REFLEX_GAUGES; i++) {
        struct reflex_reading r;
        reflex_read(j->guard.reflex, i, &r);
        /* readings taken before this segment started belong to the previous segment */
        if (r.known && r.t_ns > j->now.started_ns && j->guard.gauge[i].limit_bytes)
            in->gauge[i] = (struct ladder_gauge){.known = true,
                                                 .limit_bytes = j->guard.gauge[i].limit_bytes,
                                                 .used_bytes = r.used_bytes,
                                                 .room_bytes = r.room_bytes,
                                                 .pace_bytes_per_s = r.pace_bytes_per_s};
    }
}

static void gather_input(struct job *j, uint64_t now_ns, struct ladder_input *in)
{
    char why[CHECKPOINT_TEXT_MAX];
    unsigned which;
    const struct sample *machine = &engine_run(j->engine)->machine.last;
    *in = (struct ladder_input){.now_ns = now_ns};
    read_gauges(j, in);
    read_forecast(j, in);
    read_gpus(j, in);
    in->pressure_known = sample_has(machine, MACHINE_PSI_FULL);
    in->pressure = in->pressure_known ? (double)machine->v[MACHINE_PSI_FULL] / 10000 : 0;
    in->plan_due = plan_is_due(j, now_ns);
    in->can_request = checkpoint_is_possible(&j->guard.checkpoint, j->marks, why);
    in->ack = job_node_ack(j);
    in->is_killed = reflex_killed_ns(j->guard.reflex, &which) != 0;
}

static void report_reflex_kill(struct job *j)
{
    unsigned which;
    uint64_t killed_ns = reflex_killed_ns(j->guard.reflex, &which);
    struct reflex_reading r;
    char left[TEXT_SIZE_MAX], of[TEXT_SIZE_MAX], pace[TEXT_SIZE_MAX];
    if (!killed_ns || j->guard.ladder.rung == LADDER_KILLED)
        return;
    reflex_read(j->guard.reflex, which, &r);
    struct ladder_decision d = {.act = LADDER_DO_KILL, .trigger = LADDER_BY_LEVEL};
    text_size(left, r.least_headroom_bytes);
    text_size(of, j->guard.gauge[which].limit_bytes);
    text_size(pace, (uint64_t)r.pace_bytes_per_s);
    snprintf(d.why, sizeof d.why,
             "%s left of %s, growing by %s/s: too fast for a checkpoint or "
             "SIGTERM",
             left, of, pace);
    set_guard_cause(j, &d);
    job_guard_put_event(j, killed_ns, "kill", ladder_trigger_name(d.trigger), NULL, d.why);
    job_notifyf(j, "guard: killed the job: %s", d.why);
    job_node_killed(j, d.why);
    job_begin_ending(j, KILLING);
}

/* Starts the alert timer, because regular ticks are too infrequent while the guard is acting. */
static void be_alert(struct job *j, uint64_t now_ns)
{
    struct job_guard *g = &j->guard;
    bool alert = g->ladder.rung != LADDER_CALM || g->checkpoint.is_open || g->timing.save_begun_ns;
    if (alert == g->is_alert)
        return;
    g->is_alert = alert;
    if (alert)
        loop_set_timer(g->alert_timer, now_ns + ALERT_MS * NS_PER_MS, ALERT_MS * NS_PER_MS);
    else
        loop_disarm_timer(g->alert_timer);
}

void job_guard_decide(struct job *j, uint64_t now_ns)
{
    struct job_guard *g = &j->guard;
    struct ladder_decision d;
    struct ladder_input in;
    if (j->now.exited)
        return;
    for (int i = 0; g->reflex && i < ACTS_AT_ONCE; i++) {
        gather_input(j, now_ns, &in);
        report_reflex_kill(j);
        ladder_step(&g->ladder, &in, &g->timing, &d);
        if (d.act == LADDER_DO_NOTHING)
            break;
        act(j, now_ns, &d);
    }
    be_alert(j, now_ns);
    job_control_state(j);
}

void job_guard_exited(struct job *j)
{
    if (j->guard.reflex)
        report_reflex_kill(j);
}

void job_guard_on_reflex(void *user, int fd, uint32_t events)
{
    uint64_t count;
    (void)events;
    (void)!read(fd, &count, sizeof count);
    job_guard_decide(user, clock_mono_ns());
}

/* ---- acknowledgements ---- */

/* Called when a checkpoint is written: stores how much memory it needed, so that the next one is
 * requested while that much memory is available. */
static void save_ended(struct job *j, uint64_t now_ns)
{
    struct job_guard *g = &j->guard;
    uint64_t before = g->timing.save_rise_bytes;
    timing_memory(&g->timing, job_bytes_now(j));
    timing_save_end(&g->timing, now_ns);
    for (unsigned i = 0; g->reflex && g->timing.save_rise_bytes != before && i < REFLEX_GAUGES; i++)
        if (g->gauge[i].source != REFLEX_NONE)
            job_guard_set_lines(&j->guard, i);
}

/* Called when the job's answer to a checkpoint request has changed. FAILED is the reason to report
 * if the checkpoint has failed. */
static void ack_changed(struct job *j, uint64_t now_ns, const char *failed)
{
    struct job_guard *g = &j->guard;
    struct job_segment *n = &j->now;
    if (g->checkpoint.ack == LADDER_ACK_DONE) {
        save_ended(j, now_ns);
        n->progress.has_checkpoint = true;
        n->progress.checkpoint_has_step = n->progress.has_step;
        n->progress.checkpoint_step = n->progress.last_step;
        job_guard_put_checkpoint(j, now_ns);
        job_guard_put_event(j, now_ns, "checkpoint", requested_by(g), NULL, "checkpoint written");
        job_notifyf(j, "guard: checkpoint written after %.1f s",
                    (double)(now_ns - g->checkpoint.requested_ns) / (double)NS_PER_S);
    } else if (g->checkpoint.ack == LADDER_ACK_FAILED) {
        timing_save_failed(&g->timing);
        /* a job that is being stopped is not expected to answer, so the failure is not reported */
        if (g->ladder.rung < LADDER_STOPPING) {
            job_guard_put_event(j, now_ns, "checkpoint failed", requested_by(g), NULL, failed);
            job_notifyf(j, "guard: checkpoint failed: %s", failed);
        }
    }
    job_node_acked(j);
    job_guard_decide(j, now_ns);
}

void job_guard_on_alert(void *user, uint64_t now_ns)
{
    struct job *j = user;
    struct reflex_reading r = {0};
    if (j->guard.reflex)
        reflex_read(j->guard.reflex, 0, &r);
    timing_memory(&j->guard.timing, r.known ? r.used_bytes : job_bytes(j));
    if (checkpoint_check_file(&j->guard.checkpoint))
        ack_changed(j, now_ns, "");
    else
        job_guard_decide(j, now_ns);
}

int job_guard_checkpoint(struct job *j, char why[CHECKPOINT_TEXT_MAX])
{
    struct job_guard *g = &j->guard;
    uint64_t now_ns = clock_mono_ns();
    why[0] = '\0';
    if (j->now.exited || j->now.ending != RUNNING || j->now.cause || j->now.is_last)
        return -EALREADY;
    if (g->checkpoint.is_open) /* a checkpoint is already in progress */
        return 0;
    if (!checkpoint_is_possible(&g->checkpoint, j->marks, why) ||
        checkpoint_request(&g->checkpoint, now_ns, j->marks, engine_tree(j->engine), why) <= 0)
        return -ESRCH;
    g->is_requested = true;
    timing_save_begin(&g->timing, now_ns, job_bytes_now(j));
    job_guard_put_event(j, now_ns, ladder_act_name(LADDER_DO_REQUEST), requested_by(g), NULL,
                        "requested by the user");
    be_alert(j, now_ns);
    return 0;
}

void job_guard_reaped(struct job *j, pid_t pid, int status)
{
    if ((WIFEXITED(status) || WIFSIGNALED(status)) &&
        checkpoint_command_exited(&j->guard.checkpoint, pid, status))
        ack_changed(j, clock_mono_ns(), "the --checkpoint-cmd command failed");
}

static void note_step(struct job_segment *n, const struct mark *mark)
{
    if (mark->has & MARK_HAS_MAX_STEPS)
        n->progress.max_steps = mark->max_steps;
    if (mark->has & MARK_HAS_EPOCH) {
        n->progress.has_epoch = true;
        n->progress.epoch = mark->epoch;
    }
    if (mark->kind != MARK_STEP || !(mark->has & MARK_HAS_STEP))
        return;
    if (!n->progress.has_step ||
        /* a smaller step than the first: another training stage counts from 0 again */
        mark->step < n->progress.first_step)
        n->progress.first_step = mark->step;
    n->progress.has_step = true;
    n->progress.last_step = mark->step;
    n->progress.counts_anew = mark_is(mark, "COUNTED", "1");
}

/* Stores the step of a checkpoint that the job wrote without a request, because the next segment
 * resumes from that checkpoint. */
static void note_save(struct job *j, const struct mark *mark)
{
    struct job_segment *n = &j->now;
    struct timing *t = &j->guard.timing;
    bool is_phase = mark->kind == MARK_PHASE &&
                    (mark_is(mark, "NAME", "save") || mark_is(mark, "NAME", "checkpoint"));
    if (is_phase && mark_is(mark, "STATE", "begin"))
        timing_save_begin(t, mark->t_ns, job_bytes_now(j));
    else if (is_phase && mark_is(mark, "STATE", "end"))
        save_ended(j, mark->t_ns);
    if (mark->kind != MARK_SAVE)
        return;
    n->progress.has_checkpoint = true;
    n->progress.checkpoint_has_step = n->progress.has_step || mark->has & MARK_HAS_STEP;
    n->progress.checkpoint_step = mark->has & MARK_HAS_STEP ? mark->step : n->progress.last_step;
}

void job_guard_mark(struct job *j, const struct mark *mark)
{
    bool is_first_rank = !(mark->has & MARK_HAS_RANK) || mark->rank == job_ranks_first(j);
    if (is_first_rank) {
        note_step(&j->now, mark);
        note_save(j, mark);
    }
    if (is_first_rank && mark->kind == MARK_STEP && (mark->has & MARK_HAS_STEP))
        timing_step(&j->guard.timing, mark->t_ns, mark->step);
    if (checkpoint_mark(&j->guard.checkpoint, mark))
        ack_changed(j, mark->t_ns, "the job reported a failure");
    else if (mark->kind == MARK_PHASE && j->guard.reflex)
        be_alert(j, mark->t_ns);
    else if (mark->kind == MARK_STEP && plan_is_due(j, mark->t_ns))
        job_guard_decide(j, mark->t_ns);
}

/* ---- ticks and processes ---- */

/* Raises the job's peak memory to the peak that the reflex has measured. The reflex samples far
 * more often than once per tick. */
static void raise_peak_by_reflex(struct job *j)
{
    const struct reflex_gauge *g = &j->guard.gauge[0];
    struct reflex_reading reading;
    if (!j->guard.reflex || g->source == REFLEX_NONE)
        return;
    reflex_read(j->guard.reflex, 0, &reading);
    if (reading.known && reading.least_headroom_bytes < g->limit_bytes)
        peak_raise(engine_segment_peak(j->engine), g->limit_bytes - reading.least_headroom_bytes);
}

static void keep_sample(struct job *j, uint64_t now_ns)
{
    struct job_segment *n = &j->now;
    struct job_sample *s = &n->samples[n->sample_count++ % JOB_LAST_SAMPLES];
    const struct sample *m = &engine_run(j->engine)->machine.last;
    *s = (struct job_sample){.t_ns = now_ns, .job_bytes = job_bytes(j), .room_bytes = UINT64_MAX};
    if (sample_has(m, MACHINE_LIMIT) && sample_has(m, MACHINE_LIMIT_USED))
        s->room_bytes = m->v[MACHINE_LIMIT] > m->v[MACHINE_LIMIT_USED]
                            ? m->v[MACHINE_LIMIT] - m->v[MACHINE_LIMIT_USED]
                            : 0;
    raise_peak_by_reflex(j);
}

static void tick_memory_returned(struct job *j)
{
    const struct sample *m = &engine_run(j->engine)->machine.last;
    if (sample_has(m, MACHINE_TOTAL) && sample_has(m, MACHINE_AVAILABLE))
        memory_returned_tick(&j->outcome.given_back,
                             u64_minus(m->v[MACHINE_TOTAL], m->v[MACHINE_AVAILABLE]),
                             sample_has(m, MACHINE_SHMEM) ? m->v[MACHINE_SHMEM] : 0);
    memory_returned_gpus(&j->outcome.given_back, engine_gpus(j->engine));
}

/* Without a cgroup, new memory is not included in the job's total until ebb has measured whether it
 * is shared. If the new memory could bring the job above the alarm threshold, ebb measures it at
 * once. */
static void hurry(struct job *j)
{
    const struct reflex_gauge *g = &j->guard.gauge[0];
    if (j->guard.reflex && g->source == REFLEX_TREE)
        engine_hurry(j->engine,
                     engine_memory_at_most(j->engine) + g->alarm_bytes >= g->limit_bytes);
}

void job_guard_tick(struct job *j, uint64_t now_ns)
{
    struct job_guard *g = &j->guard;
    uint64_t overlap, shared;
    keep_sample(j, now_ns);
    tick_memory_returned(j);
    if (g->reflex)
        job_guard_follow_members(j);
    /* The overlap must be passed on before any code walks the process tree. A walk finds new
     * processes, which are not included in the measured overlap, so memory that they share with
     * their parents would be counted twice. */
    if (g->reflex && engine_overlap(j->engine, &overlap, &shared))
        reflex_overlap(g->reflex, overlap, shared);
    hurry(j);
    if (g->leftovers)
        leftovers_sample(g->leftovers, engine_tree(j->engine), now_ns);
    if (!g->reflex)
        return;
    timing_memory(&g->timing, job_bytes(j));
    job_guard_follow_effective(j);
    job_guard_decide(j, now_ns);
}

void job_guard_process(struct job *j, const struct proc_event *event)
{
    struct job_guard *g = &j->guard;
    const struct proc_node *node = event->node;
    if (event->kind == PROCESS_BORN && g->leftovers)
        leftovers_process(g->leftovers, node->info.id.pid);
    if (event->kind == PROCESS_DIED && g->reflex)
        reflex_remove(g->reflex, node->slot);
    if (event->kind == PROCESS_DIED && j->marks)
        mark_receiver_died(j->marks, node->info.id.pid);
    if (event->kind == PROCESS_DIED && checkpoint_process_died(&g->checkpoint, node->info.id.pid))
        ack_changed(j, event->t_ns, "the process exited before the checkpoint was written");
    if (event->kind != PROCESS_BORN || !g->reflex)
        return;
    int pidfd = io_pidfd_open(node->info.id.pid);
    if (pidfd < 0)
        return;
    /* statm is opened after the pidfd, in the /proc folder that is already open. If that succeeds,
     * the process was alive when the pidfd was opened, so the pidfd refers to the same process. */
    int statm = proc_node_open(engine_tree(j->engine), event->node, "statm", O_RDONLY | O_CLOEXEC);
    if (statm >= 0)
        reflex_add(g->reflex, node->slot, pidfd, statm);
    else
        close(pidfd);
}
