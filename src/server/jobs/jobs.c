/* Opens and closes the jobs, runs the tick every second, and handles cancel and checkpoint
 * requests. */
#include "server/jobs/jobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/loop.h"
#include "base/text.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"
#include "server/jobs/runs_folder.h"
#include "server/jobs/workers.h"

enum {
    REASON_MAX = 300,
    TRIM_AFTER = 64, /* malloc_trim is called after this many jobs have ended */
    /* maximum time to open the folder that contains all run folders when the server starts */
    RUNS_S = 5,
};

/* ---- opening ---- */

/* True if the folder contains no files of other programs: it is empty, or a server has used it
 * before. */
static bool is_for_us(int fd)
{
    bool is_empty = true, is_ours = false;
    DIR *dir = io_open_folder(fd, ".");
    if (!dir)
        return false;
    for (const struct dirent *e; !is_ours && (e = readdir(dir));) {
        is_ours = strcmp(e->d_name, "jobs.db") == 0 || strcmp(e->d_name, "token") == 0;
        is_empty = is_empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
    }
    closedir(dir);
    return is_ours || is_empty;
}

/* Makes the state folder private if it contains no files of other programs. A folder that other
 * programs use, such as /tmp, is refused if other users can write to it. */
static int close_to_others(int fd, const char *path, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(err, -errno, "cannot use the folder %s: %s", path, strerror(errno));
    if (!(st.st_mode & 077))
        return 0;
    if (is_for_us(fd))
        return fchmod(fd, 0700) < 0 ? err_set(err, -errno, "cannot make the folder %s private: %s",
                                              path, strerror(errno))
                                    : 0;
    return st.st_mode & 022 ? err_set(err, -EPERM,
                                      "other users can write to the folder %s; choose another with "
                                      "--state-dir",
                                      path)
                            : 0;
}

static int open_state_folder(const char *path, struct err *err)
{
    int r = io_mkdir_parents(path);
    int fd = r < 0 ? r : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0 && fd < 0)
        r = -errno;
    if (r < 0)
        return err_set(err, r, "cannot use the folder %s: %s", path, strerror(-r));
    return fd;
}

static int open_private(const char *path, int *ret_fd, struct err *err)
{
    int fd = open_state_folder(path, err);
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    if (fchmod(fd, 0700) < 0)
        return err_set(err, -errno, "cannot use the folder %s: %s", path, strerror(errno));
    return 0;
}

/* Records the kind of executor in the file "executor" of the state folder; a missing file means
 * "local". The kind must not change while jobs run, because another kind of executor could not
 * find them. */
static int keep_kind(const struct jobs *j, int state_fd, struct err *err)
{
    static const char name[] = "executor";
    char text[32] = "";
    uint64_t counts[JOB_STATES], started = 0;
    const char *kind = j->options.is_slurm ? executor_slurm.name : executor_local.name;
    const char *before = executor_local.name;
    if (io_read_small(state_fd, name, text, sizeof text) > 0 &&
        strcmp(text, executor_slurm.name) == 0)
        before = executor_slurm.name;
    if (strcmp(kind, before) == 0)
        return 0;
    store_count(j->store, counts);
    for (int state = JOB_STARTING; state <= JOB_STOPPING; state++)
        started += counts[state];
    if (started > 0)
        return err_set(err, -EBUSY,
                       "%llu jobs of this state folder were started with --executor %s; use that "
                       "executor until they have ended",
                       (unsigned long long)started, before);
    int r = io_replace_file(state_fd, name, kind, strlen(kind));
    return r < 0 ? err_set(err, r, "cannot write the file %s/%s: %s", j->options.state_dir, name,
                           strerror(-r))
                 : 0;
}

/* Reports that the folder that contains all run folders is not available. No job is started until
 * it is available. */
static void report_runs(struct jobs *j, int r)
{
    if (r == -ETIMEDOUT)
        jobs_trouble_set(j, TROUBLE_FOLDER, "cannot start jobs: the folder %s is unreachable",
                         j->runs_path);
    else
        jobs_trouble_set(j, TROUBLE_FOLDER, "cannot start jobs: cannot use the folder %s: %s",
                         j->runs_path, strerror(-r));
}

