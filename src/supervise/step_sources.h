/* Processes that send their own step marks: what the hooks of the Python package send about the
 * same training is left out, so that no step counts twice. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"

enum { STEP_SOURCES_MAX = 64 };
struct step_sources {
    struct step_source {
        int32_t pid;
        uint32_t kinds; /* that it sent itself, a bit each */
        int64_t step;   /* the last it sent */
        bool has_length, has_ended;
    } known[STEP_SOURCES_MAX];
    size_t n;
    uint64_t left_out;
};

/* True: MARK comes from a hook (BY=hook), its process sends steps itself, and MARK adds nothing to
 * them: it is not to be counted. What it can add is a kind of event, or the length of an epoch,
 * that the process has not sent, where both count the same steps. After an end the hooks may report
 * a training that follows. */
bool step_sources_skip(struct step_sources *s, const struct mark *mark);
