/* Follows a submitted job: through squeue until it starts, then through its run folder, and at its
 * end through both. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "run/outcome.h"
#include "server/jobs/runs_folder.h"
#include "server/jobs/slurm_private.h"
#include "server/jobs/workers.h"
#include "supervise/job_folder.h"

enum {
    SUBMITS = 4, /* maximum number of sbatch processes at the same time */
    /* Maximum time from the end of a job in Slurm until run.json records the end, on a local and on
     * a network file system. An NFS client may use an old listing of a folder for up to a
     * minute. */
    GONE_S = 3,
    GONE_SHARED_S = 60,
    /* with N jobs, a folder is probed every N times PROBE_MS, so that all jobs together cause 100
     * probes/s */
    PROBE_MS = 10,
    SILENT_S = 10,       /* a folder that is unreachable for this long is reported */
    FORCE_S = 5,         /* time between the end of a cancel's grace period and scancel */
    CANCEL_S = 5,        /* time between two calls of scancel */
    COMMAND_S = 30,      /* time limit of scancel */
    STATE_MAX = 1 << 20, /* maximum size of state.json */
};

/* One read of the run folder, which can also write a request. The job could have written anything
 * in the folder, so nothing in it is trusted. */
struct slurm_probe {
    /* Set by the caller of probe_start: */
    bool is_last;      /* Slurm does not run the job any more, so this probe decides how it ended */
    bool is_absent;    /* when the probe began, Slurm certainly did not know the job */
    bool is_cancel;    /* the request is a cancel */
    uint64_t asked_ns; /* time of the cancel, if IS_CANCEL is set */
    /* Set by probe_start: */
    struct slurm_run *run;
    struct runs_folder *runs;
    struct job_folder folder;
    char error_path[PATH_MAX];
    struct buf request; /* text of request.json; empty: none */
    /* The results: */
    int found;   /* 0: the job has a folder; or -errno */
    int written; /* 0, or -errno if request.json could not be written */
    int read;    /* 0, or -errno if run.json could not be read */
    bool is_ended;
    json_t *run_json;
    struct outcome outcome;
    json_t *state;        /* state.json if it has changed, else NULL */
    uint64_t state_stamp; /* version of state.json */
    bool is_disk_full;
    char error[400]; /* ": " and the last line of the batch script's standard error; or "" */
};

/* ---- probes of the run folder, in a thread ---- */

/* False if a call failed because a network file system is unreachable. */
static bool probe_is_answer(const struct slurm_probe *probe)
{
    const int errors[] = {probe->found, probe->read, probe->written};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i] == -EIO || errors[i] == -ETIMEDOUT)
            return false;
    return true;
}

static uint64_t file_stamp(int folder, const char *name)
{
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return 0;
    return ((uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec) ^ st.st_ino;
}

static void read_state(struct slurm_probe *probe, int folder)
{
    struct buf text = {0};
    uint64_t stamp = file_stamp(folder, JOB_FOLDER_STATE);
    if (stamp == 0 || stamp == probe->state_stamp)
        return;
    probe->state_stamp = stamp;
    if (io_read_plain(folder, JOB_FOLDER_STATE, STATE_MAX, &text) == 0)
        probe->state = json_parse(text.data, text.len, NULL);
    buf_fini(&text);
}

static void probe_folder(struct slurm_probe *probe)
{
    AUTO_CLOSE int folder = executor_open_folder(probe->runs, &probe->folder);
    probe->found = folder < 0 ? folder : 0;
    if (folder < 0)
        return;
    if (probe->request.len)
        probe->written =
            io_replace_file(folder, JOB_FOLDER_REQUEST, probe->request.data, probe->request.len);
    probe->read = outcome_read_folder(folder, EXECUTOR_JSON_MAX, &probe->run_json, &probe->outcome);
    probe->is_ended = probe->read == 0 && executor_is_ended(&probe->outcome);
    if (probe->read == 0 && !probe->is_ended)
        read_state(probe, folder);
}

/* Reads the last line that the batch script wrote to its standard error. */
static void read_script_error(struct slurm_probe *probe)
{
    char text[2048];
    ssize_t len = io_read_small(AT_FDCWD, probe->error_path, text, sizeof text);
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' '))
        len--;
    if (len <= 0)
        return;
    text[len] = '\0';
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    snprintf(probe->error, sizeof probe->error, ": %.300s",
             strncmp(line, "ebb: ", 5) == 0 ? line + 5 : line);
}

