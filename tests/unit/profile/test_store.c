/* Tests heap histories: writing them from a table, reading them back, damaged files, and a full
 * disk. */
#include "profile/store.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "profile/fake_table.h"
#include "profile/store_pack.h"
#include "trace/block.h"

enum { PID = 4711 };
#define NAME "heap.4711.ebbheap"
#define LONG_NS (60 * NS_PER_S)

struct fixture {
    struct fake fake;
    struct live_table table;
    char folder[32];
    int dirfd;
    struct store_writer *writer;
};

static struct fixture fixture;

static int setup(void **state)
{
    struct fixture *f = &fixture;
    struct err err = {0};
    memset(f, 0, sizeof *f);
    fake_open(&f->fake, PID);
    assert_int_equal(live_table_open(f->fake.fd, PID, &f->table, &err), 0);
    snprintf(f->folder, sizeof f->folder, "/tmp/ebb-test-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    f->dirfd = open(f->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(store_create(f->dirfd, NAME, &f->table, &f->writer, &err), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    store_writer_close(f->writer, LONG_NS);
    live_table_close(&f->table);
    fake_close(&f->fake);
    unlinkat(f->dirfd, NAME, 0);
    close(f->dirfd);
    assert_int_equal(rmdir(f->folder), 0);
    return 0;
}

static uint64_t at_s(double s)
{
    return FAKE_START_S * NS_PER_S + (uint64_t)(s * 1e9);
}

static double take(struct fixture *f, double s, int64_t step, enum store_why why)
{
    double live = -1;
    assert_int_equal(store_take(f->writer, at_s(s), step >= 0, step, why, &live), 0);
    return live;
}

static void load(struct fixture *f, struct buf *ret)
{
    assert_int_equal(store_flush(f->writer, LONG_NS), 0);
    assert_int_equal(io_read_all(f->dirfd, NAME, 64 << 20, ret), 0);
}

static struct profile *parse(const struct buf *b, struct store_damage *ret_damage)
{
    struct profile *p = NULL;
    struct err err = {0};
    assert_int_equal(store_parse(b->data, b->len, &p, ret_damage, &err), 0);
    return p;
}

/* Reads the file, which must be undamaged. */
static struct profile *read_back(struct fixture *f)
{
    struct buf b = {0};
    struct store_damage damage;
    load(f, &b);
    struct profile *p = parse(&b, &damage);
    assert_int_equal(damage.bad_bytes, 0);
    assert_int_equal(damage.cut_bytes, 0);
    buf_fini(&b);
    return p;
}

static void check_text(struct profile_text text, const char *expected)
{
    assert_int_equal(text.len, strlen(expected));
    assert_memory_equal(text.at, expected, text.len);
}

static void check_near(double a, double b)
{
    if (fabs(a - b) > 1)
        fail_msg("%f is not %f", a, b);
}

static double weight(uint64_t size)
{
    return profile_weight_bytes(size, FAKE_INTERVAL);
}

static void stored_heap_names_and_stacks_are_read_back(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    take(f, 2, -1, STORE_DUE);
    struct profile *p = read_back(f);
    assert_int_equal(p->pid, PID);
    assert_int_equal(p->start_ns, FAKE_START_S * NS_PER_S);
    assert_int_equal(p->cost.base_interval, FAKE_INTERVAL);
    assert_int_equal(p->n_modules, 1);
    check_text(p->modules[0].path, "/lib/libpixels.so");
    assert_int_equal(p->modules[0].base, 0x7f0000000000);
    assert_int_equal(p->modules[0].build_id_len, 4);
    assert_memory_equal(p->modules[0].build_id, "\xde\xad\xbe\xef", 4);
    assert_int_equal(p->n_codes, 2);
    check_text(p->codes[1].file, "data.py");
    check_text(p->codes[1].name, "Images.load");
    check_text(p->codes[1].lines, "lines");
    assert_int_equal(p->codes[1].first_line, 3);
    assert_int_equal(p->n_nodes, 4);
    assert_int_equal(p->nodes[3].frame, fake_frame_native(0, 0x1234));
    assert_int_equal(p->nodes[3].parent, 2);
    assert_int_equal(p->nodes[3].depth, 3);
    assert_int_equal(p->n_sites, 3);
    assert_int_equal(p->site_node[1], 3);
    assert_int_equal(p->site_node[2], 1);
    profile_free(p);
}

/* Variance of the bytes that one sample represents: s²(1 − p)/p². */
static double variance(uint64_t size)
{
    return weight(size) * weight(size) * (1 - profile_probability(size, FAKE_INTERVAL));
}

static void heap_reading_has_the_live_bytes_of_each_call_site(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    double live = take(f, 2, 17, STORE_DUE);
    struct profile *p = read_back(f);
    assert_int_equal(p->n_readings, 1);
    const struct profile_reading *r = &p->readings[0];
    assert_int_equal(r->t_ns, at_s(2));
    assert_true(r->has_step);
    assert_int_equal(r->step, 17);
    assert_int_equal(r->count, 2);
    assert_int_equal(r->held[0].site, 1);
    check_near(r->held[0].live_bytes, weight(4 << 20) + weight(1000));
    check_near(r->held[0].live_objects, 1 + profile_weight_objects(1000, FAKE_INTERVAL));
    double sd = sqrt(variance(1000) + variance(4 << 20));
    check_near(sqrt(r->held[0].live_variance), sd);
    check_near(r->held[0].allocated_bytes, weight(4 << 20) + weight(1000));
    check_near(r->held[0].allocated_objects, r->held[0].live_objects);
    assert_true(r->held[0].freed_bytes == 0);
    check_near(live, r->held[0].live_bytes + r->held[1].live_bytes);
    assert_false(p->is_ended);
    profile_free(p);
}

static void differences_between_heap_readings_add_up_to_the_last_reading(void **state)
{
    struct fixture *f = *state;
    /* A complete reading is written every 64th time, so 150 readings include at least two. */
    enum { READINGS = 150 };
    fake_fill(&f->fake);
    for (int i = 0; i < READINGS; i++) {
        fake_live(&f->fake, 1, 1 << 20, 0);
        if (i == 100)
            fake_free(&f->fake, 2);
        take(f, 2 + 2 * i, i, STORE_DUE);
    }
    struct profile *p = read_back(f);
    assert_int_equal(p->n_readings, READINGS);
    for (int i = 0; i < READINGS; i++) {
        const struct profile_reading *r = &p->readings[i];
        assert_int_equal(r->step, i);
        check_near(r->held[0].live_bytes,
                   weight(4 << 20) + weight(1000) + (i + 1) * weight(1 << 20));
        assert_int_equal(r->count, i < 100 || i == READINGS - 1 ? 2 : 1);
    }
    profile_free(p);
}

static void call_sites_without_live_bytes_are_only_in_last_heap_reading(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    take(f, 2, -1, STORE_DUE);
    fake_free(&f->fake, 2);
    take(f, 4, -1, STORE_DUE);
    take(f, 6, -1, STORE_LAST);
    struct profile *p = read_back(f);
    assert_int_equal(p->n_readings, 3);
    assert_int_equal(p->readings[1].count, 1);
    const struct profile_reading *last = &p->readings[2];
    assert_int_equal(last->count, 2);
    assert_int_equal(last->held[1].site, 2);
    assert_true(last->held[1].live_bytes == 0);
    check_near(last->held[1].freed_bytes, weight(64 << 20));
    assert_true(p->is_ended);
    assert_false(p->readings[1].is_ended);
    assert_true(last->is_ended);
    profile_free(p);
}

static void each_heap_reading_has_its_own_arena_bytes(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    take(f, 2, -1, STORE_DUE);
    f->fake.table->header.python_arena_bytes = 7 << 20;
    take(f, 4, -1, STORE_DUE);
    struct profile *p = read_back(f);
    assert_int_equal(p->n_readings, 2);
    assert_int_equal(p->readings[0].arena_bytes, 0);
    assert_int_equal(p->readings[1].arena_bytes, 7 << 20);
    profile_free(p);
}

static void heap_snapshot_has_every_sample_with_its_age(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    fake_live(&f->fake, 1, 3000, 100);
    f->fake.table->live[3].kind_turn = HEAP_KIND_PYTHON;
    f->fake.table->live[3].interval = 2 * FAKE_INTERVAL / 64;
    take(f, 2, 5, STORE_DUE);
    struct profile *p = read_back(f);
    assert_int_equal(p->n_snapshots, 1);
    const struct profile_snapshot *s = &p->snapshots[0];
    assert_int_equal(s->t_ns, at_s(2));
    assert_int_equal(s->step, 5);
    assert_int_equal(s->count, 4);
    /* Samples are ordered by site and then by age, youngest first. */
    const uint64_t sizes[] = {1000, 4 << 20, 3000, 64 << 20};
    const double born_s[] = {0.7, 0.5, 0.1, 0.9};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(s->samples[i].site, i < 3 ? 1 : 2);
        assert_int_equal(s->samples[i].size, sizes[i]);
        assert_int_equal(s->samples[i].born_ns / NS_PER_MS, at_s(born_s[i]) / NS_PER_MS);
        assert_int_equal(s->samples[i].interval, i == 2 ? 2 * FAKE_INTERVAL : FAKE_INTERVAL);
        assert_int_equal(s->samples[i].kind, i == 2 ? HEAP_KIND_PYTHON : HEAP_KIND_MALLOC);
    }
    profile_free(p);
}

