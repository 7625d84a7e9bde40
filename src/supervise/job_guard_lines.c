/* The limits of a job, the alarm and kill thresholds derived from them, and the gauges that compare
 * memory with these thresholds. */
#include "supervise/job.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "proc/limit.h"

/* Sets the alarm and kill thresholds. The alarm threshold includes the memory that a checkpoint
 * needs. */
void job_guard_set_lines(struct job_guard *g, unsigned which)
{
    struct reflex_gauge *gauge = &g->gauge[which];
    uint64_t own = g->ladder.rules.reserve_bytes;
    uint64_t reserve = own ? own : ladder_default_reserve(gauge->limit_bytes);
    gauge->alarm_bytes = reserve + g->timing.save_rise_bytes;
    gauge->kill_bytes = ladder_kill_headroom(reserve);
    reflex_gauge(g->reflex, which, gauge);
}

/* Measures the job's memory through its cgroup, unless processes have left the cgroup. */
void job_guard_set_charge(struct job *j)
{
    const struct guard_cgroup *c = &j->guard.cgroup;
    struct engine_charge charge = {.kind = guard_cgroup_kind(c),
                                   .fds = c->fds,
                                   .peak_fd = c->peak_fd,
                                   .is_resettable = c->peak_is_resettable};
    bool is_charged = c->fds.usage >= 0 && !j->guard.has_left;
    engine_charge(j->engine, is_charged ? &charge : &ENGINE_NO_CHARGE);
}

/* Checks whether processes have left the job's cgroup. The user's limit still applies to them, so
 * the job's memory is computed from its processes until all processes outside the cgroup have
 * returned or exited. They are not moved back, because they may belong to another group, such as a
 * container's. If together they use no more memory than the kill threshold, they are ignored. This
 * is usually the case for the checkpoint command. */
void job_guard_follow_members(struct job *j)
{
    struct job_guard *g = &j->guard;
    int32_t pid = 0;
    if (!g->limit_bytes || g->cgroup.fds.usage < 0)
        return;
    bool has_left = guard_cgroup_left(j->options->engine.root, &g->cgroup, engine_tree(j->engine),
                                      &pid) > g->gauge[0].kill_bytes;
    if (has_left == g->has_left)
        return;
    g->has_left = has_left;
    if (has_left)
        job_notifyf(j,
                    "guard: process %d has left the job's cgroup; --limit is now compared with the "
                    "total memory of the job's processes",
                    pid);
    job_guard_set_charge(j);
    job_guard_set_own_gauge(&j->guard);
}

/* Sets the gauge of the user's limit, which measures memory through the job's cgroup or its
 * processes. */
void job_guard_set_own_gauge(struct job_guard *g)
{
    const struct guard_cgroup *c = &g->cgroup;
    bool is_charged = c->fds.usage >= 0 && !g->has_left;
    if (!g->limit_bytes)
        return;
    g->gauge[0] = (struct reflex_gauge){
        .source = !is_charged ? REFLEX_TREE
                  : c->is_v2  ? REFLEX_CGROUP_V2
                              : REFLEX_CGROUP_V1,
        .fds = is_charged ? c->fds : LIMIT_NO_FDS,
        .limit_bytes = g->limit_bytes,
    };
    job_guard_set_lines(g, 0);
}

/* Sets the gauge of the effective limit. An rlimit has no gauge, because it makes allocations fail
 * but kills no process. */
void job_guard_set_effective_gauge(struct job *j)
{
    struct job_guard *g = &j->guard;
    const struct proc_root *root = j->options->engine.root;
    struct reflex_gauge gauge = {.source = REFLEX_NONE};
    struct limit_fds old = g->effective_fds;
    g->effective_fds = limit_fds_open(root, g->effective.kind, g->effective_dir);
    if (limit_files(g->effective.kind)) {
        gauge.source = g->effective.kind == LIMIT_CGROUP_V2 ? REFLEX_CGROUP_V2 : REFLEX_CGROUP_V1;
    } else if (g->effective.kind == LIMIT_HOST) {
        g->effective_fds.usage = openat(root->proc_fd, "meminfo", O_RDONLY | O_CLOEXEC);
        gauge.source = REFLEX_HOST;
    }
    gauge.fds = g->effective_fds;
    gauge.limit_bytes = g->effective.limit_bytes;
    if (gauge.fds.usage < 0 || g->effective.soft)
        gauge.source = REFLEX_NONE;
    g->gauge[1] = gauge;
    job_guard_set_lines(g, 1);
    limit_fds_close(&old);
}

void job_guard_ooms(struct job *j)
{
    const struct job_guard *g = &j->guard;
    death_ooms_read(j->options->engine.root, &g->cgroup, g->effective_dir,
                    g->effective.kind == LIMIT_CGROUP_V2, &j->now.ooms);
}

/* Called when the effective limit has moved to another cgroup. The counter of ancestor OOM kills
 * then starts again from that cgroup's current value; the other counters keep their starting
 * values. */
static void follow_ooms(struct job *j)
{
    const struct death_ooms before = j->now.ooms;
    job_guard_ooms(j);
    j->now.ooms.host_known = before.host_known;
    j->now.ooms.host = before.host;
    j->now.ooms.group_known = before.group_known;
    j->now.ooms.group = before.group;
}

/* Updates the effective limit. A limit may have been raised or lowered, or a different limit may be
 * effective now, because other processes have used up the memory below it. */
void job_guard_follow_effective(struct job *j)
{
    struct job_guard *g = &j->guard;
    struct machine_limit limit;
    const char *dir = engine_limit_dir(j->engine);
    if (engine_limit(j->engine, &limit) < 0)
        return;
    bool is_own = g->cgroup.dir[0] && strcmp(dir, g->cgroup.dir) == 0;
    if (is_own || (limit.kind == g->effective.kind && strcmp(dir, g->effective_dir) == 0 &&
                   limit.limit_bytes == g->effective.limit_bytes))
        return;
    g->effective = limit;
    snprintf(g->effective_dir, sizeof g->effective_dir, "%s", dir);
    follow_ooms(j);
    job_guard_set_effective_gauge(j);
}
