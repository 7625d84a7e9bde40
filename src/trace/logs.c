/* Writes a log in pieces, and finds the piece that contains an offset. */
#include "trace/logs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/number.h"

enum {
    NAME_BYTES = 40,
    FIND_TRIES = 4,
    /* Maximum number of folder entries that are listed. It is limited because the job can create
     * any number of files. */
    ENTRIES_MAX = 1 << 16,
    FOREIGN_MAX = 2 * LOGS_PIECES,
};

static const char first_name[] = "log.txt";

struct logs {
    struct sink *sink;
    int dirfd;            /* borrowed */
    uint64_t piece_bytes; /* 0: no limit */
    uint64_t bytes;
    uint64_t start[LOGS_PIECES - 1]; /* offsets of the pieces that follow log.txt, oldest first */
    size_t count;
    char name[NAME_BYTES];
};

static void piece_name(uint64_t start, char ret[NAME_BYTES])
{
    if (start == 0)
        snprintf(ret, NAME_BYTES, "%s", first_name);
    else
        snprintf(ret, NAME_BYTES, "log.%" PRIu64 ".txt", start);
}

/* ---- writing ---- */

int logs_open(int dirfd, uint64_t cap_bytes, size_t memory_bytes, struct logs **ret)
{
    if (cap_bytes && cap_bytes < LOGS_CAP_MIN)
        return -EINVAL;
    struct logs *l = calloc(1, sizeof *l);
    if (!l)
        return -ENOMEM;
    l->dirfd = dirfd;
    l->piece_bytes = cap_bytes / LOGS_PIECES;
    piece_name(0, l->name);
    int fd = openat(dirfd, l->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int r = fd < 0 ? -errno : sink_new(fd, memory_bytes, &l->sink);
    if (r < 0) {
        free(l);
        return r;
    }
    /* the log is not synced, because it may be large and would delay the exit of ebb */
    sink_leave_unsynced(l->sink);
    *ret = l;
    return 0;
}

/* Starts the next piece of the log. Fails if the disk is so slow that the queue is full. */
static int next_piece(struct logs *l)
{
    char name[NAME_BYTES], old[NAME_BYTES];
    bool is_full = l->count == LOGS_PIECES - 1;
    piece_name(l->bytes, name);
    piece_name(is_full ? l->start[0] : 0, old);
    int r = sink_turn(l->sink, l->dirfd, name, is_full ? old : NULL);
    if (r < 0)
        return r;
    if (is_full)
        memmove(l->start, l->start + 1, --l->count * sizeof *l->start);
    l->start[l->count++] = l->bytes;
    memcpy(l->name, name, sizeof name);
    return 0;
}

int logs_add(struct logs *l, const void *data, size_t len)
{
    const char *at = data;
    while (len) {
        size_t part = len;
        uint64_t used = l->bytes - (l->count ? l->start[l->count - 1] : 0);
        if (l->piece_bytes && used >= l->piece_bytes) {
            int r = next_piece(l);
            if (r < 0)
                return r;
            used = 0;
        }
        if (l->piece_bytes && part > l->piece_bytes - used)
            part = (size_t)(l->piece_bytes - used);
        int r = sink_append(l->sink, at, part);
        if (r < 0)
            return r;
        l->bytes += part;
        at += part;
        len -= part;
    }
    return 0;
}

uint64_t logs_bytes(const struct logs *l)
{
    return l->bytes;
}

uint64_t logs_on_disk(const struct logs *l)
{
    struct sink_status status;
    /* waiting_bytes includes the queue's own overhead, so the result may be too low */
    sink_status(l->sink, &status);
    return l->bytes > status.waiting_bytes ? l->bytes - status.waiting_bytes : 0;
}

const char *logs_piece_name(const struct logs *l)
{
    return l->name;
}

struct sink *logs_sink(const struct logs *l)
{
    return l->sink;
}

int logs_close(struct logs *l, uint64_t wait_ns)
{
    if (!l)
        return 0;
    int r = sink_close(l->sink, wait_ns);
    free(l);
    return r;
}

/* ---- reading ---- */

/* Parses the offset from the name of a log piece: 4096 for "log.4096.txt", 0 for "log.txt". */
static bool parse_name(const char *name, uint64_t *ret)
{
    size_t len = strlen(name);
    int64_t start = 0;
    char again[NAME_BYTES];
    if (strcmp(name, first_name) != 0 &&
        (len <= strlen("log..txt") ||
         number_parse_i64(name + strlen("log."), len - strlen("log..txt"), &start) < 0))
        return false;
    if (start < 0)
        return false;
    piece_name((uint64_t)start, again);
    *ret = (uint64_t)start;
    return strcmp(name, again) == 0;
}

/* The start offsets of the pieces that matter in a search for OFFSET: the last piece that begins at
 * or before OFFSET, the first piece that begins after it, and the newest piece. */
struct found {
    bool has_at, has_behind, has_any;
    uint64_t at, behind, newest;
};

static void consider(struct found *f, uint64_t start, uint64_t offset)
{
    if (!f->has_any || start > f->newest)
        f->newest = start;
    if (start <= offset && (!f->has_at || start > f->at)) {
        f->has_at = true;
        f->at = start;
    }
    if (start > offset && (!f->has_behind || start < f->behind)) {
        f->has_behind = true;
        f->behind = start;
    }
    f->has_any = true;
}

/* Lists the folder and looks for the pieces needed to find OFFSET. Returns -EMFILE if the folder
 * has more pieces than a log can have. */
static int find_pieces(int dirfd, uint64_t offset, struct found *ret)
{
    uint64_t start;
    unsigned entries = 0, pieces = 0;
    DIR *dir = io_open_folder(dirfd, ".");
    *ret = (struct found){0};
    if (!dir)
        return -errno;
    for (const struct dirent *e; entries < ENTRIES_MAX && (e = readdir(dir)); entries++) {
        if (!parse_name(e->d_name, &start))
            continue;
        consider(ret, start, offset);
        pieces++;
    }
    closedir(dir);
    /* not all entries were read; log.txt may be among the others */
    if (entries == ENTRIES_MAX)
        consider(ret, 0, offset);
    return pieces > FOREIGN_MAX ? -EMFILE : 0;
}

/* Opens the piece that begins at START. Only a regular file is accepted, because the job can create
 * files in its run folder. */
static int open_piece(int dirfd, uint64_t start, struct logs_piece *ret)
{
    char name[NAME_BYTES];
    struct stat st;
    piece_name(start, name);
    int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int r = fd < 0 ? -errno : fstat(fd, &st) < 0 ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;
    if (r < 0) {
        if (fd >= 0)
            close(fd);
        return r;
    }
    *ret = (struct logs_piece){.fd = fd, .start = start, .bytes = (uint64_t)st.st_size};
    return 0;
}

static int end_of(int dirfd, const struct found *f, uint64_t *ret)
{
    struct logs_piece piece;
    if (!f->has_any) {
        *ret = 0;
        return 0;
    }
    int r = open_piece(dirfd, f->newest, &piece);
    if (r < 0)
        return r;
    close(piece.fd);
    *ret = piece.start + piece.bytes;
    return 0;
}

static int try_find(int dirfd, uint64_t offset, struct logs_piece *ret, uint64_t *ret_end)
{
    struct found f;
    uint64_t end = 0;
    int r = find_pieces(dirfd, offset, &f);
    if (r == 0)
        r = end_of(dirfd, &f, &end);
    if (r < 0)
        return r;
    if (ret_end)
        *ret_end = end;
    if (f.has_at) {
        r = open_piece(dirfd, f.at, ret);
        if (r < 0 || offset - f.at < ret->bytes)
            return r;
        close(ret->fd);
    }
    if (!f.has_behind)
        return -ENODATA;
    return open_piece(dirfd, f.behind, ret);
}

int logs_find(int dirfd, uint64_t offset, struct logs_piece *ret, uint64_t *ret_end)
{
    struct logs_piece piece;
    int r = -ENOENT;
    if (ret_end)
        *ret_end = 0;
    /* -ENOENT means that the piece was removed after the folder was listed, so the search is
     * repeated */
    for (int i = 0; r == -ENOENT && i < FIND_TRIES; i++)
        r = try_find(dirfd, offset, &piece, ret_end);
    if (r == 0)
        *ret = piece;
    return r;
}

uint64_t logs_end(int dirfd)
{
    struct logs_piece piece;
    uint64_t end = 0;
    if (logs_find(dirfd, UINT64_MAX, &piece, &end) == 0)
        close(piece.fd);
    return end;
}

ssize_t logs_read(int dirfd, uint64_t offset, void *buf, size_t size, uint64_t *ret_at)
{
    struct logs_piece piece = {.fd = -1};
    uint64_t end = 0;
    int r = logs_find(dirfd, offset, &piece, &end);
    if (r == -ENODATA) {
        *ret_at = end > offset ? end : offset;
        return 0;
    }
    if (r < 0)
        return r;
    uint64_t at = offset > piece.start ? offset : piece.start;
    ssize_t n;
    do
        n = pread(piece.fd, buf, size, (off_t)(at - piece.start));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        n = -errno;
    close(piece.fd);
    if (n >= 0)
        *ret_at = at;
    return n;
}
