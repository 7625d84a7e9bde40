/* Renders a heap profile as a table, a tree, or a fact of the summary. */
#include "present/heap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "present/cells.h"
#include "present/document.h"
#include "present/verdict.h"
#include "profile/kept.h"
#include "profile/view.h"
#include "profile/words.h"

enum { WHERE_LEAST = 36, TREE_INDENT_MOST = 24, REPORT_ROWS = 10, REPORT_FRAMES = 24 };

/* ---- frames ---- */

/* Appends PATH with "." and ".." resolved: "/a/b/../c.py" becomes "/a/c.py". A ".." at the start of
 * a relative path is kept. */
static void add_path(struct buf *out, const char *path)
{
    const bool is_relative = *path != '/';
    size_t depth = 0; /* number of components after "/" or after the leading ".." */
    if (!is_relative)
        buf_add_byte(out, '/');
    const size_t root = out->len;
    for (const char *end; *path; path = *end ? end + 1 : end) {
        end = path + strcspn(path, "/");
        size_t len = (size_t)(end - path);
        bool is_up = len == 2 && memcmp(path, "..", 2) == 0;
        if (len == 0 || (len == 1 && *path == '.'))
            continue;
        if (is_up && depth > 0) {
            while (out->len > root && out->data[--out->len] != '/')
                ;
            depth--;
        } else if (!is_up || is_relative) {
            if (out->len > root)
                buf_add_byte(out, '/');
            buf_add(out, path, len);
            depth += !is_up;
        }
    }
}

/* Returns the file name. If the name begins with "__", such as "__init__.py", the folder precedes
 * it, because many packages have files with such names. */
static const char *path_base(const char *path)
{
    const char *base = strrchr(path, '/');
    if (!base || base == path)
        return path;
    bool is_common = strncmp(base + 1, "__", 2) == 0;
    while (is_common && base > path && base[-1] != '/')
        base--;
    return is_common ? base : base + 1;
}

/* Shortens "wrap.<locals>.inner" to "wrap.inner". */
static void add_function(struct buf *out, const struct profile_frame *f)
{
    static const char locals[] = ".<locals>";
    const char *at = f->function ? f->function : "", *found;
    for (; (found = strstr(at, locals)); at = found + sizeof locals - 1)
        buf_add(out, at, (size_t)(found - at));
    buf_add_str(out, at);
}

/* Returns true if the function is known only as "LIB+0x1234". */
static bool is_offset(const struct profile_frame *f)
{
    size_t len = f->lib ? strlen(f->lib) : 0;
    return len && f->function && strncmp(f->function, f->lib, len) == 0;
}

/* Appends a frame, such as "train.py:41 collate" or "c10::alloc_cpu (libc10.so)". PATH is the
 * file's path in the form to show, or NULL. */
static void add_frame_at(struct buf *out, const struct profile_frame *f, const char *path)
{
    if (path)
        buf_add_str(out, path);
    if (path && f->has_line)
        buf_printf(out, ":%" PRIu32, f->line);
    buf_add_str(out, path ? " " : "");
    add_function(out, f);
    if (f->lib && !path && !is_offset(f))
        buf_printf(out, " (%s)", f->lib);
}

static void add_frame(struct buf *out, const struct profile_frame *f, bool is_short)
{
    struct buf path = {0};
    if (f->file && is_short)
        buf_add_str(&path, path_base(f->file));
    else if (f->file)
        add_path(&path, f->file);
    add_frame_at(out, f, f->file ? buf_str(&path) : NULL);
    buf_fini(&path);
}

void heap_frame_doc(struct doc *d, const struct name *frame)
{
    const struct profile_frame f = profile_frame_of(frame);
    struct buf text = {0};
    add_frame(&text, &f, true);
    doc_text(d, TONE_PLAIN, buf_str(&text));
    buf_fini(&text);
}

/* Returns true if ROW merges several lines that allocate little and have the same caller. */
static bool is_merged(const struct profile_row *row)
{
    return row->has_in_program && row->place_count > 1;
}

static const struct profile_frame *head_of(const struct profile_row *row)
{
    return is_merged(row) ? &row->in_program : &row->where;
}

