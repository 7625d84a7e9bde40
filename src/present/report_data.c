/* A recording as what a report draws and tells. */
#include "present/report_data.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/text.h"
#include "present/report_private.h"

struct reading {
    uint64_t start_ns;
    double span_s;
    struct report_entities entities;
    struct report_story story;
};

static double seconds(const struct reading *r, uint64_t t_ns)
{
    return t_ns > r->start_ns ? (double)(t_ns - r->start_ns) / (double)NS_PER_S : 0;
}

static void take(struct reading *r, const struct trace_item *item)
{
    double t_s = seconds(r, item->t_ns);
    r->span_s = t_s > r->span_s ? t_s : r->span_s;
    switch (item->kind) {
    case TRACE_TICK:
        report_entities_tick(&r->entities, t_s, item);
        break;
    case TRACE_PROCESS:
        report_entities_process(&r->entities, t_s, item);
        break;
    case TRACE_MARK:
        report_story_mark(&r->story, t_s, &item->mark);
        break;
    case TRACE_NOTE:
        report_story_note(&r->story, t_s, item);
        break;
    case TRACE_ENTITY:
        break;
    }
}

/* "1.20 KiB in the middle could not be read", or null. */
static json_t *damage_json(const struct trace_reader *reader)
{
    struct trace_reader_damage d;
    struct buf text = {0};
    char size[TEXT_SIZE_MAX];
    trace_reader_damage(reader, &d);
    if (d.bad_bytes)
        buf_printf(&text, "%s in the middle, ", text_size(size, d.bad_bytes));
    if (d.cut_bytes)
        buf_printf(&text, "%s of an unfinished block at the end, ", text_size(size, d.cut_bytes));
    if (d.lost_blocks)
        buf_printf(&text, "%" PRIu64 " lost block%s, ", d.lost_blocks,
                   d.lost_blocks == 1 ? "" : "s");
    if (d.unknown_blocks)
        buf_printf(&text, "%" PRIu64 " block%s of a kind this version does not know, ",
                   d.unknown_blocks, d.unknown_blocks == 1 ? "" : "s");
    json_t *o = text.len ? json_text(text.data, text.len - 2) : json_null();
    buf_fini(&text);
    return o;
}

json_t *report_data(struct trace_reader *reader, struct err *err)
{
    struct reading r = {.start_ns = trace_reader_start_mono_ns(reader)};
    struct trace_item item;
    json_t *doc = json_object();
    int e = report_story_init(&r.story);
    while (e == 0 && (e = trace_reader_next(reader, &item)) > 0) {
        take(&r, &item);
        e = r.entities.failed ? -ENOMEM : 0;
    }
    if (e == 0 && doc) {
        json_object_set_new(doc, "span_s", json_real(r.span_s));
        report_entities_json(&r.entities, doc);
        report_story_json(&r.story, r.span_s, doc);
        json_object_set_new(doc, "damage", damage_json(reader));
    } else {
        err_set(err, e, "the recording cannot be read: %s", strerror(e < 0 ? -e : ENOMEM));
        json_decref(doc);
        doc = NULL;
    }
    report_entities_fini(&r.entities);
    report_story_fini(&r.story);
    return doc;
}
