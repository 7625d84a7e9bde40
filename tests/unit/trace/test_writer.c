/* Tests that the reader returns exactly what the writer recorded, in order. */
#include "trace/writer.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "trace/fake_job.h"

#define LONG_NS (120 * NS_PER_S)

static struct trace_writer *new_writer(const char *path, const struct trace_writer_options *options)
{
    struct trace_writer *w;
    struct err err = {0};
    unlink(path);
    if (trace_writer_new(AT_FDCWD, path, NULL, options, &w, &err) < 0)
        fail_msg("%s", err.text);
    return w;
}

static void close_writer(struct trace_writer *w)
{
    assert_int_equal(trace_writer_close(w, NULL, LONG_NS), 0);
}

static void check_written_is_read(struct fake_job *s, const char *path)
{
    struct lines read = {0};
    fake_job_read_file(path, &read);
    fake_job_check_same(&s->written, &read);
    lines_fini(&read);
}

static void all_ticks_of_a_recording_with_many_blocks_are_read_back(void **state)
{
    (void)state;
    char path[256];
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct trace_writer_options options = {.patient = true, .block_cells = 3000 * seed};
        struct fake_job s = {.seed = seed, .with_events = true};
        struct trace_writer *w = new_writer(fake_job_path(path, "many.ebb"), &options);
        for (unsigned i = 0; i < 2500; i++) {
            fake_job_tick(&s, w);
            trace_writer_flush(w, s.t_ns, false);
        }
        close_writer(w);
        check_written_is_read(&s, path);
        fake_job_fini(&s);
    }
}

static void unfinished_recording_is_readable_at_any_time(void **state)
{
    (void)state;
    char path[256];
    struct trace_writer_options options = {.block_cells = 700};
    struct fake_job s = {.seed = 9, .with_events = true};
    struct trace_writer *w = new_writer(fake_job_path(path, "live.ebb"), &options);
    struct trace_reader *r;
    struct lines live = {0};
    assert_int_equal(trace_reader_open(path, &r, NULL), 0);
    for (unsigned i = 0; i < 200; i++) {
        fake_job_tick(&s, w);
        trace_writer_flush(w, s.t_ns, true);
        if (i % 3 == 0)
            fake_job_settle(w);
        if (i % 7 == 0)
            /* The recording must be readable even while its tail is being replaced. */
            fake_job_read(r, false, &live);
        if (i % 40 == 0) {
            fake_job_settle(w);
            check_written_is_read(&s, path);
        }
    }
    close_writer(w);
    fake_job_read(r, false, &live);
    fake_job_check_same(&s.written, &live);
    check_written_is_read(&s, path);
    trace_reader_free(r);
    lines_fini(&live);
    fake_job_fini(&s);
}

static void sealing_a_block_makes_the_recording_smaller(void **state)
{
    (void)state;
    char path[256];
    struct fake_job s = {.seed = 3};
    struct trace_writer *w = new_writer(fake_job_path(path, "seal.ebb"), NULL);
    struct stat raw, sealed;
    for (unsigned i = 0; i < 300; i++)
        fake_job_tick(&s, w);
    trace_writer_flush(w, 0, true); /* At time 0 the block is too young to be sealed. */
    fake_job_settle(w);
    assert_int_equal(stat(path, &raw), 0);
    close_writer(w);
    assert_int_equal(stat(path, &sealed), 0);
    assert_true(sealed.st_size < raw.st_size / 2);
    check_written_is_read(&s, path);
    fake_job_fini(&s);
}

static void recording_reaches_the_disk_only_when_a_flush_is_due(void **state)
{
    (void)state;
    char path[256];
    struct fake_job s = {.seed = 4};
    struct trace_writer *w = new_writer(fake_job_path(path, "due.ebb"), NULL);
    struct lines read = {0};
    fake_job_tick(&s, w);
    trace_writer_flush(w, s.t_ns, true);
    struct sample x = {0};
    trace_writer_tick_begin(w, s.t_ns + 1);
    trace_writer_sample(w, ENTITY_MACHINE, 0, &x);
    trace_writer_tick_end(w);
    trace_writer_flush(w, s.t_ns + NS_PER_S / 2, false);
    fake_job_settle(w);
    check_written_is_read(&s, path);
    trace_writer_flush(w, s.t_ns + NS_PER_S, false);
    fake_job_settle(w);
    fake_job_read_file(path, &read);
    assert_int_equal(read.count, s.written.count + 1);
    lines_fini(&read);
    close_writer(w);
    fake_job_fini(&s);
}

