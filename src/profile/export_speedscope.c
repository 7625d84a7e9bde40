/* What lives, for speedscope: frames once, each stack as a list of their numbers with its bytes. */
#include "profile/export_sites.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "profile/texts.h"
#include "version.h"

struct speedscope {
    struct names *names;
    struct numbers frames; /* from where a name is to the frame's number */
    uint32_t n_frames;
    struct buf frame_text, samples, weights;
    uint64_t total;
};

static int add_object(struct buf *out, const struct name *name)
{
    const char *file = name->file ? name->file : name->lib;
    json_t *frame = json_object();
    int r = json_object_set_new(frame, "name", json_text0(name->function));
    if (r == 0 && file)
        r = json_object_set_new(frame, "file", json_text0(file));
    if (r == 0 && name->line)
        r = json_object_set_new(frame, "line", json_u64(name->line));
    if (out->len)
        buf_add_byte(out, ',');
    r = r < 0 ? -ENOMEM : json_print(out, frame, 0);
    json_decref(frame);
    return r;
}

static int frame_number(struct speedscope *s, const struct name *name, uint32_t *ret)
{
    uint64_t key = (uint64_t)(uintptr_t)name;
    if (numbers_get(&s->frames, key, ret))
        return 0;
    *ret = s->n_frames++;
    int r = numbers_put(&s->frames, key, *ret);
    return r < 0 ? r : add_object(&s->frame_text, name);
}

static int add_frame(struct speedscope *s, const struct name *name, const char *before)
{
    uint32_t number = 0;
    int r = frame_number(s, name, &number);
    buf_printf(&s->samples, "%s%" PRIu32, before, number);
    return r;
}

static int add_sample(struct speedscope *s, const struct profile *p, uint32_t site, uint64_t bytes)
{
    uint32_t nodes[EXPORT_DEPTH];
    const struct name *list;
    size_t n = export_stack(p, site, nodes);
    const char *before = "";
    buf_add_str(&s->samples, s->total ? ",[" : "[");
    int r = n == 0 ? add_frame(s, names_of_site(s->names, site), before) : 0;
    for (size_t i = 0; r == 0 && i < n; i++)
        for (size_t k = names_of_node(s->names, nodes[i], &list); r == 0 && k-- > 0; before = ",")
            r = add_frame(s, &list[k], before);
    buf_add_byte(&s->samples, ']');
    buf_printf(&s->weights, "%s%" PRIu64, s->total ? "," : "", bytes);
    s->total += bytes;
    return s->samples.failed || s->weights.failed ? -ENOMEM : r;
}

static void write_buf(const struct buf *b, FILE *out)
{
    if (b->len)
        fwrite(b->data, 1, b->len, out);
}

static void print(const struct speedscope *s, const struct profile *p, FILE *out)
{
    fprintf(out,
            "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
            "\"exporter\":\"ebb %s\",\"name\":\"live heap of process %" PRId32 "\","
            "\"activeProfileIndex\":0,\"shared\":{\"frames\":[",
            EBB_VERSION, p->pid);
    write_buf(&s->frame_text, out);
    fprintf(out,
            "]},\"profiles\":[{\"type\":\"sampled\",\"name\":\"live bytes\",\"unit\":\"bytes\","
            "\"startValue\":0,\"endValue\":%" PRIu64 ",\"samples\":[",
            s->total);
    write_buf(&s->samples, out);
    fputs("],\"weights\":[", out);
    write_buf(&s->weights, out);
    fputs("]}]}\n", out);
}

int profile_export_speedscope(const struct profile *p, struct names *names, FILE *out,
                              struct err *err)
{
    AUTO_FREE struct export_site *sites = NULL;
    struct speedscope s = {.names = names};
    int r = export_sites(p, &sites, err);
    for (uint32_t i = 0; r == 0 && i < p->n_sites; i++) {
        uint64_t bytes = export_whole(sites[i].live_bytes);
        if (bytes > 0 && add_sample(&s, p, i, bytes) < 0)
            r = export_no_memory(err);
    }
    if (r == 0)
        print(&s, p, out);
    numbers_fini(&s.frames);
    buf_fini(&s.frame_text);
    buf_fini(&s.samples);
    buf_fini(&s.weights);
    return r;
}
