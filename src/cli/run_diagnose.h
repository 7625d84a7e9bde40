/* The diagnosis of a run that has ended, for its summary. */
#pragma once

#include <jansson.h>

struct facts;

/* What was measured of the run that DOC tells of; NULL where the floor is flat, and there is
 * nothing to explain, or no recording is there. */
struct facts *run_facts(const json_t *doc);
/* Adds DOC["diagnosis"] where the job's memory grew: the verdict, the first hypothesis and what to
 * do, as diagnosis_brief_json has them. FACTS may be NULL. */
void run_diagnose(json_t *doc, const struct facts *facts);
