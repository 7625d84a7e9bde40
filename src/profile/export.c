/* Code shared by the exports, and collapsed stacks for flame graphs: "main (train.py:12);collate
 * (data.py:40) 1048576". */
#include "profile/export_sites.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "base/texts.h"
#include "version.h"

int export_no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "not enough memory to export the profile");
}

/* Rounds V to a whole number; negative values and NAN become 0. */
static uint64_t whole(double v)
{
    return (uint64_t)number_to_i64(fmax(v, 0));
}

int export_sites(const struct profile *p, struct export_site **ret, struct err *err)
{
    if (p->n_readings == 0)
        return err_set(err, -ENODATA, "the heap of process %d was never read: nothing to export",
                       (int)p->pid);
    struct export_site *sites = calloc(p->n_sites ? p->n_sites : 1, sizeof *sites);
    if (!sites)
        return export_no_memory(err);
    size_t working = profile_working(p);
    for (size_t i = 0; i < p->n_readings; i++) {
        const struct profile_reading *r = &p->readings[i];
        bool is_last = i + 1 == working, is_after = i >= working;
        for (size_t k = 0; k < r->count; k++) {
            if (r->held[k].site >= p->n_sites)
                continue;
            struct export_site *s = &sites[r->held[k].site];
            s->allocated_bytes = whole(r->held[k].allocated_bytes);
            s->allocated_objects = whole(r->held[k].allocated_objects);
            if (is_after)
                continue;
            s->live_bytes = is_last ? whole(r->held[k].live_bytes) : 0;
            s->live_objects = is_last ? whole(r->held[k].live_objects) : 0;
        }
    }
    *ret = sites;
    return 0;
}

size_t export_stack(const struct profile *p, uint32_t site, uint32_t ret[EXPORT_DEPTH])
{
    size_t n = 0;
    uint32_t node = site < p->n_sites ? p->site_node[site] : 0;
    while (node != 0 && node < p->n_nodes && n < EXPORT_DEPTH) {
        ret[n++] = node;
        node = p->nodes[node].parent < node ? p->nodes[node].parent : 0;
    }
    for (size_t i = 0; i < n / 2; i++) {
        uint32_t other = ret[i];
        ret[i] = ret[n - 1 - i];
        ret[n - 1 - i] = other;
    }
    return n;
}

/* ---- collapsed stacks ---- */

/* Appends a name. Semicolons become colons, because the format separates names by semicolons. */
static void add_name(struct buf *out, const char *s)
{
    size_t start = out->len;
    text_escape(out, s, strlen(s));
    for (size_t i = start; i < out->len; i++)
        if (out->data[i] == ';')
            out->data[i] = ':';
}

static void add_frame(struct buf *out, const struct name *name)
{
    const char *place = name->kind == NAME_PYTHON ? name->file : name->lib;
    if (out->len)
        buf_add_byte(out, ';');
    add_name(out, name->function);
    if (!place)
        return;
    buf_add_str(out, " (");
    add_name(out, text_base_name(place));
    if (name->kind == NAME_PYTHON && name->line)
        buf_printf(out, ":%" PRIu32, name->line);
    buf_add_byte(out, ')');
}

static void add_stack(struct buf *out, const struct profile *p, struct names *names, uint32_t site)
{
    uint32_t nodes[EXPORT_DEPTH];
    const struct name *list;
    size_t n = export_stack(p, site, nodes);
    if (n == 0)
        add_frame(out, names_of_site(names, site));
    for (size_t i = 0; i < n; i++)
        for (size_t k = names_of_node(names, nodes[i], &list); k-- > 0;)
            add_frame(out, &list[k]);
}

