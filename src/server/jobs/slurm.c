/* The Slurm executor: finds Slurm's commands, starts jobs, finds jobs that an earlier server
 * submitted, and checks all jobs once per second. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/loop.h"
#include "server/jobs/slurm_private.h"
#include "server/jobs/workers.h"

/* ---- runs ---- */

static struct slurm_run *slurm_run_new(struct slurm *s, int64_t id, const struct job_folder *folder)
{
    struct slurm_run *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->base = (struct executor_run){.x = s->x, .id = id, .folder = *folder};
    run->slurm = s;
    TAILQ_INSERT_TAIL(&s->runs, run, link);
    s->count++;
    slurm_tick_on(s);
    return run;
}

void slurm_run_free(struct slurm_run *run)
{
    struct slurm *s = run->slurm;
    TAILQ_REMOVE(&s->runs, run, link);
    s->count--;
    s->submitting -= run->submit ? 1 : 0;
    /* sbatch continues and writes its output into the lock file */
    command_release(run->submit, false);
    command_release(run->kill, false);
    command_release(run->account, true);
    task_cancel(run->probe);
    job_launch_fini(&run->launch);
    free(run);
}

int slurm_command(const struct slurm *s, char *const *argv, unsigned limit_s, command_done_fn *fn,
                  void *user, struct command **ret)
{
    const struct command_setup setup = {.program = argv[0],
                                        .argv = argv,
                                        .env = environ,
                                        .limit_ns = limit_s * NS_PER_S,
                                        .output_max = 16 << 20,
                                        .lock_fd = -1};
    return command_start(s->x->loop, &setup, fn, user, ret);
}

void slurm_end(struct slurm_run *run, const struct executor_end *end)
{
    struct jobs *jobs = run->base.x->jobs;
    const int64_t id = run->base.id;
    slurm_run_free(run);
    jobs_run_over(jobs, id, end);
}

void slurm_waits(struct slurm_run *run, const char *fmt, ...)
{
    char text[EXECUTOR_SENTENCE_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (strcmp(text, run->waits) == 0)
        return;
    memcpy(run->waits, text, sizeof text);
    jobs_run_waits(run->base.x->jobs, run->base.id, text);
}

/* ---- tick ---- */

static void on_slurm_tick(void *user, uint64_t now_ns)
{
    struct slurm *s = user;
    struct slurm_run *run, *next;
    bool is_any = false;
    /* slurm_check may free the run that it checks, but no other run */
    for (run = TAILQ_FIRST(&s->runs); run; run = next) {
        next = TAILQ_NEXT(run, link);
        is_any = is_any || run->stage >= SLURM_UNSURE;
        slurm_check(run, now_ns);
    }
    if (is_any)
        slurm_list(s, now_ns);
    if (s->count > 0)
        return;
    s->is_ticking = false;
    loop_disarm_timer(s->timer);
}

/* Checks the jobs now, and then once per second. */
void slurm_tick_on(struct slurm *s)
{
    s->is_ticking = true;
    loop_set_timer(s->timer, clock_mono_ns(), NS_PER_S);
}

/* ---- open and close ---- */

/* The command is passed as arguments, so that no shell interprets it. The first argument is the
 * working folder. If that folder does not exist, slurmd starts the script in a different one; cd
 * then makes the script fail. */
static const char script_name[] = ".slurm-job",
                  script_text[] = "#!/bin/sh\ncd \"$1\" && shift && exec \"$@\"\n";

static int slurm_prepare(int runs_fd)
{
    return io_replace_file(runs_fd, script_name, script_text, strlen(script_text));
}

static int find_commands(struct slurm *s, struct err *err)
{
    const struct {
        const char *name;
        char *at;
    } commands[] = {{"sbatch", s->sbatch}, {"squeue", s->squeue}, {"scancel", s->scancel}};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (command_find(commands[i].name, commands[i].at, PATH_MAX) < 0)
            return err_set(err, -ENOENT,
                           "--executor slurm: cannot find the command %s in $PATH; "
                           "run the server on a node from which jobs can be submitted",
                           commands[i].name);
    if (command_find("sacct", s->sacct, PATH_MAX) < 0)
        s->sacct[0] = '\0'; /* sacct is optional: it is used for jobs that squeue no longer lists */
    return 0;
}

static void slurm_close(struct executor *x)
{
    struct slurm *s = x->slurm;
    if (!s)
        return;
    while (!TAILQ_EMPTY(&s->runs))
        slurm_run_free(TAILQ_FIRST(&s->runs));
    command_release(s->list, true);
    loop_remove(s->timer);
    free(s);
    x->slurm = NULL;
}

static int slurm_open(struct executor *x, struct err *err)
{
    struct slurm *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    s->x = x;
    x->slurm = s;
    TAILQ_INIT(&s->runs);
    int r = loop_add_timer(x->loop, UINT64_MAX / 2, 0, on_slurm_tick, s, &s->timer);
    if (r < 0)
        err_set(err, r, "cannot create a timer: %s", strerror(-r));
    if (r == 0)
        r = find_commands(s, err);
    if (r == 0 && snprintf(s->script, sizeof s->script, "%s/%s", x->runs_path, script_name) >=
                      (int)sizeof s->script)
        r = err_set(err, -ENAMETOOLONG, "the path %s is too long", x->runs_path);
    if (r < 0)
        slurm_close(x);
    return r;
}

/* ---- start and find ---- */

static int slurm_start(struct executor *x, int64_t id, const struct job_spec *spec,
                       const struct job_folder *folder, uint64_t gpus, struct executor_run **ret,
                       struct err *err)
{
    struct slurm_run *run = slurm_run_new(x->slurm, id, folder);
    (void)gpus; /* Slurm chooses the GPUs */
    if (!run)
        return err_set(err, -ENOMEM, "out of memory");
    int r = slurm_launch(run, spec);
    if (r < 0) {
        slurm_run_free(run);
        return err_set(err, r, "cannot build the command line of sbatch: %s", strerror(-r));
    }
    *ret = &run->base;
    return 0;
}

/* Assumes that the job is running. A probe reads the run folder later, because access to the folder
 * may hang. */
static struct executor_run *slurm_follow(struct executor *x, int64_t id,
                                         const struct job_folder *folder)
{
    AUTO_CLOSE int lock = executor_lock_open(x, id);
    struct slurm_run *run = slurm_run_new(x->slurm, id, folder);
    if (!run)
        return NULL;
    run->has_no_lock = lock == -ENOENT;
    run->stage = SLURM_UNSURE;
    run->unsure_ns = clock_mono_ns();
    run->settle_ns = SLURM_SETTLE_S * NS_PER_S;
    return &run->base;
}

static void slurm_release(struct executor_run *run)
{
    slurm_run_free((struct slurm_run *)run);
}

const struct executor_kind executor_slurm = {.name = "slurm",
                                             .prepare = slurm_prepare,
                                             .open = slurm_open,
                                             .close = slurm_close,
                                             .check = slurm_check_spec,
                                             .start = slurm_start,
                                             .follow = slurm_follow,
                                             .cancel = slurm_cancel,
                                             .checkpoint = slurm_checkpoint,
                                             .release = slurm_release};
