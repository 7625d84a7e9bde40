/* Tracks processes that send their own step marks. If hooks of ebb's Python package also send marks
 * for such a process, the marks of the hooks are skipped, so that no step is counted twice. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"

enum { STEP_SOURCES_MAX = 64 };
struct step_sources {
    struct step_source {
        int32_t pid;
        uint32_t kinds; /* bit mask of the types of marks that the process itself has sent */
        int64_t step;   /* the last step that the process itself has sent */
        bool has_length, has_ended;
    } known[STEP_SOURCES_MAX];
    size_t n;
    uint64_t left_out;
};

/* True if MARK should be skipped, because a hook sent it (BY=hook) for a process that sends its own
 * steps. Such a mark is kept only if it refers to the same steps and contains something that the
 * process has not sent: an epoch, an evaluation, a saved checkpoint or the length of an epoch.
 * After an end mark, marks of hooks are accepted again, because another training run may follow. */
bool step_sources_skip(struct step_sources *s, const struct mark *mark);
