/* Functions that gather facts; private to facts*.c. */
#pragma once

#include "diagnose/facts.h"
#include "judge/verdicts.h"

/* Reads the processes, figures and job series of one segment. Sets *ret_is_earlier if this segment
 * is not the last one of a restarted job. Returns 0 or -ENOMEM. */
int facts_take_run(struct facts *f, const struct recorded *recorded, bool *ret_is_earlier);
/* Reads the verdicts on processes, job and GPUs, and chooses the main process. IS_EARLIER is
 * *ret_is_earlier from facts_take_run. */
void facts_take_verdicts(struct facts *f, const struct verdicts *v, bool is_earlier);
void facts_read_heap(const struct recorded *recorded, struct facts *f);
void facts_heap_fini(struct facts_heap *h);
void facts_read_gpu(const struct recorded *recorded, struct facts *f);

/* Storage for the points of one series. */
struct facts_points {
    struct facts_points *next;
    double v[];
};