/* Appends the user's functions that led to the allocation: "← train.py:41 evaluate ← main". */
static void add_callers(struct buf *out, const struct profile_row *row)
{
    size_t before = out->len;
    if (row->has_in_program && !head_of(row)->is_own) {
        buf_add_str(out, "← ");
        add_frame(out, &row->in_program, true);
    }
    for (size_t i = 0; i < row->n_callers; i++) {
        bool is_first = out->len == before;
        buf_add_str(out, is_first ? "← " : " ← ");
        if (is_first)
            add_frame(out, &row->callers[i], true);
        else
            add_function(out, &row->callers[i]);
    }
}

/* ---- the table ---- */

/* Adds TEXT as a line below the row, and clears TEXT. */
static void heap_put_below(struct doc *d, enum doc_tone tone, struct buf *text)
{
    if (text->len)
        doc_below(d, tone, buf_str(text));
    buf_clear(text);
}

/* Adds the source lines that grew most, out of all lines that a merged row covers. */
static void heap_put_places(struct doc *d, const struct profile_row *row, struct buf *text)
{
    char cell[CELL_MAX];
    for (size_t i = 0; i < row->n_places; i++) {
        buf_printf(text, "%7s ", cell_rate(cell, true, row->places[i].growth_bytes));
        add_frame(text, &row->places[i].where, true);
        heap_put_below(d, TONE_DIM, text);
    }
    if (row->place_count > row->n_places)
        buf_printf(text, "and %" PRIu64 " more line%s", row->place_count - row->n_places,
                   row->place_count - row->n_places == 1 ? "" : "s");
}

/* Adds lines below ROW. They show either its stack, or its callers and, if ROW is a Python line,
 * the C function that allocates. In a report, HTML shows the stack and the other formats show the
 * callers. Outside a report, the callers are shown only if there is no stack. */
static void heap_put_details(struct doc *d, const struct profile_row *row, bool in_report)
{
    struct buf text = {0};
    const unsigned hidden = d->hidden;
    bool has_native = row->has_native && row->where.kind == NAME_PYTHON && !is_offset(&row->native);
    doc_hide(d, in_report ? hidden | DOC_TERMINAL | DOC_MARKDOWN : hidden);
    for (size_t i = 0; i < row->n_stack; i++) {
        add_frame(&text, &row->stack[i], !in_report);
        heap_put_below(d, row->stack[i].kind == NAME_PYTHON ? TONE_PLAIN : TONE_DIM, &text);
    }
    doc_hide(d, in_report ? hidden | DOC_HTML : hidden);
    if (in_report || !row->n_stack) {
        add_callers(&text, row);
        heap_put_below(d, TONE_PLAIN, &text);
        if (is_merged(row))
            heap_put_places(d, row, &text);
        if (!is_merged(row) && has_native) {
            buf_add_str(&text, "in ");
            add_frame(&text, &row->native, false);
        }
        if (!is_merged(row) && row->stacks > 1)
            buf_printf(&text, "%s%" PRIu64 " stacks", has_native ? ", " : "", row->stacks);
        heap_put_below(d, TONE_DIM, &text);
    }
    doc_hide(d, hidden);
    buf_fini(&text);
}

void heap_site_doc(struct doc *d, const struct profile_row *row)
{
    struct buf text = {0}, callers = {0};
    add_frame(&text, head_of(row), false);
    if (is_merged(row))
        buf_printf(&text, ", through %" PRIu64 " lines", row->place_count);
    add_callers(&callers, row);
    if (callers.len)
        buf_printf(&text, " %s", buf_str(&callers));
    doc_code(d, buf_str(&text));
    buf_fini(&callers);
    buf_fini(&text);
}

static char *count_text(char out[CELL_MAX], double n)
{
    static const char units[] = " KMGT";
    size_t u = 0;
    for (; n >= 9999.5 && units[u + 1]; u++)
        n /= 1000;
    snprintf(out, CELL_MAX, "%.0f%.*s", n, u > 0, &units[u]);
    return out;
}

/* Writes an age in one unit, such as "30s" or "12m". */
static char *age_text(char out[CELL_MAX], double s)
{
    double by = s < 100 ? 1 : s < 6000 ? 60 : s < 200000 ? 3600 : 86400;
    snprintf(out, CELL_MAX, "%.0f%s", s / by,
             by < 2      ? "s"
             : by < 100  ? "m"
             : by < 4000 ? "h"
                         : "d");
    return out;
}

