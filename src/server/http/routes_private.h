/* What the handlers of paths share: the table, a call, those who wait, and answers that are kept.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/http/auth.h"
#include "server/http/http.h"
#include "server/http/routes.h"

struct err;
struct loop_source;

/* One request on its way through a handler. */
struct route_call {
    struct routes *routes;
    struct http_request *r;
    const struct route *route;
    enum auth_right right;
    int64_t id;       /* of {id} */
    const char *name; /* of {name} */
};
typedef void route_fn(const struct route_call *c);

enum route_access { ROUTE_OPEN, ROUTE_READ, ROUTE_WRITE };

/* A path of the API: what it does, and what openapi.json says of it. */
struct route {
    enum http_method method;
    const char *path; /* "/api/v1/jobs/{id}" */
    enum route_access access;
    route_fn *fn;
    const char *summary;       /* NULL: of the page, and not told of */
    const char *params;        /* of the query, by name with blanks between; NULL: none */
    const char *body;          /* name of a schema; NULL: none */
    unsigned status;           /* when all is well */
    const char *type, *answer; /* its content, and a schema, or NULL */
    const char *errors;        /* "400 404": which can be besides 401, 403, 405 */
};
extern const struct route route_table[]; /* ends with a path of NULL */

/* Waiters are of each listener, a struct http_share. */
enum { ROUTES_WAITERS_MAX = 256, ROUTES_WAIT_MAX_S = 60, ROUTES_CACHE = 64 };

/* Text of an answer, while nothing has changed. */
struct route_kept {
    char *key, *text;
    size_t len;
    uint64_t generation, made_ns;
};

struct routes {
    struct routes_options options;
    struct route_waiter *waiters;
    struct http_share waiting[2]; /* by whether it is the unix socket */
    struct loop_source *timer;    /* for the next of the waiters that has waited long enough */
    uint64_t generation;          /* of everything published about jobs */
    struct route_kept kept[ROUTES_CACHE];
    char *openapi;
    size_t openapi_len;
};

/* ---- routes.c ---- */
void route_fail(struct http_request *r, int error, const struct err *err); /* of a -errno */
/* The body as an object; "{}" where there is none. NULL: answered. The caller's. */
json_t *route_body(struct http_request *r);
/* A number of the query in [MIN, MAX]. False: answered, it is none. */
bool route_number(struct http_request *r, const char *key, double min, double max, double fallback,
                  double *ret);

/* ---- routes_kept.c ---- */
/* True: answered from memory. */
bool route_from_kept(const struct route_call *c);
/* Answers with DOC, which is taken, and keeps the text for who asks next. */
void route_answer_kept(const struct route_call *c, json_t *doc);
void route_kept_free(struct routes *routes);

/* ---- routes_wait.c: requests that wait for something of a job ---- */
enum route_wait { WAIT_STATE, WAIT_LOG, WAIT_ANSWER };
struct route_waiter {
    struct route_waiter *prev, *next;
    struct routes *routes;
    struct http_request *r;
    enum route_wait what;
    int64_t id;
    unsigned states; /* bits; of WAIT_STATE */
    uint64_t offset; /* of WAIT_LOG */
    uint64_t until_ns;
    bool is_due; /* something happened */
};
/* Parks the request of C. Where too many wait, it is answered with 429, and the client asks again
 * later: that is a poll, as what is so already is answered at once. With WAIT_ANSWER, for which the
 * job has been asked already, it is answered with what is known. */
void route_wait(const struct route_call *c, const struct route_waiter *wish);
void route_wake(struct routes *routes, int64_t id, enum route_wait what);
int route_wait_init(struct routes *routes);
/* What a waiter is answered with when its time has come; false: not yet, and it is not IS_LAST. */
bool route_state_answer(struct routes *routes, struct http_request *r, const struct route_waiter *w,
                        bool is_last);
bool route_checkpoint_answer(struct routes *routes, struct http_request *r,
                             const struct route_waiter *w, bool is_last);
bool route_log_answer(struct routes *routes, struct http_request *r, const struct route_waiter *w,
                      bool is_last);

/* ---- the handlers ---- */
route_fn route_health, route_machine, route_openapi, route_metrics, route_live;
route_fn route_session_get, route_session_post, route_session_delete;
route_fn route_page, route_asset;
route_fn route_jobs_list, route_jobs_submit;
route_fn route_job_get, route_job_cancel, route_job_checkpoint, route_job_rerun;
route_fn route_job_samples, route_job_verdict, route_job_diagnosis, route_job_report;
route_fn route_job_log, route_job_events, route_job_run, route_job_request;
