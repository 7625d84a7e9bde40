/* Request handlers for jobs: list, get, submit, rerun, cancel and checkpoint. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "server/jobs/jobs.h"
#include "server/jobs/state.h"
#include "server/jobs/workers.h"
#include "server/http/routes_private.h"

enum { ANSWER_S = 5 }; /* maximum wait for the supervisor's answer to a checkpoint request */

/* ---- the list ---- */

/* Converts WORD to a set of states, one bit each. WORD is the name of a state, "active" or "ended".
 * Returns 0 if WORD is unknown. */
static unsigned states_of(const char *word)
{
    enum job_state state;
    if (strcmp(word, "ended") == 0)
        return JOB_FINAL;
    if (strcmp(word, "active") == 0)
        return JOB_ACTIVE;
    return job_state_parse(word, &state) == 0 ? 1u << state : 0;
}

static bool read_states(struct http_request *r, const char *list, unsigned *ret)
{
    char word[32];
    *ret = 0;
    for (const char *p = list; *p; p += *p == ',') {
        size_t len = strcspn(p, ",");
        size_t n = len < sizeof word - 1 ? len : sizeof word - 1;
        memcpy(word, p, n);
        word[n] = '\0';
        unsigned states = len < sizeof word ? states_of(word) : 0;
        if (!states) {
            http_answer_error(r, 400, "state: unknown state \"%.100s\"", word);
            return false;
        }
        *ret |= states;
        p += len;
    }
    return true;
}

void route_jobs_list(struct route_call *c)
{
    struct store_filter query = {.name = http_query(c->r, "name")};
    const char *state = http_query(c->r, "state");
    double before, limit;
    struct err err = {""};
    json_t *doc = NULL;
    if (route_answer_cached(c))
        return;
    if ((state && !read_states(c->r, state, &query.states)) ||
        !route_number(c->r, "before", 1, 1e15, 0, &before) ||
        !route_number(c->r, "limit", 1, 500, 100, &limit))
        return;
    query.before = (int64_t)before;
    query.limit = (unsigned)limit;
    int r = jobs_list(c->routes->options.jobs, &query, &doc, &err);
    route_answer_and_cache(c, r, doc, &err);
}

/* ---- one job ---- */

static void answer_job(struct route_call *c, unsigned status)
{
    json_t *doc = NULL;
    struct err err = {""};
    int r = jobs_get(c->routes->options.jobs, c->id, true, &doc, &err);
    route_answer(c, status, r, doc, &err);
}

/* Waits until the job has ended or is in one of the states listed in UNTIL. */
static void wait_for_state(struct route_call *c, const char *until)
{
    const enum job_state state = jobs_state(c->routes->options.jobs, c->id);
    unsigned states;
    double timeout_s;
    if (!read_states(c->r, until, &states) ||
        !route_number(c->r, "timeout_s", 0, ROUTES_WAIT_MAX_S, 30, &timeout_s))
        return;
    if (state == JOB_STATES || job_state_is_final(state) || states & 1u << state || c->is_last ||
        timeout_s <= 0)
        answer_job(c, 200);
    else
        route_wait(c, WAIT_STATE, timeout_s, false);
}

void route_job_request(struct route_call *c)
{
    json_t *doc = NULL;
    struct err err = {""};
    int r = jobs_request(c->routes->options.jobs, c->id, &doc, &err);
    route_answer(c, 200, r, doc, &err);
}

void route_job_get(struct route_call *c)
{
    const char *until = http_query(c->r, "until");
    json_t *doc = NULL;
    struct err err = {""};
    if (until) {
        wait_for_state(c, until);
    } else if (!route_answer_cached(c)) {
        int r = jobs_get(c->routes->options.jobs, c->id, true, &doc, &err);
        route_answer_and_cache(c, r, doc, &err);
    }
}

/* ---- changes ---- */

struct route_submission {
    struct jobs_submission base;
    struct route_call *call;
    struct task *task;
};

static void on_submitter_gone(void *user)
{
    struct route_submission *s = user;
    task_cancel(s->task);
}

