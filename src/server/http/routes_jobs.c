/* Request handlers for jobs: list, get, submit, rerun, cancel and checkpoint. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "server/jobs/jobs.h"
#include "server/jobs/state.h"
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

void route_jobs_list(const struct route_call *c)
{
    struct jobs_query query = {.name = http_query(c->r, "name")};
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

static void answer_job(const struct route_call *c, unsigned status)
{
    json_t *doc = NULL;
    struct err err = {""};
    int r = jobs_get(c->routes->options.jobs, c->id, true, &doc, &err);
    route_answer(c, status, r, doc, &err);
}

bool route_answer_state(struct route_waiter *w, bool is_last)
{
    enum job_state state = jobs_state(w->call->routes->options.jobs, w->call->id);
    bool is_so = state == JOB_STATES || job_state_is_final(state) || w->states & 1u << state;
    if (is_so || is_last)
        answer_job(w->call, 200);
    return is_so || is_last;
}

void route_job_request(const struct route_call *c)
{
    json_t *doc = NULL;
    struct err err = {""};
    int r = jobs_request(c->routes->options.jobs, c->id, &doc, &err);
    route_answer(c, 200, r, doc, &err);
}

void route_job_get(const struct route_call *c)
{
    const char *until = http_query(c->r, "until");
    struct route_waiter waiter = {.what = WAIT_STATE};
    double timeout_s;
    json_t *doc = NULL;
    struct err err = {""};
    if (until) {
        if (read_states(c->r, until, &waiter.states) &&
            route_number(c->r, "timeout_s", 0, ROUTES_WAIT_MAX_S, 30, &timeout_s))
            route_wait(c, &waiter, timeout_s);
    } else if (!route_answer_cached(c)) {
        int r = jobs_get(c->routes->options.jobs, c->id, true, &doc, &err);
        route_answer_and_cache(c, r, doc, &err);
    }
}

/* ---- changes ---- */

void route_jobs_submit(const struct route_call *c)
{
    struct err err = {""};
    json_t *doc = NULL, *request = route_body(c->r);
    if (!request)
        return;
    int r = jobs_submit(c->routes->options.jobs, request, &doc, &err);
    json_decref(request);
    c->routes->generation++;
    route_answer(c, 201, r, doc, &err);
}

void route_job_rerun(const struct route_call *c)
{
    struct err err = {""};
    json_t *doc = NULL, *body = route_body(c->r);
    if (!body)
        return;
    json_decref(body);
    int r = jobs_rerun(c->routes->options.jobs, c->id, &doc, &err);
    c->routes->generation++;
    route_answer(c, 201, r, doc, &err);
}

/* Reads "reason" and "grace_s" of a cancel. If one of them is invalid, answers the request and
 * returns false. */
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

void route_job_cancel(const struct route_call *c)
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

/* Answers a checkpoint request once the supervisor reports whether the job accepts it. If the
 * supervisor does not answer in time, the request succeeds, because the checkpoint may still be
 * written. */
bool route_answer_checkpoint(struct route_waiter *w, bool is_last)
{
    struct err err = {""};
    int r = jobs_checkpoint_answer(w->call->routes->options.jobs, w->call->id, &err);
    if (r == -EINPROGRESS && !is_last)
        return false;
    if (r < 0 && r != -EINPROGRESS)
        route_fail(w->call->r, r, &err);
    else
        answer_job(w->call, 202);
    return true;
}

void route_job_checkpoint(const struct route_call *c)
{
    struct err err = {""};
    json_t *body = route_body(c->r);
    if (!body)
        return;
    json_decref(body);
    int r = jobs_checkpoint(c->routes->options.jobs, c->id, &err);
    c->routes->generation++;
    if (r < 0)
        route_fail(c->r, r, &err);
    else
        route_wait(c, &(struct route_waiter){.what = WAIT_CHECKPOINT}, ANSWER_S);
}
