/* Renders a census as tables: tensors, objects, references that keep the largest objects alive,
 * growth, cost. */
#include "present/census.h"

#include <inttypes.h>
#include <string.h>

#include "base/codec.h"
#include "base/text.h"
#include "present/cells.h"
#include "present/document.h"

/* ---- the document ---- */

/* A row of any list of a census. Each list uses some of these members. */
struct census_row {
    char *type, *name, *what, *chain;
    int64_t count, bytes;
};

struct census_memory {
    bool has_heap_live_bytes, has_cuda_allocated_bytes, has_cuda_reserved_bytes;
    bool has_pinned_host_bytes;
    uint64_t heap_live_bytes, cuda_allocated_bytes, cuda_reserved_bytes, pinned_host_bytes;
};

struct census {
    bool has_rank, has_step, has_torch, is_sampled, has_tensor_bytes, has_object_bytes;
    int64_t rank, step, tensor_count, object_count;
    uint64_t tensor_bytes, object_bytes;
    /* the time of the census: "step" at the end of a step, "thread" while the program ran, "call"
     * when the program requested the census */
    char at[16];
    double cost_s;
    struct census_memory memory;
    struct census_row *tensors, *objects, *largest;
    size_t n_tensors, n_objects, n_largest;
};

struct census_process {
    int32_t pid;
    char *error, *path;
    bool has_census, has_since;
    struct census census;
    struct census_since {
        bool has_step;
        int64_t step;
    } since;
    struct census_row *growth;
    size_t n_growth;
};

#define FIELD(s, m, type) CODEC_FIELD(struct s, m, #m, CODEC_##type)
#define MAYBE(s, m, type) CODEC_NULL(struct s, m, #m, CODEC_##type)
#define STRING(s, m) CODEC_OWNED(struct s, m, #m, CODEC_OR_NULL)
#define ROWS(s, m) CODEC_MANY(struct s, m, n_##m, #m, row_codec, CODEC_REQUIRED)

static const struct codec row_codec[] = {STRING(census_row, type),
                                         STRING(census_row, name),
                                         STRING(census_row, what),
                                         STRING(census_row, chain),
                                         FIELD(census_row, count, INT),
                                         FIELD(census_row, bytes, INT),
                                         {0}};
static const struct codec memory_codec[] = {MAYBE(census_memory, heap_live_bytes, UINT),
                                            MAYBE(census_memory, cuda_allocated_bytes, UINT),
                                            MAYBE(census_memory, cuda_reserved_bytes, UINT),
                                            MAYBE(census_memory, pinned_host_bytes, UINT),
                                            {0}};
static const struct codec census_codec[] = {
    MAYBE(census, rank, INT),
    MAYBE(census, step, INT),
    FIELD(census, has_torch, BOOL),
    FIELD(census, is_sampled, BOOL),
    FIELD(census, tensor_count, INT),
    FIELD(census, object_count, INT),
    MAYBE(census, tensor_bytes, UINT),
    MAYBE(census, object_bytes, UINT),
    FIELD(census, at, TEXT),
    FIELD(census, cost_s, REAL),
    CODEC_PART(struct census, memory, "memory", memory_codec),
    ROWS(census, tensors),
    ROWS(census, objects),
    ROWS(census, largest),
    {0}};
static const struct codec since_codec[] = {MAYBE(census_since, step, INT), {0}};
static const struct codec process_codec[] = {
    FIELD(census_process, pid, INT),
    STRING(census_process, error),
    STRING(census_process, path),
    CODEC_PART_HAS(struct census_process, census, "census", census_codec, CODEC_OR_NULL),
    CODEC_PART_HAS(struct census_process, since, "since", since_codec, CODEC_OR_NULL),
    ROWS(census_process, growth),
    {0}};

char *census_tensor_name(const json_t *row)
{
    const char *device = json_string_value(json_object_get(row, "device"));
    const char *dtype = json_string_value(json_object_get(row, "dtype"));
    const json_t *n;
    struct buf name = {0};
    size_t i;
    buf_printf(&name, "%s %s [", device ? device : "?", dtype ? dtype : "?");
    json_array_foreach(json_object_get(row, "shape"), i, n)
        buf_printf(&name, "%s%lld", i ? ", " : "", (long long)json_integer_value(n));
    buf_printf(&name, "]%s%s%s",
               json_is_true(json_object_get(row, "requires_grad")) ? " requires_grad" : "",
               json_is_true(json_object_get(row, "is_grad")) ? " gradient" : "",
               json_is_false(json_object_get(row, "is_leaf")) ? " in autograd graph" : "");
    char *text = name.failed ? NULL : strdup(buf_str(&name));
    buf_fini(&name);
    return text;
}

/* Reads the census of one process. The result is empty if memory runs out. */
static struct census_process census_read(const json_t *doc)
{
    struct census_process p = {0};
    const json_t *tensors = json_object_get(json_object_get(doc, "census"), "tensors");
    codec_read(process_codec, doc, &p, NULL);
    for (size_t i = 0; i < p.census.n_tensors; i++) {
        free(p.census.tensors[i].name);
        p.census.tensors[i].name = census_tensor_name(json_array_get(tensors, i));
    }
    return p;
}

/* ---- rendering ---- */

