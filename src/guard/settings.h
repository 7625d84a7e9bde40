/* The settings of a job's guard, from the options of `ebb run`. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/quantity.h"
#include "guard/checkpoint.h"
#include "guard/ladder.h"

/* --restart-every: planned restarts, before a leak gets far. */
enum restart_unit { RESTART_NEVER, RESTART_AFTER_NS, RESTART_AFTER_STEPS, RESTART_AT_BYTES };
struct restart_every {
    enum restart_unit unit;
    uint64_t value; /* nanoseconds, steps of the segment, or bytes of the job's memory */
};

struct guard_settings {
    bool is_off; /* --no-guard; the cgroup, the cause of the end and leftovers are still handled */
    bool dry_run;
    struct quantity_size limit;     /* zeroed: not given; a share refers to the effective limit */
    struct quantity_size reserve;   /* a share refers to LIMIT */
    struct quantity_size gpu_limit; /* for each GPU; a share refers to its memory */
    struct ladder_rules rules;      /* reserve_bytes is computed from RESERVE later */
    struct checkpoint_options checkpoint;
    bool no_cgroup;
    bool restart;
    unsigned max_restarts;
    struct restart_every restart_every;
    char **resume_args; /* NULL-terminated, appended to the command from the second segment on; may
                           be NULL */
    bool keep_on_exit;  /* the job continues when `ebb run` is killed */
    bool clean_shm;     /* remove the job's files in /dev/shm */
};
