/* The settings of a job's guard, from the options of `ebb run`. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/quantity.h"
#include "guard/checkpoint.h"
#include "guard/ladder.h"

/* The duration, number of steps or amount of memory after which --restart-every restarts the
 * job. */
enum restart_unit { RESTART_NEVER, RESTART_AFTER_NS, RESTART_AFTER_STEPS, RESTART_AT_BYTES };
struct restart_every {
    enum restart_unit unit;
    /* depending on the unit: nanoseconds, steps of the segment, or bytes of the job's memory */
    uint64_t value;
};

struct guard_settings {
    /* --no-guard; ebb still creates the cgroup, determines why the job ended, and reports leftover
     * files */
    bool is_off;
    bool dry_run;
    /* --limit, zeroed if not given; a percentage refers to the effective limit */
    struct quantity_size limit;
    struct quantity_size reserve; /* --reserve; a percentage refers to LIMIT */
    /* --gpu-limit for each GPU; a percentage refers to the GPU's total memory */
    struct quantity_size gpu_limit;
    /* settings of the ladder, except for reserve_bytes, which is computed from RESERVE later */
    struct ladder_rules rules;
    struct checkpoint_options checkpoint;
    bool no_cgroup;
    bool restart;
    bool requeue; /* return the job to Slurm's queue instead of stopping it */
    unsigned max_restarts;
    struct restart_every restart_every;
    /* NULL-terminated arguments to append to the command from the second segment on, or NULL */
    char **resume_args;
    bool keep_on_exit; /* the job continues if `ebb run` is killed */
    bool clean_shm;    /* remove the job's files in /dev/shm at the end */
};
