/* Tests which heap history of a run folder is chosen, and the handling of invalid files. */
#include "profile/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "profile/fake_table.h"

struct fixture {
    char path[32];
    int fd;
    uint64_t later_ns; /* added to the start time of each history, in ns */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    snprintf(f->path, sizeof(f->path), "/tmp/ebb-test-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->fd = open(f->path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", f->path);
    close(f->fd);
    assert_int_equal(system(command), 0); /* NOLINT */
    free(f);
    return 0;
}

/* Writes a history NAME of process PID with one sample of SIZE bytes and, 50 s later, another
 * sample of GROWN bytes. */
static void growing_history(struct fixture *f, const char *name, int32_t pid, uint64_t size,
                            uint64_t grown)
{
    struct fake fake;
    struct live_table table;
    struct store_writer *w;
    struct err err = {{0}};
    double live;
    uint64_t now_ns = (FAKE_START_S + 10) * NS_PER_S;
    fake_open(&fake, pid);
    fake.table->header.start_ns += f->later_ns;
    uint32_t code = fake_code(&fake, "train.py", "main", 3);
    uint32_t node = fake_node(&fake, fake_frame_python(code, HEAP_INSTR_UNKNOWN), 0);
    uint32_t site = fake_site(&fake, node);
    fake_live(&fake, site, size, 5);
    assert_int_equal(live_table_open(fake.fd, pid, &table, &err), 0);
    assert_int_equal(store_create(f->fd, name, &table, &w, &err), 0);
    assert_int_equal(store_take(w, now_ns, false, 0, STORE_ASKED, &live), 0);
    if (grown) {
        fake_live(&fake, site, grown, 30);
        now_ns += 50 * NS_PER_S;
        assert_int_equal(store_take(w, now_ns, false, 0, STORE_ASKED, &live), 0);
    }
    assert_int_equal(store_writer_close(w, 120 * NS_PER_S), 0);
    live_table_close(&table);
    fake_close(&fake);
}

static void history(struct fixture *f, const char *name, int32_t pid, uint64_t size)
{
    growing_history(f, name, pid, size, 0);
}

/* Reads PATH below the folder. Returns the chosen name, or "" and an errno. */
static int taken(struct fixture *f, const char *below, int32_t pid, struct folder_heap *ret,
                 struct err *err)
{
    char path[256];
    snprintf(path, sizeof(path), "%s%s", f->path, below);
    *ret = (struct folder_heap){0};
    return folder_heap_read(path, pid, FOLDER_HOST, ret, err);
}

