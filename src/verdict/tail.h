/* The newest readings of a series, held back until it is known that they are not its end: while a
 * process exits its memory falls for a second or two, and that says nothing about its life. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "verdict/verdict.h"

/* TAIL_TABLE_S: no one waits for a table's verdict, and exits take longer where a machine is busy.
 */
enum { TAIL_HELD = 64, TAIL_S = 3, TAIL_TABLE_S = 10, TAIL_FED = 3 };

struct tail_reading {
    int64_t t_ns;
    uint64_t bytes;
};

/* Zeroed is a valid beginning. */
struct tail {
    struct tail_reading held[TAIL_HELD]; /* a ring */
    uint32_t first, count;
    struct tail_reading fed[TAIL_FED]; /* the last that were fed, to detect a fall; a ring */
    uint32_t n_fed;
    bool is_table; /* readings are held for TAIL_TABLE_S, not TAIL_S */
};

/* Holds back the reading, and feeds V those that are TAIL_S (TAIL_TABLE_S) older or more than there
 * is room for. The newest is always held, however far apart readings are. */
void tail_update(struct tail *tail, struct verdict_series *v, int64_t t_ns, uint64_t bytes);

/* Would a reading at T_NS have the oldest fed first? */
bool tail_is_due(const struct tail *tail, int64_t t_ns);

/* Feeds V the oldest, where one is held. */
void tail_feed(struct tail *tail, struct verdict_series *v);

/* It lives on, as when it sends a mark: feeds V all. Call it before verdict_mark. */
void tail_release(struct tail *tail, struct verdict_series *v);

/* It has died: what is held was its exit and is dropped; of one so young that this would be more
 * than half of all its readings, only so many. */
void tail_drop(struct tail *tail, struct verdict_series *v);

/* A table has ended, and it is unknown whether the process did too. If what is held ends in
 * readings that are lower than all in the TAIL_S before them, the last by more than 5 %, that fall
 * was its exit, or nothing that followed shows that it was not: it is dropped, the others are fed.
 * Of those released before, the last TAIL_FED are looked at too. */
void tail_end(struct tail *tail, struct verdict_series *v);

/* Would tail_end drop all that is held? */
bool tail_all_falls(const struct tail *tail);
