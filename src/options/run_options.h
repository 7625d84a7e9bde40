/* The options of `ebb run`. One table serves three commands: `ebb run` and `ebb submit` parse their
 * command lines with it; `ebb serve` uses it to read the options that `ebb submit` sends. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "guard/settings.h"
#include "options/option.h"

/* The options of a run. This struct must be the first member of a command's own struct, because the
 * offsets in the table are relative to it. */
struct run_options {
    struct guard_settings guard; /* complete after run_options_complete */
    const char *resume_args, *config;
    int64_t max_restarts;
    uint64_t interval_ns;
    uint64_t heap_interval_bytes;
    uint64_t log_max_bytes;
    const char *run_dir, *name;
    const char *fail_on, *junit, *markdown, *metrics, *metrics_file,
        *termination_log; /* NULL: not given */
    int64_t lock_fd;
    const char *folder_id;
    bool is_detached, folder_control;
    bool no_record, no_unique, pss, no_terminal, no_shim, no_heap, no_heap_python;
    bool verbose, quiet, json;
};
extern const struct option_desc run_options_table[];

/* Reads the config file, checks for conflicts between options, and completes the settings of the
 * guard. Returns 0, or -errno with an error. */
int run_options_complete(struct run_options *o, struct options_given *given, struct err *err);
/* frees what the options own; accepts a zeroed struct */
void run_options_fini(struct run_options *o);

/* Converts options to and from the keys "limit" and "options" of a request (docs/reference/api.md).
 * Reading a request also completes the options. */
int run_options_read_request(struct run_options *o, struct options_given *given,
                             const json_t *request, struct err *err);
int run_options_put_request(json_t *request, const struct options_given *given, struct err *err);
