/* Creates and closes recordings, and collects records in the block being written (the open
 * block). */
#include "trace/writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "trace/block.h"
#include "trace/record.h"
#include "trace/sealed.h"
#include "trace/sink.h"
#include "trace/writer_private.h"

enum {
    BLOCK_CELLS = 65536,
    BLOCK_CELLS_LIMIT = SEALED_CELLS_MAX / 4,
    /* if more bytes than this wait for the disk, marks are dropped, to leave room for samples */
    BACKLOG_BYTES = 1024 * 1024,
    /* a record buffer larger than eight times this size is freed at the end of its block */
    BYTES_KEPT = 64 * 1024,
    QUEUE_BYTES = 2 * 1024 * 1024,
    MARK_BURST_S = 8, /* a burst of marks may spend the budget of this many seconds */
    /* The budget is halved each time marks have used this many seconds of the initial budget. */
    MARK_HALVING_S = 4096,
};
#define FLUSH_NS NS_PER_S

/* ---- entities ---- */

static uint64_t entity_key(enum sample_entity_kind kind, uint32_t id)
{
    return (uint64_t)kind << 32 | id;
}

static struct entity *entity_find(struct trace_writer *w, enum sample_entity_kind kind, uint32_t id)
{
    uint32_t i;
    return numbers_get(&w->map, entity_key(kind, id), &i) ? &w->entities[i] : NULL;
}

/* Finds or adds an entity. Returns NULL if memory or entity indices are exhausted; the entity is
 * then not recorded. */
static struct entity *entity_get(struct trace_writer *w, enum sample_entity_kind kind, uint32_t id)
{
    struct entity *e = entity_find(w, kind, id);
    if (e)
        return e;
    if (w->entity_count >= RECORD_ENTITIES_MAX)
        return NULL;
    if (!ARRAY_ROOM(w->entities, w->entity_count, w->entity_cap) ||
        numbers_put(&w->map, entity_key(kind, id), (uint32_t)w->entity_count) < 0)
        return NULL;
    e = &w->entities[w->entity_count++];
    *e = (struct entity){.kind = kind, .id = id};
    return e;
}

/* Removes exited processes at the end of a block. Until then they keep their row index. */
static void drop_dead(struct trace_writer *w)
{
    size_t kept = 0;
    numbers_clear(&w->map);
    for (size_t i = 0; i < w->entity_count; i++) {
        struct entity *e = &w->entities[i];
        e->in_block = false;
        if (e->kind == ENTITY_PROCESS && e->definition.len == 0) {
            buf_fini(&e->definition);
            continue;
        }
        w->entities[kept] = *e;
        numbers_put(&w->map, entity_key(e->kind, e->id),
                    /* the insertion cannot fail, because the table had at least as many entries
                     * before */
                    (uint32_t)kept);
        kept++;
    }
    w->entity_count = kept;
}

/* ---- the open block ---- */

static void put_record(struct trace_writer *w, uint64_t t_ns, enum record_type type,
                       const struct buf *body)
{
    uint64_t t = t_ns > w->t_ns ? t_ns : w->t_ns;
    /* each time is relative to the previous record of the block; the first one is absolute */
    uint64_t before = w->records.len == 0 ? 0 : w->t_ns;
    record_add(&w->records, type, t - before, body->data, body->len);
    w->records.failed |= body->failed;
    w->t_ns = t;
}

static void add_record(struct trace_writer *w, uint64_t t_ns, enum record_type type,
                       const struct buf *body)
{
    put_record(w, t_ns, type, body);
    writer_relieve(w);
}

static void add_definitions(struct trace_writer *w, struct buf *out, bool processes)
{
    uint64_t count = 0;
    for (size_t i = 0; i < w->entity_count; i++)
        count += (w->entities[i].kind == ENTITY_PROCESS) == processes &&
                 w->entities[i].definition.len > 0;
    buf_add_varint(out, count);
    for (size_t i = 0; i < w->entity_count; i++) {
        const struct entity *e = &w->entities[i];
        if ((e->kind == ENTITY_PROCESS) == processes)
            buf_add(out, e->definition.data, e->definition.len);
    }
}

static void block_begin(struct trace_writer *w, uint64_t t_ns)
{
    if (w->open)
        return;
    drop_dead(w);
    w->open = true;
    w->seq++;
    w->opened_ns = t_ns > w->t_ns ? t_ns : w->t_ns;
    buf_clear(&w->body);
    add_definitions(w, &w->body, true);
    add_definitions(w, &w->body, false);
    put_record(w, t_ns, RECORD_BEGIN, &w->body);
    w->begin_len = w->records.len;
}