static void times_in_a_recording_never_decrease(void **state)
{
    (void)state;
    char path[256];
    struct trace_writer *w = new_writer(fake_job_path(path, "back.ebb"), NULL);
    struct trace_reader *r;
    struct trace_item item;
    struct sample one = {0}, two = {0};
    sample_put(&one, 0, 11);
    sample_put(&two, 0, 22);
    trace_writer_note(w, 1000, "limit", "{}");
    trace_writer_tick_begin(w, 500);
    trace_writer_sample(w, ENTITY_PROCESS, 77, &one);
    trace_writer_sample(w, ENTITY_PROCESS, 77, &two);
    trace_writer_tick_end(w);
    close_writer(w);
    assert_int_equal(trace_reader_open(path, &r, NULL), 0);
    assert_int_equal(trace_reader_next(r, &item), 1);
    assert_int_equal(trace_reader_next(r, &item), 1);
    assert_int_equal(item.kind, TRACE_TICK);
    assert_int_equal(item.t_ns, 1000);
    assert_int_equal(item.tick.count, 1);
    assert_int_equal(item.tick.rows[0].sample.v[0], 11);
    /* Each row names its process, even if the start of that process was not recorded. */
    assert_non_null(item.tick.rows[0].process);
    assert_int_equal(trace_reader_next(r, &item), 0);
    trace_reader_free(r);
}

static void header_and_footer_of_a_recording_are_read_back(void **state)
{
    (void)state;
    char path[256];
    struct trace_writer *w;
    struct trace_reader *r;
    struct trace_item item;
    json_t *header = json_pack("{s:s,s:I,s:I}", "host", "h1", "start_mono_ns", (json_int_t)17,
                               "start_wall_ns", (json_int_t)19);
    json_t *footer = json_pack("{s:i}", "status", 3);
    fake_job_path(path, "header.ebb");
    assert_int_equal(trace_writer_new(AT_FDCWD, path, header, NULL, &w, NULL), 0);
    assert_int_equal(trace_writer_close(w, footer, LONG_NS), 0);
    json_decref(header);
    json_decref(footer);
    assert_int_equal(trace_reader_open(path, &r, NULL), 0);
    assert_string_equal(json_string_value(json_object_get(trace_reader_header(r), "host")), "h1");
    assert_true(json_is_object(json_object_get(trace_reader_header(r), "format")));
    assert_int_equal(trace_reader_start_mono_ns(r), 17);
    assert_int_equal(trace_reader_start_wall_ns(r), 19);
    assert_int_equal(trace_reader_next(r, &item), 1);
    assert_string_equal(item.note.kind, "end");
    assert_string_equal(item.note.text, "{\"status\":3}");
    trace_reader_free(r);
}

static void existing_recording_is_not_overwritten(void **state)
{
    (void)state;
    char path[256];
    struct trace_writer *w;
    struct err err = {0};
    fake_job_write_file(fake_job_path(path, "mine.ebb"), "mine", 4);
    assert_int_equal(trace_writer_new(AT_FDCWD, path, NULL, NULL, &w, &err), -EEXIST);
    assert_non_null(strstr(err.text, "mine.ebb"));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 4);
}

static void tell_and_flush(struct fake_job *s, struct trace_writer *w, unsigned ticks)
{
    for (unsigned i = 0; i < ticks; i++) {
        fake_job_tick(s, w);
        trace_writer_flush(w, s->t_ns, true);
        fake_job_settle(w);
    }
}

static void temporarily_full_disk_causes_no_loss_of_data(void **state)
{
    (void)state;
    char path[256];
    struct fake_job s = {.seed = 21, .with_events = true};
    struct trace_writer *w = new_writer(fake_job_path(path, "full.ebb"), NULL);
    struct trace_writer_status st;
    struct stat before, after;
    tell_and_flush(&s, w, 20);
    assert_int_equal(stat(path, &before), 0);
    fake_job_file_limit((rlim_t)before.st_size + 20); /* too little space for any block */
    tell_and_flush(&s, w, 20);
    trace_writer_status(w, &st);
    assert_int_equal(st.first_error, -EFBIG);
    assert_true(st.failing);
    assert_int_equal(stat(path, &after), 0);
    /* The file contains no partially written block. */
    assert_int_equal(after.st_size, before.st_size);
    struct pollfd p = {.fd = trace_writer_error_fd(w), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 1);
    fake_job_file_limit(RLIM_INFINITY);
    tell_and_flush(&s, w, 5);
    trace_writer_status(w, &st);
    assert_false(st.failing);
    assert_int_equal(st.blocks_lost, 0);
    check_written_is_read(&s, path);
    assert_int_equal(trace_writer_close(w, NULL, LONG_NS), -EFBIG);
    check_written_is_read(&s, path);
    fake_job_fini(&s);
}

