/* Submits a job: builds the command line of sbatch, and interprets its output. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/io.h"
#include "base/quantity.h"
#include "server/jobs/jobs.h"
#include "server/jobs/slurm_private.h"
#include "trace/rundir.h"

enum {
    SUBMIT_S = 60,      /* time limit of sbatch, which retries for a while if Slurm is busy */
    RETRY_S = 1,        /* time until a submission that certainly failed is repeated */
    SETTLE_MAX_S = 160, /* longest pause between two attempts to submit a job */
};

/* ---- the request ---- */

bool slurm_is_option(const char *name)
{
    /* Options that ebb sets itself, and options that make sbatch do something other than submit a
     * job. */
    static const char *const own[] = {
        "job-name",    "no-requeue", "requeue", "output", "error", "open-mode",
        "chdir",       "parsable",   "wrap",    "mem",    "gres",  "export",
        "export-file", "test-only",  "wait",    "array",  "help",  "usage",
        "version",     "input",      "uid",     "gid",    "quiet"};
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name) || name[0] < 'a')
        return false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0)
            return false;
    return true;
}

static bool is_allowed(const struct slurm_options *o, const char *name)
{
    if (strcmp(name, "partition") == 0 || strcmp(name, "time") == 0)
        return true;
    for (size_t i = 0; o->allowed[i]; i++)
        if (strcmp(o->allowed[i], name) == 0)
            return true;
    return false;
}

int slurm_check_spec(const struct executor *x, const struct job_spec *spec, struct err *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(spec->doc, "slurm"), name, value)
    {
        if (!is_allowed(&x->options->slurm, name))
            return err_set(err, -EINVAL,
                           "slurm: the server does not allow the sbatch option \"%.100s\"; its "
                           "operator can allow it with --sbatch-allow",
                           name);
    }
    json_object_foreach(json_object_get(spec->doc, "env"), name, value)
    {
        if (strncmp(name, "SBATCH_", 7) == 0 || strncmp(name, "SLURM_", 6) == 0)
            return err_set(
                err, -EINVAL,
                "env: \"%.100s\" would set an option of sbatch; use the key \"slurm\" instead",
                name);
    }
    return 0;
}

/* ---- the command line ---- */

