/* A made-up job told to a writer, and the items that must come back, as lines of text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "proc/sample.h"
#include "trace/reader.h"
#include "trace/writer.h"

struct lines {
    char **line;
    size_t count, cap;
};
void lines_fini(struct lines *l);

enum { STORY_PROCESSES = 12 };

/* Zeroed but for the seed is a story that has not begun. */
struct story {
    uint64_t seed;
    uint64_t t_ns;
    uint32_t next_slot;
    struct {
        bool alive;
        uint32_t slot;
        struct process_info info;
        struct sample sample;
    } process[STORY_PROCESSES];
    struct sample machine, gpu, series;
    struct lines told;
    bool loose;       /* tell as story_render does it loosely */
    bool with_events; /* births, deaths, marks and notes too */
};

void story_fini(struct story *s);
/* One tick and what happens before it. W may be NULL. */
void story_tell(struct story *s, struct trace_writer *w);
/* Waits until the disk has all it was given. */
void story_settle(struct trace_writer *w);

/* LOOSE leaves out what depends on blocks before (known values), so that what comes after a lost
 * block can be compared. */
void story_render(const struct trace_item *item, bool loose, struct buf *ret);
/* Adds what R gives until its end. */
void story_read(struct trace_reader *r, bool loose, struct lines *ret);
void story_read_file(const char *path, struct lines *ret);
void story_check_same(const struct lines *told, const struct lines *read);

/* A folder of its own for each test program; gone at exit. */
const char *story_folder(void);
char *story_path(char path[256], const char *name);
void story_write_file(const char *path, const void *data, size_t len);
void story_read_bytes(const char *path, struct buf *ret);
