/* Converts verdicts to and from JSON. Unknown values and infinite bounds are null. */
#pragma once

#include <jansson.h>

#include "verdict/verdict.h"

/* Rounds V to nine digits. No value is accurate to more digits, and a rounded value is printed
 * identically on every machine. */
double verdict_rounded(double v);

/* Adds only "verdict", "confidence" and the rates to O. */
void verdict_json_add_word(json_t *o, const struct verdict_result *r);
void verdict_read_word(const json_t *o, struct verdict_result *r);

/* Adds all of R except "evidence", which verdict_result_json adds as sentences. */
void verdict_json_add(json_t *o, const struct verdict_result *r);
/* Converts R to JSON; returns NULL if out of memory. */
json_t *verdict_result_json(const struct verdict_result *r);
/* Reads the integer at KEY. Returns false if it is missing, negative or not an integer. */
bool verdict_read_count(const json_t *o, const char *key, uint64_t *ret);
/* Reads a verdict without its evidence. Missing and mistyped values become unknown. */
void verdict_read(const json_t *o, struct verdict_result *r);