void writer_block_end(struct trace_writer *w)
{
    if (w->records.cap > BYTES_KEPT * 8)
        buf_fini(&w->records);
    buf_clear(&w->records);
    w->open = w->tail_begun = w->lossy = false;
    w->handed = w->begin_len = 0;
    w->cells = w->numbers = 0;
}

void writer_count_loss(struct trace_writer *w)
{
    static const uint64_t one = 1;
    w->status.blocks_lost += !w->lossy;
    w->lossy = w->lost_lately = true;
    if (w->error != 0)
        return;
    w->error = -ENOBUFS;
    /* writing to the eventfd cannot fail, because its counter never exceeds 2 */
    (void)!write(sink_event_fd(w->sink), &one, sizeof one);
}

/* ---- adding records ---- */

static void define_process(struct entity *e, const struct process_info *info)
{
    buf_clear(&e->definition);
    buf_add_varint(&e->definition, e->id);
    record_add_process(&e->definition, info);
    if (e->definition.failed)
        buf_fini(&e->definition);
}

void trace_writer_process(struct trace_writer *w, uint64_t t_ns, enum process_event_kind kind,
                          uint32_t slot, const struct process_info *info)
{
    block_begin(w, t_ns);
    buf_clear(&w->body);
    buf_add_varint(&w->body, (uint64_t)kind);
    buf_add_varint(&w->body, slot);
    if (kind != PROCESS_DIED)
        record_add_process(&w->body, info);
    add_record(w, t_ns, RECORD_PROCESS, &w->body);
    struct entity *e = kind == PROCESS_DIED ? entity_find(w, ENTITY_PROCESS, slot)
                                            : entity_get(w, ENTITY_PROCESS, slot);
    if (!e)
        return;
    if (kind == PROCESS_DIED)
        buf_fini(&e->definition);
    else
        define_process(e, info);
}

void trace_writer_entity(struct trace_writer *w, uint64_t t_ns, enum sample_entity_kind kind,
                         uint32_t id, const char *name)
{
    assert(kind != ENTITY_PROCESS);
    block_begin(w, t_ns);
    buf_clear(&w->body);
    buf_add_varint(&w->body, (uint64_t)kind);
    buf_add_varint(&w->body, id);
    buf_add_blob(&w->body, name, strlen(name));
    add_record(w, t_ns, RECORD_ENTITY, &w->body);
    struct entity *e = entity_get(w, kind, id);
    if (!e)
        return;
    buf_clear(&e->definition);
    buf_add(&e->definition, w->body.data, w->body.len);
}

static void add_mark(struct trace_writer *w, const struct mark *mark)
{
    buf_clear(&w->body);
    buf_add_zigzag(&w->body, mark->pid);
    buf_add_blob(&w->body, mark->text, mark->len);
    add_record(w, mark->t_ns, RECORD_MARK, &w->body);
}

/* Returns false while the disk is too slow. The job can send any number of marks, so the remaining
 * room is reserved for samples. */
static bool has_room_for_marks(const struct trace_writer *w)
{
    size_t handed = w->handed > w->begin_len ? w->handed : w->begin_len;
    return w->options.patient ||
           (w->records.len - handed < BACKLOG_BYTES && w->records.len - w->begin_len < ROLL_BYTES);
}

/* Deducts the mark's bytes from the budget. Returns false if not enough is left. */
static bool spend_budget(struct trace_writer *w, const struct mark *mark)
{
    const uint64_t full_ns = w->options.mark_bytes_per_s * MARK_BURST_S * NS_PER_S;
    uint64_t halvings = w->mark_bytes / (w->options.mark_bytes_per_s * MARK_HALVING_S + 1);
    uint64_t rate = w->options.mark_bytes_per_s >> (halvings < 16 ? halvings : 16);
    uint64_t since_ns = mark->t_ns > w->mark_t_ns ? mark->t_ns - w->mark_t_ns : 0;
    if (w->options.mark_bytes_per_s == 0)
        return true;
    if (w->mark_t_ns == 0 || since_ns > full_ns / (rate + 1))
        w->mark_credit_ns = full_ns;
    else
        w->mark_credit_ns += rate * since_ns;
    if (w->mark_credit_ns > full_ns)
        w->mark_credit_ns = full_ns;
    w->mark_t_ns += w->mark_t_ns == 0 ? mark->t_ns : since_ns;
    bool is_step = mark->kind == MARK_STEP || mark->kind == MARK_SUBSTEP;
    if (w->mark_credit_ns < mark->len * NS_PER_S + (is_step ? full_ns / 2 : 0)) {
        w->marks_left_out++;
        w->status.marks_left_out++;
        return false;
    }
    w->mark_credit_ns -= mark->len * NS_PER_S;
    w->mark_bytes += mark->len;
    return true;
}

