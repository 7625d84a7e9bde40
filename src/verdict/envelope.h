/* The low envelope of a series in fixed space: the minimum of each block of readings. When all
 * slots are in use, the block width doubles. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { ENVELOPE_SLOTS = 128 };

struct envelope_slot {
    double x;     /* x at which the block's minimum was read */
    double y;     /* minimum of the block in bytes */
    float excess; /* highest reading of the block minus its lowest, in bytes */
    float t;      /* running time in seconds at the block's minimum; unused if the x axis is time */
};

struct envelope {
    struct envelope_slot slot[ENVELOPE_SLOTS]; /* the last used slot still accepts readings */
    double origin;                             /* x at which the first block starts */
    double width; /* block width on the x axis; 0 while each reading has a slot of its own */
    uint32_t count;
    uint32_t level; /* number of times that the block width has been doubled */
};

/* Adds a reading at T seconds; X must not decrease. O(1) amortised: a merge visits every slot, but
 * leaves at most half of them in use. */
void envelope_push(struct envelope *e, double x, double t, double y);

/* Returns true if the open block has covered about half of its width. Its minimum can then be
 * compared with those of complete blocks. */
int envelope_last_is_ripe(const struct envelope *e, double x_now);
