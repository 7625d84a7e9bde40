/* Stacks as lines, for flame graphs: "main (train.py:12);collate (data.py:40) 1048576". */
#include "profile/export_sites.h"

#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

/* The separators of the format must not come from a name. */
static void add_text(struct buf *out, const char *s)
{
    size_t start = out->len;
    text_escape(out, s, strlen(s));
    for (size_t i = start; i < out->len; i++)
        if (out->data[i] == ';')
            out->data[i] = ':';
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void add_frame(struct buf *out, const struct name *name)
{
    const char *place = name->kind == NAME_PYTHON ? name->file : name->lib;
    if (out->len)
        buf_add_byte(out, ';');
    add_text(out, name->function);
    if (!place)
        return;
    buf_add_str(out, " (");
    add_text(out, base_name(place));
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
        uint64_t bytes = export_whole(sites[i].live_bytes);
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