static void probe_run(void *user)
{
    struct slurm_probe *probe = user;
    probe_folder(probe);
    if (probe->is_last && probe->found == -ENOENT) {
        read_script_error(probe);
        probe->is_disk_full = executor_is_disk_full(probe->runs);
    }
    /* the job is over, so the file with the batch script's standard error is no longer needed */
    if (probe->is_ended || (probe->is_last && probe_is_answer(probe)))
        unlink(probe->error_path);
}

/* ---- requests ---- */

int slurm_checkpoint(struct executor_run *base)
{
    struct slurm_run *run = (struct slurm_run *)base;
    if (!run->is_start_reported || run->is_silent)
        return -ENOTCONN;
    run->wants_checkpoint = true;
    run->check_ns = 0;
    slurm_tick_on(run->slurm);
    return 0;
}

int slurm_cancel(struct executor_run *base)
{
    struct slurm_run *run = (struct slurm_run *)base;
    run->check_ns = 0;
    slurm_tick_on(run->slurm);
    return 0;
}

static void on_cancelled(void *user, int status, const char *output, size_t len, const char *error)
{
    struct slurm_run *run = user;
    /* failures are ignored, because scancel is repeated until the job has ended */
    (void)status, (void)output, (void)len, (void)error;
    run->kill = NULL;
    run->slurm->next_ns = 0;
}

static void run_scancel(struct slurm_run *run, uint64_t now_ns)
{
    char number[24];
    struct slurm *s = run->slurm;
    if (run->kill || run->number <= 0 || now_ns < run->base.cancel.retry_ns)
        return;
    run->base.cancel.retry_ns = now_ns + CANCEL_S * NS_PER_S;
    snprintf(number, sizeof number, "%" PRId64, run->number);
    char *argv[] = {s->scancel, number, NULL};
    (void)slurm_command(s, argv, COMMAND_S, on_cancelled, run, &run->kill);
}

/* A running job receives the request through its folder, so that it can shut down in time. scancel
 * ends a job that waits in Slurm's queue or does not react. */
static void check_cancel(struct slurm_run *run, uint64_t now_ns)
{
    const struct executor_cancel *c = &run->base.cancel;
    if (c->is_wanted &&
        (!run->is_start_reported || executor_cancel_is_late(c, now_ns, FORCE_S * NS_PER_S)))
        run_scancel(run, now_ns);
}

/* ---- probes of the run folder, in the event loop ---- */

static void slurm_probed(struct slurm_run *run, struct slurm_probe *probe); /* may free RUN */

static void probe_done(void *user)
{
    struct slurm_probe *probe = user;
    probe->run->probe = NULL;
    slurm_probed(probe->run, probe);
}

static void probe_free(void *user)
{
    struct slurm_probe *probe = user;
    outcome_fini(&probe->outcome);
    json_decref(probe->run_json);
    json_decref(probe->state);
    buf_fini(&probe->request);
    free(probe);
}

static int put_request(struct slurm_probe *probe, struct job_request request)
{
    json_t *doc = job_request_json(&request);
    /* the time distinguishes this request from those of an earlier server */
    json_object_set_new(doc, "id", json_integer((json_int_t)clock_wall_ns()));
    int r = doc ? json_print(&probe->request, doc, 0) : -ENOMEM;
    json_decref(doc);
    return r;
}

/* If no probe of this job is running, starts a copy of the probe WANTED. A job has at most one
 * probe, so a hanging folder occupies only one thread. The probe also writes a pending request
 * into the folder. */
static void start_probe(struct slurm_run *run, const struct slurm_probe *wanted, uint64_t now_ns)
{
    static const struct task_kind kind = {probe_run, probe_done, probe_free};
    const struct executor_cancel *c = &run->base.cancel;
    struct slurm_probe *probe = run->probe ? NULL : calloc(1, sizeof *probe);
    if (!probe)
        return;
    if (!run->silent_ns)
        run->silent_ns = now_ns;
    run->wants_checkpoint = run->wants_checkpoint && !c->is_wanted;
    *probe = *wanted;
    probe->run = run;
    probe->runs = run->base.x->runs;
    probe->state_stamp = run->state_stamp;
    probe->is_cancel = run->is_start_reported && c->is_wanted && !c->is_sent;
    probe->asked_ns = c->asked_ns;
    probe->folder = run->base.folder;
    int r = slurm_error_path(run, probe->error_path);
    if (r == 0 && probe->is_cancel)
        r = put_request(probe, executor_cancel_request(c));
    else if (r == 0 && run->wants_checkpoint)
        r = put_request(probe, (struct job_request){.action = "checkpoint"});
    if (r < 0)
        probe_free(probe);
    else
        (void)workers_start(run->base.x->workers, &kind, run->base.id, probe, &run->probe);
}

