/* Tests reading valid and hostile heap tables from outside the process. */
#include "profile/live_table.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "profile/fake_table.h"

enum { PID = 4711 };

struct fixture {
    struct fake fake;
    struct live_table table;
};

static struct fixture fixture;

static int setup(void **state)
{
    struct err err = {0};
    memset(&fixture, 0, sizeof fixture);
    fake_open(&fixture.fake, PID);
    assert_int_equal(live_table_open(fixture.fake.fd, PID, &fixture.table, &err), 0);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    live_table_close(&f->table);
    fake_close(&f->fake);
    return 0;
}

static size_t count_live(const struct fixture *f)
{
    struct live_samples live = {0};
    assert_int_equal(live_table_read(&f->table, &live), 0);
    size_t n = live.count;
    live_samples_fini(&live);
    return n;
}

static void opened_heap_table_has_its_start_time_and_interval(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(f->table.pid, PID);
    assert_int_equal(f->table.start_ns, FAKE_START_S * UINT64_C(1000000000));
    assert_int_equal(f->table.base_interval, FAKE_INTERVAL);
}

static void live_samples_are_sorted_by_call_site(void **state)
{
    struct fixture *f = *state;
    struct live_samples live = {0};
    fake_fill(&f->fake);
    fake_live(&f->fake, 1, 77, 1000);
    assert_int_equal(live_table_read(&f->table, &live), 0);
    assert_int_equal(live.count, 4);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(live.samples[i].site, 1);
    assert_int_equal(live.samples[3].site, 2);
    assert_int_equal(live.samples[3].size, 64 << 20);
    assert_int_equal(live.samples[3].interval, FAKE_INTERVAL);
    assert_int_equal(live.samples[3].born_ns, FAKE_START_S * UINT64_C(1000000000) + 900000000);
    assert_int_equal(live.samples[3].kind, HEAP_KIND_MALLOC);
    /* The table is read again into the same memory. */
    assert_int_equal(live_table_read(&f->table, &live), 0);
    assert_int_equal(live.count, 4);
    live_samples_fini(&live);
}

static void many_samples_in_random_order_are_sorted_by_call_site(void **state)
{
    struct fixture *f = *state;
    struct live_samples live = {0};
    enum { SITES = 97, SAMPLES = 5000 };
    size_t sizes = 0, found = 0;
    uint32_t node = fake_node(&f->fake, 1, 0);
    for (int i = 1; i < SITES; i++)
        fake_site(&f->fake, node);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        fake_live(&f->fake, i * 31 % SITES, i + 1, 0);
        sizes += i + 1;
    }
    assert_int_equal(live_table_read(&f->table, &live), 0);
    assert_int_equal(live.count, SAMPLES);
    for (size_t i = 0; i < live.count; i++) {
        found += live.samples[i].size;
        assert_int_equal(live.samples[i].site, (live.samples[i].size - 1) * 31 % SITES);
        assert_true(i == 0 || live.samples[i].site >= live.samples[i - 1].site);
    }
    assert_int_equal(found, sizes);
    live_samples_fini(&live);
}

static void sample_of_a_freed_block_is_not_read(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    fake_free(&f->fake, 1);
    assert_int_equal(count_live(f), 2);
}

static void live_entry_with_invalid_kind_or_size_or_interval_is_ignored(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    f->fake.table->live[0].interval = 0;
    f->fake.table->live[1].size = 0;
    f->fake.table->live[2].kind_turn = 9;
    assert_int_equal(count_live(f), 0);
}

static void sample_of_an_unknown_call_site_is_assigned_to_site_zero(void **state)
{
    struct fixture *f = *state;
    struct live_samples live = {0};
    fake_fill(&f->fake);
    f->fake.table->live[0].site = 3;
    f->fake.table->live[1].site = UINT32_MAX;
    assert_int_equal(live_table_read(&f->table, &live), 0);
    assert_int_equal(live.count, 3);
    assert_int_equal(live.samples[0].site, 0);
    assert_int_equal(live.samples[1].site, 0);
    assert_int_equal(live.samples[2].site, 2);
    live_samples_fini(&live);
}

static void heap_table_counts_are_capped_at_the_table_size(void **state)
{
    struct fixture *f = *state;
    struct heap_header *h = &f->fake.table->header;
    struct live_table_counts counts;
    h->modules = h->codes = h->nodes = h->sites = h->live_high = h->text_bytes = UINT32_MAX;
    h->python_state = 1000;
    live_table_counts(&f->table, &counts);
    assert_int_equal(counts.modules, HEAP_MODULES);
    assert_int_equal(counts.codes, HEAP_CODES);
    assert_int_equal(counts.nodes, HEAP_NODES);
    assert_int_equal(counts.sites, HEAP_SITES);
    assert_int_equal(counts.live, HEAP_LIVE);
    assert_int_equal(counts.text_bytes, HEAP_TEXT_BYTES);
    struct profile_cost cost;
    live_table_cost(&f->table, &cost);
    assert_int_equal(cost.python_state, HEAP_PYTHON_CHECK);
    assert_int_equal(count_live(f), 0);
}

