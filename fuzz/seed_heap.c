/* Writes the initial corpora of fuzz_heap_table and fuzz_heap_store into a folder: patches that
 * produce a small valid table, a complete history of three snapshots, and the payloads of its
 * blocks. Linked with tests/unit/profile/fake_table.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "profile/fake_table.h"
#include "profile/store.h"
#include "trace/block.h"

static int corpus_fd;

static void save(const char *name, const struct buf *b)
{
    assert_int_equal(io_replace_file(corpus_fd, name, b->data, b->len), 0);
}

static void add_patch(struct buf *b, uint8_t section, uint8_t index, size_t at, const void *with,
                      size_t len)
{
    buf_add_byte(b, section);
    buf_add_byte(b, index);
    buf_add_varint(b, at);
    buf_add_blob(b, with, len);
}

static void save_table(const struct heap_table *t)
{
    struct buf b = {0};
    size_t at = offsetof(struct heap_header, start_ns);
    add_patch(&b, 0, 0, at, (const char *)&t->header + at, sizeof t->header - at);
    add_patch(&b, 1, 0, 0, &t->modules[0], sizeof t->modules[0]);
    for (uint8_t i = 0; i < 2; i++)
        add_patch(&b, 2, i, 0, &t->codes[i], sizeof t->codes[i]);
    for (uint8_t i = 0; i < 3; i++)
        add_patch(&b, 3, i, 0, &t->sites[i], sizeof t->sites[i]);
    for (uint8_t i = 0; i < 4; i++)
        add_patch(&b, 4, i, 0, &t->nodes[i], sizeof t->nodes[i]);
    for (uint8_t i = 0; i < 3; i++)
        add_patch(&b, 5, i, 0, &t->live[i], sizeof t->live[i]);
    add_patch(&b, 6, 0, 0, t->text, t->header.text_bytes);
    save("heap_table/honest", &b);
    buf_fini(&b);
}

static void save_payloads(const struct buf *file)
{
    struct buf b = {0};
    buf_add_byte(&b, 1);
    for (size_t at = BLOCK_FILE_HEAD_BYTES; at < file->len;) {
        struct block_head head;
        char *plain = NULL;
        assert_int_equal(block_head_parse((const uint8_t *)file->data + at, &head), 0);
        at += BLOCK_HEAD_BYTES;
        assert_int_equal(pack_open(file->data + at, head.stored_len, head.raw_len, &plain), 0);
        buf_add_byte(&b, (uint8_t)head.type);
        buf_add_byte(&b, (uint8_t)head.seq);
        buf_add_byte(&b, (uint8_t)head.part);
        buf_add_blob(&b, plain, head.raw_len);
        free(plain);
        at += head.stored_len;
    }
    save("heap_store/payloads", &b);
    buf_fini(&b);
}

static void save_history(struct fake *f, const struct live_table *table)
{
    struct store_writer *w;
    struct buf file = {0}, whole = {0};
    double live;
    unlinkat(corpus_fd, "heap_store/history", 0);
    assert_int_equal(store_create(corpus_fd, "heap_store/history", table, &w, NULL), 0);
    for (unsigned i = 1; i < 4; i++) {
        fake_live(f, 1, 1 << 20, 1000 * i);
        uint64_t now = (FAKE_START_S + 2 * i) * NS_PER_S;
        assert_int_equal(store_take(w, now, true, i, STORE_DUE, &live), 0);
    }
    assert_int_equal(store_writer_close(w, 10 * NS_PER_S), 0);
    assert_int_equal(io_read_all(corpus_fd, "heap_store/history", 1 << 20, &file), 0);
    buf_add_byte(&whole, 0);
    buf_add(&whole, file.data, file.len);
    save("heap_store/history", &whole);
    save_payloads(&file);
    buf_fini(&whole);
    buf_fini(&file);
}

int main(int argc, char **argv)
{
    struct fake fake;
    struct live_table table;
    if (argc != 2)
        return 2;
    corpus_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mkdirat(corpus_fd, "heap_table", 0777);
    mkdirat(corpus_fd, "heap_store", 0777);
    fake_open(&fake, 4711);
    fake_fill(&fake);
    assert_int_equal(live_table_open(fake.fd, 4711, &table, NULL), 0);
    save_table(fake.table);
    save_history(&fake, &table);
    live_table_close(&table);
    fake_close(&fake);
    return 0;
}
