/* Creates a heap table like that of a profiled process, for tests of its readers. */
#pragma once

#include "profile/live_table.h"

struct fake {
    int fd;
    struct heap_table *table;
};

enum { FAKE_START_S = 100, FAKE_INTERVAL = 512 * 1024 };

/* Creates an empty, sealed table of process PID, with FAKE_START_S as its start time. */
void fake_open(struct fake *f, int32_t pid);
void fake_close(struct fake *f);
struct heap_text fake_text(struct fake *f, const char *s);
/* Each function returns the index of the new entry. A frame is a Python frame with CODE or a native
 * frame with MODULE (0-based). */
uint32_t fake_module(struct fake *f, const char *path, uint64_t base);
uint32_t fake_code(struct fake *f, const char *file, const char *name, uint32_t first_line);
uint64_t fake_frame_python(uint32_t code, uint32_t instr);
uint64_t fake_frame_native(uint32_t module, uint64_t offset);
uint32_t fake_node(struct fake *f, uint64_t frame, uint32_t parent);
uint32_t fake_site(struct fake *f, uint32_t node);
/* Adds a live sample of SIZE bytes, allocated MS milliseconds after the start. */
uint32_t fake_live(struct fake *f, uint32_t site, uint64_t size, uint32_t born_ms);
void fake_free(struct fake *f, uint32_t live);
/* Adds the data of a small process with two call sites: site 1 is native code called from Python,
 * site 2 is Python code. */
void fake_fill(struct fake *f);
