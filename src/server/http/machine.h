/* Facts about the machine for the API: memory, the effective limit, load and GPUs. */
#pragma once

#include <jansson.h>
#include <stdint.h>

struct err;
struct machine_facts;

int machine_facts_new(struct machine_facts **ret, struct err *err);
void machine_facts_free(struct machine_facts *m); /* accepts NULL */
/* Returns the number of GPUs that the driver reports, or 0 if it does not respond within
 * WAIT_NS. */
unsigned machine_facts_gpus(struct machine_facts *m, uint64_t wait_ns);
/* Returns the effective memory limit, to which --memory N% refers, or 0 if it is unknown. */
uint64_t machine_facts_limit_bytes(struct machine_facts *m);
/* Returns a new document: memory, swap, limit, load, cpus, gpus, pressure. */
json_t *machine_facts_json(struct machine_facts *m, uint64_t now_ns);