/* Checks that the last LINES lines of both lists are equal. */
static void check_end_is_same(const struct lines *written, const struct lines *read, size_t lines)
{
    assert_true(read->count > lines && written->count > lines);
    for (size_t i = 1; i <= lines; i++) {
        const char *a = written->line[written->count - i], *b = read->line[read->count - i];
        assert_string_equal(a, b);
    }
}

static void recording_on_a_full_disk_counts_losses_and_stays_readable(void **state)
{
    (void)state;
    char path[256];
    struct trace_writer_options options = {.block_cells = 400};
    struct fake_job s = {.seed = 22, .loose = true};
    struct trace_writer *w = new_writer(fake_job_path(path, "lost.ebb"), &options);
    struct trace_reader *r;
    struct trace_reader_damage damage;
    struct trace_writer_status st;
    struct lines read = {0};
    struct stat before;
    tell_and_flush(&s, w, 5);
    assert_int_equal(stat(path, &before), 0);
    fake_job_file_limit((rlim_t)before.st_size);
    tell_and_flush(&s, w, 40);
    trace_writer_status(w, &st);
    assert_true(st.blocks_lost > 0);
    fake_job_file_limit(RLIM_INFINITY);
    tell_and_flush(&s, w, 60);
    assert_int_equal(trace_writer_close(w, NULL, LONG_NS), -EFBIG);
    assert_int_equal(trace_reader_open(path, &r, NULL), 0);
    fake_job_read(r, true, &read);
    trace_reader_damage(r, &damage);
    trace_reader_free(r);
    assert_true(damage.lost_blocks > 0);
    assert_int_equal(damage.bad_bytes + damage.cut_bytes, 0);
    check_end_is_same(&s.written, &read, 40);
    lines_fini(&read);
    fake_job_fini(&s);
}

/* ---- floods ---- */

enum { FLOOD_TEXT = MARK_TEXT_MAX };

/* Generates a text that hardly compresses and is different for each step. Returns its length. */
static size_t flood_text(uint64_t step, char ret[FLOOD_TEXT])
{
    uint64_t x = (step + 1) * UINT64_C(0x9e3779b97f4a7c15);
    int n = snprintf(ret, FLOOD_TEXT, "KIND=step\nSTEP=%u\nNOISE=", (unsigned)step);
    for (size_t i = (size_t)n; i < FLOOD_TEXT; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        ret[i] = (char)('!' + (x >> 32) % 94);
    }
    return FLOOD_TEXT;
}

static void flood(struct trace_writer *w, uint64_t t_ns, unsigned first, unsigned count)
{
    char text[FLOOD_TEXT];
    for (unsigned i = first; i < first + count; i++) {
        struct mark m = {.t_ns = t_ns, .text = text, .len = flood_text(i, text)};
        trace_writer_mark(w, &m);
    }
}

static void tick_at(struct trace_writer *w, uint64_t t_ns)
{
    struct sample x = {0};
    sample_put(&x, 0, t_ns);
    trace_writer_tick_begin(w, t_ns);
    trace_writer_sample(w, ENTITY_MACHINE, 0, &x);
    trace_writer_tick_end(w);
    trace_writer_flush(w, t_ns, false);
}

struct harvest {
    unsigned ticks, marks, marks_lost;
    struct trace_reader_damage damage;
};

/* Checks that M is a later mark of the flood and that its text is unchanged. */
static void check_flood_mark(const struct mark *m, int64_t *last_step)
{
    char text[FLOOD_TEXT];
    assert_true(m->has & MARK_HAS_STEP);
    assert_true(m->step > *last_step);
    *last_step = m->step;
    assert_int_equal(m->len, flood_text((uint64_t)m->step, text));
    assert_memory_equal(m->text, text, m->len);
}

