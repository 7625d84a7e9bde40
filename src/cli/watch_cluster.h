/* `ebb watch` on a job that runs on several nodes: reads its folder repeatedly. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct err;

struct watch_cluster_options {
    uint64_t interval_ns, for_ns; /* FOR_NS is 0 for no limit */
    bool json;
};
/* Watches the job folder PATH until all nodes have ended. Returns 0, or -errno and an error. */
int watch_cluster(const char *path, const struct watch_cluster_options *options, struct err *err);
