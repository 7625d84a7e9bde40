/* Starts a job, and restarts it from its checkpoint. */
#include "supervise/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/loop.h"
#include "base/text.h"
#include "judge/judge.h"
#include "supervise/spawn.h"
#include "mark/receiver.h"
#include "proc/read.h"

enum {
    /* increase of oom_score_adj: to the OOM killer, the job appears to use an additional half of
     * the machine's memory */
    OOM_RAISE = 500,
    /* a segment that reported no step and no checkpoint must have run for at least this time to be
     * restarted */
    SHORT_LIFE_S = 5,
};

/* ---- starting ---- */

/* Returns the job's oom_score_adj, which is higher than ebb's own, so that the OOM killer prefers
 * the job. */
static int oom_score_adj(const struct proc_root *root)
{
    char text[16] = "";
    (void)proc_read(root, 0, "oom_score_adj", text, sizeof text);
    long own = strtol(text, NULL, 10);
    long raised = (own > 0 ? own : 0) + OOM_RAISE;
    return raised > 1000 ? 1000 : (int)raised;
}

static void put_env(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        /* if this ebb runs under another ebb, the other ebb may have set the variable */
        unsetenv(name);
}

/* Sets the documented environment variables, and no others. */
static void set_environment(const struct job *j)
{
    char number[24];
    uint64_t limit = j->guard.limit_bytes;
    put_env("EBB_SOCKET", j->marks ? mark_receiver_path(j->marks) : NULL);
    put_env("EBB_RUN_DIR", j->options->rundir.fd >= 0 ? j->options->rundir.path : NULL);
    put_env("EBB_RESUME", j->now.number ? "1" : NULL);
    snprintf(number, sizeof number, "%u", j->now.number);
    put_env("EBB_SEGMENT", number);
    if (!limit)
        limit = j->guard.effective.limit_bytes;
    snprintf(number, sizeof number, "%llu", (unsigned long long)limit);
    put_env("EBB_LIMIT_BYTES", limit ? number : NULL);
    job_heap_environment(j);
}

int job_segment_start(struct job *j, struct err *err)
{
    sigset_t mask;
    struct spawned child;
    AUTO_FREE char **argv =
        spawn_argv(j->options->argv, j->now.number ? j->options->guard.resume_args : NULL);
    if (!argv)
        return err_set(err, -ENOMEM, "out of memory");
    set_environment(j);
    /* the guard must be ready before the job can exceed its limit */
    job_guard_segment(j);
    job_guard_ooms(j);
    loop_original_mask(j->loop, &mask);
    const struct spawn_request request = {.options = j->options,
                                          .argv = argv,
                                          .mask = &mask,
                                          .cgroup = &j->guard.cgroup,
                                          .is_restart = j->now.number > 0,
                                          .oom_score_adj = oom_score_adj(j->options->engine.root)};
    int r = j->options->node ? spawn_holder(&child) : spawn_job(&request, &child, &j->exec_error);
    if (r < 0)
        return err_set(err, r, "cannot start the job: %s", strerror(-r));
    if (j->exec_error)
        return 0;
    j->now.pid = child.pid;
    j->now.pidfd = io_pidfd_open(child.pid);
    j->now.started_ns = clock_mono_ns();
    j->now.started_wall_ns = clock_wall_ns();
    j->note->job = child.pid;
    const int streams[] = {child.streams.terminal, child.streams.out, child.streams.err};
    sentinel_keep_streams(j->note, streams, sizeof streams / sizeof *streams);
    r = job_streams_start(j, &child.streams);
    if (r < 0)
        return err_set(err, r, "cannot read the job's output: %s", strerror(-r));
    engine_limits_of(j->engine, (int32_t)j->now.pid);
    engine_sample_now(j->engine);
    job_control_state(j);
    return 0;
}

/* ---- cause of the end of a segment ---- */

void job_set_cause(struct job_segment *n, enum cause cause, const char *why)
{
    if (cause <= n->cause || (n->cause == CAUSE_PLAN && cause == CAUSE_GUARD))
        return;
    n->cause = cause;
    snprintf(n->why, sizeof n->why, "%s", why);
}

bool job_is_guard_stop(const struct job_segment *n)
{
    return n->cause == CAUSE_GUARD || n->cause == CAUSE_PLAN;
}

