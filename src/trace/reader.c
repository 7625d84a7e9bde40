/* Reads recordings: returns their items in order, each once. */
#include "trace/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "trace/block.h"
#include "trace/record.h"
#include "trace/replay.h"
#include "trace/scan.h"
#include "trace/sealed.h"

struct trace_reader {
    int fd;
    json_t *header;
    bool has_start;
    uint64_t start_mono_ns, start_wall_ns;

    struct scan scan;
    /* the RAW and SEALED blocks, sorted by seq; for equal seq, SEALED before RAW; RAW blocks by
     * part */
    struct scan_block *order;
    size_t order_count;
    off_t seen_size;
    struct timespec seen_mtime;
    /* The writer changes only the blocks of the highest seq in the file. So once a block of seq N
     * has been seen, a later scan finds all blocks of lower seq, and they never change again. */
    uint64_t newest_seq; /* highest seq seen */
    uint64_t final_seq;  /* all blocks of lower seq were scanned after they became final */
    size_t final_count;  /* number of leading blocks of the scan that are final */

    /* the current position in the recording */
    uint64_t seq;       /* seq of the block being read; 0 before the first */
    size_t at;          /* index in `order` of the first block with this seq */
    uint64_t delivered; /* number of records of this block that have been returned */
    /* number of records at the start of the sealed block to skip, because they were already
     * returned from raw parts */
    uint64_t skip;
    /* in raw parts: expected PART of the next raw block, which is the number of record bytes read
     * so far */
    uint32_t raw_at;
    size_t raw_next;   /* index in `order` of the next raw part to try */
    bool sealed_tried; /* opening a sealed form of this block was already tried */
    bool broken;       /* nothing more can be read from this block */
    uint64_t lost_blocks;
    struct sealed *sealed; /* NULL while reading raw parts */
    struct record_decoder decoder;
    struct buf part;
    struct cur cur;

    struct replay replay;
};

/* ---- going from block to block ---- */

