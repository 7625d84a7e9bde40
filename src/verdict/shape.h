/* The shape of a window's baseline: flat, growth that ended or slows down, or a straight rise. */
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
    double y[FIT_MAX];      /* block minima, bytes */
    double low[FIT_MAX];    /* confirmed baseline: the lowest later reading */
    double excess[FIT_MAX]; /* highest reading of the block minus y */
    double largest_fall;    /* largest fall of y below an earlier maximum */
    double rise_now;        /* rise of y since the last large fall */
    bool rise_open;         /* rise_now may still be released, as earlier rises were */
    double past_level;      /* highest level held for a while before this window, or -HUGE_VAL */
    uint32_t level;         /* doublings of the envelope's block width */
};

/* Takes the slots of V's envelope from FROM_X on. Readings between HISTORY_X and FROM_X show which
 * rises were released and which levels were held. */
void view_build(struct view *w, const struct verdict_series *v, bool by_step, double history_x,
                double from_x);
/* The baseline at X, interpolated between slots. */
double view_low_at(const struct view *w, double x);

/* The highest level of Y that was held for a twentieth of SPAN before slot TO; -HUGE_VAL: none. */
double view_held_level(const double *x, const double *y, size_t to, double span);
/* Cuts start-up off the front: a short part of the window that is at least ten times as steep as
 * the rest. */
void view_trim_startup(struct view *w);

/* The part of the window before the straight part. */
enum shape_before {
    BEFORE_NOTHING, /* the straight part is the whole window */
    BEFORE_FLAT,
    BEFORE_STEEPER,
    BEFORE_GENTLER
};

struct shape {
    double floor_first, floor_last;
    double growth;      /* growth of the baseline over the window */
    double material;    /* smallest growth that counts */
    double spread;      /* standard deviation of y about its straight part */
    double last_third;  /* growth of the baseline in the last third of the window */
    double rest_third;  /* the same without the largest jumps, if any jump stands out */
    double slope_ratio; /* slope of the last third over the mean slope, without such jumps */
    bool rising;        /* growth is material and continues */
    /* The longest straight part that reaches the newest reading. */
    bool straight;
    size_t from;
    double onset, span, slope, slope_se, rise;
    double t_stat; /* t statistic of the slope, computed with n_eff points */
    double n_eff;
    double above_past; /* height of its end above every level held earlier */
    double rises;      /* equivalent number of equal steps: (sum d)^2 / sum d^2 */
    double roughness;  /* root mean square about the straight part, over its rise */
    double fresh;      /* growth in its last sixth, relative to an even rate */
    bool chunky;       /* growth comes in few steps */
    double net;        /* rise over the sum of all movements, up and down */
    enum shape_before before;
    double flat_before; /* length of the flat stretch before it */
    size_t flat_slots;  /* slots in that stretch */
    /* Curve fits over the whole window. */
    struct fit_separation sep;
    bool may_end;      /* a saturating curve fits as well as continuing growth */
    bool part_may_end; /* the same for the straight part alone */
    bool is_power;     /* a power of time fits, and no saturating curve does */
    bool line_remains; /* beside the best saturating curve, a rising line is significant */
    bool needs_line;   /* and no saturating curve fits without that line */
    double line_least; /* lower bound of the growth of that line over the window */
};
void shape_of(const struct view *w, double material_fraction, struct shape *ret);

/* Finds where growth ended: a line up, then a level. False: no such bend. */
bool shape_bend(const struct view *w, double *ret_x, double *ret_width);