static void heap_snapshot_has_samples_of_every_kind(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    for (uint32_t kind = 0; kind < HEAP_KINDS; kind++)
        f->fake.table->live[fake_live(&f->fake, 2, 100 + kind, 900 - kind)].kind_turn = kind;
    take(f, 2, 5, STORE_DUE);
    struct profile *p = read_back(f);
    const struct profile_snapshot *s = &p->snapshots[0];
    unsigned seen = 0;
    assert_int_equal(s->count, 3 + HEAP_KINDS);
    for (size_t i = 0; i < s->count; i++)
        if (s->samples[i].size >= 100 && s->samples[i].size < 100 + HEAP_KINDS) {
            assert_int_equal(s->samples[i].kind, s->samples[i].size - 100);
            assert_int_equal(s->samples[i].site, 2);
            seen++;
        }
    assert_int_equal(seen, HEAP_KINDS);
    profile_free(p);
}

static void sample_allocated_after_its_snapshot_has_age_0(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    f->fake.table->live[0].born_ms = UINT32_MAX;
    take(f, 2, -1, STORE_DUE);
    struct profile *p = read_back(f);
    for (size_t i = 0; i < p->snapshots[0].count; i++)
        assert_true(p->snapshots[0].samples[i].born_ns <= at_s(2));
    profile_free(p);
}

