/* Tests the reader with truncated, damaged, partially overwritten, foreign and hostile files. */
#include "trace/reader.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "trace/block.h"
#include "trace/record.h"
#include "trace/scan.h"
#include "trace/fake_job.h"

/* A recording with sealed blocks and raw parts at its end, as left by a crash of the writer. */
struct recording {
    struct fake_job fake_job;
    struct buf bytes;
    struct scan scan;
};

static void recording_make(struct recording *rec, unsigned ticks, size_t block_cells)
{
    char path[256];
    struct trace_writer_options options = {.block_cells = block_cells};
    struct trace_writer *w;
    unlink(fake_job_path(path, "made.ebb"));
    assert_int_equal(trace_writer_new(AT_FDCWD, path, NULL, &options, &w, NULL), 0);
    for (unsigned i = 0; i < ticks; i++) {
        fake_job_tick(&rec->fake_job, w);
        trace_writer_flush(w, rec->fake_job.t_ns, true);
        fake_job_settle(w);
    }
    fake_job_read_bytes(path, &rec->bytes);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(scan_file(&rec->scan, fd), 0);
    close(fd);
    assert_int_equal(trace_writer_close(w, NULL, 120 * NS_PER_S), 0);
}

static void recording_fini(struct recording *rec)
{
    fake_job_fini(&rec->fake_job);
    buf_fini(&rec->bytes);
    scan_fini(&rec->scan);
}

static size_t count_type(const struct scan *s, uint16_t type)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        n += s->blocks[i].head.type == type;
    return n;
}

