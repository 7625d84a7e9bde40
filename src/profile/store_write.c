/* Writes the heap history of one process, and decides when a reading and a snapshot are due. */
#include "profile/store.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/number.h"
#include "profile/store_pack.h"
#include "trace/sink.h"

enum {
    /* Maximum number of bytes that may wait for a slow disk: the size of the largest table. */
    QUEUE_BYTES = 6 << 20,
    /* a reading is due once 1/500 of the run has passed since the last reading */
    READINGS_PER_RUN = 500,
    /* a requested reading is taken if 1/2000 of the run has passed since the last reading */
    ASKED_A_RUN = 2000,
    /* a snapshot is due after 1/16 of the run if live bytes have changed since the last snapshot */
    SNAPSHOTS_PER_RUN = 16,
    SNAPSHOTS_AT_LEAST = 4, /* a snapshot is due after 1/4 of the run even if nothing has changed */
    /* a requested snapshot is taken if 1/256 of the run has passed since the last snapshot */
    SNAPSHOTS_ASKED = 256,
    /* Every 64th reading does not depend on earlier ones, so a damaged block loses at most 64
     * readings. */
    WHOLE_EVERY = 64,
    SIZE_STEP = STORE_BYTES_MAX / 8,
};
#define READING_NS (2 * NS_PER_S)
/* In the first minute, readings are taken twice as often: a first epoch may take only seconds, and
 * growth after its end is the earliest sign of a leak. */
#define EARLY_NS (60 * NS_PER_S)
#define ASKED_NS NS_PER_S

struct store_writer {
    struct sink *sink;
    const struct live_table *table;
    struct live_table_counts done; /* number of table entries that are in the file */
    struct store_last last;        /* values of the last reading, from which changes are computed */
    uint64_t seq;                  /* number of the last reading, or 0 */
    uint64_t whole_seq; /* number of the last reading that does not depend on earlier ones, or 0 */
    uint64_t size_bytes, losses;
    uint64_t reading_ns, snapshot_ns; /* times of the last reading and snapshot, or 0 */
    struct store_totals live;
    double snapshot_bytes; /* live bytes of host and GPUs at the last snapshot */
};

static uint64_t part_of_run(uint64_t elapsed_ns, unsigned parts, uint64_t least_ns,
                            uint64_t size_bytes)
{
    uint64_t ns = elapsed_ns / parts;
    unsigned rarer = size_bytes < STORE_BYTES_MAX ? (unsigned)(size_bytes / SIZE_STEP) : 8;
    return (ns > least_ns ? ns : least_ns) << rarer;
}

uint64_t store_interval_ns(uint64_t elapsed_ns, uint64_t size_bytes)
{
    uint64_t least_ns = elapsed_ns < EARLY_NS ? READING_NS / 2 : READING_NS;
    return part_of_run(elapsed_ns, READINGS_PER_RUN, least_ns, size_bytes);
}

/* Creates the file with the header that readers require. Returns the descriptor or -errno. */
static int make_file(int dirfd, const char *name)
{
    struct buf head = {0};
    int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    store_pack_file_head(&head);
    int r = head.failed ? -ENOMEM : io_write_all(fd, head.data, head.len);
    buf_fini(&head);
    if (r == 0)
        return fd;
    unlinkat(dirfd, name, 0);
    close(fd);
    return r;
}

int store_create(int dirfd, const char *name, const struct live_table *table,
                 struct store_writer **ret, struct err *err)
{
    struct store_writer *w = calloc(1, sizeof *w);
    /* the large arrays are zeroed by the kernel, so pages without call sites take no memory */
    if (w)
        w->last.sites = calloc(HEAP_SITES, sizeof *w->last.sites);
    if (!w || !w->last.sites) {
        store_writer_close(w, 0);
        return err_set(err, -ENOMEM, "out of memory: the heap history is not recorded");
    }
    int fd = make_file(dirfd, name);
    int r = fd < 0 ? fd : sink_new(fd, QUEUE_BYTES, &w->sink);
    if (r < 0) {
        store_writer_close(w, 0);
        return err_set(err, r, "cannot write %s: %s", name, strerror(-r));
    }
    w->table = table;
    *ret = w;
    return 0;
}

/* Makes the next reading independent of earlier ones, because data was lost. */
static void start_over(struct store_writer *w)
{
    w->done = (struct live_table_counts){0};
    w->whole_seq = 0;
    w->snapshot_ns = 0;
}

static void notice_losses(struct store_writer *w)
{
    struct sink_status status;
    sink_status(w->sink, &status);
    if (status.losses != w->losses)
        start_over(w);
    w->losses = status.losses;
}

