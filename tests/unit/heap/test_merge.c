/* Tests merging native and Python frames into one stack. Stacks are strings here, with one
 * character per frame. Native frames: '#' is an evaluation loop, '+' another function of the
 * interpreter, a digit a function of another library. Python frames: a letter is a function, a
 * capital letter an entry frame, '.' an evaluation without a frame. The native and Python stacks
 * are written innermost first, the merged stack outermost first. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <string.h>

#include "heap/modules.h"
#include "heap/record.h"

enum { LIBC = 1, INTERPRETER = 2, FRAMES_MAX = 64 };
static const uintptr_t eval_ip = 0x5000, other_ip = 0x6000, libc_ip = 0x7000;

static uint32_t interpreter;

/* Replacements for functions of other files, reduced to what the tests need. */
bool python_is_eval(uintptr_t ip)
{
    return ip == eval_ip;
}

uint32_t python_module(void)
{
    return interpreter;
}

uint64_t modules_frame(uint32_t module, uintptr_t base, uintptr_t ip)
{
    return (uint64_t)module << HEAP_FRAME_MODULE_SHIFT | (ip - base);
}

static struct unwind_frame native_of(char c)
{
    switch (c) {
    case '#':
        return (struct unwind_frame){.ip = eval_ip, .module = INTERPRETER};
    case '+':
        return (struct unwind_frame){.ip = other_ip, .module = INTERPRETER};
    default:
        return (struct unwind_frame){.ip = libc_ip + (uintptr_t)c, .module = LIBC};
    }
}

static struct python_frame python_of(char c)
{
    if (c == '.')
        return (struct python_frame){.word = 0, .is_entry = true};
    return (struct python_frame){
        .word = HEAP_FRAME_PYTHON | (uint64_t)tolower((unsigned char)c) << HEAP_FRAME_CODE_SHIFT,
        .is_entry = isupper((unsigned char)c) != 0,
    };
}

static char name_of(uint64_t word)
{
    if (word & HEAP_FRAME_PYTHON)
        return (char)(word >> HEAP_FRAME_CODE_SHIFT & HEAP_FRAME_CODE_MASK);
    uintptr_t ip = word & HEAP_FRAME_OFFSET_MASK;
    return ip == eval_ip ? '#' : ip == other_ip ? '+' : (char)(ip - libc_ip);
}

static void merged_within(const char *native, const char *python, size_t max, const char *want)
{
    struct unwind_frame natives[FRAMES_MAX];
    struct python_frame pythons[FRAMES_MAX];
    uint64_t words[FRAMES_MAX + 1];
    char got[FRAMES_MAX + 1] = {0};
    size_t n = strlen(native), p = strlen(python);
    for (size_t i = 0; i < n; i++)
        natives[i] = native_of(native[i]);
    for (size_t i = 0; i < p; i++)
        pythons[i] = python_of(python[i]);
    words[max] = 42;
    size_t count = record_merge(natives, n, pythons, p, words, max);
    assert_true(count <= max);
    assert_int_equal(words[max], 42);
    for (size_t i = 0; i < count; i++)
        got[i] = name_of(words[i]);
    assert_string_equal(got, want);
}

static void merged(const char *native, const char *python, const char *want)
{
    merged_within(native, python, FRAMES_MAX, want);
}

static int with_interpreter(void **state)
{
    (void)state;
    interpreter = INTERPRETER;
    return 0;
}

static void native_stack_without_python_frames_is_unchanged(void **state)
{
    (void)state;
    merged("123", "", "321");
    merged("1++2", "", "2++1");
    merged("", "", "");
}

static void frame_of_the_evaluation_loop_is_replaced_by_python_frames(void **state)
{
    (void)state;
    merged("1#2", "A", "2a1");
    merged("1#2", "abC", "2cba1");
}

static void interpreter_frames_between_evaluation_loops_are_dropped(void **state)
{
    (void)state;
    merged("1++#++2", "A", "2a++1");
    merged("1++#+3+#++2", "abCdE", "2ed3cba++1");
}

static void each_evaluation_loop_gets_its_own_python_frames(void **state)
{
    (void)state;
    merged("#1#2#3", "aBcDeF", "3fe2dc1ba");
    merged("##", "AB", "ba");
}

static void evaluation_loop_that_has_not_entered_a_function_adds_no_frame(void **state)
{
    (void)state;
    merged("1#2#3", ".aB", "3ba21");
    merged("1#2#3", "A.", "32a1");
}

static void evaluation_loop_frame_is_kept_if_no_python_frames_exist(void **state)
{
    (void)state;
    merged("1#2#3", "A", "3#2a1");
    merged("1#2", "", "2#1");
}

static void python_frames_without_evaluation_loop_become_outermost(void **state)
{
    (void)state;
    merged("1#2", "AbCD", "dcb2a1");
    merged("12", "aB", "ba21");
    merged("", "aB", "ba");
    merged("1#2", "A.B", "b2a1");
}

static void python_frames_are_kept_if_no_entry_frame_is_found(void **state)
{
    (void)state;
    merged("1#2#3", "ab", "3#2ba1");
}

static void merged_stack_loses_outermost_frames_if_space_runs_out(void **state)
{
    (void)state;
    merged_within("1#2", "abC", 3, "ba1");
    merged_within("123", "", 2, "21");
    merged_within("1#2", "A", 0, "");
    merged_within("1#2", "A", 1, "1");
    merged_within("1#2", "A", 2, "a1");
}

static void native_frames_are_kept_while_interpreter_is_unknown(void **state)
{
    (void)state;
    interpreter = MODULE_NONE;
    merged("1#++2", "A", "2++a1");
}

#define TEST(name) cmocka_unit_test_setup(name, with_interpreter)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(native_stack_without_python_frames_is_unchanged),
        TEST(frame_of_the_evaluation_loop_is_replaced_by_python_frames),
        TEST(interpreter_frames_between_evaluation_loops_are_dropped),
        TEST(each_evaluation_loop_gets_its_own_python_frames),
        TEST(evaluation_loop_that_has_not_entered_a_function_adds_no_frame),
        TEST(evaluation_loop_frame_is_kept_if_no_python_frames_exist),
        TEST(python_frames_without_evaluation_loop_become_outermost),
        TEST(python_frames_are_kept_if_no_entry_frame_is_found),
        TEST(merged_stack_loses_outermost_frames_if_space_runs_out),
        TEST(native_frames_are_kept_while_interpreter_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
