/* Writes the page of a report: a head that forbids loading anything from elsewhere, the document,
 * and the script with its data. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "present/assets.h"
#include "present/html.h"
#include "present/report_private.h"
#include "version.h"

/* Packs a frame and its callees as {"n": name, "w": where, "b": bytes, "k": kind, "c": […]}. */
static json_t *pack_branch(const struct profile_branch *b)
{
    json_t *o = json_pack("{s:o,s:o}", "n", report_harmless(b->frame.function), "b",
                          json_u64(b->live_bytes));
    struct buf where = {0};
    if (!o)
        return NULL;
    if (b->frame.file && b->frame.has_line)
        buf_printf(&where, "%s:%u", b->frame.file, (unsigned)b->frame.line);
    else
        buf_add_str(&where, b->frame.file ? b->frame.file : b->frame.lib ? b->frame.lib : "");
    if (where.len)
        json_object_set_new(o, "w", report_harmless(buf_str(&where)));
    buf_fini(&where);
    if (b->frame.kind == NAME_PYTHON)
        json_object_set_new(o, "k", json_string("p"));
    if (b->n_children)
        json_object_set_new(o, "c", json_array());
    for (size_t i = 0; i < b->n_children; i++)
        json_array_append_new(json_object_get(o, "c"), pack_branch(&b->children[i]));
    return o;
}

/* Packs the process that the report is about: the growing process, or the largest process if none
 * grows. */
static json_t *pack_subject(const struct report *r)
{
    struct run_entity **list = NULL;
    json_t *pid = json_null();
    if (r->recorded.verdicts.has_grower && r->recorded.verdicts.grower.has_pid)
        return json_integer(r->recorded.verdicts.grower.pid);
    if (run_list(r->recorded.run, RUN_PROCESS, &list))
        pid = json_integer(list[0]->info.id.pid);
    free(list);
    return pid;
}

/* Packs the data for the page's script. Returns NULL if out of memory. */
static json_t *pack_run(const struct report *r)
{
    json_t *o = r->recorded.run ? report_data(r->recorded.run, true) : json_object();
    if (!o || !r->recorded.run)
        return o;
    json_object_set_new(o, "pid", pack_subject(r));
    if (r->has_heap && r->heap.has_tree)
        json_object_set_new(o, "flame", pack_branch(&r->heap.tree));
    if (r->has_gpu && r->gpu.has_tree)
        json_object_set_new(o, "flame_gpu", pack_branch(&r->gpu.tree));
    return o;
}

static int page_begin(struct buf *out, const char *title, const char *nonce)
{
    buf_printf(out,
               "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
               "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; "
               "script-src 'nonce-%s'; style-src 'nonce-%s'; img-src data:; base-uri 'none'; "
               "form-action 'none'\">\n"
               "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
               "<meta name=color-scheme content=\"light dark\">\n"
               "<meta name=referrer content=no-referrer>\n"
               "<link rel=icon href=\"data:,\">\n<title>",
               nonce, nonce);
    html_text0(out, title);
    buf_printf(out, " · ebb</title>\n<style nonce=%s>", nonce);
    int r = asset_unpack(ASSET_REPORT_CSS, out);
    buf_add_str(out, "</style>\n</head>\n<body>\n<main>\n");
    return r;
}

static int page_end(struct buf *out, const json_t *data, const char *nonce)
{
    struct buf js = {0};
    json_t *now = json_local_time(clock_wall_ns());
    buf_printf(out, "</main>\n<footer>made by ebb %s, %s</footer>\n", EBB_VERSION,
               json_is_string(now) ? json_string_value(now) : "");
    json_decref(now);
    int r = asset_unpack(ASSET_REPORT_JS, &js);
    if (r == 0 && js.len) {
        buf_add_str(out, "<script type=\"application/json\" id=data>");
        r = html_json(out, data);
        buf_printf(out, "</script>\n<script nonce=%s>", nonce);
        buf_add(out, js.data, js.len);
        buf_add_str(out, "</script>\n");
    }
    buf_fini(&js);
    buf_add_str(out, "</body>\n</html>\n");
    return r;
}

int report_page(struct buf *out, const char *title, const struct doc *doc,
                const struct report *before, const struct report *after, const char *nonce)
{
    json_t *data = pack_run(before);
    if (after)
        data = json_pack("{s:[o,o]}", "runs", data, pack_run(after));
    if (!data)
        return -ENOMEM;
    int r = page_begin(out, title, nonce);
    doc_html(out, doc);
    if (r == 0)
        r = page_end(out, data, nonce);
    json_decref(data);
    return r < 0 ? r : out->failed ? -ENOMEM : 0;
}