static void counters_of_an_unknown_call_site_are_zero(void **state)
{
    struct fixture *f = *state;
    struct live_table_site site;
    fake_fill(&f->fake);
    f->fake.table->sites[2].freed_bytes = 99;
    live_table_site(&f->table, 2, &site);
    assert_true(site.allocated_bytes >= 64 << 20);
    assert_int_equal(site.allocated_objects_x16, 16);
    assert_int_equal(site.freed_bytes, 99);
    live_table_site(&f->table, 3, &site);
    assert_int_equal(site.allocated_bytes, 0);
    live_table_site(&f->table, UINT32_MAX, &site);
    assert_int_equal(site.allocated_bytes, 0);
}

static void cost_of_the_profiler_is_read_from_the_table_header(void **state)
{
    struct fixture *f = *state;
    struct profile_cost cost;
    fake_fill(&f->fake);
    f->fake.table->header.hook_ns = 123;
    f->fake.table->header.drops[HEAP_DROP_STALE] = 7;
    f->fake.table->header.python_state = HEAP_PYTHON_OK;
    live_table_cost(&f->table, &cost);
    assert_int_equal(cost.samples, 3);
    assert_int_equal(cost.hook_ns, 123);
    assert_int_equal(cost.drops[HEAP_DROP_STALE], 7);
    assert_int_equal(cost.python_state, HEAP_PYTHON_OK);
    assert_int_equal(cost.sites, 3);
    assert_int_equal(cost.nodes, 4);
    assert_int_equal(cost.interval, FAKE_INTERVAL);
    assert_false(live_table_is_ended(&f->table));
    f->fake.table->header.is_ended = 1;
    assert_true(live_table_is_ended(&f->table));
}

/* A large block is assumed to have its own mapping if it starts 16 bytes into a page, after
 * malloc's header. Small blocks, and blocks at other offsets, are assumed to be in malloc's heap.
 * Mappings made by the program never count as part of that heap. */
static void bytes_of_malloc_heaps_exclude_blocks_with_their_own_mapping(void **state)
{
    struct fixture *f = *state;
    struct profile_cost cost;
    struct heap_live *live = f->fake.table->live;
    fake_fill(&f->fake);
    const uint32_t large = fake_live(&f->fake, 1, 512 << 20, 0);
    const uint32_t small = fake_live(&f->fake, 1, 100 << 10, 0);
    const uint32_t mapped = fake_live(&f->fake, 1, 256 << 20, 0);
    live[large].ptr = 0x7f0000000abc0;
    live[small].ptr = 0x7f1000000010;
    live[mapped].ptr = 0x7f2000000030;
    live[mapped].kind_turn = HEAP_KIND_MAP;
    live_table_cost(&f->table, &cost);
    uint64_t all = cost.inside_bytes;
    live[large].ptr = 0x7f3000000010;
    live_table_cost(&f->table, &cost);
    assert_in_range(all - cost.inside_bytes, (512 << 20) - 1, (512 << 20) + 1);
    /* A large block aligned to 64 bytes has its own mapping as well. */
    live[large].ptr = 0x7f3000000040;
    live_table_cost(&f->table, &cost);
    assert_in_range(all - cost.inside_bytes, (512 << 20) - 1, (512 << 20) + 1);
    live[small].ptr = 0;
    live_table_cost(&f->table, &cost);
    assert_true(all - cost.inside_bytes > (512 << 20) + (100 << 10));
}

/* The test touches every fourth MiB of the pool, and the first half of the block that follows the
 * pool. */
