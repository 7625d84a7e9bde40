/* Inside the judgement: what its files share. Not for users of verdict.h. */
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
    bool has_pass;    /* the end of the first pass is known, in the view's units */
    double pass_end;  /* x */
    double rate_from; /* x from which the rate is measured */
    double history;   /* x from which on anything is looked at */
    double began;     /* x at which the judged phase began, a start-up included */
    double fill;      /* what was cut off the front by step grew by this, evenly … */
    double fill_end;  /* … until this x; 0: nothing */
    uint32_t phase;
    struct verdict_interval pass_rate; /* bytes a step, where whole passes give it (season.c) */
    bool by_end; /* called because the job is over: nobody needs to be alarmed */
};

void judging_say(struct verdict_result *r, enum verdict_evidence_code code, double a, double b,
                 double c, double d);
void judging_conclude(struct judging *j, enum verdict_word word, double confidence);
/* Seconds after the first sample as the caller counts them: gaps are counted in again. */
double judging_caller_seconds(const struct verdict_series *v, double running_s);

/* Running seconds at which step X ended, interpolated between those that are kept. */
double judging_seconds_at_step(const struct verdict_series *v, double x);
/* Seconds a step takes of late, from step FROM on; 0: not known. */
double judging_seconds_per_step(const struct verdict_series *v, double from);

/* Passes of the length of the first since its end; below 0 before it. */
static inline double judging_beyond_pass(const struct judging *j)
{
    return (j->w.now - j->pass_end) / fmax(1e-9, j->pass_end - j->w.start);
}
/* Less than this of a pass after its end what follows it is not judged. */
#define JUDGING_BEYOND 0.05

/* A step number from a double that may be out of range. */
static inline uint64_t judging_step(double x)
{
    return x > 0 ? (uint64_t)(x < 9e18 ? x : 9e18) : 0; /* NaN: 0 */
}

/* Not rising any more: stable, spiking or plateaued. CAP: the most confidence there can be. */
void judge_level(struct judging *j, double cap);
/* No end of a pass is known: what is rising may be the first pass or a warm-up. */
void judge_open(struct judging *j, double cap);
/* Inside the first pass: growth is filling, whatever its slope. */
void judge_first_pass(struct judging *j);
/* The first pass is over: what still rises is not its data. Returns false if too little of what
 * followed has been seen. */
bool judge_after_pass(struct judging *j);

/* Does all there is rise in one line on which the end of the first pass has left no bend? True when
 * that is certain, however little came since. */
bool judge_unbent(const struct judging *j);

/* Memory that repeats with the pass: where the other rules left it open, or took the floor for a
 * level, passes are held against each other. */
void judge_season(struct judging *j);

/* Has the low tide of W only risen, by more than COUNTS, back to where memory had stood before? */
bool judge_came_back(const struct view *w, double counts);
/* Was all that rose by more than COUNTS given back twice, down to one floor? At most SLOPE of
 * growth from one to the other, in the view's units. */
bool judge_same_floor(const struct view *w, double counts, double slope);

/* Is the view's straight part large, certain, still going on, and new? */
bool judge_is_rise(const struct judging *j);
/* When a late rise will be judged, or 0 for now. */
double judge_late_wait(const struct judging *j, double warmup_x);
void judge_leaking(struct judging *j, double cap);
/* The job is over, and no end of a pass is known: true if its rise lasted to its end and is called.
 */
bool judge_over(struct judging *j);

/* A verdict that follows another series: its first reason; left open; the word of OTHER, with
 * CONFIDENCE at most; without the evidence of CODE; without an end of its growth. */
void result_say_first(struct verdict_result *r, const struct verdict_evidence *e);
void result_leave_open(struct verdict_result *r);
void result_take_word(struct verdict_result *resident, const struct verdict_result *live,
                      double confidence);
void result_drop(struct verdict_result *r, enum verdict_evidence_code code);
void result_drop_end(struct verdict_result *r);

/* Once the word stands: rates, time to the limit, and the anytime-valid alarm. */
void outlook_rates(struct judging *j);
void outlook_oom(struct judging *j);
void outlook_alarm(struct judging *j);
