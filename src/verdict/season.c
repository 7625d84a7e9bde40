/* Compares epochs of memory that rises and falls once per epoch (a saw-tooth), and finds whether
 * its baseline rises. */
#include "verdict/season.h"

#include <math.h>

#include "verdict/judging.h"

/* A training schedule (longer texts, larger batches) raises the baseline only a few times, at epoch
 * ends. A verdict on a running job therefore requires growth in one epoch more than a verdict on a
 * job that has ended. */
enum {
    PAIRS_MAX = 24,
    PAIRS_TO_REPEAT = 1,
    PAIRS_TO_OPEN = 2,
    PAIRS_TO_RISE = 3,
    PAIRS_WHILE_RUNNING = 4,
    SLOTS_PER_EPOCH = 5
};
/* At least this fraction of the earlier epoch of a pair must have been recorded. */
static const double PAIR_PART = 0.8;
/* Readings further apart than this fraction of an epoch are not interpolated. */
static const double APART_PART = 0.34;
/* The spread is this quantile of how far differences deviate from the typical difference of their
 * pair. The median would be too low if the period of the teeth is not an epoch: most differences
 * are then alike, and only one or two in ten, at the end of a tooth, are larger. */
static const double SPREAD_PART = 0.75;
/* A fraction SPREAD_PART of a normal distribution lies within this many standard deviations. */
static const double SPREAD_NORMAL = 1.15;
/* Memory repeats with the epoch if the spread of the differences is at most this fraction of the
 * spread about a straight line. */
static const double REPEATS = 0.2;
/* The fall within every epoch must be at least this multiple of the spread about a straight
 * line. */
static const double FALL_SPREADS = 1.5;
/* A pair of epochs is rising if the newer epoch is higher by at least this multiple of the spread
 * of the differences. */
static const double OVER_SPREAD = 2;
/* The rise of a pair and the typical rise are alike if the smaller one is at least this fraction of
 * the larger one. */
static const double ALIKE = 0.5;
/* The sum of the later rises must be at least this fraction of the sum of the earlier rises. */
static const double GOES_ON = 0.85;
/* Fraction of all pairs that must belong to the latest uninterrupted rise. */
static const double RECENT_PART = 0.5;
/* The lowest readings of the epochs must rise by at least FLOOR_PART of the total rise. For a leak,
 * both the lowest and the highest readings must rise by at least LIFTED_PART of it: the whole tooth
 * must move up, not sideways. */
static const double FLOOR_PART = 0.3, LIFTED_PART = 0.6;
/* Growth of the baseline by less than this fraction of a tooth is ignored. */
static const double TOOTH_PART = 0.25;
static const double CONFIDENCE = 0.9; /* highest confidence in a leak found by comparing epochs */
static const double SAME_CONFIDENCE = 0.95;

/* Epoch 0 is the newest. Pair K compares epoch K with its predecessor, epoch K + 1. */
struct epochs {
    size_t n; /* number of envelope slots in use */
    const struct envelope_slot *slot;
    double length, end;
    unsigned pairs;
    double step[PAIRS_MAX];
    double lowest[PAIRS_MAX + 1], highest[PAIRS_MAX + 1];
    double fall; /* smallest release within any epoch, in bytes */
};

/* Interpolates the reading at X. Returns false if there is no reading nearby. */
static bool read_at(const struct epochs *p, double x, double *ret)
{
    size_t i = 1;
    while (i < p->n && p->slot[i].x < x)
        i++;
    if (i >= p->n || x < p->slot[0].x || p->slot[i].x - p->slot[i - 1].x > APART_PART * p->length)
        return false;
    *ret = p->slot[i - 1].y + (p->slot[i].y - p->slot[i - 1].y) * (x - p->slot[i - 1].x) /
                                  (p->slot[i].x - p->slot[i - 1].x);
    return true;
}

/* Returns the index of the first slot of epoch K, and in RET_END the index after its last slot. */
static size_t epoch_slots(const struct epochs *p, unsigned k, size_t *ret_end)
{
    double to = p->end - k * p->length, from = to - p->length;
    size_t first = 0;
    while (first < p->n && p->slot[first].x <= from)
        first++;
    *ret_end = first;
    while (*ret_end < p->n && p->slot[*ret_end].x <= to)
        ++*ret_end;
    return first;
}

/* Writes to OUT how much each reading of epoch K differs from the previous epoch at the same
 * position. Returns the number of differences. */
static size_t pair_differences(const struct epochs *p, unsigned k, double *out)
{
    size_t end, first = epoch_slots(p, k, &end), n = 0;
    double before;
    for (size_t i = first; i < end; i++)
        if (read_at(p, p->slot[i].x - p->length, &before))
            out[n++] = p->slot[i].y - before;
    return n;
}

