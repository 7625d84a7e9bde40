/* Tests strings and line tables of code objects, and code replaced by other code at the same
 * address. The objects are built by hand with the layout of Python 3.11. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "heap/heap.h"
#include "heap/python_code.h"

enum { OBJECT_MAX = 1 << 18, THREADS = 4, THREAD_CODES = 500 };

static const char code_type, text_type, bytes_type;
static const struct python_symbols symbols = {
    .code_type = &code_type, .text_type = &text_type, .bytes_type = &bytes_type};
static struct python_layout layout;

/* Replacements for parts of other files, reduced to what the tests need. */
struct heap_process heap_process;
static _Atomic(uint32_t) text_limit;

struct heap_text heap_text_add(struct heap_table *t, const void *bytes, size_t len)
{
    uint32_t at = atomic_fetch_add(&t->header.text_bytes, (uint32_t)len);
    if (at + len > text_limit)
        return (struct heap_text){0};
    memcpy(&t->text[at], bytes, len);
    return (struct heap_text){.at = at, .len = (uint32_t)len};
}

static int set_up(void **state)
{
    (void)state;
    heap_process.table = calloc(1, sizeof(struct heap_table));
    assert_non_null(heap_process.table);
    assert_int_equal(python_layout_find(0x030b02f0, NULL, &layout), HEAP_PYTHON_OK);
    text_limit = HEAP_TEXT_BYTES;
    python_code_reset();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(heap_process.table);
    return 0;
}

struct object {
    _Alignas(16) uint8_t bytes[OBJECT_MAX];
};

static void set_word(void *object, uint16_t offset, uintptr_t word)
{
    memcpy((uint8_t *)object + offset, &word, sizeof(word));
}

static void set_int(void *object, uint16_t offset, uint32_t value)
{
    memcpy((uint8_t *)object + offset, &value, sizeof(value));
}

/* Builds a string of COUNT characters of WIDTH bytes each. */
static void make_text(void *ret, const void *data, size_t count, uint32_t width, bool is_ascii)
{
    set_word(ret, layout.object_type, (uintptr_t)&text_type);
    set_word(ret, layout.text_length, count);
    set_int(ret, layout.text_state, width << 2 | 1U << 5 | (uint32_t)is_ascii << 6);
    memcpy((uint8_t *)ret + (is_ascii ? layout.text_ascii : layout.text_other), data,
           count * width);
}

static void make_ascii(void *ret, const char *text)
{
    make_text(ret, text, strlen(text), 1, true);
}

static void make_bytes(void *ret, const void *data, size_t size)
{
    set_word(ret, layout.object_type, (uintptr_t)&bytes_type);
    set_word(ret, layout.bytes_size, size);
    memcpy((uint8_t *)ret + layout.bytes_data, data, size);
}

static void make_code(void *ret, const void *file, const void *name, const void *lines,
                      uint32_t first)
{
    set_word(ret, layout.object_type, (uintptr_t)&code_type);
    set_word(ret, layout.code_file, (uintptr_t)file);
    set_word(ret, layout.code_name, (uintptr_t)name);
    set_word(ret, layout.code_lines, (uintptr_t)lines);
    set_int(ret, layout.code_first_line, first);
}

static struct object file, name, lines, code;

static uint32_t note(void)
{
    return python_code_index((uintptr_t)&code, &layout, &symbols);
}

static void text_is(struct heap_text text, const char *want)
{
    assert_int_equal(text.len, strlen(want));
    assert_memory_equal(&heap_process.table->text[text.at], want, text.len);
}

static void name_is(const char *want)
{
    uint32_t i = note();
    assert_int_not_equal(i, PYTHON_CODE_UNKNOWN);
    text_is(heap_process.table->codes[i].name, want);
}

static int with_a_code(void **state)
{
    set_up(state);
    make_ascii(&file, "/srv/train.py");
    make_ascii(&name, "Model.forward");
    make_bytes(&lines, "\x80\0\xf1", 3);
    make_code(&code, &file, &name, &lines, 17);
    return 0;
}