static int open_runs(struct jobs *j, struct err *err)
{
    const struct executor_kind *kind = j->executor.kind;
    int r = runs_folder_new(j->runs_path, kind->prepare, &j->runs);
    if (r == 0)
        r = runs_folder_open(j->runs, RUNS_S * NS_PER_S);
    if (r == -ETIMEDOUT && !kind->owns_machine)
        report_runs(j, r);
    else if (r < 0)
        return err_set(err, r, "cannot use the folder %s: %s", j->runs_path, strerror(-r));
    return 0;
}

/* Tries again to open the folder that contains all run folders if it was unreachable at the
 * start. */
static void check_runs(struct jobs *j)
{
    if (!j->trouble[TROUBLE_FOLDER][0])
        return;
    int r = runs_folder_open(j->runs, 0);
    if (r < 0) {
        report_runs(j, r);
        return;
    }
    jobs_trouble_clear(j, TROUBLE_FOLDER);
    jobs_kick(j);
}

static int open_all(struct jobs *j, struct err *err)
{
    char path[4096];
    int fd = open_state_folder(j->options.state_dir, err);
    if (fd < 0)
        return fd;
    int r = close_to_others(fd, j->options.state_dir, err);
    snprintf(path, sizeof path, "%s/locks", j->options.state_dir);
    if (r == 0)
        r = open_runs(j, err);
    if (r == 0)
        r = open_private(path, &j->locks_fd, err);
    if (r == 0) {
        snprintf(path, sizeof path, "%s/jobs.db", j->options.state_dir);
        r = store_open(path, &j->store, err);
    }
    if (r == 0)
        r = jobs_ids_open(j, fd, err);
    if (r == 0)
        r = keep_kind(j, fd, err);
    close(fd);
    if (r == 0)
        r = jobs_keeper_new(j, &j->keeper, err);
    return r;
}

static void on_jobs_tick(void *user, uint64_t now_ns);

/* Copies OPTIONS. The caller keeps ownership of the strings. */
static int take_options(struct jobs *j, const struct jobs_options *options)
{
    char cwd[4096], runs[4096];
    j->options = *options;
    if (!j->options.force_ns)
        j->options.force_ns = 30 * NS_PER_S;
    j->executor.kind = options->is_slurm ? &executor_slurm : &executor_local;
    j->cwd = strdup(getcwd(cwd, sizeof cwd) ? cwd : "/");
    if (options->runs_dir)
        snprintf(runs, sizeof runs, "%s", options->runs_dir);
    else
        snprintf(runs, sizeof runs, "%s/runs", options->state_dir);
    j->runs_path = strdup(runs);
    j->room =
        (struct plan_room){.slots = options->slots ? options->slots : 1,
                           .memory_bytes = options->memory_bytes,
                           .gpus = options->gpus < PLAN_GPUS_MAX ? options->gpus : PLAN_GPUS_MAX};
    return j->cwd && j->runs_path ? 0 : -ENOMEM;
}

int jobs_open(struct loop *loop, const struct jobs_options *options, struct jobs **ret,
              struct err *err)
{
    struct jobs *j = calloc(1, sizeof *j);
    if (!j)
        return err_set(err, -ENOMEM, "out of memory");
    j->loop = loop;
    j->locks_fd = j->ids_fd = -1;
    int r = take_options(j, options);
    if (r == 0)
        r = workers_new(loop, &j->workers);
    if (r == 0)
        r = workers_new(loop, &j->cwd_workers);
    if (r == 0)
        r = loop_add_timer(loop, UINT64_MAX / 2, 0, jobs_on_kick, j, &j->kick_timer);
    if (r == 0)
        r = loop_add_timer(loop, UINT64_MAX / 2, 0, on_jobs_tick, j, &j->tick_timer);
    if (r == 0 && j->options.job_file)
        r = jobs_file_new(j, &j->file);
    if (r < 0)
        err_set(err, r, "cannot open the job store: %s", strerror(-r));
    else
        r = open_all(j, err);
    if (r < 0) {
        jobs_close(j);
        return r;
    }
    j->executor = (struct executor){.kind = j->executor.kind,
                                    .options = &j->options,
                                    .loop = loop,
                                    .workers = j->workers,
                                    .locks_fd = j->locks_fd,
                                    .runs = j->runs,
                                    .runs_path = j->runs_path,
                                    .jobs = j};
    r = j->executor.kind->open ? j->executor.kind->open(&j->executor, err) : 0;
    if (r < 0) {
        jobs_close(j);
        return r;
    }
    *ret = j;
    return 0;
}

