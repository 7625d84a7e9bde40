/* What a run is asked to be: the options of `ebb run`, which `ebb submit` sends to the server and
 * the server gives to `ebb run` again. One table for all of them. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "guard/settings.h"
#include "options/option.h"

/* Must be at the start of a command's own struct: the table's offsets are into this. */
struct run_options {
    struct guard_settings guard; /* complete after run_options_complete */
    const char *resume_args, *config;
    int64_t max_restarts;
    uint64_t interval_ns;
    uint64_t heap_interval_bytes;
    uint64_t log_max_bytes;
    const char *run_dir, *name;
    int64_t lock_fd;
    const char *folder_id;
    bool is_detached;
    bool no_record, no_unique, pss, no_terminal, no_shim, no_heap, no_heap_python;
    bool verbose, quiet, json;
};
extern const struct option_desc run_options_table[];

/* Takes in the config file, checks that options do not contradict each other, and completes the
 * settings of the guard. 0, or -errno with a sentence. */
int run_options_complete(struct run_options *o, struct options_given *given, struct err *err);
void run_options_fini(struct run_options *o); /* accepts a zeroed one */

/* Between options and the keys "limit" and "options" of a request (docs/api.md). A request that is
 * read is completed, too. */
int run_options_read_request(struct run_options *o, struct options_given *given,
                             const json_t *request, struct err *err);
int run_options_put_request(json_t *request, const struct options_given *given, struct err *err);
