/* The jobs of another server's file: taken in whole, in one commit, and once. */
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
#include "server/jobs/jobfile.h"
#include "server/jobs/jobs_private.h"

enum { FILE_MAX = 16 << 20, KEY_MAX = 40 };

static uint64_t ns_of(const json_t *entry, const char *key)
{
    double s = json_number_value(json_object_get(entry, key));
    return s > 0 && s < 1e10 ? (uint64_t)(s * 1e9) : 0;
}

static int add(struct jobs *j, struct store_job *row, const json_t *request, struct err *err)
{
    int64_t id;
    char *text = request ? json_dumps(request, JSON_COMPACT) : strdup("{}");
    row->request = text;
    int r = text ? store_add(j->store, row, &id, err) : err_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = jobs_ids_note(j, id, err);
    free(text);
    return r;
}

/* What it was is known; what became of one that had not ended is not: nobody here has run it. */
static int take_history(struct jobs *j, const json_t *entry, struct err *err)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *word = json_string_value(json_object_get(entry, "state"));
    const json_t *request = json_object_get(entry, "request");
    enum job_state state = JOB_LOST;
    if (!word || job_state_parse(word, &state) < 0 || !job_state_is_final(state))
        state = JOB_LOST;
    uint64_t submitted_ns = ns_of(entry, "submitted_s"), ended_ns = ns_of(entry, "ended_s");
    struct store_job row = {.state = state,
                            .reason = "taken over from a job file",
                            .name = name ? name : "job",
                            .submitted_ns = submitted_ns ? submitted_ns : clock_wall_ns(),
                            .started_ns = ns_of(entry, "started_s"),
                            .ended_ns = ended_ns ? ended_ns : clock_wall_ns(),
                            .ended_age_ns = jobs_age_ns(j),
                            .end = "{}"};
    return add(j, &row, json_is_object(request) ? request : NULL, err);
}

/* -EINVAL: it cannot be run here. */
static int take_queued(struct jobs *j, const json_t *request, struct err *err)
{
    struct job_spec spec = {0};
    int r = job_spec_read(request, j->cwd, &spec, err);
    if (r < 0)
        return r;
    json_object_set_new(spec.doc, "after", json_array()); /* its numbers are not ours */
    struct store_job row = {.state = JOB_QUEUED,
                            .name = spec.name,
                            .priority = spec.priority,
                            .memory_bytes = spec.memory_bytes,
                            .memory_from = spec.memory_from,
                            .submitted_ns = clock_wall_ns()};
    r = add(j, &row, spec.doc, err);
    job_spec_fini(&spec);
    return r;
}

static int take_entry(struct jobs *j, const json_t *entry, struct err *err)
{
    const char *state = json_string_value(json_object_get(entry, "state"));
    const json_t *request = json_object_get(entry, "request");
    int r = -EINVAL;
    if (state && strcmp(state, "queued") == 0 && json_is_object(request))
        r = take_queued(j, request, err);
    return r == -EINVAL ? take_history(j, entry, err) : r;
}

/* ---- once ---- */

/* A server that is started with --import again must not run its jobs again. */
static int key_of(const char *path, char ret[KEY_MAX], struct err *err)
{
    struct buf text = {0};
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    int r = io_read_all(AT_FDCWD, path, FILE_MAX, &text);
    for (size_t i = 0; i < text.len; i++)
        hash = (hash ^ (uint8_t)text.data[i]) * UINT64_C(1099511628211);
    buf_fini(&text);
    snprintf(ret, KEY_MAX, "imported.%016" PRIx64, hash);
    return r < 0 ? err_set(err, r, "cannot read %s: %s", path, strerror(-r)) : 0;
}

static int take_all(struct jobs *j, const json_t *list, const char *key, struct err *err)
{
    int r = store_begin(j->store, err);
    if (r < 0)
        return r;
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++)
        r = take_entry(j, json_array_get(list, i), err);
    if (r == 0)
        r = store_count_up(j->store, key, 1, err);
    if (r == 0)
        return store_commit(j->store, err);
    store_cancel(j->store);
    return r;
}

int jobs_import(struct jobs *j, const char *path, struct err *err)
{
    char key[KEY_MAX];
    json_t *list = NULL;
    double times = 0;
    int r = key_of(path, key, err);
    if (r == 0)
        r = store_counter(j->store, key, &times, err);
    if (r < 0 || times > 0)
        return r;
    r = jobfile_read(path, &list, err);
    if (r == 0)
        r = take_all(j, list, key, err);
    if (r == 0 && j->is_started)
        r = jobs_adopt(j, err);
    if (r == 0)
        r = (int)json_array_size(list);
    json_decref(list);
    jobs_kick(j);
    return r;
}
