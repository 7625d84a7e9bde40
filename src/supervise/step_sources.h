/* Tracks processes that send their own step marks. Marks that the hooks of the Python package send
 * about the same training are skipped, so that no step is counted twice. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"

enum { STEP_SOURCES_MAX = 64 };
struct step_sources {
    struct step_source {
        int32_t pid;
        uint32_t kinds; /* one bit for each kind of mark that the process sent itself */
        int64_t step;   /* the last step that the process sent itself */
        bool has_length, has_ended;
    } known[STEP_SOURCES_MAX];
    size_t n;
    uint64_t left_out;
};

/* True if MARK should be skipped. This is so if three conditions hold: a hook sent MARK (BY=hook),
 * its process sends steps itself, and MARK adds nothing, because the process itself has sent this
 * kind of event and the epoch length, counted in the same steps. After an end mark the hooks may
 * report the next training. */
bool step_sources_skip(struct step_sources *s, const struct mark *mark);
