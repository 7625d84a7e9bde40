/* What the low tide of a window looks like: flat, ended, slowing, or rising straight. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "verdict/fit.h"
#include "verdict/verdict.h"

/* The part of an envelope that is judged. */
struct view {
    size_t n;
    bool by_step;
    double start;         /* x at which this phase began */
    double now;           /* x of the newest reading */
    double seconds_per_x; /* 0: not known */
    double sigma;         /* noise of y from second differences */
    double x[FIT_MAX];
    double y[FIT_MAX];      /* block minima */
    double low[FIT_MAX];    /* the confirmed low tide: no later reading was lower */
    double excess[FIT_MAX]; /* highest reading of the block less y */
    double give_back;       /* the largest fall of y from an earlier high */
    double rise_now;        /* of y since the last large fall */
    bool rise_open;         /* rise_now may yet be given back, as such rises were before */
    double past_level;      /* highest level held for a while before this window; or -HUGE_VAL */
    uint32_t level;         /* doublings of the envelope */
};

/* The slots of V's envelope from FROM_X on. What came before, from HISTORY_X on, tells which rises
 * were given back and which levels were held. */
void view_build(struct view *w, const struct verdict_series *v, bool by_step, double history_x,
                double from_x);
/* The highest level of Y that was held for a twentieth of SPAN before slot TO; -HUGE_VAL if none.
 */
double view_held_level(const double *x, const double *y, size_t to, double span);
/* Cuts a start-up off the front: a small part of the window ten times as steep as the rest. */
void view_trim_startup(struct view *w);

/* What came before the straight part. */
enum shape_before {
    BEFORE_NOTHING, /* the straight part is all there is */
    BEFORE_FLAT,
    BEFORE_STEEPER,
    BEFORE_GENTLER
};

struct shape {
    double floor_first, floor_last;
    double growth;      /* of the low tide over the window */
    double material;    /* growth that counts */
    double spread;      /* deviation of y about its straight part */
    double last_third;  /* growth of the low tide in the last third of the window */
    double rest_third;  /* the same without the largest jumps, where some stand out */
    double slope_ratio; /* slope of the last third over the mean slope, without such jumps */
    bool rising;        /* grew by more than is immaterial, and still does */
    /* The longest straight part up to now. */
    bool straight;
    size_t from;
    double onset, span, slope, slope_se, rise;
    double t_stat; /* of the slope, n_eff counted */
    double n_eff;
    double above_past; /* how far the end lies above every level held before the straight part */
    double rises;      /* how many equal steps up it would take: (sum d)^2 / sum d^2 */
    double roughness;  /* rms about the straight part, as part of its rise */
    double fresh;      /* growth in the last sixth of it over the share due */
    bool chunky;       /* it comes in few steps */
    double net;        /* rise over the sum of all moves, up and down */
    enum shape_before before;
    double flat_before; /* length of the flat stretch before it */
    size_t flat_slots;  /* and its slots */
    /* Separation over the whole window. */
    struct fit_separation sep;
    bool may_end;      /* a curve that ends explains it as well */
    bool part_may_end; /* the same of the straight part alone */
    bool is_power;     /* a power of time explains it, and no curve that ends does */
    bool line_remains; /* beside the best curve that ends, a rising line is certain */
    bool needs_line;   /* and without one no curve that ends explains it */
    double line_least; /* the least that line rises by in all of the window */
};
void shape_of(const struct view *w, double material_fraction, struct shape *ret);

/* Where growth ended: a line up, then a level. False where no such bend is visible. */
bool shape_bend(const struct view *w, double *ret_x, double *ret_width);