static void heap_put_row(struct doc *d, const struct profile_view *v, const struct profile_row *row,
                         bool in_report)
{
    const unsigned hidden = d->hidden;
    const struct verdict_interval *step = &row->verdict.rate_bytes_per_step;
    const struct verdict_interval *minute = &row->verdict.rate_bytes_per_min;
    const struct profile_frame *head = head_of(row);
    char cell[CELL_MAX];
    struct buf where = {0}, path = {0};
    doc_row(d);
    doc_cell(d, TONE_STRONG, cell_rate(cell, true, row->growth_bytes));
    doc_cell(d, TONE_PLAIN, cell_rate(cell, v->has_steps && step->known, step->value));
    doc_cell(d, TONE_PLAIN, cell_rate(cell, minute->known, minute->value));
    doc_cell(d, TONE_PLAIN, cell_size(cell, row->live.bytes));
    doc_cell(
        d, TONE_PLAIN,
        cell_size(cell, row->live.high > row->live.bytes ? row->live.high - row->live.bytes : 0));
    doc_cell(d, TONE_PLAIN, count_text(cell, row->live_objects));
    doc_cell(d, TONE_PLAIN, age_text(cell, row->age_s));
    doc_cell(d, verdict_tone(&row->verdict), verdict_word_name(row->verdict.word));
    doc_cell(d, TONE_PLAIN, NULL);
    if (in_report) {
        doc_hide(d, hidden | DOC_TERMINAL);
        heap_site_doc(d, row);
        doc_hide(d, hidden | DOC_HTML | DOC_MARKDOWN);
    }
    if (row->has_gpu && v->n_gpus > 1)
        buf_printf(&where, "gpu %" PRIu64 ": ", row->gpu);
    if (head->file)
        add_path(&path, head->file);
    add_frame_at(&where, head, head->file ? path_below(buf_str(&path), v->cwd) : NULL);
    doc_text(d, TONE_PLAIN, buf_str(&where));
    doc_hide(d, hidden);
    buf_fini(&path);
    buf_fini(&where);
    heap_put_details(d, row, in_report);
}

static void heap_put_rows(struct doc *d, const struct profile_view *v, const char *meaning,
                          bool in_report)
{
    const unsigned by_minute = v->has_steps ? 7 : 3;
    const struct doc_column columns[] = {
        {.title = meaning, .is_number = true, .priority = 1},
        {.title = "per step", .is_number = true, .priority = 3},
        {.title = "per min", .is_number = true, .priority = by_minute},
        {.title = "live", .is_number = true, .priority = 2},
        {.title = "± 95 %", .is_number = true, .priority = 5},
        {.title = "objects", .is_number = true, .priority = 8},
        {.title = "age", .is_number = true, .priority = 6},
        {.title = "verdict", .priority = 4},
        {.title = "where", .cut = CUT_START, .least = WHERE_LEAST},
    };
    if (!v->n_rows) {
        doc_para(d, TONE_PLAIN);
        doc_text(d, TONE_PLAIN, "no sampled allocation is live");
        return;
    }
    doc_table(d, NULL, "table of call sites", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < v->n_rows; i++) {
        doc_hide(d, in_report && i >= REPORT_ROWS ? DOC_TERMINAL | DOC_MARKDOWN : 0);
        heap_put_row(d, v, &v->rows[i], in_report);
    }
    doc_hide(d, 0);
    if (v->row_count > v->n_rows) {
        doc_para(d, TONE_DIM);
        doc_textf(d, TONE_DIM, "and %" PRIu64 " more%s", v->row_count - v->n_rows,
                  in_report ? "" : " (--top N)");
    }
}

/* ---- the cost ---- */

