/* Implements least squares, the Theil-Sen estimator and model selection. docs/internals/verdict.md
 * lists the sources of the formulas. */
#include "verdict/fit.h"

#include <float.h>
#include <math.h>
#include <string.h>

double fit_select(double *a, size_t n, size_t k)
{
    size_t lo = 0, hi = n ? n - 1 : 0;
    if (n == 0)
        return 0;
    while (lo < hi) {
        double pivot = a[lo + (hi - lo) / 2];
        size_t i = lo, j = hi;
        for (;;) {
            /* The static analyzer does not see that the pivot stops both loops. */
            while (a[i] < pivot) /* NOLINT(clang-analyzer-core.UndefinedBinaryOperatorResult) */
                i++;
            while (pivot < a[j]) /* NOLINT(clang-analyzer-core.UndefinedBinaryOperatorResult) */
                j--;
            if (i >= j)
                break;
            double t = a[i];
            a[i++] = a[j];
            a[j--] = t;
        }
        if (k <= j)
            hi = j;
        else
            lo = j + 1;
    }
    return a[k];
}

double fit_median(double *values, size_t n)
{
    return n ? fit_select(values, n, n / 2) : 0;
}

double fit_noise(const double *x, const double *y, size_t n)
{
    double d[FIT_MAX];
    size_t m = 0;
    for (size_t i = 1; i + 1 < n && m < FIT_MAX; i++) {
        double span = x[i + 1] - x[i - 1];
        double w = span > 0 ? (x[i] - x[i - 1]) / span : 0.5;
        d[m++] = fabs(y[i] - (y[i - 1] * (1 - w) + y[i + 1] * w));
    }
    /* y - (y1 + y2) / 2 has a variance of 1.5 sigma^2; 1.4826 converts a median absolute deviation
     * to sigma */
    return 1.4826 * fit_median(d, m) / sqrt(1.5);
}

void fit_sums_build(struct fit_sums *s, const double *x, const double *y, size_t n)
{
    memset(s, 0, sizeof *s);
    if (n == 0)
        return;
    s->x0 = x[0];
    s->y0 = y[0];
    for (size_t i = 0; i < n; i++) {
        double dx = x[i] - s->x0, dy = y[i] - s->y0;
        s->sx[i + 1] = s->sx[i] + dx;
        s->sy[i + 1] = s->sy[i] + dy;
        s->sxx[i + 1] = s->sxx[i] + dx * dx;
        s->sxy[i + 1] = s->sxy[i] + dx * dy;
        s->syy[i + 1] = s->syy[i] + dy * dy;
    }
}

struct fit_line fit_sums_line(const struct fit_sums *s, const double *x, size_t from, size_t to)
{
    struct fit_line r = {0};
    double n = (double)(to - from), mx, my, sxx, sxy, syy;
    if (to < from + 2)
        return r;
    mx = (s->sx[to] - s->sx[from]) / n;
    my = (s->sy[to] - s->sy[from]) / n;
    sxx = s->sxx[to] - s->sxx[from] - n * mx * mx;
    sxy = s->sxy[to] - s->sxy[from] - n * mx * my;
    syy = s->syy[to] - s->syy[from] - n * my * my;
    r.span = x[to - 1] - x[from];
    if (!(sxx > 0) || !(r.span > 0))
        return r;
    r.slope = sxy / sxx;
    r.at_end = s->y0 + my + r.slope * (x[to - 1] - s->x0 - mx);
    r.rms = sqrt(fmax(0, syy - r.slope * sxy) / n);
    return r;
}

double fit_line_rho(const double *x, const double *y, size_t n, const struct fit_line *line)
{
    double num = 0, den = 0, last = 0;
    for (size_t i = 0; i < n; i++) {
        double e = y[i] - (line->at_end + line->slope * (x[i] - x[n - 1]));
        den += e * e;
        if (i)
            num += e * last;
        last = e;
    }
    if (!(den > 0))
        return 0;
    return fmin(0.95, fmax(0, num / den));
}

double fit_effective(size_t n, double rho)
{
    return fmax(3, (double)n * (1 - rho) / (1 + rho));
}

