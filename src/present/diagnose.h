/* Renders a diagnosis. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct diagnosis;
struct doc;

/* Renders the output of `ebb diagnose` below the lead: the ledger, the hypotheses and the advice.
 * Omits the first GIVEN_ADVICE pieces of advice, because the lead contains them. If ALL, also
 * renders the evidence against hypotheses that are ruled out, and the measurements that are missing
 * for hypotheses that cannot be tested. */
void diagnose_doc(struct doc *d, const struct diagnosis *v, bool all, size_t given_advice);
/* Adds the last facts of `ebb show`: the first hypothesis and the rest of the advice. */
void diagnose_summary(struct doc *d, const struct diagnosis *v, size_t given_advice);
