/* Follows a submitted job: by squeue until it starts, then by its run folder, and at its end by
 * both. Nothing in the folder is trusted: the job could have written it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "run/outcome.h"
#include "server/jobs/command.h"
#include "server/jobs/slurm_private.h"
#include "supervise/job_folder.h"
#include "supervise/message.h"

enum {
    SUBMITS = 4, /* maximum number of sbatch processes at the same time */
    /* How long to wait for the end in run.json after Slurm has ended the job. An NFS client may use
     * an old listing of a folder for up to a minute. */
    GONE_S = 3,
    GONE_SHARED_S = 60,
    LOOK_MS = 10,       /* time between checks of folders: all jobs together cause 100 checks/s */
    FORCE_S = 5,        /* time between the end of a cancel's grace period and scancel */
    CANCEL_S = 5,       /* time between two calls of scancel */
    COMMAND_S = 30,     /* time limit of scancel */
    STATE_MAX = 1 << 20 /* maximum size of state.json */
};

/* ---- the run folder ---- */

static uint64_t file_stamp(int folder, const char *name)
{
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return 0;
    return ((uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec) ^ st.st_ino;
}

/* Passes on the messages of the supervisor that are in state.json. */
static void read_state(struct slurm_run *run, int folder)
{
    const struct executor_callbacks *callbacks = &run->base.x->callbacks;
    struct buf text = {0};
    json_t *message;
    size_t i;
    uint64_t stamp = file_stamp(folder, JOB_FOLDER_STATE);
    if (stamp == 0 || stamp == run->state_stamp)
        return;
    run->state_stamp = stamp;
    json_t *doc = io_read_plain(folder, JOB_FOLDER_STATE, STATE_MAX, &text) < 0
                      ? NULL
                      : json_parse(text.data, text.len, NULL);
    json_array_foreach(json_object_get(doc, "messages"), i, message)
    {
        if (json_is_object(message))
            callbacks->news(callbacks->user, run->base.id, message);
    }
    json_decref(doc);
    buf_fini(&text);
}

static void report_start(struct slurm_run *run)
{
    const struct executor_callbacks *callbacks = &run->base.x->callbacks;
    if (run->is_start_reported)
        return;
    run->is_start_reported = true;
    callbacks->started(callbacks->user, run->base.id);
}

/* Checks the run folder. Returns true if the job has ended; RUN is freed then. */
static bool look_into_folder(struct slurm_run *run)
{
    json_t *doc = NULL;
    struct outcome o = {0};
    const struct executor_folder folder = executor_folder_of(&run->base);
    AUTO_CLOSE int dir = executor_open_folder(run->base.x, &folder);
    if (dir < 0)
        return false;
    run->has_folder = true;
    if (outcome_read_folder(dir, EXECUTOR_JSON_MAX, &doc, &o) < 0)
        return false;
    bool is_ended = executor_is_ended(&o);
    /* a job whose command could not be executed was not started */
    if (!is_ended || (o.end.kind != OUTCOME_NOT_STARTED && o.end.kind != OUTCOME_UNKNOWN))
        report_start(run);
    if (run->is_start_reported && !is_ended)
        read_state(run, dir);
    if (is_ended) {
        struct executor_end end = {.run_json = doc};
        char why[EXECUTOR_SENTENCE_MAX];
        if (!run->is_start_reported) {
            text_copy(why, sizeof why, o.end.error ? o.end.error : "the job could not be started");
            end.no_start = why;
        }
        outcome_fini(&o);
        slurm_end(run, &end);
    } else {
        outcome_fini(&o);
    }
    json_decref(doc);
    return is_ended;
}

/* ---- requests ---- */

static int write_request(struct slurm_run *run, struct job_request *request)
{
    struct buf text = {0};
    const struct executor_folder folder = executor_folder_of(&run->base);
    AUTO_CLOSE int dir = executor_open_folder(run->base.x, &folder);
    if (dir < 0)
        return -ENOTCONN;
    json_t *doc = job_request_json(request);
    /* the time distinguishes this request from those of an earlier server */
    json_object_set_new(doc, "id", json_integer((json_int_t)clock_wall_ns()));
    int r = doc ? json_print(&text, doc, 0) : -ENOMEM;
    if (r == 0)
        r = io_replace_file(dir, JOB_FOLDER_REQUEST, text.data, text.len);
    json_decref(doc);
    buf_fini(&text);
    return r;
}

int slurm_checkpoint(struct executor_run *base)
{
    struct slurm_run *run = (struct slurm_run *)base;
    struct job_request request = {.action = "checkpoint"};
    return run->is_start_reported ? write_request(run, &request) : -ENOTCONN;
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
    const struct command_setup setup = {.program = s->scancel,
                                        .argv = argv,
                                        .env = environ,
                                        .limit_ns = COMMAND_S * NS_PER_S,
                                        .output_max = 4096,
                                        .out_fd = -1,
                                        .lock_fd = -1};
    (void)command_start(s->x->loop, &setup, on_cancelled, run, &run->kill);
}

/* A running job receives the request through its folder, so that it can shut down in time. scancel
 * ends a job that waits in Slurm's queue or does not react. */
static void check_cancel(struct slurm_run *run, uint64_t now_ns)
{
    struct executor_cancel *c = &run->base.cancel;
    if (!c->is_wanted)
        return;
    if (run->is_start_reported && !c->is_sent) {
        struct job_request request = executor_cancel_request(c);
        c->is_sent = write_request(run, &request) == 0;
    }
    if (!run->is_start_reported || executor_cancel_is_late(c, now_ns, FORCE_S * NS_PER_S))
        run_scancel(run, now_ns);
}

/* ---- jobs that ended without a record in run.json ---- */

/* Returns the last line that the batch script wrote to its standard error, or "". */
static void read_script_error(const struct slurm_run *run, char *ret, size_t size)
{
    char path[PATH_MAX], text[2048];
    ret[0] = '\0';
    ssize_t len =
        slurm_error_path(run, path) < 0 ? -1 : io_read_small(AT_FDCWD, path, text, sizeof text);
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' '))
        len--;
    if (len <= 0)
        return;
    text[len] = '\0';
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    snprintf(ret, size, ": %.300s", strncmp(line, "ebb: ", 5) == 0 ? line + 5 : line);
}