/* Sets the lowest and the highest reading of epoch K, and returns the largest fall within it.
 * The fall may begin at the last reading before the epoch, because a tooth may end between two
 * epochs. */
static double take_epoch(struct epochs *p, unsigned k)
{
    size_t end, first = epoch_slots(p, k, &end);
    double high = first ? p->slot[first - 1].y : -HUGE_VAL, fall = 0;
    p->lowest[k] = HUGE_VAL;
    p->highest[k] = -HUGE_VAL;
    for (size_t i = first; i < end; i++) {
        p->lowest[k] = fmin(p->lowest[k], p->slot[i].y);
        p->highest[k] = fmax(p->highest[k], p->slot[i].y);
        high = fmax(high, p->slot[i].y);
        fall = fmax(fall, high - p->slot[i].y);
    }
    return fall;
}

/* Compares all complete pairs of epochs. Returns the spread of the differences about the median of
 * their pair. */
static double take_pairs(struct epochs *p)
{
    double differences[FIT_MAX], away[FIT_MAX];
    size_t all = 0;
    p->fall = HUGE_VAL;
    while (p->pairs < PAIRS_MAX &&
           p->end - (p->pairs + 2) * p->length >= p->slot[0].x - (1 - PAIR_PART) * p->length) {
        double sorted[FIT_MAX];
        size_t n = pair_differences(p, p->pairs, differences);
        if (n < SLOTS_PER_EPOCH)
            break;
        for (size_t i = 0; i < n; i++)
            sorted[i] = differences[i];
        p->step[p->pairs] = fit_median(sorted, n);
        for (size_t i = 0; i < n && all < FIT_MAX; i++)
            away[all++] = fabs(differences[i] - p->step[p->pairs]);
        p->fall = fmin(p->fall, take_epoch(p, p->pairs));
        p->pairs++;
    }
    if (p->pairs)
        (void)take_epoch(p, p->pairs);
    return all ? fit_select(away, all, (size_t)(SPREAD_PART * (double)(all - 1))) / SPREAD_NORMAL
               : 0;
}

/* Returns the spread of the readings of all compared epochs about one straight line. */
static double plain_spread(const struct epochs *p)
{
    double x[FIT_MAX], y[FIT_MAX], from = p->end - (p->pairs + 1) * p->length;
    struct fit_sums sums;
    struct fit_line line;
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (p->slot[i].x <= from)
            continue;
        x[n] = p->slot[i].x;
        y[n++] = p->slot[i].y;
    }
    if (n == 0)
        return 0;
    fit_sums_build(&sums, x, y, n);
    line = fit_sums_line(&sums, x, 0, n);
    for (size_t i = 0; i < n; i++)
        y[i] = fabs(y[i] - (line.at_end + line.slope * (x[i] - x[n - 1])));
    return 1.4826 * fit_median(y, n);
}

/* Returns how many of the newest pairs rose, without interruption, by about the same amount. */
static unsigned count_rising(const struct epochs *p, double least, double *ret_typical)
{
    double newest[PAIRS_TO_RISE];
    unsigned n = p->pairs < PAIRS_TO_RISE ? p->pairs : PAIRS_TO_RISE, rising = 0;
    for (unsigned i = 0; i < n; i++)
        newest[i] = p->step[i];
    *ret_typical = fit_median(newest, n);
    while (rising < p->pairs && p->step[rising] > least &&
           p->step[rising] >= ALIKE * *ret_typical && p->step[rising] * ALIKE <= *ret_typical)
        rising++;
    return rising;
}

/* Returns false if growth levels off, which means that each epoch adds less. */
static bool rises_continue(const double *step, unsigned n)
{
    double early = 0, late = 0;
    for (unsigned i = 0; i < n / 2; i++) {
        late += step[i];
        early += step[n - 1 - i];
    }
    return late >= GOES_ON * early;
}

/* Decides whether the rise over the newest RISING pairs is a leak, or may become one. On average,
 * epochs must not rise by more than the smallest fall within an epoch; otherwise the curve is a
 * staircase, which need not be a leak. */
static enum season_course course_of_rise(const struct epochs *p, unsigned rising, double material,
                                         bool is_over)
{
    double sum = 0;
    for (unsigned i = 0; i < rising; i++)
        sum += p->step[i];
    if (rising < PAIRS_TO_OPEN || sum < material || p->fall * rising < sum ||
        p->lowest[0] - p->lowest[rising] < FLOOR_PART * sum)
        return SEASON_UNCLEAR;
    return rising >= (is_over ? PAIRS_TO_RISE : PAIRS_WHILE_RUNNING) &&
                   rising >= RECENT_PART * p->pairs && rises_continue(p->step, rising) &&
                   p->lowest[0] - p->lowest[rising] >= LIFTED_PART * sum &&
                   p->highest[0] - p->highest[rising] >= LIFTED_PART * sum
               ? SEASON_RISES
               : SEASON_OPEN;
}