int profile_export_collapsed(const struct profile *p, struct names *names, FILE *out,
                             struct err *err)
{
    AUTO_FREE struct export_site *sites = NULL;
    struct buf line = {0};
    int r = export_sites(p, &sites, err);
    for (uint32_t i = 0; r == 0 && i < p->n_sites; i++) {
        uint64_t bytes = sites[i].live_bytes;
        if (bytes == 0)
            continue;
        buf_clear(&line);
        add_stack(&line, p, names, i);
        buf_printf(&line, " %" PRIu64 "\n", bytes);
        if (line.failed)
            r = export_no_memory(err);
        else
            fwrite(line.data, 1, line.len, out);
    }
    buf_fini(&line);
    return r;
}

/* ---- speedscope: each frame once, each stack as a list of frame numbers ---- */

struct speedscope {
    struct numbers known; /* maps the address of a name to the number of its frame */
    json_t *frames, *samples, *weights;
    uint64_t total;
};

static int speedscope_add_frame(struct speedscope *s, const struct name *name, json_t *stack)
{
    const char *file = name->file ? name->file : name->lib;
    uint64_t key = (uint64_t)(uintptr_t)name;
    uint32_t number;
    if (!numbers_get(&s->known, key, &number)) {
        json_t *frame = json_pack("{s:o}", "name", json_text0(name->function));
        number = (uint32_t)json_array_size(s->frames);
        if (file)
            json_object_set_new(frame, "file", json_text0(file));
        if (name->line)
            json_object_set_new(frame, "line", json_u64(name->line));
        if (json_array_append_new(s->frames, frame) < 0 || numbers_put(&s->known, key, number) < 0)
            return -ENOMEM;
    }
    return json_array_append_new(stack, json_u64(number)) < 0 ? -ENOMEM : 0;
}

static int speedscope_add_site(struct speedscope *s, const struct profile *p, struct names *names,
                               uint32_t site, uint64_t bytes)
{
    uint32_t nodes[EXPORT_DEPTH];
    const struct name *list;
    json_t *stack = json_array();
    size_t n = export_stack(p, site, nodes);
    int r = n == 0 ? speedscope_add_frame(s, names_of_site(names, site), stack) : 0;
    for (size_t i = 0; r == 0 && i < n; i++)
        for (size_t k = names_of_node(names, nodes[i], &list); r == 0 && k-- > 0;)
            r = speedscope_add_frame(s, &list[k], stack);
    s->total += bytes;
    if (json_array_append_new(s->samples, stack) < 0 ||
        json_array_append_new(s->weights, json_u64(bytes)) < 0)
        r = -ENOMEM;
    return r;
}

int profile_export_speedscope(const struct profile *p, struct names *names, FILE *out,
                              struct err *err)
{
    AUTO_FREE struct export_site *sites = NULL;
    struct speedscope s = {
        .frames = json_array(), .samples = json_array(), .weights = json_array()};
    struct buf text = {0};
    char title[64];
    int r = export_sites(p, &sites, err), e = 0;
    for (uint32_t i = 0; r == 0 && e == 0 && i < p->n_sites; i++)
        if (sites && sites[i].live_bytes)
            e = speedscope_add_site(&s, p, names, i, sites[i].live_bytes);
    snprintf(title, sizeof title, "live heap of process %" PRId32, p->pid);
    json_t *doc = json_pack("{s:s,s:s,s:s,s:i,s:{s:o},s:[{s:s,s:s,s:s,s:i,s:o,s:o,s:o}]}",
                            "$schema", "https://www.speedscope.app/file-format-schema.json",
                            "exporter", "ebb " EBB_VERSION, "name", title, "activeProfileIndex", 0,
                            "shared", "frames", s.frames, "profiles", "type", "sampled", "name",
                            "live bytes", "unit", "bytes", "startValue", 0, "endValue",
                            json_u64(s.total), "samples", s.samples, "weights", s.weights);
    if (r == 0 && (e < 0 || !doc || json_print(&text, doc, 0) < 0))
        r = export_no_memory(err);
    if (r == 0)
        fwrite(text.data, 1, text.len, out);
    json_decref(doc);
    buf_fini(&text);
    numbers_fini(&s.known);
    return r;
}
