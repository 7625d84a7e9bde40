/* Tests that the replacements for functions of newer C libraries behave like the originals. */
#include "base/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void reallocarray_refuses_a_product_that_overflows(void **state)
{
    (void)state;
    uint64_t *a = compat_reallocarray(NULL, 4, sizeof *a);
    assert_non_null(a);
    a[3] = 7;
    a = compat_reallocarray(a, 1000, sizeof *a);
    assert_non_null(a);
    assert_int_equal(a[3], 7);
    errno = 0;
    assert_null(compat_reallocarray(a, SIZE_MAX / 4, 8));
    assert_int_equal(errno, ENOMEM);
    free(a);
}

static void getrandom_fills_all_bytes(void **state)
{
    unsigned char a[64] = {0}, b[64] = {0};

    (void)state;
    assert_int_equal(compat_getrandom(a, sizeof a, 0), sizeof a);
    assert_int_equal(compat_getrandom(b, sizeof b, 0), sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
}

static void memfd_create_returns_a_descriptor_closed_on_exec(void **state)
{
    (void)state;
    int fd = compat_memfd_create("test", 1);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
}

static void gettid_of_the_only_thread_returns_the_process_id(void **state)
{
    (void)state;
    assert_int_equal(compat_gettid(), getpid());
}

static void getdents64_lists_a_folder_and_fails_on_a_file(void **state)
{
    char entries[4096];

    (void)state;
    int fd = open("/proc/self", O_RDONLY | O_DIRECTORY);
    assert_true(compat_getdents64(fd, entries, sizeof entries) > 0);
    close(fd);
    fd = open("/proc/self/exe", O_RDONLY);
    assert_int_equal(compat_getdents64(fd, entries, sizeof entries), -1);
    close(fd);
}

static void explicit_bzero_clears_exactly_the_given_bytes(void **state)
{
    char bytes[] = "secret";

    (void)state;
    compat_explicit_bzero(bytes, 5);
    assert_memory_equal(bytes, "\0\0\0\0\0t", 7);
}

static void sigabbrev_np_knows_the_standard_signals_and_no_others(void **state)
{
    (void)state;
    for (int n = -1; n <= SIGRTMAX + 1; n++) {
        const char *name = compat_sigabbrev_np(n);
        assert_int_equal(name != NULL, n > 0 && n < 32);
#ifndef EBB_NO_SIGABBREV_NP
        if (name)
            assert_string_equal(name, sigabbrev_np(n));
#endif
    }
    assert_string_equal(compat_sigabbrev_np(SIGTERM), "TERM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reallocarray_refuses_a_product_that_overflows),
        cmocka_unit_test(getrandom_fills_all_bytes),
        cmocka_unit_test(memfd_create_returns_a_descriptor_closed_on_exec),
        cmocka_unit_test(gettid_of_the_only_thread_returns_the_process_id),
        cmocka_unit_test(getdents64_lists_a_folder_and_fails_on_a_file),
        cmocka_unit_test(explicit_bzero_clears_exactly_the_given_bytes),
        cmocka_unit_test(sigabbrev_np_knows_the_standard_signals_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
