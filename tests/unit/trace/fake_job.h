/* A simulated job that writes a recording. As the expected result of reading, the job keeps each
 * item as a line of text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

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

/* All members except `seed`, `loose` and `with_events` must be zero at the start. */
struct fake_job {
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
    struct lines written;
    bool loose;       /* omit values that depend on earlier blocks (see fake_job_render) */
    bool with_events; /* include process starts and exits, marks and notes */
};

void fake_job_fini(struct fake_job *s);
/* Simulates the job until the next tick, and records its events and the tick. W may be NULL. */
void fake_job_tick(struct fake_job *s, struct trace_writer *w);
/* Waits until all data are written to the file. */
void fake_job_settle(struct trace_writer *w);

/* Formats an item as a line of text. LOOSE omits values that depend on earlier blocks, so that
 * items after a lost block can be compared. */
void fake_job_render(const struct trace_item *item, bool loose, struct buf *ret);
/* Appends all items that R returns, as lines. */
void fake_job_read(struct trace_reader *r, bool loose, struct lines *ret);
void fake_job_read_file(const char *path, struct lines *ret);
void fake_job_check_same(const struct lines *written, const struct lines *read);

/* Returns the temporary folder of this test program, which is removed at exit. */
const char *fake_job_folder(void);
char *fake_job_path(char path[256], const char *name);
void fake_job_write_file(const char *path, const void *data, size_t len);
void fake_job_read_bytes(const char *path, struct buf *ret);
/* Limits the size of the files that this process writes. */
void fake_job_file_limit(rlim_t bytes);
