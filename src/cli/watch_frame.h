/* Converts the engine's state to the frame that the views show. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "judge/verdicts.h"
#include "proc/machine.h"
#include "present/frame.h"

struct engine;

/* A zeroed struct is valid and empty. Its memory is reused at each tick. */
struct watch_frame {
    struct frame frame;
    size_t rows_cap;
    uint64_t judged; /* number of verdict updates up to this frame */
    struct verdicts verdicts;
};

void watch_frame_fini(struct watch_frame *f);
/* Fills in everything except title and notice. Returns 0 or -ENOMEM. */
int watch_frame_fill(struct watch_frame *f, struct engine *e, uint64_t now_ns);
