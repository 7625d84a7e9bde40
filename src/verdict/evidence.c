/* Sentences for coded evidence. */
#include "verdict/verdict.h"

#include <math.h>
#include <stdio.h>

static const char *const BOUNDARIES[VERDICT_BOUNDARIES] = {
    [VERDICT_AT_NONE] = "no known boundary",
    [VERDICT_AT_STEP] = "no known boundary near that step",
    [VERDICT_AT_FIRST_EPOCH] = "the end of the first epoch",
    [VERDICT_AT_EPOCH] = "the end of an epoch",
    [VERDICT_AT_EVAL] = "an evaluation",
    [VERDICT_AT_SAVE] = "a checkpoint",
    [VERDICT_AT_BEGIN] = "the start of training",
};

const char *verdict_boundary_name(enum verdict_boundary at)
{
    return (unsigned)at < VERDICT_BOUNDARIES ? BOUNDARIES[at] : BOUNDARIES[0];
}

enum { PART = 40 };

static const char *size_text(char out[PART], double bytes)
{
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double b = fabs(bytes);
    unsigned u = 0;
    while (b >= 1000 && u < 4) {
        b /= 1024;
        u++;
    }
    if (b >= 1000)
        snprintf(out, PART, "%s%.0f %s", bytes < 0 ? "-" : "", b, UNITS[u]);
    else
        snprintf(out, PART, "%s%.3g %s", bytes < 0 ? "-" : "", b, UNITS[u]);
    return out;
}

/* A length on the x axis: steps or seconds. */
static const char *span_text(char out[PART], double x, double by_step)
{
    if (!isfinite(x) || x > 1e15)
        snprintf(out, PART, "no end in sight");
    else if (by_step != 0)
        snprintf(out, PART, "%.0f steps", x);
    else if (x < 100)
        snprintf(out, PART, "%.0f s", x);
    else if (x < 6000)
        snprintf(out, PART, "%.1f min", x / 60);
    else
        snprintf(out, PART, "%.1f h", x / 3600);
    return out;
}

static int input_text(char *out, size_t size, const struct verdict_evidence *e)
{
    const double *v = e->value;
    char a[PART];
    switch ((int)e->code) {
    case VERDICT_SAID_EMPTY:
        return snprintf(out, size, "there are no readings");
    case VERDICT_SAID_FEW:
        return snprintf(out, size, "only %.0f usable reading%s; at least %.0f are needed", v[0],
                        v[0] == 1 ? "" : "s", v[1]);
    case VERDICT_SAID_NO_MARKS:
        return snprintf(out, size,
                        "no marks: warm-up is inferred and confidence capped; step and epoch marks "
                        "would tell a first pass from a leak");
    case VERDICT_SAID_NO_EPOCH:
        return snprintf(out, size,
                        "the length of an epoch is not known; --steps-per-epoch or an epoch mark "
                        "would tell when the first pass ends");
    case VERDICT_SAID_GAPS:
        return snprintf(out, size, "%.0f gap%s of %s in all left out (suspended machine?)", v[0],
                        v[0] > 1 ? "s" : "", span_text(a, v[1], 0));
    case VERDICT_SAID_BACKWARDS:
        return snprintf(out, size, "%.0f reading%s older than the one before left out", v[0],
                        v[0] > 1 ? "s" : "");
    default:
        return -1;
    }
}

