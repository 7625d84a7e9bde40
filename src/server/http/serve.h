/* `ebb serve`: jobs, HTTP and the live stream on one event loop. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/jobs/jobs.h"

struct err;

struct serve_options {
    struct jobs_options jobs;
    bool gpus_auto; /* use as many GPUs as the driver reports */
    /* compute jobs.memory_bytes from the effective limit: memory_permyriad / 10,000 of it */
    bool memory_auto;
    uint32_t memory_permyriad;
    const char *listen; /* "127.0.0.1:7433", "[::1]:0", "none" */
    const char *socket; /* path of the unix socket; if NULL, STATE/sock */
    const char *const *hosts;
    bool no_auth; /* --no-auth, which is allowed only for loopback addresses */
    unsigned viewers_max, connections_max;
    const char *import; /* path of a job file to import at the start, or NULL */
    /* path of a file into which the server writes its address once it listens, or NULL */
    const char *ready_file;
};

/* Implements --check: tests whether folders, addresses and tokens can be used. Returns 0 or
 * -errno. */
int serve_check(const struct serve_options *options, struct err *err);
/* Runs the server until SIGTERM or SIGINT. Jobs continue to run afterwards. Returns 0 or -errno. */
int serve_run(const struct serve_options *options, struct err *err);