static void python_code_object_is_added_once_with_all_its_data(void **state)
{
    (void)state;
    uint32_t i = note();
    const struct heap_code *noted = &heap_process.table->codes[i];
    assert_int_not_equal(i, PYTHON_CODE_UNKNOWN);
    text_is(noted->file, "/srv/train.py");
    text_is(noted->name, "Model.forward");
    assert_int_equal(noted->first_line, 17);
    assert_int_equal(noted->lines.len, 3);
    assert_memory_equal(&heap_process.table->text[noted->lines.at], "\x80\0\xf1", 3);
    assert_int_equal(heap_process.table->header.codes, i + 1);
    assert_int_equal(note(), i);
    assert_int_equal(heap_process.table->header.codes, i + 1);
}

static void python_strings_of_every_width_are_converted_to_utf_8(void **state)
{
    (void)state;
    const uint8_t one[] = {'g', 'r', 0xf6, 0xdf, 'e'};
    const uint16_t two[] = {0x420, 0x430, 0x65e5, 0x672c};
    const uint32_t four[] = {'x', 0x1f40d, 0x10400};
    make_text(&name, one, 5, 1, false);
    name_is("größe");
    make_text(&name, two, 4, 2, false);
    name_is("Ра日本");
    make_text(&name, four, 3, 4, false);
    name_is("x🐍𐐀");
}

static void undecodable_byte_in_a_python_name_is_stored_unchanged(void **state)
{
    (void)state;
    const uint16_t escaped[] = {'a', 0xdcff, 0xdc80, 'b'}, lone[] = {'a', 0xd800, 0xdfff, 'b'};
    make_text(&name, escaped, 4, 2, false);
    name_is("a\xff\x80"
            "b");
    make_text(&name, lone, 4, 2, false);
    name_is("a??b");
}

static void python_string_in_an_unknown_representation_is_omitted(void **state)
{
    (void)state;
    set_int(&name, layout.text_state, 1U << 2); /* not compact */
    uint32_t i = note();
    assert_int_not_equal(i, PYTHON_CODE_UNKNOWN);
    assert_int_equal(heap_process.table->codes[i].name.len, 0);
    set_word(&code, layout.code_name, 0);
    i = note();
    assert_int_equal(heap_process.table->codes[i].name.len, 0);
    text_is(heap_process.table->codes[i].file, "/srv/train.py");
    /* The line table is a string object instead of bytes. */
    set_word(&code, layout.code_lines, (uintptr_t)&name);
    assert_int_equal(heap_process.table->codes[note()].lines.len, 0);
}

static void long_code_name_is_truncated_and_long_line_table_omitted(void **state)
{
    (void)state;
    static char many[200000];
    static uint16_t wide[20000];
    memset(many, 'n', sizeof(many));
    for (size_t i = 0; i < 20000; i++)
        wide[i] = 0x65e5;
    make_text(&name, many, 100000, 1, true);
    make_bytes(&lines, many, 200000);
    uint32_t i = note();
    assert_int_equal(heap_process.table->codes[i].name.len, 4096);
    assert_int_equal(heap_process.table->codes[i].lines.len, 0);
    make_text(&name, wide, 20000, 2, false);
    i = note();
    assert_in_range(heap_process.table->codes[i].name.len, 4090, 4096);
    assert_int_equal(heap_process.table->codes[i].name.len % 3, 0);
}

static void new_python_code_at_a_reused_address_gets_a_new_entry(void **state)
{
    (void)state;
    uint32_t first = note();
    set_int(&code, layout.code_first_line, 18);
    uint32_t second = note();
    assert_int_not_equal(first, second);
    make_ascii(&name,
               "Model.backwrd"); /* The new name has the length and the address of the old one. */
    uint32_t third = note();
    assert_int_not_equal(third, second);
    text_is(heap_process.table->codes[third].name, "Model.backwrd");
    make_ascii(&file, "/srv/other.py");
    uint32_t fourth = note();
    text_is(heap_process.table->codes[fourth].file, "/srv/other.py");
    assert_int_equal(note(), fourth);
}

