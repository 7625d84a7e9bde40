/* Baseline detectors. Those with quadratic cost use at most 240 evenly spaced samples. */
#include "baselines.h"

#include <math.h>

static const char *const NAMES[BASELINES] = {
    "first-10 v last-10 min", "OLS slope p<.01",   "Mann-Kendall",
    "Mann-Kendall Hamed-Rao", "linear fit R2>=.8", "predict_linear 15m->4h",
};
enum { POINTS = 240 };

const char *baseline_name(enum baseline b)
{
    return NAMES[b];
}

struct line {
    double slope, at0, r2, t_stat;
};

static struct line fit(const double *t, const double *y, size_t n)
{
    double mt = 0, my = 0, stt = 0, sty = 0, syy = 0, rss;
    struct line r = {0};

    for (size_t i = 0; i < n; i++) {
        mt += t[i] / (double)n;
        my += y[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        stt += (t[i] - mt) * (t[i] - mt);
        sty += (t[i] - mt) * (y[i] - my);
        syy += (y[i] - my) * (y[i] - my);
    }
    if (n < 3 || stt <= 0 || syy <= 0)
        return r;
    r.slope = sty / stt;
    r.at0 = my - r.slope * mt;
    r.r2 = sty * sty / (stt * syy);
    rss = fmax(syy * (1 - r.r2), 1);
    r.t_stat = r.slope / sqrt(rss / (double)(n - 2) / stt);
    return r;
}

static int sign(double x)
{
    return (x > 0) - (x < 0);
}

static double ranks_rho(const double *e, size_t n, size_t lag)
{
    double num = 0, den = 0, mean = 0;

    for (size_t i = 0; i < n; i++)
        mean += e[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        den += (e[i] - mean) * (e[i] - mean);
    for (size_t i = 0; i + lag < n; i++)
        num += (e[i] - mean) * (e[i + lag] - mean);
    return den > 0 ? num / den : 0;
}

/* Returns Kendall's S divided by its standard deviation. Hamed and Rao (1998) increase the variance
 * according to the significant autocorrelations of the ranks of the detrended series. */
static double mann_kendall(const double *t, const double *y, size_t n, bool hamed_rao)
{
    double py[POINTS] = {0}, pt[POINTS] = {0}, rank[POINTS], s = 0, var, m;
    size_t k = n < POINTS ? n : POINTS;

    for (size_t i = 0; i < k; i++) {
        size_t j = k > 1 ? i * (n - 1) / (k - 1) : 0;

        py[i] = y[j];
        pt[i] = t[j];
    }
    for (size_t i = 0; i < k; i++)
        for (size_t j = i + 1; j < k; j++)
            s += sign(py[j] - py[i]);
    m = (double)k;
    var = m * (m - 1) * (2 * m + 5) / 18;
    if (hamed_rao) {
        double sum = 0;
        struct line l = fit(pt, py, k);

        for (size_t i = 0; i < k; i++)
            py[i] -= l.slope * pt[i];
        for (size_t i = 0; i < k; i++) {
            rank[i] = 0;
            for (size_t j = 0; j < k; j++)
                rank[i] += sign(py[i] - py[j]);
        }
        for (size_t lag = 1; lag < k / 2; lag++) {
            double rho = ranks_rho(rank, k, lag);

            if (fabs(rho) > 1.96 / sqrt(m))
                sum += (m - (double)lag) * (m - (double)lag - 1) * (m - (double)lag - 2) * rho;
        }
        var *= fmax(1, 1 + 2 / (m * (m - 1) * (m - 2)) * sum);
    }
    return var > 0 ? s / sqrt(var) : 0;
}

static double lowest(const double *y, size_t n)
{
    double low = HUGE_VAL;

    for (size_t i = 0; i < n; i++)
        low = fmin(low, y[i]);
    return low;
}

bool baseline_says_leak(enum baseline b, const double *t, const double *y, size_t n, double limit)
{
    struct line l;
    size_t from = n;

    if (n < 20)
        return false;
    switch (b) {
    case BASELINE_FIRST_LAST:
        return lowest(y + n - 10, 10) > 1.01 * lowest(y, 10);
    case BASELINE_OLS:
        return fit(t, y, n).t_stat > 2.326;
    case BASELINE_MK:
        return mann_kendall(t, y, n, false) > 2.326;
    case BASELINE_MK_HR:
        return mann_kendall(t, y, n, true) > 2.326;
    case BASELINE_R2:
        l = fit(t, y, n);
        return l.slope > 0 && l.r2 >= 0.8;
    case BASELINE_PREDICT:
        while (from > 0 && t[n - 1] - t[from - 1] <= 900)
            from--;
        if (limit <= 0 || n - from < 20 || t[n - 1] - t[0] < 900)
            return false;
        l = fit(t + from, y + from, n - from);
        return l.at0 + l.slope * (t[n - 1] + 4 * 3600) > limit;
    case BASELINES:
        break;
    }
    return false;
}