struct columns {
    double col[3][FIT_MAX];
};

/* Ordinary least squares with up to three columns, by Cholesky decomposition of the normal
 * equations. */
struct ols {
    size_t n, k;
    double beta[3], rss, se_last; /* se_last is the standard error of the last coefficient */
};

static bool ols_solve(const struct columns *c, const double *y, size_t n, size_t k, struct ols *ret)
{
    double a[3][3] = {{0}}, b[3] = {0}, l[3][3] = {{0}}, z[3], rss = 0;
    for (size_t p = 0; p < k; p++) {
        for (size_t q = 0; q <= p; q++)
            for (size_t i = 0; i < n; i++)
                a[p][q] += c->col[p][i] * c->col[q][i];
        for (size_t i = 0; i < n; i++)
            b[p] += c->col[p][i] * y[i];
    }
    for (size_t p = 0; p < k; p++) {
        for (size_t q = 0; q <= p; q++) {
            double s = a[p][q];
            for (size_t r = 0; r < q; r++)
                s -= l[p][r] * l[q][r];
            if (p == q) {
                if (!(s > 1e-9 * a[p][p]))
                    return false; /* collinear columns */
                l[p][p] = sqrt(s);
            } else {
                l[p][q] = s / l[q][q];
            }
        }
    }
    for (size_t p = 0; p < k; p++) {
        z[p] = b[p];
        for (size_t q = 0; q < p; q++)
            z[p] -= l[p][q] * z[q];
        z[p] /= l[p][p];
    }
    for (size_t p = k; p-- > 0;) {
        ret->beta[p] = z[p];
        for (size_t q = p + 1; q < k; q++)
            ret->beta[p] -= l[q][p] * ret->beta[q];
        ret->beta[p] /= l[p][p];
    }
    for (size_t i = 0; i < n; i++) {
        double e = y[i];
        for (size_t p = 0; p < k; p++)
            e -= ret->beta[p] * c->col[p][i];
        rss += e * e;
    }
    ret->n = n;
    ret->k = k;
    ret->rss = rss;
    ret->se_last = 1 / l[k - 1][k - 1]; /* standard error in units of the noise */
    return true;
}

static double shape_at(enum fit_shape shape, double param, double u)
{
    switch (shape) {
    case FIT_EXP:
        return -expm1(-u / param);
    case FIT_LOG:
        return log1p(u / param);
    case FIT_RAMP:
        return fmin(u / param, 1);
    case FIT_STEP:
        return u >= param ? 1 : 0;
    case FIT_POWER:
        return pow(u, param);
    case FIT_NONE:
        break;
    }
    return 0;
}

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct candidate {
    enum fit_shape shape;
    double param;
};
/* Largest time constant of a saturating exponential, as a fraction of the window. Curves with
 * larger time constants are indistinguishable from a line (docs/internals/verdict.md, "What cannot
 * be known"). */
static const double END_PARAM_MAX = 1.5;
/* A ramp must end before this fraction of the window, so that its end is visible. */
static const double RAMP_END_MAX = 0.93;
static const struct candidate ENDS[] = {
    {FIT_EXP, .04},  {FIT_EXP, .08}, {FIT_EXP, .13}, {FIT_EXP, .2},  {FIT_EXP, .3},
    {FIT_EXP, .45},  {FIT_EXP, .7},  {FIT_EXP, 1},   {FIT_EXP, 1.5}, {FIT_LOG, .003},
    {FIT_LOG, .01},  {FIT_LOG, .03}, {FIT_LOG, .1},  {FIT_LOG, .3},  {FIT_RAMP, .06},
    {FIT_RAMP, .12}, {FIT_RAMP, .2}, {FIT_RAMP, .3}, {FIT_RAMP, .4}, {FIT_RAMP, .5},
    {FIT_RAMP, .6},  {FIT_RAMP, .7}, {FIT_RAMP, .8}, {FIT_RAMP, .9}, {FIT_STEP, .1},
    {FIT_STEP, .2},  {FIT_STEP, .3}, {FIT_STEP, .4}, {FIT_STEP, .5}, {FIT_STEP, .6},
    {FIT_STEP, .7},  {FIT_STEP, .8}, {FIT_STEP, .9},
};
static const struct candidate POWERS[] = {
    {FIT_POWER, .4},  {FIT_POWER, .5},  {FIT_POWER, .6}, {FIT_POWER, .7},
    {FIT_POWER, .85}, {FIT_POWER, 1.3}, {FIT_POWER, 2},
};

