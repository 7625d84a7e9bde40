/* Reads the logs that viewers follow. New output is read once for all viewers. */
#include <stdlib.h>

#include "base/json.h"
#include "server/http/live_private.h"
#include "server/jobs/jobs.h"
#include "server/jobs/workers.h"
#include "trace/logs.h"

enum {
    /* maximum length of log text in one message; JSON escapes can make the message six times as
     * long */
    PIECE_BYTES = 32 << 10,
    /* maximum number of messages per notification; if the output is longer, only its last
     * PIECE_BYTES are sent */
    PIECES_MAX = 4,
};

static struct live_tail *tail_find(const struct live *l, int64_t id)
{
    struct live_tail *tail = l->tails;
    while (tail && tail->id != id)
        tail = tail->next;
    return tail;
}

struct live_tail *live_tail_watch(struct live *l, int64_t id)
{
    struct live_tail *tail = tail_find(l, id);
    if (tail) {
        /* All viewers of a log share one offset, and a new viewer begins at the end of the log. So
         * the output up to the end is published first. */
        live_tail_read(l, id);
        tail->watchers++;
        return tail;
    }
    tail = calloc(1, sizeof *tail);
    if (tail) {
        *tail = (struct live_tail){.live = l, .next = l->tails, .id = id, .watchers = 1};
        l->tails = tail;
        live_tail_read(l, id);
    }
    return tail;
}

void live_tail_leave(struct live *l, struct live_tail *tail)
{
    if (!tail || --tail->watchers > 0)
        return;
    struct live_tail **at = &l->tails;
    while (*at != tail)
        at = &(*at)->next;
    *at = tail->next;
    task_cancel(tail->task);
    free(tail);
}

/* Returns LEN without the bytes of an incomplete UTF-8 character at the end of S. */
static size_t whole_characters(const char *s, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)s[len - back];
        if ((c & 0xC0) == 0x80)
            continue;
        size_t wants = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        return wants > back ? len - back : len;
    }
    return len;
}

static void publish_piece(struct live *l, int64_t id, uint64_t offset, const char *text, size_t len)
{
    json_t *doc = json_pack("{s:s, s:I, s:o, s:o}", "type", "log", "id", (json_int_t)id, "offset",
                            json_u64(offset), "text", json_text(text, len));
    struct live_message *m = live_message_of(LIVE_LOG, id, doc);
    if (m)
        live_publish(l, m);
}

/* ---- reading, in a thread if the file system may hang ---- */

struct tail_reading {
    struct jobs_reading base;
    struct live_tail *tail;
    bool is_first; /* only the end of the log is looked up, and no output is read */
    uint64_t offset;
    /* most of the new output is skipped, because the job writes faster than output is sent */
    bool is_skipped;
    unsigned count;
    struct {
        uint64_t at;
        size_t len;
        char *text;
    } pieces[PIECES_MAX];
};

static void read_tail(struct jobs_reading *base, int folder)
{
    struct tail_reading *r = (struct tail_reading *)base;
    uint64_t end = folder < 0 ? 0 : logs_end(folder);
    if (r->is_first)
        r->offset = end;
    r->is_skipped = end > r->offset + (uint64_t)PIECES_MAX * PIECE_BYTES;
    if (r->is_skipped)
        r->offset = end - PIECE_BYTES;
    while (folder >= 0 && !r->is_first && r->count < PIECES_MAX) {
        uint64_t at = r->offset;
        char *text = malloc(PIECE_BYTES);
        ssize_t n = text ? logs_read(folder, r->offset, text, PIECE_BYTES, &at) : 0;
        size_t whole = n > 0 ? whole_characters(text, (size_t)n) : 0;
        /* no output, or an incomplete character, which the next call reads again */
        if (whole == 0) {
            free(text);
            return;
        }
        r->pieces[r->count].at = at;
        r->pieces[r->count].len = whole;
        r->pieces[r->count++].text = text;
        r->offset = at + whole;
        if (n < PIECE_BYTES)
            return;
    }
}

static void publish_skip(struct live *l, const struct live_tail *tail)
{
    struct live_viewer *v;
    l->busy++;
    LIST_FOREACH(v, &l->viewers, link)
    {
        if (v->tail != tail)
            continue;
        v->queue.skipped |= 1u << LIVE_LOG;
        /* the report of the gap must be sent before the output that follows the gap */
        live_viewer_flush(v);
    }
    l->busy--;
}

static void on_tail_read(struct jobs_reading *base)
{
    struct tail_reading *r = (struct tail_reading *)base;
    struct live_tail *tail = r->tail;
    struct live *l = tail->live;
    const int64_t id = tail->id;
    bool has_waited = tail->task;
    tail->task = NULL;
    tail->has_offset = true;
    tail->offset = r->offset;
    if (r->is_skipped)
        publish_skip(l, tail);
    for (unsigned i = 0; i < r->count; i++)
        publish_piece(l, id, r->pieces[i].at, r->pieces[i].text, r->pieces[i].len);
    if (has_waited)
        live_sweep(l);
    tail = tail_find(l, id);
    if (tail && tail->is_due)
        live_tail_read(l, id);
}

static void free_tail_reading(struct jobs_reading *base)
{
    struct tail_reading *r = (struct tail_reading *)base;
    for (unsigned i = 0; i < r->count; i++)
        free(r->pieces[i].text);
    free(r);
}

void live_tail_read(struct live *l, int64_t id)
{
    struct live_tail *tail = tail_find(l, id);
    struct task *task = NULL;
    if (!tail)
        return;
    tail->is_due = tail->task;
    if (tail->task)
        return;
    struct tail_reading *r = calloc(1, sizeof *r);
    if (!r)
        return;
    *r = (struct tail_reading){
        .base = {.read = read_tail, .done = on_tail_read, .free = free_tail_reading},
        .tail = tail,
        .is_first = !tail->has_offset,
        .offset = tail->offset};
    if (jobs_read(l->jobs, id, &r->base, &task) == 0 && task)
        tail->task = task;
}
