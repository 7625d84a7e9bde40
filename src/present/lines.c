/* One tick as a line of text, or as a line of JSON. */
#include "present/lines.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "judge/verdicts.h"
#include "present/cells.h"
#include "present/verdict.h"

/* ---- text ---- */

static void add_job(struct buf *out, const struct frame *f)
{
    char low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX], rate[CELL_MAX];
    if (!f->tree_high.known)
        return;
    text_size(high, f->tree_high.bytes);
    text_size(low, f->tree_low.known ? f->tree_low.bytes : f->tree_high.bytes);
    buf_add_str(out, "  job ");
    if (strcmp(low, high) != 0)
        buf_printf(out, "%s – ", low);
    buf_add_str(out, high);
    if (f->tree_rate_known)
        buf_printf(out, " (%s)", cell_rate_text(rate, f->tree_rate_bytes_per_min));
}

static void add_largest(struct buf *out, const struct frame *f)
{
    const struct frame_row *largest = NULL;
    char size[TEXT_SIZE_MAX];
    for (size_t i = 0; i < f->count; i++)
        if (f->rows[i].rss.known && (!largest || f->rows[i].rss.bytes > largest->rss.bytes))
            largest = &f->rows[i];
    if (!largest)
        return;
    buf_printf(out, "  largest %d ", (int)largest->pid);
    text_escape(out, largest->name, largest->name_len);
    buf_printf(out, " (%s) %s", largest->role, text_size(size, largest->rss.bytes));
}

static void add_machine(struct buf *out, const struct frame *f)
{
    char size[TEXT_SIZE_MAX];
    if (f->available.known)
        buf_printf(out, "  available %s", text_size(size, f->available.bytes));
    if (f->headroom.known && f->limit_where && strcmp(f->limit_where, "host") != 0)
        buf_printf(out, "  head-room %s", text_size(size, f->headroom.bytes));
    if (f->psi_known)
        buf_printf(out, "  psi %.1f %%", f->psi_some_permyriad / 100.0);
}

void lines_text(struct buf *out, const struct frame *frame)
{
    buf_printf(out, "%.1f s", (double)frame->t_ns / (double)NS_PER_S);
    add_job(out, frame);
    add_largest(out, frame);
    buf_printf(out, "  %zu process%s", frame->count, frame->count == 1 ? "" : "es");
    if (frame->step_known)
        buf_printf(out, "  step %lld", (long long)frame->step);
    for (size_t i = 0; i < frame->gpus; i++) {
        char size[TEXT_SIZE_MAX];
        const struct frame_bytes *v =
            frame->tree_high.known ? &frame->gpu[i].job : &frame->gpu[i].used;
        if (v->known && v->bytes > 0)
            buf_printf(out, "  gpu %zu %s", i, text_size(size, v->bytes));
    }
    add_machine(out, frame);
    if (frame->verdicts) {
        struct buf brief = {0};
        verdict_brief(&brief, frame->verdicts);
        buf_add_str(out, "  verdict ");
        text_escape(out, buf_str(&brief), brief.len);
        buf_fini(&brief);
    }
    buf_add_byte(out, '\n');
}

/* ---- JSON ---- */

static json_t *bytes_json(const struct frame_bytes *v)
{
    return v->known ? json_u64(v->bytes) : json_null();
}

static json_t *rate_json(bool known, double rate)
{
    return known ? json_real(rate) : json_null();
}

static json_t *command_json(const char *args, size_t len)
{
    json_t *list = json_array();
    for (size_t i = 0; i < len;) {
        size_t n = strnlen(args + i, len - i);
        json_array_append_new(list, json_text(args + i, n));
        i += n + 1;
    }
    return list;
}

static json_t *row_json(const struct frame_row *r)
{
    const struct {
        const char *name, *key;
        const struct frame_bytes *v;
    } figures[] = {
        {"rss", "rss_bytes", &r->rss},    {"anon", "anon_bytes", &r->anon},
        {"file", "file_bytes", &r->file}, {"shmem", "shmem_bytes", &r->shmem},
        {"swap", "swap_bytes", &r->swap}, {"unique", "unique_bytes", &r->unique},
        {"peak", "peak_bytes", &r->peak}, {"gpu", "gpu_bytes", &r->gpu},
    };
    json_t *stale = json_array();
    json_t *o = json_pack("{s:i,s:i,s:s,s:o,s:o}", "pid", (int)r->pid, "ppid", (int)r->ppid, "role",
                          r->role, "name", json_text(r->name, r->name_len), "command",
                          command_json(r->command, r->command_len));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        json_object_set_new(o, figures[i].key, bytes_json(figures[i].v));
        if (figures[i].v->stale)
            json_array_append_new(stale, json_string(figures[i].name));
    }
    json_object_set_new(o, "rate_bytes_per_min", rate_json(r->rate_known, r->rate_bytes_per_min));
    json_object_set_new(o, "stale", stale);
    return o;
}

static json_t *tree_json(const struct frame *f)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "low_bytes", bytes_json(&f->tree_low),
                     "high_bytes", bytes_json(&f->tree_high), "rate_bytes_per_min",
                     rate_json(f->tree_rate_known, f->tree_rate_bytes_per_min), "processes",
                     json_u64(f->count), "step",
                     f->step_known ? json_integer(f->step) : json_null(), "verdict",
                     f->verdicts ? verdicts_job_json(f->verdicts) : json_null());
}

static json_t *machine_json(const struct frame *f)
{
    json_t *some = f->psi_known ? json_integer(f->psi_some_permyriad) : json_null();
    json_t *full = f->psi_known ? json_integer(f->psi_full_permyriad) : json_null();
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "total_bytes",
                     bytes_json(&f->total), "available_bytes", bytes_json(&f->available),
                     "swap_total_bytes", bytes_json(&f->swap_total), "swap_free_bytes",
                     bytes_json(&f->swap_free), "limit_bytes", bytes_json(&f->limit),
                     "limit_used_bytes", bytes_json(&f->limit_used), "headroom_bytes",
                     bytes_json(&f->headroom), "limit_where", json_text0(f->limit_where),
                     "psi_some_permyriad", some, "psi_full_permyriad", full);
}

void lines_json(struct buf *out, const struct frame *frame)
{
    json_t *processes = json_array();
    json_t *gpus = json_array();
    for (size_t i = 0; i < frame->count; i++)
        json_array_append_new(processes, row_json(&frame->rows[i]));
    for (size_t i = 0; i < frame->gpus; i++) {
        const struct frame_gpu *g = &frame->gpu[i];
        json_array_append_new(gpus,
                              json_pack("{s:o,s:o,s:o,s:o}", "name", json_text0(g->name),
                                        "total_bytes", bytes_json(&g->total), "used_bytes",
                                        bytes_json(&g->used), "job_bytes", bytes_json(&g->job)));
    }
    json_t *doc =
        json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o}", "type", "tick", "t", json_seconds(frame->t_ns),
                  "wall", json_seconds(frame->wall_ns), "tree", tree_json(frame), "machine",
                  machine_json(frame), "processes", processes, "gpus", gpus);
    if (!doc || json_print(out, doc, 0) < 0)
        out->failed = true;
    json_decref(doc);
}
