/* Passes the open block to the disk thread: in raw parts while it grows, and sealed when it is
 * full. */
#include "trace/writer_private.h"

#include <assert.h>
#include <errno.h>

#include "base/clock.h"
#include "trace/block.h"
#include "trace/sealed.h"
#include "trace/sink.h"

enum {
    /* size at which a block is full even if it has few cells, because process events and marks also
     * take space */
    BLOCK_BYTES = 512 * 1024,
    /* size at which a block ends even between flushes, excluding the list of entities at its
     * beginning */
    BLOCK_BYTES_MAX = 2 * ROLL_BYTES,
    /* size at which a part is passed to the disk thread without waiting for a flush */
    PART_BYTES = 256 * 1024,
};
#define BLOCK_AGE_NS (30 * 60 * NS_PER_S)

/* Returns the length of the next part, or 0 if no record is left. Parts hold whole records. */
static size_t next_part(const struct trace_writer *w)
{
    size_t half = w->options.memory_bytes / 2;
    size_t enough = half < PART_BYTES ? half : PART_BYTES;
    struct cur c = cur_of(w->records.data + w->handed, w->records.len - w->handed);
    size_t left = cur_left(&c), len = 0;
    while (len < left && len < enough) {
        size_t body;
        cur_varint(&c);
        cur_varint(&c);
        cur_blob(&c, &body);
        if (c.bad)
            break;
        len = left - cur_left(&c);
    }
    return len;
}

static int hand_over_part(struct trace_writer *w, size_t len)
{
    struct sink_status st;
    sink_status(w->sink, &st);
    if (len > BLOCK_PAYLOAD_MAX || st.waiting_bytes + len > w->options.memory_bytes)
        return -ENOBUFS;
    struct block_head head = {.type = BLOCK_RAW, .seq = w->seq, .part = (uint32_t)w->handed};
    struct buf out = {0};
    head.raw_len = (uint32_t)len;
    block_add(&out, &head, w->records.data + w->handed, len);
    int r = out.failed      ? -ENOMEM
            : w->tail_begun ? sink_append(w->sink, out.data, out.len)
                            : sink_begin_tail(w->sink, out.data, out.len);
    buf_fini(&out);
    return r;
}

static bool all_handed(const struct trace_writer *w)
{
    return w->handed == w->records.len;
}

/* Passes the remaining records to the disk thread in parts. Refused or lost parts are sent again
 * later, so that a short disk problem loses no data. */
static void hand_over(struct trace_writer *w)
{
    while (!w->records.failed && !all_handed(w)) {
        size_t len = next_part(w);
        if (len == 0 || hand_over_part(w, len) < 0)
            return;
        w->handed += len;
        w->tail_begun = w->unsynced = true;
    }
}

/* Like hand_over, but waits for room in the queue until UNTIL_NS. */
static void hand_over_until(struct trace_writer *w, uint64_t until_ns)
{
    hand_over(w);
    while (!all_handed(w)) {
        size_t before = w->handed;
        uint64_t now = clock_mono_ns();
        if (sink_wait(w->sink, until_ns > now ? until_ns - now : 0) < 0)
            return;
        hand_over(w);
        if (w->handed == before)
            return;
    }
}

bool writer_watch_disk(struct trace_writer *w)
{
    struct sink_status st;
    sink_status(w->sink, &st);
    if (st.losses != w->losses_seen) {
        uint64_t losses = st.losses - w->losses_seen;
        w->losses_seen = st.losses;
        w->handed = 0;
        w->status.blocks_lost += w->unsure < losses ? w->unsure : losses;
        w->unsure = 0;
        return false;
    }
    if (st.waiting_bytes > 0 || st.failing)
        return false;
    w->unsure = 0;
    return true;
}

/* True if the block is at least TIMES as large as a full block. The size of a full block grows with
 * the number of entities, so that the list of entities at its beginning remains a small part of
 * it. */
static bool is_full(const struct trace_writer *w, unsigned times)
{
    enum { TICKS_MIN = 32 };
    size_t least = w->entity_count * TICKS_MIN;
    size_t cells = w->options.block_cells > least ? w->options.block_cells : least;
    return w->cells >= times * cells ||
           w->records.len >= times * (size_t)BLOCK_BYTES + w->begin_len;
}

