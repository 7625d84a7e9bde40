/* The lives of a job: starting it, and starting it again from its checkpoint. */
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
#include "base/json.h"
#include "base/loop.h"
#include "judge/judge.h"
#include "supervise/spawn.h"
#include "mark/receiver.h"

enum {
    OOM_RAISE = 500,    /* of 1000: half of all memory's worth of blame on top */
    SHORT_LIFE_S = 5,   /* one that says nothing about itself must live longer to be restarted */
    GUARD_STATUS = 124, /* the guard stopped it for good */
};

/* ---- starting ---- */

/* Raised above our own, so that the kernel picks the job. */
static int oom_score_adj(const struct proc_root *root)
{
    char text[16];
    ssize_t len = io_read_small(root->proc_fd, "self/oom_score_adj", text, sizeof text - 1);
    text[len > 0 ? len : 0] = '\0';
    long own = strtol(text, NULL, 10);
    long raised = (own > 0 ? own : 0) + OOM_RAISE;
    return raised > 1000 ? 1000 : (int)raised;
}

static void put_env(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name); /* of a run around ours */
}

/* The documented variables, and no others. */
static void set_environment(const struct job *j)
{
    char number[24];
    uint64_t limit = j->guard.limit_bytes;
    put_env("EBB_SOCKET", j->marks ? mark_receiver_path(j->marks) : NULL);
    put_env("EBB_RUN_DIR", j->options->rundir.fd >= 0 ? j->options->rundir.path : NULL);
    put_env("EBB_RESUME", j->now.number ? "1" : NULL);
    snprintf(number, sizeof number, "%u", j->now.number);
    put_env("EBB_SEGMENT", number);
    if (!limit && j->guard.effective_known)
        limit = j->guard.effective.limit_bytes;
    snprintf(number, sizeof number, "%llu", (unsigned long long)limit);
    put_env("EBB_LIMIT_BYTES", limit ? number : NULL);
    job_heap_environment(j);
}

/* The command, from the second segment on with --resume-args behind it. */
static char **arguments(const struct job *j)
{
    char **resume = j->now.number ? j->options->guard.resume_args : NULL;
    size_t own = 0, more = 0;
    while (j->options->argv[own])
        own++;
    while (resume && resume[more])
        more++;
    char **v = calloc(own + more + 1, sizeof *v);
    for (size_t i = 0; v && i < own; i++)
        v[i] = j->options->argv[i];
    for (size_t i = 0; v && i < more; i++)
        v[own + i] = resume[i];
    return v;
}

int job_segment_start(struct job *j, struct err *err)
{
    sigset_t mask;
    struct spawned child;
    AUTO_FREE char **argv = arguments(j);
    if (!argv)
        return err_set(err, -ENOMEM, "out of memory");
    set_environment(j);
    job_guard_ooms(j);
    loop_original_mask(j->loop, &mask);
    const struct spawn_request request = {.options = j->options,
                                          .argv = argv,
                                          .mask = &mask,
                                          .cgroup = &j->guard.cgroup,
                                          .oom_score_adj = oom_score_adj(j->options->engine.root)};
    int r = spawn_job(&request, &child, &j->exec_error);
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
    job_guard_segment(j);
    engine_look_now(j->engine);
    job_control_state(j);
    return 0;
}

/* ---- how it ended ---- */

void job_blame(struct job_segment *n, enum cause cause, const char *why)
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

static void find_cause(struct job *j, char text[DEATH_TEXT])
{
    struct job_segment *n = &j->now;
    struct death_ooms after;
    const bool above = j->guard.effective_dir[0] != '\0';
    death_ooms_read(j->options->engine.root, &j->guard.cgroup, j->guard.effective_dir,
                    j->guard.effective.kind == LIMIT_CGROUP_V2, &after);
    const struct death_facts facts = {
        .status = n->status,
        .cause = n->cause,
        .why = n->why,
        .sent_signal = n->operator_signal,
        .before = &n->ooms,
        .after = &after,
        .tail = &j->guard.tail,
        .shm_full = leftovers_folder_is_full("/dev/shm"),
        .limit_where = above ? j->guard.effective.where : NULL,
        .limit_bytes = j->guard.limit_bytes ? j->guard.limit_bytes
                       : above              ? j->guard.effective.limit_bytes
                                            : 0,
    };
    n->cause = death_cause(&facts, text);
}

