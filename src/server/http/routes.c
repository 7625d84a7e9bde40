/* Finds and calls the handler of a request, after checking Host and Origin, the route, the rank and
 * the body. */
#include "server/http/routes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/number.h"
#include "server/http/auth.h"
#include "server/http/routes_private.h"
#include "server/jobs/jobs.h"

/* Maximum number of JSON values in a body; a job request may contain five thousand strings. */
enum { VALUES_MAX = 20000 };

/* ---- the table ---- */

#define API "/api/v1"
#define JOB API "/jobs/{id}"

const struct route route_table[] = {
    {HTTP_GET, API "/health", HTTP_STRANGER, route_health, NULL},
    {HTTP_GET, API "/machine", HTTP_READER, route_machine, NULL},
    {HTTP_GET, API "/jobs", HTTP_READER, route_jobs_list, "state name before limit"},
    {HTTP_POST, API "/jobs", HTTP_OWNER, route_jobs_submit, NULL},
    {HTTP_GET, JOB, HTTP_READER, route_job_get, "until timeout_s"},
    {HTTP_POST, JOB "/cancel", HTTP_OWNER, route_job_cancel, NULL},
    {HTTP_POST, JOB "/checkpoint", HTTP_OWNER, route_job_checkpoint, NULL},
    {HTTP_POST, JOB "/rerun", HTTP_OWNER, route_job_rerun, NULL},
    {HTTP_GET, JOB "/request", HTTP_OWNER, route_job_request, NULL},
    {HTTP_GET, JOB "/samples", HTTP_READER, route_job_samples, "from_s to_s points"},
    {HTTP_GET, JOB "/verdict", HTTP_READER, route_job_verdict, NULL},
    {HTTP_GET, JOB "/diagnosis", HTTP_READER, route_job_diagnosis, NULL},
    {HTTP_GET, JOB "/report", HTTP_READER, route_job_report, "view"},
    {HTTP_GET, JOB "/log", HTTP_READER, route_job_log, "tail offset wait_s"},
    {HTTP_GET, JOB "/events", HTTP_READER, route_job_events, NULL},
    {HTTP_GET, JOB "/run", HTTP_READER, route_job_run, NULL},
    {HTTP_GET, API "/live", HTTP_READER, route_live, NULL},
    {HTTP_GET, API "/openapi.json", HTTP_READER, route_openapi, NULL},
    {HTTP_GET, API "/session", HTTP_STRANGER, route_session_get, NULL},
    {HTTP_POST, API "/session", HTTP_STRANGER, route_session_post, NULL},
    {HTTP_DELETE, API "/session", HTTP_STRANGER, route_session_delete, NULL},
    {HTTP_GET, "/metrics", HTTP_READER, route_metrics, NULL},
    {HTTP_GET, "/", HTTP_STRANGER, route_page, "*"},
    {HTTP_GET, "/jobs/{id}", HTTP_STRANGER, route_page, "*"},
    {HTTP_GET, "/machine", HTTP_STRANGER, route_page, "*"},
    {HTTP_GET, "/assets/{name}", HTTP_STRANGER, route_asset, "*"},
    {.path = NULL},
};

/* ---- finding the route of a request ---- */

/* Matches one part of a path. {id} matches a positive integer without sign or leading zeros; {name}
 * matches any text. */
static bool match_part(const char *pattern, size_t pattern_len, const char *part, size_t len,
                       struct route_call *c)
{
    if (pattern[0] != '{')
        return pattern_len == len && memcmp(pattern, part, len) == 0;
    if (pattern[1] == 'n') {
        c->name = part; /* {name} is always the last part of a path */
        return len > 0;
    }
    return part[0] >= '1' && part[0] <= '9' && number_parse_i64(part, len, &c->id) == 0;
}

static bool match_path(const char *pattern, const char *path, struct route_call *c)
{
    while (*pattern == '/' && *path == '/') {
        size_t pattern_len = strcspn(++pattern, "/"), len = strcspn(++path, "/");
        if (!match_part(pattern, pattern_len, path, len, c))
            return false;
        pattern += pattern_len;
        path += len;
    }
    return !*pattern && !*path;
}

static const char *const method_words[] = {
    [HTTP_GET] = "GET, HEAD", [HTTP_POST] = "POST", [HTTP_DELETE] = "DELETE"};

/* Finds the route of a request. If there is none, answers with 404 or 405 and returns NULL. */
static const struct route *find_route(struct http_request *r, struct route_call *c)
{
    char allow[64] = "";
    enum http_method method = http_method(r) == HTTP_HEAD ? HTTP_GET : http_method(r);
    for (const struct route *route = route_table; route->path; route++) {
        if (!match_path(route->path, http_path(r), c))
            continue;
        if (route->method == method)
            return route;
        size_t len = strlen(allow);
        snprintf(allow + len, sizeof allow - len, "%s%s", len ? ", " : "",
                 method_words[route->method]);
    }
    if (!allow[0]) {
        http_answer_error(r, 404, "no such path: %.100s", http_path(r));
        return NULL;
    }
    http_add_header(r, "Allow", allow);
    http_answer_error(r, 405, "%.100s: method not allowed; use %s", http_path(r), allow);
    return NULL;
}

static bool is_json(const struct http_request *r)
{
    static const char json[] = "application/json";
    const char *type = http_header(r, "Content-Type");
    size_t len = sizeof json - 1;
    return type && strncasecmp(type, json, len) == 0 && (type[len] == '\0' || type[len] == ';');
}

