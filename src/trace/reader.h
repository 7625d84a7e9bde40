/* Reads a recording in any condition: truncated at any byte, damaged in the middle, written by a
 * newer version, or hostile. */
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

/* One entity at one tick. */
struct trace_row {
    enum sample_entity_kind kind;
    uint32_t id;
    const struct process_info *process; /* set for ENTITY_PROCESS, where it is never NULL */
    const char *name;                   /* name of a GPU or figure; "" if unnamed */
    struct sample sample;
};

/* One item of a recording, valid until the next call. */
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

/* Opens a recording. -ENOENT, -EACCES, -EISDIR…; -EBADMSG: not a recording (the error names the
 * kind of file); -EPROTONOSUPPORT: written by a newer major version. If PATH is a run folder, its
 * trace.ebb is opened. */
int trace_reader_open(const char *path, struct trace_reader **ret, struct err *err);
int trace_reader_open_fd(int fd, struct trace_reader **ret,
                         struct err *err); /* takes ownership of FD */
void trace_reader_free(struct trace_reader *r);

/* The header, borrowed: an object, empty if the header is damaged. In that case the recording
 * starts with its first item, and its wall time is 0. */
const json_t *trace_reader_header(const struct trace_reader *r);
uint64_t trace_reader_start_mono_ns(const struct trace_reader *r);
uint64_t trace_reader_start_wall_ns(const struct trace_reader *r);

/* 1 and an item; 0 at the end; -errno. Damaged parts are skipped and counted. If a block was lost,
 * the births and deaths in it are delivered when the next block begins. A file that is still being
 * written grows, so more items may follow the end. */
int trace_reader_next(struct trace_reader *r, struct trace_item *ret);

struct trace_reader_damage {
    /* damaged bytes that were skipped; after a crash they may contain nothing of value */
    uint64_t bad_bytes;
    uint64_t cut_bytes;      /* size of an incomplete block at the end */
    uint64_t unknown_blocks; /* blocks of a type that this version does not know */
    /* blocks missing in the sequence or incomplete, among those read so far */
    uint64_t lost_blocks;
};
void trace_reader_damage(const struct trace_reader *r, struct trace_reader_damage *ret);
bool trace_is_damaged(const struct trace_reader_damage *d);
