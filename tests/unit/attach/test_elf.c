/* Tests the lookup of symbols in the memory of a process, on this process and on damaged copies. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attach/elf.h"
#include "attach/target.h"

enum { PAGE = 4096, COPY_AT = 16 * PAGE, COPY_BYTES = 64 * PAGE };

static int own_memory(void)
{
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* Finds the start of the C library, and the address of one of its functions. */
static uint64_t libc_start(uint64_t *ret_function)
{
    Dl_info info;
    void *function = dlsym(RTLD_DEFAULT, "getpgid");
    if (!function) {
        print_message("this program is static and has no C library in its memory\n");
        skip();
    }
    assert_true(dladdr(function, &info));
    *ret_function = (uintptr_t)function;
    return (uintptr_t)info.dli_fbase;
}

static void exported_function_is_found_in_process_memory(void **state)
{
    struct elf_module m;
    uint64_t function, found = 0, start = libc_start(&function);
    int fd = own_memory();
    (void)state;
    assert_int_equal(elf_module_read(fd, start, PAGE, &m), 0);
    assert_true(elf_module_symbol(&m, "getpgid", &found));
    assert_true(found == function);
    assert_true(m.start <= found && found < m.end);
    assert_true(m.tail_bytes < PAGE && (m.tail + m.tail_bytes) % PAGE == 0);
    assert_false(elf_module_symbol(&m, "no_such_function", &found));
    assert_false(elf_module_symbol(&m, "", &found));
    close(fd);
}

static void elf_reader_fails_if_no_elf_module_is_at_the_address(void **state)
{
    struct elf_module m = {.start = 77};
    char *page = aligned_alloc(PAGE, PAGE);
    int fd = own_memory();
    (void)state;
    memset(page, 0, PAGE);
    assert_int_equal(elf_module_read(fd, (uintptr_t)page, PAGE, &m), -EBADMSG);
    assert_int_equal(elf_module_read(fd, 0, PAGE, &m), -EIO);
    assert_int_equal(elf_module_read(fd, UINT64_MAX - 8, PAGE, &m), -EIO);
    assert_int_equal(m.start, 77);
    free(page);
    close(fd);
}

/* Creates a file that stands for the memory of a process: it has the first pages of the C library
 * at offset COPY_AT. */
static int copy_of_libc(char *bytes)
{
    uint64_t function, start = libc_start(&function);
    int fd = own_memory();
    int copy = memfd_create("elf", MFD_CLOEXEC);
    assert_true(copy >= 0);
    assert_true(attach_read(fd, start, bytes, COPY_BYTES));
    assert_true(attach_write(copy, COPY_AT, bytes, COPY_BYTES));
    close(fd);
    return copy;
}

/* Reads the module and looks a symbol up; any result is fine. */
static void read_damaged(int fd)
{
    struct elf_module m;
    uint64_t found;
    if (elf_module_read(fd, COPY_AT, PAGE, &m) == 0)
        (void)elf_module_symbol(&m, "getpgid", &found);
}

static void damaged_elf_module_does_not_crash_the_reader(void **state)
{
    char *bytes = malloc(COPY_BYTES);
    int fd = copy_of_libc(bytes);
    (void)state;
    srandom(1);
    for (int i = 0; i < 20000; i++) {
        off_t at = COPY_AT + random() % 1024; /* the headers */
        char byte = (char)random(), before = bytes[at - COPY_AT];
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        read_damaged(fd);
        assert_int_equal(pwrite(fd, &before, 1, at), 1);
    }
    for (off_t len = COPY_AT + 1200; len > COPY_AT; len -= 7) {
        assert_int_equal(ftruncate(fd, len), 0);
        read_damaged(fd);
    }
    close(fd);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exported_function_is_found_in_process_memory),
        cmocka_unit_test(elf_reader_fails_if_no_elf_module_is_at_the_address),
        cmocka_unit_test(damaged_elf_module_does_not_crash_the_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