static struct trace_reader *open_bytes(const void *data, size_t len)
{
    char path[256];
    struct trace_reader *r;
    struct err err = {0};
    fake_job_write_file(fake_job_path(path, "damaged.ebb"), data, len);
    if (trace_reader_open(path, &r, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

static void check_is_prefix(const struct lines *written, const struct lines *read)
{
    assert_true(read->count <= written->count);
    for (size_t i = 0; i < read->count; i++)
        assert_string_equal(read->line[i], written->line[i]);
}

/* Returns the next length after AT to test, for a block of LEN bytes: all lengths up to twice the
 * header size, then every seventh, and LEN itself. */
static size_t next_length(size_t at, size_t len)
{
    size_t next = at + (at < 2 * BLOCK_HEAD_BYTES ? 1 : 7);
    return at < len && next > len ? len : next;
}

static void intact_blocks_of_a_truncated_recording_are_all_read(void **state)
{
    (void)state;
    struct recording rec = {.fake_job = {.seed = 5, .with_events = true}};
    size_t next = 0, last_count = 0;
    recording_make(&rec, 45, 600);
    assert_true(count_type(&rec.scan, BLOCK_SEALED) >= 2);
    assert_true(count_type(&rec.scan, BLOCK_RAW) >= 2);
    for (size_t len = BLOCK_FILE_HEAD_BYTES; next < rec.scan.count;) {
        const struct scan_block *b = &rec.scan.blocks[next];
        size_t block_len = BLOCK_HEAD_BYTES + b->head.stored_len;
        bool whole = len == b->offset + block_len;
        struct lines read = {0};
        struct trace_reader_damage damage;
        struct trace_reader *r = open_bytes(rec.bytes.data, len);
        fake_job_read(r, false, &read);
        trace_reader_damage(r, &damage);
        check_is_prefix(&rec.fake_job.written, &read);
        if (!whole) /* A partial block neither adds nor removes items. */
            assert_int_equal(read.count, last_count);
        else if (b->head.type != BLOCK_HEADER)
            assert_true(read.count > last_count);
        assert_true(whole || len == BLOCK_FILE_HEAD_BYTES || damage.cut_bytes > 0);
        assert_int_equal(damage.bad_bytes, 0);
        last_count = read.count;
        lines_fini(&read);
        trace_reader_free(r);
        next += whole;
        if (!whole)
            len = b->offset + next_length(len - b->offset, block_len);
        else if (next < rec.scan.count)
            len++;
    }
    assert_int_equal(last_count, rec.fake_job.written.count);
    recording_fini(&rec);
}

static void check_is_subsequence(const struct lines *written, struct trace_reader *r)
{
    struct trace_item item;
    struct buf b = {0};
    size_t at = 0;
    while (trace_reader_next(r, &item) > 0) {
        if (item.kind == TRACE_PROCESS || item.kind == TRACE_ENTITY)
            continue; /* After a lost block, the same start or exit may be returned twice. */
        buf_clear(&b);
        fake_job_render(&item, true, &b);
        while (at < written->count && strcmp(written->line[at], buf_str(&b)) != 0)
            at++;
        if (at == written->count)
            fail_msg("was never written: %s", buf_str(&b));
        at++;
    }
    buf_fini(&b);
}

static void changed_byte_in_a_recording_never_yields_wrong_values(void **state)
{
    (void)state;
    struct recording rec = {.fake_job = {.seed = 6, .with_events = true, .loose = true}};
    recording_make(&rec, 30, 600);
    for (size_t at = BLOCK_FILE_HEAD_BYTES; at < rec.bytes.len; at++) {
        char was = rec.bytes.data[at];
        rec.bytes.data[at] = (char)(was ^ (char)(1 << at % 8));
        struct trace_reader *r = open_bytes(rec.bytes.data, rec.bytes.len);
        struct trace_reader_damage damage;
        check_is_subsequence(&rec.fake_job.written, r);
        trace_reader_damage(r, &damage);
        assert_true(damage.bad_bytes + damage.cut_bytes > 0);
        trace_reader_free(r);
        rec.bytes.data[at] = was;
    }
    recording_fini(&rec);
}

/* Each block begins with a list of live processes, from which lost events are reconstructed. */
static void process_events_of_a_lost_block_are_restored_from_the_next_one(void **state)
{
    (void)state;
    struct recording rec = {.fake_job = {.seed = 7, .with_events = true}};
    recording_make(&rec, 300, 700);
    size_t third = 0;
    for (size_t i = 0, n = 0; i < rec.scan.count; i++)
        if (rec.scan.blocks[i].head.type == BLOCK_SEALED && ++n == 3)
            third = i;
    assert_true(third > 0);
    const struct scan_block *b = &rec.scan.blocks[third];
    rec.bytes.data[b->offset + BLOCK_HEAD_BYTES] ^= 1;
    struct trace_reader *r = open_bytes(rec.bytes.data, rec.bytes.len);
    struct trace_item item;
    struct trace_reader_damage damage;
    bool alive[4096] = {false};
    while (trace_reader_next(r, &item) > 0) {
        if (item.kind == TRACE_PROCESS) {
            bool birth = item.process.event == PROCESS_BORN;
            assert_int_equal(alive[item.process.slot], !birth);
            alive[item.process.slot] = item.process.event != PROCESS_DIED;
        }
        for (size_t i = 0; item.kind == TRACE_TICK && i < item.tick.count; i++)
            if (item.tick.rows[i].kind == ENTITY_PROCESS)
                assert_true(alive[item.tick.rows[i].id]);
    }
    for (unsigned i = 0; i < STORY_PROCESSES; i++)
        if (rec.fake_job.process[i].alive)
            assert_true(alive[rec.fake_job.process[i].slot]);
    trace_reader_damage(r, &damage);
    assert_int_equal(damage.lost_blocks, 1);
    assert_int_equal(damage.bad_bytes, BLOCK_HEAD_BYTES + b->head.stored_len);
    trace_reader_free(r);
    recording_fini(&rec);
}

/* ---- a crash while a sealed block replaces the raw parts ---- */

static void check_every_item_is_read_once(const struct fake_job *s, const void *data, size_t len)
{
    struct lines read = {0};
    struct trace_reader *r = open_bytes(data, len);
    struct trace_reader_damage damage;
    fake_job_read(r, false, &read);
    fake_job_check_same(&s->written, &read);
    trace_reader_damage(r, &damage);
    assert_int_equal(damage.lost_blocks, 0);
    trace_reader_free(r);
    lines_fini(&read);
}

static void crash_while_sealing_neither_loses_nor_repeats_records(void **state)
{
    (void)state;
    char path[256];
    struct recording rec = {.fake_job = {.seed = 9, .with_events = true}};
    struct buf sealed = {0}, disk = {0};
    recording_make(&rec, 16, 100000);
    fake_job_read_bytes(fake_job_path(path, "made.ebb"), &sealed);
    assert_int_equal(rec.scan.blocks[1].head.type, BLOCK_RAW);
    size_t tail = rec.scan.blocks[1].offset;
    const char *copy = sealed.data + tail;
    size_t len = sealed.len - tail;
    assert_true(sealed.len < rec.bytes.len);
    /* The copy appended to the file is only partially written. */
    for (size_t n = 0; n <= len; n = next_length(n, len)) {
        buf_clear(&disk);
        buf_add(&disk, rec.bytes.data, rec.bytes.len);
        buf_add(&disk, copy, n);
        check_every_item_is_read_once(&rec.fake_job, disk.data, disk.len);
    }
    /* The block in its final place is only partially written; a complete copy follows the old
     * parts. */
    for (size_t n = 0; n <= len; n = next_length(n, len)) {
        memcpy(disk.data + tail, copy, n);
        check_every_item_is_read_once(&rec.fake_job, disk.data, disk.len);
    }
    /* The file has been truncated to its final size. */
    check_every_item_is_read_once(&rec.fake_job, sealed.data, sealed.len);
    buf_fini(&disk);
    buf_fini(&sealed);
    recording_fini(&rec);
}

static void part_stored_twice_in_a_recording_is_read_once(void **state)
{
    (void)state;
    struct recording rec = {.fake_job = {.seed = 11, .with_events = true}};
    struct buf disk = {0};
    recording_make(&rec, 6, 100000);
    const struct scan_block *b = &rec.scan.blocks[2];
    buf_add(&disk, rec.bytes.data, rec.bytes.len);
    buf_add(&disk, rec.bytes.data + b->offset, BLOCK_HEAD_BYTES + b->head.stored_len);
    check_every_item_is_read_once(&rec.fake_job, disk.data, disk.len);
    buf_fini(&disk);
    recording_fini(&rec);
}

/* ---- foreign files ---- */

static void blocks_and_records_of_a_later_version_are_skipped(void **state)
{
    (void)state;
    struct recording rec = {.fake_job = {.seed = 12}};
    struct buf disk = {0}, records = {0};
    struct lines read = {0};
    struct trace_reader_damage damage;
    recording_make(&rec, 3, 100000);
    struct block_head unknown = {.type = 99, .seq = 1};
    struct block_head more = {.type = BLOCK_RAW, .seq = 2};
    record_add(&records, 1234, 17, "what", 4);
    buf_add(&disk, rec.bytes.data, rec.bytes.len);
    block_add(&disk, &unknown, "later", 5);
    block_add(&disk, &more, records.data, records.len);
    struct trace_reader *r = open_bytes(disk.data, disk.len);
    fake_job_read(r, false, &read);
    fake_job_check_same(&rec.fake_job.written, &read);
    trace_reader_damage(r, &damage);
    assert_int_equal(damage.unknown_blocks, 1);
    assert_int_equal(damage.bad_bytes + damage.cut_bytes + damage.lost_blocks, 0);
    trace_reader_free(r);
    lines_fini(&read);
    buf_fini(&disk);
    buf_fini(&records);
    recording_fini(&rec);
}

static void check_refused(const char *name, const void *data, size_t len, int rc, const char *word)
{
    char path[256];
    struct trace_reader *r = NULL;
    struct err err = {0};
    fake_job_write_file(fake_job_path(path, name), data, len);
    assert_int_equal(trace_reader_open(path, &r, &err), rc);
    assert_null(r);
    assert_non_null(strstr(err.text, path));
    if (!strstr(err.text, word))
        fail_msg("'%s' does not contain '%s'", err.text, word);
}

static void error_for_a_foreign_file_describes_its_content(void **state)
{
    (void)state;
    static const char newer[] = "EBBTRACE\x07\0\0\0\0\0\0\0";
    check_refused("a", "", 0, -EBADMSG, "empty");
    check_refused("b", "t,rss_bytes\n0,1\n1,2\n", 19, -EBADMSG, "text");
    check_refused("c", "\x1f\x8b\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 18, -EBADMSG, "gzip");
    check_refused("d", "{\"a\": 1, \"b\": 2, \"c\": 3}", 24, -EBADMSG, "JSON");
    check_refused("e", "EBBTR", 5, -EBADMSG, "incomplete file header");
    check_refused("f", newer, 16, -EPROTONOSUPPORT, "version 7");
    check_refused("g", "\1\2\3\4\5\6\7\0abcdefghijk", 18, -EBADMSG, "other data");
}

static void path_that_is_not_a_regular_file_is_refused_as_recording(void **state)
{
    (void)state;
    char path[256];
    struct trace_reader *r;
    struct err err = {0};
    assert_int_equal(trace_reader_open("/nonexistent/x.ebb", &r, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/x.ebb"));
    assert_int_equal(mkdir(fake_job_path(path, "empty-run"), 0777), 0);
    assert_int_equal(trace_reader_open(path, &r, &err), -ENOENT);
    assert_non_null(strstr(err.text, "folder without a recording"));
    assert_int_equal(mkfifo(fake_job_path(path, "fifo"), 0666), 0);
    assert_int_equal(trace_reader_open(path, &r, &err), -EBADMSG);
    assert_int_equal(trace_reader_open("/dev/zero", &r, &err), -EBADMSG);
}

static void opening_a_run_folder_opens_the_recording_inside(void **state)
{
    (void)state;
    char path[256];
    struct recording rec = {.fake_job = {.seed = 13}};
    struct lines read = {0};
    recording_make(&rec, 3, 1000);
    assert_int_equal(mkdir(fake_job_path(path, "run"), 0777), 0);
    fake_job_write_file(fake_job_path(path, "run/trace.ebb"), rec.bytes.data, rec.bytes.len);
    fake_job_read_file(fake_job_path(path, "run"), &read);
    fake_job_check_same(&rec.fake_job.written, &read);
    lines_fini(&read);
    recording_fini(&rec);
}

/* ---- hostile content with valid checksums ---- */

static void check_survives(uint16_t type, const void *payload, size_t len, uint32_t raw_len)
{
    struct buf disk = {0};
    struct block_head head = {.type = type, .seq = 1, .raw_len = raw_len};
    struct trace_item item;
    block_add_file_head(&disk, BLOCK_FILE_MAGIC, BLOCK_MAJOR, BLOCK_MINOR);
    block_add(&disk, &head, payload, len);
    struct trace_reader *r = open_bytes(disk.data, disk.len);
    for (unsigned i = 0; i < 1000 && trace_reader_next(r, &item) > 0; i++)
        ;
    assert_int_equal(trace_reader_next(r, &item), 0);
    trace_reader_free(r);
    buf_fini(&disk);
}

static void counts_exceeding_the_recording_size_are_refused(void **state)
{
    (void)state;
    struct buf body = {0}, records = {0};
    buf_add_varint(&body, UINT64_MAX);
    for (uint32_t type = RECORD_BEGIN; type <= RECORD_TICK; type++) {
        buf_clear(&records);
        record_add(&records, type, UINT64_MAX, body.data, body.len);
        record_add(&records, type, UINT64_MAX, body.data, body.len);
        check_survives(BLOCK_RAW, records.data, records.len, (uint32_t)records.len);
        check_survives(BLOCK_SEALED, records.data, records.len, BLOCK_PAYLOAD_MAX);
    }
    buf_clear(&records);
    buf_add_varint(&records, RECORD_NOTE);
    buf_add_varint(&records, 0);
    buf_add_varint(&records, UINT64_MAX);
    check_survives(BLOCK_RAW, records.data, records.len, 0);
    check_survives(BLOCK_HEADER, "[[[[[[", 6, 6);
    check_survives(BLOCK_HEADER, "[1]", 3, 3);
    buf_fini(&body);
    buf_fini(&records);
}

/* Each header claims a payload of 1 MiB. Checking the payloads of all of them would take quadratic
 * time. */
static void recording_full_of_forged_headers_is_scanned_in_linear_time(void **state)
{
    (void)state;
    struct buf disk = {0}, head = {0};
    struct block_head h = {.type = BLOCK_RAW, .seq = 1};
    block_add_file_head(&disk, BLOCK_FILE_MAGIC, BLOCK_MAJOR, BLOCK_MINOR);
    block_add(&head, &h, "", 0);
    head.data[22] = 0x10; /* stored_len: 1 MiB */
    while (disk.len < 3 << 20)
        buf_add(&disk, head.data, head.len);
    uint64_t before = clock_thread_cpu_ns();
    struct trace_reader *r = open_bytes(disk.data, disk.len);
    assert_true(clock_thread_cpu_ns() - before < 20 * NS_PER_S);
    trace_reader_free(r);
    buf_fini(&disk);
    buf_fini(&head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intact_blocks_of_a_truncated_recording_are_all_read),
        cmocka_unit_test(changed_byte_in_a_recording_never_yields_wrong_values),
        cmocka_unit_test(process_events_of_a_lost_block_are_restored_from_the_next_one),
        cmocka_unit_test(crash_while_sealing_neither_loses_nor_repeats_records),
        cmocka_unit_test(part_stored_twice_in_a_recording_is_read_once),
        cmocka_unit_test(blocks_and_records_of_a_later_version_are_skipped),
        cmocka_unit_test(error_for_a_foreign_file_describes_its_content),
        cmocka_unit_test(path_that_is_not_a_regular_file_is_refused_as_recording),
        cmocka_unit_test(opening_a_run_folder_opens_the_recording_inside),
        cmocka_unit_test(counts_exceeding_the_recording_size_are_refused),
        cmocka_unit_test(recording_full_of_forged_headers_is_scanned_in_linear_time),
    };
    fake_job_folder();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
