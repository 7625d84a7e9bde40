/* Reading a recording back, whatever happened to it: cut at any byte, damaged in the middle,
 * written by a newer version, or made to harm us. */
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
    const struct process_info *process; /* of ENTITY_PROCESS; never NULL there */
    const char *name;                   /* of GPUs and series; "" if unnamed */
    struct sample sample;
};

/* Everything in it is valid until the next call. */
struct trace_item {
    enum trace_item_kind kind;
    uint64_t t_ns;
    union {
        struct {
            /* entities with a reading or a stale bit at this tick, by kind and id */
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
            const char *kind; /* NUL-ended */
            const char *text; /* NUL-ended */
            size_t len;
        } note;
        struct {
            enum sample_entity_kind kind;
            uint32_t id;
            const char *name;
        } entity;
    };
};

/* -ENOENT, -EACCES, -EISDIR…; -EBADMSG: not one of ours (the sentence says what it looks like);
 * -EPROTONOSUPPORT: of a newer major version. PATH may be a run folder: its trace.ebb. */
int trace_reader_open(const char *path, struct trace_reader **ret, struct err *err);
int trace_reader_open_fd(int fd, struct trace_reader **ret, struct err *err); /* takes FD over */
void trace_reader_free(struct trace_reader *r);

/* Borrowed; an object, empty where it was damaged. The recording then starts with its first item,
 * and its wall time is 0. */
const json_t *trace_reader_header(const struct trace_reader *r);
uint64_t trace_reader_start_mono_ns(const struct trace_reader *r);
uint64_t trace_reader_start_wall_ns(const struct trace_reader *r);

/* 1 and an item, 0 at the end, -errno. Damage is passed over and counted; where a block was lost,
 * the births and deaths in it come as items when the next one begins. Live files grow: call again
 * later. */
int trace_reader_next(struct trace_reader *r, struct trace_item *ret);

struct trace_reader_damage {
    uint64_t bad_bytes;      /* passed over in the middle; after a crash they need not be a loss */
    uint64_t cut_bytes;      /* an unfinished block at the end */
    uint64_t unknown_blocks; /* of a kind we do not know */
    uint64_t lost_blocks;    /* missing in the sequence, or not whole, as far as was read */
};
void trace_reader_damage(const struct trace_reader *r, struct trace_reader_damage *ret);
