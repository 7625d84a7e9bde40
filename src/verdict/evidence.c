/* Writes the sentences for evidence, which is stored as codes and numbers. */
#include "verdict/verdict.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"

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

/* Formats an amount of memory with three significant digits. */
static const char *level_size(char out[PART], double bytes)
{
    return text_size(out, bytes > 0 ? (uint64_t)fmin(bytes, 9e18) : 0);
}

/* Formats a change of memory with two significant digits. */
static const char *change_size(char out[PART], double bytes)
{
    return text_about_size(out, fabs(bytes));
}

/* Formats a growth rate, for example "+9.0 MiB/step". */
static const char *rate_text(char out[PART], double bytes, double by_step)
{
    char size[PART];
    snprintf(out, PART, "%c%.24s/%s", bytes < 0 ? '-' : '+', change_size(size, bytes),
             by_step != 0 ? "step" : "min");
    return out;
}

/* Formats a length on the x axis, in steps or seconds. */
static const char *span_text(char out[PART], double x, double by_step)
{
    if (!isfinite(x) || x > 1e15)
        snprintf(out, PART, "unlimited time");
    else if (by_step != 0)
        snprintf(out, PART, "%.0f steps", x);
    else
        return text_about_time(out, x);
    return out;
}

static int input_text(char *out, size_t size, const struct verdict_evidence *e)
{
    const double *v = e->value;
    char a[PART];
    switch ((int)e->code) {
    case VERDICT_SAID_EMPTY:
        return snprintf(out, size, "there are no samples");
    case VERDICT_SAID_FEW:
        return snprintf(out, size, "%.0f sample%s after start-up; at least %.0f are needed", v[0],
                        v[0] == 1 ? "" : "s", v[1]);
    case VERDICT_SAID_NO_MARKS:
        return snprintf(out, size,
                        "no marks: warm-up is estimated and confidence is limited; step and epoch "
                        "marks would distinguish growth in the first epoch from a leak");
    case VERDICT_SAID_NO_EPOCH:
        return snprintf(out, size,
                        "the epoch length is unknown; --steps-per-epoch or an epoch mark would "
                        "show where the first epoch ends");
    case VERDICT_SAID_GAPS:
        return snprintf(out, size,
                        "%.0f gap%s in the samples, %s in total, excluded (suspended machine?)",
                        v[0], v[0] > 1 ? "s" : "", span_text(a, v[1], 0));
    case VERDICT_SAID_BACKWARDS:
        return snprintf(
            out, size,
            "%.0f sample%s excluded because of a time stamp before that of the previous sample",
            v[0], v[0] > 1 ? "s" : "");
    default:
        return -1;
    }
}

static int level_text(char *out, size_t size, const struct verdict_evidence *e)
{
    const double *v = e->value;
    char a[PART], b[PART];
    switch ((int)e->code) {
    case VERDICT_SAID_BASELINE:
        if (v[2] > 1) /* the two sizes are clearer than a percentage above 100 */
            return snprintf(out, size, "the baseline went from %s to %s", level_size(a, v[0]),
                            level_size(b, v[1]));
        return snprintf(out, size, "the baseline went from %s to %s (%+.1f %%)",
                        level_size(a, v[0]), level_size(b, v[1]), 100 * v[2]);
    case VERDICT_SAID_FLAT:
        return snprintf(out, size, "the baseline is flat: it changed by %s in %s",
                        change_size(a, v[0]), span_text(b, v[1], v[2]));
    case VERDICT_SAID_ENDED:
        if (v[1] != 0)
            return snprintf(out, size, "growth of %s stopped at step %.0f (%s)",
                            change_size(a, v[3]), v[0],
                            verdict_boundary_name((enum verdict_boundary)(int)v[2]));
        return snprintf(out, size, "growth of %s stopped %s after the first sample (%s)",
                        change_size(a, v[3]), span_text(b, v[0], 0),
                        verdict_boundary_name((enum verdict_boundary)(int)v[2]));
    case VERDICT_SAID_RESIDUAL:
        return snprintf(out, size,
                        "residual growth: %s, which added %s in the last third of the time",
                        rate_text(a, v[0], v[1]), change_size(b, v[2]));
    case VERDICT_SAID_SPIKES:
        return snprintf(out, size,
                        "%.0f spikes of up to %s; memory returned to the baseline after each", v[1],
                        change_size(a, v[0]));
    case VERDICT_SAID_NOISE:
        return snprintf(out, size, "growth of %s is uncertain: the noise is %s",
                        change_size(a, v[0]), change_size(b, v[1]));
    default:
        return -1;
    }
}

