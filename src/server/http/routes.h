/* All routes of the API and of the page, with the rank, the parameters and the handler of each. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct auth;
struct buf;
struct children;
struct err;
struct http_request;
struct jobs;
struct loop;
struct routes;

struct routes_options {
    struct loop *loop;
    struct jobs *jobs;
    struct auth *auth;
    struct children *children;
    bool no_auth; /* every client has the owner's rights */
    /* Callbacks into other parts of the server, which are called with USER. */
    json_t *(*machine)(void *user); /* returns a new document */
    /* upgrades a request to the live stream; NULL if the live stream is not available */
    void (*live)(void *user, struct http_request *r);
    void (*metrics)(void *user, struct buf *out);
    const char *no_live; /* why the live stream is not available */
    void *user;
};

/* Creates the routes, and subscribes to changes of the jobs. */
int routes_new(const struct routes_options *options, struct routes **ret, struct err *err);
/* Call this after http_stop, when no request waits any more. ROUTES may be NULL. */
void routes_free(struct routes *routes);

/* Callbacks for struct http_options; USER is the struct routes. routes_admit makes every check that
 * does not need the body. */
void routes_admit(void *user, struct http_request *r);
void routes_handle(void *user, struct http_request *r);