static void on_submitter_late(void *user)
{
    struct route_submission *s = user;
    http_answer_error(s->call->r, 503,
                      "cwd: the folder \"%s\" is unreachable; submit the job again later",
                      s->base.spec.cwd);
    task_cancel(s->task);
}

static void on_submitted(struct jobs_submission *base, int r, json_t *job, const struct err *err)
{
    struct route_call *c = ((struct route_submission *)base)->call;
    c->routes->generation++;
    route_answer(c, 201, r, job, err);
}

static void submission_free(struct jobs_submission *base)
{
    free(base);
}

/* Submits the job that REQUEST describes or, if REQUEST is NULL, reruns the job with the id in the
 * path. */
static void submit(struct route_call *c, const json_t *request)
{
    struct jobs *jobs = c->routes->options.jobs;
    struct task *task;
    struct route_submission *s = calloc(1, sizeof *s);
    if (!s) {
        http_answer_error(c->r, 503, "out of memory");
        return;
    }
    *s = (struct route_submission){.base = {.done = on_submitted, .free = submission_free},
                                   .call = c};
    http_park(c->r, on_submitter_gone, on_submitter_late, s);
    int r = jobs_submit(jobs, request, request ? 0 : c->id, &s->base, &task);
    if (r < 0)
        http_answer_error(c->r, 503, "cannot check the working folder: %s", strerror(-r));
    else if (task)
        s->task = task;
}

void route_jobs_submit(struct route_call *c)
{
    json_t *request = route_body(c->r);
    if (request)
        submit(c, request);
    json_decref(request);
}

void route_job_rerun(struct route_call *c)
{
    json_t *body = route_body(c->r);
    if (body)
        submit(c, NULL);
    json_decref(body);
}

/* Reads "reason" and "grace_s" of a cancel request. If one of them is invalid, answers the request
 * and returns false. */
static bool read_cancel(struct http_request *r, const json_t *body, const char **ret_reason,
                        uint64_t *ret_grace_ns)
{
    const json_t *reason = json_object_get(body, "reason"),
                 *grace = json_object_get(body, "grace_s");
    double s = json_number_value(grace);
    *ret_grace_ns = UINT64_MAX;
    if (reason && !json_is_null(reason) &&
        (!json_is_string(reason) || json_string_length(reason) > 256)) {
        http_answer_error(r, 400, "reason: must be a string of at most 256 bytes");
        return false;
    }
    if (grace && !json_is_null(grace)) {
        if (!json_is_number(grace) || !(s >= 0 && s <= 86400)) {
            http_answer_error(r, 400, "grace_s: must be a number from 0 to 86400");
            return false;
        }
        *ret_grace_ns = (uint64_t)(s * (double)NS_PER_S);
    }
    *ret_reason = json_string_value(reason);
    return true;
}

void route_job_cancel(struct route_call *c)
{
    struct err err = {""};
    const char *reason;
    uint64_t grace_ns;
    json_t *body = route_body(c->r);
    if (!body)
        return;
    if (read_cancel(c->r, body, &reason, &grace_ns)) {
        int r = jobs_cancel(c->routes->options.jobs, c->id, reason, grace_ns, &err);
        c->routes->generation++;
        if (r < 0)
            route_fail(c->r, r, &err);
        else
            answer_job(c, 202);
    }
    json_decref(body);
}

/* Requests a checkpoint, and answers once the supervisor reports whether the job accepts the
 * request. If the supervisor does not answer in time, the request succeeds, because the checkpoint
 * may still be written. */
void route_job_checkpoint(struct route_call *c)
{
    struct err err = {""};
    struct jobs *jobs = c->routes->options.jobs;
    int r = 0;
    if (!c->until_ns) {
        json_t *body = route_body(c->r);
        if (!body)
            return;
        json_decref(body);
        r = jobs_checkpoint(jobs, c->id, &err);
        c->routes->generation++;
    }
    if (r == 0)
        r = jobs_checkpoint_answer(jobs, c->id, &err);
    if (r == -EINPROGRESS && !c->is_last)
        route_wait(c, WAIT_CHECKPOINT, ANSWER_S, false);
    else if (r < 0 && r != -EINPROGRESS)
        route_fail(c->r, r, &err);
    else
        answer_job(c, 202);
}
