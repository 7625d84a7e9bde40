/* The guard's part of the command line of `ebb run`: its options, and what they come to. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/quantity.h"
#include "cli/cli.h"
#include "guard/settings.h"

struct run_pressure {
    bool is_off;
    uint32_t permyriad; /* of the time */
};

/* As given. Must be at the start of the command's own struct: the table's offsets are into this. */
struct run_guard_options {
    struct quantity_size limit, reserve, gpu_limit; /* zeroed: not given */
    uint64_t margin_ns, checkpoint_ns, wait_ns, grace_ns;
    struct run_pressure pressure;
    int signo;
    const char *command, *done;
    struct restart_every restart_every;
    int64_t max_restarts;
    const char *resume_args;
    const char *config;
    bool restart, dry_run, no_guard;
    bool no_warn, no_checkpoint, no_term, no_kill, no_forecast, no_level, no_cgroup;
    bool keep_on_exit, clean_shm;
};
extern const struct cli_option run_guard_table[];

struct run_guard {
    struct guard_settings settings; /* point into CONFIG, and into the command line */
    struct buf config;
};

/* Takes in the config file, checks that one does not contradict the other, and works out the
 * settings. CALL's options are filled in from the file. 0, or -errno with a sentence. */
int run_guard_init(struct run_guard *g, const struct cli_call *call, struct err *err);
void run_guard_fini(struct run_guard *g); /* accepts a zeroed one */
