/* Shared by the files of the live stream: messages, queues, viewers and the hub. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/jobs/jobs.h"
#include "server/http/http.h"
#include "server/http/live.h"
#include "server/http/live_queue.h"
#include "server/http/live_wslay.h"

struct http_upgraded;
struct loop_source;
struct task;

struct live_times {
    /* time between two checks of all viewers, and between two machine messages */
    uint64_t check_ns;
    uint64_t ping_ns;    /* time between pings */
    uint64_t silent_ns;  /* a viewer that sends no frame for this long is closed */
    uint64_t stuck_ns;   /* a viewer that reads nothing for this long is closed with code 1013 */
    uint64_t closing_ns; /* maximum duration of the closing handshake */
};

/* The log of a job that at least one viewer follows; it is read once for all of them. */
struct live_tail {
    struct live *live;
    struct live_tail *next;
    int64_t id;
    bool has_offset; /* true if OFFSET, where the next read of the log begins, is known */
    uint64_t offset;
    unsigned watchers;
    struct task *task; /* the read in progress; NULL: none */
    bool is_due;       /* the log has grown since the read in progress began */
};

enum viewer_state {
    VIEWER_OPEN,
    VIEWER_CLOSING, /* our close frame is queued or sent */
    VIEWER_LEFT,    /* the viewer's close frame was received */
    /* the viewer violated the protocol; wslay no longer reads its input, and the connection will be
     * closed */
    VIEWER_REFUSED,
    VIEWER_SHUT, /* all output to the viewer was sent; its input is discarded */
    VIEWER_DEAD, /* freed by live_sweep */
};

struct live_viewer {
    struct live *live;
    LIST_ENTRY(live_viewer) link;
    struct http_upgraded *connection;
    enum http_rank rank;
    int fd;
    struct loop_source *source;
    /* wslay's context, which reads all frames but writes only control frames */
    wslay_event_context_ptr ws;
    struct live_queue queue; /* queued messages, which viewers share; live_viewer.c writes them */
    const uint8_t *early;    /* bytes that were received together with the HTTP request */
    size_t early_len;
    size_t may_read; /* number of bytes that may still be read before the next viewer is served */
    bool wants_jobs, wants_machine;
    int64_t job; /* id of the job that the viewer follows, or 0 */
    struct live_tail *tail;
    enum viewer_state state;
    uint64_t received_ns, pinged_ns;
    /* time since which nothing could be written to the viewer; 0 while writing works */
    uint64_t stuck_ns;
    uint64_t closing_ns; /* time at which closing began */
    unsigned frames_left, fragments;
    uint32_t events; /* events for which the loop watches the socket */
};

struct live {
    struct loop *loop;
    struct jobs *jobs;
    live_machine_fn *machine;
    void *machine_user;
    struct live_times times;
    struct loop_source *timer;
    struct wslay_table wslay;
    LIST_HEAD(, live_viewer) viewers;
    struct live_tail *tails;
    struct live_counts counts;
    struct http_share places; /* number of viewers, at most viewers_max */
    unsigned viewers_max;
    char boot[17];
    bool has_dead;
    /* above 0 while code iterates over the viewers; no viewer may be freed during this time */
    unsigned busy;
};

/* Default times, which live_new uses; tests set shorter ones. */
extern struct live_times live_times;

/* Makes a message. Takes ownership of DOC. Returns NULL if out of memory. */
struct live_message *live_message_of(enum live_kind kind, int64_t id, json_t *doc);
/* Makes a message with the current state of a job, or a LIVE_REMOVED message if the job no longer
 * exists. */
struct live_message *live_message_of_job(struct live *l, int64_t id);
struct live_message *live_message_skipped(int64_t id, enum live_kind kind);
/* Sends M to all viewers that subscribed to it, and drops the caller's reference. */
void live_publish(struct live *l, struct live_message *m);
/* Frees dead viewers, unless code is iterating over the viewers; in that case a later call frees
 * them. */
void live_sweep(struct live *l);

/* Creates a viewer for an upgraded connection. USER is the struct live. */
void live_viewer_new(void *user, struct http_upgraded *u, int fd, const void *extra,
                     size_t extra_len);
void live_viewer_send(struct live_viewer *v, struct live_message *m); /* borrows M */
/* sends M, which may be NULL, and drops the caller's reference */
void live_viewer_send_new(struct live_viewer *v, struct live_message *m);
void live_viewer_flush(struct live_viewer *v);
void live_viewer_close(struct live_viewer *v, unsigned code, const char *why);
/* sends pings and checks timeouts */
void live_viewer_check(struct live_viewer *v, uint64_t now_ns);
void live_viewer_free(struct live_viewer *v);
/* Applies a subscription, which is LEN bytes of JSON. */
void live_viewer_subscribe(struct live_viewer *v, const char *text, size_t len);

struct live_tail *live_tail_watch(struct live *l, int64_t id); /* returns NULL if out of memory */
void live_tail_leave(struct live *l, struct live_tail *tail);  /* accepts NULL */
/* Publishes new output from the log of job ID if a viewer follows the log. */
void live_tail_read(struct live *l, int64_t id);

/* Computes the SHA-1 of at most SHA1_TEXT_MAX bytes (two blocks), for the handshake. */
enum { SHA1_BYTES = 20, SHA1_TEXT_MAX = 119 };
void live_sha1(const void *data, size_t len, uint8_t ret[SHA1_BYTES]);
