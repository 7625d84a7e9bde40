/* Tests exports by reading them back: gunzipped protobuf, collapsed stacks and JSON. */
#include "profile/export.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "profile/known_heap.h"

typedef int export_fn(const struct profile *p, struct names *names, FILE *out, struct err *err);

struct fixture {
    struct known_heap heap;
    struct names *names;
    char *text;
    size_t len;
};

/* The profile has main → collate → libgone+0x20 (1 MiB), main → collate (2 KiB), names with
 * separators, a site without a stack, a site without live bytes, and a site with less than half a
 * byte. */
static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct symbols_options options = {0};
    struct known_heap *h = &f->heap;
    known_heap_init(h);
    uint32_t main_node = known_python(h, 0, "/home/u/train.py", "main", 12);
    uint32_t collate = known_python(h, main_node, "/home/u/data.py", "Set.collate", 40);
    uint32_t evil = known_python(h, main_node, "a;b\n.py", "\x1b[31m\xff;x y", 7);
    known_site(h, known_native(h, collate, 1, 0x20), 1048576.4, 3.2, 5e6);
    known_site(h, collate, 2048, 1, 2048);
    known_site(h, known_native(h, evil, 2, 0x99), 100, 1, 100);
    known_site(h, 0, 50, 1, 50);
    known_site(h, main_node, 0, 0, 900);
    known_site(h, known_native(h, main_node, 0, 0x7f01), 0.4, 0.1, 0.4);
    assert_int_equal(names_new(&h->profile, &options, &f->names), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    names_free(f->names);
    free(f->text);
    free(f);
    return 0;
}

static void export(struct fixture *f, export_fn *fn)
{
    struct err err = {{0}};
    FILE *out = open_memstream(&f->text, &f->len);
    assert_int_equal(fn(&f->heap.profile, f->names, out, &err), 0);
    assert_int_equal(fclose(out), 0);
}

static void collapsed_stacks_have_the_outermost_frame_first(void **state)
{
    struct fixture *f = *state;
    export(f, profile_export_collapsed);
    assert_string_equal(
        f->text,
        "main (train.py:12);Set.collate (data.py:40);libgone.so.1+0x20 (libgone.so.1) 1048576\n"
        "main (train.py:12);Set.collate (data.py:40) 2048\n"
        "main (train.py:12);\\e[31m\\xff:x y (a:b\\n.py:7);"
        "\\e[31m:odd\\n.so+0x99 (\\e[31m:odd\\n.so) 100\n"
        "(no stack) 50\n");
}

static void check_frame(const json_t *frames, const json_t *stack, size_t at, const char *name,
                        const char *file, json_int_t line)
{
    const json_t *frame =
        json_array_get(frames, (size_t)json_integer_value(json_array_get(stack, at)));
    assert_string_equal(json_string_value(json_object_get(frame, "name")), name);
    assert_string_equal(json_string_value(json_object_get(frame, "file")), file);
    assert_int_equal(json_integer_value(json_object_get(frame, "line")), line);
}

static void speedscope_export_lists_each_frame_once_and_has_all_bytes(void **state)
{
    struct fixture *f = *state;
    export(f, profile_export_speedscope);
    json_t *doc = json_loadb(f->text, f->len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(doc);
    assert_string_equal(json_string_value(json_object_get(doc, "$schema")),
                        "https://www.speedscope.app/file-format-schema.json");
    const json_t *frames = json_object_get(json_object_get(doc, "shared"), "frames");
    const json_t *profile = json_array_get(json_object_get(doc, "profiles"), 0);
    const json_t *samples = json_object_get(profile, "samples");
    const json_t *weights = json_object_get(profile, "weights");
    json_int_t sum = 0;
    size_t i;
    json_t *weight;
    assert_int_equal(json_array_size(frames), 6);
    assert_int_equal(json_array_size(samples), 4);
    assert_int_equal(json_array_size(weights), 4);
    json_array_foreach(weights, i, weight) sum += json_integer_value(weight);
    assert_int_equal(sum, 1048576 + 2048 + 100 + 50);
    assert_int_equal(json_integer_value(json_object_get(profile, "endValue")), sum);
    assert_string_equal(json_string_value(json_object_get(profile, "unit")), "bytes");
    assert_string_equal(json_string_value(json_object_get(profile, "type")), "sampled");
    const json_t *stack = json_array_get(samples, 0);
    assert_int_equal(json_array_size(stack), 3);
    check_frame(frames, stack, 0, "main", "/home/u/train.py", 12);
    check_frame(frames, stack, 1, "Set.collate", "/home/u/data.py", 40);
    check_frame(frames, stack, 2, "libgone.so.1+0x20", "libgone.so.1", 0);
    json_decref(doc);
}

/* ---- a minimal protobuf reader ---- */

struct field {
    uint64_t number;
    uint64_t value;   /* Value of a varint field. */
    const char *data; /* content of a length-delimited field */
    size_t len;
};

static bool next_field(struct cur *c, struct field *ret)
{
    if (cur_left(c) == 0)
        return false;
    uint64_t tag = cur_varint(c);
    *ret = (struct field){.number = tag >> 3};
    assert_true((tag & 7) == 0 || (tag & 7) == 2);
    if ((tag & 7) == 0)
        ret->value = cur_varint(c);
    else
        ret->data = cur_blob(c, &ret->len);
    assert_false(c->bad);
    return true;
}

/* Finds the Nth field NUMBER of a message, or returns false. */
static bool get(const char *message, size_t len, uint64_t number, size_t n, struct field *ret)
{
    struct cur c = cur_of(message, len);
    while (next_field(&c, ret))
        if (ret->number == number && n-- == 0)
            return true;
    return false;
}

static uint64_t value(const struct field *message, uint64_t number)
{
    struct field f;
    return get(message->data, message->len, number, 0, &f) ? f.value : 0;
}

struct decoded {
    struct buf all;
};

static struct decoded gunzip(const char *data, size_t len)
{
    struct decoded d = {{0}};
    z_stream z = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)len};
    assert_int_equal(buf_reserve(&d.all, 1 << 20), 0);
    z.next_out = (Bytef *)d.all.data;
    z.avail_out = 1 << 20;
    assert_int_equal(inflateInit2(&z, MAX_WBITS + 16), Z_OK);
    assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(z.avail_in, 0);
    d.all.len = z.total_out;
    inflateEnd(&z);
    return d;
}

