/* Fuzzes the reader of a profiled process's heap table. The input patches a valid table, including
 * the counts in its header; then the whole table is read. */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "profile/store.h"
#include "profile/store_pack.h"
#include "target.h"
#include "touch_profile.h"

static struct heap_table *table;
static int table_fd = -1;

static void make_table(void)
{
    table_fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (table_fd < 0 || ftruncate(table_fd, sizeof *table) < 0 ||
        fcntl(table_fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        abort();
    table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, table_fd, 0);
    if (table == MAP_FAILED)
        abort();
}

static void write_head(void)
{
    struct heap_header *h = &table->header;
    memcpy(h->magic, HEAP_TABLE_MAGIC, sizeof h->magic);
    h->version = HEAP_TABLE_VERSION;
    h->table_bytes = sizeof *table;
}

/* A patch consists of section, index, offset and bytes. Only the first entries of each section are
 * patched, because these are likely to be read. */
static void patch(struct cur *c)
{
    const struct {
        void *at;
        size_t bytes, count;
    } sections[] = {
        {&table->header, sizeof table->header, 1},
        {table->modules, sizeof *table->modules, 8},
        {table->codes, sizeof *table->codes, 8},
        {table->sites, sizeof *table->sites, 8},
        {table->nodes, sizeof *table->nodes, 16},
        {table->live, sizeof *table->live, 16},
        {table->text, 64, 4},
    };
    size_t section = cur_byte(c) % (sizeof sections / sizeof *sections);
    size_t bytes = sections[section].bytes, len;
    size_t at = cur_byte(c) % sections[section].count * bytes + cur_varint(c) % bytes;
    const char *with = cur_blob(c, &len);
    size_t room = bytes * sections[section].count - at;
    memcpy((char *)sections[section].at + at, with, len < room ? len : room);
}

/* Writes the table as a heap history with a single snapshot, and reads the history. */
static int profile_of(const struct live_table *mapped, struct profile **ret)
{
    static struct store_site sites[HEAP_SITES];
    struct live_samples live = {0};
    struct live_table_counts none = {0};
    struct store_last last = {.sites = sites};
    struct store_moment at = {.t_ns = 1000000000, .flags = STORE_IS_WHOLE};
    struct buf file = {0};
    int r = live_table_read(mapped, &live);
    if (r == 0) {
        store_pack_file_head(&file);
        store_pack_head(&file, mapped);
        store_pack_news(&file, mapped, &none);
        store_pack_reading(&file, mapped, &live, &at, 1, &last);
        store_pack_snapshot(&file, &live, &at);
        r = file.failed ? -1 : store_parse(file.data, file.len, ret, NULL, NULL);
        memset(sites, 0, last.count * sizeof *sites);
    }
    buf_fini(&file);
    live_samples_fini(&live);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct live_table mapped;
    struct profile *p;
    if (table_fd < 0)
        make_table();
    write_head();
    struct cur c = cur_of(data, size);
    for (int i = 0; i < 64 && cur_left(&c) > 0; i++)
        patch(&c);
    if (live_table_open(table_fd, 1, &mapped, NULL) == 0) {
        if (profile_of(&mapped, &p) == 0) {
            if (touch_profile(p) == 42.5)
                /* Keeps the compiler from removing the reads. */
                mapped.pid = 0;
            profile_free(p);
        }
        live_table_close(&mapped);
    }
    /* Clears the parts of the table that an input can have patched. */
    memset(table, 0, offsetof(struct heap_table, modules) + 8 * sizeof *table->modules);
    memset(table->codes, 0, 8 * sizeof *table->codes);
    memset(table->sites, 0, 8 * sizeof *table->sites);
    memset(table->nodes, 0, 16 * sizeof *table->nodes);
    memset(table->live, 0, 16 * sizeof *table->live);
    memset(table->text, 0, 256);
    return 0;
}