bool trace_writer_mark(struct trace_writer *w, const struct mark *mark)
{
    if (!spend_budget(w, mark))
        return false;
    if (w->open && !has_room_for_marks(w))
        writer_relieve(w);
    block_begin(w, mark->t_ns);
    if (has_room_for_marks(w)) {
        add_mark(w, mark);
    } else {
        w->marks_lost++;
        writer_count_loss(w);
    }
    return true;
}

void trace_writer_note(struct trace_writer *w, uint64_t t_ns, const char *kind, const char *text)
{
    block_begin(w, t_ns);
    buf_clear(&w->body);
    buf_add_blob(&w->body, kind, strlen(kind));
    buf_add_blob(&w->body, text, strlen(text));
    add_record(w, t_ns, RECORD_NOTE, &w->body);
}

static void note_missing(struct trace_writer *w, const char *key, uint64_t *count)
{
    char text[64];
    if (*count == 0)
        return;
    snprintf(text, sizeof text, "{\"%s\":%" PRIu64 "}", key, *count);
    *count = 0;
    trace_writer_note(w, w->t_ns, "gap", text);
}

void writer_note_lost_marks(struct trace_writer *w)
{
    note_missing(w, "marks_lost", &w->marks_lost);
    note_missing(w, "marks_left_out", &w->marks_left_out);
}

void trace_writer_tick_begin(struct trace_writer *w, uint64_t t_ns)
{
    assert(!w->in_tick);
    block_begin(w, t_ns);
    w->in_tick = true;
    w->tick_t_ns = t_ns;
    w->tick++;
    w->tick_rows = 0;
    buf_clear(&w->rows);
}

static void number_entity(struct trace_writer *w, struct entity *e)
{
    buf_clear(&w->body);
    buf_add_varint(&w->body, (uint64_t)e->kind);
    buf_add_varint(&w->body, e->id);
    add_record(w, w->t_ns, RECORD_USE, &w->body);
    e->in_block = true;
    e->number = w->numbers++;
    memset(e->last, 0, sizeof e->last);
}

void trace_writer_sample(struct trace_writer *w, enum sample_entity_kind kind, uint32_t id,
                         const struct sample *sample)
{
    assert(w->in_tick);
    if (sample->read == 0 && sample->stale == 0)
        return;
    struct entity *e = entity_get(w, kind, id);
    if (!e || e->tick == w->tick)
        return;
    e->tick = w->tick;
    if (!e->in_block)
        number_entity(w, e);
    record_add_row(&w->rows, e->number, sample, e->last);
    w->tick_rows++;
    unsigned cells = (unsigned)__builtin_popcount(sample->read) + (sample->stale != 0);
    w->cells += cells;
    w->status.cells += cells;
}

void trace_writer_tick_end(struct trace_writer *w)
{
    assert(w->in_tick);
    w->in_tick = false;
    w->cells++; /* each tick counts as a cell too, because it may have no readings */
    buf_clear(&w->body);
    buf_add_varint(&w->body, w->tick_rows);
    buf_add(&w->body, w->rows.data, w->rows.len);
    w->body.failed |= w->rows.failed;
    add_record(w, w->tick_t_ns, RECORD_TICK, &w->body);
}

/* ---- creating and closing ---- */

static int add_time(json_t *doc, const char *key, uint64_t value)
{
    if (json_object_get(doc, key))
        return 0;
    return json_object_set_new(doc, key, json_u64(value));
}

