/* The low envelope of a series: block minima in a fixed number of slots. */
#include "verdict/envelope.h"

#include <math.h>
#include <string.h>

static double block_of(const struct envelope *e, double x)
{
    return floor((x - e->origin) / e->width);
}

static void slot_join(struct envelope_slot *a, const struct envelope_slot *b)
{
    double high = fmax(a->y + (double)a->excess, b->y + (double)b->excess);
    if (b->y < a->y) {
        a->x = b->x;
        a->t = b->t;
        a->y = b->y;
    }
    a->excess = (float)(high - a->y);
}

/* Doubles the block width until at most half the slots are used. One doubling may not be enough,
 * because a gap leaves blocks without readings. */
static void envelope_merge(struct envelope *e)
{
    while (e->count > ENVELOPE_SLOTS / 2) {
        uint32_t kept = 0;
        if (e->width <= 0) {
            e->origin = e->slot[0].x;
            e->width = (e->slot[e->count - 1].x - e->origin) / (0.5 * ENVELOPE_SLOTS - 1);
            if (!(e->width > 0))
                e->width = 1;
        } else {
            e->width *= 2;
        }
        e->level++;
        for (uint32_t i = 1; i < e->count; i++) {
            if (block_of(e, e->slot[i].x) == block_of(e, e->slot[kept].x))
                slot_join(&e->slot[kept], &e->slot[i]);
            else
                e->slot[++kept] = e->slot[i];
        }
        e->count = kept + 1;
    }
}

void envelope_push(struct envelope *e, double x, double t, double y)
{
    struct envelope_slot new = {.x = x, .y = y, .excess = 0, .t = (float)t};
    if (e->count && e->width > 0 && block_of(e, x) == block_of(e, e->slot[e->count - 1].x)) {
        slot_join(&e->slot[e->count - 1], &new);
        return;
    }
    if (e->count == ENVELOPE_SLOTS)
        envelope_merge(e);
    if (e->count && e->width > 0 && block_of(e, x) == block_of(e, e->slot[e->count - 1].x))
        slot_join(&e->slot[e->count - 1], &new);
    else
        e->slot[e->count++] = new;
}

int envelope_last_is_ripe(const struct envelope *e, double x_now)
{
    double start;
    if (e->count == 0)
        return 0;
    if (e->width <= 0)
        return 1;
    start = e->origin + block_of(e, e->slot[e->count - 1].x) * e->width;
    return x_now - start >= 0.45 * e->width;
}
