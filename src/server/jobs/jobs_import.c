/* Imports another server's job file in one commit, and only once. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/text.h"
#include "server/jobs/jobfile.h"
#include "server/jobs/jobs_state.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"

enum { FILE_MAX = 16 << 20, KEY_MAX = 40 };

static int import_row(struct jobs *j, struct store_job *row, const json_t *request, struct err *err)
{
    int64_t id = 0;
    char *text = request ? json_dumps(request, JSON_COMPACT) : strdup("{}");
    row->request = text;
    int r = text ? store_add(j->store, row, &id, err) : err_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = jobs_ids_note(j, id, err);
    free(text);
    return r;
}

/* Stores a job of the other server as history. The end of a job that was still running or queued is
 * unknown here, so such a job is stored as lost. */
static int take_history(struct jobs *j, const struct jobfile_entry *e, struct err *err)
{
    struct store_job row = {.state = job_state_is_final(e->state) ? e->state : JOB_LOST,
                            .reason = "imported from a job file",
                            .name = e->name,
                            .submitted_ns = e->submitted_ns ? e->submitted_ns : clock_wall_ns(),
                            .started_ns = e->started_ns,
                            .ended_ns = e->ended_ns ? e->ended_ns : clock_wall_ns(),
                            .ended_age_ns = jobs_age_ns(j),
                            .end = "{}"};
    return import_row(j, &row, e->request, err);
}

/* Queues a job of the other server. Returns -EINVAL if the job cannot run here. */
static int take_queued(struct jobs *j, const json_t *request, struct err *err)
{
    struct job_spec spec = {0};
    int r = job_spec_read(request, j->cwd, &spec, err);
    if (r == 0 && j->executor.kind->owns_machine)
        r = job_spec_check_cwd(spec.cwd, err);
    if (r < 0) {
        job_spec_fini(&spec);
        return r;
    }
    /* "after" is cleared, because its ids are those of the other server */
    json_object_set_new(spec.doc, "after", json_array());
    struct store_job row = {.state = JOB_QUEUED,
                            .name = spec.name,
                            .priority = spec.priority,
                            .memory_bytes = spec.memory_bytes,
                            .memory_from = spec.memory_from,
                            .submitted_ns = clock_wall_ns()};
    r = import_row(j, &row, spec.doc, err);
    job_spec_fini(&spec);
    return r;
}

struct importing {
    struct jobs *j;
    int count;
};

static int take_entry(void *user, const struct jobfile_entry *e, struct err *err)
{
    struct importing *to = user;
    int r = e->state == JOB_QUEUED && e->request ? take_queued(to->j, e->request, err) : -EINVAL;
    if (r == -EINVAL)
        r = take_history(to->j, e, err);
    to->count += r == 0;
    return r;
}

/* Imports a file unless it was imported before: a restart with the same --import must not run the
 * jobs again. */
static int import_once(struct importing *to, const char *path, const struct buf *text,
                       struct err *err)
{
    char key[KEY_MAX];
    double times = 0;
    struct store *store = to->j->store;
    snprintf(key, sizeof key, "imported.%016" PRIx64,
             text_hash(TEXT_HASH_EMPTY, text->data, text->len));
    int r = store_counter(store, key, &times, err);
    if (r < 0 || times > 0)
        return r;
    r = store_begin(store, err);
    if (r < 0)
        return r;
    r = jobfile_read(path, text->data, text->len, take_entry, to, err);
    if (r == 0)
        r = store_count_up(store, key, 1, err);
    return store_end(store, r, err);
}

int jobs_import(struct jobs *j, const char *path, struct err *err)
{
    struct buf text = {0};
    struct importing to = {.j = j};
    int r = io_read_all(AT_FDCWD, path, FILE_MAX, &text);
    if (r < 0)
        err_set(err, r, "cannot read the job file %s: %s", path, strerror(-r));
    else
        r = import_once(&to, path, &text, err);
    buf_fini(&text);
    if (r == 0 && j->is_started)
        r = jobs_adopt(j, err);
    jobs_kick(j);
    return r < 0 ? r : to.count;
}
