/* The job file for other front ends: written when something has changed, at most once a second. And
 * the way in: the jobs of another server's file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "jobs/jobfile.h"
#include "jobs/jobs_private.h"

enum {
    ENDED_MAX = 500, /* in the file */
    AGAIN_S = 5,     /* after a write that failed */
};

static int add_row(void *user, const struct store_job *row)
{
    void **ends = user;
    struct jobs *j = ends[0];
    json_t *list = ends[1];
    return json_array_append_new(list, jobs_row_json(j, row, jobs_find(j, row->id))) < 0;
}

/* All that have not ended, and the newest that have. */
static int collect(struct jobs *j, json_t *list, struct err *err)
{
    void *user[] = {j, list};
    struct store_filter filter = {.limit = ENDED_MAX};
    for (unsigned i = 0; i < JOB_STATES; i++)
        filter.states |= job_state_is_final((enum job_state)i) ? 1u << i : 0;
    jobs_plan(j);
    int r = store_list(j->store, &filter, add_row, user, err);
    filter.states = ((1u << JOB_STATES) - 1) & ~filter.states;
    filter.limit = 0;
    return r < 0 ? r : store_list(j->store, &filter, add_row, user, err);
}

static int write_file(struct jobs *j, struct err *err)
{
    json_t *list = json_array();
    int r = collect(j, list, err);
    json_t *doc = r < 0 ? NULL : jobfile_of(list);
    if (r == 0)
        r = doc ? jobfile_write(j->job_file, doc, err) : err_set(err, -ENOMEM, "out of memory");
    json_decref(doc);
    json_decref(list);
    return r;
}

void jobs_file_look(struct jobs *j, uint64_t now_ns)
{
    struct err err;
    if (!j->job_file)
        j->is_file_due = false;
    if (!j->is_file_due || now_ns < j->file_ns)
        return;
    if (write_file(j, &err) == 0) {
        j->is_file_due = false;
        jobs_trouble_clear(j, TROUBLE_FILE);
        return;
    }
    j->file_ns = now_ns + AGAIN_S * NS_PER_S;
    jobs_trouble_set(j, TROUBLE_FILE, "the job file %s is not current: %s", j->job_file, err.text);
}

/* ---- the way in ---- */

static uint64_t ns_of(const json_t *entry, const char *key)
{
    double s = json_number_value(json_object_get(entry, key));
    return s > 0 && s < 1e10 ? (uint64_t)(s * 1e9) : 0;
}

/* What it was is known, what became of it is not: nobody here has run it. */
static int take_history(struct jobs *j, const json_t *entry, struct err *err)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    json_t *request = json_object_get(entry, "request");
    char *text = json_is_object(request) ? json_dumps(request, JSON_COMPACT) : strdup("{}");
    enum job_state state = JOB_LOST;
    const char *word = json_string_value(json_object_get(entry, "state"));
    if (!word || job_state_parse(word, &state) < 0 || !job_state_is_final(state))
        state = JOB_LOST;
    uint64_t submitted_ns = ns_of(entry, "submitted_s"), ended_ns = ns_of(entry, "ended_s");
    struct store_job row = {.state = state,
                            .reason = "taken over from a job file",
                            .request = text,
                            .name = name ? name : "job",
                            .submitted_ns = submitted_ns ? submitted_ns : clock_wall_ns(),
                            .started_ns = ns_of(entry, "started_s"),
                            .ended_ns = ended_ns ? ended_ns : clock_wall_ns(),
                            .end = "{}"};
    int64_t id;
    int r = text ? store_add(j->store, &row, &id, err) : err_set(err, -ENOMEM, "out of memory");
    free(text);
    return r;
}

static int take_entry(struct jobs *j, const json_t *entry, struct err *err)
{
    const char *state = json_string_value(json_object_get(entry, "state"));
    const json_t *request = json_object_get(entry, "request");
    json_t *doc = NULL;
    if (!state || strcmp(state, "queued") != 0 || !json_is_object(request))
        return take_history(j, entry, err);
    int r = jobs_submit(j, request, &doc, err);
    json_decref(doc);
    return r;
}

int jobs_import(struct jobs *j, const char *path, struct err *err)
{
    json_t *list = NULL, *entry;
    size_t i;
    int count = 0;
    int r = jobfile_read(path, &list, err);
    if (r < 0)
        return r;
    json_array_foreach(list, i, entry)
    {
        r = take_entry(j, entry, err);
        if (r == -EINVAL) /* one that cannot be run here is history */
            r = take_history(j, entry, err);
        if (r < 0)
            break;
        count++;
    }
    json_decref(list);
    return r < 0 ? r : count;
}