int slurm_error_path(const struct slurm_run *run, char ret[PATH_MAX])
{
    int n = snprintf(ret, PATH_MAX, "%s/.slurm-%s", run->base.x->runs_path, run->base.folder.id);
    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Adds --error=PATH. sbatch replaces % sequences, so each % is doubled. */
static void add_error_path(struct launch_args *t, const char *path)
{
    struct buf text = {0};
    for (; *path; path++) {
        buf_add(&text, path, 1);
        if (*path == '%')
            buf_add_byte(&text, '%');
    }
    launch_args_addf(t, "--error=%s", buf_str(&text));
    t->bytes.failed = t->bytes.failed || text.failed;
    buf_fini(&text);
}

/* Adds an sbatch option from the request. A time such as "4h" is converted to minutes, Slurm's
 * unit. */
static void add_option(struct launch_args *t, const char *name, const json_t *value)
{
    uint64_t ns;
    const char *text = json_string_value(value);
    if (json_is_true(value))
        launch_args_addf(t, "--%s", name);
    else if (strcmp(name, "time") == 0 &&
             quantity_parse_duration("time", text, 1, INT64_MAX, &ns, NULL) == 0)
        launch_args_addf(t, "--time=%" PRIu64, (ns + 60 * NS_PER_S - 1) / (60 * NS_PER_S));
    else
        launch_args_addf(t, "--%s=%s", name, text);
}

static void add_sbatch(struct launch_args *t, const struct slurm_run *run,
                       const struct job_spec *spec, const char *error_path)
{
    char name[RUNDIR_NAME_MAX + 1];
    json_t *value;
    const char *key;
    rundir_clean_name(spec->name, name);
    launch_args_add(t, run->slurm->sbatch);
    launch_args_add(t, "--parsable");
    launch_args_addf(t, "--job-name=%s.%s", name, run->base.folder.id);
    /* Slurm must not requeue the job: a second start would fail, because the run folder exists. */
    launch_args_add(t, "--no-requeue");
    launch_args_add(t, "--export=ALL");
    launch_args_add(t, "--output=/dev/null"); /* ebb run writes the output into log.txt */
    add_error_path(t, error_path);
    launch_args_addf(t, "--chdir=%s", spec->cwd);
    if (spec->memory_bytes)
        launch_args_addf(t, "--mem=%" PRIu64 "M", (spec->memory_bytes + (1 << 20) - 1) >> 20);
    if (spec->gpus)
        launch_args_addf(t, "--gres=gpu:%d", spec->gpus);
    json_object_foreach(json_object_get(spec->doc, "slurm"), key, value)
    {
        add_option(t, key, value);
    }
    launch_args_add(t, run->slurm->script);
    launch_args_add(t, spec->cwd);
}

int slurm_launch(struct slurm_run *run, const struct job_spec *spec)
{
    const struct executor *x = run->base.x;
    char path[PATH_MAX], error_path[PATH_MAX];
    struct launch_args head = {0};
    if (executor_run_path(&run->base, path) < 0 || slurm_error_path(run, error_path) < 0)
        return -ENAMETOOLONG;
    const struct job_place place = {.run_dir = path,
                                    .folder_id = run->base.folder.id,
                                    .lock_fd = -1,
                                    .interval_ns = x->options->interval_ns,
                                    .log_bytes = x->options->log_bytes};
    add_sbatch(&head, run, spec, error_path);
    return job_spec_launch(spec, &head, x->options->program, &place, NULL, &run->launch);
}

/* ---- the output of sbatch ---- */

void slurm_read_number(struct slurm_run *run)
{
    char text[64];
    AUTO_CLOSE int fd = executor_lock_open(run->base.x, run->base.id);
    ssize_t len = fd < 0 ? fd : io_pread_small(fd, text, sizeof text);
    if (len > 0)
        (void)slurm_parse_number(text, (size_t)len, &run->number);
}

/* Slurm may have accepted the job. The server searches for the job by name before it submits it
 * again. */
static void become_unsure(struct slurm_run *run, const char *why, uint64_t settle_s)
{
    run->stage = SLURM_UNSURE;
    run->unsure_ns = clock_mono_ns();
    run->settle_ns *= 2;
    if (run->settle_ns < settle_s * NS_PER_S)
        run->settle_ns = settle_s * NS_PER_S;
    if (run->settle_ns > SETTLE_MAX_S * NS_PER_S)
        run->settle_ns = SETTLE_MAX_S * NS_PER_S;
    slurm_waits(run, "not submitted to Slurm yet: %s", why);
}

static void on_submitted(void *user, int status, const char *output, size_t len, const char *error)
{
    struct slurm_run *run = user;
    char why[EXECUTOR_SENTENCE_MAX];
    (void)output, (void)len;
    run->submit = NULL;
    run->slurm->submitting--;
    slurm_tick_on(run->slurm);
    slurm_read_number(run);
    if (run->number > 0) {
        slurm_become_submitted(run, clock_mono_ns());
        slurm_waits(run, "submitted to Slurm as job %" PRId64, run->number);
    } else if (status == -ETIMEDOUT) {
        become_unsure(run, "sbatch did not exit within a minute", SLURM_SETTLE_S);
    } else if (status <= 0 || status >= 128) {
        become_unsure(run, "sbatch was killed or printed no job id", SLURM_SETTLE_S);
    } else if (slurm_is_temporary(error)) {
        become_unsure(run, error, strcasestr(error, "timed out") ? SLURM_SETTLE_S : RETRY_S);
    } else {
        snprintf(why, sizeof why, "Slurm refused the job: %.400s",
                 error[0] ? error : "sbatch printed no reason");
        slurm_end(run, &(struct executor_end){.no_start = why});
    }
}

void slurm_submit(struct slurm_run *run)
{
    const struct executor *x = run->base.x;
    AUTO_CLOSE int lock = executor_lock_take(x, run->base.id);
    /* sbatch writes the job's number into the lock file, so that the number is not lost if the
     * server dies */
    const struct command_setup setup = {.program = run->slurm->sbatch,
                                        .argv = run->launch.argv,
                                        .env = run->launch.env,
                                        .limit_ns = SUBMIT_S * NS_PER_S,
                                        .out_fd = lock,
                                        .lock_fd = lock};
    int r = lock < 0 ? lock : command_start(x->loop, &setup, on_submitted, run, &run->submit);
    if (r < 0) {
        become_unsure(run, strerror(-r), RETRY_S);
        return;
    }
    run->stage = SLURM_SUBMITTING;
    run->slurm->submitting++;
}