/* Reports a run folder that has been unreachable for SILENT_S. */
static void check_silence(struct slurm_run *run, uint64_t now_ns)
{
    struct tm tm;
    if (!run->silent_ns || run->is_silent || now_ns - run->silent_ns < SILENT_S * NS_PER_S)
        return;
    const time_t since = time(NULL) - (time_t)((now_ns - run->silent_ns) / NS_PER_S);
    localtime_r(&since, &tm);
    run->is_silent = true;
    slurm_waits(run, "the run folder has been unreachable since %02d:%02d", tm.tm_hour, tm.tm_min);
}

static void end_silence(struct slurm_run *run)
{
    run->silent_ns = 0;
    if (!run->is_silent)
        return;
    run->is_silent = false;
    run->state_stamp = 0; /* reads state.json again, which contains the supervisor's reason */
    if (run->is_start_reported || run->number <= 0)
        slurm_waits(run, "%s", "");
    else
        slurm_waits(run, "submitted to Slurm as job %" PRId64, run->number);
}

/* Records that the probe has written its request into the folder. A cancel counts as sent only if
 * it is the newest one. */
static void take_written(struct slurm_run *run, const struct slurm_probe *probe)
{
    struct executor_cancel *c = &run->base.cancel;
    if (!probe->request.len || probe->found < 0 || probe->written < 0)
        return;
    if (!probe->is_cancel)
        run->wants_checkpoint = false;
    else if (probe->asked_ns == c->asked_ns)
        c->is_sent = true;
}

static void report_start(struct slurm_run *run)
{
    if (run->is_start_reported)
        return;
    run->is_start_reported = true;
    jobs_run_started(run->base.x->jobs, run->base.id);
}

/* Passes on the messages of the supervisor that are in state.json. */
static void take_state(struct slurm_run *run, const struct slurm_probe *probe)
{
    json_t *message;
    size_t i;
    if (probe->state)
        run->state_stamp = probe->state_stamp;
    json_array_foreach(json_object_get(probe->state, "messages"), i, message)
    {
        if (json_is_object(message))
            jobs_run_news(run->base.x->jobs, run->base.id, message);
    }
}

static void end_recorded(struct slurm_run *run, const struct slurm_probe *probe)
{
    struct executor_end end = {.run_json = probe->run_json, .has_folder = true};
    const struct outcome_end *o = &probe->outcome.end;
    /* the job has not run if its command could not be executed */
    if (o->kind != OUTCOME_NOT_STARTED && o->kind != OUTCOME_UNKNOWN)
        report_start(run);
    if (!run->is_start_reported)
        end.no_start = o->error ? o->error : "the job could not be started";
    slurm_end(run, &end);
}

/* ---- jobs whose end is not recorded ---- */

static void end_unrecorded(struct slurm_run *run, const struct slurm_probe *probe)
{
    char text[EXECUTOR_SENTENCE_MAX], number[32] = "a job";
    struct executor_end end = {
        .lost = text, .has_folder = probe->found != -ENOENT, .is_disk_full = probe->is_disk_full};
    if (run->number > 0)
        snprintf(number, sizeof number, "job %" PRId64, run->number);
    if (run->has_folder && run->state[0]) {
        snprintf(text, sizeof text,
                 "Slurm ended %s with state %s, and run.json does not record how the job ended",
                 number, run->state);
    } else if (run->has_folder) {
        snprintf(text, sizeof text,
                 "Slurm no longer knows %s, and run.json does not record how the job ended",
                 number);
    } else if (run->state[0]) {
        snprintf(text, sizeof text, "Slurm ended %s with state %s before the command started%s",
                 number, run->state, probe->error);
        end.no_start = text;
    } else {
        snprintf(text, sizeof text,
                 "Slurm no longer knows %s, which left no run folder; submit the job again with "
                 "ebb rerun",
                 number);
    }
    slurm_end(run, &end);
}

/* Called while Slurm does not run the job. Returns true once the time to wait for run.json is over
 * and sacct has exited; the next probe then decides how the job ended. */
static bool is_gone_for_good(struct slurm_run *run, uint64_t now_ns)
{
    const uint64_t wait_ns =
        (runs_folder_is_remote(run->base.x->runs) ? GONE_SHARED_S : GONE_S) * NS_PER_S;
    if (!run->gone_ns) {
        run->gone_ns = now_ns;
        if (run->phase == SLURM_ABSENT) {
            run->state[0] = '\0';
            slurm_account(run);
        }
    }
    return !run->account && now_ns - run->gone_ns >= wait_ns;
}

