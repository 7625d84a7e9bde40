/* Computes the model's features from the evidence, and contains the fitted weights. */
#include "verdict/model.h"

#include <math.h>
#include <stddef.h>

/* Growth has its full weight of 1 if it is at least this fraction of all memory. Below that, its
 * weight is proportional to its size. */
static const double MATERIAL = 0.05, MATERIAL_LIVE = 0.02, MATERIAL_SITES = 0.01;
/* The steadiness of growth is 1 minus ROUGH_FACTOR times its roughness. Growth below the fraction
 * SMALLEST of all memory is less steady, in proportion to its size. */
static const double SMALLEST = 0.005, ROUGH_FACTOR = 8;
/* Log evidence is divided by this before tanh is applied. Growth with odds of e^6 is nearly
 * certain. */
static const double EVIDENCE_SCALE = 6;

/* weights.inc defines model_weights[MODEL_MOMENTS]. */
#include "verdict/weights.inc"

#define X(sym, name, sign, what) [MODEL_##sym] = {name, what},
static const struct {
    const char *name, *text;
} features_known[] = {MODEL_FEATURES(X)};
#undef X

const char *model_feature_name(enum model_feature feature)
{
    return features_known[feature].name;
}

const char *model_feature_text(enum model_feature feature)
{
    return features_known[feature].text;
}

static double at_most(double x, double most)
{
    return fmin(most, fmax(0, x));
}

/* Maps BYTES, as a fraction of ALL, to a logarithmic scale: 1 % becomes 0.15, 10 % becomes 0.52 and
 * 100 % becomes 1. */
static double share(double bytes, double all)
{
    return bytes > 0 ? log1p(100 * bytes / all) / log(101) : 0;
}

/* Returns the weight of T's growth, from 0 to 1. The weight is 1 if the growth is at least the
 * fraction MATERIAL of ALL; the weight of smaller growth is proportional to its size. */
static double weight_of(const struct trend *t, double all, double material)
{
    return t->known ? at_most(t->growth / all / material, 1) : 0;
}

static double lasting(const struct trend *t, double weight)
{
    return t->known ? tanh(t->lasting / EVIDENCE_SCALE) * weight : 0;
}

static double forecast(const struct trend *t, double all)
{
    return t->known ? share(t->forecast, all) : 0;
}

static double steady(const struct trend *t, double all)
{
    return forecast(t, all) * fmax(0, 1 - t->fallen);
}

/* Returns the steadiness of T's growth, from 0 to 1. It is 0 if growth has ended. If the growth is
 * below the fraction SMALLEST of ALL, the steadiness is reduced in proportion. */
static double clean(const struct trend *t, double all)
{
    return t->known && t->growth > 0
               ? fmax(0, tanh(t->lasting / EVIDENCE_SCALE)) * fmax(0, 1 - ROUGH_FACTOR * t->rough) *
                     at_most(t->sixth, 1) * at_most(t->growth / all / SMALLEST, 1)
               : 0;
}

/* Returns WEIGHT times the growth rate after the first epoch relative to the rate within it. In the
 * first quarter of the second epoch, the result rises in proportion to the time, from 0 to its full
 * value. */
static double pace_past_epoch(const struct trend *t, double weight)
{
    return t->known && t->epochs > 1 ? fmin(1.5, t->pace) * fmin(1, 4 * (t->epochs - 1)) * weight
                                     : 0;
}

