/* Compares unwound stacks with backtrace() of glibc: recursion, callbacks, signals, threads, and
 * stacks created by the program. */
#include "heap/unwind.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "fresh_table.h"
#include "heap/modules.h"
#include "heap/unwind_stack.h"

enum { FRAMES_MAX = HEAP_STACK_MAX, CORO_BYTES = 64 << 10, PAGE_BYTES = 4096 };
enum { SANITIZER_FRAMES = 2 };

/* Work after a call keeps it from becoming a tail call. */
#define STAYS() __asm__ volatile("" ::: "memory")

static struct heap_table *table;

static int make_table(void **state)
{
    void *unused[4];

    assert_int_equal(fresh_table(state), 0);
    table = heap_process.table;
    modules_reset();
    unwind_reset();
    backtrace(
        unused,
        4); /* The first call of backtrace() loads a library, so it is made before the tests. */
    return 0;
}

static uint64_t lost(void)
{
    return atomic_load(&table->header.drops[HEAP_DROP_UNWIND]);
}

struct stacks {
    struct unwind_frame ours[FRAMES_MAX];
    void *theirs[FRAMES_MAX + SANITIZER_FRAMES];
    size_t our_count, their_count;
    bool is_whole;
};

/* For a caller, ebb reports the byte before the return address, and backtrace() reports the return
 * address itself. For an interrupted function, both report the interrupted address. */
static bool is_same_frame(const struct stacks *s, size_t i)
{
    uintptr_t theirs = (uintptr_t)s->theirs[i];

    return s->ours[i].ip == theirs - 1 || s->ours[i].ip == theirs;
}

/* Unwinds the current stack with ebb and with backtrace(). The results differ only in the innermost
 * frame and in a sanitizer's frame above backtrace(). */
__attribute__((noinline)) static void take(struct stacks *ret)
{
    ret->our_count = unwind_here(ret->ours, FRAMES_MAX, &ret->is_whole);
    ret->their_count = (size_t)backtrace(ret->theirs, FRAMES_MAX + SANITIZER_FRAMES);
    for (int i = 0; i < SANITIZER_FRAMES && !is_same_frame(ret, 1); i++) {
        memmove(ret->theirs, ret->theirs + 1, sizeof(ret->theirs) - sizeof(ret->theirs[0]));
        ret->their_count--;
    }
}

static bool same_stacks(const struct stacks *s)
{
    size_t n = s->their_count < FRAMES_MAX ? s->their_count : FRAMES_MAX;

    if (s->our_count != n)
        return false;
    for (size_t i = 1; i < n; i++)
        if (!is_same_frame(s, i))
            return false;
    return true;
}

static void assert_same(const struct stacks *s)
{
    assert_true(s->our_count > 2);
    assert_int_equal(s->our_count, s->their_count < FRAMES_MAX ? s->their_count : FRAMES_MAX);
    for (size_t i = 1; i < s->our_count; i++)
        assert_true(is_same_frame(s, i));
}

static void ordinary_stack_is_unwound_to_the_outermost_frame(void **state)
{
    struct stacks s;

    (void)state;
    take(&s);
    assert_same(&s);
    assert_true(s.is_whole);
    assert_int_equal(lost(), 0);
    for (size_t i = 0; i < s.our_count; i++) {
        assert_int_not_equal(s.ours[i].module, MODULE_NONE);
        uintptr_t base;
        assert_int_equal(modules_find(s.ours[i].ip, &base), s.ours[i].module);
        assert_int_equal(base, s.ours[i].base);
    }
}

/* These functions have frames of several sizes, with and without a frame pointer. */
__attribute__((noinline)) static void by_array(int depth, struct stacks *ret);
__attribute__((noinline)) static void by_sp(int depth, struct stacks *ret)
{
    if (depth == 0)
        take(ret);
    else
        by_array(depth - 1, ret);
    STAYS();
}

__attribute__((noinline)) static void by_array(int depth, struct stacks *ret)
{
    volatile char *room = __builtin_alloca((size_t)(depth % 7) * 40 + 1);

    room[0] = (char)depth;
    by_sp(depth > 0 ? depth - 1 : 0, ret);
    STAYS();
}

