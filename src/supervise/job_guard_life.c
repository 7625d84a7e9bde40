/* The start and end of a job's guard, and its events in run.json. */
#include "supervise/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/loop.h"

enum {
    SETTLE_MS = 300,      /* maximum wait for memory that is still being released */
    GPU_MS = 1500,        /* maximum wait for the next GPU reading, which comes once per second */
    GPU_LEAST = 16 << 20, /* changes of GPU memory below this size are not attributed to the job */
    /* after the end of a job that used less memory than this, ebb does not wait until the memory is
     * released */
    LARGE_JOB = 64 << 20,
    /* A job may run near its limit for weeks, so only the first and the latest events are kept. */
    KEPT_MOST = 1000,
    KEPT_FIRST = 200,
};

/* ---- start ---- */

static void make_cgroup(struct job *j)
{
    struct job_guard *g = &j->guard;
    const struct guard_settings *set = &j->options->guard;
    const struct proc_root *root = j->options->engine.root;
    char name[64];
    struct err err = {""};
    g->cgroup = guard_cgroup_none;
    if (set->no_cgroup) {
        snprintf(g->no_cgroup, sizeof g->no_cgroup, "--no-cgroup");
        return;
    }
    guard_cgroup_name(root, name);
    bool limits = g->limit_bytes && !set->is_off && !set->dry_run;
    guard_cgroup_make(root, name, limits ? g->limit_bytes : 0, &g->cgroup, &err);
    memcpy(j->note->cgroup, g->cgroup.dir, sizeof j->note->cgroup);
    snprintf(g->no_cgroup, sizeof g->no_cgroup, "%.255s", err.text);
    guard_cgroup_tidy(root, &g->cgroup);
    job_guard_set_charge(j);
}

static void start_reflex(struct job *j)
{
    struct job_guard *g = &j->guard;
    const struct guard_settings *set = &j->options->guard;
    const bool may_kill = !set->dry_run && !set->rules.no_kill;
    struct err err = {""};
    if (reflex_new(g->cgroup.kill_fd, may_kill, &g->reflex, &err) < 0) {
        g->reflex = NULL;
        job_notifyf(j, "%s; the job runs without a guard", err.text);
        return;
    }
    loop_add_fd(j->loop, reflex_event_fd(g->reflex), EPOLLIN, job_guard_on_reflex, j,
                &g->reflex_source);
}

void job_guard_begin(struct job *j)
{
    struct job_guard *g = &j->guard;
    const struct guard_settings *set = &j->options->guard;
    memory_returned_begin(&j->outcome.given_back, j->options->engine.root);
    (void)engine_limit(j->engine, &g->effective);
    snprintf(g->effective_dir, sizeof g->effective_dir, "%s", engine_limit_dir(j->engine));
    if (quantity_is_given(&set->limit))
        g->limit_bytes = quantity_bytes(&set->limit, g->effective.limit_bytes);
    ladder_init(&g->ladder, &set->rules);
    if (quantity_is_given(&set->reserve))
        g->ladder.rules.reserve_bytes = quantity_bytes(
            &set->reserve, g->limit_bytes ? g->limit_bytes : g->effective.limit_bytes);
    checkpoint_init(&g->checkpoint, &set->checkpoint);
    make_cgroup(j);
    engine_own_limit(j->engine, set->is_off ? 0 : g->limit_bytes);
    /* for an attached job, it is unknown which files existed before the job started */
    if (!j->is_attached)
        g->leftovers = leftovers_new("/dev/shm");
    loop_add_timer(j->loop, UINT64_MAX / 2, 0, job_guard_on_alert, j, &g->alert_timer);
    if (!set->is_off)
        start_reflex(j);
    if (!g->reflex)
        return;
    job_guard_set_own_gauge(&j->guard);
    if (g->effective.limit_bytes)
        job_guard_set_effective_gauge(j);
}

void job_guard_segment(struct job *j)
{
    struct job_guard *g = &j->guard;
    const struct guard_settings *set = &j->options->guard;
    g->tail.written = 0;
    timing_segment(&g->timing);
    ladder_segment(&g->ladder);
    checkpoint_init(&g->checkpoint, &j->options->guard.checkpoint);
    if (g->reflex)
        reflex_rearm(g->reflex);
    if (set->restart_every.unit != RESTART_NEVER && j->now.number >= set->max_restarts)
        job_notifyf(j,
                    "guard: planned restarts end, because the job was already restarted %u time%s "
                    "(--max-restarts)",
                    j->now.number, j->now.number == 1 ? "" : "s");
}

/* ---- events ---- */