enum cause job_cause_of(const struct job *j, int status, char text[DEATH_TEXT])
{
    const struct job_segment *n = &j->now;
    struct death_ooms after;
    const bool above = j->guard.effective_dir[0] != '\0';
    death_ooms_read(j->options->engine.root, &j->guard.cgroup, j->guard.effective_dir,
                    j->guard.effective.kind == LIMIT_CGROUP_V2, &after);
    const struct death_facts facts = {
        .status = status,
        .cause = n->cause,
        .why = n->why,
        .sent_signal = n->operator_signal,
        .before = &n->ooms,
        .after = &after,
        .tail = &j->guard.tail,
        .shm_full = leftovers_folder_is_full("/dev/shm"),
        .limit_where = above ? j->guard.effective.where : NULL,
        .limit_is_own = j->guard.limit_bytes != 0,
        .limit_bytes = j->guard.limit_bytes ? j->guard.limit_bytes
                       : above              ? j->guard.effective.limit_bytes
                                            : 0,
    };
    return death_cause(&facts, text);
}

static void keep_last_samples(const struct job_segment *n, struct outcome_end *end)
{
    uint32_t from = n->sample_count > JOB_LAST_SAMPLES ? n->sample_count - JOB_LAST_SAMPLES : 0;
    end->last_samples = calloc(JOB_LAST_SAMPLES, sizeof *end->last_samples);
    for (uint32_t i = from; end->last_samples && i < n->sample_count; i++) {
        const struct job_sample *s = &n->samples[i % JOB_LAST_SAMPLES];
        uint64_t before_ns = n->ended_ns > s->t_ns ? n->ended_ns - s->t_ns : 0;
        end->last_samples[end->last_sample_count++] =
            (struct outcome_sample){.before_end_s = (double)before_ns / (double)NS_PER_S,
                                    .job_bytes = s->job_bytes,
                                    .has_room_bytes = s->room_bytes != UINT64_MAX,
                                    .room_bytes = s->room_bytes};
    }
}

static void fill_end(struct job *j, struct outcome_end *ret)
{
    struct job_segment *n = &j->now;
    char text[DEATH_TEXT];
    n->cause = job_cause_of(j, n->status, text);
    const char *by = n->cause == CAUSE_CANCELLED ? n->why : cause_by_text(n->cause);
    *ret = outcome_end_of_status(n->status);
    ret->status = job_run_status(j);
    ret->has_core = WIFSIGNALED(n->status);
    ret->core = WCOREDUMP(n->status);
    ret->has_left_behind = true;
    ret->left_behind = n->left_behind;
    ret->by = by ? strdup(by) : NULL;
    ret->cause = strdup(text);
    ret->cause_kind = strdup(cause_kind_name(n->cause));
    keep_last_samples(n, ret);
}

const struct outcome_end *job_outcome_end(struct job *j)
{
    struct outcome *o = &j->outcome;
    const char *error = j->failure.text[0] ? j->failure.text
                        : j->exec_error    ? strerror(-j->exec_error)
                                           : NULL;
    if (!error && o->segment_count)
        return &o->segments[o->segment_count - 1].end;
    if (error && !o->end.error)
        o->end = (struct outcome_end){.kind = OUTCOME_NOT_STARTED,
                                      .has_status = true,
                                      .status = job_run_status(j),
                                      .has_left_behind = true,
                                      .error = strdup(error)};
    return &o->end;
}

int job_run_status(const struct job *j)
{
    if (j->failure.text[0])
        return 125;
    if (j->exec_error)
        return j->exec_error == -ENOENT || j->exec_error == -ENOTDIR ? 127 : 126;
    if (job_is_guard_stop(&j->now))
        return JOB_GUARD_STATUS;
    return WIFSIGNALED(j->now.status) ? 128 + WTERMSIG(j->now.status) : WEXITSTATUS(j->now.status);
}

static void keep_segment(struct job *j)
{
    const struct job_segment *n = &j->now;
    const struct segment_progress *p = &n->progress;
    struct outcome *o = &j->outcome;
    char started[TEXT_LOCAL_MAX];
    struct outcome_segment *list =
        reallocarray(o->segments, o->segment_count + 1, sizeof *o->segments);
    if (!list)
        return;
    o->segments = list;
    struct outcome_segment *s = &list[o->segment_count++];
    *s =
        (struct outcome_segment){.segment = n->number,
                                 .pid = (int32_t)n->pid,
                                 .started = strdup(text_local_time(started, n->started_wall_ns)),
                                 .duration_s = (double)(n->ended_ns - n->started_ns) / 1e9,
                                 .has_first_step = p->has_step,
                                 .first_step = p->first_step,
                                 .has_last_step = p->has_step,
                                 .last_step = p->last_step,
                                 .has_checkpoint_step = p->has_checkpoint && p->checkpoint_has_step,
                                 .checkpoint_step = p->checkpoint_step,
                                 .peak_bytes = peak_bytes(engine_segment_peak(j->engine))};
    fill_end(j, &s->end);
    json_auto_t *end = outcome_end_json(&s->end);
    engine_job_ended(j->engine, end);
    job_heap_ended(j);
    engine_judge(j->engine);
    const struct judge_tree *tree = judge_tree(engine_verdict(j->engine));
    s->verdict = tree ? strdup(verdict_word_name(tree->result.word)) : NULL;
}

