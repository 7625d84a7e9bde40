/* Finds the intact blocks of a file, searching byte by byte for the next block after damage. */
#include "trace/scan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"

enum { CHUNK_BYTES = 64 * 1024, WORK_FACTOR = 8, WORK_MIN = 4 * BLOCK_PAYLOAD_MAX };

void scan_fini(struct scan *s)
{
    free(s->blocks);
    *s = (struct scan){0};
}

/* Reads LEN bytes at offset AT, or fewer at the end of the file. */
static ssize_t read_at(int fd, void *data, size_t len, uint64_t at)
{
    char *p = data;
    size_t done = 0;
    while (done < len) {
        ssize_t n = pread(fd, p + done, len - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

struct scanner {
    int fd;
    uint64_t size;
    uint64_t work_left; /* limit on the payload bytes that are still checked */
    uint64_t window_at;
    size_t window_len;
    uint8_t window[CHUNK_BYTES]; /* window of the file in which block headers are searched */
    uint8_t chunk[CHUNK_BYTES];  /* buffer for computing the CRC of payloads */
};

/* Makes at least LEN bytes at offset AT available, or fewer at the end of the file. Each byte of
 * the file is read about once, even if many offsets look like the start of a block. */
static ssize_t peek(struct scanner *sc, uint64_t at, size_t len, const uint8_t **ret)
{
    if (at < sc->window_at || at + len > sc->window_at + sc->window_len) {
        ssize_t n = read_at(sc->fd, sc->window, CHUNK_BYTES, at);
        if (n < 0)
            return n;
        sc->window_at = at;
        sc->window_len = (size_t)n;
    }
    *ret = sc->window + (at - sc->window_at);
    return (ssize_t)(sc->window_at + sc->window_len - at);
}

static int push(struct scan *s, const struct scan_block *b)
{
    if (!ARRAY_ROOM(s->blocks, s->count, s->cap))
        return -ENOMEM;
    s->blocks[s->count++] = *b;
    return 0;
}

/* Checks whether an intact block begins at AT. Returns 1, 0 or -errno. */
static int check_block(struct scanner *sc, uint64_t at, struct block_head *ret)
{
    const uint8_t *bytes;
    ssize_t n = peek(sc, at, BLOCK_HEAD_BYTES, &bytes);
    if (n < 0)
        return (int)n;
    struct block_head head;
    if (n < BLOCK_HEAD_BYTES || block_head_parse(bytes, &head) < 0)
        return 0;
    at += BLOCK_HEAD_BYTES;
    /* If headers are forged, payloads are checked in vain. work_left limits the total size of these
     * payloads. */
    if (at > sc->size || head.stored_len > sc->size - at || head.stored_len > sc->work_left)
        return 0;
    sc->work_left -= head.stored_len;
    uint32_t crc = block_head_crc(bytes);
    for (uint32_t left = head.stored_len; left > 0;) {
        uint32_t want = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        n = read_at(sc->fd, sc->chunk, want, at);
        if (n < 0)
            return (int)n;
        if ((size_t)n < want)
            return 0;
        crc = crc32c(crc, sc->chunk, want);
        at += want;
        left -= want;
    }
    if (crc != head.crc)
        return 0;
    *ret = head;
    return 1;
}

/* Advances *AT to the next offset where a block may begin, or to the end of the file. */
static int find_candidate(struct scanner *sc, uint64_t *at)
{
    while (*at < sc->size) {
        const uint8_t *bytes;
        ssize_t n = peek(sc, *at, 1, &bytes);
        if (n <= 0) {
            *at = sc->size;
            return (int)n;
        }
        size_t hit = block_find(bytes, (size_t)n);
        *at += hit;
        if (hit < (size_t)n)
            return 0;
    }
    return 0;
}

static int scan_all(struct scan *s, struct scanner *sc, uint64_t at)
{
    uint64_t good_end = at;
    while (at < sc->size) {
        struct scan_block b = {.offset = at, .bad_before = at - good_end};
        int r = check_block(sc, at, &b.head);
        if (r > 0) {
            r = push(s, &b);
            at += BLOCK_HEAD_BYTES + (uint64_t)b.head.stored_len;
            good_end = at;
        } else if (r == 0) {
            at++;
            r = find_candidate(sc, &at);
        }
        if (r < 0)
            return r;
    }
    s->cut_bytes = sc->size > good_end ? sc->size - good_end : 0;
    return 0;
}

static uint64_t block_end(const struct scan_block *b)
{
    return b->offset + BLOCK_HEAD_BYTES + b->head.stored_len;
}

int scan_file(struct scan *s, int fd)
{
    return scan_file_from(s, fd, &(size_t){0});
}

int scan_file_from(struct scan *s, int fd, size_t *keep)
{
    size_t n = *keep;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (n > 0 && (uint64_t)st.st_size < block_end(&s->blocks[n - 1]))
        n = 0;
    struct scanner *sc = malloc(sizeof *sc);
    if (!sc)
        return -ENOMEM;
    sc->fd = fd;
    sc->window_at = sc->window_len = 0;
    sc->size = st.st_size > 0 ? (uint64_t)st.st_size : 0;
    sc->work_left = sc->size * WORK_FACTOR + WORK_MIN;
    s->count = *keep = n;
    int r = scan_all(s, sc, n > 0 ? block_end(&s->blocks[n - 1]) : BLOCK_FILE_HEAD_BYTES);
    free(sc);
    return r;
}

bool scan_has_block(int fd, const struct scan_block *b)
{
    uint8_t bytes[BLOCK_HEAD_BYTES];
    struct block_head head;
    return read_at(fd, bytes, sizeof bytes, b->offset) == (ssize_t)sizeof bytes &&
           block_head_parse(bytes, &head) == 0 && head.type == b->head.type &&
           head.seq == b->head.seq && head.part == b->head.part && head.crc == b->head.crc;
}

int scan_load(int fd, const struct scan_block *b, struct buf *ret)
{
    uint8_t bytes[BLOCK_HEAD_BYTES];
    size_t len = b->head.stored_len;
    buf_clear(ret);
    if (buf_reserve(ret, len + 1) < 0)
        return -ENOMEM;
    if (read_at(fd, bytes, sizeof bytes, b->offset) != (ssize_t)sizeof bytes ||
        read_at(fd, ret->data, len, b->offset + sizeof bytes) != (ssize_t)len)
        return -EBADMSG;
    if (crc32c(block_head_crc(bytes), ret->data, len) != b->head.crc)
        return -EBADMSG;
    ret->len = len;
    return 0;
}
