/* ebb serve: everything of the server put together on one loop. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/jobs/jobs.h"

struct err;

struct serve_options {
    struct jobs_options jobs;
    bool gpus_auto;   /* as many as the driver reports */
    bool memory_auto; /* jobs.memory_bytes is memory_permyriad of the limit that binds us */
    uint32_t memory_permyriad;
    const char *listen; /* "127.0.0.1:7433", "[::1]:0", "none" */
    const char *socket; /* unix socket; NULL: STATE/sock */
    const char *const *hosts;
    bool no_auth; /* loopback only */
    unsigned viewers_max, connections_max;
    const char *import;     /* a job file to take in first; NULL */
    const char *ready_file; /* gets one line with the address when the server listens; NULL */
};

/* Only what --check can know: folders, addresses, tokens. 0, or -errno with a sentence. */
int serve_check(const struct serve_options *options, struct err *err);
/* Until SIGTERM or SIGINT; jobs run on. 0, or -errno with a sentence. */
int serve_run(const struct serve_options *options, struct err *err);
