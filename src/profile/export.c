/* Code that all exports share, and the export as collapsed stacks for flame graphs: "main
 * (train.py:12);collate (data.py:40) 1048576". */
#include "profile/export_sites.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/json.h"
#include "base/text.h"
#include "base/texts.h"
#include "version.h"

int export_no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "not enough memory to export the profile");
}

int export_sites(const struct profile *p, struct export_site **ret, struct err *err)
{
    if (p->n_readings == 0)
        return err_set(err, -ENODATA, "the heap of process %d was never read: nothing to export",
                       (int)p->pid);
    struct export_site *sites = calloc(p->n_sites ? p->n_sites : 1, sizeof *sites);
    if (!sites)
        return export_no_memory(err);
    /* the last reading is the only one that includes call sites without live bytes */
    const struct profile_reading *last = &p->readings[p->n_readings - 1];
    const struct profile_reading *shown = &p->readings[profile_working(p) - 1];
    for (size_t i = 0; i < last->count; i++) {
        struct export_site *s = &sites[last->held[i].site];
        s->allocated_bytes = profile_whole(last->held[i].allocated_bytes);
        s->allocated_objects = profile_whole(last->held[i].allocated_objects);
    }
    for (size_t i = 0; i < shown->count; i++) {
        struct export_site *s = &sites[shown->held[i].site];
        s->live_bytes = profile_whole(shown->held[i].live_bytes);
        s->live_objects = profile_whole(shown->held[i].live_objects);
    }
    *ret = sites;
    return 0;
}

size_t export_stack(const struct profile *p, uint32_t site, uint32_t ret[HEAP_STACK_MAX])
{
    size_t n = 0;
    for (uint32_t node = p->site_node[site]; node != 0 && n < HEAP_STACK_MAX;
         node = p->nodes[node].parent)
        ret[n++] = node;
    return n;
}

/* Calls FN for each frame of SITE's stack, outermost first. */
static void each_frame(const struct profile *p, struct names *names, uint32_t site,
                       void (*fn)(void *user, const struct name *frame), void *user)
{
    uint32_t nodes[HEAP_STACK_MAX];
    const struct name *list;
    size_t n = export_stack(p, site, nodes);
    if (n == 0)
        fn(user, names_of_site(names, site));
    while (n-- > 0)
        for (size_t k = names_of_node(names, nodes[n], &list); k-- > 0;)
            fn(user, &list[k]);
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

static void add_frame(void *user, const struct name *name)
{
    struct buf *out = user;
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
        each_frame(p, names, i, add_frame, &line);
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
    json_t *stack; /* stack of the current call site */
    uint64_t total;
    bool has_failed; /* true if memory ran out */
};

static void speedscope_add_frame(void *user, const struct name *name)
{
    struct speedscope *s = user;
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
        s->has_failed |=
            json_array_append_new(s->frames, frame) < 0 || numbers_put(&s->known, key, number) < 0;
    }
    s->has_failed |= json_array_append_new(s->stack, json_u64(number)) < 0;
}

int profile_export_speedscope(const struct profile *p, struct names *names, FILE *out,
                              struct err *err)
{
    AUTO_FREE struct export_site *sites = NULL;
    struct buf text = {0};
    char title[64];
    int r = export_sites(p, &sites, err);
    if (!sites)
        return r;
    struct speedscope s = {
        .frames = json_array(), .samples = json_array(), .weights = json_array()};
    for (uint32_t i = 0; i < p->n_sites; i++) {
        if (sites[i].live_bytes == 0)
            continue;
        s.stack = json_array();
        each_frame(p, names, i, speedscope_add_frame, &s);
        s.total += sites[i].live_bytes;
        s.has_failed |= json_array_append_new(s.samples, s.stack) < 0 ||
                        json_array_append_new(s.weights, json_u64(sites[i].live_bytes)) < 0;
    }
    snprintf(title, sizeof title, "live heap of process %" PRId32, p->pid);
    json_t *doc = json_pack("{s:s,s:s,s:s,s:i,s:{s:o},s:[{s:s,s:s,s:s,s:i,s:o,s:o,s:o}]}",
                            "$schema", "https://www.speedscope.app/file-format-schema.json",
                            "exporter", "ebb " EBB_VERSION, "name", title, "activeProfileIndex", 0,
                            "shared", "frames", s.frames, "profiles", "type", "sampled", "name",
                            "live bytes", "unit", "bytes", "startValue", 0, "endValue",
                            json_u64(s.total), "samples", s.samples, "weights", s.weights);
    if (s.has_failed || !doc || json_print(&text, doc, 0) < 0)
        r = export_no_memory(err);
    else
        fwrite(text.data, 1, text.len, out);
    json_decref(doc);
    buf_fini(&text);
    numbers_fini(&s.known);
    return r;
}
