/* An HTTP server on the event loop, based on libmicrohttpd (MHD), whose epoll descriptor is a
 * source of our loop. One handler receives all requests. The size and duration of everything that
 * clients send are limited. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct err;
struct http;
struct http_request;
struct loop;

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_DELETE, HTTP_OTHER };

/* The access rights that a request has been granted so far. Every client of the unix socket is the
 * owner. */
enum http_rank { HTTP_STRANGER, HTTP_READER, HTTP_OWNER };
enum { HTTP_RANKS = 3 };

enum {
    HTTP_BODY_MAX = 1 << 20,
    /* maximum total size of all request bodies in memory; beyond it, the answer is 503 */
    HTTP_BODIES_MAX = 16 << 20,
    /* maximum total size of all large answers being sent */
    HTTP_ANSWERS_MAX = 64 << 20,
    HTTP_LISTENERS_MAX = 4,
    HTTP_CONTEXT_BYTES = 64,
};

struct http_listener {
    int fd;       /* a bound, listening socket; http_start takes ownership */
    bool is_unix; /* a unix socket, whose clients are all trusted */
};

/* Called once for each request, when its headers have been read but its body has not. If the
 * function answers, the request is refused. If it does not answer, the request is accepted. */
typedef void http_admit_fn(void *user, struct http_request *r);
/* Called when the body is complete. Must answer or park the request before it returns. */
typedef void http_handle_fn(void *user, struct http_request *r);
/* Called after a connection was upgraded. The callee owns the non-blocking socket until
 * http_upgraded_close. EXTRA contains bytes that were received together with the request. */
struct http_upgraded;
typedef void http_upgrade_fn(void *user, struct http_upgraded *u, int fd, const void *extra,
                             size_t extra_len);

struct http_options {
    struct http_listener listeners[HTTP_LISTENERS_MAX];
    size_t listener_count;
    /* Limits per listener. If connections_per_ip_max is 0, there is no limit per IP address.
     * Strangers can use at most a quarter of the connections, and readers at most half. */
    unsigned connections_max, connections_per_ip_max;
    /* maximum time for a client to send all headers, to send the body, and between two requests */
    unsigned idle_s;
    http_admit_fn *admit; /* decides whether to accept a request; NULL: every request is accepted */
    http_handle_fn *handle;
    void *user;
};

/* A limited resource that all requests share. Half of it is reserved for the owner. */
struct http_share {
    /* amount in use by all requests, and the part of it in use by guests (all ranks but the
     * owner) */
    size_t held, guests;
};
bool http_share_has_room(const struct http_share *s, enum http_rank rank, size_t n, size_t max);
bool http_share_take(struct http_share *s, enum http_rank rank, size_t n, size_t max);
void http_share_return(struct http_share *s, enum http_rank rank, size_t n);

struct http_counts {
    unsigned connections, upgraded, parked;
    uint64_t requests, refused;
};

int http_start(struct loop *loop, const struct http_options *options, struct http **ret,
               struct err *err);
/* Drops parked requests and closes upgraded connections. H may be NULL. */
void http_stop(struct http *h);
void http_counts(const struct http *h, struct http_counts *ret);

/* ---- the request ---- */
enum http_method http_method(const struct http_request *r);
const char *http_path(const struct http_request *r); /* the decoded path without the query */
const char *http_query(const struct http_request *r, const char *key); /* NULL: missing */
/* returns NULL if there are no more keys */
const char *http_query_key(const struct http_request *r, size_t index);
/* the query, not decoded; "" if there is none */
const char *http_query_text(const struct http_request *r);
const char *http_header(const struct http_request *r, const char *key); /* NULL: missing */
const char *http_cookie(const struct http_request *r, const char *key);
const char *http_body(const struct http_request *r, size_t *ret_len);
bool http_is_unix(const struct http_request *r);
/* Sets the rank of a request; only the first call has an effect. Before that call, the rank is
 * HTTP_OWNER on a unix socket and HTTP_STRANGER on TCP. If too many connections already have
 * RANK, answers the request and returns false. */
bool http_set_rank(struct http_request *r, enum http_rank rank);
enum http_rank http_rank(const struct http_request *r);
bool http_is_answered(const struct http_request *r);
/* HTTP_CONTEXT_BYTES of zeroed memory for the handler, valid as long as the request. */
void *http_context(struct http_request *r);