static void recursion_is_unwound_at_every_depth(void **state)
{
    struct stacks s;

    (void)state;
    for (int depth = 0; depth < 150; depth++) {
        by_sp(depth, &s);
        assert_same(&s);
        assert_true(s.is_whole);
        assert_true(s.our_count > (size_t)depth);
    }
    assert_int_equal(lost(), 0);
}

static void stack_deeper_than_the_maximum_keeps_the_innermost_frames(void **state)
{
    struct stacks s;

    (void)state;
    by_sp(5000, &s);
    assert_int_equal(s.our_count, FRAMES_MAX);
    assert_false(s.is_whole);
    for (size_t i = 1; i < FRAMES_MAX; i++)
        assert_true(is_same_frame(&s, i));
    assert_int_equal(lost(), 0);
}

static struct stacks in_callback;

static int compare(const void *a, const void *b)
{
    take(&in_callback);
    return *(const int *)a - *(const int *)b;
}

static void stack_of_a_callback_from_libc_is_unwound_through_libc(void **state)
{
    int numbers[] = {3, 1, 2};
    struct stacks outer;

    (void)state;
    qsort(numbers, 3, sizeof(int), compare);
    take(&outer);
    assert_same(&in_callback);
    assert_true(in_callback.is_whole);
    assert_true(in_callback.our_count >= outer.our_count + 2);
}

/* A second libc in a separate namespace serves as a library that is loaded, calls back, and is
 * unloaded. */
static void frames_of_a_library_are_unwound_after_every_reload(void **state)
{
    typedef void sort_function(void *, size_t, size_t, int (*)(const void *, const void *));
    enum { ROUNDS = 8 };
    uintptr_t bases[ROUNDS];

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        int numbers[] = {3, 1, 2};
        void *libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
        if (!libc) {
            print_message("no second libc: %s\n", dlerror());
            skip();
        }
        sort_function *sort = NULL;
        void *found = dlsym(libc, "qsort");
        memcpy(&sort, &found, sizeof(sort));
        assert_non_null(sort);
        uint32_t module = modules_find((uintptr_t)sort, &bases[i]);
        sort(numbers, 3, sizeof(int), compare);
        assert_same(&in_callback);
        assert_true(in_callback.is_whole);
        bool is_seen = false;
        for (size_t j = 0; j < in_callback.our_count; j++)
            is_seen |= in_callback.ours[j].module == module && in_callback.ours[j].base == bases[i];
        assert_true(is_seen);
        dlclose(libc);
        modules_changed();
    }
}

/* If a function realigns its stack, the CFA is not at a fixed offset from a register. The compiler
 * stores the CFA in the frame, and the unwind rule loads it from there. */
__attribute__((noinline)) static int aligned(struct stacks *ret, int n, ...)
{
    _Alignas(128) volatile char room[256];
    va_list args;

    va_start(args, n);
    volatile char *more = __builtin_alloca((size_t)va_arg(args, int));
    va_end(args);
    room[n] = 1;
    more[0] = 1;
    take(ret);
    return room[n] + more[0];
}

static void function_with_a_realigned_stack_is_unwound(void **state)
{
    struct stacks s;

    (void)state;
    aligned(&s, 3, 100);
    assert_same(&s);
    assert_true(s.is_whole);
}

/* ---- signals ---- */

/* These tests require x86-64, where the unwinder reads the registers that the kernel saved when the
 * signal arrived. On other architectures the unwinder follows frame records, and the kernel's
 * record for a signal handler skips the interrupted function. */
#ifdef __x86_64__
static struct stacks in_handler;

static void on_signal(int signal_number)
{
    (void)signal_number;
    take(&in_handler);
}

static void with_handler(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags}, before;

    memset(&in_handler, 0, sizeof(in_handler));
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    raise(SIGUSR1);
    sigaction(SIGUSR1, &before, NULL);
}

static void stack_of_a_signal_handler_includes_the_interrupted_code(void **state)
{
    (void)state;
    with_handler(0);
    assert_same(&in_handler);
    assert_true(in_handler.is_whole);
    assert_int_equal(lost(), 0);
}

