/* Writes the initial corpus of fuzz_trace_reader into a folder: a small recording, and the contents
 * of its raw block and of its sealed block. Linked with tests/unit/trace/fake_job.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/clock.h"
#include "trace/block.h"
#include "trace/scan.h"
#include "trace/fake_job.h"

static const char *out_folder;

static void save(const char *name, uint8_t kind, const void *data, size_t len)
{
    char path[512];
    struct buf b = {0};
    snprintf(path, sizeof path, "%s/%s", out_folder, name);
    buf_add_byte(&b, kind);
    buf_add(&b, data, len);
    fake_job_write_file(path, b.data, b.len);
    buf_fini(&b);
}

static void save_inside(const char *path, uint16_t type, const char *name, uint8_t kind)
{
    struct scan scan = {0};
    struct buf stored = {0}, plain = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(scan_file(&scan, fd), 0);
    for (size_t i = 0; i < scan.count; i++) {
        const struct block_head *h = &scan.blocks[i].head;
        if (h->type != type)
            continue;
        assert_int_equal(scan_load(fd, &scan.blocks[i], &stored), 0);
        assert_int_equal(buf_reserve(&plain, h->raw_len), 0);
        if (type == BLOCK_SEALED)
            plain.len = ZSTD_decompress(plain.data, h->raw_len, stored.data, stored.len);
        save(name, kind, type == BLOCK_SEALED ? plain.data : stored.data,
             type == BLOCK_SEALED ? plain.len : stored.len);
        break;
    }
    close(fd);
    scan_fini(&scan);
    buf_fini(&stored);
    buf_fini(&plain);
}

int main(int argc, char **argv)
{
    char path[256];
    struct fake_job s = {.seed = 42, .with_events = true};
    struct trace_writer *w;
    struct buf whole = {0};
    if (argc != 2)
        return 2;
    out_folder = argv[1];
    assert_int_equal(
        trace_writer_new(AT_FDCWD, fake_job_path(path, "seed.ebb"), NULL, NULL, &w, NULL), 0);
    for (unsigned i = 0; i < 12; i++)
        fake_job_tick(&s, w);
    trace_writer_flush(w, 0, true);
    fake_job_settle(w);
    save_inside(path, BLOCK_RAW, "raw", 1);
    trace_writer_close(w, NULL, 10 * NS_PER_S);
    save_inside(path, BLOCK_SEALED, "sealed", 2);
    fake_job_read_bytes(path, &whole);
    save("file", 0, whole.data, whole.len);
    buf_fini(&whole);
    fake_job_fini(&s);
    return 0;
}
