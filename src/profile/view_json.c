/* Converts a heap profile to JSON and back. */
#include "profile/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/codec.h"
#include "profile/words.h"
#include "verdict/verdict_json.h"

#define FRAME struct profile_frame
#define ROW struct profile_row

static const char *const kind_names[] = {
    [NAME_PYTHON] = "python", [NAME_NATIVE] = "native", [NAME_UNKNOWN] = "unknown", NULL};

static const struct codec frame_fields[] = {
    CODEC_NAMED(FRAME, kind, "kind", kind_names),
    CODEC_OWNED(FRAME, function, "function", CODEC_OR_NULL),
    CODEC_OWNED(FRAME, file, "file", CODEC_OR_NULL),
    CODEC_NULL(FRAME, line, "line", CODEC_UINT),
    CODEC_OWNED(FRAME, lib, "lib", CODEC_OR_NULL),
    CODEC_FIELD(FRAME, is_inlined, "inlined", CODEC_BOOL),
    CODEC_FIELD(FRAME, is_own, "own", CODEC_BOOL),
    {0},
};

static const struct codec bytes_fields[] = {
    CODEC_FIELD(struct profile_bytes, bytes, "bytes", CODEC_UINT),
    CODEC_FIELD(struct profile_bytes, low, "low", CODEC_UINT),
    CODEC_FIELD(struct profile_bytes, high, "high", CODEC_UINT),
    {0},
};

static const struct codec place_fields[] = {
    CODEC_PART(struct profile_place, where, "where", frame_fields),
    CODEC_FIELD(struct profile_place, growth_bytes, "growth_bytes", CODEC_REAL),
    CODEC_FIELD(struct profile_place, live_bytes, "live_bytes", CODEC_UINT),
    {0},
};

/* All fields of a row except "verdict". */
static const struct codec row_fields[] = {
    CODEC_OPTION(ROW, gpu, "gpu", CODEC_UINT),
    CODEC_PART(ROW, where, "where", frame_fields),
    CODEC_PART_HAS(ROW, in_program, "in_program", frame_fields, CODEC_OR_NULL),
    CODEC_MANY(ROW, callers, n_callers, "callers", frame_fields, CODEC_REQUIRED),
    CODEC_PART_HAS(ROW, native, "native", frame_fields, CODEC_OR_NULL),
    CODEC_PART(ROW, live, "live", bytes_fields),
    CODEC_FIELD(ROW, allocated_bytes, "allocated_bytes", CODEC_UINT),
    CODEC_FIELD(ROW, survivor_bytes, "survivor_bytes", CODEC_UINT),
    CODEC_FIELD(ROW, live_objects, "live_objects", CODEC_REAL),
    CODEC_FIELD(ROW, age_s, "age_s", CODEC_REAL),
    CODEC_FIELD(ROW, growth_bytes, "growth_bytes", CODEC_REAL),
    CODEC_FIELD(ROW, growth_sigma_bytes, "growth_sigma_bytes", CODEC_REAL),
    CODEC_FIELD(ROW, stacks, "stacks", CODEC_UINT),
    CODEC_OPTION(ROW, place_count, "place_count", CODEC_UINT),
    CODEC_MANY(ROW, places, n_places, "places", place_fields, CODEC_OR_NOTHING),
    CODEC_MANY(ROW, stack, n_stack, "stack", frame_fields, CODEC_OR_NOTHING),
    {0},
};

static const struct codec branch_fields[6];
static const struct codec branch_fields[6] = {
    CODEC_FLAT(struct profile_branch, frame, frame_fields),
    CODEC_FIELD(struct profile_branch, live_bytes, "live_bytes", CODEC_UINT),
    CODEC_FIELD(struct profile_branch, own_bytes, "own_bytes", CODEC_UINT),
    CODEC_FIELD(struct profile_branch, left_out_bytes, "left_out_bytes", CODEC_UINT),
    CODEC_MANY(struct profile_branch, children, n_children, "children", branch_fields,
               CODEC_REQUIRED),
    {0},
};

static const struct codec steps_fields[] = {
    CODEC_FIELD(struct profile_steps, first, "first", CODEC_INT),
    CODEC_FIELD(struct profile_steps, last, "last", CODEC_INT),
    {0},
};

static const struct codec gpu_fields[] = {
    CODEC_FIELD(struct profile_view_gpu, gpu, "gpu", CODEC_UINT),
    CODEC_FIELD(struct profile_view_gpu, allocated_bytes, "allocated_bytes", CODEC_UINT),
    CODEC_FIELD(struct profile_view_gpu, reserved_bytes, "reserved_bytes", CODEC_UINT),
    CODEC_FIELD(struct profile_view_gpu, allocated_peak_bytes, "allocated_peak_bytes", CODEC_UINT),
    {0},
};