static bool top(const struct decoded *d, uint64_t number, size_t n, struct field *ret)
{
    return get(d->all.data, d->all.len, number, n, ret);
}

static const char *string_at(const struct decoded *d, uint64_t n)
{
    static char text[4][256];
    static unsigned turn;
    struct field f;
    char *out = text[turn++ % 4];
    assert_true(top(d, 6, n, &f));
    snprintf(out, sizeof(text[0]), "%.*s", (int)f.len, f.data);
    return out;
}

static bool by_id(const struct decoded *d, uint64_t kind, uint64_t id, struct field *ret)
{
    for (size_t i = 0; top(d, kind, i, ret); i++)
        if (value(ret, 1) == id)
            return true;
    return false;
}

/* Checks function, file, line and mapping of a location. */
static void check_location(const struct decoded *d, uint64_t id, const char *function,
                           const char *file, uint64_t line, uint64_t mapping, uint64_t address)
{
    struct field location, line_field, function_field;
    assert_true(by_id(d, 4, id, &location));
    assert_true(get(location.data, location.len, 4, 0, &line_field));
    assert_true(by_id(d, 5, value(&line_field, 1), &function_field));
    assert_string_equal(string_at(d, value(&function_field, 2)), function);
    assert_string_equal(string_at(d, value(&function_field, 4)), file);
    assert_int_equal(value(&line_field, 2), line);
    assert_int_equal(value(&location, 2), mapping);
    assert_int_equal(value(&location, 3), address);
}

/* Reads the packed numbers of field NUMBER in MESSAGE. */
static size_t packed(const struct field *message, uint64_t number, uint64_t *ret, size_t max)
{
    struct field f;
    size_t n = 0;
    if (!get(message->data, message->len, number, 0, &f))
        return 0;
    for (struct cur c = cur_of(f.data, f.len); cur_left(&c);) {
        assert_true(n < max);
        ret[n++] = cur_varint(&c);
        assert_false(c.bad);
    }
    return n;
}

static void check_sample(const struct decoded *d, size_t n, uint64_t allocated_objects,
                         uint64_t allocated_bytes, uint64_t objects, uint64_t bytes)
{
    struct field sample;
    uint64_t values[5];
    assert_true(top(d, 2, n, &sample));
    assert_int_equal(packed(&sample, 2, values, 5), 4);
    assert_int_equal(values[0], allocated_objects);
    assert_int_equal(values[1], allocated_bytes);
    assert_int_equal(values[2], objects);
    assert_int_equal(values[3], bytes);
}

