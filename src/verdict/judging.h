/* Shared by the files that judge a series; private to src/verdict. */
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
    bool has_epoch_end; /* the end of the first epoch is known, in the view's units */
    double epoch_end;   /* x */
    double rate_from;   /* x from which the rate is measured */
    double history;     /* x of the oldest reading considered */
    double began;       /* x at which the judged phase began, including start-up */
    double fill;        /* bytes of even growth by step in the start-up part that was cut off … */
    double fill_end;    /* … which ended at this x; 0: none */
    uint32_t phase;
    struct verdict_interval
        epoch_rate; /* bytes/step, set where whole epochs were compared (season.c) */
    bool by_end;    /* decided because the job is over: no alarm */
};

void judging_add_evidence(struct verdict_result *r, enum verdict_evidence_code code, double a,
                          double b, double c, double d);
void judging_conclude(struct judging *j, enum verdict_word word, double confidence);
/* Seconds after the first sample on the caller's clock, which includes gaps. */
double judging_caller_seconds(const struct verdict_series *v, double running_s);

/* Running seconds at which step X ended, interpolated between recorded steps. */
double judging_seconds_at_step(const struct verdict_series *v, double x);
/* Recent seconds/step, counted from step FROM; 0: unknown. */
double judging_seconds_per_step(const struct verdict_series *v, double from);

/* Time since the end of the first epoch, in epochs; negative before it. */
static inline double judging_beyond_epoch(const struct judging *j)
{
    return (j->w.now - j->epoch_end) / fmax(1e-9, j->epoch_end - j->w.start);
}
/* Fraction of an epoch that must follow the first epoch before growth after it is judged. */
#define JUDGING_BEYOND 0.05

/* Converts a step number, which may be out of range, from double. */
static inline uint64_t judging_step(double x)
{
    return x > 0 ? (uint64_t)(x < 9e18 ? x : 9e18) : 0; /* NaN: 0 */
}

/* For memory that has stopped growing: stable, spiking or plateaued. CAP: upper bound of the
 * confidence. */
void judge_level(struct judging *j, double cap);
/* For growth without a known epoch end, which may be the first epoch or a warm-up. */
void judge_open(struct judging *j, double cap);
/* For growth within the first epoch: filling, whatever the slope. */
void judge_first_epoch(struct judging *j);
/* For growth after the first epoch. Returns false if too few readings have followed. */
bool judge_after_epoch(struct judging *j);

/* True if growth is certainly one line without a bend at the end of the first epoch, even where few
 * readings have followed. */
bool judge_unbent(const struct judging *j);

/* Compares epochs where memory repeats with the epoch, if the other rules left the verdict open or
 * found a level baseline. */
void judge_season(struct judging *j);

/* Did the baseline of W only return to an earlier level when it rose by more than COUNTS? */
bool judge_returned_to_level(const struct view *w, double counts);
/* Was every rise of more than COUNTS released twice, down to the same baseline? SLOPE: growth
 * allowed between the two, in the view's units. */
bool judge_same_baseline(const struct view *w, double counts, double slope);

/* Is the straight part of the view large, significant, ongoing, and above earlier levels? */
bool judge_is_rise(const struct judging *j);
/* x at which a late rise will be judged; 0: it can be judged now. */
double judge_late_wait(const struct judging *j, double warmup_x);
void judge_leaking(struct judging *j, double cap);
/* For a job that is over and has no known epoch end: true if growth lasted until the end and was
 * decided. */
bool judge_over(struct judging *j);

/* Change a verdict because of another series: leave it open, drop evidence of one CODE, drop the
 * end of growth. */
void result_leave_open(struct verdict_result *r);
void result_drop(struct verdict_result *r, enum verdict_evidence_code code);
void result_drop_end(struct verdict_result *r);

bool judging_use_steps(const struct verdict_series *v);

/* After the word is decided: rates, time to the limit, and the anytime-valid alarm. */
void outlook_rates(struct judging *j);
void outlook_oom(struct judging *j);
void outlook_alarm(struct judging *j);