static size_t snapshots_after(struct fixture *f)
{
    struct profile *p = read_back(f);
    size_t n = p->n_snapshots;
    profile_free(p);
    return n;
}

static void heap_snapshot_is_taken_after_growth_or_an_epoch(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    take(f, 1000, -1, STORE_DUE);
    take(f, 1100, -1, STORE_DUE);
    assert_int_equal(snapshots_after(f), 1); /* no new snapshot without a change */
    fake_live(&f->fake, 1, 7 << 20, 0);
    take(f, 1102, -1, STORE_DUE);
    assert_int_equal(snapshots_after(f), 2); /* new snapshot after growth by a tenth */
    take(f, 1110, -1, STORE_EPOCH);
    assert_int_equal(snapshots_after(f), 2); /* too soon */
    take(f, 1200, -1, STORE_EPOCH);
    assert_int_equal(snapshots_after(f), 3);
    take(f, 1201, -1, STORE_LAST);
    assert_int_equal(snapshots_after(f), 4);
    take(f, 2000, -1, STORE_DUE);
    assert_int_equal(snapshots_after(f), 5); /* new snapshot after a quarter of the run */
}

static void repeated_requests_for_readings_do_not_fill_the_heap_file(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    take(f, 10000, -1, STORE_DUE);
    double live = take(f, 10060, -1, STORE_ASKED);
    assert_int_equal(snapshots_after(f), 2);
    uint64_t size = store_size_bytes(f->writer);
    for (int i = 1; i < 50; i++)
        assert_true(take(f, 10060 + i * 0.1, -1, STORE_ASKED) == live);
    assert_int_equal(store_size_bytes(f->writer), size);
    /* The request adds a reading but no snapshot, because the last snapshot is recent. */
    take(f, 10066, -1, STORE_ASKED);
    assert_true(store_size_bytes(f->writer) > size);
    assert_int_equal(snapshots_after(f), 2);
}