static void heap_put_cost(struct doc *d, const struct profile_view *v)
{
    const struct profile_cost *c = &v->cost;
    char size[TEXT_SIZE_MAX], time[TEXT_TIME_MAX], version[PROFILE_VERSION_MAX];
    double hook_s = (double)c->hook_ns / 1e9;
    doc_fact(d, "cost");
    doc_itemf(d, TONE_PLAIN, "%" PRIu64 " samples", c->samples);
    doc_itemf(d, TONE_PLAIN, "%s of the job's time (%.2g %%)", text_duration(time, c->hook_ns),
              v->span_s > 0 ? hook_s / v->span_s * 100 : 0);
    doc_itemf(d, TONE_PLAIN, "one sample per %s",
              text_size(size, c->interval ? c->interval : c->base_interval));
    if (v->is_gpu && c->gpu_interval)
        doc_itemf(d, TONE_PLAIN, "on GPUs one sample per %s", text_size(size, c->gpu_interval));
    if (c->interval > c->base_interval)
        doc_itemf(d, TONE_PLAIN, "sampled less often than once per %s, to limit the cost",
                  text_size(size, c->base_interval));
    if (c->python_version) {
        doc_fact(d, "Python");
        doc_itemf(d, TONE_PLAIN, "%s", profile_python_version(version, c));
        doc_itemf(d, TONE_PLAIN, "%s", profile_python_state(c));
        doc_itemf(d, TONE_PLAIN, "small objects %s", c->python_small ? "included" : "not included");
    }
    for (size_t i = 0; i < HEAP_DROP_KINDS; i++) {
        if (!c->drops[i])
            continue;
        doc_fact(d, "dropped");
        doc_textf(d, TONE_PLAIN, "%" PRIu64 " × %s", c->drops[i], profile_drop_text(i));
    }
}

/* ---- GPUs ---- */

static void heap_put_failure(struct doc *d, const struct profile_failure *f)
{
    char size[TEXT_SIZE_MAX];
    struct buf text = {0};
    doc_fact(d, "failed");
    doc_itemf(d, TONE_PLAIN, "request of %s on gpu %" PRIu64, text_size(size, f->request_bytes),
              f->gpu);
    if (f->has_step)
        doc_itemf(d, TONE_PLAIN, "step %" PRId64, f->step);
    add_frame(&text, &f->where, true);
    doc_itemf(d, TONE_PLAIN, "%s", buf_str(&text));
    doc_itemf(d, TONE_PLAIN, "%s allocated", text_size(size, f->allocated_bytes));
    doc_itemf(d, TONE_PLAIN, "%s reserved", text_size(size, f->reserved_bytes));
    for (size_t i = 0; i < f->n_lines; i++) {
        buf_clear(&text);
        add_frame(&text, &f->lines[i].where, true);
        doc_fact(d, "");
        doc_itemf(d, TONE_PLAIN, "%s live", text_size(size, f->lines[i].live_bytes));
        doc_itemf(d, TONE_PLAIN, "%s", buf_str(&text));
    }
    buf_fini(&text);
}

static void heap_put_gpus(struct doc *d, const struct profile_view *v)
{
    char size[TEXT_SIZE_MAX], label[32];
    for (size_t i = 0; i < v->n_gpus; i++) {
        snprintf(label, sizeof label, "gpu %" PRIu64, v->gpus[i].gpu);
        doc_fact(d, label);
        doc_itemf(d, TONE_PLAIN, "%s allocated", text_size(size, v->gpus[i].allocated_bytes));
        doc_itemf(d, TONE_PLAIN, "%s reserved by PyTorch",
                  text_size(size, v->gpus[i].reserved_bytes));
        doc_itemf(d, TONE_PLAIN, "peak %s", text_size(size, v->gpus[i].allocated_peak_bytes));
    }
    if (v->failure_count) {
        doc_fact(d, "failed");
        doc_itemf(d, TONE_BAD, "%" PRIu64 " GPU request%s", v->failure_count,
                  v->failure_count == 1 ? "" : "s");
    }
    for (size_t i = 0; i < v->n_failures; i++)
        heap_put_failure(d, &v->failures[i]);
}

