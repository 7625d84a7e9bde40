/* What a table had more of, put where it belongs; and the check of the whole. */
#include "profile/store_news.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"

static struct profile_text get_text(const struct profile *p, struct cur *c)
{
    uint64_t at = cur_varint(c), len = cur_varint(c);
    if (at > HEAP_TEXT_BYTES || len > HEAP_TEXT_BYTES - at)
        return (struct profile_text){p->text, 0};
    return (struct profile_text){p->text + at, (size_t)len};
}

struct range {
    size_t from, to;
};

static struct range get_range(struct cur *c, size_t max)
{
    uint64_t from = cur_varint(c), count = cur_varint(c);
    if (from > max || count > max - from)
        c->bad = true;
    if (c->bad)
        return (struct range){0, 0};
    return (struct range){(size_t)from, (size_t)(from + count)};
}

static void get_texts(struct profile *p, struct cur *c)
{
    struct range r = get_range(c, HEAP_TEXT_BYTES);
    size_t len = r.to - r.from;
    if (len > cur_left(c)) {
        c->bad = true;
        return;
    }
    memcpy(p->text + r.from, c->p, len);
    c->p += len;
}

static void get_modules(struct profile *p, struct cur *c)
{
    struct range r = get_range(c, HEAP_MODULES);
    for (size_t i = r.from; i < r.to && !c->bad; i++) {
        struct profile_module m = {.path = get_text(p, c), .base = cur_varint(c)};
        size_t len;
        const char *build_id = cur_blob(c, &len);
        if (len <= sizeof m.build_id) {
            memcpy(m.build_id, build_id, len);
            m.build_id_len = (uint8_t)len;
        }
        p->modules[i] = m;
        store_at_least(&p->n_modules, i + 1);
    }
}

static void get_codes(struct profile *p, struct cur *c)
{
    struct range r = get_range(c, HEAP_CODES);
    for (size_t i = r.from; i < r.to && !c->bad; i++) {
        struct profile_code *code = &p->codes[i];
        code->file = get_text(p, c);
        code->name = get_text(p, c);
        code->lines = get_text(p, c);
        code->first_line = (uint32_t)cur_varint(c);
        store_at_least(&p->n_codes, i + 1);
    }
}

static void get_nodes(struct profile *p, struct cur *c)
{
    struct range r = get_range(c, HEAP_NODES);
    for (size_t i = r.from; i < r.to && !c->bad; i++) {
        uint64_t frame = cur_varint(c), parent = cur_varint(c);
        p->nodes[i].frame = frame;
        p->nodes[i].parent = parent < i ? (uint32_t)parent : 0; /* else it is cut off at the root */
        store_at_least(&p->n_nodes, i + 1);
    }
}

static void get_sites(struct profile *p, struct cur *c)
{
    struct range r = get_range(c, HEAP_SITES);
    for (size_t i = r.from; i < r.to && !c->bad; i++) {
        uint64_t node = cur_varint(c);
        p->site_node[i] = node < HEAP_NODES ? (uint32_t)node : 0;
        store_at_least(&p->n_sites, i + 1);
    }
}

int store_news_read(struct profile *p, struct cur *c)
{
    get_texts(p, c);
    get_modules(p, c);
    get_codes(p, c);
    get_nodes(p, c);
    get_sites(p, c);
    return c->bad ? -EBADMSG : 0;
}

/* Frames that name what is not there, and texts that nobody told. */
static void check_names(struct profile *p)
{
    for (size_t i = 0; i < p->n_modules; i++)
        if (!p->modules[i].path.at)
            p->modules[i].path.at = p->text;
    for (size_t i = 0; i < p->n_codes; i++)
        if (!p->codes[i].name.at)
            p->codes[i].file.at = p->codes[i].name.at = p->codes[i].lines.at = p->text;
    for (size_t i = 0; i < p->n_nodes; i++) {
        uint64_t frame = p->nodes[i].frame;
        uint64_t code = frame >> HEAP_FRAME_CODE_SHIFT & HEAP_FRAME_CODE_MASK;
        uint64_t module = frame >> HEAP_FRAME_MODULE_SHIFT & HEAP_FRAME_MODULE_MASK;
        if (frame & HEAP_FRAME_PYTHON ? code >= p->n_codes : module > p->n_modules)
            p->nodes[i].frame = 0;
    }
}

static void check_tree(struct profile *p)
{
    store_at_least(&p->n_nodes, 1);
    store_at_least(&p->n_sites, 1);
    p->nodes[0] = (struct profile_node){0};
    p->site_node[0] = 0;
    for (size_t i = 1; i < p->n_nodes; i++) {
        struct profile_node *node = &p->nodes[i];
        if (p->nodes[node->parent].depth >= HEAP_STACK_MAX)
            node->parent = 0;
        node->depth = p->nodes[node->parent].depth + 1;
    }
    for (size_t i = 0; i < p->n_sites; i++)
        if (p->site_node[i] >= p->n_nodes)
            p->site_node[i] = 0;
}

void store_news_check(struct profile *p)
{
    check_tree(p);
    check_names(p);
}
