/* State and functions shared by the files that judge a series; private to src/verdict. */
#pragma once

#include <math.h>

#include "verdict/shape.h"
#include "verdict/verdict.h"

enum { POINTS_AT_LEAST = 8, TABLE_POINTS_AT_LEAST = 3 };

struct judging {
    const struct verdict_series *v;
    const struct verdict_limit *limit;
    struct verdict_result *r;
    struct view w;
    struct shape s;
    bool has_epoch_end; /* true if the end of the first epoch is known in the view's units */
    double epoch_end;   /* x at which the first epoch ends */
    double rate_from;   /* x from which the rate is measured */
    double history;     /* x of the oldest reading that is considered */
    double began;       /* x at which the judged phase began, including start-up */
    /* growth in the first steps that was removed from the view, in bytes; 0 if it was a jump */
    double fill;
    double fill_end; /* x at which the growth in FILL ended, or 0 */
    uint32_t phase;
    /* Growth rate in bytes/step that was found by comparing whole epochs (season.c), if known. */
    struct verdict_interval epoch_rate;
    /* true if the word rests only on the end of the job; there is then no alarm */
    bool by_end;
};

void judging_add_evidence(struct verdict_result *r, enum verdict_evidence_code code, double a,
                          double b, double c, double d);
void judging_conclude(struct judging *j, enum verdict_word word, double confidence);
/* Converts running time, which excludes gaps, to seconds since the first sample on the caller's
 * clock. */
double judging_caller_seconds(const struct verdict_series *v, double running_s);

/* Returns the running time in seconds at which step X ended, interpolated between recorded
 * steps. */
double judging_seconds_at_step(const struct verdict_series *v, double x);
/* Returns the mean seconds per step since step FROM, or 0 if unknown. */
double judging_seconds_per_step(const struct verdict_series *v, double from);

/* Returns the time since the end of the first epoch, in epochs; negative before it. */
static inline double judging_beyond_epoch(const struct judging *j)
{
    return (j->w.now - j->epoch_end) / fmax(1e-9, j->epoch_end - j->w.start);
}
/* Growth after the first epoch is judged once this fraction of another epoch has passed. */
#define JUDGING_BEYOND 0.05

/* Converts a step number from double; out-of-range values are clamped. */
static inline uint64_t judging_step(double x)
{
    return x > 0 ? (uint64_t)(x < 9e18 ? x : 9e18) : 0; /* NaN becomes 0 */
}

/* Judges memory that has stopped growing as stable, spiking or plateaued. CAP limits the
 * confidence. */
void judge_level(struct judging *j, double cap);
/* Judges growth while no epoch end is known. Such growth may belong to the first epoch or to a
 * warm-up. */
void judge_open(struct judging *j, double cap);
/* Judges memory within the first epoch: as filling if it grows, otherwise with judge_level. */
void judge_first_epoch(struct judging *j);
/* Judges growth after the first epoch. Returns false if too few readings have followed. */
bool judge_after_epoch(struct judging *j);

/* Returns true if growth clearly continues through the end of the first epoch without a bend. A few
 * readings after the epoch are enough. */
bool judge_unbent(const struct judging *j);

/* Compares whole epochs, if memory repeats with the epoch. Used if the other rules found a level
 * baseline or left the verdict undecided. */
void judge_season(struct judging *j);

/* Returns true if W's baseline rose by more than COUNTS, but only back to an earlier level. */
bool judge_returned_to_level(const struct view *w, double counts);
/* Returns true if memory rose by more than COUNTS at least twice and fell to the same baseline each
 * time. Two troughs are at the same baseline if they differ by at most SLOPE times their distance
 * on the x axis. */
bool judge_same_baseline(const struct view *w, double counts, double slope);

/* Returns true if the straight part of the view is large, significant, ongoing, and above
 * earlier levels. */
bool judge_is_rise(const struct judging *j);
/* Returns the x at which a rise that began after a level stretch will be judged, or 0 if it can be
 * judged now. */
double judge_late_wait(const struct judging *j, double warmup_x);
void judge_leaking(struct judging *j, double cap);
/* Judges a job that is over and has no known epoch end. If growth lasted until the end of the job,
 * decides the verdict and returns true. */
bool judge_over(struct judging *j);

/* These functions revise a verdict after a comparison with another series: they make it undecided,
 * remove the evidence with CODE, or remove the position at which growth ended. */
void result_leave_open(struct verdict_result *r);
void result_drop(struct verdict_result *r, enum verdict_evidence_code code);
void result_drop_end(struct verdict_result *r);

bool judging_use_steps(const struct verdict_series *v);

/* These functions run after the word is decided. They set the rates, the time to the limit, and the
 * anytime-valid alarm. */
void outlook_rates(struct judging *j);
void outlook_oom(struct judging *j);
void outlook_alarm(struct judging *j);