static double bic(double rss, size_t n, double n_eff, double floor_rms, double k)
{
    double mean = rss / (double)n + floor_rms * floor_rms;
    return n_eff * log(fmax(mean, DBL_MIN)) + k * log(n_eff);
}

static double residual_rho(const struct columns *c, const double *y, const struct ols *m)
{
    double num = 0, den = 0, last = 0;
    for (size_t i = 0; i < m->n; i++) {
        double e = y[i];
        for (size_t p = 0; p < m->k; p++)
            /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): all n are set */
            e -= m->beta[p] * c->col[p][i];
        den += e * e;
        if (i)
            num += e * last;
        last = e;
    }
    return den > 0 ? fmin(0.95, fmax(0, num / den)) : 0;
}

struct best {
    double rss, rho;
    struct candidate c;
    struct ols m;
};

static void shape_column(struct columns *c, const double *u, size_t n, struct candidate g)
{
    for (size_t i = 0; i < n; i++)
        c->col[1][i] = shape_at(g.shape, g.param, u[i]);
}

/* Fits the curve in column 1, alone (K = 2) or with the line in column 2 (K = 3). */
static void try_one(const struct columns *c, const double *y, size_t n, size_t k,
                    struct candidate g, struct best *ret)
{
    struct ols m;
    if (!ols_solve(c, y, n, k, &m) || m.beta[1] <= 0)
        return; /* a curve that falls is not a warm-up */
    if (m.rss < ret->rss) {
        ret->rss = m.rss;
        ret->c = g;
        ret->m = m;
    }
}

/* Refines the parameter between grid points, so that the coarse grid does not favour a line over a
 * curve. */
static void refine(struct columns *c, const double *u, const double *y, size_t n, size_t k,
                   struct best *ret)
{
    static const double AROUND[] = {0.8, 0.9, 1.12, 1.25, 0.95, 1.05, 0.975, 1.025};
    if (!(ret->rss < HUGE_VAL))
        return;
    for (size_t i = 0; i < COUNT(AROUND); i++) {
        struct candidate g = ret->c;
        if (g.shape == FIT_STEP)
            g.param = fmin(g.param + 0.2 * (AROUND[i] - 1), RAMP_END_MAX);
        else
            g.param = fmin(g.param * AROUND[i], g.shape == FIT_RAMP ? RAMP_END_MAX : END_PARAM_MAX);
        shape_column(c, u, n, g);
        try_one(c, y, n, k, g, ret);
    }
    shape_column(c, u, n, ret->c);
    ret->rho = residual_rho(c, y, &ret->m);
}

/* Averages pairs of points if there are more than FIT_MAX / 2. This halves the time to fit and
 * hardly changes the result, because the curves are smooth. */
static size_t halve(const double *x, const double *y, size_t n, double *rx, double *ry)
{
    size_t m = 0;
    if (n <= FIT_MAX / 2) {
        memcpy(rx, x, n * sizeof *rx);
        memcpy(ry, y, n * sizeof *ry);
        return n;
    }
    for (size_t i = 0; i + 1 < n; i += 2) {
        rx[m] = 0.5 * (x[i] + x[i + 1]);
        ry[m++] = 0.5 * (y[i] + y[i + 1]);
    }
    return m;
}