static void heap_readings_become_rarer_in_long_runs_and_large_files(void **state)
{
    (void)state;
    assert_int_equal(store_interval_ns(0, 0), NS_PER_S);
    assert_int_equal(store_interval_ns(60 * NS_PER_S, 0), 2 * NS_PER_S);
    assert_int_equal(store_interval_ns(1000 * NS_PER_S, 0), 2 * NS_PER_S);
    assert_int_equal(store_interval_ns(10000 * NS_PER_S, 0), 20 * NS_PER_S);
    assert_int_equal(store_interval_ns(10000 * NS_PER_S, STORE_BYTES_MAX / 2), 320 * NS_PER_S);
    assert_int_equal(store_interval_ns(0, UINT64_MAX), 256 * NS_PER_S);
}

static void names_added_after_the_first_heap_reading_are_stored(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    take(f, 2, -1, STORE_DUE);
    uint64_t first = store_size_bytes(f->writer);
    take(f, 4, -1, STORE_DUE);
    uint64_t second = store_size_bytes(f->writer) - first;
    /* The second reading is small, because names are not written again. */
    assert_true(second < first / 2);
    uint32_t code = fake_code(&f->fake, "later.py", "late", 1);
    uint32_t site = fake_site(&f->fake, fake_node(&f->fake, fake_frame_python(code, 2), 1));
    fake_live(&f->fake, site, 8 << 20, 4000);
    take(f, 6, -1, STORE_DUE);
    struct profile *p = read_back(f);
    assert_int_equal(p->n_sites, 4);
    assert_int_equal(p->site_node[3], 4);
    check_text(p->codes[2].name, "late");
    assert_int_equal(p->readings[2].count, 3);
    profile_free(p);
}

static void heap_table_with_invalid_entries_gives_a_valid_profile(void **state)
{
    struct fixture *f = *state;
    struct heap_table *t = f->fake.table;
    fake_fill(&f->fake);
    /* Node 4 has an unknown module and is its own parent. */
    fake_node(&f->fake, fake_frame_native(5000, 1), 5);
    fake_node(&f->fake, fake_frame_python(0x7fffffff, 1), 70000); /* 5 */
    for (uint32_t i = 6; i < 1000; i++)
        fake_node(&f->fake, 1, i - 1); /* The chain of nodes is deeper than a stack may be. */
    t->nodes[0].parent = 3;
    t->sites[1].node = UINT32_MAX;
    t->sites[2].node = 999;
    t->modules[0].path = (struct heap_text){UINT32_MAX, UINT32_MAX};
    t->modules[0].build_id_len = 255;
    t->codes[0].name = (struct heap_text){HEAP_TEXT_BYTES - 1, 2};
    t->codes[0].file = (struct heap_text){HEAP_TEXT_BYTES, 0};
    take(f, 2, -1, STORE_DUE);
    struct profile *p = read_back(f);
    assert_int_equal(p->nodes[0].parent, 0);
    assert_int_equal(p->nodes[0].depth, 0);
    for (size_t i = 1; i < p->n_nodes; i++) {
        assert_true(p->nodes[i].parent < i);
        assert_int_equal(p->nodes[i].depth, p->nodes[p->nodes[i].parent].depth + 1);
        assert_true(p->nodes[i].depth <= HEAP_STACK_MAX);
    }
    assert_int_equal(p->nodes[4].parent, 0);
    assert_int_equal(p->nodes[4].frame, 0);
    assert_int_equal(p->nodes[5].frame, 0);
    assert_int_equal(p->site_node[1], 0);
    assert_int_equal(p->site_node[2], 999);
    assert_int_equal(p->modules[0].path.len, 0);
    assert_int_equal(p->modules[0].build_id_len, 0);
    assert_int_equal(p->codes[0].name.len, 0);
    assert_non_null(p->codes[0].file.at);
    profile_free(p);
}

