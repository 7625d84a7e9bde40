/* Tests the layout of each interpreter version, and the offsets published since Python 3.13. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "heap/python_layout.h"

/* Each word of _Py_DebugOffsets encodes its position, so that an offset read from the wrong
 * position is detected. */
enum { WORDS = 128 };
struct runtime {
    uint64_t words[WORDS];
};

static struct runtime runtime_of(uint32_t version)
{
    struct runtime r;
    for (uint64_t i = 0; i < WORDS; i++)
        r.words[i] = i * 8;
    memcpy(r.words, "xdebugpy", 8);
    r.words[1] = version;
    r.words[2] = 0;
    return r;
}

static void python_version_strings_are_parsed(void **state)
{
    (void)state;
    assert_int_equal(python_layout_version("3.9.2 (default, Feb 28 2021, 17:03:44)"), 0x030902f0);
    assert_int_equal(python_layout_version("3.10.12 (main)"), 0x030a0cf0);
    assert_int_equal(python_layout_version("3.11.0rc1"), 0x030b00f0);
    assert_int_equal(python_layout_version(""), 0);
    assert_int_equal(python_layout_version("3"), 0);
    assert_int_equal(python_layout_version("3.9"), 0);
    assert_int_equal(python_layout_version("3.x.1"), 0);
    assert_int_equal(python_layout_version("3.999.1"), 0);
    assert_int_equal(python_layout_version("PyPy"), 0);
}

static void unsupported_python_versions_are_reported_as_unknown(void **state)
{
    (void)state;
    const uint32_t versions[] = {0, 0x02070ff0, 0x030800f0, 0x030f00a1, 0x040000f0};
    for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
        struct runtime r = runtime_of(versions[i]);
        struct python_layout l = {.thread_frame = 77};
        assert_int_equal(python_layout_find(versions[i], &r, &l), HEAP_PYTHON_VERSION);
        assert_int_equal(l.thread_frame, 77);
    }
}

static void layout_of_python_before_3_13_is_built_in(void **state)
{
    (void)state;
    struct python_layout l9, l10, l11, l12;
    assert_int_equal(python_layout_find(0x030902f0, NULL, &l9), HEAP_PYTHON_OK);
    assert_int_equal(python_layout_find(0x030a0cf0, NULL, &l10), HEAP_PYTHON_OK);
    assert_int_equal(python_layout_find(0x030b02f0, NULL, &l11), HEAP_PYTHON_OK);
    assert_int_equal(python_layout_find(0x030c03f0, NULL, &l12), HEAP_PYTHON_OK);
    assert_int_equal(l9.instr, PYTHON_INSTR_BYTES);
    assert_int_equal(l10.instr, PYTHON_INSTR_UNITS);
    assert_int_equal(l11.instr, PYTHON_INSTR_POINTER);
    assert_int_equal(l9.entry, PYTHON_ENTRY_ALL);
    assert_int_equal(l11.entry, PYTHON_ENTRY_FIELD);
    assert_int_equal(l12.entry, PYTHON_ENTRY_BELOW);
    assert_false(l10.has_cframe);
    assert_true(l11.has_cframe && l12.has_cframe);
}

