/* Creates heap tables in a memfd. */
#include "profile/fake_table.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void fake_open(struct fake *f, int32_t pid)
{
    f->fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(f->fd >= 0);
    assert_int_equal(ftruncate(f->fd, sizeof(struct heap_table)), 0);
    assert_int_equal(fcntl(f->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    f->table = mmap(NULL, sizeof *f->table, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    assert_ptr_not_equal(f->table, MAP_FAILED);
    struct heap_header *h = &f->table->header;
    memcpy(h->magic, HEAP_TABLE_MAGIC, sizeof h->magic);
    h->version = HEAP_TABLE_VERSION;
    h->header_bytes = sizeof *h;
    h->table_bytes = sizeof *f->table;
    h->pid = pid;
    h->start_ns = FAKE_START_S * UINT64_C(1000000000);
    h->base_interval = FAKE_INTERVAL;
    h->interval = FAKE_INTERVAL;
    h->nodes = 1;
    h->sites = 1;
}

void fake_close(struct fake *f)
{
    munmap(f->table, sizeof *f->table);
    close(f->fd);
}

struct heap_text fake_text(struct fake *f, const char *s)
{
    struct heap_text text = {f->table->header.text_bytes, (uint32_t)strlen(s)};
    memcpy(f->table->text + text.at, s, text.len);
    f->table->header.text_bytes += text.len;
    return text;
}

uint32_t fake_module(struct fake *f, const char *path, uint64_t base)
{
    uint32_t i = f->table->header.modules;
    struct heap_module *m = &f->table->modules[i];
    m->path = fake_text(f, path);
    m->base = base;
    m->build_id_len = 4;
    memcpy(m->build_id, "\xde\xad\xbe\xef", 4);
    f->table->header.modules++;
    return i;
}

uint32_t fake_code(struct fake *f, const char *file, const char *name, uint32_t first_line)
{
    uint32_t i = f->table->header.codes;
    struct heap_code *c = &f->table->codes[i];
    c->file = fake_text(f, file);
    c->name = fake_text(f, name);
    c->lines = fake_text(f, "lines");
    c->first_line = first_line;
    f->table->header.codes++;
    return i;
}

uint64_t fake_frame_python(uint32_t code, uint32_t instr)
{
    return HEAP_FRAME_PYTHON | (uint64_t)code << HEAP_FRAME_CODE_SHIFT | instr;
}

uint64_t fake_frame_native(uint32_t module, uint64_t offset)
{
    return ((uint64_t)module + 1) << HEAP_FRAME_MODULE_SHIFT | offset;
}

uint32_t fake_node(struct fake *f, uint64_t frame, uint32_t parent)
{
    uint32_t i = f->table->header.nodes++;
    f->table->nodes[i].frame = frame;
    f->table->nodes[i].parent = parent;
    return i;
}

uint32_t fake_site(struct fake *f, uint32_t node)
{
    uint32_t i = f->table->header.sites++;
    f->table->sites[i].node = node;
    f->table->nodes[node].site = i;
    return i;
}

uint32_t fake_live(struct fake *f, uint32_t site, uint64_t size, uint32_t born_ms)
{
    uint32_t i = f->table->header.live_high++;
    struct heap_live *e = &f->table->live[i];
    e->size = size;
    e->site = site;
    e->born_ms = born_ms;
    e->interval = FAKE_INTERVAL / 64;
    e->kind_turn = HEAP_KIND_MALLOC | 1U << 4;
    e->ptr = 0x10000 + i * UINT64_C(16);
    f->table->sites[site].allocated_bytes += (uint64_t)profile_weight_bytes(size, FAKE_INTERVAL);
    f->table->sites[site].allocated_objects_x16 +=
        (uint64_t)(16 * profile_weight_objects(size, FAKE_INTERVAL));
    f->table->header.samples++;
    return i;
}

void fake_free(struct fake *f, uint32_t live)
{
    struct heap_live *e = &f->table->live[live];
    e->ptr = 0;
    f->table->sites[e->site].freed_bytes += (uint64_t)profile_weight_bytes(e->size, FAKE_INTERVAL);
    f->table->header.ends++;
}

void fake_fill(struct fake *f)
{
    uint32_t module = fake_module(f, "/lib/libpixels.so", 0x7f0000000000);
    uint32_t train = fake_code(f, "train.py", "main", 10);
    uint32_t load = fake_code(f, "data.py", "Images.load", 3);
    uint32_t main_node = fake_node(f, fake_frame_python(train, 24), 0);
    uint32_t load_node = fake_node(f, fake_frame_python(load, 8), main_node);
    uint32_t native = fake_node(f, fake_frame_native(module, 0x1234), load_node);
    assert_int_equal(fake_site(f, native), 1);
    assert_int_equal(fake_site(f, main_node), 2);
    fake_live(f, 1, 4 << 20, 500);
    fake_live(f, 1, 1000, 700);
    fake_live(f, 2, 64 << 20, 900);
}