static void heap_table_whose_counts_decrease_gives_a_valid_profile(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    take(f, 2, -1, STORE_DUE);
    f->fake.table->header.sites = f->fake.table->header.nodes = 0;
    f->fake.table->header.text_bytes = 0;
    take(f, 4, -1, STORE_DUE);
    f->fake.table->header.sites = 3;
    take(f, 6, -1, STORE_DUE);
    struct profile *p = read_back(f);
    assert_int_equal(p->n_sites, 3);
    assert_int_equal(p->n_readings, 3);
    assert_int_equal(p->readings[2].count, 2);
    profile_free(p);
}

/* Returns the offset of block N (0-based) of TYPE, or the file length if there is none. */
static size_t find_block(const struct buf *b, uint16_t type, unsigned n)
{
    size_t at = BLOCK_FILE_HEAD_BYTES;
    while (at + BLOCK_HEAD_BYTES <= b->len) {
        struct block_head head;
        assert_int_equal(block_head_parse((const uint8_t *)b->data + at, &head), 0);
        if (head.type == type && n-- == 0)
            return at;
        at += BLOCK_HEAD_BYTES + head.stored_len;
    }
    return b->len;
}

static void damaged_heap_reading_affects_only_readings_that_refer_to_it(void **state)
{
    struct fixture *f = *state;
    struct buf b = {0};
    struct store_damage damage;
    fake_fill(&f->fake);
    for (int i = 0; i < 70; i++) {
        fake_live(&f->fake, 1, 1 << 20, 0);
        take(f, 2 + 2 * i, i, STORE_DUE);
    }
    load(f, &b);
    b.data[find_block(&b, STORE_READING, 10) + BLOCK_HEAD_BYTES] ^= 1;
    struct profile *p = parse(&b, &damage);
    assert_true(damage.bad_bytes > 0);
    assert_int_equal(p->n_readings,
                     /* Ten readings come before the damage. Another six can be read after it, from
                        the next complete reading on. */
                     10 + 6);
    assert_int_equal(p->readings[9].step, 9);
    assert_int_equal(p->readings[10].step, 64);
    check_near(p->readings[10].held[0].live_bytes,
               weight(4 << 20) + weight(1000) + 65 * weight(1 << 20));
    profile_free(p);
    buf_fini(&b);
}

static void damaged_heap_names_do_not_affect_byte_counts(void **state)
{
    struct fixture *f = *state;
    struct buf b = {0};
    struct store_damage damage;
    fake_fill(&f->fake);
    take(f, 2, -1, STORE_DUE);
    load(f, &b);
    b.data[find_block(&b, STORE_NEWS, 0) + BLOCK_HEAD_BYTES + 3] ^= 1;
    struct profile *p = parse(&b, &damage);
    assert_int_equal(p->n_readings, 1);
    assert_int_equal(p->readings[0].count, 2);
    assert_int_equal(p->n_sites, 3);
    assert_int_equal(p->site_node[2], 0);
    profile_free(p);
    buf_fini(&b);
}

static void intact_blocks_of_a_truncated_heap_history_are_read(void **state)
{
    struct fixture *f = *state;
    struct buf b = {0};
    size_t readings = 0;
    fake_fill(&f->fake);
    for (int i = 0; i < 3; i++)
        take(f, 2 + 2 * i, -1, STORE_DUE);
    load(f, &b);
    for (size_t len = 0; len <= b.len; len++) {
        struct profile *p = NULL;
        struct store_damage damage;
        int rc = store_parse(b.data, len, &p, &damage, NULL);
        if (rc < 0) {
            assert_int_equal(rc, -EBADMSG);
            assert_true(len < find_block(&b, STORE_NEWS, 0));
            continue;
        }
        assert_true(p->n_readings >= readings);
        readings = p->n_readings;
        profile_free(p);
    }
    assert_int_equal(readings, 3);
    buf_fini(&b);
}

