/* How `ebb run` ends: the summary of the run. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* DOC is run.json at the end. One sentence where the job could not be started; else the summary on
 * standard error, or DOC itself AS_JSON, with the call sites that grow and the diagnosis. */
void run_end_print(json_t *doc, bool is_quiet, bool as_json);
