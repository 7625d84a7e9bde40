/* Reads the run folder of a job, and writes requests into it, in a thread: the folder is on a file
 * system that may hang. Nothing in the folder is trusted: the job could have written it. */
#include "server/jobs/slurm_look.h"

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

static void read_state(struct slurm_look *look, int folder)
{
    struct buf text = {0};
    uint64_t stamp = file_stamp(folder, JOB_FOLDER_STATE);
    if (stamp == 0 || stamp == look->state_stamp)
        return;
    look->state_stamp = stamp;
    if (io_read_plain(folder, JOB_FOLDER_STATE, STATE_MAX, &text) == 0)
        look->state = json_parse(text.data, text.len, NULL);
    buf_fini(&text);
}

static void look_into_folder(struct slurm_look *look)
{
    const struct executor_folder place = {.name = look->run_dir, .id = look->folder_id};
    AUTO_CLOSE int folder = executor_open_folder(look->runs_fd, &place);
    look->found = folder < 0 ? folder : 0;
    if (folder < 0)
        return;
    if (look->request.len)
        look->written =
            io_replace_file(folder, JOB_FOLDER_REQUEST, look->request.data, look->request.len);
    look->read = outcome_read_folder(folder, EXECUTOR_JSON_MAX, &look->run_json, &look->outcome);
    look->is_ended = look->read == 0 && executor_is_ended(&look->outcome);
    if (look->read == 0 && !look->is_ended)
        read_state(look, folder);
}

/* Reads the last line that the batch script wrote to its standard error. */
static void read_script_error(struct slurm_look *look)
{
    char text[2048];
    ssize_t len = io_read_small(AT_FDCWD, look->error_path, text, sizeof text);
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' '))
        len--;
    if (len <= 0)
        return;
    text[len] = '\0';
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    snprintf(look->error, sizeof look->error, ": %.300s",
             strncmp(line, "ebb: ", 5) == 0 ? line + 5 : line);
}

static void slurm_look_run(void *user)
{
    struct slurm_look *look = user;
    look_into_folder(look);
    if (look->is_last && look->found == -ENOENT) {
        read_script_error(look);
        look->is_disk_full = executor_is_disk_full(look->runs_fd);
    }
    /* the job is over in either case, and its file is not needed any more */
    if (look->is_ended || (look->is_last && slurm_look_is_answer(look)))
        unlink(look->error_path);
}

/* ---- in the event loop ---- */

bool slurm_look_is_answer(const struct slurm_look *look)
{
    const int errors[] = {look->found, look->read, look->written};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i] == -EIO || errors[i] == -ETIMEDOUT)
            return false;
    return true;
}

static void slurm_look_done(void *user, int r)
{
    struct slurm_look *look = user;
    (void)r; /* there is no time limit */
    look->run->look = NULL;
    slurm_looked(look->run, look);
}

static void slurm_look_free(void *user)
{
    struct slurm_look *look = user;
    outcome_fini(&look->outcome);
    json_decref(look->run_json);
    json_decref(look->state);
    buf_fini(&look->request);
    free(look);
}

static int put_request(struct slurm_look *look, const struct job_request *request)
{
    json_t *doc = job_request_json(request);
    /* the time distinguishes this request from those of an earlier server */
    json_object_set_new(doc, "id", json_integer((json_int_t)clock_wall_ns()));
    int r = doc ? json_print(&look->request, doc, 0) : -ENOMEM;
    json_decref(doc);
    return r;
}

void slurm_look_start(struct slurm_run *run, const struct slurm_look *wanted,
                      const struct job_request *request)
{
    static const struct work_kind kind = {slurm_look_run, slurm_look_done, slurm_look_free};
    struct slurm_look *look = calloc(1, sizeof *look);
    if (!look)
        return;
    *look = *wanted;
    look->run = run;
    look->runs_fd = run->base.x->runs_fd;
    look->state_stamp = run->state_stamp;
    memcpy(look->run_dir, run->base.run_dir, sizeof look->run_dir);
    memcpy(look->folder_id, run->base.folder_id, sizeof look->folder_id);
    if (slurm_error_path(run, look->error_path) < 0 || (request && put_request(look, request) < 0))
        slurm_look_free(look);
    else
        (void)workers_start(run->base.x->workers, &kind, run->base.id, 0, look, &run->look);
}