int jobs_start(struct jobs *j, struct err *err)
{
    int r = jobs_adopt(j, err);
    if (r < 0)
        return r;
    j->is_started = true;
    j->is_file_due = true;
    jobs_keeper_wake(j->keeper);
    jobs_kick(j);
    jobs_tick_on(j);
    return 0;
}

void jobs_close(struct jobs *j)
{
    if (!j)
        return;
    if (j->store)
        jobs_sync_all(j);
    task_cancel(j->name_task);
    jobs_keeper_free(j->keeper);
    jobs_file_free(j->file);
    for (size_t i = 0; i < j->active_count; i++)
        job_free(j->active[i]);
    if (j->executor.kind && j->executor.kind->close)
        j->executor.kind->close(&j->executor);
    free(j->active);
    free(j->queue);
    loop_remove(j->kick_timer);
    loop_remove(j->tick_timer);
    store_close(j->store);
    workers_free(j->cwd_workers);
    /* a thread that is blocked in a run folder still uses the fd, so the fd stays open; the process
     * is about to exit */
    if (workers_free(j->workers))
        runs_folder_free(j->runs);
    if (j->locks_fd >= 0)
        close(j->locks_fd);
    if (j->ids_fd >= 0)
        close(j->ids_fd);
    free(j->cwd);
    free(j->runs_path);
    free(j);
}

void jobs_listen(struct jobs *j, jobs_news_fn *fn, void *user)
{
    for (size_t i = 0; i < JOBS_LISTENERS; i++) {
        bool is_free = !j->listener[i].fn;
        if (fn ? is_free : j->listener[i].user == user) {
            j->listener[i] = (struct jobs_listener){.fn = fn, .user = fn ? user : NULL};
            return;
        }
    }
}

/* ---- tick ---- */

void jobs_tick_on(struct jobs *j)
{
    if (j->is_ticking)
        return;
    j->is_ticking = true;
    loop_set_timer(j->tick_timer, clock_mono_ns() + NS_PER_S, NS_PER_S);
}

/* Publishes jobs with new facts, each at most once per second. Returns true if at least one of the
 * jobs in the table has been started. */
static bool publish_new_facts(struct jobs *j, uint64_t now_ns)
{
    bool is_any = false;
    for (size_t i = 0; i < j->active_count; i++) {
        struct job *job = j->active[i];
        if (!job->live)
            continue;
        is_any = true;
        if (job->live->has_news && now_ns - job->live->published_ns >= NS_PER_S * 9 / 10)
            jobs_publish_job(j, job, false);
    }
    return is_any;
}

static void on_jobs_tick(void *user, uint64_t now_ns)
{
    struct jobs *j = user;
    bool is_left = jobs_sync_all(j);
    bool is_any = publish_new_facts(j, now_ns);
    if (j->is_unsettled && !is_left)
        jobs_kick(j);
    jobs_file_check(j, now_ns);
    check_runs(j);
    jobs_check_silence(j, now_ns);
    /* many short jobs fragment the heap, so free memory is returned to the system now and then */
    if (j->ended > (is_any ? TRIM_AFTER : 0)) {
        j->ended = 0;
        malloc_trim(0);
    }
    if (is_any || is_left || j->is_unsettled || j->is_file_due || j->name_task ||
        j->trouble[TROUBLE_FOLDER][0])
        return;
    j->is_ticking = false;
    loop_disarm_timer(j->tick_timer);
}

