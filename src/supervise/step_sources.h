/* Tracks processes that send their own step marks. Marks about the same training that hooks of
 * ebb's Python package send are skipped, so that no step is counted twice. */
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

/* True if MARK should be skipped, because a hook sent it (BY=hook) about a process that sends steps
 * itself, and it adds nothing: the process has already sent this type of mark and the epoch length,
 * and both count the same steps. After an end mark, marks of hooks are accepted again, because
 * another training may follow. */
bool step_sources_skip(struct step_sources *s, const struct mark *mark);