static void stack_of_a_handler_on_sigaltstack_includes_interrupted_code(void **state)
{
    char *memory =
        mmap(NULL, CORO_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alternative = {.ss_sp = memory, .ss_size = CORO_BYTES}, before;

    (void)state;
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(sigaltstack(&alternative, &before), 0);
    with_handler(SA_ONSTACK);
    sigaltstack(&before, NULL);
    munmap(memory, CORO_BYTES);
    assert_same(&in_handler);
    assert_true(in_handler.is_whole);
}

/* The unwinder looks up the byte before a return address, because that byte belongs to the call.
 * For a function that was interrupted by a signal, the unwinder must look up the interrupted
 * address and not the byte before it. The address may be that of the function's first instruction,
 * and the byte before may then belong to a different function. */
static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    ucontext_t *c = context;

    (void)signal_number;
    (void)info;
    take(&in_handler);
    c->uc_mcontext.gregs[REG_RIP] += 2; /* skip the two bytes of ud2 */
}

/* Written in assembly, because the compiler may begin the function with an endbr64. */
__asm__(".text\n"
        ".type faults_at_once, @function\n"
        "faults_at_once:\n"
        ".cfi_startproc\n"
        "ud2\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size faults_at_once, . - faults_at_once");
void faults_at_once(void);

static void signal_at_the_first_instruction_of_a_function_is_unwound(void **state)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;

    (void)state;
    assert_int_equal(sigaction(SIGILL, &action, &before), 0);
    faults_at_once();
    sigaction(SIGILL, &before, NULL);
    assert_same(&in_handler);
    assert_true(in_handler.is_whole);
    bool is_there = false;
    for (size_t i = 0; i < in_handler.our_count; i++)
        is_there |= in_handler.ours[i].ip == (uintptr_t)faults_at_once;
    assert_true(is_there);
}
#endif /* __x86_64__ */

/* ---- threads ---- */

static void *recurse_in_thread(void *arg)
{
    bool *ret = arg;
    struct stacks s;

    *ret = true;
    for (int depth = 0; depth < 40 && *ret; depth++) {
        by_sp(depth, &s);
        *ret = same_stacks(&s) && s.is_whole && s.our_count > (size_t)depth;
    }
    return NULL;
}

static void assert_thread(pthread_attr_t *attributes)
{
    bool is_good = false;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, attributes, recurse_in_thread, &is_good), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(is_good);
}

static void stacks_of_other_threads_are_unwound_to_the_outermost_frame(void **state)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    bool is_good[THREADS] = {0};

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, recurse_in_thread, &is_good[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_true(is_good[i]);
    assert_int_equal(lost(), 0);
}

static void thread_on_a_stack_allocated_by_the_program_is_unwound(void **state)
{
    size_t len = 4 << 20;
    char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;

    (void)state;
    assert_ptr_not_equal(memory, MAP_FAILED);
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstack(&attributes, memory, len), 0);
    assert_thread(&attributes);
    pthread_attr_destroy(&attributes);
    munmap(memory, len);
}

static void thread_with_a_small_stack_is_unwound(void **state)
{
    pthread_attr_t attributes;

    (void)state;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 192 << 10), 0);
    assert_thread(&attributes);
    pthread_attr_destroy(&attributes);
}

/* ---- stacks created by the program ---- */

static ucontext_t outside, inside;
static struct stacks in_coroutine;
static int coroutine_depth;

static void coroutine(void)
{
    by_sp(coroutine_depth, &in_coroutine);
    swapcontext(&inside, &outside);
}