void job_guard_put_event(struct job *j, uint64_t now_ns, const char *act, const char *trigger,
                         const unsigned *gpu, const char *why)
{
    struct outcome_guard *g = &j->outcome.guard;
    struct outcome_event e = {.t_s = job_seconds(j, now_ns),
                              .segment = j->now.number,
                              .has_gpu = gpu,
                              .gpu = gpu ? *gpu : 0,
                              .why = strdup(why),
                              .dry_run = j->options->guard.dry_run};
    snprintf(e.act, sizeof e.act, "%s", act);
    snprintf(e.trigger, sizeof e.trigger, "%s", trigger);
    AUTO_BUF struct buf text = {0};
    json_auto_t *note = outcome_event_json(&e);
    json_print(&text, note, 0);
    buf_add(&text, "", 1);
    if (!text.failed)
        engine_note(j->engine, "guard", text.data);
    if (!g->events)
        g->events = calloc(KEPT_MOST, sizeof *g->events);
    if (!g->events) {
        free(e.why);
        return;
    }
    if (g->event_count == KEPT_MOST) {
        free(g->events[KEPT_FIRST].why);
        memmove(g->events + KEPT_FIRST, g->events + KEPT_FIRST + 1,
                (--g->event_count - KEPT_FIRST) * sizeof *g->events);
    }
    g->events[g->event_count++] = e;
    job_control_event(j, now_ns, act, why);
}

void job_guard_put_checkpoint(struct job *j, uint64_t now_ns)
{
    const struct checkpoint *a = &j->guard.checkpoint;
    struct outcome_guard *g = &j->outcome.guard;
    if (!g->checkpoints)
        g->checkpoints = calloc(KEPT_MOST, sizeof *g->checkpoints);
    if (!g->checkpoints)
        return;
    if (g->checkpoint_count == KEPT_MOST) {
        free(g->checkpoints[KEPT_FIRST].path);
        memmove(g->checkpoints + KEPT_FIRST, g->checkpoints + KEPT_FIRST + 1,
                (--g->checkpoint_count - KEPT_FIRST) * sizeof *g->checkpoints);
    }
    struct outcome_checkpoint *c = &g->checkpoints[g->checkpoint_count++];
    *c =
        (struct outcome_checkpoint){.id = a->id,
                                    .segment = j->now.number,
                                    .asked_t_s = job_seconds(j, a->requested_ns),
                                    .took_s = (double)(now_ns - a->requested_ns) / (double)NS_PER_S,
                                    .path = a->path[0] ? strdup(a->path) : NULL,
                                    .has_step = j->now.progress.has_step,
                                    .step = j->now.progress.last_step,
                                    .rise_bytes = j->guard.timing.save_rise_bytes};
    snprintf(c->heard_by, sizeof c->heard_by, "%s", a->by);
}

/* ---- the end ---- */

/* True if the job used GPU memory. Only then is it useful to wait for the driver's next reading. */
static bool has_used_gpu(const struct outcome_given_back *m)
{
    for (size_t i = 0; i < m->gpu_count; i++)
        if (m->gpus[i].peak_bytes - m->gpus[i].before_bytes > GPU_LEAST)
            return true;
    return false;
}

void job_guard_end(struct job *j)
{
    struct job_guard *g = &j->guard;
    struct outcome_guard *o = &j->outcome.guard;
    const struct proc_root *root = j->options->engine.root;
    uint64_t now_ns = clock_mono_ns();
    o->locked = g->reflex && reflex_is_locked(g->reflex);
    loop_remove(g->reflex_source);
    loop_remove(g->alert_timer);
    g->reflex_source = g->alert_timer = NULL;
    reflex_free(g->reflex);
    g->reflex = NULL;
    engine_charge(j->engine, &ENGINE_NO_CHARGE);
    o->cgroup = g->cgroup.dir[0] ? strdup(g->cgroup.dir) : NULL;
    o->kernel_limit = g->cgroup.is_limited;
    int r = guard_cgroup_remove(root, &g->cgroup, now_ns + GUARD_CGROUP_BUSY_MS * NS_PER_MS);
    if (r < 0)
        job_notifyf(j, "cannot remove the job's cgroup: %s", strerror(-r));
    j->outcome.has_left = g->leftovers;
    if (g->leftovers)
        leftovers_end(g->leftovers, root, j->options->guard.clean_shm, &j->outcome.left);
    if (has_used_gpu(&j->outcome.given_back) &&
        engine_gpus_wait(j->engine, now_ns, clock_mono_ns() + GPU_MS * NS_PER_MS))
        memory_returned_gpus(&j->outcome.given_back, engine_gpus(j->engine));
    if (j->is_attached) /* an attached job continues, and its memory remains in use */
        return;
    bool large = engine_peak(j->engine) >= LARGE_JOB;
    memory_returned_end(&j->outcome.given_back, root,
                        clock_mono_ns() + (large ? SETTLE_MS * NS_PER_MS : 0));
}

void job_guard_free(struct job_guard *g)
{
    reflex_free(g->reflex);
    leftovers_free(g->leftovers);
    limit_fds_close(&g->effective_fds);
}
