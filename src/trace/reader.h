/* Reads a recording in any condition: truncated at any byte, damaged in the middle, written by a
 * newer version of ebb, or hostile. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"
#include "proc/sample.h"

struct err;
struct trace_reader;

enum trace_item_kind { TRACE_TICK, TRACE_PROCESS, TRACE_MARK, TRACE_NOTE, TRACE_ENTITY };

/* The readings of one process, GPU or other entity at one tick. */
struct trace_row {
    enum sample_entity_kind kind;
    uint32_t id;
    /* the process, if `kind` is ENTITY_PROCESS */
    const struct process_info *process;
    const char *name; /* name of a GPU or series; "" for other entities */
    struct sample sample;
};

/* One item of a recording, valid until the next item is read. */
struct trace_item {
    enum trace_item_kind kind;
    uint64_t t_ns;
    union {
        struct {
            /* entities with a reading or a stale bit at this tick, sorted by kind and id */
            const struct trace_row *rows;
            size_t count;
        } tick;
        struct {
            enum process_event_kind event;
            uint32_t slot;
            const struct process_info *info;
        } process;
        struct mark mark;
        struct {
            const char *kind; /* NUL-terminated */
            const char *text; /* NUL-terminated */
            size_t len;
        } note;
        struct {
            enum sample_entity_kind kind;
            uint32_t id;
            const char *name;
        } entity;
    };
};

/* Opens a recording. If PATH is a run folder, opens its trace.ebb. Returns 0; -EBADMSG if the file
 * is not a recording (the message says what it contains); -EPROTONOSUPPORT if a newer major version
 * of ebb wrote it; or -errno. */
int trace_reader_open(const char *path, struct trace_reader **ret, struct err *err);
int trace_reader_open_fd(int fd, struct trace_reader **ret,
                         struct err *err); /* takes ownership of FD */
void trace_reader_free(struct trace_reader *r);

/* Returns the header as a JSON object, which the reader owns. If the header is damaged, the object
 * is empty, the start time is that of the first item, and the wall-clock start time is 0. */
const json_t *trace_reader_header(const struct trace_reader *r);
uint64_t trace_reader_start_mono_ns(const struct trace_reader *r);
uint64_t trace_reader_start_wall_ns(const struct trace_reader *r);

/* Reads the next item. Returns 1 if there is an item, 0 at the end, or -errno. Damaged parts are
 * skipped and counted. If a block is lost, the starts and exits of processes that it contained are
 * returned when the next block begins. If the file is still being written, more items may follow
 * after the end. */
int trace_reader_next(struct trace_reader *r, struct trace_item *ret);

struct trace_reader_damage {
    /* number of damaged bytes skipped; after a crash, some of these bytes may never have held a
     * record */
    uint64_t bad_bytes;
    uint64_t cut_bytes;      /* size of an incomplete block at the end of the file */
    uint64_t unknown_blocks; /* number of blocks whose type this version of ebb does not know */
    /* number of blocks read so far that are incomplete or missing */
    uint64_t lost_blocks;
};
void trace_reader_damage(const struct trace_reader *r, struct trace_reader_damage *ret);
bool trace_is_damaged(const struct trace_reader_damage *d);