/* Returns memory whose last byte is followed by an unreadable page. */
static char *guarded(size_t len)
{
    char *memory =
        mmap(NULL, len + PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(mprotect(memory + len, PAGE_BYTES, PROT_NONE), 0);
    return memory;
}

static void run_coroutine(char *memory, size_t len, int depth)
{
    memset(&in_coroutine, 0, sizeof(in_coroutine));
    coroutine_depth = depth;
    getcontext(&inside);
    inside.uc_stack.ss_sp = memory;
    inside.uc_stack.ss_size = len;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    swapcontext(&outside, &inside);
}

static void *coroutine_in_thread(void *arg)
{
    bool *ret = arg;
    char *memory = guarded(CORO_BYTES);

    *ret = true;
    for (int depth = 0; depth < 30 && *ret; depth++) {
        run_coroutine(memory, CORO_BYTES, depth);
        *ret = same_stacks(&in_coroutine) && in_coroutine.is_whole;
    }
    munmap(memory, CORO_BYTES + PAGE_BYTES);
    return NULL;
}

static void coroutine_of_the_main_thread_is_unwound(void **state)
{
    bool is_good = false;

    (void)state;
    coroutine_in_thread(&is_good);
    assert_true(is_good);
    assert_int_equal(lost(), 0);
}

static void coroutine_of_another_thread_is_unwound(void **state)
{
    bool is_good = false;
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, coroutine_in_thread, &is_good), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(is_good);
    assert_int_equal(lost(), 0);
}

static void sandboxed_process_unwinds_only_one_page_of_an_unknown_stack(void **state)
{
    char *memory = guarded(CORO_BYTES);

    (void)state;
    atomic_store(&heap_process.is_confined, 1);
    run_coroutine(memory, CORO_BYTES, 100);
    atomic_store(&heap_process.is_confined, 0);
    munmap(memory, CORO_BYTES + PAGE_BYTES);
    assert_true(in_coroutine.our_count < in_coroutine.their_count);
    assert_false(in_coroutine.is_whole);
    assert_int_equal(lost(), 1);
    for (size_t i = 1; i < in_coroutine.our_count; i++)
        assert_true(is_same_frame(&in_coroutine, i));
}

static void sandboxed_process_unwinds_the_whole_main_stack(void **state)
{
    struct stacks s;

    (void)state;
    atomic_store(&heap_process.is_confined, 1);
    by_sp(100, &s);
    atomic_store(&heap_process.is_confined, 0);
    assert_same(&s);
    assert_true(s.is_whole);
}

/* ---- stack bounds ---- */

static void *own_end_in_thread(void *arg)
{
    uintptr_t *ret = arg, here = (uintptr_t)__builtin_frame_address(0);

    ret[0] = unwind_stack_end(&heap_thread, here);
    ret[1] = here;
    ret[2] = unwind_stack_end(&heap_thread, (uintptr_t)table);
    pthread_attr_t attributes;
    void *start;
    size_t len;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &start, &len);
    pthread_attr_destroy(&attributes);
    ret[3] = (uintptr_t)start + len;
    return NULL;
}

static void unwinder_finds_the_end_of_a_thread_stack(void **state)
{
    uintptr_t seen[4];
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, own_end_in_thread, seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(seen[0] > seen[1]);
    assert_true(seen[0] <= seen[3]);
    assert_true(seen[3] - seen[0] < PAGE_BYTES * 2);
    assert_int_equal(seen[2], 0);
}

static void unwinder_finds_the_end_of_the_main_stack(void **state)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);

    (void)state;
    uintptr_t end = unwind_stack_end(&heap_thread, here);
    assert_true(end > here);
    assert_true(end - here < 16 << 20);
}

static void stack_range_is_extended_page_by_page_while_pages_are_readable(void **state)
{
    char *memory = guarded(4 * PAGE_BYTES);
    uintptr_t start = (uintptr_t)memory, word;

    (void)state;
    memory[3 * PAGE_BYTES] = 7;
    struct unwind_extent e = unwind_extent(&heap_thread, start + 8);
    assert_int_equal(e.high, start + PAGE_BYTES);
    assert_true(unwind_read(&e, start + 3 * PAGE_BYTES, &word));
    assert_int_equal(word, 7);
    assert_true(unwind_read(&e, start + 4 * PAGE_BYTES - 8, &word));
    assert_false(unwind_read(&e, start + 4 * PAGE_BYTES, &word));
    assert_false(unwind_read(&e, start + 4 * PAGE_BYTES - 4, &word));
    assert_false(unwind_read(&e, start, &word));
    assert_false(unwind_read(&e, UINTPTR_MAX - 7, &word));
    munmap(memory, 5 * PAGE_BYTES);
}

/* ---- where unwinding ends ---- */

