/* The thread that reads and writes the job's shared folder. */
#include "supervise/node_bus.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "base/thread.h"
#include "supervise/node_folder.h"

enum {
    BEAT_S = 5,
    /* a node is treated as stopped if its heartbeat has not changed for this many seconds */
    STILL_S = 30,
    POLL_MS = 1000,
    BUSY_POLL_MS = 100, /* polling interval while a request is in progress */
    /* all heartbeats have this size, so that a new one overwrites the previous one completely */
    LINE_SIZE = 512,
    REQUEST_SIZE = 2048,
    STACK_BYTES = 256 << 10,
};

static const char *const phase_names[NODE_PHASES] = {
    [NODE_NONE] = "none", [NODE_READY] = "ready",   [NODE_GO] = "go",    [NODE_ASKED] = "asked",
    [NODE_DONE] = "done", [NODE_FAILED] = "failed", [NODE_STOP] = "stop"};

static enum node_phase phase_of(const char *name)
{
    for (int i = 0; name && i < NODE_PHASES; i++)
        if (strcmp(name, phase_names[i]) == 0)
            return (enum node_phase)i;
    return NODE_NONE;
}

/* The last known state of another node. Used only by the thread. */
struct bus_peer {
    /* name of the node's folder, node-NN or node-NN.K; "" if it has not been found yet */
    char folder[NODE_FOLDER_MAX];
    uint64_t seq, changed_ns;
    bool has_ended;
};

struct node_bus {
    int node_fd, job_fd, event_fd;
    uint32_t node, nodes;
    char host[65];
    pthread_t thread;
    pthread_mutex_t lock;
    /* wakes the thread; after the thread's end, wakes the event loop that waits for it in
     * node_bus_free */
    pthread_cond_t changed;
    /* members protected by LOCK: */
    json_t *beat; /* content of the next heartbeat */
    bool beat_is_due, request_is_due, is_ending, has_ended;
    struct node_request outgoing, incoming;
    char follow_id[NODE_ID_MAX], answer_id[NODE_ID_MAX];
    enum node_phase answer;
    struct node_answers answers;
    /* members used only by the thread, without LOCK: */
    struct bus_peer *peers;
    uint64_t seq, beat_ns;
    bool has_read; /* the request file has been read at least once */
    /* id of a request that was already over when this supervisor started */
    char old_id[NODE_ID_MAX];
};

/* ---- files ---- */