/* ---- requests ---- */

static int find_active(struct jobs *j, int64_t id, struct job **ret, struct err *err)
{
    struct job *job = jobs_find(j, id);
    enum job_state state = jobs_state(j, id);
    if (state == JOB_STATES)
        return err_set(err, -ENOENT, "no such job: %lld", (long long)id);
    if (!job || job_state_is_final(state))
        return err_set(err, -EALREADY, "job %lld has ended: %s", (long long)id,
                       job_state_word(state));
    *ret = job;
    return 0;
}

int jobs_cancel(struct jobs *j, int64_t id, const char *reason, uint64_t grace_ns, struct err *err)
{
    struct job *job = NULL;
    char why[REASON_MAX + 1];
    int r = find_active(j, id, &job, err);
    if (!job)
        return r;
    text_copy(why, sizeof why, reason && reason[0] ? reason : "by request");
    if (!job->live)
        return jobs_end_queued(j, job, JOB_CANCELLED, why, err);
    jobs_ask_end(j, job, why, grace_ns == UINT64_MAX ? j->options.grace_ns : grace_ns);
    return 0;
}

int jobs_checkpoint(struct jobs *j, int64_t id, struct err *err)
{
    struct job *job = NULL;
    int r = find_active(j, id, &job, err);
    if (!job)
        return r;
    if (job->state != JOB_RUNNING && job->state != JOB_CHECKPOINTING)
        return err_set(err, -EALREADY, "job %lld is %s, not running", (long long)id,
                       job_state_word(job->state));
    job->live->checkpoint = CHECKPOINT_UNANSWERED;
    r = job->live->run ? j->executor.kind->checkpoint(job->live->run) : -ENOTCONN;
    if (r < 0)
        return err_set(err, -ENOTCONN, "cannot reach the supervisor of job %lld; try again",
                       (long long)id);
    return 0;
}

int jobs_checkpoint_answer(struct jobs *j, int64_t id, struct err *err)
{
    struct job *job = NULL;
    int r = find_active(j, id, &job, err);
    if (!job)
        return r;
    if (!job->live || job->live->checkpoint == CHECKPOINT_UNANSWERED)
        return -EINPROGRESS;
    if (job->live->checkpoint == CHECKPOINT_UNDER_WAY)
        return 0;
    const char *why = job->live->checkpoint_error;
    return err_set(err, -EALREADY, "job %lld cannot write a checkpoint: %s", (long long)id,
                   why[0] ? why : "none of the job's processes accepts requests");
}

/* ---- tasks in shared folders ---- */

int jobs_task(struct jobs *j, struct workers *workers, const struct task_kind *kind, int64_t key,
              void *user, struct task **ret)
{
    *ret = NULL;
    if (!j->executor.kind->owns_machine)
        return workers_start(workers, kind, key, user, ret);
    kind->run(user);
    kind->done(user);
    kind->free(user);
    return 0;
}

static void run_reading(void *user)
{
    struct jobs_reading *r = user;
    AUTO_CLOSE int folder = executor_open_folder(r->runs, &r->folder);
    r->read(r, folder);
}

static void on_read(void *user)
{
    struct jobs_reading *r = user;
    r->done(r);
}

static void free_reading(void *user)
{
    struct jobs_reading *r = user;
    r->free(r);
}

int jobs_read(struct jobs *j, int64_t id, struct jobs_reading *r, struct task **ret)
{
    static const struct task_kind kind = {run_reading, on_read, free_reading};
    struct store_job row;
    const struct job *job = jobs_find(j, id);
    r->runs = j->runs;
    r->folder = (struct job_folder){.name = ""};
    if (job && job->live)
        r->folder = job->live->folder;
    else if (store_get(j->store, id, &row, NULL) == 0)
        jobs_row_folder(&row, &r->folder);
    return jobs_task(j, j->workers, &kind, id, r, ret);
}

const char *jobs_runs_path(const struct jobs *j)
{
    return j->runs_path;
}
