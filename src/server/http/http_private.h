/* What the parts of http share: connections with their deadlines, and a request's life. */
#pragma once

#include <microhttpd.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "server/http/http.h"
#include "server/http/http_answer.h"

struct loop_source;

enum {
    HTTP_QUERY_MAX = 16,
    HTTP_HEADERS_MAX = 12, /* that an answer has besides the usual ones */
    /* Headers, answer's headers and MHD's buffers: what a connection costs, and what headers may
     * have in all. */
    HTTP_CONNECTION_BYTES = 16 << 10,
    HTTP_ANSWER_MAX_S = 600, /* to take an answer */
    HTTP_ANSWER_SMALL = 64 << 10,
};

struct http_daemon {
    struct http *http;
    struct MHD_Daemon *mhd;
    struct loop_source *source;
    bool is_unix;
    unsigned connections;
    unsigned held[HTTP_RANKS]; /* of these by rank, but for those that were cut */
};

enum http_connection_state {
    CONNECTION_READING, /* a request that is not whole yet, or the next one */
    CONNECTION_BUSY,    /* with a request: handled, waiting or being answered */
    CONNECTION_CUT,     /* shut down by us; MHD closes it when it sees that */
};

struct http_connection {
    LIST_ENTRY(http_connection) link;
    struct http_daemon *daemon;
    struct MHD_Connection *mhd;
    int fd;
    enum http_connection_state state;
    uint64_t deadline_ns;         /* 0: none */
    enum http_rank rank;          /* the highest that a request of it had */
    uint64_t since_ns;            /* when it began, or its last request was over */
    struct http_request *request; /* NULL: between two */
};

struct http {
    struct loop *loop;
    struct http_options options;
    struct http_daemon daemons[HTTP_LISTENERS_MAX];
    size_t daemon_count;
    struct loop_source *tick; /* once a second while there are connections */
    struct loop_source *soon; /* MHD has work that no fd reports */
    bool is_ticking;
    LIST_HEAD(, http_connection) connections;
    LIST_HEAD(, http_request) parked;
    LIST_HEAD(, http_upgraded) upgraded;
    struct http_counts counts;
    struct http_share bodies, answers; /* bytes */
};

struct http_pair {
    const char *key, *value;
};

/* In the order in which they follow each other. */
enum http_request_state {
    REQUEST_ADDRESS,  /* nothing but that is known */
    REQUEST_BODY,     /* its head is checked, its body is read and then handled */
    REQUEST_PARKED,   /* by its handler */
    REQUEST_WAITING,  /* parked, and suspended in MHD */
    REQUEST_DRAINING, /* refused; the answer is sent after the body */
    REQUEST_ANSWERED, /* there is a response, queued or to be queued */
    REQUEST_GONE,     /* its client is */
};

struct http_request {
    struct http_connection *connection;
    struct http *http;
    enum http_method method;
    enum http_request_state state;
    enum http_rank rank; /* set once: what was taken of a share is returned with it */
    bool is_ranked;
    bool has_body;           /* or will have, of whatever length */
    const char *refusal;     /* what is wrong with its address, or NULL */
    const char *raw_address; /* where MHD has it; its text changes */
    size_t raw_len;
    char *path;
    const char *query_text;
    struct http_pair query[HTTP_QUERY_MAX];
    size_t query_count;
    struct buf body;
    size_t body_seen;                           /* also what was thrown away */
    size_t body_held;                           /* of the share of all */
    struct http_pair headers[HTTP_HEADERS_MAX]; /* of the answer; values are ours */
    size_t header_count;
    struct MHD_Response *response;
    size_t answer_bytes; /* of it, as they count */
    unsigned status;
    http_gone_fn *gone;
    void *gone_user;
    struct loop_source *watch; /* for the client's end, while it waits */
    LIST_ENTRY(http_request) link;
    http_upgrade_fn *upgrade;
    void *upgrade_user;
    _Alignas(max_align_t) unsigned char context[HTTP_CONTEXT_BYTES];
    char text[]; /* the address as it came, the path and the query decoded */
};

/* http_request.c */
struct http_request *http_request_new(struct http *h, const char *uri);
void http_request_free(struct http_request *r);

/* http_head.c */
/* What is wrong with the head, or 0: the status, and why. METHOD and VERSION as MHD gives them,
 * once the headers are there. */
unsigned http_head_check(struct http_request *r, const char *method, const char *version,
                         const char **ret_why);
/* Whether this libmicrohttpd is older than 1.0 and leaves it to us to be strict. */
bool http_head_is_lenient(void);
/* MHD's logger of errors; CLS is the struct http_daemon. */
void http_head_error(void *cls, const char *fmt, va_list ap);

/* http_rank.c */
void http_connection_enter(struct http_connection *c); /* C is the newest of the list */
void http_connection_leave(struct http_connection *c);
void http_connection_cut(struct http_connection *c);

/* http_park.c */
void http_request_wait(struct http_request *r);   /* MHD lets it be until it is answered */
void http_request_leave(struct http_request *r);  /* the client is gone */
void http_request_resume(struct http_request *r); /* it waits no more */
void http_upgraded_fn(void *cls, struct MHD_Connection *mhd, void *con_cls, const char *extra,
                      size_t extra_len, MHD_socket fd, struct MHD_UpgradeResponseHandle *urh);
void http_upgraded_close_all(struct http *h);

/* http_answer.c */
/* A whole answer for a connection that ends with it. */
void http_answer_print(struct buf *out, unsigned status, const char *why);
/* Hands the response over to MHD, on its call of the handler. */
enum MHD_Result http_request_queue(struct http_request *r);
