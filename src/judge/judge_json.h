/* Verdicts as JSON, in one form everywhere: `ebb verdict --json`, run.json, `ebb watch --json`.
 * Views make their text of it. */
#pragma once

#include <jansson.h>

#include "judge/judge.h"

/* One series. OFFSET_S is added to its times: from its own first reading to the recording's. */
json_t *judge_result_json(const struct verdict_result *r, double offset_s);
/* What the tree's verdict has besides: who grows, how many do, what the flat ones cost. GROWER (may
 * be NULL) is taken over. */
void judge_tree_json_add(json_t *o, const struct verdict_tree_result *tree, json_t *grower);

/* The tree alone, or null. */
json_t *judge_tree_json(const struct judge *j);
/* {"tree": …, "processes": […], "gpus": […], "series": […], "not_judged": n}. NULL: out of memory.
 */
json_t *judge_json(const struct judge *j);
