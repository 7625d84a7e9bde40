/* HTTP on the event loop: libmicrohttpd, its epoll inside ours. One handler for all requests;
 * limits on everything that comes in. */
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

/* The rights that a request has shown; over a trusted listener every client is the owner. */
enum http_rank { HTTP_STRANGER, HTTP_READER, HTTP_OWNER };
enum { HTTP_RANKS = 3 };

enum {
    HTTP_BODY_MAX = 1 << 20,
    HTTP_BODIES_MAX = 16 << 20,  /* of all requests together, a struct http_share; 503 beyond it */
    HTTP_ANSWERS_MAX = 64 << 20, /* that are on their way to clients, large ones; also a share */
    HTTP_LISTENERS_MAX = 4,
    HTTP_CONTEXT_BYTES = 64,
};

struct http_listener {
    int fd;       /* bound and listening; owned by http from then on */
    bool is_unix; /* whoever can connect is trusted */
};

/* Called once for each request, when its headers have come and before its body is read: to go on it
 * does nothing, to refuse it answers. */
typedef void http_admit_fn(void *user, struct http_request *r);
/* Called once the body is whole. Must answer, or park, the request before it returns. */
typedef void http_handle_fn(void *user, struct http_request *r);
/* After an upgrade: the socket (not blocking) is the callee's until http_upgraded_close. EXTRA:
 * bytes that came with the request already. */
struct http_upgraded;
typedef void http_upgrade_fn(void *user, struct http_upgraded *u, int fd, const void *extra,
                             size_t extra_len);

struct http_options {
    struct http_listener listeners[HTTP_LISTENERS_MAX];
    size_t listener_count;
    /* Of each listener; 0: no limit per IP. Where not all are the owner's: strangers can have a
     * quarter, readers half. */
    unsigned connections_max, connections_per_ip_max;
    unsigned idle_s; /* for all headers, for the whole body, and between requests: slow-loris */
    http_admit_fn *admit; /* NULL: all */
    http_handle_fn *handle;
    void *user;
};

/* Something of which there is only so much, for all. Half of it is the owner's alone. */
struct http_share {
    size_t held, guests; /* by all, and of these not by the owner */
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
/* Parked requests are gone, upgraded connections closed. NULL is fine. */
void http_stop(struct http *h);
void http_counts(const struct http *h, struct http_counts *ret);

/* ---- the request ---- */
enum http_method http_method(const struct http_request *r);
const char *http_path(const struct http_request *r);                    /* decoded, no query */
const char *http_query(const struct http_request *r, const char *key);  /* NULL: not there */
const char *http_query_key(const struct http_request *r, size_t index); /* NULL: no more */
const char *http_query_text(const struct http_request *r);              /* as it came; "" */
const char *http_header(const struct http_request *r, const char *key); /* NULL: not there */
const char *http_cookie(const struct http_request *r, const char *key);
const char *http_body(const struct http_request *r, size_t *ret_len);
bool http_is_unix(const struct http_request *r);
/* Once it is known; a stranger until then. The first one stays. False: answered, there are too many
 * connections of that rank. */
bool http_set_rank(struct http_request *r, enum http_rank rank);
enum http_rank http_rank(const struct http_request *r);
bool http_is_answered(const struct http_request *r);
/* HTTP_CONTEXT_BYTES for whoever handles it, zeroed at first, as long as the request lives. */
void *http_context(struct http_request *r);