static struct harvest harvest(const char *path)
{
    struct harvest h = {0};
    struct trace_reader *r;
    struct trace_item item;
    int64_t last_step = -1;
    int rc;
    assert_int_equal(trace_reader_open(path, &r, NULL), 0);
    while ((rc = trace_reader_next(r, &item)) > 0) {
        unsigned lost;
        if (item.kind == TRACE_TICK) {
            assert_int_equal(item.tick.count, 1);
            assert_int_equal(item.tick.rows[0].sample.v[0], item.t_ns);
            h.ticks++;
        } else if (item.kind == TRACE_MARK) {
            check_flood_mark(&item.mark, &last_step);
            h.marks++;
        } else if (item.kind == TRACE_NOTE && strcmp(item.note.kind, "gap") == 0) {
            assert_int_equal(sscanf(item.note.text, "{\"marks_lost\":%u}", &lost), 1);
            h.marks_lost += lost;
        }
    }
    assert_int_equal(rc, 0);
    trace_reader_damage(r, &h.damage);
    trace_reader_free(r);
    return h;
}

static void every_mark_of_a_flood_is_recorded_or_counted_as_dropped(void **state)
{
    (void)state;
    enum { BEFORE = 3, MARKS = 4000, AFTER = 20 };
    char path[256];
    struct trace_writer *w = new_writer(fake_job_path(path, "flood.ebb"), NULL);
    struct trace_writer_status st;
    uint64_t t_ns = NS_PER_S;
    for (unsigned i = 0; i < BEFORE; i++, t_ns += NS_PER_S)
        tick_at(w, t_ns);
    flood(w, t_ns - NS_PER_S / 2, 0, MARKS);
    for (unsigned i = 0; i < AFTER; i++, t_ns += NS_PER_S) {
        tick_at(w, t_ns);
        fake_job_settle(w);
    }
    trace_writer_status(w, &st);
    assert_false(st.failing);
    int rc = trace_writer_close(w, NULL, LONG_NS);
    struct harvest h = harvest(path);
    assert_int_equal(h.ticks, BEFORE + AFTER);
    assert_int_equal(h.marks + h.marks_lost, MARKS);
    assert_true(h.marks > 0);
    assert_int_equal(h.damage.lost_blocks + h.damage.bad_bytes + h.damage.cut_bytes, 0);
    assert_int_equal(st.blocks_lost > 0, h.marks_lost > 0);
    assert_int_equal(rc, h.marks_lost > 0 ? -ENOBUFS : 0);
    assert_int_equal(st.first_error, rc);
}

/* All writes fail, so the writer's queue and the open block fill up. */
static void failing_disk_causes_loss_of_marks_but_not_of_samples(void **state)
{
    (void)state;
    enum { MARKS = 1500 };
    char path[256];
    struct trace_writer *w = new_writer(fake_job_path(path, "room.ebb"), NULL);
    struct trace_writer_status st;
    tick_at(w, 1 * NS_PER_S);
    fake_job_settle(w);
    fake_job_file_limit(100);
    tick_at(w, 2 * NS_PER_S);
    fake_job_settle(w);
    flood(w, 2 * NS_PER_S, 0, MARKS);
    trace_writer_status(w, &st);
    assert_true(st.failing);
    assert_int_equal(st.blocks_lost, 1);
    fake_job_file_limit(RLIM_INFINITY);
    for (unsigned i = 3; i < 10; i++) {
        tick_at(w, i * NS_PER_S);
        fake_job_settle(w);
    }
    trace_writer_status(w, &st);
    assert_false(st.failing);
    assert_int_equal(st.blocks_lost, 1);
    assert_int_equal(trace_writer_close(w, NULL, LONG_NS), -EFBIG);
    struct harvest h = harvest(path);
    assert_int_equal(h.ticks, 9);
    assert_true(h.marks_lost > 0);
    assert_int_equal(h.marks + h.marks_lost, MARKS);
    assert_int_equal(h.damage.lost_blocks + h.damage.bad_bytes + h.damage.cut_bytes, 0);
}

/* ---- the budget of marks ---- */

enum { BUDGET_TEXT = 100 };

/* Sends COUNT steps per second for SECONDS seconds, with an epoch at the end of each second.
 * Returns the number of steps. */