#define FAILURE struct profile_failure
static const struct codec failure_line_fields[] = {
    CODEC_PART(struct profile_failure_line, where, "where", frame_fields),
    CODEC_FIELD(struct profile_failure_line, live_bytes, "live_bytes", CODEC_UINT),
    {0},
};

static const struct codec failure_fields[] = {
    CODEC_FIELD(FAILURE, number, "number", CODEC_UINT),
    CODEC_FIELD(FAILURE, gpu, "gpu", CODEC_UINT),
    CODEC_FIELD(FAILURE, t_s, "t_s", CODEC_REAL),
    CODEC_NULL(FAILURE, step, "step", CODEC_INT),
    CODEC_FIELD(FAILURE, request_bytes, "request_bytes", CODEC_UINT),
    CODEC_FIELD(FAILURE, allocated_bytes, "allocated_bytes", CODEC_UINT),
    CODEC_FIELD(FAILURE, reserved_bytes, "reserved_bytes", CODEC_UINT),
    CODEC_PART(FAILURE, where, "where", frame_fields),
    CODEC_MANY(FAILURE, lines, n_lines, "lines", failure_line_fields, CODEC_REQUIRED),
    {0},
};

/* All fields of the view except "rows", "cost" and "tree". */
static const struct codec view_fields[] = {
    CODEC_FIELD(struct profile_view, pid, "pid", CODEC_INT),
    CODEC_PART(struct profile_view, live, "live", bytes_fields),
    CODEC_FIELD(struct profile_view, allocated_bytes, "allocated_bytes", CODEC_UINT),
    CODEC_FIELD(struct profile_view, span_s, "span_s", CODEC_REAL),
    CODEC_FIELD(struct profile_view, before_end_s, "before_end_s", CODEC_REAL),
    CODEC_PART_HAS(struct profile_view, steps, "steps", steps_fields, CODEC_OR_NULL),
    CODEC_FIELD(struct profile_view, row_count, "row_count", CODEC_UINT),
    {0},
};

/* Additional fields of a view of GPU memory. */
static const struct codec view_gpu_fields[] = {
    CODEC_MANY(struct profile_view, gpus, n_gpus, "gpus", gpu_fields, CODEC_REQUIRED),
    CODEC_FIELD(struct profile_view, failure_count, "out_of_memory_count", CODEC_UINT),
    CODEC_MANY(struct profile_view, failures, n_failures, "out_of_memory", failure_fields,
               CODEC_REQUIRED),
    {0},
};

json_t *profile_rows_json(const struct profile_view *v, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->n_rows && i < n; i++) {
        json_t *row = codec_json(row_fields, &v->rows[i]);
        json_object_set_new(row, "verdict", verdict_result_json(&v->rows[i].verdict));
        json_array_append_new(list, row);
    }
    return list;
}

json_t *profile_json(const struct profile_view *v)
{
    json_t *doc = codec_json(view_fields, v);
    json_object_set_new(doc, "rows", profile_rows_json(v, v->n_rows));
    json_object_set_new(doc, "cost", profile_cost_json(&v->cost));
    json_t *gpu = v->is_gpu ? codec_json(view_gpu_fields, v) : NULL;
    if (gpu)
        json_object_update(doc, gpu);
    json_decref(gpu);
    if (!v->has_tree)
        return doc;
    json_t *tree = codec_json(branch_fields, &v->tree);
    json_object_set_new(tree, "kind", json_string("root"));
    json_object_set_new(tree, "function", json_string(""));
    json_object_set_new(doc, "tree", tree);
    return doc;
}

int profile_rows_read(const json_t *rows, struct profile_view *ret)
{
    size_t count = json_array_size(rows);
    *ret = (struct profile_view){.rows = calloc(count + 1, sizeof *ret->rows)};
    int r = ret->rows ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < count; i++) {
        const json_t *row = json_array_get(rows, i);
        r = codec_read(row_fields, row, &ret->rows[i], NULL);
        verdict_read(json_object_get(row, "verdict"), &ret->rows[i].verdict);
        ret->row_count = ret->n_rows = i + 1;
    }
    if (r < 0)
        profile_view_fini(ret);
    return r;
}

void profile_view_fini(struct profile_view *v)
{
    for (size_t i = 0; i < v->n_rows; i++)
        codec_fini(row_fields, &v->rows[i]);
    free(v->rows);
    codec_fini(view_gpu_fields, v);
    codec_fini(branch_fields, &v->tree);
    *v = (struct profile_view){0};
}
