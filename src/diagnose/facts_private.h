/* How facts are gathered: one file for each source. For facts*.c alone. */
#pragma once

#include "diagnose/facts.h"
#include "judge/verdicts.h"

/* Processes, figures and the job's series. 0 or -ENOMEM. */
int facts_take_run(struct facts *f, const struct recorded *recorded);
/* The verdicts of processes, job and GPUs; chooses main. */
void facts_take_verdicts(struct facts *f, const struct verdicts *verdicts);
/* The two moments; after marks and main are known. */
void facts_choose_moments(struct facts *f);
void facts_read_heap(const struct recorded *recorded, struct facts *f);
void facts_read_census(const char *folder, struct facts *f); /* main's own */
