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
    double start;         /* x at which the judged phase began */
    double now;           /* x of the newest reading */
    double seconds_per_x; /* 0 if unknown */
    double sigma;         /* noise of y, estimated from second differences */
    double x[FIT_MAX];
    double y[FIT_MAX];      /* block minima in bytes */
    double low[FIT_MAX];    /* confirmed baseline: the lowest of this and all later readings */
    double excess[FIT_MAX]; /* highest reading of each block minus its minimum */
    double largest_fall;    /* largest fall of y below an earlier maximum */
    double rise_now;        /* rise of y since the last large fall */
    bool rise_open;         /* true if rise_now may still be released, because earlier rises were */
    /* Highest level that lasted for a while before this window, or -HUGE_VAL. */
    double past_level;
    uint32_t level; /* number of times that the envelope's block width has been doubled */
};

/* Copies the slots of V's envelope from FROM_X on. Slots between HISTORY_X and FROM_X are not
 * copied; they are only used to find which rises were released and which levels lasted. */
void view_build(struct view *w, const struct verdict_series *v, bool by_step, double history_x,
                double from_x);
/* Returns the baseline at X, interpolated between slots. */
double view_low_at(const struct view *w, double x);

/* Returns the highest level below which Y did not fall for a twentieth of SPAN. Uses only the slots
 * before TO. Returns -HUGE_VAL if they are too short for this. */
double view_held_level(const double *x, const double *y, size_t to, double span);
/* Removes start-up from the front: a short part of the window at least ten times as steep as the
 * rest. */
void view_trim_startup(struct view *w);

/* Course of the baseline before its straight part. */
enum shape_before {
    BEFORE_NOTHING, /* the straight part is the whole window */
    BEFORE_FLAT,
    BEFORE_STEEPER,
    BEFORE_GENTLER
};

struct shape {
    double floor_first, floor_last;
    double growth;     /* growth of the baseline over the window */
    double material;   /* smallest growth that is considered, in bytes */
    double spread;     /* standard deviation of the readings about the straight part */
    double last_third; /* growth of the baseline in the last third of the window */
    double rest_third; /* growth in the last third, without jumps that stand out */
    /* Slope of the last third relative to the mean slope, without jumps that stand out. */
    double slope_ratio;
    bool rising; /* true if growth is material and continues */
    /* The following fields describe the longest straight part that reaches the newest reading. */
    bool straight;
    size_t from;
    double onset, span, slope, slope_se, rise;
    double t_stat; /* t statistic of the straight part's slope, computed with n_eff points */
    double n_eff;
    /* height of the straight part's end above the highest earlier level that lasted */
    double above_past;
    /* effective number of jumps in the growth: (sum d)^2 / sum d^2, where d are the moves of the
     * baseline */
    double rises;
    double roughness; /* RMS deviation from the straight part, relative to its rise */
    /* growth in the last sixth of the straight part, relative to steady growth */
    double fresh;
    bool chunky; /* true if growth consists of a few jumps */
    double net;  /* net rise divided by the sum of all moves, up and down */
    enum shape_before before;
    double flat_before; /* length of the flat stretch before the straight part */
    size_t flat_slots;  /* number of slots in the flat stretch */
    /* The following fields describe curves that were fitted to the whole window. */
    struct fit_separation sep;
    bool may_end; /* true if a saturating curve fits as well as continuing growth */
    /* True if a saturating curve fits the straight part as well as continuing growth. */
    bool part_may_end;
    bool is_power;     /* true if a power of time fits, and no saturating curve does */
    bool line_remains; /* true if a line added to the best saturating curve rises significantly */
    bool needs_line;   /* true if no saturating curve fits without an additional line */
    double line_least; /* lower bound on the growth of that additional line over the window */
};
void shape_of(const struct view *w, double material_fraction, struct shape *ret);

/* Finds where growth ended by fitting a rising line followed by a level. Returns false if there
 * is no such bend. */
bool shape_bend(const struct view *w, double *ret_x, double *ret_width);
