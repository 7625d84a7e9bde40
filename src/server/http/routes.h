/* Every path of the API and of the page: the rights it needs, its parameters, and the answer. */
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
    bool no_auth; /* whoever reaches us may do all */
    /* What others of the server know; USER is theirs. */
    json_t *(*machine)(void *user);                   /* a new document */
    void (*live)(void *user, struct http_request *r); /* NULL: there is no live stream */
    void (*metrics)(void *user, struct buf *out);
    const char *no_live; /* why there is none */
    void *user;
};

/* Listens to the jobs from here on. */
int routes_new(const struct routes_options *options, struct routes **ret, struct err *err);
/* After http_stop: nobody waits any more. NULL is fine. */
void routes_free(struct routes *routes);

/* For struct http_options; USER is the struct routes. All that can be decided before the body has
 * come is decided once, in routes_admit. */
void routes_admit(void *user, struct http_request *r);
void routes_handle(void *user, struct http_request *r);