static void put_last_looks(const struct job_segment *n, json_t *end)
{
    json_t *list = json_array();
    uint32_t from = n->sample_count > JOB_LAST_SAMPLES ? n->sample_count - JOB_LAST_SAMPLES : 0;
    for (uint32_t i = from; i < n->sample_count; i++) {
        const struct job_sample *look = &n->samples[i % JOB_LAST_SAMPLES];
        json_array_append_new(
            list,
            json_pack("{s:o,s:o,s:o}", "before_end_s",
                      json_seconds(n->ended_ns > look->t_ns ? n->ended_ns - look->t_ns : 0),
                      "job_bytes", json_u64(look->job_bytes), "room_bytes",
                      look->room_bytes == UINT64_MAX ? json_null() : json_u64(look->room_bytes)));
    }
    json_object_set_new(end, "last_samples", list);
}

static json_t *ended_json(struct job *j)
{
    struct job_segment *n = &j->now;
    char text[DEATH_TEXT];
    json_t *o;
    find_cause(j, text);
    const char *by = n->cause == CAUSE_CANCELLED ? n->why : cause_by_text(n->cause);
    if (WIFSIGNALED(n->status))
        o = json_pack("{s:s,s:i,s:s?,s:i,s:b}", "kind", "signalled", "status", job_run_status(j),
                      "signal", sigabbrev_np(WTERMSIG(n->status)), "signal_number",
                      WTERMSIG(n->status), "core", WCOREDUMP(n->status) ? 1 : 0);
    else
        o = json_pack("{s:s,s:i}", "kind", "exited", "status", job_run_status(j));
    json_object_set_new(o, "left_behind", json_integer((json_int_t)n->left_behind));
    if (by)
        json_object_set_new(o, "by", json_text0(by));
    json_object_set_new(o, "cause", json_text0(text));
    json_object_set_new(o, "cause_kind", json_string(cause_kind_name(n->cause)));
    put_last_looks(n, o);
    return o;
}

json_t *job_end_json(const struct job *j)
{
    json_t *o;
    if (j->failure.text[0])
        o = json_pack("{s:s,s:i,s:o}", "kind", "not_started", "status", 125, "error",
                      json_text0(j->failure.text));
    else if (j->exec_error)
        o = json_pack("{s:s,s:i,s:o}", "kind", "not_started", "status", job_run_status(j), "error",
                      json_text0(strerror(-j->exec_error)));
    else
        return json_incref(
            json_object_get(json_array_get(j->segments, json_array_size(j->segments) - 1), "end"));
    json_object_set_new(o, "left_behind", json_integer(0));
    return o;
}

int job_run_status(const struct job *j)
{
    if (j->failure.text[0])
        return 125;
    if (j->exec_error)
        return j->exec_error == -ENOENT || j->exec_error == -ENOTDIR ? 127 : 126;
    if (job_is_guard_stop(&j->now))
        return GUARD_STATUS;
    return WIFSIGNALED(j->now.status) ? 128 + WTERMSIG(j->now.status) : WEXITSTATUS(j->now.status);
}

static json_t *step_json(bool known, int64_t step)
{
    return known ? json_integer(step) : json_null();
}

static void keep_segment(struct job *j)
{
    const struct job_segment *n = &j->now;
    json_t *end = ended_json(j);
    engine_job_ended(j->engine, end);
    job_heap_ended(j);
    engine_judge(j->engine);
    const struct judge_tree *tree = judge_tree(engine_verdict(j->engine));
    json_t *o = json_pack("{s:i,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:s?,s:o}", "segment", (int)n->number,
                          "pid", (int)n->pid, "started", json_local_time(n->started_wall_ns),
                          "duration_s", json_seconds(n->ended_ns - n->started_ns), "first_step",
                          step_json(n->progress.has_step, n->progress.first_step), "last_step",
                          step_json(n->progress.has_step, n->progress.last_step), "checkpoint_step",
                          step_json(n->progress.has_checkpoint && n->progress.checkpoint_has_step,
                                    n->progress.checkpoint_step),
                          "peak_bytes", json_u64(engine_segment_peak(j->engine)), "verdict",
                          tree ? verdict_word_name(tree->result.word) : NULL, "end", end);
    json_array_append_new(j->segments, o);
}