/* Returns the description of a model feature, or "" if FEATURE is negative. */
static const char *reason_text(double feature)
{
    return feature >= 0 && feature < MODEL_COUNT
               ? model_feature_text((enum model_feature)(int)feature)
               : "";
}

static const char *event_name(enum verdict_mark_kind kind)
{
    return kind == VERDICT_MARK_EVAL    ? "evaluation"
           : kind == VERDICT_MARK_SAVE  ? "checkpoint"
           : kind == VERDICT_MARK_EPOCH ? "epoch end"
                                        : verdict_mark_name(kind);
}

static int growth_text(char *out, size_t size, const struct verdict_evidence *e)
{
    const double *v = e->value;
    char a[PART], b[PART], c[PART];
    switch ((int)e->code) {
    case VERDICT_SAID_GROWS:
        return snprintf(out, size, "the baseline grew by %s in %s", change_size(a, v[2]),
                        span_text(b, v[0], v[1]));
    case VERDICT_SAID_SATURATING:
        return snprintf(out, size,
                        "growth that ends (a warm-up or a cache) and growth that continues fit the "
                        "samples equally well");
    case VERDICT_SAID_LIMITED:
        return snprintf(out, size,
                        v[3] > 0 ? "%.0f %% of the growth is in a container that is %.0f %% full; "
                                   "about %s until it is full"
                                 : "%.0f %% of the growth is in a container that is %.0f %% full "
                                   "and has stopped growing",
                        100 * v[2], 100 * v[0] / v[1], change_size(a, v[3]));
    case VERDICT_SAID_SLOWING:
        return snprintf(
            out, size,
            "growth is slowing: the rate in the last third of the time is %.0f %% of the mean rate",
            100 * v[0]);
    case VERDICT_SAID_EARLY:
        return snprintf(out, size,
                        "memory has grown since the start, for %s; growth in the first %s may be "
                        "warm-up or the first epoch",
                        span_text(a, v[0], v[2]), span_text(b, v[1], v[2]));
    case VERDICT_SAID_OVER:
        return snprintf(out, size,
                        "memory grew steadily until the job ended; without %s, a first epoch as "
                        "long as the job cannot be excluded",
                        v[0] != 0 ? "epoch marks" : "step and epoch marks");
    case VERDICT_SAID_LIVE_GROWS:
        return snprintf(out, size,
                        "the live heap leaks %s, %.0f %% of the growth rate of resident memory "
                        "(%.0f %% confident)",
                        rate_text(a, v[0], v[1]), 100 * fmin(v[2], 9.99), 100 * v[3]);
    case VERDICT_SAID_LIVE_HIDDEN:
        return snprintf(out, size,
                        "the live heap leaks %s (%.0f %% confident), %s so far; resident memory "
                        "does not show it, because the heap reuses memory that was already "
                        "resident",
                        rate_text(a, v[0], v[1]), 100 * v[3], change_size(b, v[2]));
    case VERDICT_SAID_SPARE:
        return snprintf(out, size,
                        "the live heap stopped growing: resident memory grew by %s, of which %s is "
                        "live and %s is retained by the allocator",
                        change_size(a, v[0]), change_size(b, v[1]), change_size(c, v[2]));
    case VERDICT_SAID_SEGMENT:
        return snprintf(out, size, "segment %.0f of this job was %s%s%s", v[0],
                        verdict_word_name((enum verdict_word)(int)v[1]), v[2] > 0 ? ": " : "",
                        v[2] > 0 ? rate_text(a, v[2], v[3]) : "");
    case VERDICT_SAID_DETECTABLE:
        return snprintf(out, size, "growth slower than %s/%s cannot be detected in this run",
                        change_size(a, v[0]), v[1] != 0 ? "step" : "min");
    case VERDICT_SAID_WEIGHED:
        if (v[0] > 0.2 && v[3] != 0)
            return snprintf(out, size,
                            "growth has ended; the other evidence alone would make a leak %.0f %% "
                            "probable",
                            100 * v[0]);
        if (v[0] > 0.2 && v[0] < 0.75)
            return snprintf(
                out, size,
                "the evidence is inconclusive: a leak is %.0f %% probable; a longer run "
                "would provide more evidence",
                100 * v[0]);
        return snprintf(out, size, "a leak is %.0f %% probable%s%s%s%s", 100 * v[0],
                        v[1] >= 0 ? "; main reasons: " : "", reason_text(v[1]),
                        v[2] >= 0 ? "; " : "", reason_text(v[2]));
    case VERDICT_SAID_LATE:
        /* if memory has more than doubled, the process was still starting up, so the percentage is
         * left out */
        if (v[2] > 1)
            return snprintf(
                out, size, "memory has grown again for only %s, which is too short a time to judge",
                span_text(a, v[1], v[3]));
        return snprintf(out, size,
                        "memory has grown again for %s, by %.0f %% of the baseline: the time is "
                        "too short and the growth too small to judge",
                        span_text(a, v[1], v[3]), 100 * v[2]);
    case VERDICT_SAID_EVENT_STEPS:
        return snprintf(out, size,
                        "the baseline grows by %s at each %s: %.0f such events account for %.0f %% "
                        "of all growth",
                        change_size(a, v[2]), event_name((enum verdict_mark_kind)(int)v[0]), v[1],
                        100 * fmin(1, v[3]));
    case VERDICT_SAID_MARTINGALE:
        return snprintf(out, size,
                        "sequential test for growth: log evidence %.1f, alarm threshold %.1f", v[0],
                        v[1]);
    case VERDICT_SAID_PEAK_OOM:
        if (isfinite(v[2]))
            snprintf(c, PART, " to %.30s", span_text(b, v[2], v[3]));
        return snprintf(out, size, "the limit is reached in %s%s%s%s%s",
                        isfinite(v[2]) ? "" : "at least ", span_text(b, v[1], v[3]),
                        isfinite(v[2]) ? c : "", v[0] >= 1 ? "; this allows for spikes of " : "",
                        v[0] >= 1 ? change_size(a, v[0]) : "");
    case VERDICT_SAID_PEERS:
        return snprintf(out, size, "%s in this rank; the median of all %.0f ranks is %s",
                        rate_text(a, v[0], v[1]), v[3], rate_text(b, v[2], v[1]));
    default:
        return -1;
    }
}

