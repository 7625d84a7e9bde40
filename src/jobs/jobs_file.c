/* The job file for other front ends: written when something has changed, at most once a second. */
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