static void only_resident_bytes_of_large_private_blocks_are_counted(void **state)
{
    struct fixture *f = *state;
    struct live_table_totals totals;
    enum { POOL = 256 << 20, BLOCK = 128 << 20, MIB = 1 << 20 };
    char *pool = mmap(NULL, POOL + BLOCK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    assert_ptr_not_equal(pool, MAP_FAILED);
    assert_true(pagemap >= 0);
    madvise(pool, POOL + BLOCK, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < POOL; at += 4 * MIB)
        memset(pool + at, 1, MIB);
    memset(pool + POOL, 1, BLOCK / 2);
    fake_fill(&f->fake);
    struct heap_live *live = f->fake.table->live;
    uint32_t first = fake_live(&f->fake, 1, POOL, 0), second = fake_live(&f->fake, 1, BLOCK, 0);
    uint32_t third = fake_live(&f->fake, 1, 96 * MIB, 0);
    live[first].ptr = (uintptr_t)pool;
    live[first].kind_turn = HEAP_KIND_POOL;
    live[second].ptr = (uintptr_t)pool + POOL;
    /* Shared memory is counted in full, because other processes may have touched its pages. */
    live[third].kind_turn = HEAP_KIND_SHARED;
    live_table_totals(&f->table, &totals);
    double others = totals.heap - BLOCK;
    assert_true(totals.pool >= POOL && totals.shared >= 96 * MIB);
    live_table_measure(&f->table, pagemap);
    live_table_totals(&f->table, &totals);
    double block = totals.heap - others;
    assert_true(totals.pool > POOL / 4 - MIB && totals.pool < POOL / 4 + MIB);
    assert_true(block > BLOCK / 2 - MIB && block < BLOCK / 2 + MIB);
    assert_true(totals.shared >= 96 * MIB);
    munmap(pool, POOL + BLOCK);
    live_table_measure(&f->table, pagemap);
    live_table_totals(&f->table, &totals);
    assert_true(totals.pool < MIB);
    close(pagemap);
}

static void heap_table_can_be_read_again_after_its_pages_are_dropped(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    assert_int_equal(count_live(f), 3);
    live_table_rest(&f->table);
    fake_live(&f->fake, 1, 5, 5);
    assert_int_equal(count_live(f), 4);
}

static int try_open(int fd, struct err *err)
{
    struct live_table table = {0};
    memset(err, 0, sizeof *err);
    int rc = live_table_open(fd, PID, &table, err);
    assert_null(table.map);
    return rc;
}

static void heap_table_version_error_names_found_and_expected_version(void **state)
{
    struct fixture *f = *state;
    struct err err;
    f->fake.table->header.version = 77;
    assert_int_equal(try_open(f->fake.fd, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "77"));
    assert_non_null(strstr(err.text, "version 2"));
}

static void heap_table_with_wrong_magic_or_size_is_refused(void **state)
{
    struct fixture *f = *state;
    struct err err;
    f->fake.table->header.table_bytes++;
    assert_int_equal(try_open(f->fake.fd, &err), -EBADMSG);
    f->fake.table->header.magic[0] = 'x';
    assert_int_equal(try_open(f->fake.fd, &err), -EBADMSG);
}

static int memfd_of(size_t bytes, int seals)
{
    int fd = memfd_create("odd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* If the mapping shrank, or were shorter than its header states, reading it could raise SIGBUS. */
static void heap_table_that_is_too_short_or_can_be_resized_is_refused(void **state)
{
    struct fixture *f = *state;
    struct err err;
    int open_end = memfd_of(sizeof(struct heap_table), 0);
    int empty = memfd_of(0, F_SEAL_SHRINK);
    int head_only = memfd_of(4096, F_SEAL_SHRINK);
    assert_int_equal(pwrite(head_only, f->fake.table, 4096, 0), 4096);
    assert_int_equal(try_open(open_end, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "shrink"));
    assert_int_equal(try_open(empty, &err), -EBADMSG);
    assert_int_equal(try_open(head_only, &err), -EBADMSG);
    close(open_end);
    close(empty);
    close(head_only);
}

static void heap_table_in_an_ordinary_file_is_refused(void **state)
{
    struct err err;
    int pipes[2];
    (void)state;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(try_open(null, &err), -EBADMSG);
    assert_int_equal(try_open(pipes[0], &err), -EBADMSG);
    assert_int_equal(try_open(-1, &err), -EBADMSG);
    close(null);
    close(pipes[0]);
    close(pipes[1]);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(opened_heap_table_has_its_start_time_and_interval),
        T(live_samples_are_sorted_by_call_site),
        T(many_samples_in_random_order_are_sorted_by_call_site),
        T(sample_of_a_freed_block_is_not_read),
        T(live_entry_with_invalid_kind_or_size_or_interval_is_ignored),
        T(sample_of_an_unknown_call_site_is_assigned_to_site_zero),
        T(heap_table_counts_are_capped_at_the_table_size),
        T(counters_of_an_unknown_call_site_are_zero),
        T(cost_of_the_profiler_is_read_from_the_table_header),
        T(bytes_of_malloc_heaps_exclude_blocks_with_their_own_mapping),
        T(heap_table_can_be_read_again_after_its_pages_are_dropped),
        T(heap_table_version_error_names_found_and_expected_version),
        T(heap_table_with_wrong_magic_or_size_is_refused),
        T(heap_table_that_is_too_short_or_can_be_resized_is_refused),
        T(heap_table_in_an_ordinary_file_is_refused),
        T(only_resident_bytes_of_large_private_blocks_are_counted),
    };
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
