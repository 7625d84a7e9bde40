/* The job file for other front ends: replaced when something has changed, a little at a time.
 *
 * A queue may have 100,000 jobs, and the loop has others to serve. So the rows are read and printed
 * in slices of a few milliseconds, each followed by a pause that is many times as long; a thread
 * (trace/sink.h) writes and syncs what they say; nothing is held but what that thread waits for. */
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
#include "server/jobs/jobfile.h"
#include "server/jobs/jobs_kept.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"
#include "trace/sink.h"

enum {
    ENDED_MAX = 500,      /* in the file */
    AGAIN_S = 5,          /* after a write that failed */
    SLICE_MS = 2,         /* of the loop's time, */
    SLICE_ROWS = 64,      /* and of the store's */
    PAUSES = 9,           /* as long as the slice before: a tenth of the time is the file's */
    DISK_MS = 10,         /* between two looks whether the disk has taken it */
    SINK_BYTES = 1 << 20, /* that may wait for the disk */
};

struct jobs_file {
    struct jobs *j;
    struct loop_source *timer;
    struct buf text; /* one row */
    /* the write under way */
    struct sink *sink; /* NULL: none */
    int folder;
    char temporary[NAME_MAX + 1];
    int64_t before;  /* ids below are still to come; 0: all */
    unsigned ended;  /* so far */
    bool is_any;     /* a row has been written */
    bool has_rows;   /* all of them */
    bool is_printed; /* and the end of the file */
    int error;
    uint64_t slice_until_ns;
    uint64_t next_ns; /* no write begins before */
};

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- beginning and ending ---- */

