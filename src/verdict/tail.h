/* The newest readings of a series, held back until it is known that they are not its end: while a
 * process exits its memory falls for a second or two, and that says nothing about its life. */
#pragma once

#include <stdint.h>

#include "verdict/verdict.h"

enum { TAIL_HELD = 32, TAIL_S = 3 };

/* Zeroed is a valid beginning. */
struct tail {
    struct {
        int64_t t_ns;
        uint64_t bytes;
    } held[TAIL_HELD]; /* a ring */
    uint32_t first, count;
};

/* Holds back the reading, and feeds V those that are TAIL_S older or more than there is room for.
 * The newest is always held, however far apart readings are. */
void tail_update(struct tail *tail, struct verdict_series *v, int64_t t_ns, uint64_t bytes);

/* It lives on, as when it sends a mark: feeds V all. Call it before verdict_mark. */
void tail_release(struct tail *tail, struct verdict_series *v);

/* It has died: what is held was its exit and is dropped; of one so young that this would be more
 * than half of all its readings, only so many. */
void tail_drop(struct tail *tail, struct verdict_series *v);

/* A table has ended, and no one says whether the process did too. If what is held ends in
 * readings that are lower than all before them, the last by more than 5 %, that fall was its exit
 * and is dropped; the others are fed. */
void tail_end(struct tail *tail, struct verdict_series *v);
