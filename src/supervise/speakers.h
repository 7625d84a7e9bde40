/* Who tells its own steps: what the hooks of the Python package say of the same training besides is
 * left out, so that no step counts twice. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"

enum { SPEAKERS_MAX = 64 };
struct speakers {
    struct speaker {
        int32_t pid;
        uint32_t kinds; /* that it told itself, a bit each */
        int64_t step;   /* the last it told */
        bool has_length, has_ended;
    } known[SPEAKERS_MAX];
    size_t n;
    uint64_t left_out;
};

/* Hears MARK. True: it comes from a hook (BY=hook), its process tells steps itself, and it says
 * nothing new of them: it is not to be counted. What is new is a kind of event, or the length of a
 * pass, that the process has not told, where both count the same steps. After an end the hooks may
 * tell of a training that follows. */
bool speakers_hear(struct speakers *s, const struct mark *mark);
