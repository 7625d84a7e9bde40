/* Shared by the files of the HTTP server: connections with their deadlines, and the states of a
 * request. */
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
    /* maximum number of headers of an answer, in addition to the default ones */
    HTTP_HEADERS_MAX = 12,
    /* Memory of one connection for request headers, answer headers and MHD's buffers. It also
     * limits the size of the headers. */
    HTTP_CONNECTION_BYTES = 16 << 10,
    HTTP_ANSWER_MAX_S = 600, /* maximum time for a client to read an answer */
    HTTP_ANSWER_SMALL = 64 << 10,
    HTTP_LATE_S = 10, /* a parked request that has waited for this long is late (see http_park) */
};

struct http_daemon {
    struct http *http;
    struct MHD_Daemon *mhd;
    struct loop_source *source;
    bool is_unix;
    unsigned connections;
    /* number of connections by rank, not counting those in CONNECTION_CUT */
    unsigned held[HTTP_RANKS];
};

enum http_connection_state {
    CONNECTION_READING, /* the server waits for a request, or for the rest of one */
    CONNECTION_BUSY,    /* the server is handling a request, or is sending the answer */
    /* the socket was shut down; MHD closes it when it reads the end of the stream */
    CONNECTION_CUT,
};

struct http_connection {
    LIST_ENTRY(http_connection) link;
    struct http_daemon *daemon;
    struct MHD_Connection *mhd;
    int fd;
    enum http_connection_state state;
    uint64_t deadline_ns; /* 0: no deadline */
    enum http_rank rank;  /* the highest rank among the connection's requests so far */
    /* time at which the connection was opened, or at which its last request ended */
    uint64_t since_ns;
    struct http_request *request; /* the current request; NULL between two requests */
};

struct http {
    struct loop *loop;
    struct http_options options;
    struct http_daemon daemons[HTTP_LISTENERS_MAX];
    size_t daemon_count;
    struct loop_source *tick; /* timer that fires every second while there are connections */
    /* one-shot timer that runs MHD at once, for work that MHD's epoll does not report */
    struct loop_source *soon;
    bool is_ticking;
    LIST_HEAD(, http_connection) connections;
    LIST_HEAD(, http_request) parked;
    LIST_HEAD(, http_upgraded) upgraded;
    struct http_counts counts;
    struct http_share bodies, answers; /* in bytes */
};

struct http_pair {
    const char *key, *value;
};

/* The states of a request, in the order in which it passes through them. */
enum http_request_state {
    REQUEST_ADDRESS,  /* only the request target has been read */
    REQUEST_BODY,     /* the head is valid; the handler is called once the body has been read */
    REQUEST_PARKED,   /* the handler will answer later */
    REQUEST_WAITING,  /* the request is parked, and suspended in MHD */
    REQUEST_DRAINING, /* the request is refused; the answer is sent once the body has been read */
    REQUEST_ANSWERED, /* the response exists; it is queued in MHD, or will be queued */
    REQUEST_GONE,     /* the client has disconnected */
};

struct http_request {
    struct http_connection *connection;
    struct http *http;
    enum http_method method;
    enum http_request_state state;
    /* Rank (access rights) of the client. It is set only once, because bytes taken from an
     * http_share must be returned with the same rank. */
    enum http_rank rank;
    bool is_ranked;
    bool has_body;           /* the request has a body, part of which may still be unread */
    const char *refusal;     /* reason why the request target is invalid, or NULL */
    const char *raw_address; /* request target, in a buffer that MHD modifies */
    size_t raw_len;
    char *path;
    const char *query_text;
    struct http_pair query[HTTP_QUERY_MAX];
    size_t query_count;
    struct buf body;
    size_t body_seen; /* number of bytes received, including discarded ones */
    size_t body_held; /* bytes taken from the http_share that limits all bodies */
    struct http_pair headers[HTTP_HEADERS_MAX]; /* headers of the answer, with allocated values */
    size_t header_count;
    struct MHD_Response *response;
    size_t answer_bytes; /* bytes taken from the http_share that limits all answers */
    unsigned status;
    http_parked_fn *gone, *late; /* see http_park */
    void *parked_user;
    uint64_t late_ns;
    /* source that fires if the client disconnects while the request waits */
    struct loop_source *watch;
    LIST_ENTRY(http_request) link;
    http_upgrade_fn *upgrade;
    void *upgrade_user;
    _Alignas(max_align_t) unsigned char context[HTTP_CONTEXT_BYTES];
    char text[]; /* the request target as received, then the decoded path and query */
};

/* http_request.c */
struct http_request *http_request_new(struct http *h, const char *uri);
void http_request_free(struct http_request *r);

/* http_head.c */
/* Checks the head of a request. Returns 0 if it is valid, or the HTTP status with which to refuse
 * the request, with the reason in *RET_WHY. METHOD and VERSION must be the values that MHD passes
 * after it has read all headers. */
unsigned http_head_check(struct http_request *r, const char *method, const char *version,
                         const char **ret_why);
/* True if this libmicrohttpd accepts heads that are not strict HTTP, as versions before 1.0 do. */
bool http_head_is_lenient(void);
/* MHD's logger for errors. CLS is the struct http_daemon. */
void http_head_error(void *cls, const char *fmt, va_list ap);

/* http.c */
void http_connection_cut(struct http_connection *c);

/* http_park.c */
/* suspends the connection in MHD until the request is answered */
void http_request_wait(struct http_request *r);
void http_request_leave(struct http_request *r); /* call this when the client has disconnected */
/* resumes the connection, which was suspended in MHD */
void http_request_resume(struct http_request *r);
void http_upgraded_fn(void *cls, struct MHD_Connection *mhd, void *con_cls, const char *extra,
                      size_t extra_len, MHD_socket fd, struct MHD_UpgradeResponseHandle *urh);
void http_upgraded_close_all(struct http *h);

/* http_answer.c */
/* Appends a complete error answer to OUT. Its head contains "Connection: close". */
void http_answer_print(struct buf *out, unsigned status, const char *why);
/* Passes the response to MHD. Call this only within MHD's callback for the request. */
enum MHD_Result http_request_queue(struct http_request *r);
