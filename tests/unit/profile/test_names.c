/* Tests which frame of a stack is shown, which functions are recognised as allocators or library
 * code, and C++ names. */
#include "profile/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "profile/known_heap.h"
#include "profile/demangle.h"
#include "profile/names_known.h"
#include "base/texts.h"

#define PACKAGES "/home/u/venv/lib/python3.11/site-packages/"
#define STANDARD "/usr/lib/python3.11/"
#define LEN(a) (sizeof(a) / sizeof(*(a)))

struct fixture {
    struct known_heap heap;
    struct names *names;
    uint32_t top; /* Index of the innermost frame added so far. */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct symbols_options options = {0};
    known_heap_init(&f->heap);
    assert_int_equal(names_new(&f->heap.profile, &options, &f->names), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    names_free(f->names);
    free(f);
    return 0;
}

static void python(struct fixture *f, const char *file, const char *name)
{
    f->top = known_python(&f->heap, f->top, file, name, 10 + (uint32_t)f->heap.profile.n_codes);
}

static void native(struct fixture *f, uint64_t module, uint64_t offset)
{
    f->top = known_native(&f->heap, f->top, module, offset);
}

static const struct name *shown(struct fixture *f)
{
    return names_of_site(f->names, known_site(&f->heap, f->top, 1, 1, 1));
}

/* Checks the program's frames of the first site, innermost first; the list ends with NULL. */
static void assert_program(struct fixture *f, const char *first, ...)
{
    const struct name *found[8];
    size_t n = names_program_of_site(f->names, 1, LEN(found), found), at = 0;
    va_list more;
    va_start(more, first);
    for (const char *want = first; want; want = va_arg(more, const char *), at++) {
        assert_true(at < n);
        assert_string_equal(found[at]->function, want);
    }
    va_end(more);
    assert_int_equal(at, n);
}

static void user_line_is_shown_instead_of_the_numpy_line(void **state)
{
    struct fixture *f = *state;
    python(f, "/home/u/train.py", "main");
    python(f, PACKAGES "torch/utils/data/dataloader.py", "__next__");
    python(f, "/home/u/data.py", "collate_fn");
    python(f, PACKAGES "numpy/core/shape_base.py", "stack");
    native(f, 1, 0x1234);
    const struct name *name = shown(f);
    assert_int_equal(name->kind, NAME_PYTHON);
    assert_string_equal(name->function, "collate_fn");
    assert_string_equal(name->file, "/home/u/data.py");
    assert_int_equal(name->line, 12);
    assert_string_equal(names_native_of_site(f->names, 1)->function, "libgone.so.1+0x1234");
}

static void library_data_collator_is_shown_instead_of_the_calling_trainer(void **state)
{
    struct fixture *f = *state;
    python(f, "/home/u/train.py", "main");
    python(f, PACKAGES "transformers/trainer.py", "train");
    python(f, PACKAGES "transformers/data/data_collator.py", "torch_call");
    python(f, PACKAGES "torch/_tensor.py", "__torch_function__");
    python(f, STANDARD "contextlib.py", "inner");
    assert_string_equal(shown(f)->function, "torch_call");
    assert_program(f, "main", NULL);
}

static void user_functions_are_listed_innermost_first(void **state)
{
    struct fixture *f = *state;
    python(f, "/home/u/train.py", "<module>");
    python(f, "/home/u/train.py", "main");
    python(f, PACKAGES "transformers/trainer.py", "Trainer.evaluate");
    python(f, "/home/u/plots.py", "Plots.on_evaluate");
    python(f, PACKAGES "matplotlib/pyplot.py", "savefig");
    python(f, PACKAGES "matplotlib/backends/backend_agg.py", "RendererAgg.__init__");
    native(f, 1, 0x10);
    assert_string_equal(shown(f)->function, "RendererAgg.__init__");
    assert_program(f, "Plots.on_evaluate", "main", NULL);
}

static void recursive_function_with_a_comprehension_is_listed_once(void **state)
{
    struct fixture *f = *state;
    python(f, "/home/u/tree.py", "main");
    python(f, "/home/u/tree.py", "main.<locals>.<genexpr>");
    python(f, "/home/u/tree.py", "grow");
    python(f, PACKAGES "torch/nn/modules/module.py", "_call_impl");
    python(f, "/home/u/tree.py", "grow");
    python(f, "/home/u/tree.py", "grow.<locals>.<listcomp>");
    shown(f);
    assert_program(f, "grow", "main", NULL);
}

static void comprehension_of_python_3_10_is_shown_as_the_outer_function(void **state)
{
    struct fixture *f = *state;
    python(f, "/home/u/tree.py", "<module>");
    python(f, "/home/u/tree.py", "grow");
    python(f, "/home/u/tree.py", "<dictcomp>");
    shown(f);
    assert_program(f, "grow", NULL);
}

static void module_level_code_is_listed_only_if_innermost(void **state)
{
    struct fixture *f = *state;
    python(f, "/home/u/train.py", "<module>");
    python(f, "<frozen importlib._bootstrap>", "_find_and_load");
    python(f, PACKAGES "torch/__init__.py", "<module>");
    shown(f);
    assert_program(f, "<module>", NULL);
}

static void lambda_and_nested_function_are_listed_separately(void **state)
{
    struct fixture *f = *state;
    python(f, "/home/u/hooks.py", "watch");
    python(f, "/home/u/hooks.py", "watch.<locals>.hook");
    python(f, "/home/u/hooks.py", "watch.<locals>.<lambda>");
    shown(f);
    assert_program(f, "watch.<locals>.<lambda>", "watch.<locals>.hook", "watch", NULL);
}

static void number_of_listed_user_functions_is_limited(void **state)
{
    static const char *const calls[] = {"main", "train", "step", "load"};
    struct fixture *f = *state;
    const struct name *found[2];
    for (size_t i = 0; i < LEN(calls); i++)
        python(f, "/home/u/deep.py", calls[i]);
    shown(f);
    assert_int_equal(names_program_of_site(f->names, 1, LEN(found), found), 2);
    assert_string_equal(found[0]->function, "load");
    assert_string_equal(found[1]->function, "step");
    assert_int_equal(names_program_of_site(f->names, 99999, LEN(found), found), 0);
}

static void started_package_counts_as_user_code_if_no_user_file_exists(void **state)
{
    struct fixture *f = *state;
    python(f, "/home/u/venv/bin/train", "<module>");
    python(f, PACKAGES "trainer/cli.py", "main");
    python(f, PACKAGES "transformers/trainer.py", "Trainer.train");
    python(f, PACKAGES "trainer/data.py", "collate");
    python(f, PACKAGES "plots/figure.py", "draw");
    shown(f);
    f->top = 0;
    python(f, STANDARD "threading.py", "Thread.run");
    python(f, PACKAGES "trainer/log.py", "flush");
    known_site(&f->heap, f->top, 1, 1, 1);
    f->top = 0;
    python(f, PACKAGES "plots/queue.py", "run");
    known_site(&f->heap, f->top, 1, 1, 1);
    const struct name *found[4];
    assert_program(f, "collate", "main", NULL);
    assert_int_equal(names_program_of_site(f->names, 2, LEN(found), found), 1);
    assert_string_equal(found[0]->function, "flush");
    assert_int_equal(names_program_of_site(f->names, 3, LEN(found), found), 0);
}

static void package_that_was_started_is_library_code_if_user_files_exist(void **state)
{
    struct fixture *f = *state;
    python(f, "/home/u/venv/bin/pytest", "<module>");
    python(f, PACKAGES "_pytest/main.py", "main");
    python(f, "/home/u/tests/test_train.py", "test_a_step");
    python(f, PACKAGES "plots/figure.py", "draw");
    shown(f);
    assert_program(f, "test_a_step", NULL);
}

static void generated_code_of_named_tuples_is_not_shown_as_user_code(void **state)
{
    struct fixture *f = *state;
    python(f, "<string>", "<module>");
    python(f, "/home/u/train.py", "keep");
    python(f, "<string>", "<lambda>");
    assert_string_equal(shown(f)->function, "keep");
    assert_program(f, "keep", NULL);
}

static void innermost_frame_is_shown_if_all_code_is_library_code(void **state)
{
    struct fixture *f = *state;
    python(f, STANDARD "threading.py", "Thread._bootstrap");
    python(f, STANDARD "queue.py", "Queue.put");
    native(f, 1, 0x10);
    assert_string_equal(shown(f)->function, "Queue.put");
    assert_program(f, NULL, NULL);
}

static void innermost_native_frame_is_shown_if_no_python_frame_exists(void **state)
{
    struct fixture *f = *state;
    native(f, 1, 0x10);
    native(f, 1, 0x20);
    native(f, 0, 0x7f00);
    const struct name *name = shown(f), *list;
    assert_int_equal(name->kind, NAME_NATIVE);
    assert_string_equal(name->function, "libgone.so.1+0x20");
    assert_string_equal(name->lib, "libgone.so.1");
    assert_null(name->file);
    assert_int_equal(names_of_node(f->names, f->top, &list), 1);
    assert_int_equal(list->kind, NAME_UNKNOWN);
    assert_string_equal(list->function, "0x7f00");
}

static void call_site_without_a_stack_has_a_placeholder_name(void **state)
{
    struct fixture *f = *state;
    const struct name *list;
    assert_string_equal(names_of_site(f->names, 0)->function, "(no stack)");
    assert_string_equal(names_of_site(f->names, 99999)->function, "(no stack)");
    assert_null(names_native_of_site(f->names, 0));
    assert_int_equal(names_of_node(f->names, 99999, &list), 1);
    assert_string_equal(list->function, "(no stack)");
}

/* The profile refers to entries that do not exist. */
static void frames_without_symbols_get_a_placeholder_name(void **state)
{
    struct fixture *f = *state;
    native(f, 77, 0x30);
    assert_string_equal(shown(f)->function, "0x30");
    python(f, "", "");
    assert_string_equal(shown(f)->function, "(Python)");
    assert_null(shown(f)->file);
    f->heap.nodes[f->top].frame = HEAP_FRAME_PYTHON | UINT64_C(5000) << HEAP_FRAME_CODE_SHIFT;
    assert_int_equal(shown(f)->kind, NAME_UNKNOWN);
}

static void line_of_a_python_frame_is_the_line_of_the_instruction(void **state)
{
    static const char table[] = {(char)(0x80 | 11 << 3), 0, 0, (char)(0x80 | 12 << 3), 0, 0};
    struct fixture *f = *state;
    python(f, "/home/u/a.py", "f");
    f->heap.codes[0].lines = (struct profile_text){table, sizeof(table)};
    f->heap.nodes[f->top].frame = HEAP_FRAME_PYTHON | 2;
    assert_int_equal(shown(f)->line, 13); /* first line 10, plus the increments 1 and 2 */
}

static void equal_frames_share_one_name_object(void **state)
{
    struct fixture *f = *state;
    const struct name *a, *b;
    native(f, 1, 0x10);
    uint32_t first = f->top;
    native(f, 1, 0x10);
    names_of_node(f->names, first, &a);
    names_of_node(f->names, f->top, &b);
    assert_ptr_equal(a, b);
}

static void allocator_functions_are_recognised_by_name_and_library(void **state)
{
    static const char *const yes[] = {
        "malloc",
        "posix_memalign",
        "operator new(unsigned long)",
        "operator new[](unsigned long)",
        "operator new(unsigned long, std::align_val_t)",
        "__libc_malloc",
        "strdup",
        "mmap64",
        "c10::alloc_cpu(unsigned long)",
        "c10::DefaultCPUAllocator::allocate(unsigned long)",
        "at::detail::empty_cpu(c10::ArrayRef<long>, c10::ScalarType, bool)",
        "at::_ops::empty_memory_format::redispatch(c10::DispatchKeySet)",
        "PyMem_RawMalloc",
        "_PyObject_GC_New",
        "PyObject_Malloc",
        "npy_alloc_cache_zero",
        "PyDataMem_UserNEW",
        "std::allocator<int>::allocate(unsigned long)",
        "__rust_alloc",
        "je_malloc",
        "mi_malloc",
        "void std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>(int*)",
        "std::__cxx11::basic_string<char>::_M_create(unsigned long&, unsigned long)",
        "std::_Rb_tree<int, std::pair<int const, f<(g)1> > >::_M_insert_(int)"};
    static const char *const no[] = {"main",
                                     "malloc_usable_size_of_my_own",
                                     "mallocate",
                                     "_PyObject_MakeTpCall",
                                     "PyList_Append",
                                     "at::native::add(at::Tensor const&)",
                                     "at::native::empty_my_cache(int)",
                                     "my::std::vector(int)",
                                     "void leak<std::vector<int> >(std::vector<int>*)",
                                     "app::operator new_thing(int)",
                                     "c10::alloc_cpu_mine(int)",
                                     "stdio_open",
                                     "(anonymous namespace)::keep(std::string)",
                                     "",
                                     "libfoo.so+0x10",
                                     "bool operator< <int>(A<int> const&, A<int> const&)"};
    (void)state;
    for (size_t i = 0; i < LEN(yes); i++)
        if (!known_allocator(yes[i], "libx.so"))
            fail_msg("%s should be an allocator", yes[i]);
    for (size_t i = 0; i < LEN(no); i++)
        if (known_allocator(no[i], "libx.so"))
            fail_msg("%s should not be an allocator", no[i]);
    assert_true(known_allocator(NULL, "libebb-heap.so"));
    assert_true(known_allocator("anything", "libjemalloc.so.2"));
    assert_true(known_allocator("anything", "libtcmalloc_minimal.so.4"));
    assert_false(known_allocator(NULL, "libc.so.6"));
    assert_false(known_allocator(NULL, NULL));
}

static void autograd_node_name_is_read_from_its_apply_function(void **state)
{
    static const char *const yes[][2] = {
        {"torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)",
         "AddmmBackward0"},
        {"torch::autograd::CopyBackwards::apply(int)", "CopyBackwards"},
        {"torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)", "AccumulateGrad"},
        {"torch::autograd::Function<my::Node>::apply(int)", NULL},
        {"torch::autograd::PyNode::apply(int)", NULL},
        {"torch::autograd::generated::AddmmBackward0::release_variables()", NULL},
        {"mine::AddmmBackward0::apply(int)", NULL},
        {"torch::autograd::::apply(int)", NULL},
        {"apply(int)", NULL}};
    (void)state;
    for (size_t i = 0; i < LEN(yes); i++) {
        const char *node = NULL;
        size_t len = 0;
        assert_int_equal(known_backward(yes[i][0], &node, &len), yes[i][1] != NULL);
        if (yes[i][1]) {
            assert_int_equal(len, strlen(yes[i][1]));
            assert_memory_equal(node, yes[i][1], len);
        }
    }
}

static void standard_library_and_listed_packages_are_library_code(void **state)
{
    static const char *const yes[] = {STANDARD "queue.py",
                                      "/opt/conda/envs/x/lib/python3.12/functools.py",
                                      "/usr/lib64/python3.9/json/decoder.py",
                                      "/x/lib/python311.zip/queue.py",
                                      "/opt/py/lib/python3.13t/threading.py",
                                      "<frozen importlib._bootstrap>",
                                      "<__array_function__ internals>",
                                      PACKAGES "torch/nn/modules/module.py",
                                      PACKAGES "numpy/lib/npyio.py",
                                      "/usr/lib/python3/dist-packages/numpy/core/numeric.py",
                                      PACKAGES "PIL/Image.py",
                                      PACKAGES "accelerate/hooks.py",
                                      "/src/python/ebb/torch.py",
                                      PACKAGES "ebb/_hooks.py"};
    static const char *const no[] = {"/home/u/train.py",
                                     "train.py",
                                     "<string>",
                                     "<stdin>",
                                     "<ipython-input-3-abc>",
                                     PACKAGES "transformers/data/data_collator.py",
                                     PACKAGES "torch/optim/adam.py",
                                     PACKAGES "mylib/queue.py",
                                     "/usr/lib/python3/dist-packages/mylib.py",
                                     "/home/u/python3/queue.py",
                                     "/home/u/lib/python3tools/a.py",
                                     "/home/numpy/a.py",
                                     PACKAGES "mylib/numpy/a.py"};
    (void)state;
    for (size_t i = 0; i < LEN(yes); i++)
        if (!known_plumbing("f", yes[i]))
            fail_msg("%s should be plumbing", yes[i]);
    for (size_t i = 0; i < LEN(no); i++)
        if (known_plumbing("f", no[i]))
            fail_msg("%s should be shown", no[i]);
    assert_true(known_plumbing("__create_fn__.<locals>.__init__", "<string>"));
    assert_true(known_plumbing("f", NULL));
    assert_true(known_library(PACKAGES "mylib/a.py") && known_library(STANDARD "queue.py"));
    assert_false(known_library("/home/u/train.py"));
}

static const char *readable(struct buf *b, const char *name)
{
    buf_clear(b);
    demangle(b, name);
    return buf_str(b);
}

static void only_valid_cpp_symbol_names_are_demangled(void **state)
{
    struct buf b = {0};
    (void)state;
    assert_string_equal(readable(&b, "_Znwm"), "operator new(unsigned long)");
    assert_string_equal(readable(&b, "_ZN3c109alloc_cpuEm"), "c10::alloc_cpu(unsigned long)");
    assert_string_equal(readable(&b, "_ZNSt6vectorIiSaIiEE7reserveEm"),
                        "std::vector<int, std::allocator<int> >::reserve(unsigned long)");
    assert_string_equal(readable(&b, "malloc"), "malloc");
    assert_string_equal(readable(&b, "_Zbroken"), "_Zbroken");
    assert_string_equal(readable(&b, "_Z"), "_Z");
    assert_string_equal(readable(&b, ""), "");
    /* This symbol is not a function. Demangled as a type, it would become a type name. */
    assert_string_equal(readable(&b, "i"), "i");
    buf_fini(&b);
}

/* Each argument is a pair that contains the previous argument twice, so the length doubles with
 * each of 29 arguments. */
static void cpp_symbol_that_expands_to_gigabytes_is_truncated(void **state)
{
    struct buf name = {0}, b = {0};
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    (void)state;
    buf_add_str(&name, "_Z1fISt4pairIiiE");
    for (int i = 1; i < 30; i++)
        buf_printf(&name, "S0_IS%c_S%c_E", digits[i], digits[i]);
    buf_add_str(&name, "EvT_");
    const char *text = readable(&b, buf_str(&name));
    assert_true(strlen(text) <= DEMANGLE_MAX + 3);
    assert_string_equal(text + strlen(text) - strlen("…"), "…");
    buf_clear(&name);
    buf_add_str(&name, "_Z4longN");
    for (int i = 0; i < 5000; i++)
        buf_add_byte(&name, 'x');
    assert_int_equal(strlen(readable(&b, buf_str(&name))), DEMANGLE_MAX + strlen("…"));
    buf_fini(&name);
    buf_fini(&b);
}

static void equal_texts_of_a_profile_are_stored_once(void **state)
{
    struct texts t = {0};
    struct numbers n = {0};
    uint32_t number;
    char word[16];
    (void)state;
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 1000; i++) {
            snprintf(word, sizeof(word), "word%u", i);
            assert_int_equal(texts_add(&t, word, sizeof(word), &number), 0);
            assert_int_equal(number, i);
            assert_int_equal(numbers_get(&n, UINT64_C(1) << 60 | i, &number), round == 1);
            if (round == 0)
                assert_int_equal(numbers_put(&n, UINT64_C(1) << 60 | i, i), 0);
            else
                assert_int_equal(number, i);
        }
    assert_string_equal(t.items[999], "word999");
    assert_ptr_equal(texts_keep(&t, "word7xxx", 5), t.items[7]);
    char *unended =
        malloc(3); /* A separate allocation lets the sanitizer detect reads past its end. */
    memcpy(unended, "new", 3);
    assert_string_equal(texts_keep(&t, unended, 3), "new");
    free(unended);
    assert_string_equal(texts_keep(&t, NULL, 0), "");
    texts_fini(&t);
    numbers_fini(&n);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(user_line_is_shown_instead_of_the_numpy_line),
        TEST(library_data_collator_is_shown_instead_of_the_calling_trainer),
        TEST(innermost_frame_is_shown_if_all_code_is_library_code),
        TEST(started_package_counts_as_user_code_if_no_user_file_exists),
        TEST(package_that_was_started_is_library_code_if_user_files_exist),
        TEST(generated_code_of_named_tuples_is_not_shown_as_user_code),
        TEST(user_functions_are_listed_innermost_first),
        TEST(recursive_function_with_a_comprehension_is_listed_once),
        TEST(comprehension_of_python_3_10_is_shown_as_the_outer_function),
        TEST(module_level_code_is_listed_only_if_innermost),
        TEST(lambda_and_nested_function_are_listed_separately),
        TEST(number_of_listed_user_functions_is_limited),
        TEST(innermost_native_frame_is_shown_if_no_python_frame_exists),
        TEST(call_site_without_a_stack_has_a_placeholder_name),
        TEST(frames_without_symbols_get_a_placeholder_name),
        TEST(line_of_a_python_frame_is_the_line_of_the_instruction),
        TEST(equal_frames_share_one_name_object),
        cmocka_unit_test(allocator_functions_are_recognised_by_name_and_library),
        cmocka_unit_test(autograd_node_name_is_read_from_its_apply_function),
        cmocka_unit_test(standard_library_and_listed_packages_are_library_code),
        cmocka_unit_test(only_valid_cpp_symbol_names_are_demangled),
        cmocka_unit_test(cpp_symbol_that_expands_to_gigabytes_is_truncated),
        cmocka_unit_test(equal_texts_of_a_profile_are_stored_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
