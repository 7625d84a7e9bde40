/* The suggested memory request, in the syntax of the job's scheduler. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct doc;

enum request_words { REQUEST_SLURM, REQUEST_KUBERNETES };
/* Returns the syntax of Kubernetes if this process runs in a pod, otherwise that of Slurm, which
 * users of other schedulers understand too. */
enum request_words request_words_here(void);

/* Sizes are per node, with a margin. A size of 0 is unknown. */
struct request {
    enum request_words words;
    bool is_per_node; /* the job runs on several nodes */
    double bytes;     /* memory that is enough for a run like this one */
    /* BYTES is enough for 98 % of this many runs of the same name; 0 if BYTES is based on this run
     * only */
    size_t runs;
    /* The memory of a leaking run depends on its length: it needed BYTES up to STEPS, will need
     * PLANNED_BYTES up to PLANNED_STEPS, and would need FIXED_BYTES without the leak. */
    bool is_leak;
    int64_t steps, planned_steps; /* 0: unknown */
    double planned_bytes, fixed_bytes;
};
/* Adds the fact "request", or nothing if no size is known. */
void request_put(struct doc *d, const struct request *r);
