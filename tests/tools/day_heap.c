/* Writes the heap history of the simulated day with the profiler's own writer. */
#include "day.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "profile/fake_table.h"
#include "profile/store.h"

enum { SITES = 400, DEPTH = 24, NATIVE = 6, READ_EVERY_S = 60 };

/* Adds a call site. All sites share a few outer frames; the other frames of each stack are unique,
 * as in a large training program. */
static uint32_t add_site(struct fake *f, uint32_t below, uint32_t library, unsigned number)
{
    char name[64], file[64];
    uint32_t node = below;
    for (unsigned i = 0; i < DEPTH; i++) {
        snprintf(name, sizeof name, "Module%u.forward_part_%u", number % 40, i);
        snprintf(file, sizeof file, "/opt/site-packages/models/layer_%u.py", number % 40);
        uint32_t code = fake_code(f, file, name, 10 + i);
        node = fake_node(f, fake_frame_python(code, 2 * i), node);
    }
    for (unsigned i = 0; i < NATIVE; i++)
        node = fake_node(f, fake_frame_native(library, 0x1000 * (number + 1) + 16 * i), node);
    return fake_site(f, node);
}

/* Adds the heap at SECOND of the day to the history. */
static void take(struct store_writer *w, unsigned second, enum store_why why)
{
    double live;
    uint64_t now_ns = (DAY_START_S + second) * NS_PER_S;
    if (store_take(w, now_ns, true, second / DAY_STEP_S, why, &live) < 0 ||
        store_flush(w, 60 * NS_PER_S) < 0)
        exit(1);
}

static void live_through(struct fake *f, struct store_writer *w, unsigned from, unsigned ticks)
{
    for (unsigned t = READ_EVERY_S; t <= ticks; t += READ_EVERY_S) {
        if (f->table->header.live_high < HEAP_LIVE)
            fake_live(f, 1, READ_EVERY_S / DAY_STEP_S * DAY_LEAK_BYTES, t * 1000);
        take(w, from + t, (from + t) % 3600 == 0 ? STORE_EPOCH : STORE_DUE);
    }
    take(w, from + ticks, STORE_LAST);
}

void day_heap(int dirfd, int32_t pid, unsigned from, unsigned ticks)
{
    struct fake f;
    struct live_table table;
    struct store_writer *w;
    struct err err = {0};
    char name[64];
    fake_open(&f, pid);
    f.table->header.start_ns = (DAY_START_S + from) * NS_PER_S;
    uint32_t library = fake_module(&f, "/opt/lib/libtensors.so", UINT64_C(0x7f0000000000));
    uint32_t root = fake_node(&f, fake_frame_python(fake_code(&f, "train.py", "main", 1), 2), 0);
    for (unsigned i = 0; i < SITES; i++) {
        uint32_t site = add_site(&f, root, library, i);
        for (unsigned k = 0; k < 2; k++)
            fake_live(&f, site, (1 + i % 16) * DAY_MIB / 8, 1000 + i);
    }
    snprintf(name, sizeof name, "heap.%d.ebbheap", (int)pid);
    if (live_table_open(f.fd, pid, &table, &err) < 0 ||
        store_create(dirfd, name, &table, &w, &err) < 0) {
        fprintf(stderr, "day: %s\n", err.text);
        exit(1);
    }
    live_through(&f, w, from, ticks);
    if (store_writer_close(w, 60 * NS_PER_S) < 0)
        exit(1);
    live_table_close(&table);
    fake_close(&f);
}