static int compare_order(const void *a, const void *b)
{
    const struct scan_block *x = a, *y = b;
    if (x->head.seq != y->head.seq)
        return x->head.seq < y->head.seq ? -1 : 1;
    if (x->head.type != y->head.type)
        return x->head.type > y->head.type ? -1 : 1; /* SEALED before RAW */
    if (x->head.part != y->head.part)
        return x->head.part < y->head.part ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The index in `order` of the first block whose seq is at least SEQ. */
static size_t order_find(const struct trace_reader *r, uint64_t seq)
{
    return ARRAY_SEARCH(i, r->order_count, r->order[i].head.seq < seq);
}

static int make_order(struct trace_reader *r)
{
    struct scan_block *order = malloc((r->scan.count + 1) * sizeof *order);
    if (!order)
        return -ENOMEM;
    size_t n = 0;
    for (size_t i = 0; i < r->scan.count; i++) {
        const struct block_head *h = &r->scan.blocks[i].head;
        if ((h->type == BLOCK_RAW || h->type == BLOCK_SEALED) && h->seq > 0)
            order[n++] = r->scan.blocks[i];
    }
    qsort(order, n, sizeof *order, compare_order);
    free(r->order);
    r->order = order;
    r->order_count = n;
    r->at = r->raw_next = order_find(r, r->seq);
    r->sealed_tried = false;
    return 0;
}

/* Returns how many of the scanned blocks need not be scanned again: all if the others are raw parts
 * of the newest block and still in the file, otherwise those that are final. The writer replaces
 * raw parts from the first one on. */
static size_t settled_blocks(const struct trace_reader *r)
{
    const struct scan_block *blocks = r->scan.blocks;
    size_t n = r->final_count, count = r->scan.count;
    for (size_t i = n; i < count; i++)
        if (blocks[i].head.type != BLOCK_RAW || blocks[i].head.seq != r->newest_seq)
            return n;
    bool has_parts = n == count || (scan_has_block(r->fd, &blocks[n]) &&
                                    scan_has_block(r->fd, &blocks[count - 1]));
    return has_parts ? count : n;
}

/* Appends the scanned blocks from index FROM to `order`. Returns false if a block does not sort
 * after the existing ones, which is rare; the caller must then rebuild `order`. */
static bool extend_order(struct trace_reader *r, size_t from)
{
    size_t n = r->order_count;
    struct scan_block *order =
        reallocarray(r->order, n + (r->scan.count - from) + 1, sizeof *order);
    if (!order)
        return false;
    r->order = order;
    for (size_t i = from; i < r->scan.count; i++) {
        const struct scan_block *b = &r->scan.blocks[i];
        if (b->head.type != BLOCK_RAW || b->head.seq == 0 ||
            (n > 0 && compare_order(&order[n - 1], b) >= 0))
            return false;
        order[n++] = *b;
    }
    r->order_count = n;
    return true;
}

/* Updates newest_seq, final_seq and final_count after a scan that kept the first KEPT blocks. */
static void note_final(struct trace_reader *r, size_t kept)
{
    const struct scan *s = &r->scan;
    size_t n = r->final_count < kept ? r->final_count : kept;
    r->final_seq = r->newest_seq;
    while (n < s->count && s->blocks[n].head.seq < r->final_seq)
        n++;
    r->final_count = n;
    for (size_t i = n; i < s->count; i++)
        if (s->blocks[i].head.seq > r->newest_seq)
            r->newest_seq = s->blocks[i].head.seq;
}

/* Scans the file again after the first KEEP blocks. Returns 0 or -errno. */
static int scan_again(struct trace_reader *r, size_t keep)
{
    size_t before = r->scan.count;
    int e = scan_file_from(&r->scan, r->fd, &keep);
    if (e < 0)
        return e;
    note_final(r, keep);
    return keep == before && extend_order(r, before) ? 0 : make_order(r);
}

/* Scans the end of the file again if the file has changed. Returns 1 if it has changed, 0 if not,
 * or -errno. */
static int refresh(struct trace_reader *r)
{
    struct stat st;
    if (fstat(r->fd, &st) < 0)
        return -errno;
    if (st.st_size == r->seen_size && st.st_mtim.tv_sec == r->seen_mtime.tv_sec &&
        st.st_mtim.tv_nsec == r->seen_mtime.tv_nsec)
        return 0;
    int e = scan_again(r, settled_blocks(r));
    if (e < 0)
        return e;
    r->seen_size = st.st_size;
    r->seen_mtime = st.st_mtim;
    return 1;
}

static void drop_source(struct trace_reader *r)
{
    sealed_free(r->sealed);
    r->sealed = NULL;
    r->cur = cur_of("", 0);
}

static bool is_of_seq(const struct trace_reader *r, size_t i)
{
    return i < r->order_count && r->order[i].head.seq == r->seq;
}

/* Tries to open a sealed form of the current block, and skips the records that have already been
 * returned from raw parts. Returns 1 on success, 0 if no sealed form can be opened, or -ENOMEM. */
static int open_sealed(struct trace_reader *r)
{
    if (r->sealed_tried)
        return 0;
    r->sealed_tried = true;
    for (size_t i = r->at; is_of_seq(r, i) && r->order[i].head.type == BLOCK_SEALED; i++) {
        struct sealed *sealed = NULL;
        int e = scan_load(r->fd, &r->order[i], &r->part);
        if (e == 0)
            e = sealed_open(r->part.data, r->part.len, r->order[i].head.raw_len, &sealed);
        if (e == -ENOMEM) {
            r->sealed_tried = false;
            return e;
        }
        if (e < 0)
            continue;
        drop_source(r);
        r->sealed = sealed;
        r->skip = r->delivered;
        r->delivered = 0;
        return 1;
    }
    return 0;
}

/* Tries to load the next raw part of the current block. Returns 1 on success, 0 if there is none,
 * or -ENOMEM. */
static int open_raw(struct trace_reader *r)
{
    for (; is_of_seq(r, r->raw_next); r->raw_next++) {
        const struct scan_block *b = &r->order[r->raw_next];
        if (b->head.type != BLOCK_RAW)
            continue;
        if (b->head.part > r->raw_at)
            return 0;
        uint32_t done = r->raw_at - b->head.part;
        if (done >= b->head.stored_len)
            continue;
        int e = scan_load(r->fd, b, &r->part);
        if (e == -ENOMEM)
            return e;
        if (e < 0)
            continue;
        r->cur = cur_of(r->part.data + done, r->part.len - done);
        r->raw_at += (uint32_t)(r->part.len - done);
        return 1;
    }
    return 0;
}

/* True if records of the current block are lost. Each raw part depends on the parts before it, so
 * the parts after a gap cannot be decoded. A block without any readable record is lost as well. */
static bool is_incomplete(const struct trace_reader *r)
{
    if (r->seq == 0 || r->sealed)
        return r->broken;
    size_t last = order_find(r, r->seq + 1);
    bool hole = last > r->at && r->order[last - 1].head.type == BLOCK_RAW &&
                r->order[last - 1].head.part > r->raw_at;
    return r->broken || hole || r->delivered == 0;
}

/* Moves to the next block. If records of the current block or whole blocks may have been missed,
 * because the file changed during the scan, scans again instead. Returns 1, 0 at the end, or
 * -errno. */
static int next_seq(struct trace_reader *r)
{
    size_t at = r->at;
    while (is_of_seq(r, at))
        at++;
    if (at >= r->order_count)
        return 0;
    uint64_t seq = r->order[at].head.seq;
    bool is_complete = r->sealed || r->seq == 0;
    if (r->final_seq < seq && !(is_complete && seq == r->seq + 1)) {
        int e = scan_again(r, r->final_count);
        return e < 0 ? e : 1;
    }
    r->lost_blocks += seq - r->seq - 1;
    r->lost_blocks += is_incomplete(r);
    drop_source(r);
    record_decoder_restart(&r->decoder);
    r->seq = seq;
    r->at = r->raw_next = at;
    r->sealed_tried = false;
    r->delivered = r->skip = 0;
    r->raw_at = 0;
    r->broken = false;
    return 1;
}

/* Moves to the next block if the current one is exhausted. Returns 1 if there are records to
 * decode, 0 at the end, or -errno. */
static int advance(struct trace_reader *r)
{
    for (;;) {
        int e = 0;
        if (r->seq > 0 && !r->sealed && !r->broken) {
            e = open_sealed(r);
            if (e == 0)
                e = open_raw(r);
        }
        if (e != 0)
            return e;
        e = next_seq(r);
        if (e == 0)
            e = refresh(r);
        if (e <= 0)
            return e;
    }
}

static int decode(struct trace_reader *r, struct record *ret)
{
    if (r->sealed)
        return sealed_next(r->sealed, ret);
    return record_decode(&r->decoder, &r->cur, ret);
}

int trace_reader_next(struct trace_reader *r, struct trace_item *ret)
{
    for (;;) {
        struct record record;
        if (replay_pending(&r->replay, ret))
            return 1;
        int e = decode(r, &record);
        if (e > 0) {
            r->delivered++;
            if (r->skip > 0) {
                r->skip--;
                continue;
            }
            if (!r->has_start) {
                r->has_start = true;
                r->start_mono_ns = record.t_ns;
            }
            e = replay_apply(&r->replay, &record, ret);
            if (e > 0)
                return 1;
            if (e == 0)
                continue;
        }
        if (e == -EBADMSG) {
            r->broken = true;
            drop_source(r);
        } else if (e < 0) {
            return e;
        }
        e = advance(r);
        if (e <= 0)
            return e;
    }
}

void trace_reader_damage(const struct trace_reader *r, struct trace_reader_damage *ret)
{
    struct trace_reader_damage d = {.cut_bytes = r->scan.cut_bytes};
    for (size_t i = 0; i < r->scan.count; i++) {
        uint16_t type = r->scan.blocks[i].head.type;
        d.bad_bytes += r->scan.blocks[i].bad_before;
        d.unknown_blocks += type != BLOCK_HEADER && type != BLOCK_RAW && type != BLOCK_SEALED;
    }
    d.lost_blocks = r->lost_blocks + is_incomplete(r);
    *ret = d;
}

/* ---- opening ---- */

/* Describes the content of a file that is not a recording. */
static const char *looks_like(const uint8_t *head, size_t len)
{
    const char *kind = block_guess_kind(head, len);
    if (len == 0)
        return "empty";
    if (kind)
        return kind;
    if (len < BLOCK_FILE_HEAD_BYTES && memcmp(head, BLOCK_FILE_MAGIC, len < 8 ? len : 8) == 0)
        return "an incomplete file header of a recording";
    for (size_t i = 0; i < len; i++)
        if (head[i] == 0 || (head[i] < 0x20 && !strchr("\t\r\n", head[i])))
            return "other data";
    return head[0] == '{' ? "JSON" : "text (the name of a CSV table must end in .csv)";
}

static int check_file_head(int fd, struct err *err)
{
    uint8_t head[BLOCK_FILE_HEAD_BYTES];
    ssize_t n = pread(fd, head, sizeof head, 0);
    if (n < 0)
        return err_set(err, -errno, "cannot be read: %s", strerror(errno));
    if ((size_t)n < sizeof head || memcmp(head, BLOCK_FILE_MAGIC, 8) != 0)
        return err_set(err, -EBADMSG, "is not an ebb recording: it is %s",
                       looks_like(head, (size_t)n));
    struct cur c = cur_of(head + 8, 2);
    unsigned major = cur_u16le(&c);
    if (major != BLOCK_MAJOR)
        return err_set(err, -EPROTONOSUPPORT,
                       "has format version %u, but this ebb reads only version %d; use a newer ebb",
                       major, BLOCK_MAJOR);
    return 0;
}

static uint64_t header_u64(const json_t *header, const char *key, bool *found)
{
    const json_t *v = json_object_get(header, key);
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    *found = n >= 0;
    return n >= 0 ? (uint64_t)n : 0;
}

/* Reads the header, or uses an empty one if the header is damaged, because such a recording is
 * still readable. */
static int load_header(struct trace_reader *r)
{
    for (size_t i = 0; i < r->scan.count && !r->header; i++) {
        if (r->scan.blocks[i].head.type != BLOCK_HEADER)
            continue;
        int e = scan_load(r->fd, &r->scan.blocks[i], &r->part);
        if (e == -ENOMEM)
            return e;
        json_t *doc = e == 0 ? json_parse(r->part.data, r->part.len, NULL) : NULL;
        if (json_is_object(doc))
            r->header = doc;
        else
            json_decref(doc);
    }
    if (!r->header && !(r->header = json_object()))
        return -ENOMEM;
    bool has_wall;
    r->start_mono_ns = header_u64(r->header, "start_mono_ns", &r->has_start);
    r->start_wall_ns = header_u64(r->header, "start_wall_ns", &has_wall);
    return 0;
}

static int reader_init(struct trace_reader *r, struct err *err)
{
    struct stat st;
    int e = check_file_head(r->fd, err);
    if (e < 0)
        return e;
    if (fstat(r->fd, &st) < 0)
        return err_set(err, -errno, "cannot be read: %s", strerror(errno));
    e = scan_again(r, 0);
    if (e == 0)
        e = load_header(r);
    if (e < 0)
        return err_set(err, e, "cannot be read: %s", strerror(-e));
    r->seen_size = st.st_size;
    r->seen_mtime = st.st_mtim;
    drop_source(r);
    return 0;
}

int trace_reader_open_fd(int fd, struct trace_reader **ret, struct err *err)
{
    struct trace_reader *r = calloc(1, sizeof *r);
    if (!r) {
        close(fd);
        return err_set(err, -ENOMEM, "cannot be read: %s", strerror(ENOMEM));
    }
    r->fd = fd;
    int e = reader_init(r, err);
    if (e < 0) {
        trace_reader_free(r);
        return e;
    }
    *ret = r;
    return 0;
}

static int open_trace(const char *path, struct err *err)
{
    struct stat st;
    /* O_NONBLOCK prevents open from waiting for a writer if the file is a FIFO */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        int file = openat(fd, "trace.ebb", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        int e = -errno;
        close(fd);
        if (file < 0)
            return err_set(err, e,
                           e == -ENOENT ? "%s is a folder without a recording (trace.ebb)"
                                        : "%s/trace.ebb cannot be opened: %s",
                           path, strerror(-e));
        fd = file;
    }
    if (fd < 0)
        return err_set(err, -errno, "%s cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(err, -EBADMSG, "%s is not an ebb recording: it is not a regular file", path);
    }
    return fd;
}

int trace_reader_open(const char *path, struct trace_reader **ret, struct err *err)
{
    int fd = open_trace(path, err);
    if (fd < 0)
        return fd;
    struct err why = {""};
    int e = trace_reader_open_fd(fd, ret, &why);
    return e < 0 ? err_set(err, e, "%s %s", path, why.text) : 0;
}

void trace_reader_free(struct trace_reader *r)
{
    if (!r)
        return;
    drop_source(r);
    record_decoder_fini(&r->decoder);
    replay_fini(&r->replay);
    buf_fini(&r->part);
    free(r->order);
    scan_fini(&r->scan);
    json_decref(r->header);
    close(r->fd);
    free(r);
}

const json_t *trace_reader_header(const struct trace_reader *r)
{
    return r->header;
}

uint64_t trace_reader_start_mono_ns(const struct trace_reader *r)
{
    return r->start_mono_ns;
}

uint64_t trace_reader_start_wall_ns(const struct trace_reader *r)
{
    return r->start_wall_ns;
}

bool trace_is_damaged(const struct trace_reader_damage *d)
{
    return d->bad_bytes || d->cut_bytes || d->unknown_blocks || d->lost_blocks;
}
