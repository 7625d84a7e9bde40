/* What the handlers of paths share: the table, a call, waiting requests, and the cache. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/http/http.h"
#include "server/http/http_answer.h"
#include "server/http/routes.h"

struct err;
struct loop_source;

/* One request on its way through a handler: the context of the HTTP request, filled in once, when
 * it is admitted. */
struct route_call {
    struct routes *routes;
    struct http_request *r;
    const struct route *route;
    int64_t id;       /* of {id} */
    const char *name; /* of {name} */
};
typedef void route_fn(const struct route_call *c);

/* A path; web/openapi.json describes those of the API. */
struct route {
    enum http_method method;
    const char *path;    /* "/api/v1/jobs/{id}" */
    enum http_rank rank; /* that is needed */
    route_fn *fn;
    const char *params; /* names in the query, with blanks between; NULL: none; "*": any */
};
extern const struct route route_table[]; /* ends with a path of NULL */
/* openapi.json, with a NUL behind it. */
#pragma GCC visibility push(hidden)
extern const char route_openapi_text[], route_openapi_end[];
#pragma GCC visibility pop

/* Waiters are counted by listener, each a struct http_share. */
enum { ROUTES_WAITERS_MAX = 256, ROUTES_WAIT_MAX_S = 60, ROUTES_CACHE = 64 };

/* The text of an answer. */
struct route_cached {
    char *key, *text;
    size_t len;
    uint64_t generation, made_ns;
};

struct routes {
    struct routes_options options;
    LIST_HEAD(, route_waiter) waiters;
    struct http_share waiting[2]; /* by whether it is the unix socket */
    struct loop_source *timer;    /* for the next of the waiters whose time is over */
    uint64_t generation;          /* counts everything published about jobs */
    struct route_cached cache[ROUTES_CACHE];
};

/* ---- routes.c ---- */
void route_fail(struct http_request *r, int error, const struct err *err); /* of a -errno */
/* With DOC, which is taken, or where RESULT is -errno with that. */
void route_answer(const struct route_call *c, unsigned status, int result, json_t *doc,
                  const struct err *err);
/* The body as an object; "{}" where there is none. NULL: answered. The caller's. */
json_t *route_body(struct http_request *r);
/* A number of the query in [MIN, MAX]. False: answered, it is none. */
bool route_number(struct http_request *r, const char *key, double min, double max, double fallback,
                  double *ret);

/* ---- routes_cache.c ---- */
/* True: answered from the cache. */
bool route_answer_cached(const struct route_call *c);
/* Like route_answer with 200, and caches the text. */
void route_answer_and_cache(const struct route_call *c, int result, json_t *doc,
                            const struct err *err);
void route_cache_free(struct routes *routes);

/* ---- routes_wait.c: requests that wait for something of a job ---- */
enum route_wait { WAIT_STATE, WAIT_LOG, WAIT_CHECKPOINT };
struct route_waiter {
    LIST_ENTRY(route_waiter) link;
    const struct route_call *call;
    enum route_wait what;
    unsigned states; /* bits; of WAIT_STATE */
    uint64_t offset; /* of WAIT_LOG */
    uint64_t until_ns;
    bool is_due; /* something happened */
};
/* Answers where that can be now, and else parks the request of C for SECONDS. Where too many wait,
 * it is answered with 429, and the client asks again later; a checkpoint, which has been requested
 * by then, is answered with what is known. */
void route_wait(const struct route_call *c, const struct route_waiter *waiter, double seconds);
void route_wake(struct routes *routes, int64_t id, enum route_wait what);
int route_wait_init(struct routes *routes);
/* Answers the call of W if it can be now, or IS_LAST. */
typedef bool route_wait_fn(const struct route_waiter *w, bool is_last);
route_wait_fn route_answer_state, route_answer_log, route_answer_checkpoint;

/* ---- the handlers ---- */
route_fn route_health, route_machine, route_openapi, route_metrics, route_live;
route_fn route_session_get, route_session_post, route_session_delete;
route_fn route_page, route_asset;
route_fn route_jobs_list, route_jobs_submit;
route_fn route_job_get, route_job_cancel, route_job_checkpoint, route_job_rerun;
route_fn route_job_samples, route_job_verdict, route_job_diagnosis, route_job_report;
route_fn route_job_log, route_job_events, route_job_run, route_job_request;