static int level_text(char *out, size_t size, const struct verdict_evidence *e)
{
    const double *v = e->value;
    char a[PART], b[PART];
    switch ((int)e->code) {
    case VERDICT_SAID_FLOOR:
        return snprintf(out, size, "the floor went from %s to %s (%+.1f %%)", size_text(a, v[0]),
                        size_text(b, v[1]), 100 * v[2]);
    case VERDICT_SAID_FLAT:
        return snprintf(out, size, "the floor moved by %s in %s: flat", size_text(a, v[0]),
                        span_text(b, v[1], v[2]));
    case VERDICT_SAID_ENDED:
        if (v[1] != 0)
            return snprintf(out, size, "it grew by %s and stopped at step %.0f (%s)",
                            size_text(a, v[3]), v[0],
                            verdict_boundary_name((enum verdict_boundary)(int)v[2]));
        return snprintf(out, size, "it grew by %s and stopped %s after the first reading (%s)",
                        size_text(a, v[3]), span_text(b, v[0], 0),
                        verdict_boundary_name((enum verdict_boundary)(int)v[2]));
    case VERDICT_SAID_RESIDUAL:
        return snprintf(out, size, "a residual slope of %s a %s remains (%s in the last third)",
                        size_text(a, v[0]), v[1] != 0 ? "step" : "minute", size_text(b, v[2]));
    case VERDICT_SAID_SPIKES:
        return snprintf(out, size, "%.0f spikes of up to %s, and the floor came back each time",
                        v[1], size_text(a, v[0]));
    case VERDICT_SAID_GIVEN_BACK:
        return snprintf(out, size, "the present rise of %s may be given back: one of %s was",
                        size_text(a, v[0]), size_text(b, v[1]));
    case VERDICT_SAID_NOISE:
        return snprintf(out, size, "growth of %s is not certain against a spread of %s",
                        size_text(a, v[0]), size_text(b, v[1]));
    default:
        return -1;
    }
}

static int growth_text(char *out, size_t size, const struct verdict_evidence *e)
{
    const double *v = e->value;
    char a[PART], b[PART], c[PART];
    switch ((int)e->code) {
    case VERDICT_SAID_GROWS:
        return snprintf(out, size, "the floor rose by %s in %s", size_text(a, v[2]),
                        span_text(b, v[0], v[1]));
    case VERDICT_SAID_SATURATING:
        return snprintf(out, size,
                        "a curve that ends (a warm-up or a cache) explains the growth as well as "
                        "one that does not");
    case VERDICT_SAID_SLOWING:
        return snprintf(out, size,
                        "growth is slowing: the last third has %.0f %% of the mean slope",
                        100 * v[0]);
    case VERDICT_SAID_EARLY:
        return snprintf(out, size,
                        "growing since the start, for %s; before %s this may be warm-up or a first "
                        "pass over the data",
                        span_text(a, v[0], v[2]), span_text(b, v[1], v[2]));
    case VERDICT_SAID_OVER:
        return snprintf(out, size,
                        "the job is over, and memory rose evenly until its end; that this was a "
                        "first pass over the data, as long as the job, cannot be excluded: %s "
                        "would tell",
                        v[0] != 0 ? "the end of an epoch" : "step and epoch marks");
    case VERDICT_SAID_LIVE_GROWS:
        return snprintf(
            out, size,
            "what is in use keeps growing: the live heap leaks %s a %s (confidence %.0f "
            "%%), %.0f %% of what resident memory grows by",
            size_text(a, v[0]), v[1] != 0 ? "step" : "minute", 100 * v[3], 100 * fmin(v[2], 9.99));
    case VERDICT_SAID_LIVE_HIDDEN:
        return snprintf(out, size,
                        "what is in use keeps growing, into holes that the process held already: "
                        "the live heap leaks %s a %s (confidence %.0f %%), %s so far",
                        size_text(a, v[0]), v[1] != 0 ? "step" : "minute", 100 * v[3],
                        size_text(b, v[2]));
    case VERDICT_SAID_SPARE:
        return snprintf(out, size,
                        "what is in use stands: of %s that resident memory rose by, %s came into "
                        "use before that, and %s is free and kept by malloc",
                        size_text(a, v[0]), size_text(b, v[1]), size_text(c, v[2]));
    case VERDICT_SAID_HELD_GROWS:
        return snprintf(out, size,
                        "by the profiler's samples what the program holds grew evenly to the end, "
                        "%s a minute, %s in all; resident memory by %s in that time",
                        size_text(a, v[0]), size_text(b, v[1]), size_text(c, v[2]));
    case VERDICT_SAID_HELD_ALONE:
        return snprintf(out, size,
                        "by the profiler's samples what the program holds grew evenly to the end, "
                        "by %s, and resident memory by %s: a leak into holes of the heap, or "
                        "memory that was never touched",
                        size_text(a, v[0]), size_text(b, v[1]));
    case VERDICT_SAID_LATE:
        if (v[2] > 1) /* the floor was that of a process that had just begun */
            return snprintf(out, size,
                            "a new rise, %s long so far: too short against what came before",
                            span_text(a, v[1], v[3]));
        return snprintf(out, size,
                        "a new rise, %s long so far and %.0f %% of the floor: too short and too "
                        "small against what came before",
                        span_text(a, v[1], v[3]), 100 * v[2]);
    case VERDICT_SAID_EVENT_STEPS:
        return snprintf(out, size,
                        "the floor rises by %s at each %s and stays: %.0f seen, %.0f %% of all "
                        "growth",
                        size_text(a, v[2]), verdict_mark_name((enum verdict_mark_kind)(int)v[0]),
                        v[1], 100 * fmin(1, v[3]));
    case VERDICT_SAID_MARTINGALE:
        return snprintf(out, size,
                        "anytime-valid test: log wealth %.1f against %.1f needed for the alarm",
                        v[0], v[1]);
    case VERDICT_SAID_PEAK_OOM:
        if (!(v[0] >= 1))
            return snprintf(out, size, "the limit is reached in %s to %s", span_text(b, v[1], v[3]),
                            span_text(c, v[2], v[3]));
        return snprintf(out, size, "with %s kept free for spikes the limit is reached in %s to %s",
                        size_text(a, v[0]), span_text(b, v[1], v[3]), span_text(c, v[2], v[3]));
    default:
        return -1;
    }
}