static void heap_file_of_largest_process_is_chosen_if_none_grows(void **state)
{
    struct fixture *f = *state;
    struct folder_heap h;
    struct err err = {{0}};
    history(f, "heap.10.ebbheap", 10, 64 << 20);
    history(f, "heap.11.ebbheap", 11, 900 << 20);
    history(f, "heap.11-2.ebbheap", 11, 300 << 20);
    history(f, "heap.12.ebbheap", 12, 1 << 20);
    assert_int_equal(taken(f, "", 0, &h, &err), 0);
    assert_string_equal(h.name, "heap.11.ebbheap");
    assert_int_equal(h.profile->pid, 11);
    assert_int_equal(h.others, 3);
    assert_true(folder_live_bytes(h.profile) > 800e6);
    folder_heap_fini(&h);
    assert_int_equal(taken(f, "", 10, &h, &err), 0);
    assert_string_equal(h.name, "heap.10.ebbheap");
    folder_heap_fini(&h);
    assert_int_equal(taken(f, "/heap.12.ebbheap", 0, &h, &err), 0);
    assert_int_equal(h.profile->pid, 12);
    folder_heap_fini(&h);
    assert_int_equal(taken(f, "/heap.12.ebbheap", 10, &h, &err), -ENOENT);
    assert_int_equal(taken(f, "", 99, &h, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no heap history of process 99"));
}

static void heap_file_of_growing_process_is_chosen_before_a_larger_one(void **state)
{
    struct fixture *f = *state;
    struct folder_heap h;
    struct err err = {{0}};
    history(f, "heap.10.ebbheap", 10, 900 << 20);
    /* The growth is too small to be certain. */
    growing_history(f, "heap.11.ebbheap", 11, 100 << 20, 100 << 10);
    growing_history(f, "heap.12.ebbheap", 12, 8 << 20, 32 << 20);
    growing_history(f, "heap.13.ebbheap", 13, 64 << 20, 16 << 20);
    assert_int_equal(taken(f, "", 0, &h, &err), 0);
    assert_int_equal(h.profile->pid, 12);
    assert_true(folder_grown_bytes(h.profile) > 30e6);
    assert_int_equal(h.others, 3);
    folder_heap_fini(&h);
    assert_int_equal(taken(f, "", 10, &h, &err), 0);
    assert_true(folder_grown_bytes(h.profile) <= 0);
    folder_heap_fini(&h);
}

/* After exec the process runs another program. */
static void heap_history_after_the_last_exec_is_chosen(void **state)
{
    struct fixture *f = *state;
    struct folder_heap h;
    struct err err = {{0}};
    growing_history(f, "heap.10.ebbheap", 10, 900 << 20, 100 << 20);
    f->later_ns = 2 * NS_PER_S;
    history(f, "heap.10-2.ebbheap", 10, 300 << 20);
    for (int32_t pid = 0; pid <= 10; pid += 10) {
        assert_int_equal(taken(f, "", pid, &h, &err), 0);
        assert_string_equal(h.name, "heap.10-2.ebbheap");
        assert_int_equal(h.others, 1);
        folder_heap_fini(&h);
    }
}

static void invalid_heap_file_is_an_error_if_no_valid_one_exists(void **state)
{
    struct fixture *f = *state;
    struct folder_heap h;
    struct err err = {{0}};
    assert_int_equal(taken(f, "", 0, &h, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no heap history found; ebb run records one"));
    assert_int_equal(taken(f, "/nothing", 0, &h, &err), -ENOENT);
    close(openat(f->fd, "heap.x.ebbheap", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    close(openat(f->fd, "heap.7.ebbheap.old", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(taken(f, "", 0, &h, &err), -ENOENT);
    close(openat(f->fd, "heap.8.ebbheap", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_true(taken(f, "", 0, &h, &err) < 0);
    assert_non_null(strstr(err.text, "heap.8.ebbheap"));
    assert_int_equal(mkfifoat(f->fd, "heap.9.ebbheap", 0600), 0);
    alarm(120); /* The alarm prevents a hang if the test fails. */
    history(f, "heap.10.ebbheap", 10, 1 << 20);
    assert_int_equal(taken(f, "", 0, &h, &err), 0);
    alarm(0);
    assert_string_equal(h.name, "heap.10.ebbheap");
    folder_heap_fini(&h);
}

static void every_readable_heap_history_is_read(void **state)
{
    struct fixture *f = *state;
    struct folder_heap found;
    struct folder_heaps heaps;
    struct err err = {""};
    int32_t sum = 0;
    history(f, "heap.10.ebbheap", 10, 1 << 20);
    history(f, "heap.300.ebbheap", 300, 1 << 20);
    close(openat(f->fd, "heap.8000.ebbheap", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    folder_heaps_read(f->path, &heaps);
    for (size_t i = 0; i < heaps.count; i++)
        sum += heaps.at[i].profile->pid;
    assert_int_equal(sum, 310);
    assert_true(heaps.error < 0);
    assert_int_equal(folder_heaps_pick(&heaps, 300, FOLDER_HOST, &found, &err), 0);
    folder_heaps_fini(&heaps);
    /* The profile stays valid after the list of files is freed. */
    assert_int_equal(found.profile->pid, 300);
    assert_int_equal(found.others, 1);
    folder_heap_fini(&found);
    folder_heaps_read("/nowhere/at/all", &heaps);
    assert_int_equal(heaps.count, 0);
    assert_true(folder_heaps_pick(&heaps, 0, FOLDER_HOST, &found, &err) < 0);
    folder_heaps_fini(&heaps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(heap_file_of_growing_process_is_chosen_before_a_larger_one,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(every_readable_heap_history_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(heap_file_of_largest_process_is_chosen_if_none_grows, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(heap_history_after_the_last_exec_is_chosen, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(invalid_heap_file_is_an_error_if_no_valid_one_exists, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