static int epoch_text(char *out, size_t size, const struct verdict_evidence *e)
{
    const double *v = e->value;
    char a[PART], b[PART], c[PART];
    switch ((int)e->code) {
    case VERDICT_SAID_FIRST_EPOCH:
        return snprintf(out, size, "step %.0f of %.0f in the first epoch: %s%s%s%s", v[0], v[1],
                        rate_text(a, v[2], 1), v[3] > 0 ? ", " : "",
                        v[3] > 0 ? change_size(b, v[3]) : "", v[3] > 0 ? " per new example" : "");
    case VERDICT_SAID_CEILING:
        if (v[1] > 0)
            return snprintf(
                out, size,
                "if the first epoch fills a cache, memory levels off near %s, %s the limit of %s",
                level_size(a, v[0]), v[2] != 0 ? "within" : "above", level_size(b, v[1]));
        return snprintf(out, size, "if the first epoch fills a cache, memory levels off near %s",
                        level_size(a, v[0]));
    case VERDICT_SAID_EPOCH_UNKNOWN:
        return snprintf(out, size,
                        "step %.0f, %s, and no epoch has ended yet: growth in the first epoch "
                        "and a leak look the same",
                        v[0], rate_text(a, v[1], 1));
    case VERDICT_SAID_EPOCH_JUST_ENDED:
        return snprintf(
            out, size,
            "the first epoch ended at %s %.0f; growth since then will be judged at %s %.0f",
            v[2] != 0 ? "step" : "second", v[0], v[2] != 0 ? "step" : "second", ceil(v[1]));
    case VERDICT_SAID_TAIL:
        return snprintf(out, size,
                        "since the first epoch ended, memory has grown at %.0f %% of that epoch's "
                        "rate; growth may be about to end",
                        100 * v[0]);
    case VERDICT_SAID_EPOCHS_RISE:
        return snprintf(out, size,
                        "memory at the same step of each epoch grows by %s per epoch (%.0f epochs, "
                        "spread %s), although each epoch releases %s",
                        change_size(b, v[0]), v[1], change_size(c, v[3]), change_size(a, v[2]));
    case VERDICT_SAID_EPOCHS_EQUAL:
        return snprintf(out, size,
                        "memory at the same step of each epoch is equal in all %.0f epochs: each "
                        "epoch releases the %s that it adds",
                        v[0], change_size(a, v[1]));
    case VERDICT_SAID_AFTER_EPOCH: {
        int len =
            snprintf(out, size, "growth continued after the first epoch ended at %s %.0f: %s since",
                     v[3] != 0 ? "step" : "second", v[0], change_size(a, v[1]));
        /* v[2] is 0 if memory did not grow within the epoch, so there is no rate to compare with */
        if (v[2] > 0 && len > 0 && (size_t)len < size)
            (void)snprintf(out + len, size - (size_t)len, ", at %.0f %% of the epoch's rate",
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
        (void)epoch_text(out, size, e);
    return out;
}