static uint64_t send_marks(struct trace_writer *w, uint64_t *t_ns, unsigned seconds, unsigned count)
{
    char text[BUDGET_TEXT];
    memset(text, 'x', sizeof text);
    for (unsigned s = 0; s < seconds; s++) {
        struct mark m = {.kind = MARK_STEP, .text = text, .len = sizeof text};
        for (unsigned i = 0; i < count; i++) {
            m.t_ns = *t_ns + i * (NS_PER_S / (count + 1));
            trace_writer_mark(w, &m);
        }
        *t_ns += NS_PER_S;
        m = (struct mark){.t_ns = *t_ns, .kind = MARK_EPOCH, .text = "KIND=epoch\n", .len = 11};
        assert_true(trace_writer_mark(w, &m));
        if (s % 60 == 59) /* There are few ticks, because each tick causes a sync of the disk. */
            tick_at(w, *t_ns);
    }
    return (uint64_t)seconds * count;
}

struct budgeted {
    uint64_t steps, epochs, left_out;
};

static struct budgeted read_budgeted(const char *path)
{
    struct budgeted b = {0};
    struct trace_reader *r;
    struct trace_item item;
    assert_int_equal(trace_reader_open(path, &r, NULL), 0);
    while (trace_reader_next(r, &item) > 0) {
        unsigned n = 0;
        if (item.kind == TRACE_MARK && item.mark.kind == MARK_EPOCH)
            b.epochs++;
        else if (item.kind == TRACE_MARK)
            b.steps++;
        else if (item.kind == TRACE_NOTE && strcmp(item.note.kind, "gap") == 0) {
            assert_int_equal(sscanf(item.note.text, "{\"marks_left_out\":%u}", &n), 1);
            b.left_out += n;
        }
    }
    trace_reader_free(r);
    return b;
}

static void step_marks_beyond_the_size_budget_are_dropped_and_counted(void **state)
{
    (void)state;
    enum { RATE = 1000, SECONDS = 60, COUNT = 100 };
    char path[256];
    const struct trace_writer_options options = {.mark_bytes_per_s = RATE};
    struct trace_writer *w = new_writer(fake_job_path(path, "budget.ebb"), &options);
    struct trace_writer_status st;
    uint64_t t_ns = NS_PER_S;
    uint64_t written = send_marks(w, &t_ns, SECONDS, COUNT);
    trace_writer_status(w, &st);
    assert_int_equal(trace_writer_close(w, NULL, LONG_NS), 0);
    struct budgeted b = read_budgeted(path);
    assert_int_equal(b.epochs, SECONDS);
    assert_int_equal(b.steps + b.left_out, written);
    assert_int_equal(b.left_out, st.marks_left_out);
    assert_int_equal(st.blocks_lost, 0);
    /* Steps may use RATE bytes per second. At the start, steps may also use 4 * RATE bytes, which
     * is half of the largest burst. Epochs use a small part of the budget. */
    assert_true(b.steps * BUDGET_TEXT <= (4 + SECONDS) * RATE);
    assert_true(b.steps * BUDGET_TEXT + b.epochs * 11 >= (3 + SECONDS) * RATE);
}

static void marks_within_the_size_budget_are_all_recorded(void **state)
{
    (void)state;
    char path[256];
    const struct trace_writer_options options = {.mark_bytes_per_s = 1000};
    struct trace_writer *w = new_writer(fake_job_path(path, "within.ebb"), &options);
    uint64_t t_ns = NS_PER_S;
    uint64_t written = send_marks(w, &t_ns, 60, 9);
    assert_int_equal(trace_writer_close(w, NULL, LONG_NS), 0);
    struct budgeted b = read_budgeted(path);
    assert_int_equal(b.steps, written);
    assert_int_equal(b.left_out, 0);
}

static void size_budget_of_marks_halves_as_the_recording_grows(void **state)
{
    (void)state;
    enum { RATE = 100 };
    char path[256];
    const struct trace_writer_options options = {.mark_bytes_per_s = RATE};
    struct trace_writer *w = new_writer(fake_job_path(path, "halves.ebb"), &options);
    struct trace_writer_status st;
    uint64_t t_ns = NS_PER_S, left = 0, written = 0;
    for (unsigned hours = 0; hours < 8; hours++) {
        trace_writer_status(w, &st);
        left = st.marks_left_out;
        written = send_marks(w, &t_ns, 3600, 2);
    }
    trace_writer_status(w, &st);
    assert_int_equal(trace_writer_close(w, NULL, LONG_NS), 0);
    uint64_t recorded = written - (st.marks_left_out - left);
    /* number of bytes recorded in the last hour */
    assert_in_range(recorded * BUDGET_TEXT, 1, RATE * 3600 / 4);
}