static void end_unrecorded(struct slurm_run *run)
{
    char text[EXECUTOR_SENTENCE_MAX], error[400], number[32] = "a job";
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
        read_script_error(run, error, sizeof error);
        snprintf(text, sizeof text, "Slurm ended %s with state %s before the command started%s",
                 number, run->state, error);
        slurm_end(run, &(struct executor_end){.no_start = text});
        return;
    } else {
        snprintf(text, sizeof text,
                 "Slurm no longer knows %s, which left no run folder; submit the job again with "
                 "ebb rerun",
                 number);
    }
    slurm_end(run, &(struct executor_end){.lost = text});
}

/* Called while Slurm does not run the job. Waits for run.json, and for the answer of sacct. */
static void check_gone(struct slurm_run *run, uint64_t now_ns)
{
    const uint64_t wait_ns = (run->slurm->is_shared ? GONE_SHARED_S : GONE_S) * NS_PER_S;
    if (!run->gone_ns) {
        run->gone_ns = now_ns;
        if (run->phase == SLURM_ABSENT) {
            run->state[0] = '\0';
            slurm_account(run);
        }
    }
    if (!run->account && now_ns - run->gone_ns >= wait_ns)
        end_unrecorded(run);
}

/* ---- stages ---- */

static void become_submitted(struct slurm_run *run, uint64_t known_ns)
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
    if (is_pending && !run->is_start_reported)
        slurm_waits(run, "Slurm job %" PRId64 " is pending%s%s", run->number,
                    run->detail[0] ? ": " : "", run->detail);
    if ((!is_pending || run->has_folder) && now_ns >= run->check_ns) {
        run->check_ns = now_ns + s->count * LOOK_MS * NS_PER_MS;
        if (look_into_folder(run))
            return;
    }
    check_cancel(run, now_ns);
    if (is_gone)
        check_gone(run, now_ns);
    else
        run->gone_ns = 0;
}

/* Decides whether a job in stage SLURM_UNSURE was submitted. */
static void check_unsure(struct slurm_run *run, uint64_t now_ns)
{
    const struct executor_callbacks callbacks = run->base.x->callbacks;
    const int64_t id = run->base.id;
    const struct executor_folder folder = executor_folder_of(&run->base);
    int held = executor_is_held(run->base.x, id);
    if (held != 0) { /* the sbatch that an earlier server started still runs */
        run->unsure_ns = now_ns;
        return;
    }
    slurm_read_number(run);
    const bool is_fresh = run->slurm->listed_ns > run->unsure_ns;
    AUTO_CLOSE int dir = executor_open_folder(run->base.x, &folder);
    if (run->number > 0 || (is_fresh && run->listed) || dir >= 0)
        become_submitted(run, is_fresh ? run->unsure_ns : now_ns);
    else if (!is_fresh || run->slurm->listed_ns - run->unsure_ns < run->settle_ns)
        return;
    else if (run->base.cancel.is_wanted)
        slurm_end(run, &(struct executor_end){.no_start = "cancelled before it was submitted"});
    else if (run->launch.argv)
        run->stage = SLURM_WAITS;
    else {
        slurm_run_free(run);
        callbacks.unstarted(callbacks.user, id);
    }
}

void slurm_check(struct slurm_run *run, uint64_t now_ns)
{
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
