/* Shared by the request handlers: the route table, the call of a handler, waiters and the cache. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/http/http.h"
#include "server/http/http_answer.h"
#include "server/http/routes.h"
#include "server/jobs/jobs.h"

struct err;
struct loop_source;

/* A request and its route. This is the context of the HTTP request, filled in by routes_admit. */
struct route_call {
    struct routes *routes;
    struct http_request *r;
    const struct route *route;
    int64_t id;       /* the number in place of {id} in the path */
    const char *name; /* the text in place of {name} in the path */
    /* Set by route_wait: */
    uint64_t until_ns; /* time at which the wait ends; 0: the request has not waited */
    bool is_last;      /* the wait has ended, so the request must be answered now */
};
typedef void route_fn(struct route_call *c);

/* One route. web/openapi.json describes the routes of the API. */
struct route {
    enum http_method method;
    const char *path;    /* "/api/v1/jobs/{id}" */
    enum http_rank rank; /* required rank */
    route_fn *fn;
    /* names of query parameters, separated by spaces; NULL for none, "*" for any */
    const char *params;
};
/* table of all routes, ended by a row whose path is NULL */
extern const struct route route_table[];
/* The content of openapi.json, followed by a NUL. */
#pragma GCC visibility push(hidden)
extern const char route_openapi_text[], route_openapi_end[];
#pragma GCC visibility pop

/* ROUTES_WAITERS_MAX limits the waiters on TCP and those on the unix socket separately. */
enum { ROUTES_WAITERS_MAX = 256, ROUTES_WAIT_MAX_S = 60, ROUTES_CACHE = 64 };

struct route_cached {
    char *key, *text; /* KEY: path and query of the request; NULL if the entry is unused */
    size_t len;
    uint64_t version, until_ns;
};

struct routes {
    struct routes_options options;
    LIST_HEAD(, route_waiter) waiters;
    struct http_share waiting[2]; /* waiters on TCP, and waiters on the unix socket */
    struct loop_source *timer;    /* timer for the waiter that times out next */
    uint64_t generation;          /* incremented whenever a job changes */
    uint64_t log_news;            /* incremented whenever requests that wait for a log are woken */
    struct route_cached cache[ROUTES_CACHE];
    size_t cache_bytes;
};

/* ---- routes.c ---- */
void route_fail(struct http_request *r, int error, const struct err *err); /* ERROR is -errno */
/* Answers with DOC, of which it takes ownership, or with an error if RESULT is -errno. */
void route_answer(struct route_call *c, unsigned status, int result, json_t *doc,
                  const struct err *err);
/* Returns the body as a new object, which is empty if there is no body. If the body is invalid,
 * answers the request and returns NULL. */
json_t *route_body(struct http_request *r);
/* Reads a query parameter as a number in [MIN, MAX]. If it is invalid, answers the request and
 * returns false. */
bool route_number(struct http_request *r, const char *key, double min, double max, double fallback,
                  double *ret);

/* ---- routes_cache.c ---- */
/* Tries to answer from the cache. Returns true if the request was answered. */
bool route_answer_cached(struct route_call *c);
/* Like route_answer with status 200, but also caches the text. */
void route_answer_and_cache(struct route_call *c, int result, json_t *doc, const struct err *err);
/* Returns the cached answer to the request of C, or NULL if the cache has no answer that was
 * computed from VERSION of the source data. */
const struct route_cached *route_cache_find(struct route_call *c, uint64_t version);
/* Caches a copy of TEXT. */
void route_cache_add(struct route_call *c, uint64_t version, uint64_t until_ns, const char *text,
                     size_t len);
void route_cache_clear(struct routes *routes);

/* ---- routes_wait.c: requests that wait ---- */

enum route_wait { WAIT_STATE, WAIT_LOG, WAIT_CHECKPOINT };
/* Parks the request of C until the job changes, or SECONDS have passed since the first call for
 * this request, and then calls the route's handler again. If IS_DUE is set, the job has changed
 * already, so the handler is called again without a wait. If there are too many waiters, answers
 * with 429. A checkpoint request was already sent to the job, so it is not answered with 429: its
 * handler is called again at once, with c->is_last set. */
void route_wait(struct route_call *c, enum route_wait what, double seconds, bool is_due);
void route_wake(struct routes *routes, int64_t id, enum route_wait what);
int route_wait_init(struct routes *routes);

/* A read of a job's run folder. Handlers embed this struct as the first member of a struct of
 * their own. */
struct route_reading {
    struct jobs_reading base; /* `done` and `free` are set by route_read */
    struct route_call *call;
    struct task *task;
    void (*answer)(struct route_reading *r);
    void (*fini)(struct route_reading *r); /* frees the results; may be NULL */
};
/* Reads the run folder of the job that C requests, and then calls r->answer. Takes ownership of R;
 * if R is NULL, the answer is "out of memory". If the folder is unreachable, the answer is 503. */
void route_read(struct route_call *c, struct route_reading *r);

/* ---- request handlers ---- */
route_fn route_health, route_machine, route_openapi, route_metrics, route_live;
route_fn route_session_get, route_session_post, route_session_delete;
route_fn route_page, route_asset;
route_fn route_jobs_list, route_jobs_submit;
route_fn route_job_get, route_job_cancel, route_job_checkpoint, route_job_rerun;
route_fn route_job_samples, route_job_verdict, route_job_diagnosis, route_job_report;
route_fn route_job_log, route_job_events, route_job_run, route_job_request;