/* Together, the marks are much larger than the queue, but the disk works. */
static void data_loss_from_a_full_queue_is_reported_on_a_working_disk(void **state)
{
    (void)state;
    enum { MARKS = 400 };
    char path[256];
    /* smaller than a mark */
    struct trace_writer_options options = {.memory_bytes = 4096};
    struct trace_writer *w = new_writer(fake_job_path(path, "said.ebb"), &options);
    struct trace_writer_status st;
    struct pollfd p = {.fd = trace_writer_error_fd(w), .events = POLLIN};
    tick_at(w, NS_PER_S);
    fake_job_settle(w);
    assert_int_equal(poll(&p, 1, 0), 0);
    flood(w, NS_PER_S, 0, MARKS);
    assert_int_equal(poll(&p, 1, 0), 1);
    trace_writer_status(w, &st);
    assert_true(st.failing);
    assert_int_equal(st.first_error, -ENOBUFS);
    assert_int_equal(st.blocks_lost, 1);
    for (unsigned i = 2; i < 8; i++) {
        tick_at(w, i * NS_PER_S);
        fake_job_settle(w);
    }
    trace_writer_status(w, &st);
    assert_false(st.failing);
    assert_int_equal(trace_writer_close(w, NULL, LONG_NS), -ENOBUFS);
    struct harvest h = harvest(path);
    assert_true(h.ticks >= 6); /* The blocks after the lost one are complete. */
    assert_true(h.marks < MARKS);
}

/* Blocks that do not compress remain in raw parts, which the next block must not replace. */
static void raw_parts_of_an_incompressible_block_are_not_overwritten(void **state)
{
    (void)state;
    enum { NOTES = 120, NOTE_BYTES = 60000 };
    char path[256];
    static char noise[NOTE_BYTES + 1];
    struct trace_writer_options options = {.patient = true};
    struct trace_writer *w = new_writer(fake_job_path(path, "noise.ebb"), &options);
    struct trace_reader *r;
    struct trace_item item;
    uint64_t x = 88172645463325252u;
    for (unsigned i = 0; i < NOTES; i++) {
        for (size_t j = 0; j < NOTE_BYTES; j++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            noise[j] = i / 15 % 2 ? 'x' : (char)(1 + (x >> 32) % 255);
        }
        trace_writer_note(w, i, "noise", noise);
        trace_writer_flush(w, i, false);
    }
    close_writer(w);
    assert_int_equal(trace_reader_open(path, &r, NULL), 0);
    for (unsigned i = 0; i < NOTES; i++) {
        assert_int_equal(trace_reader_next(r, &item), 1);
        assert_int_equal(item.t_ns, i);
        assert_int_equal(item.note.len, NOTE_BYTES);
    }
    assert_int_equal(trace_reader_next(r, &item), 0);
    trace_reader_free(r);
}

static void creating_a_recording_in_a_missing_folder_is_an_error(void **state)
{
    (void)state;
    struct trace_writer *w;
    struct err err = {0};
    assert_int_equal(trace_writer_new(AT_FDCWD, "/nonexistent/x.ebb", NULL, NULL, &w, &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/x.ebb"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ticks_of_a_recording_with_many_blocks_are_read_back),
        cmocka_unit_test(unfinished_recording_is_readable_at_any_time),
        cmocka_unit_test(sealing_a_block_makes_the_recording_smaller),
        cmocka_unit_test(recording_reaches_the_disk_only_when_a_flush_is_due),
        cmocka_unit_test(times_in_a_recording_never_decrease),
        cmocka_unit_test(header_and_footer_of_a_recording_are_read_back),
        cmocka_unit_test(existing_recording_is_not_overwritten),
        cmocka_unit_test(temporarily_full_disk_causes_no_loss_of_data),
        cmocka_unit_test(recording_on_a_full_disk_counts_losses_and_stays_readable),
        cmocka_unit_test(every_mark_of_a_flood_is_recorded_or_counted_as_dropped),
        cmocka_unit_test(failing_disk_causes_loss_of_marks_but_not_of_samples),
        cmocka_unit_test(data_loss_from_a_full_queue_is_reported_on_a_working_disk),
        cmocka_unit_test(step_marks_beyond_the_size_budget_are_dropped_and_counted),
        cmocka_unit_test(marks_within_the_size_budget_are_all_recorded),
        cmocka_unit_test(size_budget_of_marks_halves_as_the_recording_grows),
        cmocka_unit_test(raw_parts_of_an_incompressible_block_are_not_overwritten),
        cmocka_unit_test(creating_a_recording_in_a_missing_folder_is_an_error),
    };
    fake_job_folder();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