static int pass_text(char *out, size_t size, const struct verdict_evidence *e)
{
    const double *v = e->value;
    char a[PART], b[PART], c[PART];
    switch ((int)e->code) {
    case VERDICT_SAID_FIRST_PASS:
        if (v[3] > 0)
            return snprintf(out, size,
                            "step %.0f of a first pass of %.0f: %s a step, %s a new example", v[0],
                            v[1], size_text(a, v[2]), size_text(b, v[3]));
        return snprintf(out, size, "step %.0f of a first pass of %.0f: %s a step", v[0], v[1],
                        size_text(a, v[2]));
    case VERDICT_SAID_CEILING:
        if (v[1] > 0)
            return snprintf(out, size, "if it is a first-touch cache it ends near %s, which %s %s",
                            size_text(a, v[0]),
                            v[2] != 0 ? "fits the limit of" : "exceeds the limit of",
                            size_text(b, v[1]));
        return snprintf(out, size, "if it is a first-touch cache it ends near %s",
                        size_text(a, v[0]));
    case VERDICT_SAID_PASS_UNKNOWN:
        return snprintf(out, size,
                        "step %.0f, %s a step, and no epoch has ended yet: a first pass and a leak "
                        "look the same",
                        v[0], size_text(a, v[1]));
    case VERDICT_SAID_PASS_JUST_ENDED:
        return snprintf(out, size, "the first pass ended at %.0f; it is known by %.0f", v[0],
                        ceil(v[1]));
    case VERDICT_SAID_TAIL:
        return snprintf(out, size,
                        "growth after the first pass has %.0f %% of its pace: it may be its tail",
                        100 * v[0]);
    case VERDICT_SAID_PASSES_RISE:
        return snprintf(out, size,
                        "every pass gives back %s, and at the same step of each memory is %s above "
                        "the pass before, over %.0f passes, with a spread of %s",
                        size_text(a, v[2]), size_text(b, v[0]), v[1], size_text(c, v[3]));
    case VERDICT_SAID_PASSES_SAME:
        return snprintf(out, size,
                        "at the same step of each of %.0f passes memory is the same: what it rises "
                        "by, %s, is given back within the pass",
                        v[0], size_text(a, v[1]));
    case VERDICT_SAID_BEYOND_PASS: {
        int len =
            snprintf(out, size, "growth went on after the first pass ended at %s %.0f: %s since",
                     v[3] != 0 ? "step" : "second", v[0], size_text(a, v[1]));
        /* 0: the pass itself had none to compare it with */
        if (v[2] > 0 && len > 0 && (size_t)len < size)
            (void)snprintf(out + len, size - (size_t)len, ", %.0f %% of the pass's own pace",
                           100 * v[2]);
        return len;
    }
    default:
        return -1;
    }
}

char *verdict_evidence_text(char *out, size_t size, const struct verdict_evidence *e)
{
    if (size == 0)
        return out;
    out[0] = '\0';
    if (input_text(out, size, e) < 0 && level_text(out, size, e) < 0 &&
        growth_text(out, size, e) < 0)
        (void)pass_text(out, size, e);
    return out;
}
