/* Tests that each module is added to the table once, with its properties, and is marked as gone
 * after it was unloaded. */
#include "heap/modules.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cmocka.h>

#include "fresh_table.h"
#include "heap/unwind.h"

static struct heap_table *table;

static int make_table(void **state)
{
    assert_int_equal(fresh_table(state), 0);
    table = heap_process.table;
    modules_reset();
    return 0;
}

static uint32_t count(void)
{
    return atomic_load(&table->header.modules);
}

static void path_of(uint32_t module, char ret[PATH_MAX])
{
    struct heap_text path = table->modules[module - 1].path;

    assert_true(path.len < PATH_MAX);
    memcpy(ret, table->text + path.at, path.len);
    ret[path.len] = '\0';
}

static void module_of_the_program_has_the_path_of_the_executable(void **state)
{
    char path[PATH_MAX], want[PATH_MAX] = "";
    uintptr_t base = 1;

    (void)state;
    assert_true(readlink("/proc/self/exe", want, sizeof(want) - 1) > 0);
    uint32_t module = modules_find((uintptr_t)make_table, &base);
    assert_int_equal(module, 1);
    assert_int_equal(count(), 1);
    path_of(module, path);
    assert_string_equal(path, want);
    const struct heap_module *m = &table->modules[0];
    assert_int_equal(m->base, base);
    assert_true(m->start <= (uintptr_t)make_table && (uintptr_t)make_table < m->end);
    assert_int_equal(m->is_gone, 0);
}

static void two_addresses_in_one_library_have_the_same_module(void **state)
{
    uintptr_t one, other;
    char path[PATH_MAX];
    Dl_info info;

    (void)state;
    assert_true(dladdr((void *)(uintptr_t)getpagesize, &info) != 0);
    uint32_t module = modules_find((uintptr_t)info.dli_saddr, &one);
    assert_int_not_equal(module, MODULE_NONE);
    assert_true(dladdr((void *)(uintptr_t)gnu_get_libc_version, &info) != 0);
    assert_int_equal(modules_find((uintptr_t)info.dli_saddr, &other), module);
    assert_int_equal(one, other);
    assert_int_equal(one, (uintptr_t)info.dli_fbase);
    assert_int_equal(count(), 1);
    path_of(module, path);
    assert_string_equal(path, info.dli_fname);
}

static int any_build_id(struct dl_phdr_info *info, size_t size, void *user)
{
    const char **want = user;
    size_t i;

    (void)size;
    if (strcmp(info->dlpi_name, *want) != 0)
        return 0;
    for (i = 0; i < info->dlpi_phnum; i++) {
        const char *at = (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        size_t len = info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_NOTE && len >= 36 &&
            !memcmp(at, "\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU", 16)) {
            *want = at + 16;
            return 1;
        }
    }
    return 0;
}

static void build_id_is_read_from_memory(void **state)
{
    uintptr_t base;
    Dl_info info;

    (void)state;
    assert_true(dladdr((void *)(uintptr_t)getpagesize, &info) != 0);
    const char *id = info.dli_fname;
    if (!dl_iterate_phdr(any_build_id, &id)) {
        print_message("this libc has no build-id of 20 bytes\n");
        skip();
    }
    uint32_t module = modules_find((uintptr_t)info.dli_saddr, &base);
    assert_int_equal(table->modules[module - 1].build_id_len, 20);
    assert_memory_equal(table->modules[module - 1].build_id, id, 20);
}

static void vdso_is_listed_as_a_module(void **state)
{
    uintptr_t vdso = getauxval(AT_SYSINFO_EHDR), base;
    char path[PATH_MAX];

    (void)state;
    if (!vdso) {
        print_message("no vDSO here\n");
        skip();
    }
    uint32_t module = modules_find(vdso + 64, &base);
    assert_int_not_equal(module, MODULE_NONE);
    path_of(module, path);
    assert_non_null(strstr(path, "vdso"));
}

static void address_outside_libraries_has_no_module(void **state)
{
    uintptr_t base = 1;
    int local = 0;

    (void)state;
    assert_int_equal(modules_find((uintptr_t)&local, &base), MODULE_NONE);
    assert_int_equal(base, 0);
    assert_int_equal(modules_find((uintptr_t)table, &base), MODULE_NONE);
    assert_int_equal(modules_find(0, &base), MODULE_NONE);
    assert_int_equal(modules_find(UINTPTR_MAX, &base), MODULE_NONE);
    assert_int_equal(count(), 0);
}

static void module_lookup_without_a_table_finds_nothing(void **state)
{
    uintptr_t base = 1;

    (void)state;
    heap_process.table = NULL;
    assert_int_equal(modules_find((uintptr_t)make_table, &base), MODULE_NONE);
    assert_int_equal(base, 0);
    heap_process.table = table;
    assert_int_equal(modules_find((uintptr_t)make_table, &base), 1);
}

static void encoded_frame_contains_module_number_and_offset(void **state)
{
    (void)state;
    assert_int_equal(modules_frame(3, 0x7f0000001000, 0x7f0000001234), UINT64_C(0x3000000000234));
    assert_int_equal(modules_frame(MODULE_NONE, 0, 0x7f0000001234), UINT64_C(0x7f0000001234));
    assert_int_equal(modules_frame(HEAP_MODULES, 0, 1) & HEAP_FRAME_PYTHON, 0);
}

/* ---- loading and unloading ---- */

/* Every glibc installation has this library, and this program does not link it. */
static const char *const spare[] = {"libBrokenLocale.so.1", "libnsl.so.1", "libthread_db.so.1"};

