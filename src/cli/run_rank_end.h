/* The end of one rank: torchrun's error file, and for the last rank of the first node the summary
 * of all nodes. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct rank_place;
struct run_options;

/* BYE is the last message of the node's supervisor; NULL if there is none. HAS_FAILED means that
 * the rank has failed, so its end must not be delayed for long. */
void run_rank_end(const struct run_options *o, const struct rank_place *place, const json_t *bye,
                  bool has_failed);
