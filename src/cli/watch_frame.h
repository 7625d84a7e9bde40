/* What the engine knows, as the frame that the views show. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "judge/verdicts.h"
#include "proc/machine.h"
#include "present/frame.h"

struct engine;

/* Zeroed is a valid empty one. Its memory is used again at each tick. */
struct watch_frame {
    struct frame frame;
    size_t rows_cap;
    uint64_t judged; /* how often, when the verdicts were made */
    struct verdicts verdicts;
};

void watch_frame_fini(struct watch_frame *f);
/* Fills in everything but title and notice. 0 or -ENOMEM. */
int watch_frame_fill(struct watch_frame *f, struct engine *e, uint64_t now_ns);
