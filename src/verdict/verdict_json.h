/* A verdict as JSON, in one form everywhere: absent is null, an end that is not in sight is null.
 */
#pragma once

#include <jansson.h>

#include "verdict/verdict.h"

/* A finite number of a verdict as JSON has it: nine digits are more than is known of any, and
 * survive every way of printing. */
double verdict_rounded(double v);

/* "verdict", "confidence" and rates alone, into O. */
void verdict_json_add_word(json_t *o, const struct verdict_result *r);
void verdict_read_word(const json_t *o, struct verdict_result *r);

/* All of R, into O: but for "evidence", which verdict_result_json adds, a sentence each. */
void verdict_json_add(json_t *o, const struct verdict_result *r);
json_t *verdict_result_json(const struct verdict_result *r); /* NULL: out of memory */
/* Reads it back, but for the evidence. What is missing or of another type is unknown. */
void verdict_read(const json_t *o, struct verdict_result *r);
