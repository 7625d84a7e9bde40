/* Between the files of the live stream: messages, queues, viewers, the hub. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/jobs/jobs.h"
#include "server/http/http.h"
#include "server/http/live.h"
#include "server/http/live_queue.h"
#include "server/http/live_wslay.h"

struct http_upgraded;
struct loop_source;

/* Where the hub has things from: the jobs of the server, or what a test makes up. */
struct live_sources {
    int (*job)(void *user, int64_t id, json_t **ret); /* as the API tells it; -ENOENT */
    /* As logs_read of trace/logs.h. */
    ssize_t (*log)(void *user, int64_t id, uint64_t offset, void *buf, size_t size,
                   uint64_t *ret_at);
    uint64_t (*log_end)(void *user, int64_t id);
    json_t *(*machine)(void *user);
    void *user;
};

/* Durations; a test has shorter ones. */
struct live_times {
    uint64_t look_ns;    /* how often the viewers are looked at, and the machine is told */
    uint64_t ping_ns;    /* between two pings */
    uint64_t silent_ns;  /* without a word, a pong even: gone */
    uint64_t stuck_ns;   /* without reading: 1013 */
    uint64_t goodbye_ns; /* for the closing handshake */
};

/* One log that somebody watches: read once for all of them. */
struct live_tail {
    struct live_tail *next;
    int64_t id;
    uint64_t offset;
    unsigned watchers;
};

struct live_viewer {
    struct live *live;
    struct live_viewer *prev, *next;
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
    uint64_t heard_ns, pinged_ns;
    uint64_t stuck_ns;   /* since when nothing could be written; 0 */
    uint64_t goodbye_ns; /* when the closing began; 0 */
    unsigned frames_left, fragments;
    uint32_t events; /* of the loop */
    bool has_left;   /* said goodbye itself */
    bool is_lost;    /* nothing more comes from it */
    bool is_refused; /* wslay reads it no more, without a word */
    bool is_shut;    /* all is said; what still comes is thrown away */
    bool is_dead;    /* freed by live_sweep */
};

struct live {
    struct loop *loop;
    struct live_sources sources;
    struct live_times times;
    struct loop_source *timer;
    struct wslay_table wslay;
    struct live_viewer *viewers;
    struct live_tail *tails;
    struct live_counts counts;
    struct http_share places; /* of viewers_max */
    unsigned viewers_max;
    char boot[17];
    bool has_dead;
    unsigned busy; /* viewers are being gone through, or one is being read: none may be freed */
    void (*end)(struct live *l); /* called first by live_free; NULL: nothing to do */
};

int live_start(struct loop *loop, const struct live_sources *sources,
               const struct live_times *times, unsigned viewers_max, struct live **ret,
               struct err *err);
extern const struct live_times live_default_times;
/* A jobs_news_fn; USER is the struct live. */
void live_news(void *user, const struct jobs_news *news);

/* DOC is taken. NULL: out of memory. */
struct live_message *live_message_of(enum live_kind kind, int64_t id, json_t *doc);
/* The job's newest message, or that it is gone. */
struct live_message *live_message_of_job(struct live *l, int64_t id);
struct live_message *live_message_skipped(int64_t id, enum live_kind kind);
/* To all that want it; drops the caller's hold on M. */
void live_tell(struct live *l, struct live_message *m);
/* Does away with the viewers that have died; later, where that cannot be now. */
void live_sweep(struct live *l);

/* Takes over an upgraded connection; USER is the struct live. */
void live_viewer_take(void *user, struct http_upgraded *u, int fd, const void *extra,
                      size_t extra_len);
void live_viewer_send(struct live_viewer *v, struct live_message *m); /* borrows M */
void live_viewer_flush(struct live_viewer *v);
void live_viewer_close(struct live_viewer *v, unsigned code, const char *why);
void live_viewer_look(struct live_viewer *v, uint64_t now_ns); /* pings, and ends */
void live_viewer_free(struct live_viewer *v);
/* What a viewer said, LEN bytes of text. */
void live_viewer_hear(struct live_viewer *v, const char *text, size_t len);

struct live_tail *live_tail_watch(struct live *l, int64_t id); /* NULL: out of memory */
void live_tail_leave(struct live *l, struct live_tail *tail);  /* NULL is fine */
/* Tells what is new in the log of ID, if somebody watches it. */
void live_tail_read(struct live *l, int64_t id);
