/* Answers queries about a series. */
#include <math.h>

#include "diagnose/facts.h"

double facts_at(const struct facts_series *s, double t_s)
{
    double found = (double)NAN;
    for (size_t i = 0; i < s->count; i++) {
        if (isnan(s->v[i]))
            continue;
        if (s->t_s[i] > t_s)
            return isnan(found) ? s->v[i] : found;
        found = s->v[i];
    }
    return found;
}

/* Returns the index of the reading nearest to T_S, or the number of readings if there is none. */
static size_t nearest(const struct facts_series *s, double t_s)
{
    size_t found = s->count;
    for (size_t i = 0; i < s->count; i++)
        if (!isnan(s->v[i]) &&
            (found == s->count || fabs(s->t_s[i] - t_s) < fabs(s->t_s[found] - t_s)))
            found = i;
    return found;
}

double facts_near(const struct facts_series *s, double t_s)
{
    size_t at = nearest(s, t_s);
    return at < s->count ? s->v[at] : (double)NAN;
}

double facts_near_s(const struct facts_series *s, double t_s)
{
    size_t at = nearest(s, t_s);
    return at < s->count ? s->t_s[at] : (double)NAN;
}

double facts_max(const struct facts_series *s, double from_s, double to_s)
{
    double most = (double)NAN;
    for (size_t i = 0; i < s->count; i++)
        if (s->t_s[i] >= from_s && s->t_s[i] <= to_s)
            most = fmax(most, s->v[i]);
    return most;
}

double facts_min(const struct facts_series *s, double from_s, double to_s)
{
    double least = (double)NAN;
    for (size_t i = 0; i < s->count; i++)
        if (s->t_s[i] >= from_s && s->t_s[i] <= to_s)
            least = fmin(least, s->v[i]);
    return least;
}

double facts_growth(const struct facts_series *s, double from_s, double to_s)
{
    return facts_at(s, to_s) - facts_at(s, from_s);
}
