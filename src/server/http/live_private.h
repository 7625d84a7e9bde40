/* Between the files of the live stream: messages, queues, viewers, the hub. */
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

/* Durations. */
struct live_times {
    uint64_t check_ns;   /* how often viewers are checked, and the machine is reported */
    uint64_t ping_ns;    /* between two pings */
    uint64_t silent_ns;  /* without a frame, a pong even: gone */
    uint64_t stuck_ns;   /* without reading: 1013 */
    uint64_t closing_ns; /* for the closing handshake */
};

/* One log that somebody watches: read once for all of them. */
struct live_tail {
    struct live_tail *next;
    int64_t id;
    uint64_t offset;
    unsigned watchers;
};

enum viewer_state {
    VIEWER_OPEN,
    VIEWER_CLOSING, /* a close frame is to be sent, or has been */
    VIEWER_LEFT,    /* its own close frame has come */
    VIEWER_REFUSED, /* it broke the protocol: it is closed without wslay, and not read any more */
    VIEWER_SHUT,    /* all is sent; what still comes is thrown away */
    VIEWER_DEAD,    /* freed by live_sweep */
};

struct live_viewer {
    struct live *live;
    LIST_ENTRY(live_viewer) link;
    struct http_upgraded *connection;
    enum http_rank rank;
    int fd;
    struct loop_source *source;
    wslay_event_context_ptr ws; /* reads everything, writes control frames alone */
    struct live_queue queue;    /* of messages, written by us: they are shared */
    const uint8_t *early;       /* came with the request */
    size_t early_len;
    size_t may_read; /* bytes in this turn */
    bool wants_jobs, wants_machine;
    int64_t job; /* 0: none */
    struct live_tail *tail;
    enum viewer_state state;
    uint64_t received_ns, pinged_ns;
    uint64_t stuck_ns;   /* since when nothing could be written; 0 */
    uint64_t closing_ns; /* since when it is not open */
    unsigned frames_left, fragments;
    uint32_t events; /* of the loop */
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
    struct http_share places; /* of viewers_max */
    unsigned viewers_max;
    char boot[17];
    bool has_dead;
    unsigned busy; /* viewers are being gone through, or one is being read: none may be freed */
};

/* Of live_new; a test has shorter ones. */
extern struct live_times live_times;

/* DOC is taken. NULL: out of memory. */
struct live_message *live_message_of(enum live_kind kind, int64_t id, json_t *doc);
/* The job's newest message, or that it is gone. */
struct live_message *live_message_of_job(struct live *l, int64_t id);
struct live_message *live_message_skipped(int64_t id, enum live_kind kind);
/* To all that want it; drops the caller's hold on M. */
void live_publish(struct live *l, struct live_message *m);
/* Does away with the viewers that have died; later, where that cannot be now. */
void live_sweep(struct live *l);

/* Takes over an upgraded connection; USER is the struct live. */
void live_viewer_take(void *user, struct http_upgraded *u, int fd, const void *extra,
                      size_t extra_len);
void live_viewer_send(struct live_viewer *v, struct live_message *m); /* borrows M */
void live_viewer_send_new(struct live_viewer *v,
                          struct live_message *m); /* takes M; NULL is fine */
void live_viewer_flush(struct live_viewer *v);
void live_viewer_close(struct live_viewer *v, unsigned code, const char *why);
void live_viewer_check(struct live_viewer *v, uint64_t now_ns); /* pings, and ends */
void live_viewer_free(struct live_viewer *v);
/* Takes a subscription, LEN bytes of text. */
void live_viewer_subscribe(struct live_viewer *v, const char *text, size_t len);

struct live_tail *live_tail_watch(struct live *l, int64_t id); /* NULL: out of memory */
void live_tail_leave(struct live *l, struct live_tail *tail);  /* NULL is fine */
/* Tells what is new in the log of ID, if somebody watches it. */
void live_tail_read(struct live *l, int64_t id);

/* SHA-1, which the handshake requires, of a text of one or two blocks. */
enum { SHA1_BYTES = 20, SHA1_TEXT_MAX = 119 };
void live_sha1(const void *data, size_t len, uint8_t ret[SHA1_BYTES]);
