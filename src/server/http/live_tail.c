/* Reads the logs that viewers follow. New output is read once for all viewers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "server/http/live_private.h"
#include "trace/logs.h"

enum {
    /* size of a piece of a log; JSON escapes may make the message six times as long */
    PIECE_BYTES = 32 << 10,
    /* maximum number of pieces per notification; if a job writes more, part of its log is not
     * sent */
    PIECES_MAX = 4,
};

static uint64_t log_end_of(const struct live *l, int64_t id)
{
    AUTO_CLOSE int folder = jobs_folder(l->jobs, id, NULL, 0);
    return folder < 0 ? 0 : logs_end(folder);
}

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
        /* the log is read to its end, so that the new viewer and the other viewers continue at the
         * same offset */
        live_tail_read(l, id);
        tail->watchers++;
        return tail;
    }
    tail = calloc(1, sizeof *tail);
    if (tail) {
        *tail = (struct live_tail){.next = l->tails, .id = id, .watchers = 1};
        tail->offset = log_end_of(l, id);
        l->tails = tail;
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
    free(tail);
}

/* Subtracts the bytes of an incomplete UTF-8 character at the end of S from LEN. */
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

/* Skips most of the log if a job writes faster than its log can be sent. */
static void catch_up(struct live *l, struct live_tail *tail)
{
    uint64_t end = log_end_of(l, tail->id);
    if (end <= tail->offset + (uint64_t)PIECES_MAX * PIECE_BYTES)
        return;
    tail->offset = end - PIECE_BYTES;
    struct live_viewer *v;
    l->busy++;
    LIST_FOREACH(v, &l->viewers, link)
    {
        if (v->tail != tail)
            continue;
        v->queue.skipped |= 1u << LIVE_LOG;
        /* the viewer must receive the report of the gap before the output after the gap */
        live_viewer_flush(v);
    }
    l->busy--;
}

void live_tail_read(struct live *l, int64_t id)
{
    struct live_tail *tail = tail_find(l, id);
    AUTO_FREE char *text = tail ? malloc(PIECE_BYTES) : NULL;
    AUTO_CLOSE int folder = text ? jobs_folder(l->jobs, id, NULL, 0) : -1;
    if (folder < 0)
        return;
    catch_up(l, tail);
    for (int i = 0; i < PIECES_MAX; i++) {
        uint64_t at = tail->offset;
        ssize_t n = logs_read(folder, tail->offset, text, PIECE_BYTES, &at);
        if (n <= 0)
            return;
        size_t whole = whole_characters(text, (size_t)n);
        if (whole == 0) /* the rest of the character is read next time */
            return;
        tail->offset = at + whole;
        publish_piece(l, id, at, text, whole);
        if (n < PIECE_BYTES)
            return;
    }
}
