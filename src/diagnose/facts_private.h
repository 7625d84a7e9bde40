/* Functions that gather facts, one file for each source; private to facts*.c. */
#pragma once

#include "diagnose/facts.h"
#include "judge/verdicts.h"

/* Reads processes, figures and the job's series. Returns 0 or -ENOMEM. */
int facts_take_run(struct facts *f, const struct recorded *recorded);
/* Reads the verdicts on processes, job and GPUs, and chooses the main process. */
void facts_take_verdicts(struct facts *f, const struct verdicts *verdicts);
void facts_read_heap(const struct recorded *recorded, struct facts *f);
void facts_read_gpu(const struct recorded *recorded, struct facts *f);
/* Reads the censuses of the main process. */
void facts_read_census(const char *folder, struct facts *f);