void fit_separate(const double *all_x, const double *all_y, size_t n, double floor_rms,
                  struct fit_separation *ret)
{
    struct columns c;
    double x[FIT_MAX], y[FIT_MAX], u[FIT_MAX], rho, span, sigma2;
    struct ols flat, line;
    struct best end = {.rss = HUGE_VAL}, power = end, both = end;
    memset(ret, 0, sizeof *ret);
    n = halve(all_x, all_y, n, x, y);
    span = x[n - 1] - x[0];
    for (size_t i = 0; i < n; i++) {
        u[i] = span > 0 ? (x[i] - x[0]) / span : 0;
        c.col[0][i] = 1;
        c.col[1][i] = u[i];
    }
    if (!ols_solve(&c, y, n, 1, &flat))
        flat.rss = HUGE_VAL;
    if (!ols_solve(&c, y, n, 2, &line))
        line.rss = HUGE_VAL;
    rho = isfinite(line.rss) ? residual_rho(&c, y, &line) : 0;
    memcpy(c.col[2], u, sizeof(double) * n);
    for (size_t g = 0; g < COUNT(ENDS); g++) {
        shape_column(&c, u, n, ENDS[g]);
        try_one(&c, y, n, 2, ENDS[g], &end);
        try_one(&c, y, n, 3, ENDS[g], &both);
    }
    for (size_t g = 0; g < COUNT(POWERS); g++) {
        shape_column(&c, u, n, POWERS[g]);
        try_one(&c, y, n, 2, POWERS[g], &power);
    }
    refine(&c, u, y, n, 2, &end);
    refine(&c, u, y, n, 3, &both);
    refine(&c, u, y, n, 2, &power);
    /* The fit with the lowest residual autocorrelation determines the effective number of
     * points. */
    if (isfinite(both.rss))
        rho = fmin(rho, both.rho);
    if (isfinite(end.rss))
        rho = fmin(rho, end.rho);
    if (isfinite(power.rss))
        rho = fmin(rho, power.rho);
    ret->n_eff = fit_effective(n, rho);
    ret->bic_flat = bic(flat.rss, n, ret->n_eff, floor_rms, 1);
    ret->bic_line = bic(line.rss, n, ret->n_eff, floor_rms, 2);
    ret->bic_power = bic(power.rss, n, ret->n_eff, floor_rms, 3);
    ret->bic_end = bic(end.rss, n, ret->n_eff, floor_rms, 3);
    ret->bic_both = bic(both.rss, n, ret->n_eff, floor_rms, 4);
    ret->end_shape = isfinite(end.rss) ? end.c.shape : FIT_NONE;
    ret->end_param = isfinite(end.rss) ? end.c.param : 0;
    ret->power_param = isfinite(power.rss) ? power.c.param : 1;
    if (isfinite(both.rss) && span > 0) {
        sigma2 = both.rss / (double)n + floor_rms * floor_rms;
        ret->both_shape = both.c.shape;
        ret->both_param = both.c.param;
        ret->both_slope = both.m.beta[2] / span;
        ret->both_slope_se =
            sqrt(sigma2 * (double)n / fmax(1, ret->n_eff - 4)) * both.m.se_last / span;
    }
}

bool fit_theil_sen(const double *x, const double *y, size_t n, double n_eff, double z,
                   struct fit_sen *ret)
{
    double px[64], py[64], slopes[64 * 63 / 2], m, var, half;
    size_t k = n < 64 ? n : 64, count = 0, low, high;
    for (size_t i = 0; i < k; i++) {
        size_t j = k > 1 ? i * (n - 1) / (k - 1) : 0;
        px[i] = x[j];
        py[i] = y[j];
    }
    for (size_t i = 0; i < k; i++)
        for (size_t j = i + 1; j < k; j++)
            if (px[j] > px[i])
                slopes[count++] = (py[j] - py[i]) / (px[j] - px[i]);
    if (count == 0)
        return false;
    m = (double)k;
    var = m * (m - 1) * (2 * m + 5) / 18 * fmax(1, m / fmax(n_eff, 1));
    half = z * sqrt(var);
    low = (size_t)fmax(0, ((double)count - half) / 2);
    high = (size_t)fmin((double)count - 1, ((double)count + half) / 2);
    ret->slope = fit_median(slopes, count);
    ret->low = fit_select(slopes, count, low);
    ret->high = fit_select(slopes, count, high);
    return true;
}
