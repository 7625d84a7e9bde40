/* Compares a process's own step marks with those that hooks of ebb's Python package send for the
 * process. */
#include "supervise/step_sources.h"

#include <stdlib.h>
#include <string.h>

static struct step_source *source_of(struct step_sources *s, int32_t pid)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->known[i].pid == pid)
            return &s->known[i];
    return NULL;
}

static void add_own_mark(struct step_sources *s, const struct mark *mark)
{
    struct step_source *source = source_of(s, mark->pid);
    if (!source) {
        /* replace the oldest entry, whose process has most likely exited */
        if (s->n == STEP_SOURCES_MAX)
            memmove(s->known, s->known + 1, --s->n * sizeof *s->known);
        source = &s->known[s->n++];
        *source = (struct step_source){.pid = mark->pid};
    }
    source->kinds |= 1u << mark->kind;
    source->has_length |= mark->has & (MARK_HAS_STEPS_PER_EPOCH | MARK_HAS_EXAMPLES);
    if (mark->kind == MARK_END || mark->kind == MARK_STEP)
        source->has_ended = mark->kind == MARK_END;
    if (mark->has & MARK_HAS_STEP)
        source->step = mark->step;
}

/* True if a MARK of a hook refers to the steps that the process sends itself, and adds information
 * that the process has not sent. */
static bool adds_something(const struct step_source *source, const struct mark *mark)
{
    bool is_event = mark->kind == MARK_EVAL || mark->kind == MARK_SAVE || mark->kind == MARK_EPOCH;
    if (!(mark->has & MARK_HAS_STEP) || llabs(mark->step - source->step) > 1)
        return false;
    return (is_event && !(source->kinds & 1u << mark->kind)) ||
           (mark->kind == MARK_STEP && mark->has & MARK_HAS_STEPS_PER_EPOCH && !source->has_length);
}

bool step_sources_skip(struct step_sources *s, const struct mark *mark)
{
    if (!mark->pid || mark->kind < MARK_BEGIN || mark->kind > MARK_END)
        return false;
    if (!mark_is(mark, "BY", "hook")) {
        add_own_mark(s, mark);
        return false;
    }
    struct step_source *source = source_of(s, mark->pid);
    if (!source || !(source->kinds & 1u << MARK_STEP) || adds_something(source, mark))
        return false;
    bool is_next_training =
        source->has_ended &&
        (mark->kind == MARK_BEGIN || (mark->has & MARK_HAS_STEP && mark->step > source->step));
    if (is_next_training)
        *source = (struct step_source){.pid = mark->pid};
    else
        s->left_out++;
    return !is_next_training;
}