static int open_file_folder(const char *path)
{
    char folder[PATH_MAX];
    size_t len = (size_t)(base_of(path) - path);
    if (len >= sizeof folder)
        return -ENAMETOOLONG;
    memcpy(folder, path, len);
    memcpy(folder + len, ".", 2);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int begin(struct jobs_file *f)
{
    *f = (struct jobs_file){.j = f->j, .timer = f->timer, .text = f->text, .folder = -1};
    f->folder = open_file_folder(f->j->options.job_file);
    if (f->folder < 0)
        return f->folder;
    int fd = io_create_temporary(f->folder, base_of(f->j->options.job_file), f->temporary,
                                 sizeof f->temporary);
    if (fd < 0) {
        f->temporary[0] = '\0';
        return fd;
    }
    int r = sink_new(fd, SINK_BYTES, &f->sink);
    return r < 0 ? r : sink_append(f->sink, "{\n", 2);
}

/* Leaves behind nothing but what was renamed. */
static void end(struct jobs_file *f)
{
    if (f->sink)
        sink_close(f->sink, 0);
    if (f->temporary[0])
        unlinkat(f->folder, f->temporary, 0);
    if (f->folder >= 0)
        close(f->folder);
    f->sink = NULL;
    f->temporary[0] = '\0';
    f->folder = -1;
}

static void fail(struct jobs_file *f, int error)
{
    struct jobs *j = f->j;
    end(f);
    j->is_file_due = true;
    jobs_tick_on(j);
    f->next_ns = clock_mono_ns() + AGAIN_S * NS_PER_S;
    jobs_trouble_set(j, TROUBLE_FILE, "the job file %s cannot be written: %s", j->options.job_file,
                     strerror(-error));
}

/* ---- rows ---- */

/* 0 it is queued, -ENOBUFS the disk is behind, -errno. */
static int file_put_row(struct jobs_file *f, const struct store_job *row)
{
    json_t *doc = jobs_row_json(f->j, row, jobs_find(f->j, row->id));
    buf_clear(&f->text);
    buf_add_str(&f->text, f->is_any ? ",\n" : "");
    int r = doc ? jobfile_put(&f->text, doc) : -ENOMEM;
    json_decref(doc);
    return r < 0 ? r : sink_append(f->sink, f->text.data, f->text.len);
}

/* From the newest down, so that each is there once, whatever happens to it meanwhile. */
static int file_add_row(void *user, const struct store_job *row)
{
    struct jobs_file *f = user;
    int r = file_put_row(f, row);
    f->has_rows = false;
    if (r < 0) {
        f->error = r == -ENOBUFS ? 0 : r;
        return 1;
    }
    f->is_any = true;
    f->before = row->id;
    if (job_state_is_final(row->state) && ++f->ended == ENDED_MAX)
        return 1;
    return clock_mono_ns() >= f->slice_until_ns;
}

/* All that have not ended, and the newest that have. */
static int file_put_rows(struct jobs_file *f, struct err *err)
{
    struct store_filter filter = {
        .states = f->ended < ENDED_MAX ? 0 : JOB_ACTIVE, .before = f->before, .limit = SLICE_ROWS};
    f->has_rows = true; /* unless one more comes */
    f->slice_until_ns = clock_mono_ns() + SLICE_MS * NS_PER_MS;
    jobs_plan(f->j); /* file_add_row must not: it may not call the store */
    int r = store_list(f->j->store, &filter, file_add_row, f, err);
    return r < 0 ? r : f->error;
}

/* ---- a slice at a time ---- */

static int file_put_end(struct jobs_file *f)
{
    static const char text[] = "\n}\n";
    int r = sink_append(f->sink, text, sizeof text - 1);
    if (r == 0)
        r = sink_sync(f->sink);
    f->is_printed = r == 0;
    return r == -ENOBUFS ? 0 : r;
}

/* The thread is done: what it wrote takes the place of the file, or why it could not. */
static int publish(struct jobs_file *f)
{
    struct sink_status status;
    sink_status(f->sink, &status);
    if (status.first_error < 0)
        return status.first_error;
    if (renameat(f->folder, f->temporary, f->folder, base_of(f->j->options.job_file)) < 0)
        return -errno;
    f->temporary[0] = '\0';
    end(f);
    jobs_trouble_clear(f->j, TROUBLE_FILE);
    return 0;
}

static void on_file_timer(void *user, uint64_t now_ns, uint64_t missed)
{
    struct jobs_file *f = user;
    struct sink_status status;
    struct err err;
    (void)missed;
    if (!f->sink)
        return;
    sink_status(f->sink, &status);
    int r = status.first_error;
    if (r == 0 && !f->has_rows)
        r = file_put_rows(f, &err);
    else if (r == 0 && !f->is_printed)
        r = file_put_end(f);
    else if (r == 0 && sink_wait(f->sink, 0) == 0)
        r = publish(f);
    if (r < 0)
        fail(f, r);
    if (!f->sink)
        return;
    uint64_t took_ns = clock_mono_ns() - now_ns, least_ns = f->is_printed ? DISK_MS : 1;
    uint64_t pause_ns = PAUSES * took_ns;
    loop_set_timer(
        f->timer,
        now_ns + took_ns + (pause_ns > least_ns * NS_PER_MS ? pause_ns : least_ns * NS_PER_MS), 0);
}

void jobs_file_check(struct jobs *j, uint64_t now_ns)
{
    struct jobs_file *f = j->file;
    if (!f)
        j->is_file_due = false;
    if (!j->is_file_due || f->sink || now_ns < f->next_ns)
        return;
    j->is_file_due = false; /* what changes from here on is in the next */
    int r = begin(f);
    if (r < 0)
        fail(f, r);
    else
        loop_set_timer(f->timer, now_ns, 0);
}

int jobs_file_new(struct jobs *j, struct jobs_file **ret)
{
    struct jobs_file *f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    f->j = j;
    f->folder = -1;
    AUTO_CLOSE int folder = open_file_folder(j->options.job_file);
    if (folder >= 0)
        io_remove_temporaries(folder, base_of(j->options.job_file));
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
    end(f);
    loop_remove(f->timer);
    buf_fini(&f->text);
    free(f);
}
