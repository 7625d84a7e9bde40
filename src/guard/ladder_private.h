/* What the ladder's parts share: an input weighed against the rules, and the sentences about it. */
#pragma once

#include "guard/ladder.h"

#define LADDER_BIT(trigger) (1u << (unsigned)(trigger))

/* The lines of one gauge, as room below its limit, and how it stands. */
struct ladder_lines {
    bool known;
    uint64_t base;    /* the reserve without the rise of a save */
    uint64_t reserve; /* with it */
    uint64_t usable;  /* room until SIGTERM with the rise of a save taken off */
};

struct ladder_status {
    struct ladder_lines lines[2];
    unsigned holding; /* bits */
    unsigned least;   /* the gauge with the least room; any where none is known */
    unsigned pace_gauge, level_gauge;
    double need_s;
    double forecast_s; /* until SIGTERM, counted as the verdict does */
    double pace_s;     /* the same by the pace of the last seconds */
    bool gpu_is_full;
    double pressed_s;
};

/* Takes the reading in and says what holds. */
void ladder_assess(struct ladder *l, const struct ladder_input *in, const struct tempo *tempo,
                   struct ladder_status *ret);
/* Seconds from one to the other; 0 where that is in the past. */
double ladder_seconds(uint64_t from_ns, uint64_t to_ns);
/* Is room at most a PART-th of the base on some gauge? It becomes the one to speak of. */
bool ladder_is_under(const struct ladder_input *in, struct ladder_status *k, unsigned part);

/* The reason of TRIGGER in words, then END, which may be "". */
void ladder_why(const struct ladder *l, const struct ladder_input *in, const struct tempo *tempo,
                const struct ladder_status *k, enum ladder_trigger trigger, const char *end,
                char ret[LADDER_WHY_MAX]);
