/* Writes the job file for other front ends whenever a job has changed. A queue may have 100,000
 * jobs, so rows are written in slices of a few milliseconds. After each slice the writer pauses
 * nine times as long. The rows go into a temporary file, which replaces the job file when it is
 * complete. The file is not synced, because a restarted server writes it again. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/loop.h"
#include "base/text.h"
#include "server/jobs/jobfile.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"

enum {
    ENDED_MAX = 500, /* maximum number of ended jobs in the file */
    RETRY_S = 5,     /* delay after a failed write */
    SLICE_MS = 2,
    SLICE_ROWS = 64,
    /* a pause is this many times as long as a slice, so the writer works for a tenth of the time */
    PAUSES = 9,
};

struct jobs_file {
    struct jobs *j;
    struct loop_source *timer;
    struct buf text; /* the rows of one slice */
    /* State of the write in progress: */
    int fd; /* -1: none */
    int folder;
    char temporary[NAME_MAX + 1];
    int64_t before; /* rows with ids below this one are still to be written; 0 means all rows */
    unsigned ended; /* number of ended jobs written so far */
    bool has_all_rows;
    int error;
    uint64_t slice_until_ns;
    uint64_t next_ns; /* earliest start of the next write */
};

static int open_file_folder(const char *path)
{
    char folder[PATH_MAX];
    size_t len = (size_t)(text_base_name(path) - path);
    if (len >= sizeof folder - 1)
        return -ENAMETOOLONG;
    memcpy(folder, path, len);
    memcpy(folder + len, ".", 2);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int file_begin(struct jobs_file *f)
{
    const char *path = f->j->options.job_file;
    f->before = 0;
    f->ended = 0;
    f->error = 0;
    f->folder = open_file_folder(path);
    if (f->folder < 0)
        return f->folder;
    f->fd = io_create_temporary(f->folder, text_base_name(path), f->temporary, sizeof f->temporary);
    return f->fd < 0 ? f->fd : io_write_all(f->fd, "{", 1);
}

/* Ends the write, and removes the temporary file unless it was renamed. */
static void file_end(struct jobs_file *f)
{
    if (f->fd >= 0)
        unlinkat(f->folder, f->temporary, 0);
    close_fd(&f->fd);
    close_fd(&f->folder);
}

static void file_fail(struct jobs_file *f, int error)
{
    struct jobs *j = f->j;
    file_end(f);
    j->is_file_due = true;
    jobs_tick_on(j);
    f->next_ns = clock_mono_ns() + RETRY_S * NS_PER_S;
    jobs_trouble_set(j, TROUBLE_FILE, "cannot write the job file %s: %s", j->options.job_file,
                     strerror(-error));
}

/* Adds a row to the file. Rows come in descending order of their ids, so each job is in the file
 * once, even if jobs change in the meantime. */
static int file_add_row(void *user, const struct store_job *row)
{
    struct jobs_file *f = user;
    json_t *doc = jobs_row_json(f->j, row, jobs_find(f->j, row->id));
    buf_add_str(&f->text, f->before ? ",\n" : "\n");
    f->error = doc ? jobfile_put(&f->text, doc) : -ENOMEM;
    json_decref(doc);
    f->has_all_rows = false;
    f->before = row->id;
    f->ended += job_state_is_final(row->state);
    return f->error < 0 || f->ended == ENDED_MAX || clock_mono_ns() >= f->slice_until_ns;
}

static int file_put_slice(struct jobs_file *f)
{
    struct store_filter filter = {
        .states = f->ended < ENDED_MAX ? 0 : JOB_ACTIVE, .before = f->before, .limit = SLICE_ROWS};
    struct err err;
    f->has_all_rows = true; /* file_add_row sets this to false if there is another row */
    f->slice_until_ns = clock_mono_ns() + SLICE_MS * NS_PER_MS;
    buf_clear(&f->text);
    jobs_plan(f->j); /* jobs_plan is called here, because file_add_row must not call the store */
    int r = store_list(f->j->store, &filter, file_add_row, f, &err);
    if (r == 0)
        r = f->error < 0 ? f->error : f->text.failed ? -ENOMEM : 0;
    return r < 0 ? r : io_write_all(f->fd, f->text.data, f->text.len);
}

static int file_replace(struct jobs_file *f)
{
    int r = io_write_all(f->fd, "\n}\n", 3);
    if (r == 0 &&
        renameat(f->folder, f->temporary, f->folder, text_base_name(f->j->options.job_file)) < 0)
        r = -errno;
    if (r < 0)
        return r;
    close_fd(&f->fd);
    file_end(f);
    jobs_trouble_clear(f->j, TROUBLE_FILE);
    return 0;
}

static void on_file_timer(void *user, uint64_t now_ns)
{
    struct jobs_file *f = user;
    if (f->fd < 0)
        return;
    int r = file_put_slice(f);
    if (r == 0 && f->has_all_rows)
        r = file_replace(f);
    if (r < 0)
        file_fail(f, r);
    uint64_t took_ns = clock_mono_ns() - now_ns;
    if (f->fd >= 0)
        loop_set_timer(f->timer, now_ns + NS_PER_MS + (PAUSES + 1) * took_ns, 0);
}

void jobs_file_check(struct jobs *j, uint64_t now_ns)
{
    struct jobs_file *f = j->file;
    if (!f)
        j->is_file_due = false;
    if (!j->is_file_due || f->fd >= 0 || now_ns < f->next_ns)
        return;
    j->is_file_due = false; /* later changes go into the next version of the file */
    int r = file_begin(f);
    if (r < 0)
        file_fail(f, r);
    else
        loop_set_timer(f->timer, now_ns, 0);
}

int jobs_file_new(struct jobs *j, struct jobs_file **ret)
{
    struct jobs_file *f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    *f = (struct jobs_file){.j = j, .fd = -1, .folder = -1};
    AUTO_CLOSE int folder = open_file_folder(j->options.job_file);
    if (folder >= 0)
        io_remove_temporaries(folder, text_base_name(j->options.job_file));
    int r = loop_add_timer(j->loop, UINT64_MAX / 2, 0, on_file_timer, f, &f->timer);
    if (r < 0)
        free(f);
    else
        *ret = f;
    return r;
}

void jobs_file_free(struct jobs_file *f)
{
    if (!f)
        return;
    file_end(f);
    loop_remove(f->timer);
    buf_fini(&f->text);
    free(f);
}