static bool is_worth_a_snapshot(const struct store_writer *w, uint64_t now_ns, enum store_why why,
                                double live_bytes)
{
    uint64_t elapsed = u64_minus(now_ns, w->table->start_ns);
    uint64_t passed = u64_minus(now_ns, w->snapshot_ns);
    if (why == STORE_LAST || w->snapshot_ns == 0)
        return true;
    if (why == STORE_ASKED)
        return passed >= part_of_run(elapsed, SNAPSHOTS_ASKED, ASKED_NS, w->size_bytes);
    if (passed < part_of_run(elapsed, SNAPSHOTS_PER_RUN, READING_NS, w->size_bytes))
        return false;
    return why == STORE_EPOCH || fabs(live_bytes - w->snapshot_bytes) > w->snapshot_bytes / 10 ||
           passed >= elapsed / SNAPSHOTS_AT_LEAST;
}

static bool is_too_soon(const struct store_writer *w, uint64_t now_ns, enum store_why why)
{
    if (why == STORE_LAST || w->reading_ns == 0)
        return false;
    uint64_t elapsed = u64_minus(now_ns, w->table->start_ns);
    uint64_t least = part_of_run(elapsed, ASKED_A_RUN, ASKED_NS, w->size_bytes);
    return w->size_bytes >= STORE_BYTES_MAX ||
           (why == STORE_ASKED && u64_minus(now_ns, w->reading_ns) < least);
}

/* Packs all blocks of one reading; they are written together or not at all. */
static void pack(struct store_writer *w, struct live_samples *live, struct store_moment *at,
                 enum store_why why, struct buf *out)
{
    bool is_whole = w->whole_seq == 0 || w->seq + 1 - w->whole_seq >= WHOLE_EVERY;
    /* after a loss of data the file gets a second header block, which is harmless */
    if (w->whole_seq == 0)
        store_pack_head(out, w->table);
    store_pack_news(out, w->table, &w->done);
    if (is_whole) {
        memset(w->last.sites, 0, w->last.count * sizeof *w->last.sites);
        w->last.count = 0;
        w->whole_seq = w->seq + 1;
        at->flags |= STORE_IS_WHOLE;
    }
    w->live = store_pack_reading(out, w->table, live, at, ++w->seq, &w->last);
    store_pack_gpus(out, w->table);
    w->reading_ns = at->t_ns;
    double live_bytes = w->live.host + w->live.gpu;
    if (!is_worth_a_snapshot(w, at->t_ns, why, live_bytes))
        return;
    store_pack_snapshot(out, live, at);
    w->snapshot_ns = at->t_ns;
    w->snapshot_bytes = live_bytes;
}

static int append_blocks(struct store_writer *w, const struct buf *out, enum store_why why)
{
    int r = out->failed ? -ENOMEM : sink_append(w->sink, out->data, out->len);
    if (r < 0) {
        start_over(w);
        return r;
    }
    w->size_bytes += out->len;
    return why == STORE_ASKED || why == STORE_LAST ? sink_sync(w->sink) : 0;
}

int store_take(struct store_writer *w, uint64_t now_ns, bool has_step, int64_t step,
               enum store_why why, double *ret_live_bytes)
{
    struct live_samples live = {0};
    struct buf out = {0};
    bool is_ended = why == STORE_LAST || live_table_is_ended(w->table);
    struct store_moment at = {.t_ns = now_ns, .step = has_step ? step : 0};
    at.flags = (has_step ? STORE_HAS_STEP : 0U) | (is_ended ? STORE_IS_ENDED : 0U);
    int r = 0;
    notice_losses(w);
    if (!is_too_soon(w, now_ns, why)) {
        r = live_table_read(w->table, &live);
        if (r == 0) {
            pack(w, &live, &at, why, &out);
            r = append_blocks(w, &out, why);
        }
        live_table_rest(w->table);
    }
    buf_fini(&out);
    live_samples_fini(&live);
    *ret_live_bytes = w->live.host;
    return r;
}

int store_flush(struct store_writer *w, uint64_t wait_ns)
{
    int r = sink_wait(w->sink, wait_ns);
    return r < 0 ? r : store_error(w);
}

int store_error(const struct store_writer *w)
{
    struct sink_status status;
    sink_status(w->sink, &status);
    return status.first_error;
}

uint64_t store_size_bytes(const struct store_writer *w)
{
    return w->size_bytes;
}

int store_writer_close(struct store_writer *w, uint64_t wait_ns)
{
    if (!w)
        return 0;
    int r = sink_close(w->sink, wait_ns);
    free(w->last.sites);
    free(w);
    return r;
}
