/* The low tide of a series in fixed space: block minima, whose blocks double when room runs out. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { ENVELOPE_SLOTS = 128 };

struct envelope_slot {
    double x;     /* where the minimum was read */
    double y;     /* the minimum, bytes */
    float excess; /* highest reading of the block less its minimum */
    float t;      /* seconds of running time at X, where X is not that itself */
};

struct envelope {
    struct envelope_slot slot[ENVELOPE_SLOTS]; /* the last one is still open */
    double origin;                             /* of the blocks, on the x axis */
    double width;                              /* of a block; 0 while every reading has its own */
    uint32_t count;
    uint32_t level; /* doublings so far */
};

void envelope_init(struct envelope *e);

/* Adds a reading at T seconds; X must not be less than the last one. O(1) amortised: a merge
 * touches every slot but at least halves the blocks, so it comes after at least 32 more. */
void envelope_push(struct envelope *e, double x, double t, double y);

/* True if the open block has seen about half of its width: its minimum may then be compared. */
int envelope_last_is_ripe(const struct envelope *e, double x_now);
