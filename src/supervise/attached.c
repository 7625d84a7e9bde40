/* Records, judges and guards a job that ebb did not start. */
#include "supervise/attached.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "mark/receiver.h"
#include "profile/collect.h"
#include "supervise/job.h"

struct attached {
    /* must be first: callbacks that receive a pointer to a job also receive attached jobs */
    struct job job;
    /* takes the place of the memory that other jobs share with their sentinel */
    struct sentinel_note note;
    struct attached_callbacks callbacks;
};

static void on_attached_mark(void *user, const struct mark *mark)
{
    struct attached *a = user;
    if (mark->kind == MARK_OTHER)
        a->callbacks.mark(a->callbacks.user, mark);
    job_on_mark(&a->job, mark);
}

static void on_attached_tick(void *user, uint64_t now_ns)
{
    struct attached *a = user;
    job_on_tick(&a->job, now_ns);
    a->callbacks.tick(a->callbacks.user, now_ns);
}

static void on_attached_empty(void *user)
{
    struct attached *a = user;
    a->callbacks.empty(a->callbacks.user);
}

/* Stores facts about the attached process for run.json. */
static void about_process(struct job *j, int32_t pid)
{
    struct outcome_about *about = &j->outcome.about;
    const struct rundir *dir = &j->options->rundir;
    const struct proc_node *node = proc_tree_find(engine_tree(j->engine), pid);
    char link[32], cwd[PATH_MAX];
    outcome_about_start(about, j->options->name, dir->fd >= 0 ? dir->path : NULL);
    about->has_attached = about->attached = true;
    if (node)
        about->command =
            outcome_words(node->info.cmdline, node->info.cmdline_len, &about->command_count);
    snprintf(link, sizeof link, "%d/cwd", (int)pid);
    ssize_t len = readlinkat(j->options->engine.root->proc_fd, link, cwd, sizeof cwd - 1);
    if (len > 0) {
        cwd[len] = '\0';
        outcome_set_text(&about->cwd, cwd);
    }
}

static int begin_attached(struct attached *a, int32_t pid, struct err *err)
{
    struct job *j = &a->job;
    const struct engine_callbacks callbacks = {.tick = on_attached_tick,
                                               .empty = on_attached_empty,
                                               .report = job_notify,
                                               .process = job_on_process,
                                               .user = a};
    int r = mark_receiver_new(j->loop, on_attached_mark, a, &j->marks, err);
    if (r == 0)
        r = engine_new(j->loop, &j->options->engine, &callbacks, &j->engine, err);
    if (r < 0)
        return r;
    j->now.pid = pid;
    j->started_ns = j->now.started_ns = clock_mono_ns();
    j->started_wall_ns = j->now.started_wall_ns = clock_wall_ns();
    engine_limits_of(j->engine, pid);
    /* the guard must exist before engine_watch_pid, whose events add processes to the guard */
    job_guard_begin(j);
    r = engine_watch_pid(j->engine, pid, err);
    if (r < 0)
        return r;
    about_process(j, pid);
    job_record(j);
    job_heap_begin(j);
    job_guard_segment(j);
    engine_sample_now(j->engine);
    r = engine_start(j->engine);
    if (r < 0)
        return err_set(err, r, "cannot start watching: %s", strerror(-r));
    job_announce(j, clock_mono_ns());
    return 0;
}

int attached_new(struct loop *loop, const struct supervisor_options *options, int32_t pid,
                 const struct attached_callbacks *callbacks, struct attached **ret, struct err *err)
{
    struct attached *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(err, -ENOMEM, "out of memory");
    a->callbacks = *callbacks;
    a->job = (struct job){.options = options,
                          .loop = loop,
                          .note = &a->note,
                          .client = {.pidfd = -1, .is_gone = true},
                          .now = {.pidfd = -1},
                          .guard = {.cgroup = guard_cgroup_none, .effective_fds = LIMIT_NO_FDS},
                          .is_attached = true,
                          .notice = callbacks->notice,
                          .notice_user = callbacks->user};
    for (size_t i = 0; i < JOB_STREAMS; i++)
        a->job.output.streams[i] = (struct job_stream){.j = &a->job, .fd = -1, .client_fd = -1};
    int r = begin_attached(a, pid, err);
    if (r < 0) {
        attached_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

void attached_free(struct attached *a)
{
    if (!a)
        return;
    struct job *j = &a->job;
    job_guard_free(&j->guard);
    engine_free(j->engine);
    collect_free(j->heap.collect);
    mark_receiver_free(j->marks);
    outcome_fini(&j->outcome);
    free(a);
}

const char *attached_socket(const struct attached *a)
{
    return mark_receiver_path(a->job.marks);
}

const char *attached_folder(const struct attached *a)
{
    return mark_receiver_folder(a->job.marks);
}

const char *attached_library(const struct attached *a)
{
    return a->job.heap.collect ? a->job.heap.library : NULL;
}

json_t *attached_end(struct attached *a, const char *by)
{
    struct job *j = &a->job;
    engine_sample_now(j->engine);
    j->outcome.has_end = true;
    j->outcome.end.kind = by ? OUTCOME_WATCH_ENDED : OUTCOME_GONE;
    outcome_set_text(&j->outcome.end.by, by);
    job_heap_refresh(j, 0);
    job_heap_ended(j);
    json_auto_t *footer = outcome_end_json(&j->outcome.end);
    job_guard_end(j);
    engine_stop(j->engine, footer);
    j->now.ending = ENDED;
    json_t *doc = job_ended_json(j);
    int r = rundir_write_json(&j->options->rundir, doc);
    if (r < 0)
        job_notifyf(j, "cannot write run.json: %s", strerror(-r));
    return doc;
}