/* Adds a table of the first COUNT rows. */
static void census_put_rows(struct doc *d, const char *label, const char *name, bool is_growth,
                            const struct census_row *rows, size_t count)
{
    static const struct doc_column columns[] = {{.title = "bytes", .is_number = true},
                                                {.title = "count", .is_number = true},
                                                {.title = "what", .cut = CUT_WRAP}};
    char size[TEXT_SIZE_MAX];
    if (!count)
        return;
    doc_table(d, label, name, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const struct census_row *r = &rows[i];
        doc_row(d);
        doc_cell(d, TONE_PLAIN,
                 is_growth ? text_size_signed(size, r->bytes)
                           : known_size(size, true, (double)r->bytes));
        doc_cellf(d, TONE_PLAIN, is_growth ? "%+" PRId64 : "%" PRId64, r->count);
        doc_cell(d, TONE_PLAIN, r->name ? r->name : r->type);
    }
}

static void census_put_memory(struct doc *d, const struct census_memory *m)
{
    const struct {
        const char *text;
        bool has;
        uint64_t bytes;
    } figures[] = {{"live heap", m->has_heap_live_bytes, m->heap_live_bytes},
                   {"cuda allocated", m->has_cuda_allocated_bytes, m->cuda_allocated_bytes},
                   {"cuda reserved", m->has_cuda_reserved_bytes, m->cuda_reserved_bytes},
                   {"pinned", m->has_pinned_host_bytes, m->pinned_host_bytes}};
    char size[TEXT_SIZE_MAX];
    doc_fact(d, "memory");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (figures[i].has)
            doc_itemf(d, TONE_PLAIN, "%s %s", figures[i].text, text_size(size, figures[i].bytes));
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void census_put_tensors_and_objects(struct doc *d, const struct census *c, size_t top)
{
    char size[TEXT_SIZE_MAX];
    doc_fact(d, "tensors");
    if (c->has_torch)
        doc_textf(d, TONE_STRONG, "%" PRId64 ", %s", c->tensor_count,
                  c->has_tensor_bytes ? text_size(size, c->tensor_bytes) : "–");
    else
        doc_text(d, TONE_PLAIN, "torch is not imported in this process");
    if (c->has_torch)
        census_put_rows(d, "", "tensors", false, c->tensors, least(c->n_tensors, top));
    doc_fact(d, "objects");
    doc_textf(d, TONE_STRONG, "%" PRId64 ", %s%s", c->object_count,
              c->has_object_bytes ? text_size(size, c->object_bytes) : "–",
              c->is_sampled ? " (estimated from a sample)" : "");
    census_put_rows(d, "", "objects", false, c->objects, least(c->n_objects, top));
    for (size_t i = 0; i < c->n_largest; i++) {
        const struct census_row *r = &c->largest[i];
        doc_fact(d, i ? "" : "kept by");
        if (r->count > 1)
            doc_textf(d, TONE_PLAIN, "%" PRId64 " × ", r->count);
        doc_textf(d, TONE_PLAIN, "%s, %s: %s", r->what ? r->what : "?",
                  known_size(size, true, (double)r->bytes), r->chain ? r->chain : "?");
    }
}

static void census_put_growth(struct doc *d, const struct census_process *p, size_t top)
{
    size_t grew = 0;
    while (grew < p->n_growth && grew < top && p->growth[grew].bytes >= 0)
        grew++;
    doc_fact(d, "growth");
    if (!p->has_since)
        doc_text(d, TONE_PLAIN, "unknown: this is the first census of this process");
    else if (p->since.has_step)
        doc_textf(d, TONE_STRONG, "since the census at step %" PRId64, p->since.step);
    else
        doc_text(d, TONE_STRONG, "since the previous census");
    if (p->has_since && !grew)
        doc_itemf(d, TONE_PLAIN, "nothing grew");
    if (p->has_since)
        census_put_rows(d, "", "growth", true, p->growth, grew);
}

static void census_put_process(struct doc *d, const struct census_process *p, size_t top)
{
    const struct census *c = &p->census;
    char time[TEXT_TIME_MAX];
    doc_para(d, TONE_PLAIN);
    doc_textf(d, TONE_STRONG, "process %d", (int)p->pid);
    if (!p->has_census) {
        doc_textf(d, TONE_PLAIN, ": %s", p->error ? p->error : "no census");
        return;
    }
    if (c->has_rank)
        doc_textf(d, TONE_STRONG, " (rank %" PRId64 ")", c->rank);
    if (c->has_step)
        doc_textf(d, TONE_STRONG, ", step %" PRId64, c->step);
    doc_textf(d, TONE_PLAIN, ": census %s, at a cost of %s",
              strcmp(c->at, "step") == 0     ? "at the end of the step"
              : strcmp(c->at, "thread") == 0 ? "while the program ran"
                                             : "when the program requested it",
              text_seconds(time, c->cost_s));
    census_put_memory(d, &c->memory);
    census_put_tensors_and_objects(d, c, top);
    census_put_growth(d, p, top);
    doc_fact(d, "saved in");
    doc_text(d, TONE_PLAIN, p->path);
}

void census_doc(struct doc *d, const json_t *processes, size_t top)
{
    const json_t *one;
    size_t i;
    json_array_foreach(processes, i, one)
    {
        struct census_process p = census_read(one);
        if (i > 0)
            doc_space(d);
        census_put_process(d, &p, top);
        codec_fini(process_codec, &p);
    }
}