static void pprof_export_has_stacks_with_the_innermost_frame_first(void **state)
{
    struct fixture *f = *state;
    struct field sample;
    uint64_t ids[8];
    for (size_t i = 0; i < f->heap.readings[1].count; i++)
        f->heap.held[i].allocated_objects = 10.0 * (double)(i + 1);
    export(f, profile_export_pprof);
    struct decoded d = gunzip(f->text, f->len);
    check_sample(&d, 0, 10, 5000000, 3, 1048576);
    check_sample(&d, 1, 20, 2048, 1, 2048);
    check_sample(&d, 2, 30, 100, 1, 100);
    check_sample(&d, 3, 40, 50, 1, 50);
    check_sample(&d, 4, 50, 900, 0, 0); /* This call site has allocations but no live bytes. */
    assert_false(top(&d, 2, 5, &sample));
    assert_true(top(&d, 2, 0, &sample));
    assert_int_equal(packed(&sample, 1, ids, 8), 3);
    check_location(&d, ids[0], "libgone.so.1+0x20", "", 0, 1, 0x7f0000000020);
    check_location(&d, ids[1], "Set.collate", "/home/u/data.py", 40, 0, 0);
    check_location(&d, ids[2], "main", "/home/u/train.py", 12, 0, 0);
    assert_true(top(&d, 2, 2, &sample));
    assert_int_equal(packed(&sample, 1, ids, 8), 3);
    check_location(&d, ids[1], "\\e[31m\\xff;x y", "a;b\\n.py", 7, 0, 0);
    assert_true(top(&d, 2, 3, &sample));
    assert_int_equal(packed(&sample, 1, ids, 8), 1);
    check_location(&d, ids[0], "(no stack)", "", 0, 0, 0);
    buf_fini(&d.all);
}

static void pprof_export_has_sample_types_and_units(void **state)
{
    static const char *const types[][2] = {{"alloc_objects", "count"},
                                           {"alloc_space", "bytes"},
                                           {"inuse_objects", "count"},
                                           {"inuse_space", "bytes"}};
    struct fixture *f = *state;
    struct field field;
    export(f, profile_export_pprof);
    struct decoded d = gunzip(f->text, f->len);
    assert_string_equal(string_at(&d, 0), "");
    for (size_t i = 0; i < 4; i++) {
        assert_true(top(&d, 1, i, &field));
        assert_string_equal(string_at(&d, value(&field, 1)), types[i][0]);
        assert_string_equal(string_at(&d, value(&field, 2)), types[i][1]);
    }
    assert_false(top(&d, 1, 4, &field));
    assert_true(top(&d, 14, 0, &field));
    assert_string_equal(string_at(&d, field.value), "inuse_space");
    assert_true(top(&d, 12, 0, &field));
    assert_int_equal(field.value, 524288);
    assert_true(top(&d, 10, 0, &field));
    assert_int_equal(field.value, 4000);
    assert_true(by_id(&d, 3, 1, &field));
    assert_int_equal(value(&field, 2), 0x7f0000000000);
    assert_int_equal(value(&field, 3), 0x7f0000000021);
    assert_string_equal(string_at(&d, value(&field, 5)), "/gone/libgone.so.1");
    assert_string_equal(string_at(&d, value(&field, 6)), "01020304");
    buf_fini(&d.all);
}

static void profile_export_without_readings_is_an_error(void **state)
{
    static export_fn *const all[] = {profile_export_pprof, profile_export_collapsed,
                                     profile_export_speedscope};
    struct fixture *f = *state;
    f->heap.profile.n_readings = 0;
    for (size_t i = 0; i < 3; i++) {
        struct err err = {{0}};
        FILE *out = fopen("/dev/null", "we");
        assert_int_equal(all[i](&f->heap.profile, f->names, out, &err), -ENODATA);
        assert_string_equal(err.text, "the heap of process 42 was never read: nothing to export");
        fclose(out);
    }
}

static void export_of_a_heap_without_live_bytes_has_no_samples(void **state)
{
    struct fixture *f = *state;
    f->heap.readings[0].count = f->heap.readings[1].count = 0;
    export(f, profile_export_collapsed);
    assert_string_equal(f->text, "");
    free(f->text);
    export(f, profile_export_speedscope);
    json_t *doc = json_loadb(f->text, f->len, 0, NULL);
    assert_non_null(doc);
    json_decref(doc);
    free(f->text);
    export(f, profile_export_pprof);
    struct decoded d = gunzip(f->text, f->len);
    struct field field;
    assert_false(top(&d, 2, 0, &field));
    buf_fini(&d.all);
}

static void profile_export_does_not_crash_on_sizes_out_of_range(void **state)
{
    static export_fn *const all[] = {profile_export_pprof, profile_export_speedscope,
                                     profile_export_collapsed};
    struct fixture *f = *state;
    f->heap.held[1].live_bytes = -1e300;
    f->heap.held[2].live_bytes = __builtin_nan("");
    f->heap.held[3].live_bytes = 1e300;
    for (size_t i = 0; i < 3; i++) {
        free(f->text);
        f->text = NULL;
        export(f, all[i]);
        assert_true(f->len > 0);
    }
    assert_non_null(strstr(f->text, "(no stack) 9223372036854775807\n"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(collapsed_stacks_have_the_outermost_frame_first),
        TEST(speedscope_export_lists_each_frame_once_and_has_all_bytes),
        TEST(pprof_export_has_stacks_with_the_innermost_frame_first),
        TEST(pprof_export_has_sample_types_and_units),
        TEST(profile_export_without_readings_is_an_error),
        TEST(export_of_a_heap_without_live_bytes_has_no_samples),
        TEST(profile_export_does_not_crash_on_sizes_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