static bool has_word(const char *words, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = words; p && *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        if (n == len && memcmp(p, word, n) == 0)
            return true;
        p += n;
    }
    return false;
}

/* Refuses unknown parameters, so that a misspelt one does not go unnoticed. */
static void check_params(struct http_request *r, const struct route *route)
{
    const char *key;
    if (has_word(route->params, "*"))
        return;
    for (size_t i = 0; (key = http_query_key(r, i)) != NULL; i++) {
        if (!has_word(route->params, key)) {
            http_answer_error(r, 400, "unknown parameter \"%.100s\"", key);
            return;
        }
    }
}

/* Checks Host and Origin, path, rank, content type and parameters. */
void routes_admit(void *user, struct http_request *r)
{
    struct routes *routes = user;
    struct route_call *c = http_context(r);
    const char *why;
    *c = (struct route_call){.routes = routes, .r = r};
    if (!auth_origin_ok(routes->options.auth, r, &why)) {
        http_answer_error(r, 403, "%s", why);
        return;
    }
    c->route = find_route(r, c);
    if (!c->route || !http_set_rank(r, routes->options.no_auth
                                           ? HTTP_OWNER
                                           : auth_rank(routes->options.auth, r, clock_wall_ns())))
        return;
    if (http_rank(r) < c->route->rank && http_rank(r) == HTTP_STRANGER) {
        http_add_header(r, "WWW-Authenticate", "Bearer realm=\"ebb\"");
        http_answer_error(r, 401, "missing or invalid token");
    } else if (http_rank(r) < c->route->rank) {
        http_answer_error(
            r, 403,
            "the read-only token does not permit this; use the token in the file \"token\"");
    } else if (c->route->method != HTTP_GET && !is_json(r)) {
        http_answer_error(r, 415, "Content-Type must be application/json");
    } else {
        check_params(r, c->route);
    }
}

void routes_handle(void *user, struct http_request *r)
{
    (void)user;
    struct route_call *c = http_context(r);
    c->route->fn(c);
}

/* ---- helpers of the request handlers ---- */

void route_fail(struct http_request *r, int error, const struct err *err)
{
    static const struct {
        int error;
        unsigned status;
    } known[] = {{-EINVAL, 400}, {-ENOENT, 404},  {-EALREADY, 409},
                 {-EBUSY, 409},  {-ENOTSUP, 409}, {-EAGAIN, 429}};
    unsigned status = 503;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        status = known[i].error == error ? known[i].status : status;
    http_answer_error(r, status, "%s", err->text[0] ? err->text : strerror(-error));
}

void route_answer(struct route_call *c, unsigned status, int result, json_t *doc,
                  const struct err *err)
{
    if (result < 0)
        route_fail(c->r, result, err);
    else
        http_answer_json(c->r, status, doc);
}

json_t *route_body(struct http_request *r)
{
    size_t len;
    const char *text = http_body(r, &len);
    struct err err = {""};
    if (json_is_crowded(text, len, VALUES_MAX)) {
        http_answer_error(r, 400, "the body has more than %d values", VALUES_MAX);
        return NULL;
    }
    json_t *doc = len ? json_parse(text, len, &err) : json_object();
    if (json_is_object(doc))
        return doc;
    if (doc)
        http_answer_error(r, 400, "the body is not a JSON object");
    else
        http_answer_error(r, 400, "%s", err.text);
    json_decref(doc);
    return NULL;
}

bool route_number(struct http_request *r, const char *key, double min, double max, double fallback,
                  double *ret)
{
    const char *text = http_query(r, key);
    *ret = fallback;
    if (!text)
        return true;
    if (number_parse_double(text, strlen(text), ret) == 0 && *ret >= min && *ret <= max)
        return true;
    http_answer_error(r, 400, "%s: \"%.100s\" is not a number from %g to %g", key, text, min, max);
    return false;
}

/* ---- start and end ---- */

static void wake_waiters(void *user, const struct jobs_news *news)
{
    struct routes *routes = user;
    bool is_job = news->kind == JOBS_NEWS_JOB || news->kind == JOBS_NEWS_REMOVED;
    bool is_change = news->kind == JOBS_NEWS_REMOVED || news->is_change;
    routes->generation += is_job;
    if (is_job)
        route_wake(routes, news->id, WAIT_STATE);
    /* the end of a job also wakes requests that wait for its answer to a checkpoint request or for
     * its output, because neither will come any more */
    if (news->kind == JOBS_NEWS_ANSWER || (is_job && is_change))
        route_wake(routes, news->id, WAIT_CHECKPOINT);
    if (news->kind == JOBS_NEWS_LOG || is_job) {
        routes->log_news++;
        route_wake(routes, news->id, WAIT_LOG);
    }
}

int routes_new(const struct routes_options *options, struct routes **ret, struct err *err)
{
    struct routes *routes = calloc(1, sizeof *routes);
    if (!routes)
        return err_set(err, -ENOMEM, "out of memory");
    routes->options = *options;
    int r = route_wait_init(routes);
    if (r < 0) {
        free(routes);
        return err_set(err, r, "cannot create a timer: %s", strerror(-r));
    }
    jobs_listen(options->jobs, wake_waiters, routes);
    *ret = routes;
    return 0;
}

void routes_free(struct routes *routes)
{
    if (!routes)
        return;
    jobs_listen(routes->options.jobs, NULL, routes);
    loop_remove(routes->timer);
    route_cache_clear(routes);
    free(routes);
}