/* ---- again? ---- */

/* A job that saved and left by itself because it was asked to was stopped by the guard, unless it
 * was through anyway. */
static void own_up(struct job_segment *n)
{
    bool through = n->progress.max_steps > 0 && n->progress.has_step &&
                   n->progress.last_step >= n->progress.max_steps;
    if (job_is_guard_stop(n) && WIFEXITED(n->status) && WEXITSTATUS(n->status) == 0 && through) {
        n->cause = CAUSE_UNKNOWN;
        n->why[0] = '\0';
    }
}

/* The furthest step of the segments before; false: none told one. */
static bool furthest_step(const struct job *j, int64_t *ret)
{
    bool known = false;
    size_t i;
    json_t *o;
    json_array_foreach(j->segments, i, o)
    {
        const json_t *step = json_object_get(o, "last_step");
        if (json_is_integer(step) && (!known || json_integer_value(step) > *ret)) {
            *ret = json_integer_value(step);
            known = true;
        }
    }
    return known;
}

/* Sets no_restart to the reason if there will be no further segment. */
static bool may_go_on(struct job *j)
{
    const struct guard_settings *g = &j->options->guard;
    const struct job_segment *n = &j->now;
    int64_t before;
    bool has_before = furthest_step(j, &before);
    double lived_s = (double)(n->ended_ns - n->started_ns) / (double)NS_PER_S;
    if (has_before && !n->progress.counts_anew &&
        (!n->progress.has_step || n->progress.last_step <= before))
        snprintf(j->no_restart, sizeof j->no_restart,
                 "segment %u made no progress: it came to step %lld, an earlier one to %lld",
                 n->number, n->progress.has_step ? (long long)n->progress.last_step : 0LL,
                 (long long)before);
    else if (!n->progress.has_step && !n->progress.has_checkpoint && lived_s < SHORT_LIFE_S)
        snprintf(j->no_restart, sizeof j->no_restart,
                 "it was stopped after %.1f s without a step or a checkpoint: it would come no "
                 "further the next time",
                 lived_s);
    else if (n->number >= g->max_restarts)
        snprintf(j->no_restart, sizeof j->no_restart, "it was restarted %u time%s (--max-restarts)",
                 n->number, n->number == 1 ? "" : "s");
    return !j->no_restart[0];
}

static bool wants_again(const struct job *j)
{
    const struct job_segment *n = &j->now;
    return j->options->guard.restart && job_is_guard_stop(n) && !n->is_last &&
           (!j->client.is_gone || j->options->guard.keep_on_exit || j->options->is_detached);
}

static void say_again(struct job *j, unsigned number)
{
    const struct job_segment *n = &j->now;
    if (n->progress.has_checkpoint && n->progress.checkpoint_has_step)
        job_notifyf(j, "starting the job again from its checkpoint of step %lld (segment %u)",
                    (long long)n->progress.checkpoint_step, number);
    else if (n->progress.has_checkpoint)
        job_notifyf(j, "starting the job again from its checkpoint (segment %u)", number);
    else
        job_notifyf(j, "starting the job again (segment %u); no checkpoint was acknowledged",
                    number);
}

void job_segment_over(struct job *j)
{
    engine_look_now(j->engine); /* the last deaths belong into the recording */
    own_up(&j->now);
    bool again = wants_again(j);
    if (again && !may_go_on(j)) {
        job_notifyf(j, "not started again: %s", j->no_restart);
        again = false;
    }
    keep_segment(j);
    if (!again) {
        loop_stop(j->loop);
        return;
    }
    unsigned number = j->now.number + 1;
    say_again(j, number);
    job_client_wake(j); /* stopped with the segment before, whose SIGCONT will not come */
    job_streams_close(&j->output);
    engine_segment(j->engine, number);
    if (j->now.pidfd >= 0)
        close(j->now.pidfd);
    j->now = (struct job_segment){.number = number, .pidfd = -1};
    if (job_segment_start(j, &j->failure) < 0 || j->exec_error)
        loop_stop(j->loop);
}
