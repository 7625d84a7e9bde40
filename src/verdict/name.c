/* Chooses the word for a leak: leaking if memory grows between events, stepping if it grows at
 * events. */
#include "verdict/judging.h"

#include <math.h>

#include "verdict/events.h"

void verdict_name_leak(struct verdict_result *r, const struct verdict_series *v)
{
    struct events_steps e;
    struct view w;
    if (r->word != VERDICT_LEAKING)
        return;
    view_build(&w, v, true, -HUGE_VAL, -HUGE_VAL);
    if (w.n < POINTS_AT_LEAST ||
        !events_hold_growth(v, w.sigma, fmax(v->options.material_fraction * w.low[0], 4 * w.sigma),
                            &e))
        return;
    r->word = VERDICT_STEPPING;
    r->event = e.kind;
    verdict_put_evidence_first(
        r, &(struct verdict_evidence){.code = VERDICT_SAID_EVENT_STEPS,
                                      .value = {e.kind, e.count, e.jump_bytes, e.share}});
}
