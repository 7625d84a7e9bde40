/* Renders one tick as a line of text or of JSON. */
#include "present/lines.h"

#include <jansson.h>
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
    const struct frame_bytes least = frame_figure(&f->machine, MACHINE_TREE_LOW);
    const struct frame_bytes most = frame_figure(&f->machine, MACHINE_TREE_HIGH);
    if (!most.known)
        return;
    text_size(high, most.bytes);
    text_size(low, least.known ? least.bytes : most.bytes);
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
        if (sample_has(&f->rows[i].sample, SAMPLE_RSS) &&
            (!largest || f->rows[i].sample.v[SAMPLE_RSS] > largest->sample.v[SAMPLE_RSS]))
            largest = &f->rows[i];
    if (!largest)
        return;
    buf_printf(out, "  largest %d ", (int)largest->info.id.pid);
    text_escape(out, largest->info.comm, largest->info.comm_len);
    buf_printf(out, " (%s) %s", process_role_name(largest->info.role),
               text_size(size, largest->sample.v[SAMPLE_RSS]));
}

static void add_machine(struct buf *out, const struct frame *f)
{
    char size[TEXT_SIZE_MAX];
    const struct sample *m = &f->machine;
    if (sample_has(m, MACHINE_AVAILABLE))
        buf_printf(out, "  available %s", text_size(size, m->v[MACHINE_AVAILABLE]));
    if (f->headroom.known && f->limit_where[0] && strcmp(f->limit_where, "host") != 0)
        buf_printf(out, "  headroom %s", text_size(size, f->headroom.bytes));
    if (sample_has(m, MACHINE_PSI_SOME))
        buf_printf(out, "  psi %.1f %%", (double)m->v[MACHINE_PSI_SOME] / 100);
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
        bool is_job = sample_has(&frame->machine, MACHINE_TREE_HIGH);
        const struct frame_bytes v =
            frame_figure(&frame->gpu[i].sample, is_job ? GPU_JOB : GPU_USED);
        if (v.bytes > 0)
            buf_printf(out, "  gpu %zu %s", i, text_size(size, v.bytes));
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

static json_t *figure_json(const struct sample *s, unsigned field)
{
    return sample_has(s, field) ? json_u64(s->v[field]) : json_null();
}

static json_t *rate_json(bool known, double rate)
{
    return known ? json_real(rate) : json_null();
}

static json_t *row_json(const struct frame_row *r)
{
    static const struct {
        const char *name, *key;
        unsigned field;
    } figures[] = {
        {"rss", "rss_bytes", SAMPLE_RSS},    {"anon", "anon_bytes", SAMPLE_ANON},
        {"file", "file_bytes", SAMPLE_FILE}, {"shmem", "shmem_bytes", SAMPLE_SHMEM},
        {"swap", "swap_bytes", SAMPLE_SWAP}, {"unique", "unique_bytes", SAMPLE_UNIQUE},
        {"peak", "peak_bytes", SAMPLE_PEAK}, {"gpu", "gpu_bytes", SAMPLE_GPU},
    };
    const struct process_info *info = &r->info;
    json_t *stale = json_array();
    json_t *o = json_pack("{s:i,s:i,s:s,s:o,s:o}", "pid", (int)info->id.pid, "ppid",
                          (int)info->ppid, "role", process_role_name(info->role), "name",
                          json_text(info->comm, info->comm_len), "command",
                          json_arguments(info->cmdline, info->cmdline_len));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        json_object_set_new(o, figures[i].key, figure_json(&r->sample, figures[i].field));
        if (r->sample.stale >> figures[i].field & 1u)
            json_array_append_new(stale, json_string(figures[i].name));
    }
    json_object_set_new(o, "rate_bytes_per_min", rate_json(r->rate_known, r->rate_bytes_per_min));
    json_object_set_new(o, "stale", stale);
    return o;
}

static json_t *tree_json(const struct frame *f)
{
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o}", "low_bytes", figure_json(&f->machine, MACHINE_TREE_LOW),
        "high_bytes", figure_json(&f->machine, MACHINE_TREE_HIGH), "rate_bytes_per_min",
        rate_json(f->tree_rate_known, f->tree_rate_bytes_per_min), "processes", json_u64(f->count),
        "step", f->step_known ? json_integer(f->step) : json_null(), "verdict",
        f->verdicts ? verdicts_job_json(f->verdicts) : json_null());
}

static json_t *machine_json(const struct frame *f)
{
    static const struct {
        const char *key;
        unsigned field;
    } figures[] = {
        {"total_bytes", MACHINE_TOTAL},           {"available_bytes", MACHINE_AVAILABLE},
        {"swap_total_bytes", MACHINE_SWAP_TOTAL}, {"swap_free_bytes", MACHINE_SWAP_FREE},
        {"limit_bytes", MACHINE_LIMIT},           {"limit_used_bytes", MACHINE_LIMIT_USED},
        {"psi_some_permyriad", MACHINE_PSI_SOME}, {"psi_full_permyriad", MACHINE_PSI_FULL}};
    json_t *o = json_pack("{s:o,s:o}", "headroom_bytes",
                          f->headroom.known ? json_u64(f->headroom.bytes) : json_null(),
                          "limit_where", json_text0(f->limit_where[0] ? f->limit_where : NULL));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        json_object_set_new(o, figures[i].key, figure_json(&f->machine, figures[i].field));
    return o;
}

void lines_json(struct buf *out, const struct frame *frame)
{
    json_t *processes = json_array();
    json_t *gpus = json_array();
    for (size_t i = 0; i < frame->count; i++)
        json_array_append_new(processes, row_json(&frame->rows[i]));
    for (size_t i = 0; i < frame->gpus; i++) {
        const struct frame_gpu *g = &frame->gpu[i];
        json_array_append_new(gpus, json_pack("{s:o,s:o,s:o,s:o}", "name", json_text0(g->name),
                                              "total_bytes", figure_json(&g->sample, GPU_TOTAL),
                                              "used_bytes", figure_json(&g->sample, GPU_USED),
                                              "job_bytes", figure_json(&g->sample, GPU_JOB)));
    }
    json_t *doc =
        json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o}", "type", "tick", "t", json_seconds(frame->t_ns),
                  "wall", json_seconds(frame->wall_ns), "tree", tree_json(frame), "machine",
                  machine_json(frame), "processes", processes, "gpus", gpus);
    if (!doc || json_print(out, doc, 0) < 0)
        out->failed = true;
    json_decref(doc);
}