/* The positions of the fields were counted by hand in the header of Python 3.13. */
static void debug_offsets_of_python_3_13_are_read(void **state)
{
    (void)state;
    struct runtime r = runtime_of(0x030d01f0);
    struct python_layout l;
    assert_int_equal(python_layout_find(0x030d01f0, &r, &l), HEAP_PYTHON_OK);
    assert_int_equal(l.thread_frame, 8 * (6 + 13 + 4));
    const uint16_t frame = 6 + 13 + 9, code = frame + 6, object = code + 10;
    assert_int_equal(l.frame_back, 8 * (frame + 1));
    assert_int_equal(l.frame_code, 8 * (frame + 2));
    assert_int_equal(l.frame_instr, 8 * (frame + 3));
    assert_int_equal(l.frame_owner, 8 * (frame + 5));
    assert_int_equal(l.code_file, 8 * (code + 1));
    assert_int_equal(l.code_name, 8 * (code + 3));
    assert_int_equal(l.code_lines, 8 * (code + 4));
    assert_int_equal(l.code_first_line, 8 * (code + 5));
    assert_int_equal(l.code_instrs, 8 * (code + 9));
    assert_int_equal(l.code_first_traceable, 8 * (code + 9) - 16);
    assert_int_equal(l.object_type, 8 * (object + 1));
    /* Number of words by object type: type 4, tuple 3, list 3, dict 3, float 2, long 3. */
    const uint16_t bytes = object + 2 + 4 + 3 + 3 + 3 + 2 + 3, text = bytes + 3;
    assert_int_equal(l.bytes_size, 8 * (bytes + 1));
    assert_int_equal(l.bytes_data, 8 * (bytes + 2));
    assert_int_equal(l.text_state, 8 * (text + 1));
    assert_int_equal(l.text_length, 8 * (text + 2));
    assert_int_equal(l.text_ascii, 8 * (text + 3));
    assert_int_equal(l.text_other, 8 * (text + 3) + 16);
    assert_false(l.has_cframe);
    assert_int_equal(l.entry, PYTHON_ENTRY_BELOW);
}

static void debug_offsets_of_python_3_14_are_read(void **state)
{
    (void)state;
    struct runtime r = runtime_of(0x030e00f0);
    struct python_layout l;
    assert_int_equal(python_layout_find(0x030e00f0, &r, &l), HEAP_PYTHON_OK);
    assert_int_equal(l.thread_frame, 8 * (6 + 16 + 4));
    const uint16_t frame = 6 + 16 + 9, code = frame + 8, object = code + 11;
    assert_int_equal(l.frame_back, 8 * (frame + 1));
    assert_int_equal(l.frame_owner, 8 * (frame + 5));
    assert_int_equal(l.code_file, 8 * (code + 1));
    assert_int_equal(l.code_instrs, 8 * (code + 9));
    assert_int_equal(l.object_type, 8 * (object + 1));
    /* Number of words by object type: type 4, tuple 3, list 3, set 4, dict 3, float 2, long 3. */
    const uint16_t bytes = object + 2 + 4 + 3 + 3 + 4 + 3 + 2 + 3, text = bytes + 3;
    assert_int_equal(l.bytes_data, 8 * (bytes + 2));
    assert_int_equal(l.text_state, 8 * (text + 1));
    assert_int_equal(l.text_ascii, 8 * (text + 3));
}

static void debug_offsets_out_of_range_are_refused(void **state)
{
    (void)state;
    struct python_layout l = {.thread_frame = 77};
    assert_int_equal(python_layout_find(0x030d01f0, NULL, &l), HEAP_PYTHON_CHECK);
    struct runtime r = runtime_of(0x030d01f0);
    assert_int_equal(python_layout_find(0x030d02f0, &r, &l), HEAP_PYTHON_CHECK);
    memcpy(r.words, "xdebugpx", 8);
    assert_int_equal(python_layout_find(0x030d01f0, &r, &l), HEAP_PYTHON_CHECK);
    r = runtime_of(0x030d01f0);
    r.words[6 + 13 + 4] = UINT64_C(1) << 40;
    assert_int_equal(python_layout_find(0x030d01f0, &r, &l), HEAP_PYTHON_CHECK);
    assert_int_equal(l.thread_frame, 77);
}

static void free_threaded_interpreter_is_refused(void **state)
{
    (void)state;
    struct python_layout l = {.thread_frame = 77};
    struct runtime r = runtime_of(0x030e00f0);
    r.words[2] = 1;
    assert_int_equal(python_layout_find(0x030e00f0, &r, &l), HEAP_PYTHON_FREE_THREADED);
    assert_int_equal(l.thread_frame, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(python_version_strings_are_parsed),
        cmocka_unit_test(unsupported_python_versions_are_reported_as_unknown),
        cmocka_unit_test(layout_of_python_before_3_13_is_built_in),
        cmocka_unit_test(debug_offsets_of_python_3_13_are_read),
        cmocka_unit_test(debug_offsets_of_python_3_14_are_read),
        cmocka_unit_test(debug_offsets_out_of_range_are_refused),
        cmocka_unit_test(free_threaded_interpreter_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