/* ---- stages ---- */

void slurm_become_submitted(struct slurm_run *run, uint64_t known_ns)
{
    run->stage = SLURM_SUBMITTED;
    run->known_ns = known_ns;
    run->slurm->next_ns = 0;
    job_launch_fini(&run->launch);
}

static void check_submitted(struct slurm_run *run, uint64_t now_ns)
{
    const struct slurm *s = run->slurm;
    const bool is_fresh = s->listed_ns > run->known_ns;
    const bool is_gone = is_fresh && (run->phase == SLURM_ENDED || run->phase == SLURM_ABSENT);
    const bool is_pending = is_fresh && run->phase == SLURM_PENDING;
    struct slurm_probe wanted = {0};
    if (is_pending && !run->is_start_reported && !run->is_silent)
        slurm_waits(run, "Slurm job %" PRId64 " is pending%s%s", run->number,
                    run->detail[0] ? ": " : "", run->detail);
    if (is_gone)
        wanted.is_last = is_gone_for_good(run, now_ns);
    else
        run->gone_ns = 0;
    if (wanted.is_last || ((!is_pending || run->has_folder) && now_ns >= run->check_ns)) {
        run->check_ns = now_ns + s->count * PROBE_MS * NS_PER_MS;
        start_probe(run, &wanted, now_ns);
    }
    check_cancel(run, now_ns);
}

static void probed_submitted(struct slurm_run *run, const struct slurm_probe *probe)
{
    if (probe->is_ended) {
        end_recorded(run, probe);
    } else if (probe->is_last && run->gone_ns && probe_is_answer(probe)) {
        end_unrecorded(run, probe);
    } else if (probe->read == 0 && probe->found == 0) {
        report_start(run);
        take_state(run, probe);
    }
}

/* Checks a job that may or may not have been submitted. If Slurm does not list the job, a probe of
 * its folder decides whether the job is submitted again. */
static void check_unsure(struct slurm_run *run, uint64_t now_ns)
{
    int held = executor_is_held(run->base.x, run->base.id);
    const struct slurm *s = run->slurm;
    struct slurm_probe wanted = {0};
    if (held != 0) { /* the sbatch that an earlier server started still runs */
        run->unsure_ns = now_ns;
        return;
    }
    slurm_read_number(run);
    wanted.is_absent = run->has_no_lock || (s->listed_ns > run->unsure_ns && !run->listed &&
                                            s->listed_ns - run->unsure_ns >= run->settle_ns);
    start_probe(run, &wanted, now_ns);
}

static void probed_unsure(struct slurm_run *run, const struct slurm_probe *probe)
{
    struct jobs *jobs = run->base.x->jobs;
    const int64_t id = run->base.id;
    const bool is_fresh = run->slurm->listed_ns > run->unsure_ns;
    if (run->number > 0 || (is_fresh && run->listed) || probe->found == 0)
        slurm_become_submitted(run, is_fresh ? run->unsure_ns : clock_mono_ns());
    else if (!probe->is_absent || !probe_is_answer(probe))
        return;
    else if (run->base.cancel.is_wanted)
        slurm_end(run, &(struct executor_end){.no_start = "cancelled before it was submitted"});
    else if (run->launch.argv)
        run->stage = SLURM_WAITS;
    else {
        slurm_run_free(run);
        jobs_run_unstarted(jobs, id);
    }
}

static void slurm_probed(struct slurm_run *run, struct slurm_probe *probe)
{
    if (probe_is_answer(probe))
        end_silence(run);
    run->has_folder = run->has_folder || probe->found == 0;
    take_written(run, probe);
    if (run->stage == SLURM_UNSURE)
        probed_unsure(run, probe);
    else
        probed_submitted(run, probe);
}

void slurm_check(struct slurm_run *run, uint64_t now_ns)
{
    check_silence(run, now_ns);
    switch (run->stage) {
    case SLURM_WAITS:
        if (run->base.cancel.is_wanted)
            slurm_end(run, &(struct executor_end){.no_start = "cancelled before it was submitted"});
        else if (run->slurm->submitting < SUBMITS)
            slurm_submit(run);
        return;
    case SLURM_SUBMITTING:
        return;
    case SLURM_UNSURE:
        check_unsure(run, now_ns);
        return;
    case SLURM_SUBMITTED:
        check_submitted(run, now_ns);
        return;
    }
}
