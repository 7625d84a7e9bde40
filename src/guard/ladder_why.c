/* Describes the ladder's reasons as text. */
#include <stdio.h>

#include "base/text.h"
#include "guard/ladder_private.h"

enum { PART = 88 };

/* Formats a time. Times of 1 s and more are in whole seconds, because the estimates are not more
 * precise. */
static const char *ladder_time_text(char out[TEXT_TIME_MAX], double s)
{
    if (!(s > 0))
        return "0 s";
    if (s > 1e9)
        return "years";
    if (s < 1 || s >= 59.5)
        return text_duration(out, (uint64_t)(s * 1e9));
    snprintf(out, TEXT_TIME_MAX, "%.0f s", s);
    return out;
}

static void left_text(const struct ladder *l, const struct ladder_input *in, unsigned i,
                      char out[PART])
{
    char room[TEXT_SIZE_MAX], limit[TEXT_SIZE_MAX], pace[TEXT_SIZE_MAX];
    const struct ladder_gauge *g = &in->gauge[i];
    int n = i < LADDER_HOST_GAUGES ? 0 : snprintf(out, PART, "gpu %u: ", i - LADDER_HOST_GAUGES);
    n += snprintf(out + n, PART - (size_t)n, "%s left of %s", text_size(room, g->room_bytes),
                  text_size(limit, g->limit_bytes));
    double rate = l->slow_pace[i] > 0 ? l->slow_pace[i] : g->pace_bytes_per_s;
    if (rate >= 1024 && rate < 1e15)
        snprintf(out + n, PART - (size_t)n, ", growing by %s/s", text_size(pace, (uint64_t)rate));
}

/* Writes "a step and a checkpoint take 8 s, with a margin of 2 s". */
static void need_text(const struct ladder *l, const struct timing *timing, double need_s,
                      char out[PART])
{
    char takes[TEXT_TIME_MAX], margin[TEXT_TIME_MAX];
    uint64_t step_ns;
    bool has_step = step_times_slow_ns(&timing->steps, &step_ns);
    snprintf(out, PART, "%s %s %s, with a margin of %s",
             has_step ? "a step and a checkpoint" : "a checkpoint",
             timing->saves == 0 ? "may take" : (has_step ? "take" : "takes"),
             ladder_time_text(takes, need_s - l->rules.margin_s),
             ladder_time_text(margin, l->rules.margin_s));
}

static void soon_text(const struct ladder *l, const struct ladder_input *in,
                      const struct timing *timing, const struct ladder_status *k, unsigned gauge,
                      double left_s, char ret[LADDER_WHY_MAX])
{
    char left[PART], need[PART], time[TEXT_TIME_MAX];
    need_text(l, timing, k->need_s, need);
    if (!k->lines[gauge].known) {
        snprintf(ret, LADDER_WHY_MAX, "full in %s; %s", ladder_time_text(time, left_s), need);
        return;
    }
    left_text(l, in, gauge, left);
    snprintf(ret, LADDER_WHY_MAX, "%s: %s in %s; %s", left,
             in->gauge[gauge].is_card ? "full" : "SIGTERM line reached",
             ladder_time_text(time, left_s), need);
}

unsigned ladder_gauge_of(const struct ladder_status *k, enum ladder_trigger trigger)
{
    return trigger == LADDER_BY_FORECAST ? k->forecast_gauge
           : trigger == LADDER_BY_PACE   ? k->pace_gauge
           : trigger == LADDER_BY_LEVEL  ? k->level_gauge
                                         : k->least;
}

static void reason_text(const struct ladder *l, const struct ladder_input *in,
                        const struct timing *timing, const struct ladder_status *k,
                        enum ladder_trigger trigger, char ret[LADDER_WHY_MAX])
{
    char left[PART], size[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    const unsigned gauge = ladder_gauge_of(k, trigger);
    left_text(l, in, gauge, left);
    switch (trigger) {
    case LADDER_BY_FORECAST:
        soon_text(l, in, timing, k, gauge, k->forecast_s, ret);
        break;
    case LADDER_BY_PACE:
        soon_text(l, in, timing, k, gauge, k->pace_s, ret);
        break;
    case LADDER_BY_LEVEL:
        snprintf(ret, LADDER_WHY_MAX, "%s; the reserve is %s", left,
                 text_size(size, k->lines[gauge].reserve));
        break;
    case LADDER_BY_PRESSURE:
        snprintf(ret, LADDER_WHY_MAX,
                 "for %s, the machine has stalled on memory %.0f %% of the time; %s",
                 ladder_time_text(time, k->pressed_s), 100 * in->pressure, left);
        break;
    case LADDER_BY_PLAN:
        snprintf(ret, LADDER_WHY_MAX, "a planned restart is due");
        break;
    default:
        snprintf(ret, LADDER_WHY_MAX, "%s", k->lines[gauge].known ? left : "no trigger is active");
        break;
    }
}

void ladder_why(const struct ladder *l, const struct ladder_input *in, const struct timing *timing,
                const struct ladder_status *k, enum ladder_trigger trigger, const char *end,
                char ret[LADDER_WHY_MAX])
{
    char reason[LADDER_WHY_MAX];
    reason_text(l, in, timing, k, trigger, reason);
    /* a text that is too long is cut within the reason, not within END */
    int room = LADDER_WHY_MAX - 1 - (int)snprintf(NULL, 0, "%s", end);
    snprintf(ret, LADDER_WHY_MAX, "%.*s%s", room > 0 ? room : 0, reason, end);
}