/* Rewrites a file in place, padded with blanks to SIZE bytes. */
static void write_line(int fd, const char *name, const json_t *doc, size_t size)
{
    AUTO_BUF struct buf text = {0};
    if (json_print(&text, doc, 0) < 0 || text.len == 0 || text.len > size) {
        return;
    }
    text.len--; /* drop the newline */
    while (text.len + 1 < size)
        buf_add_byte(&text, ' ');
    buf_add_byte(&text, '\n');
    AUTO_CLOSE int to = openat(fd, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (to >= 0 && !text.failed)
        (void)!pwrite(to, text.data, text.len, 0);
}

static json_t *read_line(int fd, const char *name)
{
    AUTO_BUF struct buf text = {0};
    json_t *doc = NULL;
    if (io_read_plain(fd, name, REQUEST_SIZE, &text) == 0 && text.len)
        doc = json_parse(text.data, text.len, NULL);
    return doc;
}

static void copy_string(char *to, size_t size, const json_t *doc, const char *key)
{
    text_copy(to, size, json_string_value(json_object_get(doc, key)));
}

/* ---- the thread ---- */

static void write_beat(struct node_bus *bus, uint64_t now_ns)
{
    pthread_mutex_lock(&bus->lock);
    bool is_due = bus->beat && (bus->beat_is_due || now_ns - bus->beat_ns >= BEAT_S * NS_PER_S);
    json_auto_t *doc = is_due ? json_deep_copy(bus->beat) : NULL;
    if (doc && bus->answer_id[0]) {
        json_object_set_new(doc, "request", json_text0(bus->answer_id));
        json_object_set_new(doc, "phase", json_string(phase_names[bus->answer]));
    }
    bus->beat_is_due &= !is_due;
    pthread_mutex_unlock(&bus->lock);
    if (!doc)
        return;
    bus->beat_ns = now_ns;
    json_object_set_new(doc, "seq", json_u64(++bus->seq));
    json_object_set_new(doc, "t_s", json_seconds(clock_wall_ns()));
    write_line(bus->node_fd, "heartbeat", doc, LINE_SIZE);
}

static void write_request(struct node_bus *bus)
{
    pthread_mutex_lock(&bus->lock);
    bool is_due = bus->request_is_due;
    struct node_request q = bus->outgoing;
    bus->request_is_due = false;
    pthread_mutex_unlock(&bus->lock);
    if (!is_due)
        return;
    json_auto_t *doc = json_pack("{s:s,s:i,s:s,s:s}", "id", q.id, "node", (int)q.node, "what",
                                 "checkpoint", "phase", phase_names[q.phase]);
    json_object_set_new(doc, "why", json_text0(q.why));
    write_line(bus->job_fd, "request", doc, REQUEST_SIZE);
}

static void wake_loop(struct node_bus *bus)
{
    const uint64_t one = 1;
    (void)!write(bus->event_fd, &one, sizeof one);
}

static void read_request(struct node_bus *bus)
{
    struct node_request q = {.id = ""};
    json_auto_t *doc = read_line(bus->job_fd, "request");
    copy_string(q.id, sizeof q.id, doc, "id");
    copy_string(q.why, sizeof q.why, doc, "why");
    q.phase = phase_of(json_string_value(json_object_get(doc, "phase")));
    q.node = (uint32_t)json_integer_value(json_object_get(doc, "node"));
    if (!bus->has_read && q.phase != NODE_READY)
        memcpy(bus->old_id, q.id, sizeof q.id);
    bus->has_read = true;
    if (!q.id[0] || strcmp(q.id, bus->old_id) == 0 || q.phase == NODE_NONE || q.node == bus->node ||
        q.node >= bus->nodes)
        return;
    pthread_mutex_lock(&bus->lock);
    bool is_new = strcmp(q.id, bus->incoming.id) != 0 || q.phase != bus->incoming.phase;
    bus->incoming = q;
    pthread_mutex_unlock(&bus->lock);
    if (is_new)
        wake_loop(bus);
}

/* Reads the heartbeat of one node. Returns NULL if the node has ended or its heartbeat no longer
 * changes. */
static json_t *read_peer(struct node_bus *bus, uint32_t number, uint64_t now_ns)
{
    struct bus_peer *peer = &bus->peers[number];
    char path[64];
    if (!peer->folder[0] || now_ns - peer->changed_ns > BEAT_S * NS_PER_S)
        node_folder_newest(bus->job_fd, number, peer->folder);
    snprintf(path, sizeof path, "%s/heartbeat", peer->folder);
    json_t *doc = peer->folder[0] ? read_line(bus->job_fd, path) : NULL;
    uint64_t seq = (uint64_t)json_integer_value(json_object_get(doc, "seq"));
    if (doc && seq != peer->seq) {
        peer->seq = seq;
        peer->changed_ns = now_ns;
    }
    const char *state = json_string_value(json_object_get(doc, "state"));
    if (doc && state && strcmp(state, "running") == 0 &&
        now_ns - peer->changed_ns <= STILL_S * NS_PER_S)
        return doc;
    json_decref(doc);
    return NULL;
}

static void read_answers(struct node_bus *bus, uint64_t now_ns)
{
    struct node_answers a = {.others = 0};
    pthread_mutex_lock(&bus->lock);
    memcpy(a.id, bus->follow_id, sizeof a.id);
    pthread_mutex_unlock(&bus->lock);
    for (uint32_t i = 0; a.id[0] && i < bus->nodes; i++) {
        json_auto_t *doc = i == bus->node ? NULL : read_peer(bus, i, now_ns);
        const char *id = json_string_value(json_object_get(doc, "request"));
        enum node_phase phase = phase_of(json_string_value(json_object_get(doc, "phase")));
        bool is_answer = id && strcmp(id, a.id) == 0;
        a.others += doc ? 1 : 0;
        a.ready += is_answer;
        a.done += is_answer && phase == NODE_DONE;
        a.failed += is_answer && phase == NODE_FAILED;
    }
    pthread_mutex_lock(&bus->lock);
    bool is_new = memcmp(&a, &bus->answers, sizeof a) != 0;
    bus->answers = a;
    pthread_mutex_unlock(&bus->lock);
    if (is_new)
        wake_loop(bus);
}

static void *bus_main(void *arg)
{
    struct node_bus *bus = arg;
    bool is_ending = false;
    while (!is_ending) {
        uint64_t now_ns = clock_mono_ns();
        pthread_mutex_lock(&bus->lock);
        is_ending = bus->is_ending;
        pthread_mutex_unlock(&bus->lock);
        write_request(bus);
        write_beat(bus, now_ns);
        if (!is_ending) {
            read_request(bus);
            read_answers(bus, now_ns);
        }
        pthread_mutex_lock(&bus->lock);
        bool is_busy = bus->follow_id[0] || (bus->answer_id[0] && bus->answer != NODE_DONE &&
                                             bus->answer != NODE_FAILED);
        const struct timespec until =
            thread_deadline((is_busy ? BUSY_POLL_MS : POLL_MS) * NS_PER_MS);
        bool has_work = bus->beat_is_due || bus->request_is_due || bus->is_ending != is_ending;
        if (!is_ending && !has_work)
            pthread_cond_timedwait(&bus->changed, &bus->lock, &until);
        pthread_mutex_unlock(&bus->lock);
    }
    pthread_mutex_lock(&bus->lock);
    bus->has_ended = true;
    pthread_cond_broadcast(&bus->changed);
    pthread_mutex_unlock(&bus->lock);
    return NULL;
}

/* ---- functions for the event loop ---- */

static void bus_release(struct node_bus *bus)
{
    json_decref(bus->beat);
    free(bus->peers);
    close_fd(&bus->node_fd);
    close_fd(&bus->job_fd);
    close_fd(&bus->event_fd);
    free(bus);
}

int node_bus_new(const struct node_bus_options *options, struct node_bus **ret)
{
    struct node_bus *bus = calloc(1, sizeof *bus);
    if (!bus)
        return -ENOMEM;
    bus->node = options->node;
    bus->nodes = options->nodes;
    text_copy(bus->host, sizeof bus->host, options->host);
    bus->peers = calloc(options->nodes, sizeof *bus->peers);
    bus->node_fd = fcntl(options->node_fd, F_DUPFD_CLOEXEC, 3);
    bus->job_fd = openat(options->node_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bus->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&bus->lock, NULL);
    thread_cond_init(&bus->changed);
    int r = bus->peers && bus->node_fd >= 0 && bus->job_fd >= 0 && bus->event_fd >= 0 ? 0 : -EIO;
    if (r == 0)
        r = thread_start(STACK_BYTES, bus_main, bus, &bus->thread);
    if (r < 0) {
        bus_release(bus);
        return r;
    }
    *ret = bus;
    return 0;
}

void node_bus_free(struct node_bus *bus, uint64_t wait_ns)
{
    if (!bus)
        return;
    const struct timespec until = thread_deadline(wait_ns);
    pthread_mutex_lock(&bus->lock);
    bus->is_ending = true;
    pthread_cond_broadcast(&bus->changed);
    while (!bus->has_ended && pthread_cond_timedwait(&bus->changed, &bus->lock, &until) == 0)
        ;
    bool has_ended = bus->has_ended;
    pthread_mutex_unlock(&bus->lock);
    if (!has_ended) /* BUS is not freed, because the hanging thread still uses it */
        return;
    pthread_join(bus->thread, NULL);
    bus_release(bus);
}

int node_bus_event_fd(const struct node_bus *bus)
{
    return bus->event_fd;
}

/* Unlocks the bus and wakes the thread, so that it writes the new data. */
static void bus_unlock(struct node_bus *bus)
{
    pthread_cond_broadcast(&bus->changed);
    pthread_mutex_unlock(&bus->lock);
}

void node_bus_beat(struct node_bus *bus, const struct node_beat *beat)
{
    json_t *doc = json_pack("{s:s,s:s,s:i}", "state", beat->has_ended ? "ended" : "running", "host",
                            bus->host, "ranks", (int)beat->ranks);
    json_object_set_new(doc, "memory_bytes", json_u64(beat->memory_bytes));
    json_object_set_new(doc, "limit_bytes",
                        beat->has_limit ? json_u64(beat->limit_bytes) : json_null());
    if (beat->has_step)
        json_object_set_new(doc, "step", json_integer(beat->step));
    if (beat->verdict)
        json_object_set_new(doc, "verdict", json_string(beat->verdict));
    pthread_mutex_lock(&bus->lock);
    bus->beat_is_due |= !bus->beat || beat->has_ended;
    json_decref(bus->beat);
    bus->beat = doc;
    if (bus->beat_is_due)
        pthread_cond_broadcast(&bus->changed);
    pthread_mutex_unlock(&bus->lock);
}

void node_bus_answer(struct node_bus *bus, const char *id, enum node_phase phase)
{
    pthread_mutex_lock(&bus->lock);
    text_copy(bus->answer_id, sizeof bus->answer_id, id);
    bus->answer = phase;
    bus->beat_is_due = true;
    bus_unlock(bus);
}

void node_bus_request(struct node_bus *bus, const struct node_request *request)
{
    pthread_mutex_lock(&bus->lock);
    bus->outgoing = *request;
    bus->request_is_due = true;
    bus_unlock(bus);
}

void node_bus_follow(struct node_bus *bus, const char *id)
{
    pthread_mutex_lock(&bus->lock);
    text_copy(bus->follow_id, sizeof bus->follow_id, id);
    bus->answers = (struct node_answers){.others = 0};
    bus_unlock(bus);
}

void node_bus_read(struct node_bus *bus, struct node_request *ret_request,
                   struct node_answers *ret_answers)
{
    uint64_t count;
    (void)!read(bus->event_fd, &count, sizeof count);
    pthread_mutex_lock(&bus->lock);
    *ret_request = bus->incoming;
    *ret_answers = bus->answers;
    pthread_mutex_unlock(&bus->lock);
}