static void set_course(const struct epochs *p, double material, bool is_over, struct season *ret)
{
    double sum = 0, most = -HUGE_VAL;
    unsigned rising = count_rising(p, OVER_SPREAD * ret->spread, &ret->step);
    ret->course = course_of_rise(p, rising, material, is_over);
    ret->pairs = ret->course == SEASON_UNCLEAR ? p->pairs : rising;
    ret->from = p->end - (ret->pairs + 1) * p->length;
    ret->low = HUGE_VAL;
    ret->high = -HUGE_VAL;
    for (unsigned i = 0; i < p->pairs; i++) {
        sum += p->step[i];
        most = fmax(most, sum);
        if (i < ret->pairs) {
            ret->low = fmin(ret->low, p->step[i]);
            ret->high = fmax(ret->high, p->step[i]);
        }
    }
    /* The newest epoch is at most a little higher than any earlier one. */
    if (ret->course == SEASON_UNCLEAR && most <= material)
        ret->course = SEASON_SAME;
}

bool season_find(const struct verdict_series *v, struct season *ret)
{
    const struct envelope *e = &v->by_step;
    struct epochs p = {.n = e->count, .slot = e->slot, .length = (double)v->steps_per_epoch};
    double plain, material;
    if (p.n && !envelope_last_is_ripe(e, v->last_step))
        p.n--;
    if (p.n < (PAIRS_TO_REPEAT + 1) * SLOTS_PER_EPOCH || !(p.length > 0))
        return false;
    p.end = p.slot[p.n - 1].x;
    *ret = (struct season){.spread = take_pairs(&p)};
    if (p.pairs < PAIRS_TO_REPEAT)
        return false;
    plain = plain_spread(&p);
    material = v->options.material_fraction * p.lowest[0];
    if (plain < material || ret->spread > REPEATS * plain || p.fall < FALL_SPREADS * plain)
        return false;
    ret->fall = p.fall;
    set_course(&p, material, v->is_over || v->has_end, ret);
    return true;
}

/* Drops all evidence. It was found in the baseline, which is unreliable in a saw-tooth. */
static void drop_evidence(struct verdict_result *r)
{
    r->n_evidence = 0;
    r->growth_ended.known = r->forecast.known = false;
}

/* Sets the verdict to stable or spiking, because all epochs are equally high. If the baseline has
 * clearly grown, it did so before these epochs, and the verdict is kept. Slight growth of the
 * baseline is ignored, because the lowest point of a tooth is not always sampled. */
static void conclude_same(struct judging *j, const struct season *s)
{
    struct verdict_result *r = j->r;
    double spike = fmax(0.1 * r->floor_last_bytes, 6 * j->w.sigma);
    if (r->word == VERDICT_SPIKING || r->word == VERDICT_STABLE ||
        r->floor_last_bytes - r->floor_first_bytes > TOOTH_PART * s->fall)
        return;
    drop_evidence(r);
    judging_add_evidence(r, VERDICT_SAID_EPOCHS_EQUAL, s->pairs + 1, s->fall, 0, 0);
    judging_conclude(j, s->fall > spike ? VERDICT_SPIKING : VERDICT_STABLE, SAME_CONFIDENCE);
}

static void conclude_rise(struct judging *j, const struct season *s)
{
    double length = (double)j->v->steps_per_epoch;
    if (s->course == SEASON_OPEN && j->r->word == VERDICT_UNDECIDED)
        return;
    drop_evidence(j->r);
    judging_add_evidence(j->r, VERDICT_SAID_EPOCHS_RISE, s->step, s->pairs + 1, s->fall, s->spread);
    j->rate_from = s->from;
    if (s->course == SEASON_OPEN) {
        judging_conclude(j, VERDICT_UNDECIDED, 0.5);
        return;
    }
    j->epoch_rate =
        (struct verdict_interval){true, s->step / length, s->low / length, s->high / length};
    judging_conclude(j, VERDICT_LEAKING, fmin(CONFIDENCE, 0.6 + 0.08 * s->pairs));
}

void judge_season(struct judging *j)
{
    struct season s;
    if (j->r->word == VERDICT_FILLING || j->r->leak == VERDICT_LEAK_YES || !season_find(j->v, &s))
        return;
    if (s.course == SEASON_SAME)
        conclude_same(j, &s);
    else if (s.course != SEASON_UNCLEAR)
        conclude_rise(j, &s);
}
