/* The fitted part of the verdict: the probability that a process, or the job as a whole, leaks,
 * given all evidence so far. research/fit.py fits the weights (weights.inc) to recordings
 * labelled as leaking or not; docs/internals/verdict.md has the method and the accuracy on unseen
 * programs. */
#pragma once

#include <stdbool.h>

#include "verdict/trend.h"

/* Evidence from the heap profiler about one process. */
struct model_sites {
    bool known; /* true if there were enough profiler readings */
    /* Growth in bytes since the middle of the run, and in the last quarter of the run. Only call
     * sites that free little of what they allocate are included, and only if their live bytes
     * clearly increased since the middle. */
    double grown, grown_late;
    /* Growth in bytes without spurts, at call sites that free little. A period is divided into
     * thirds, and the smallest growth in any third is multiplied by three. The period is the second
     * half of the run (steady) or its last three quarters (steady_long). */
    double steady, steady_long;
    /* Growth rates in bytes per epoch, for a run past its first epoch. Each call site that frees
     * little has one rate within the first epoch and one after it. SUSTAINED is the sum over the
     * sites of the lower of the two. SLOWED is the sum of all decreases from the first rate to the
     * second. Both are 0 if unknown. */
    double sustained, slowed;
    struct trend kept; /* trend over time of the live memory of call sites that free little */
    /* Trend of the live memory of call sites that free little, over the bytes that the process
     * has allocated. */
    struct trend by_work;
    /* Trend of memory that stays live: for each block of readings, the sum over all call sites of
     * the site's lowest live memory. */
    struct trend settled;
};

/* When the evidence was collected. Each moment has its own weights. */
enum model_moment {
    MODEL_RUNNING,    /* the job runs, and the length of its epochs is unknown */
    MODEL_PAST_EPOCH, /* the job runs and is past its first epoch */
    MODEL_OVER,       /* the job ended by itself */
    MODEL_MOMENTS
};

struct model_evidence {
    struct trend resident;  /* resident memory that can leak: without file pages, plus swap */
    struct trend live;      /* live heap as reported by the allocator */
    struct trend container; /* the Python container of this process that gained the most bytes */
    struct model_sites sites;
    enum model_moment moment;
    bool is_worker; /* true for a data-loader or compile worker */
    bool is_whole;  /* true for the job as a whole, false for one process */
};

/* X(symbol, name, sign, description). The weight of a feature with sign '+' is never negative. */
#define MODEL_FEATURES(X)                                                                          \
    X(FORECAST, "forecast", '+', "expected growth of resident memory")                             \
    X(STEADY, "steady", '+', "expected growth of resident memory, reduced by its falls")           \
    X(LASTING, "lasting", '+',                                                                     \
      "continuing growth fits resident memory better than growth that ends")                       \
    X(SIXTH, "sixth", '+', "growth of resident memory in the last sixth of the run")               \
    X(NET, "net", '+', "growth of resident memory relative to its fluctuation")                    \
    X(ROUGH, "rough", '+', "growth of resident memory is linear")                                  \
    X(CLEAN, "clean", '+', "growth of resident memory is steady and continues")                    \
    X(GROWN, "grown", '?', "growth of resident memory so far")                                     \
    X(PAST, "past", '+', "growth after the first epoch")                                           \
    X(PACE, "pace", '+', "growth rate after the first epoch relative to the rate within it")       \
    X(NO_EPOCH, "no_epoch", '?', "growth without a known epoch length")                            \
    X(EVENTS, "events", '+', "growth at evaluations, checkpoints and epoch ends")                  \
    X(LIVE_KNOWN, "live_known", '?', "growth of resident memory (live heap known)")                \
    X(LIVE_FORECAST, "live_forecast", '+', "expected growth of the live heap")                     \
    X(LIVE_STEADY, "live_steady", '+', "expected growth of the live heap, reduced by its falls")   \
    X(LIVE_LASTING, "live_lasting", '+', "the live heap shows continuing growth")                  \
    X(LIVE_PACE, "live_pace", '+',                                                                 \
      "growth rate of the live heap after the first epoch relative to the rate within it")         \
    X(LIVE_THIRD, "live_third", '+', "growth of the live heap in the last third of the run")       \
    X(LIVE_CLEAN, "live_clean", '+', "growth of the live heap is steady and continues")            \
    X(SITES_GROWN, "sites_grown", '+', "growth at call sites in the second half of the run")       \
    X(SITES_EVEN, "sites_even", '+', "growth at call sites is steady until the end")               \
    X(SITES_STEADY, "sites_steady", '+', "the same call sites grow again and again")               \
    X(SITES_LONG, "sites_long", '+', "the same call sites have grown for most of the run")         \
    X(SUSTAINED, "sustained", '+', "call sites grow as much after the first epoch as within it")   \
    X(SUSTAINED_PART, "sustained_part", '+',                                                       \
      "most call sites that grew within the first epoch continue at the same rate")                \
    X(BOX_FORECAST, "box_forecast", '+', "expected growth of a container")                         \
    X(BOX_LASTING, "box_lasting", '+', "a container shows continuing growth")                      \
    X(BOX_SIXTH, "box_sixth", '+', "growth of a container in the last sixth of the run")           \
    X(KEPT_FORECAST, "kept_forecast", '+', "expected growth at call sites that free little")       \
    X(KEPT_LASTING, "kept_lasting", '+', "call sites that free little show continuing growth")     \
    X(WORK_FORECAST, "work_forecast", '+',                                                         \
      "expected growth per allocated byte at call sites that free little")                         \
    X(SETTLED_LATE, "settled_late", '+',                                                           \
      "growth of long-lived memory in the last third of the run")                                  \
    X(SETTLED_SIXTH, "settled_sixth", '+',                                                         \
      "growth of long-lived memory in the last sixth of the run")                                  \
    X(WHOLE, "whole", '?', "growth of the job as a whole")                                         \
    X(WORKER, "worker", '?', "growth of a worker")

#define X(sym, name, sign, what) MODEL_##sym,
enum model_feature { MODEL_FEATURES(X) MODEL_COUNT };
#undef X
const char *model_feature_name(enum model_feature feature);
const char *model_feature_text(enum model_feature feature);

/* Computes the features of E. Returns false if resident memory has too few readings. */
bool model_features(const struct model_evidence *e, double ret[MODEL_COUNT]);
/* Returns the probability of a leak. CONTRIBUTIONS receives each feature's contribution to the
 * log-odds. */
double model_probability(const double features[MODEL_COUNT], enum model_moment moment,
                         double contributions[MODEL_COUNT]);