static void *open_spare(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

/* Returns the address of the dynamic section of the library HANDLE. */
static uintptr_t inside(void *handle)
{
    struct link_map *map;

    assert_int_equal(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
    return (uintptr_t)map->l_ld;
}

static void reloaded_library_keeps_its_module_number(void **state)
{
    uint32_t number[3] = {0};
    uintptr_t base;

    (void)state;
    for (int round = 0; round < 50; round++)
        for (int i = 0; i < 3; i++) {
            void *handle = open_spare(spare[i]);
            if (!handle)
                continue;
            uint32_t module = modules_find(inside(handle), &base);
            assert_int_not_equal(module, MODULE_NONE);
            if (number[i])
                assert_int_equal(module, number[i]);
            number[i] = module;
            for (int other = 0; other < i; other++)
                assert_int_not_equal(module, number[other]);
            assert_int_equal(table->modules[module - 1].base, base);
            assert_int_equal(table->modules[module - 1].is_gone, 0);
            dlclose(handle);
            modules_changed();
        }
    assert_true(count() <= 3);
    if (count() < 2) {
        print_message("fewer than two libraries to load and unload here\n");
        skip();
    }
    /* The next look-up detects that modules were unloaded. */
    modules_find((uintptr_t)make_table, &base);
    for (int i = 0; i < 3; i++)
        if (number[i])
            assert_int_equal(table->modules[number[i] - 1].is_gone, 1);
}

static void module_generation_changes_with_each_unload_and_reset(void **state)
{
    uint32_t before = modules_generation();

    (void)state;
    modules_changed();
    assert_int_equal(modules_generation(), before + 1);
    modules_reset();
    assert_int_not_equal(modules_generation(), before + 1);
}

/* The cache of unwind rules contains module numbers, which must not outlive the table. */
static void unwound_frames_have_module_numbers_of_the_current_table(void **state)
{
    struct unwind_frame frames[8];
    struct module_map map = {.start = 0x1000, .end = 0x2000, .base = 0x1000, .name = "/none"};
    bool is_whole;

    (void)state;
    assert_true(unwind_here(frames, 8, &is_whole) > 1);
    assert_int_equal(frames[0].module, 1);
    memset(table, 0, sizeof(*table));
    modules_reset();
    assert_int_equal(modules_add(&map), 1);
    assert_true(unwind_here(frames, 8, &is_whole) > 1);
    assert_int_equal(frames[0].module, 2);
}

static void modules_that_do_not_fit_in_the_table_are_counted_as_drops(void **state)
{
    struct module_map map = {.name = "/none"};
    char name[32];
    uintptr_t base;

    (void)state;
    for (uintptr_t i = 1; i <= HEAP_MODULES; i++) {
        snprintf(name, sizeof(name), "/none/%zu", (size_t)i);
        map = (struct module_map){
            .start = i << 12, .end = (i + 1) << 12, .base = i << 12, .name = name};
        assert_int_equal(modules_add(&map), i);
    }
    assert_int_equal(modules_find((uintptr_t)make_table, &base), MODULE_NONE);
    assert_int_equal(base, 0);
    assert_int_equal(atomic_load(&table->header.drops[HEAP_DROP_MODULES]), 1);
    assert_int_equal(count(), HEAP_MODULES);
}

/* ---- concurrent threads ---- */

enum { THREADS = 8, LIBRARIES = 200 };

static pthread_barrier_t barrier;

static void *note_all(void *arg)
{
    uint32_t *numbers = arg;

    pthread_barrier_wait(&barrier);
    for (uintptr_t i = 0; i < LIBRARIES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "/none/%zu", (size_t)i);
        struct module_map map = {
            .start = (i + 1) << 16, .end = (i + 2) << 16, .base = (i + 1) << 16, .name = name};
        do
            numbers[i] = modules_add(&map);
        while (numbers[i] == MODULE_BUSY);
    }
    return NULL;
}

static void threads_get_the_same_number_for_a_module(void **state)
{
    static uint32_t numbers[THREADS][LIBRARIES];
    pthread_t threads[THREADS];

    (void)state;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, note_all, numbers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&barrier);
    assert_int_equal(count(), LIBRARIES);
    for (int i = 0; i < THREADS; i++)
        assert_memory_equal(numbers[i], numbers[0], sizeof(numbers[0]));
    for (uint32_t i = 0; i < LIBRARIES; i++) {
        uint32_t module = numbers[0][i];
        assert_int_not_equal(module, MODULE_NONE);
        assert_int_equal(table->modules[module - 1].base, (uint64_t)(i + 1) << 16);
        assert_int_equal(atomic_load(&modules_bases[module]), (uint64_t)(i + 1) << 16);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_table, drop_table)
    const struct CMUnitTest tests[] = {
        TEST(module_of_the_program_has_the_path_of_the_executable),
        TEST(two_addresses_in_one_library_have_the_same_module),
        TEST(build_id_is_read_from_memory),
        TEST(vdso_is_listed_as_a_module),
        TEST(address_outside_libraries_has_no_module),
        TEST(module_lookup_without_a_table_finds_nothing),
        TEST(encoded_frame_contains_module_number_and_offset),
        TEST(reloaded_library_keeps_its_module_number),
        TEST(module_generation_changes_with_each_unload_and_reset),
        TEST(unwound_frames_have_module_numbers_of_the_current_table),
        TEST(modules_that_do_not_fit_in_the_table_are_counted_as_drops),
        TEST(threads_get_the_same_number_for_a_module),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