/* Replaces the raw parts on the disk by the sealed block. The raw parts are kept if the block
 * cannot be packed or would not become smaller. If no part of this block is on the disk, the tail
 * of the file belongs to another block, so the sealed block is appended. */
static int replace_by_sealed(struct trace_writer *w)
{
    struct buf packed = {0}, out = {0};
    struct block_head head = {.type = BLOCK_SEALED, .seq = w->seq};
    int r = sealed_pack(w->records.data, w->records.len, &packed, &head.raw_len);
    if (r == 0 && (packed.len >= w->records.len || head.raw_len > BLOCK_PAYLOAD_MAX))
        r = -EFBIG;
    if (r == 0) {
        block_add(&out, &head, packed.data, packed.len);
        r = out.failed      ? -ENOMEM
            : w->tail_begun ? sink_replace_tail(w->sink, out.data, out.len)
                            : sink_begin_tail(w->sink, out.data, out.len);
    }
    w->unsynced |= r == 0;
    buf_fini(&packed);
    buf_fini(&out);
    return r;
}

static void seal(struct trace_writer *w)
{
    if (replace_by_sealed(w) < 0) {
        hand_over_until(w, w->options.patient ? UINT64_MAX : 0);
        if (!all_handed(w))
            writer_count_loss(w);
    }
    w->unsure++;
    writer_block_end(w);
}

/* Ends the open block without sealing it. Its raw parts on the disk remain readable. */
static void abandon(struct trace_writer *w)
{
    if (!all_handed(w) || w->records.failed)
        writer_count_loss(w);
    w->unsure += w->handed > 0;
    writer_block_end(w);
}

/* Writes blocks only when they are full (for generated recordings). */
static void flush_patiently(struct trace_writer *w)
{
    if (!w->open || !is_full(w, 1))
        return;
    if (w->records.failed)
        abandon(w);
    else
        seal(w);
    sink_wait(w->sink, UINT64_MAX);
    writer_watch_disk(w);
}

/* If the disk has reported an error, data are passed to its thread only at the next flush, not at
 * every record. */
void writer_relieve(struct trace_writer *w)
{
    size_t grown = w->records.len - w->begin_len;
    if (w->records.len - w->handed < PART_BYTES && grown < ROLL_BYTES)
        return;
    if (w->options.patient) {
        if (!w->in_tick)
            flush_patiently(w);
        return;
    }
    struct sink_status st;
    sink_status(w->sink, &st);
    if (!st.failing && st.losses == w->losses_seen)
        hand_over(w);
    if (w->in_tick || grown < ROLL_BYTES)
        return;
    if (all_handed(w) || grown >= BLOCK_BYTES_MAX)
        abandon(w);
}

static void flush_block(struct trace_writer *w, uint64_t now_ns, bool healthy)
{
    if (w->records.failed) {
        abandon(w);
        return;
    }
    size_t before = w->handed;
    hand_over(w);
    bool all = all_handed(w);
    bool stuck =
        /* the next record is larger than the queue, so it can only be written as part of a sealed
         * block */
        !all && w->handed == before;
    bool old = now_ns > w->opened_ns && now_ns - w->opened_ns >= BLOCK_AGE_NS;
    if (healthy && (all ? is_full(w, 1) || old : stuck))
        seal(w);
    else if (all ? is_full(w, 2) : w->records.len - w->begin_len >= BLOCK_BYTES_MAX)
        abandon(w);
}

void trace_writer_flush(struct trace_writer *w, uint64_t now_ns, bool now)
{
    assert(!w->in_tick);
    if (w->options.patient) {
        flush_patiently(w);
        return;
    }
    if (!now && now_ns < w->flushed_ns + w->options.flush_ns)
        return;
    w->flushed_ns = now_ns;
    w->losing = w->lost_lately;
    w->lost_lately = false;
    bool healthy = writer_watch_disk(w);
    writer_note_lost_marks(w);
    if (w->open)
        flush_block(w, now_ns, healthy);
    if (w->unsynced && sink_sync(w->sink) == 0)
        w->unsynced = false;
}

void writer_close_block(struct trace_writer *w, uint64_t until_ns)
{
    if (!w->options.patient)
        hand_over_until(w, until_ns);
    if (w->records.failed)
        abandon(w);
    else
        seal(w);
}