void heap_doc(struct doc *d, const struct profile_view *v, const char *meaning,
              const struct kept_list *kept)
{
    char bytes[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    char text[KEPT_TEXT_MAX];
    doc_fact(d, v->is_gpu ? "gpu" : "heap");
    doc_itemf(d, TONE_PLAIN, "process %d", (int)v->pid);
    doc_itemf(d, TONE_PLAIN, "%s live (%s – %s)", text_size(bytes, v->live.bytes),
              text_size(low, v->live.low), text_size(high, v->live.high));
    doc_itemf(d, TONE_PLAIN, "%s allocated in %s", text_size(bytes, v->allocated_bytes),
              text_seconds(time, v->span_s));
    if (v->has_steps)
        doc_itemf(d, TONE_PLAIN, "steps %" PRId64 " to %" PRId64, v->steps.first, v->steps.last);
    if (v->before_end_s > 0)
        doc_itemf(d, TONE_PLAIN, "read %s before the process exited",
                  text_seconds(time, v->before_end_s));
    if (v->is_gpu)
        heap_put_gpus(d, v);
    doc_space(d);
    heap_put_rows(d, v, meaning, false);
    doc_space(d);
    /* a stack shows the line that allocates; KEPT names the container that keeps the memory
     * alive */
    for (size_t i = 0; kept && i < kept->count; i++) {
        doc_fact(d, i ? "" : "kept by");
        doc_text(d, TONE_PLAIN, kept_text(text, kept, i));
    }
    heap_put_cost(d, v);
}

void heap_report_doc(struct doc *d, const struct profile_view *v)
{
    char size[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    const struct profile_row *first = v->rows;
    doc_para(d, TONE_PLAIN);
    doc_textf(d, TONE_PLAIN,
              "Process %d has a live heap of %s (%s – %s), estimated from sampled allocations.",
              (int)v->pid, text_size(size, v->live.bytes), text_size(low, v->live.low),
              text_size(high, v->live.high));
    if (v->is_gpu)
        heap_put_gpus(d, v);
    heap_put_rows(d, v, "growth", true);
    doc_hide(d, DOC_TERMINAL | DOC_HTML);
    if (v->n_rows && first->n_stack) {
        doc_para(d, TONE_PLAIN);
        doc_text(d, TONE_PLAIN, "The stack of the first call site, innermost frame on top:");
    }
    for (size_t i = 0; v->n_rows && i < first->n_stack && i <= REPORT_FRAMES; i++) {
        struct buf text = {0};
        add_frame(&text, &first->stack[i], false);
        doc_code_line(d, i < REPORT_FRAMES ? buf_str(&text) : "…");
        buf_fini(&text);
    }
    doc_hide(d, 0);
    if (v->has_tree)
        doc_canvas(d, v->is_gpu ? "flame-gpu" : "flame");
}

/* ---- the tree ---- */

static void heap_put_branch(struct doc *d, const struct profile_branch *b, uint64_t whole,
                            int depth)
{
    char cell[CELL_MAX];
    struct buf text = {0};
    int indent = 2 * depth < TREE_INDENT_MOST ? 2 * depth : TREE_INDENT_MOST;
    if (depth)
        add_frame(&text, &b->frame, true);
    doc_row(d);
    doc_cell(d, TONE_STRONG, cell_size(cell, b->live_bytes));
    doc_cellf(d, TONE_DIM, "%.0f %%", whole ? (double)b->live_bytes / (double)whole * 100 : 0);
    doc_cellf(d, TONE_PLAIN, "%*s%s", indent, "", depth ? buf_str(&text) : "all");
    buf_fini(&text);
    for (size_t i = 0; i < b->n_children; i++)
        heap_put_branch(d, &b->children[i], whole, depth + 1);
}

void heap_tree_doc(struct doc *d, const struct profile_branch *root)
{
    static const struct doc_column columns[] = {{.title = "live", .is_number = true},
                                                {.title = "share", .is_number = true},
                                                {.title = "where"}};
    doc_table(d, NULL, "calls", columns, sizeof columns / sizeof *columns);
    heap_put_branch(d, root, root->live_bytes, 0);
}

/* ---- the summary ---- */

void heap_summary(struct doc *d, const struct profile_row *rows, size_t count)
{
    char size[TEXT_SIZE_MAX];
    for (size_t i = 0; i < count; i++) {
        const struct verdict_interval *rate = &rows[i].verdict.rate_bytes_per_step;
        struct buf path = {0};
        doc_fact(d, i ? "" : "grows");
        doc_itemf(d, TONE_STRONG, "%s",
                  text_size_signed(size, number_to_i64(rows[i].growth_bytes)));
        if (rate->known)
            doc_itemf(d, TONE_PLAIN, "%s/step", text_size_signed(size, number_to_i64(rate->value)));
        doc_itemf(d, TONE_PLAIN, "%s", verdict_word_name(rows[i].verdict.word));
        add_frame(&path, head_of(&rows[i]), true);
        buf_add_byte(&path, ' ');
        add_callers(&path, &rows[i]);
        doc_itemf(d, TONE_PLAIN, "%s", buf_str(&path));
        buf_fini(&path);
    }
}
