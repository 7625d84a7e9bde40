/* The facts of a job: taken from its supervisor's messages while it runs, and from its run.json at
 * the end. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/job_facts.h"
#include "supervise/message.h"

struct outcome;
/* Updates F from run.json. RUN is the JSON document, and O is the same document as a struct. GPUS
 * are the job's GPUs as bits. IS_ALONE means that no other job ran at the same time. */
void job_facts_end(struct job_facts *f, const json_t *run, const struct outcome *o, uint64_t gpus,
                   bool is_alone);
/* If FROM has the member m, copies it and sets has_m. */
#define FACTS_TAKE(to, from, m)                                                                    \
    ((from)->has_##m ? (void)((to)->m = (from)->m, (to)->has_##m = true) : (void)0)