/* ---- restarting ---- */

/* Clears the cause if the job has finished after all: the guard was stopping it, but it exited with
 * status 0 after its last step. */
static void clear_cause_if_finished(struct job_segment *n)
{
    bool has_finished = n->progress.max_steps > 0 && n->progress.has_step &&
                        n->progress.last_step >= n->progress.max_steps;
    if (job_is_guard_stop(n) && WIFEXITED(n->status) && WEXITSTATUS(n->status) == 0 &&
        has_finished) {
        n->cause = CAUSE_UNKNOWN;
        n->why[0] = '\0';
    }
}

/* Gets the highest step of earlier segments. Returns false if none of them reported a step. */
static bool furthest_step(const struct outcome *o, int64_t *ret)
{
    bool known = false;
    for (size_t i = 0; i < o->segment_count; i++) {
        const struct outcome_segment *s = &o->segments[i];
        if (s->has_last_step && (!known || s->last_step > *ret))
            *ret = s->last_step;
        known |= s->has_last_step;
    }
    return known;
}

/* Returns true if another segment may start; otherwise writes the reason to no_restart. */
static bool may_go_on(struct job *j)
{
    const struct guard_settings *g = &j->options->guard;
    const struct job_segment *n = &j->now;
    int64_t before = 0;
    bool has_before = furthest_step(&j->outcome, &before);
    double lived_s = (double)(n->ended_ns - n->started_ns) / (double)NS_PER_S;
    if (has_before && !n->progress.counts_anew &&
        (!n->progress.has_step || n->progress.last_step <= before))
        snprintf(j->no_restart, sizeof j->no_restart,
                 "segment %u made no progress: it reached step %lld, but an earlier segment "
                 "reached step %lld",
                 n->number, n->progress.has_step ? (long long)n->progress.last_step : 0LL,
                 (long long)before);
    else if (!n->progress.has_step && !n->progress.has_checkpoint && lived_s < SHORT_LIFE_S)
        snprintf(j->no_restart, sizeof j->no_restart,
                 "the segment was stopped after %.1f s, before its first step or checkpoint: a "
                 "restart would not make progress",
                 lived_s);
    else if (n->number >= g->max_restarts)
        snprintf(j->no_restart, sizeof j->no_restart,
                 "the job was already restarted %u time%s (--max-restarts)", n->number,
                 n->number == 1 ? "" : "s");
    return !j->no_restart[0];
}

static bool wants_again(const struct job *j)
{
    const struct job_segment *n = &j->now;
    return j->options->guard.restart && job_is_guard_stop(n) && !n->is_last &&
           (!j->client.is_gone || j->options->guard.keep_on_exit || j->options->is_detached);
}

static void report_restart(struct job *j, unsigned number)
{
    const struct job_segment *n = &j->now;
    if (n->progress.has_checkpoint && n->progress.checkpoint_has_step)
        job_notifyf(j, "restarting the job from its checkpoint of step %lld (segment %u)",
                    (long long)n->progress.checkpoint_step, number);
    else if (n->progress.has_checkpoint)
        job_notifyf(j, "restarting the job from its checkpoint (segment %u)", number);
    else
        job_notifyf(j, "restarting the job (segment %u); no checkpoint was acknowledged", number);
}

void job_segment_over(struct job *j)
{
    /* takes one more sample, in order to record the exits of the last processes */
    engine_sample_now(j->engine);
    clear_cause_if_finished(&j->now);
    bool again = wants_again(j);
    if (again && !may_go_on(j)) {
        job_notifyf(j, "not restarted: %s", j->no_restart);
        again = false;
    }
    keep_segment(j);
    if (!again) {
        loop_stop(j->loop);
        return;
    }
    unsigned number = j->now.number + 1;
    report_restart(j, number);
    /* a client that was stopped by Ctrl-Z must be running again for the next segment */
    job_client_wake(j);
    job_streams_close(&j->output);
    engine_segment(j->engine, number);
    if (j->now.pidfd >= 0)
        close(j->now.pidfd);
    j->now = (struct job_segment){.number = number, .pidfd = -1};
    if (job_segment_start(j, &j->failure) < 0 || j->exec_error)
        loop_stop(j->loop);
}