/* The disk refused some data. Data that is written later must not depend on the refused data. */
static void heap_history_continues_after_the_disk_was_full(void **state)
{
    struct fixture *f = *state;
    struct rlimit before, small;
    fake_fill(&f->fake);
    take(f, 2, 1, STORE_DUE);
    assert_int_equal(store_flush(f->writer, LONG_NS), 0);
    assert_int_equal(store_error(f->writer), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = store_size_bytes(f->writer) + 32;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    fake_code(&f->fake, "lost.py", "lost", 1);
    fake_live(&f->fake, 1, 5 << 20, 3000);
    take(f, 4, 2, STORE_DUE);
    assert_int_equal(store_flush(f->writer, LONG_NS), -EFBIG);
    assert_int_equal(store_error(f->writer), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    take(f, 6, 3, STORE_DUE);
    /* The first error is still reported. */
    assert_int_equal(store_flush(f->writer, LONG_NS), -EFBIG);
    struct buf b = {0};
    struct store_damage damage;
    assert_int_equal(io_read_all(f->dirfd, NAME, 64 << 20, &b), 0);
    struct profile *p = parse(&b, &damage);
    assert_int_equal(damage.bad_bytes + damage.cut_bytes, 0);
    assert_int_equal(p->n_readings, 2);
    assert_int_equal(p->readings[1].step, 3);
    check_near(p->readings[1].held[0].live_bytes, weight(4 << 20) + weight(1000) + weight(5 << 20));
    check_text(p->codes[2].name, "lost");
    profile_free(p);
    buf_fini(&b);
}

static void heap_file_of_another_format_or_version_is_refused(void **state)
{
    struct fixture *f = *state;
    struct profile *p = NULL;
    struct err err = {0};
    struct buf b = {0};
    assert_int_equal(store_parse("EBBTRACE, not a heap", 20, &p, NULL, &err), -EBADMSG);
    assert_int_equal(store_parse("", 0, &p, NULL, &err), -EBADMSG);
    load(f, &b);
    /* A file without readings is refused. */
    assert_int_equal(store_parse(b.data, b.len, &p, NULL, &err), -EBADMSG);
    b.data[8] = 9;
    assert_int_equal(store_parse(b.data, b.len, &p, NULL, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "version 9"));
    assert_null(p);
    buf_fini(&b);
}

static void existing_heap_history_is_not_overwritten(void **state)
{
    struct fixture *f = *state;
    struct store_writer *second = NULL;
    struct err err = {0};
    assert_int_equal(store_create(f->dirfd, NAME, &f->table, &second, &err), -EEXIST);
    assert_null(second);
    assert_non_null(strstr(err.text, NAME));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(stored_heap_names_and_stacks_are_read_back),
        T(heap_reading_has_the_live_bytes_of_each_call_site),
        T(differences_between_heap_readings_add_up_to_the_last_reading),
        T(call_sites_without_live_bytes_are_only_in_last_heap_reading),
        T(each_heap_reading_has_its_own_arena_bytes),
        T(heap_snapshot_has_every_sample_with_its_age),
        T(sample_allocated_after_its_snapshot_has_age_0),
        T(heap_snapshot_is_taken_after_growth_or_an_epoch),
        T(repeated_requests_for_readings_do_not_fill_the_heap_file),
        T(heap_readings_become_rarer_in_long_runs_and_large_files),
        T(names_added_after_the_first_heap_reading_are_stored),
        T(heap_table_with_invalid_entries_gives_a_valid_profile),
        T(heap_table_whose_counts_decrease_gives_a_valid_profile),
        T(damaged_heap_reading_affects_only_readings_that_refer_to_it),
        T(damaged_heap_names_do_not_affect_byte_counts),
        T(intact_blocks_of_a_truncated_heap_history_are_read),
        T(heap_history_continues_after_the_disk_was_full),
        T(heap_file_of_another_format_or_version_is_refused),
        T(existing_heap_history_is_not_overwritten),
        T(heap_snapshot_has_samples_of_every_kind),
    };
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
