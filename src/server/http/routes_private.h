/* Shared by the request handlers: the table of routes, the call, waiters and the cache. */
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
};
typedef void route_fn(const struct route_call *c);

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

/* Each listener has its own share of waiters. */
enum { ROUTES_WAITERS_MAX = 256, ROUTES_WAIT_MAX_S = 60, ROUTES_CACHE = 64 };

/* A cached answer. */
struct route_cached {
    char *key, *text;
    size_t len;
    uint64_t generation, made_ns;
};

struct routes {
    struct routes_options options;
    LIST_HEAD(, route_waiter) waiters;
    struct http_share waiting[2]; /* waiters on TCP, and waiters on the unix socket */
    struct loop_source *timer;    /* timer for the waiter that times out next */
    uint64_t generation;          /* a number that is incremented whenever a job has changed */
    struct route_cached cache[ROUTES_CACHE];
};

/* ---- routes.c ---- */
void route_fail(struct http_request *r, int error, const struct err *err); /* ERROR is -errno */
/* Answers with DOC, of which it takes ownership, or with an error if RESULT is -errno. */
void route_answer(const struct route_call *c, unsigned status, int result, json_t *doc,
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
bool route_answer_cached(const struct route_call *c);
/* Like route_answer with status 200, but also caches the text. */
void route_answer_and_cache(const struct route_call *c, int result, json_t *doc,
                            const struct err *err);
void route_cache_free(struct routes *routes);

/* ---- routes_wait.c: requests that wait for a change of a job ---- */
enum route_wait { WAIT_STATE, WAIT_LOG, WAIT_CHECKPOINT };
struct route_waiter {
    LIST_ENTRY(route_waiter) link;
    const struct route_call *call;
    enum route_wait what;
    unsigned states; /* WAIT_STATE: bits of the states to wait for */
    uint64_t offset; /* if WAIT_LOG */
    uint64_t until_ns;
    bool is_due;       /* the job has changed, so the condition must be checked again */
    struct task *task; /* WAIT_LOG: the current read of the log, or NULL */
    bool is_answered;  /* if WAIT_LOG */
};
/* Answers the request of C if its condition holds; otherwise parks it for SECONDS. With WAIT_LOG
 * the condition is not checked here, because the caller has just read the log. If there are too
 * many waiters, the answer is 429. The exception is a checkpoint request, which was already sent to
 * the job: the answer is then the job's current state. */
void route_wait(const struct route_call *c, const struct route_waiter *waiter, double seconds);
void route_wake(struct routes *routes, int64_t id, enum route_wait what);
int route_wait_init(struct routes *routes);
/* Ends the wait. The caller has answered the request. */
void route_wait_end(struct route_waiter *w);
void route_wait_more(struct route_waiter *w); /* call this after w->task was set to NULL */
/* Answers W's request if its condition holds or if IS_LAST is set. Returns true if it did. */
typedef bool route_wait_fn(struct route_waiter *w, bool is_last);
route_wait_fn route_answer_state, route_answer_log, route_answer_checkpoint;

/* ---- routes_read.c: requests that wait for the run folder of their job ---- */
/* Handlers embed this struct as the first member of their own. */
struct route_reading {
    struct jobs_reading base; /* `done` and `free` are set by route_read */
    const struct route_call *call;
    struct task *task;
    void (*answer)(struct route_reading *r); /* answers the request */
    void (*fini)(struct route_reading *r);   /* frees the results; may be NULL */
};
/* Reads the folder of the job of C, and then calls r->answer. Takes ownership of R; if R is NULL,
 * the answer is "out of memory". If the folder does not answer, the request is refused. */
void route_read(const struct route_call *c, struct route_reading *r);
/* answers that the run folder does not answer */
void route_answer_silence(const struct route_call *c);

/* ---- request handlers ---- */
route_fn route_health, route_machine, route_openapi, route_metrics, route_live;
route_fn route_session_get, route_session_post, route_session_delete;
route_fn route_page, route_asset;
route_fn route_jobs_list, route_jobs_submit;
route_fn route_job_get, route_job_cancel, route_job_checkpoint, route_job_rerun;
route_fn route_job_samples, route_job_verdict, route_job_diagnosis, route_job_report;
route_fn route_job_log, route_job_events, route_job_run, route_job_request;
