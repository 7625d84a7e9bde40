/* What a user may set about the guard of a run: the flags of `ebb run`, as numbers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/quantity.h"
#include "guard/ask.h"
#include "guard/ladder.h"

/* --restart-every: a planned restart, so that a leak never gets far. */
enum restart_unit { RESTART_NEVER, RESTART_AFTER_NS, RESTART_AFTER_STEPS, RESTART_AT_BYTES };
struct restart_every {
    enum restart_unit unit;
    uint64_t value; /* nanoseconds, steps of this segment, or memory of the job */
};

struct guard_settings {
    bool
        is_off; /* --no-guard: nothing below acts; isolation, cause of death and giving back stay */
    bool dry_run;
    struct quantity_size limit;     /* zeroed: not given; a share is of the effective limit */
    struct quantity_size reserve;   /* a share is of the line that is defended */
    struct quantity_size gpu_limit; /* of each device; a share is of its memory */
    struct ladder_rules rules;      /* reserve_bytes is worked out from RESERVE later */
    struct ask_options ask;
    bool no_cgroup; /* do not make a cgroup, even where we may */
    bool restart;
    unsigned max_restarts;
    struct restart_every restart_every;
    char *
        *resume_args; /* NULL-ended, added to the command from the second segment on; may be NULL */
    bool keep_on_exit; /* the job lives on when `ebb run` is killed */
    bool clean_shm;    /* remove what it left in /dev/shm */
};
