/* What the profiler knows of a job that told nothing itself. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/jury_private.h"
#include "profile/held.h"

enum { NOTICED_S = 10 }; /* that a process may have lived before it was seen */

bool jury_wants_held(const struct jury *j)
{
    return j->is_over && !j->clock.has_begun && !j->clock.has_step;
}

void jury_hear_held(struct jury *j, const struct held *list, size_t count)
{
    free(j->held);
    j->held = count ? calloc(count, sizeof *j->held) : NULL;
    j->held_count = j->held ? count : 0;
    if (j->held)
        memcpy(j->held, list, count * sizeof *list);
}

static bool is_of(const struct held *h, const struct jury_process *p)
{
    return h->pid == p->id.pid && h->start_ns + NOTICED_S * NS_PER_S >= p->born_ns &&
           (!p->died_ns || h->start_ns <= p->died_ns);
}

/* Of several of one process, which are by exec, the last. */
void jury_held_tell(const struct jury *j, struct jury_process *p)
{
    const struct held *found = NULL;
    for (size_t i = 0; i < j->held_count; i++)
        if (is_of(&j->held[i], p) && (!found || j->held[i].start_ns > found->start_ns))
            found = &j->held[i];
    if (found && p->seat && p->seat->is_judged && jury_wants_held(j))
        verdict_hear_held(&p->seat->result, &p->seat->series, &found->grown);
}
