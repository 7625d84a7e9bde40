/* The part of the ladder that assesses one reading; used by ladder.c. */
#pragma once

#include "guard/ladder.h"

#define LADDER_BIT(trigger) (1u << (unsigned)(trigger))

/* Thresholds for the headroom of one gauge. */
struct ladder_lines {
    bool known;
    uint64_t base;    /* the reserve without the memory that a checkpoint needs */
    uint64_t reserve; /* the reserve with the memory that a checkpoint needs */
    /* how far memory may grow before SIGTERM if a checkpoint is written meanwhile */
    uint64_t usable;
};

struct ladder_status {
    struct ladder_lines lines[LADDER_GAUGES];
    unsigned holding; /* bit mask of active triggers */
    unsigned least;   /* host gauge with the least headroom; any gauge if no headroom is known */
    unsigned forecast_gauge, pace_gauge, level_gauge;
    double need_s;
    double forecast_s; /* time until SIGTERM, from the verdict's forecast */
    double pace_s;     /* time until SIGTERM, from the growth of the last seconds */
    double pressed_s;
};

/* Determines which triggers are active, and adds the reading to the history. */
void ladder_assess(struct ladder *l, const struct ladder_input *in, const struct timing *timing,
                   struct ladder_status *ret);
/* Returns the seconds between two times, or 0 if TO_NS is earlier. */
double ladder_seconds(uint64_t from_ns, uint64_t to_ns);
/* Returns true if the headroom of one of the first GAUGES gauges is at most 1/PART of its reserve
 * `base`, and sets k->level_gauge to that gauge. GPUs without a limit set by the user are
 * skipped. */
bool ladder_is_under(const struct ladder_input *in, struct ladder_status *k, unsigned part,
                     unsigned gauges);
