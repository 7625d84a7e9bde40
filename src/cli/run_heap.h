/* What the heap profiler found in a run, for its summary. */
#pragma once

#include <jansson.h>

struct facts;

/* Adds what grows in the heap of the run that DOC tells of, as DOC["heap"]["growing"]: call sites
 * as profile_rows_json has them, a few. Nothing where there is nothing to tell. FACTS: what was
 * read of the run already; NULL: nothing was. */
void run_heap_growing(json_t *doc, const struct facts *facts);
