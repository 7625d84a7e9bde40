/* The diagnosis of a run as one document: the ledger, the hypotheses with their evidence, what to
 * do. Views make their text of it. docs/diagnose.md. */
#pragma once

#include <jansson.h>

#include "diagnose/facts.h"

/* {"format": 1, "verdict": sentence, "process": {…}, "growth_bytes", "ledger": {…}, "hypotheses":
 * [ranked: {key, title, word, share, for: […], against: […], absent: […], decide, site}],
 * "advice": [{because, what, effect}], "absent": […]}. NULL: out of memory. */
json_t *diagnose_json(const struct facts *f);
