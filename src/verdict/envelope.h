/* The low envelope of a series in fixed space: the minimum of each block of readings. When all
 * slots are in use, the block width doubles. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { ENVELOPE_SLOTS = 128 };

struct envelope_slot {
    double x;     /* position of the minimum on the x axis */
    double y;     /* the minimum, bytes */
    float excess; /* highest reading of the block minus its minimum */
    float t;      /* running time at X in seconds; unused where X is time itself */
};

struct envelope {
    struct envelope_slot slot[ENVELOPE_SLOTS]; /* the last slot is still open */
    double origin;                             /* x at which the first block starts */
    double width; /* block width on the x axis; 0 while each reading has a slot of its own */
    uint32_t count;
    uint32_t level; /* doublings so far */
};

/* Adds a reading at T seconds; X must not decrease. O(1) amortised: a merge touches every slot, but
 * frees at least half of them. */
void envelope_push(struct envelope *e, double x, double t, double y);

/* True if the open block has covered about half of its width, so that its minimum is comparable. */
int envelope_last_is_ripe(const struct envelope *e, double x_now);