#ifdef __x86_64__
/* This function has no CFI, like some hand-written code. */
__asm__(".pushsection .text\n"
        ".type test_without_cfi, @function\n"
        "test_without_cfi:\n"
        "sub $8, %rsp\n"
        "call *%rdi\n"
        "add $8, %rsp\n"
        "ret\n"
        ".size test_without_cfi, . - test_without_cfi\n"
        ".popsection\n");
extern void test_without_cfi(void (*call)(void)) __attribute__((visibility("hidden")));

static struct stacks in_assembly;

static void take_in_assembly(void)
{
    take(&in_assembly);
    STAYS();
}

static void unwinding_that_ends_at_code_without_cfi_is_counted(void **state)
{
    (void)state;
    test_without_cfi(take_in_assembly);
    assert_false(in_assembly.is_whole);
    assert_int_equal(lost(), 1);
    assert_int_equal(in_assembly.our_count, 3);
    assert_true(in_assembly.ours[2].ip - (uintptr_t)test_without_cfi < 16);
    assert_int_equal(in_assembly.ours[2].module, in_assembly.ours[0].module);
}

static void unwinding_ends_at_code_generated_at_run_time(void **state)
{
    static const uint8_t code[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd7,
                                   0x48, 0x83, 0xc4, 0x08, 0xc3};
    char *memory =
        mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void (*run)(void (*call)(void));

    (void)state;
    assert_ptr_not_equal(memory, MAP_FAILED);
    memcpy(memory, code, sizeof(code));
    if (mprotect(memory, PAGE_BYTES, PROT_READ | PROT_EXEC) < 0) {
        print_message("no code can be made at run time here\n");
        munmap(memory, PAGE_BYTES);
        skip();
    }
    memcpy(&run, &memory, sizeof(run));
    run(take_in_assembly);
    munmap(memory, PAGE_BYTES);
    assert_false(in_assembly.is_whole);
    assert_int_equal(in_assembly.our_count, 2);
    assert_int_equal(lost(), 1);
}
#endif

static void unwinding_preserves_errno(void **state)
{
    char *memory = guarded(CORO_BYTES);

    (void)state;
    errno = 12345;
    run_coroutine(memory, CORO_BYTES, 200);
    int after = errno;
    munmap(memory, CORO_BYTES + PAGE_BYTES);
    assert_int_equal(after, 12345);
    assert_int_equal(in_coroutine.our_count, FRAMES_MAX);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_table, drop_table)
    const struct CMUnitTest tests[] = {
        TEST(ordinary_stack_is_unwound_to_the_outermost_frame),
        TEST(recursion_is_unwound_at_every_depth),
        TEST(stack_deeper_than_the_maximum_keeps_the_innermost_frames),
        TEST(stack_of_a_callback_from_libc_is_unwound_through_libc),
        TEST(frames_of_a_library_are_unwound_after_every_reload),
        TEST(function_with_a_realigned_stack_is_unwound),
#ifdef __x86_64__
        TEST(stack_of_a_signal_handler_includes_the_interrupted_code),
        TEST(stack_of_a_handler_on_sigaltstack_includes_interrupted_code),
        TEST(signal_at_the_first_instruction_of_a_function_is_unwound),
#endif
        TEST(stacks_of_other_threads_are_unwound_to_the_outermost_frame),
        TEST(thread_on_a_stack_allocated_by_the_program_is_unwound),
        TEST(thread_with_a_small_stack_is_unwound),
        TEST(coroutine_of_the_main_thread_is_unwound),
        TEST(coroutine_of_another_thread_is_unwound),
        TEST(sandboxed_process_unwinds_only_one_page_of_an_unknown_stack),
        TEST(sandboxed_process_unwinds_the_whole_main_stack),
        TEST(unwinder_finds_the_end_of_a_thread_stack),
        TEST(unwinder_finds_the_end_of_the_main_stack),
        TEST(stack_range_is_extended_page_by_page_while_pages_are_readable),
#ifdef __x86_64__
        TEST(unwinding_that_ends_at_code_without_cfi_is_counted),
        TEST(unwinding_ends_at_code_generated_at_run_time),
#endif
        TEST(unwinding_preserves_errno),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