static int make_header(const json_t *header, struct buf *ret)
{
    json_t *doc = header ? json_deep_copy(header) : json_object();
    int r = doc ? 0 : -1;
    if (r == 0)
        r = json_object_set_new(doc, "format",
                                json_pack("{s:i,s:i}", "major", BLOCK_MAJOR, "minor", BLOCK_MINOR));
    if (r == 0)
        r = add_time(doc, "start_mono_ns", clock_mono_ns());
    if (r == 0)
        r = add_time(doc, "start_wall_ns", clock_wall_ns());
    AUTO_FREE char *text = r == 0 ? json_dumps(doc, JSON_COMPACT) : NULL;
    json_decref(doc);
    size_t len = text ? strlen(text) : 0;
    if (!text || len > BLOCK_PAYLOAD_MAX)
        return -ENOMEM;
    block_add_file_head(ret, BLOCK_FILE_MAGIC, BLOCK_MAJOR, BLOCK_MINOR);
    struct block_head head = {.type = BLOCK_HEADER, .raw_len = (uint32_t)len};
    block_add(ret, &head, text, len);
    return ret->failed ? -ENOMEM : 0;
}

/* Creates the file and writes the header immediately, so that the caller learns at the start
 * whether recording is possible. */
static int create_file(int dirfd, const char *name, const json_t *header, int *ret)
{
    struct buf head = {0};
    int r = make_header(header, &head);
    if (r < 0) {
        buf_fini(&head);
        return r;
    }
    int fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    r = fd < 0 ? -errno : io_write_all(fd, head.data, head.len);
    buf_fini(&head);
    if (r == 0) {
        *ret = fd;
        return 0;
    }
    if (fd >= 0) {
        unlinkat(dirfd, name, 0);
        close(fd);
    }
    return r;
}

static void set_options(struct trace_writer *w, const struct trace_writer_options *options)
{
    if (options)
        w->options = *options;
    if (w->options.flush_ns == 0)
        w->options.flush_ns = FLUSH_NS;
    if (w->options.block_cells == 0)
        w->options.block_cells = BLOCK_CELLS;
    if (w->options.block_cells > BLOCK_CELLS_LIMIT)
        w->options.block_cells = BLOCK_CELLS_LIMIT;
    if (w->options.memory_bytes == 0)
        w->options.memory_bytes = QUEUE_BYTES;
}

int trace_writer_new(int dirfd, const char *name, const json_t *header,
                     const struct trace_writer_options *options, struct trace_writer **ret,
                     struct err *err)
{
    int fd = -1;
    struct trace_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(err, -ENOMEM, "%s cannot be recorded: %s", name, strerror(ENOMEM));
    set_options(w, options);
    int r = create_file(dirfd, name, header, &fd);
    if (r == 0) {
        r = sink_new(fd, w->options.memory_bytes, &w->sink);
        if (r < 0)
            unlinkat(dirfd, name, 0);
    }
    if (r < 0) {
        free(w);
        return err_set(err, r, r == -EEXIST ? "%s already exists" : "%s cannot be written: %s",
                       name, strerror(-r));
    }
    *ret = w;
    return 0;
}

void trace_writer_status(const struct trace_writer *w, struct trace_writer_status *ret)
{
    struct sink_status st;
    sink_status(w->sink, &st);
    *ret = w->status;
    ret->first_error = st.first_error ? st.first_error : w->error;
    ret->failing = st.failing || w->losing || w->lost_lately;
    ret->bytes_on_disk = st.size_bytes;
    ret->bytes_waiting = st.waiting_bytes;
}

int trace_writer_error_fd(const struct trace_writer *w)
{
    return sink_event_fd(w->sink);
}

static void writer_free(struct trace_writer *w)
{
    for (size_t i = 0; i < w->entity_count; i++)
        buf_fini(&w->entities[i].definition);
    free(w->entities);
    numbers_fini(&w->map);
    buf_fini(&w->rows);
    buf_fini(&w->body);
    buf_fini(&w->records);
    free(w);
}

int trace_writer_close(struct trace_writer *w, const json_t *footer, uint64_t wait_ns)
{
    if (!w)
        return 0;
    if (w->in_tick)
        trace_writer_tick_end(w);
    writer_note_lost_marks(w);
    if (footer) {
        AUTO_FREE char *text = json_dumps(footer, JSON_COMPACT);
        if (text)
            trace_writer_note(w, w->t_ns, "end", text);
    }
    writer_watch_disk(w);
    uint64_t now = clock_mono_ns();
    uint64_t until = wait_ns < UINT64_MAX - now ? now + wait_ns : UINT64_MAX;
    if (w->open)
        writer_close_block(w, until);
    now = clock_mono_ns();
    int r = sink_close(w->sink, until > now ? until - now : 0);
    if (r == 0)
        r = w->error;
    writer_free(w);
    return r;
}
