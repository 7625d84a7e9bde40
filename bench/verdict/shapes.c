/* Generates labelled series: each family has its own random level, noise, length, marks and
 * growth rate. */
#include "shapes.h"

#include <math.h>
#include <string.h>

static const double MB = 1e6, GB = 1e9;

struct rng {
    uint64_t s;
};

static uint64_t rng_u64(struct rng *r)
{
    uint64_t z = (r->s += 0x9e3779b97f4a7c15u); /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static double uniform(struct rng *r, double a, double b)
{
    return a + (b - a) * ((double)(rng_u64(r) >> 11) * 0x1p-53);
}
static double loguniform(struct rng *r, double a, double b)
{
    return exp(uniform(r, log(a), log(b)));
}
static double gauss(struct rng *r)
{
    return sqrt(-2 * log(uniform(r, 1e-12, 1))) * cos(2 * M_PI * uniform(r, 0, 1));
}
static double expo(struct rng *r)
{
    return -log(uniform(r, 1e-12, 1));
}
static bool chance(struct rng *r, double p)
{
    return uniform(r, 0, 1) < p;
}

/* Parameters of a run that all families share. */
struct draw {
    struct rng g;
    struct shapes_run *run;
    double base;    /* level after start-up */
    double startup; /* seconds */
    double length;  /* Length of the judged window in seconds. */
    double step_s;  /* seconds per step; 0: no marks */
    double epoch_s; /* Duration of an epoch in seconds. */
    double eval_s;  /* Interval between evaluations in seconds. */
    double mad;     /* Median absolute deviation of the noise, in bytes. */
    double noise[SHAPES_SAMPLES];
};

static void add(struct draw *d, double (*f)(double, const double *), const double *p)
{
    for (size_t i = 0; i < d->run->n_all; i++)
        if (d->run->t[i] >= d->startup)
            d->run->y[i] += f(d->run->t[i] - d->startup, p);
}

/* Adds noise like that of an allocator: changing pages, bursts above the baseline, a small
 * sawtooth, 2 MiB pages. */
static void draw_noise(struct draw *d, double scale)
{
    struct rng *g = &d->g;
    double size = d->base * loguniform(g, 2e-4, 6e-3) * scale, ar = 0;
    int kind = (int)uniform(g, 0, 5);
    double corr = exp(-d->run->dt / loguniform(g, 2, 40)), period = loguniform(g, 5, 60);
    double dev[2001];
    size_t m = 0;

    for (size_t i = 0; i < d->run->n_all; i++) {
        double e = 0;

        ar = corr * ar + sqrt(1 - corr * corr) * gauss(g);
        switch (kind) {
        case 0:
            e = 0.2 * gauss(g);
            break;
        case 1:
            e = expo(g) + (chance(g, 0.01) ? 8 * expo(g) : 0);
            break;
        case 2:
            e = ar;
            break;
        case 3:
            e = 3 * fmod(d->run->t[i], period) / period + 0.1 * gauss(g);
            break;
        default:
            e = fabs(ar) + 0.3 * expo(g);
        }
        d->noise[i] = e * size;
        if (kind == 4)
            d->noise[i] = floor(d->noise[i] / 2097152) * 2097152;
    }
    for (size_t i = 0; i < d->run->n && m < 2001; i += 1 + d->run->n / 2001)
        dev[m++] = d->noise[i];
    double mid = 0;
    for (size_t i = 0; i < m; i++)
        mid += dev[i] / (double)m;
    for (size_t i = 0; i < m; i++)
        dev[i] = fabs(dev[i] - mid);
    for (size_t i = 1; i < m; i++) /* Insertion sort is fast enough, because m is small. */
        for (size_t j = i; j > 0 && dev[j] < dev[j - 1]; j--) {
            double t = dev[j];
            dev[j] = dev[j - 1];
            dev[j - 1] = t;
        }
    d->mad = m ? dev[m / 2] : 0;
}

static void mark_at(struct draw *d, double t, enum verdict_mark_kind kind, uint64_t step)
{
    struct shapes_run *r = d->run;

    if (r->n_marks == SHAPES_MARKS)
        return;
    r->marks[r->n_marks++] =
        (struct shapes_mark){.t = t, .m = {.kind = kind, .has_step = true, .step = step}};
}

static void draw_marks(struct draw *d)
{
    uint64_t step = 0, per_epoch = (uint64_t)fmax(2, round(d->epoch_s / d->step_s));
    uint64_t per_eval = (uint64_t)fmax(2, round(d->eval_s / d->step_s));
    double t = d->startup;

    mark_at(d, t, VERDICT_MARK_BEGIN, 0);
    d->run->marks[0].m.steps_per_epoch = chance(&d->g, 0.8) ? per_epoch : 0;
    while (t < d->run->t[d->run->n_all - 1]) {
        step++;
        t = d->startup + (double)step * d->step_s;
        mark_at(d, t, VERDICT_MARK_STEP, step);
        if (step % per_eval == 0)
            mark_at(d, t + 1e-3, VERDICT_MARK_EVAL, step);
        if (step % per_epoch == 0)
            mark_at(d, t + 2e-3, VERDICT_MARK_EPOCH, step);
    }
    d->epoch_s = (double)per_epoch * d->step_s;
    d->eval_s = (double)per_eval * d->step_s;
}

/* Chooses level, length, start-up and, for half of the runs, marks at random. */
static void draw_frame(struct draw *d, bool may_mark)
{
    struct shapes_run *r = d->run;
    struct rng *g = &d->g;

    d->length = loguniform(g, 900, 7200);
    r->dt = d->length > 3600 ? 2 : chance(g, 0.3) ? 0.5 : 1;
    if (chance(g, 0.25))
        r->dt = chance(g, 0.5) ? 5 : 10;
    if (d->length / r->dt > SHAPES_SAMPLES / 3.0)
        r->dt = d->length / (SHAPES_SAMPLES / 3.0);
    r->n = (size_t)(d->length / r->dt);
    r->n_all = r->n * 3;
    d->base = loguniform(g, 0.5 * GB, 30 * GB);
    d->startup = uniform(g, 4, 40);
    for (size_t i = 0; i < r->n_all; i++) {
        r->t[i] = (double)i * r->dt;
        r->y[i] = r->t[i] >= d->startup
                      ? d->base
                      : d->base * (0.1 + 0.8 * floor(4 * r->t[i] / d->startup) / 4);
    }
    d->epoch_s = d->length / uniform(g, 2.5, 9);
    d->eval_s = d->length / uniform(g, 8, 25);
    r->marked = may_mark && chance(g, 0.5);
    if (r->marked) {
        d->step_s = loguniform(g, 0.4, 4);
        draw_marks(d);
    }
    r->identifiable = true;
}

static double line_f(double t, const double *p)
{
    return t > p[1] ? p[0] * (t - p[1]) : 0;
}
static double exp_f(double t, const double *p)
{
    return p[0] * -expm1(-t / p[1]);
}
static double log_f(double t, const double *p)
{
    return p[0] * log1p(t / p[1]) / log1p(p[2] / p[1]);
}
static double ramp_f(double t, const double *p) /* the ramp starts at time p[2] */
{
    return t < p[2] ? 0 : p[0] * fmin((t - p[2]) / p[1], 1);
}
static double power_f(double t, const double *p)
{
    return p[0] * pow(t / p[2], p[1]);
}
static double teeth_f(double t, const double *p)
{
    return p[0] * fmod(t + p[2], p[1]) / p[1];
}
static double stairs_f(double t, const double *p)
{
    return p[0] * floor(t / p[1]);
}
/* p: height, interval and duration of the spikes. Each spike ends at an event. */
static double spikes_f(double t, const double *p)
{
    double in = fmod(t, p[1]) - (p[1] - p[2]);

    return in >= 0 && t > p[2] ? p[0] * (p[3] > 0 ? in / p[2] : 1) : 0;
}

static void add_random_spikes(struct draw *d, double mean_gap, double height, double length)
{
    double next = d->startup + mean_gap * expo(&d->g), until = 0, h = 0;

    for (size_t i = 0; i < d->run->n_all; i++) {
        if (d->run->t[i] >= next) {
            until = next + length * (0.3 + expo(&d->g));
            h = height * (0.5 + expo(&d->g) * 0.5);
            next = until + mean_gap * expo(&d->g);
        }
        if (d->run->t[i] < until)
            d->run->y[i] += h;
    }
}

/* ---- benign families ---- */
static void gc_teeth(struct draw *d)
{
    struct rng *g = &d->g;
    double p[3] = {d->base * uniform(g, .05, .5), loguniform(g, 15, d->length / 5),
                   uniform(g, 0, 300)};

    draw_frame(d, true);
    p[0] = d->base * uniform(g, .05, .5);
    p[1] = loguniform(g, 15, d->length / 5);
    add(d, teeth_f, p);
}
static void eval_spikes(struct draw *d)
{
    draw_frame(d, true);
    double p[4] = {d->base * uniform(&d->g, .1, .7), d->eval_s, d->eval_s * uniform(&d->g, .05, .3),
                   chance(&d->g, .5)};
    add(d, spikes_f, p);
}
static void warm_exp(struct draw *d)
{
    draw_frame(d, true);
    double p[2] = {d->base * loguniform(&d->g, .05, 2), d->length * loguniform(&d->g, .02, .25)};
    add(d, exp_f, p);
}
static void warm_log(struct draw *d)
{
    draw_frame(d, true);
    double p[3] = {d->base * loguniform(&d->g, .05, 1), d->length * loguniform(&d->g, .001, .03),
                   d->length};
    add(d, log_f, p);
}
static void warm_ramp(struct draw *d)
{
    draw_frame(d, true);
    double p[3] = {d->base * loguniform(&d->g, .05, 3), uniform(&d->g, 20, 420), 0};
    if (d->run
            ->marked) /* Growth after the first epoch would be a leak, so the ramp ends earlier. */
        p[1] = fmin(p[1], 0.9 * d->epoch_s);
    add(d, ramp_f, p);
}
static void warm_two(struct draw *d)
{
    draw_frame(d, true);
    double a[2] = {d->base * loguniform(&d->g, .05, .6), d->length * loguniform(&d->g, .01, .06)};
    double b[2] = {d->base * loguniform(&d->g, .05, .6), d->length * loguniform(&d->g, .06, .2)};
    double c[3] = {d->base * uniform(&d->g, 0, .2), 10, d->length * uniform(&d->g, .02, .3)};
    add(d, exp_f, a);
    add(d, exp_f, b);
    add(d, ramp_f, c);
}
static void fill_marked(struct draw *d)
{
    do {
        d->run->n_marks = 0;
        draw_frame(d, true);
    } while (!d->run->marked);
    double p[3] = {d->base * loguniform(&d->g, .1, 8), d->epoch_s, 0};
    add(d, ramp_f, p);
    d->run->fill_end_s = d->startup + d->epoch_s;
}
static void fill_unmarked(struct draw *d)
{
    draw_frame(d, false);
    double p[3] = {d->base * loguniform(&d->g, .1, 8), loguniform(&d->g, 60, d->length * .5), 0};
    add(d, ramp_f, p);
    d->run->fill_end_s = d->startup + p[1];
}
static void ratchet(struct draw *d)
{
    draw_frame(d, true);
    double top = 0, every = loguniform(&d->g, 1, 20), next = 0;
    double size = d->base * loguniform(&d->g, .02, .15);
    for (size_t i = 0; i < d->run->n_all; i++) {
        if (d->run->t[i] >= d->startup && d->run->t[i] >= next) {
            top = fmax(top, size * expo(&d->g));
            next = d->run->t[i] + every;
        }
        d->run->y[i] += top;
    }
}
static void thp_jumps(struct draw *d)
{
    draw_frame(d, true);
    double level = 0, unit = 2097152 * floor(uniform(&d->g, 1, 40));
    double gap = d->length / uniform(&d->g, 5, 60);
    double cap = fmax(2 * unit, d->base * uniform(&d->g, .01, .08));
    for (size_t i = 0; i < d->run->n_all; i++) {
        if (chance(&d->g, d->run->dt / gap))
            level += (chance(&d->g, .5 + .5 * (1 - 2 * level / cap)) ? 1 : -1) * unit;
        level = fmin(cap, fmax(0, level));
        d->run->y[i] += level;
    }
}
static void page_cache(struct draw *d)
{
    draw_frame(d, true);
    /* A mapped file is read in bursts until it is complete. */
    double size = d->base * loguniform(&d->g, .1, 2), done = 0;
    double rate = size / uniform(&d->g, 40, 480);
    bool reading = true;
    if (d->run->marked) /* The file is the data set, so all of it is read within the first epoch. */
        rate = fmax(rate, 2.5 * size / d->epoch_s);
    for (size_t i = 0; i < d->run->n_all; i++) {
        if (chance(&d->g, d->run->dt / 30))
            reading = !reading;
        if (reading && d->run->t[i] >= d->startup)
            done = fmin(size, done + rate * d->run->dt);
        d->run->y[i] += done;
    }
}
static void swapped(struct draw *d)
{
    draw_frame(d, true);
    double from = d->length * uniform(&d->g, .2, .5), part = uniform(&d->g, .1, .6);
    double out = uniform(&d->g, 10, 120), stay = d->length * uniform(&d->g, .05, .3);
    double back = uniform(&d->g, 10, 300);
    for (size_t i = 0; i < d->run->n_all; i++) {
        double t = d->run->t[i] - from;
        double k = t < 0            ? 0
                   : t < out        ? t / out
                   : t < out + stay ? 1
                                    : fmax(0, 1 - (t - out - stay) / back);
        d->run->y[i] *= 1 - part * k;
    }
}
static void quantised(struct draw *d)
{
    draw_frame(d, true);
    double q = d->base * uniform(&d->g, .005, .03), x = 0, corr = exp(-d->run->dt / 60);
    double size = q * uniform(&d->g, .3, 1.5);
    for (size_t i = 0; i < d->run->n_all; i++) {
        x = corr * x + sqrt(1 - corr * corr) * gauss(&d->g);
        d->run->y[i] = floor((d->run->y[i] + size * x) / q) * q;
    }
}
static void heavy_noise(struct draw *d)
{
    draw_frame(d, true);
    double x = 0, corr = exp(-d->run->dt / loguniform(&d->g, 5, 120));
    double size = d->base * loguniform(&d->g, .01, .06);
    for (size_t i = 0; i < d->run->n_all; i++) {
        x = corr * x + sqrt(1 - corr * corr) * gauss(&d->g);
        d->run->y[i] += size * (x + (chance(&d->g, .02) ? 4 * expo(&d->g) : 0) + 3);
    }
}
static void restarts(struct draw *d)
{
    draw_frame(d, false);
    double every = d->length / uniform(&d->g, 1.5, 5), tau = uniform(&d->g, 5, 60);
    double part = uniform(&d->g, .5, .9);
    for (size_t i = 0; i < d->run->n_all; i++) {
        double t = fmod(d->run->t[i], every);
        d->run->y[i] *= 1 - part * exp(-t / tau);
    }
}
static void bursty_batches(struct draw *d)
{
    draw_frame(d, true);
    add_random_spikes(d, loguniform(&d->g, 10, 200), d->base * uniform(&d->g, .05, .5),
                      loguniform(&d->g, 1, 30));
}
static void second_stage(struct draw *d)
{
    draw_frame(d, true);
    /* A later phase gradually allocates memory of its own and then stops. */
    double tau = uniform(&d->g, 5, 60), at = d->length * uniform(&d->g, .2, .7);
    double size = d->base * uniform(&d->g, .05, .5);
    for (size_t i = 0; i < d->run->n_all; i++)
        if (d->run->t[i] > at)
            d->run->y[i] += size * -expm1(-(d->run->t[i] - at) / tau);
}
static void late_phase(struct draw *d)
{
    draw_frame(d, true);
    double p[3] = {d->base * uniform(&d->g, .03, .15), d->length * uniform(&d->g, .05, .2),
                   d->length * uniform(&d->g, .3, .75)};
    add(d, ramp_f, p);
}

static void coupon_cache(struct draw *d)
{
    do {
        d->run->n_marks = 0;
        draw_frame(d, true);
    } while (!d->run->marked);
    /* Examples are drawn with replacement and cached, so each step adds fewer new examples than the
     * previous step. */
    double size = d->base * loguniform(&d->g, .1, 4), left = 1, next = d->startup;
    for (size_t i = 0; i < d->run->n_all; i++) {
        while (d->run->t[i] >= next) {
            left *= 1 - fmin(.5, d->step_s / d->epoch_s);
            next += d->step_s;
        }
        d->run->y[i] += size * (1 - left);
    }
}
static void recompiles(struct draw *d)
{
    draw_frame(d, true);
    /* A tensor of a new shape occurs now and then, until the recompilation limit is reached. */
    double size = d->base * uniform(&d->g, .01, .06), next = d->startup,
           gap = uniform(&d->g, 5, 40);
    int left = (int)uniform(&d->g, 3, 9);
    double level = 0;
    for (size_t i = 0; i < d->run->n_all; i++) {
        if (left && d->run->t[i] >= next) {
            level += size * uniform(&d->g, .6, 1.4);
            next = d->run->t[i] + gap * (0.3 + expo(&d->g));
            gap *= uniform(&d->g, 1.3, 2.2);
            left--;
        }
        d->run->y[i] += level;
    }
}
static void curriculum(struct draw *d)
{
    draw_frame(d, true);
    double at1 = d->length * uniform(&d->g, .2, .45), at2 = d->length * uniform(&d->g, .5, .8);
    double size = d->base * uniform(&d->g, .03, .5);
    for (size_t i = 0; i < d->run->n_all; i++)
        d->run->y[i] += size * ((d->run->t[i] > at1) + .7 * (d->run->t[i] > at2));
}
static void worker_respawn(struct draw *d)
{
    draw_frame(d, true);
    /* Workers are restarted in each epoch and copy the pages that they touch. */
    double size = d->base * uniform(&d->g, .05, .8), part = uniform(&d->g, .2, 1.5);
    for (size_t i = 0; i < d->run->n_all; i++)
        if (d->run->t[i] >= d->startup)
            d->run->y[i] +=
                size * fmin(1, fmod(d->run->t[i] - d->startup, d->epoch_s) / (part * d->epoch_s));
}
static void settle_power(struct draw *d)
{
    draw_frame(d, true);
    double tau = d->length * loguniform(&d->g, .005, .05), a = uniform(&d->g, 1, 2.5);
    double size = d->base * loguniform(&d->g, .05, 1);
    for (size_t i = 0; i < d->run->n_all; i++)
        if (d->run->t[i] >= d->startup)
            d->run->y[i] += size * (1 - pow(1 + (d->run->t[i] - d->startup) / tau, -a));
}
static void async_saves(struct draw *d)
{
    draw_frame(d, true);
    double every = d->length / uniform(&d->g, 4, 14), tau = uniform(&d->g, 5, .3 * every);
    double size = d->base * uniform(&d->g, .1, .9);
    for (size_t i = 0; i < d->run->n_all; i++)
        if (d->run->t[i] >= d->startup + every)
            d->run->y[i] += size * exp(-fmod(d->run->t[i] - d->startup, every) / tau);
}

/* ---- leaking families ---- */
static double draw_growth(struct draw *d)
{
    return fmax(.05 * d->base, 10 * d->mad) * exp(uniform(&d->g, 0.05, 3));
}
static void set_truth(struct draw *d, double onset, double rate, double growth)
{
    d->run->onset_s = onset;
    d->run->rate = rate;
    d->run->growth = growth;
}
static void leak_line(struct draw *d)
{
    draw_frame(d, true);
    draw_noise(d, 1);
    double g = draw_growth(d), p[2] = {g / (d->length - d->startup), 0};
    add(d, line_f, p);
    set_truth(d, d->startup, p[0], g);
}
static void stairs(struct draw *d, double every)
{
    draw_noise(d, 1);
    double g = draw_growth(d), p[2] = {g / floor((d->length - d->startup) / every), every};
    add(d, stairs_f, p);
    set_truth(d, d->startup, p[0] / every, g);
}
static void leak_eval(struct draw *d)
{
    draw_frame(d, true);
    stairs(d, d->eval_s);
}
static void leak_epoch(struct draw *d)
{
    draw_frame(d, true);
    d->epoch_s = d->length / uniform(&d->g, 5, 12);
    if (d->run->marked) {
        d->run->n_marks = 0;
        draw_marks(d);
    }
    stairs(d, d->epoch_s);
}
static void leak_late(struct draw *d)
{
    draw_frame(d, true);
    draw_noise(d, 1);
    double g = draw_growth(d), at = d->length * uniform(&d->g, .25, .6);
    double p[2] = {g / (d->length - d->startup - at), at};
    add(d, line_f, p);
    set_truth(d, d->startup + at, p[0], g);
}
static void leak_sublinear(struct draw *d)
{
    draw_frame(d, true);
    draw_noise(d, 1);
    double g = draw_growth(d), span = d->length - d->startup;
    double p[3] = {g, uniform(&d->g, .6, .85), span};
    add(d, power_f, p);
    set_truth(d, d->startup, p[1] * g / span, g);
}
static void leak_spikes(struct draw *d)
{
    draw_frame(d, true);
    double s[4] = {d->base * uniform(&d->g, .1, .6), d->eval_s,
                   d->eval_s * uniform(&d->g, .05, .25), 0};
    draw_noise(d, 1);
    double g = fmax(.05 * d->base, 10 * d->mad) * exp(uniform(&d->g, .05, 1));
    double p[2] = {g / (d->length - d->startup), 0};
    add(d, spikes_f, s);
    add(d, line_f, p);
    set_truth(d, d->startup, p[0], g);
}
static void leak_teeth(struct draw *d)
{
    draw_frame(d, true);
    double s[3] = {d->base * uniform(&d->g, .02, .15), loguniform(&d->g, 15, d->length / 12), 0};
    draw_noise(d, .3);
    /* The sawtooth is treated as noise with a MAD of a quarter of its height. */
    d->mad += s[0] / 4;
    double g = draw_growth(d), p[2] = {g / (d->length - d->startup), 0};
    add(d, teeth_f, s);
    add(d, line_f, p);
    set_truth(d, d->startup, p[0], g);
}
static void leak_warm(struct draw *d)
{
    draw_frame(d, true);
    draw_noise(d, 1);
    double tau = d->length * loguniform(&d->g, .02, .4);
    double a[2] = {d->base * loguniform(&d->g, .05, .8), tau};
    double g = draw_growth(d), p[2] = {g / (d->length - d->startup), 0};
    add(d, exp_f, a);
    add(d, line_f, p);
    d->run->identifiable = d->length - d->startup >= 4 * tau;
    set_truth(d, d->startup, p[0], g);
}
static void leak_fill(struct draw *d)
{
    do {
        d->run->n_marks = 0;
        draw_frame(d, true);
    } while (!d->run->marked);
    draw_noise(d, 1);
    double a[3] = {d->base * loguniform(&d->g, .1, 3), d->epoch_s, 0};
    d->base += a[0];
    double g = draw_growth(d), p[2] = {g / (d->length - d->startup), 0};
    d->base -= a[0];
    add(d, ramp_f, a);
    add(d, line_f, p);
    d->run->fill_end_s = d->startup + d->epoch_s;
    set_truth(d, d->startup, p[0], g);
}
static void leak_bursts(struct draw *d)
{
    draw_frame(d, true);
    draw_noise(d, 1);
    double g = draw_growth(d), gap = d->length / uniform(&d->g, 25, 300), level = 0;
    double rate = g / (d->length - d->startup);
    for (size_t i = 0; i < d->run->n_all; i++) {
        if (d->run->t[i] > d->startup && chance(&d->g, d->run->dt / gap))
            level += rate * gap * expo(&d->g);
        d->run->y[i] += level;
    }
    set_truth(d, d->startup, rate, g);
}
static void leak_noisy(struct draw *d)
{
    draw_frame(d, true);
    draw_noise(d, 4);
    double g = draw_growth(d), p[2] = {g / (d->length - d->startup), 0};
    add(d, line_f, p);
    set_truth(d, d->startup, p[0], g);
}

static void leak_saves(struct draw *d)
{
    draw_frame(d, false);
    stairs(d, d->length / uniform(&d->g, 6, 20));
}
static void leak_accelerating(struct draw *d)
{
    draw_frame(d, true);
    draw_noise(d, 1);
    double g = draw_growth(d), span = d->length - d->startup;
    double p[3] = {g, uniform(&d->g, 1.15, 1.7), span};
    add(d, power_f, p);
    set_truth(d, d->startup, p[1] * g / span, g);
}
static void leak_paused(struct draw *d)
{
    draw_frame(d, true);
    draw_noise(d, 1);
    double g = draw_growth(d), on = d->length / uniform(&d->g, 6, 20), level = 0;
    double duty = uniform(&d->g, .4, .8), rate = g / (d->length - d->startup);
    for (size_t i = 0; i < d->run->n_all; i++) {
        if (d->run->t[i] > d->startup && fmod(d->run->t[i], on) < duty * on)
            level += rate / duty * d->run->dt;
        d->run->y[i] += level;
    }
    set_truth(d, d->startup, rate, g);
}
static void leak_partly_freed(struct draw *d)
{
    draw_frame(d, true);
    draw_noise(d, .5);
    /* Most of the memory allocated in a cycle is freed at its end; a small part is kept. */
    double every = d->length / uniform(&d->g, 8, 30), kept = uniform(&d->g, .2, .6);
    double g = fmax(draw_growth(d), 0), rate = g / (d->length - d->startup);
    double s[3] = {rate * every * (1 / kept - 1), every, 0}, p[2] = {rate, 0};
    add(d, teeth_f, s);
    add(d, line_f, p);
    set_truth(d, d->startup, rate, g);
}
static void leak_two_rates(struct draw *d)
{
    draw_frame(d, true);
    draw_noise(d, 1);
    double g = draw_growth(d), span = d->length - d->startup, k = uniform(&d->g, .5, 2);
    double p[2] = {g / span / (.5 + .5 * k), 0}, q[2] = {p[0] * (k - 1), span / 2};
    add(d, line_f, p);
    add(d, line_f, q);
    set_truth(d, d->startup, p[0] * k, g);
}
static void leak_quantised(struct draw *d)
{
    draw_frame(d, true);
    draw_noise(d, 1);
    double g = draw_growth(d), q = g / uniform(&d->g, 7, 60), span = d->length - d->startup;
    for (size_t i = 0; i < d->run->n_all; i++)
        if (d->run->t[i] >= d->startup)
            d->run->y[i] += q * floor(g * (d->run->t[i] - d->startup) / span / q);
    set_truth(d, d->startup, g / span, g);
}

static const struct {
    const char *name;
    bool leak, test;
    void (*draw)(struct draw *);
} FAMILIES[] = {
    {"gc-sawtooth", false, false, gc_teeth},
    {"warm-up-exp", false, false, warm_exp},
    {"warm-up-log", false, false, warm_log},
    {"warm-up-two", false, false, warm_two},
    {"warm-up-ramp", false, false, warm_ramp},
    {"first-pass-marked", false, false, fill_marked},
    {"first-pass-unmarked", false, true, fill_unmarked},
    {"page-cache", false, false, page_cache},
    {"thp-jumps", false, false, thp_jumps},
    {"swap", false, false, swapped},
    {"heavy-noise", false, false, heavy_noise},
    {"second-stage", false, false, second_stage},
    {"late-phase", false, false, late_phase},
    {"eval-spikes", false, true, eval_spikes},
    {"ratchet", false, true, ratchet},
    {"quantised", false, true, quantised},
    {"restarts", false, true, restarts},
    {"bursty-batches", false, true, bursty_batches},
    {"coupon-cache", false, true, coupon_cache},
    {"recompiles", false, true, recompiles},
    {"curriculum", false, true, curriculum},
    {"worker-respawn", false, true, worker_respawn},
    {"settle-power", false, true, settle_power},
    {"async-saves", false, true, async_saves},
    {"leak-line", true, false, leak_line},
    {"leak-epoch", true, false, leak_epoch},
    {"leak-under-spikes", true, false, leak_spikes},
    {"leak-noisy", true, false, leak_noisy},
    {"leak-warm-up", true, false, leak_warm},
    {"leak-sublinear", true, false, leak_sublinear},
    {"leak-bursts", true, false, leak_bursts},
    {"leak-eval", true, true, leak_eval},
    {"leak-late", true, true, leak_late},
    {"leak-sawtooth", true, true, leak_teeth},
    {"leak-after-fill", true, true, leak_fill},
    {"leak-saves-bare", true, true, leak_saves},
    {"leak-accelerating", true, true, leak_accelerating},
    {"leak-paused", true, true, leak_paused},
    {"leak-partly-freed", true, true, leak_partly_freed},
    {"leak-two-rates", true, true, leak_two_rates},
    {"leak-quantised", true, true, leak_quantised},
};

size_t shapes_count(void)
{
    return sizeof(FAMILIES) / sizeof(FAMILIES[0]);
}
const char *shapes_name(size_t family)
{
    return FAMILIES[family].name;
}
bool shapes_is_leak(size_t family)
{
    return FAMILIES[family].leak;
}
bool shapes_is_test(size_t family)
{
    return FAMILIES[family].test;
}

static void finish(struct draw *d, bool leak)
{
    struct shapes_run *r = d->run;

    for (size_t i = 0; i < r->n_all; i++) {
        if (r->t[i] >= d->startup)
            r->y[i] += d->noise[i];
        r->y[i] = floor(fmax(r->y[i], MB) / 4096) * 4096;
    }
    if (!leak) { /* predict_linear requires a limit above all samples. */
        double high = 0;

        for (size_t i = 0; i < r->n; i++)
            high = fmax(high, r->y[i]);
        r->limit_bytes = high * uniform(&d->g, 1.1, 3);
    } else {
        double ahead = uniform(&d->g, .1, 1.2) * d->length, high = 0;

        for (size_t i = 0; i < r->n; i++)
            high = fmax(high, r->y[i]);
        r->limit_bytes = high + r->rate * ahead;
        r->oom_s = HUGE_VAL;
        for (size_t i = r->n; i < r->n_all; i++)
            if (r->y[i] >= r->limit_bytes) {
                r->oom_s = r->t[i];
                break;
            }
    }
}

void shapes_draw(size_t family, uint64_t seed, struct shapes_run *ret)
{
    static struct draw d; /* The struct is static, because it is too large for a stack. */

    memset(&d, 0, sizeof(d));
    memset(ret, 0, sizeof(*ret));
    d.run = ret;
    d.g.s = seed * 1000003 + family * 7919 + 17;
    d.base = GB;
    d.length = 1800;
    ret->family = FAMILIES[family].name;
    ret->leak = FAMILIES[family].leak;
    ret->test = FAMILIES[family].test;
    FAMILIES[family].draw(&d);
    if (!ret->leak)
        draw_noise(&d, 1);
    finish(&d, ret->leak);
}