static void python_functions_of_one_file_share_its_path(void **state)
{
    (void)state;
    uint32_t first = note();
    set_int(&code, layout.code_first_line, 18);
    uint32_t second = note();
    assert_int_equal(heap_process.table->codes[first].file.at,
                     heap_process.table->codes[second].file.at);
}

static void python_file_path_is_stored_later_if_space_was_missing(void **state)
{
    (void)state;
    text_limit = 4;
    assert_int_equal(heap_process.table->codes[note()].file.len, 0);
    text_limit = HEAP_TEXT_BYTES;
    set_int(&code, layout.code_first_line, 18);
    text_is(heap_process.table->codes[note()].file, "/srv/train.py");
}

static void full_python_code_table_keeps_its_entries_and_counts_drops(void **state)
{
    (void)state;
    uint32_t first = note();
    atomic_store(&heap_process.table->header.codes, HEAP_CODES);
    assert_int_equal(note(), first);
    set_int(&code, layout.code_first_line, 18);
    assert_int_equal(note(), PYTHON_CODE_UNKNOWN);
    assert_int_equal(heap_process.table->header.drops[HEAP_DROP_CODES], 1);
    assert_int_equal(heap_process.table->header.codes, HEAP_CODES);
}

static void python_code_is_added_again_after_the_table_is_replaced(void **state)
{
    uint32_t first = note();
    tear_down(state);
    with_a_code(state);
    assert_int_equal(note(), first);
    text_is(heap_process.table->codes[first].name, "Model.forward");
    assert_int_equal(heap_process.table->header.codes, first + 1);
}

/* Code objects of one thread. Their first line numbers differ from those of the other threads. */
struct worker {
    uint32_t first_line;
    uint8_t codes[THREAD_CODES][256] __attribute__((aligned(16)));
    uint32_t indices[THREAD_CODES];
};

static void *note_all(void *argument)
{
    struct worker *w = argument;
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < THREAD_CODES; i++) {
            uint32_t index = python_code_index((uintptr_t)w->codes[i], &layout, &symbols);
            if (index != PYTHON_CODE_UNKNOWN)
                w->indices[i] = index;
        }
    return NULL;
}

static void threads_can_add_python_code_concurrently(void **state)
{
    (void)state;
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (uint32_t t = 0; t < THREADS; t++) {
        workers[t].first_line = t * THREAD_CODES;
        for (uint32_t i = 0; i < THREAD_CODES; i++)
            make_code(workers[t].codes[i], &file, &name, &lines, t * THREAD_CODES + i);
    }
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, note_all, &workers[t]), 0);
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    for (int t = 0; t < THREADS; t++)
        for (uint32_t i = 0; i < THREAD_CODES; i++) {
            uint32_t index = workers[t].indices[i];
            if (index == 0) /* All three attempts failed, because other threads were adding code at
                               the same time. */
                index = python_code_index((uintptr_t)workers[t].codes[i], &layout, &symbols);
            assert_int_not_equal(index, PYTHON_CODE_UNKNOWN);
            const struct heap_code *noted = &heap_process.table->codes[index];
            assert_int_equal(noted->first_line, workers[t].first_line + i);
            text_is(noted->file, "/srv/train.py");
        }
    assert_int_equal(heap_process.table->header.codes, 1 + THREADS * THREAD_CODES);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, with_a_code, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(python_code_object_is_added_once_with_all_its_data),
        TEST(python_strings_of_every_width_are_converted_to_utf_8),
        TEST(undecodable_byte_in_a_python_name_is_stored_unchanged),
        TEST(python_string_in_an_unknown_representation_is_omitted),
        TEST(long_code_name_is_truncated_and_long_line_table_omitted),
        TEST(new_python_code_at_a_reused_address_gets_a_new_entry),
        TEST(python_functions_of_one_file_share_its_path),
        TEST(python_file_path_is_stored_later_if_space_was_missing),
        TEST(full_python_code_table_keeps_its_entries_and_counts_drops),
        TEST(python_code_is_added_again_after_the_table_is_replaced),
        TEST(threads_can_add_python_code_concurrently),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
