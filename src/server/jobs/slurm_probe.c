/* Probes the run folder of a job in a thread, because it is on a file system that may hang: reads
 * it, and writes requests into it. The job could have written anything in the folder, so nothing in
 * it is trusted. */
#include "server/jobs/slurm_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "supervise/job_folder.h"

enum { STATE_MAX = 1 << 20 /* maximum size of state.json */ };

/* ---- in the thread ---- */

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
    const struct executor_folder place = {.name = probe->run_dir, .id = probe->folder_id};
    AUTO_CLOSE int folder = executor_open_folder(probe->runs, &place);
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

static void slurm_probe_run(void *user)
{
    struct slurm_probe *probe = user;
    probe_folder(probe);
    if (probe->is_last && probe->found == -ENOENT) {
        read_script_error(probe);
        probe->is_disk_full = executor_is_disk_full(probe->runs);
    }
    /* the job is over, and the file with its standard error is not needed any more */
    if (probe->is_ended || (probe->is_last && slurm_probe_is_answer(probe)))
        unlink(probe->error_path);
}

/* ---- in the event loop ---- */

bool slurm_probe_is_answer(const struct slurm_probe *probe)
{
    const int errors[] = {probe->found, probe->read, probe->written};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i] == -EIO || errors[i] == -ETIMEDOUT)
            return false;
    return true;
}

static void slurm_probe_done(void *user, int r)
{
    struct slurm_probe *probe = user;
    (void)r; /* there is no time limit */
    probe->run->probe = NULL;
    slurm_probed(probe->run, probe);
}

static void slurm_probe_free(void *user)
{
    struct slurm_probe *probe = user;
    outcome_fini(&probe->outcome);
    json_decref(probe->run_json);
    json_decref(probe->state);
    buf_fini(&probe->request);
    free(probe);
}

static int put_request(struct slurm_probe *probe, const struct job_request *request)
{
    json_t *doc = job_request_json(request);
    /* the time distinguishes this request from those of an earlier server */
    json_object_set_new(doc, "id", json_integer((json_int_t)clock_wall_ns()));
    int r = doc ? json_print(&probe->request, doc, 0) : -ENOMEM;
    json_decref(doc);
    return r;
}

void slurm_probe_start(struct slurm_run *run, const struct slurm_probe *wanted,
                       const struct job_request *request)
{
    static const struct task_kind kind = {slurm_probe_run, slurm_probe_done, slurm_probe_free};
    struct slurm_probe *probe = calloc(1, sizeof *probe);
    if (!probe)
        return;
    *probe = *wanted;
    probe->run = run;
    probe->runs = run->base.x->runs;
    probe->state_stamp = run->state_stamp;
    memcpy(probe->run_dir, run->base.run_dir, sizeof probe->run_dir);
    memcpy(probe->folder_id, run->base.folder_id, sizeof probe->folder_id);
    if (slurm_error_path(run, probe->error_path) < 0 ||
        (request && put_request(probe, request) < 0))
        slurm_probe_free(probe);
    else
        (void)workers_start(run->base.x->workers, &kind, run->base.id, 0, probe, &run->probe);
}