static void features_of_resident(const struct model_evidence *e, double all, double *f)
{
    const struct trend *r = &e->resident;
    double big = weight_of(r, all, MATERIAL), next = forecast(r, all);
    double past = r->epochs > 0 ? at_most(r->epochs - 1, 2) : 0;
    f[MODEL_FORECAST] = next;
    f[MODEL_STEADY] = steady(r, all);
    f[MODEL_LASTING] = lasting(r, big);
    f[MODEL_SIXTH] = at_most(r->sixth, 1.5) * big;
    f[MODEL_NET] = r->net * big;
    f[MODEL_ROUGH] = -r->rough * big;
    f[MODEL_CLEAN] = clean(r, all);
    f[MODEL_GROWN] = share(r->growth, all);
    f[MODEL_PAST] = past * next;
    f[MODEL_PACE] = pace_past_epoch(r, big);
    f[MODEL_NO_EPOCH] = r->epochs > 0 ? 0 : -next;
    f[MODEL_EVENTS] = r->events * big;
    f[MODEL_LIVE_KNOWN] = e->live.known ? -next : 0;
    f[MODEL_WHOLE] = e->is_whole ? -next : 0;
    f[MODEL_WORKER] = e->is_worker ? -next : 0;
}

static void features_of_sites(const struct model_sites *s, double all, double *f)
{
    const struct trend *kept = &s->kept, *settled = &s->settled;
    double late = settled->known ? fmax(0, settled->third * settled->growth / 3) : 0;
    double some = at_most(late / all / MATERIAL_SITES, 1);
    f[MODEL_SITES_GROWN] = share(s->grown, all);
    f[MODEL_SITES_EVEN] = s->grown > 0 ? fmin(1, 2 * s->grown_late / s->grown) *
                                             at_most(s->grown / all / MATERIAL_SITES, 1)
                                       : 0;
    f[MODEL_SITES_STEADY] = share(s->steady, all);
    f[MODEL_SITES_LONG] = share(s->steady_long, all);
    double both = s->sustained + s->slowed;
    f[MODEL_SUSTAINED] = share(s->sustained, all);
    f[MODEL_SUSTAINED_PART] =
        both > 0 ? s->sustained / both * at_most(both / all / MATERIAL_SITES, 1) : 0;
    f[MODEL_KEPT_FORECAST] = forecast(kept, all);
    f[MODEL_KEPT_LASTING] = lasting(kept, weight_of(kept, all, MATERIAL_LIVE));
    f[MODEL_WORK_FORECAST] = forecast(&s->by_work, all);
    f[MODEL_SETTLED_LATE] = share(late, all);
    f[MODEL_SETTLED_SIXTH] = settled->known ? at_most(settled->sixth, 1) * some : 0;
}

bool model_features(const struct model_evidence *e, double ret[MODEL_COUNT])
{
    const struct trend *live = &e->live;
    for (size_t i = 0; i < MODEL_COUNT; i++)
        ret[i] = 0;
    if (!e->resident.known)
        return false;
    double all = fmax(1, e->resident.base + fmax(0, e->resident.growth));
    double some = weight_of(live, all, MATERIAL_LIVE);
    features_of_resident(e, all, ret);
    ret[MODEL_LIVE_FORECAST] = forecast(live, all);
    ret[MODEL_LIVE_STEADY] = steady(live, all);
    ret[MODEL_LIVE_LASTING] = lasting(live, some);
    ret[MODEL_LIVE_CLEAN] = clean(live, all);
    ret[MODEL_LIVE_PACE] = pace_past_epoch(live, some);
    ret[MODEL_LIVE_THIRD] = live->known ? at_most(live->third, 1.5) * some : 0;
    const struct trend *box = &e->container;
    double gained = weight_of(box, all, MATERIAL_SITES);
    ret[MODEL_BOX_FORECAST] = forecast(box, all);
    ret[MODEL_BOX_LASTING] = lasting(box, gained);
    ret[MODEL_BOX_SIXTH] = box->known ? at_most(box->sixth, 1) * gained : 0;
    if (e->sites.known)
        features_of_sites(&e->sites, all, ret);
    return true;
}

double model_probability(const double features[MODEL_COUNT], enum model_moment moment,
                         double contributions[MODEL_COUNT])
{
    double sum = model_weights[moment].bias;
    for (size_t i = 0; i < MODEL_COUNT; i++)
        sum += contributions[i] = model_weights[moment].weight[i] * features[i];
    return 1 / (1 + exp(-sum));
}
